use super::*;

fn producer(address: &str, hostname: &str, version: &str) -> NodeInfo {
    let (host, port) = address.rsplit_once(':').expect("an address has a port");
    NodeInfo {
        remote_address: format!("from-{address}"),
        hostname: hostname.to_owned(),
        broadcast_address: host.to_owned(),
        tcp_port: port.parse().expect("a port is a number"),
        http_port: 4151,
        version: version.to_owned(),
        topics: vec!["b".to_owned(), "a".to_owned()],
        tombstones: vec![true],
        ..NodeInfo::default()
    }
}

#[test]
fn a_node_of_two_nsqlookupds_is_one_node() {
    let mut silent = producer("n1:4150", "other", "1.3.0");
    silent.remote_address.clear();
    let nodes = merge(vec![
        (
            "l1:1".to_owned(),
            vec![
                producer("n2:4150", "h", "1.2.9"),
                producer("n1:4150", "h", "1.3.0"),
            ],
        ),
        (
            "l2:1".to_owned(),
            vec![silent, producer("n3:4150", "g", "nonsense")],
        ),
    ]);
    let names: Vec<_> = nodes
        .iter()
        .map(|node| node.info.broadcast_address.as_str())
        .collect();
    assert_eq!(names, ["n3", "n1", "n2"], "by hostname, then by address");
    let n1 = &nodes[1];
    assert_eq!(
        n1.info.hostname, "h",
        "the first nsqlookupd supplies the fields"
    );
    assert_eq!(
        n1.remote_addresses.as_deref(),
        Some(&["l1:1/from-n1:4150".to_owned(), "l2:1/N/A".to_owned()][..])
    );
    let out_of_date: Vec<_> = nodes.iter().map(|node| node.is_out_of_date).collect();
    assert_eq!(out_of_date, [true, false, true]);
    let json = wire::go_json::to_string(n1);
    let expected = concat!(
        r#"{"remote_addresses":["l1:1/from-n1:4150","l2:1/N/A"],"remote_address":"from-n1:4150","#,
        r#""hostname":"h","broadcast_address":"n1","tcp_port":4150,"http_port":4151,"version":"1.3.0","#,
        r#""topics":[{"topic":"a","tombstoned":false},{"topic":"b","tombstoned":true}],"out_of_date":false}"#,
    );
    assert_eq!(
        json, expected,
        "a missing flag means that there is no tombstone"
    );
}

#[test]
fn versions_compare_as_numbers() {
    let check = |lower: &str, higher: &str| {
        assert!(version(lower) < version(higher), "{lower} {higher}");
    };
    check("1.2.10", "1.10.0");
    check("0.3.8", "1.0.0-alpha");
    check("1.0.0-alpha", "1.0.0");
    check("1.0.0-alpha", "1.0.0-beta");
    check("", "0.0.1");
    check("1.3", "0.0.1");
    assert_eq!(
        version("1.3.0+build").cmp(&version("1.3.0")),
        std::cmp::Ordering::Equal
    );
}

#[test]
fn a_node_is_a_host_and_a_port() {
    for node in [
        "127.0.0.1:4151",
        "node-1.example_x:1",
        "[::1]:4151",
        "n:65535",
    ] {
        assert!(is_host_and_port(node), "{node}");
    }
    for node in [
        "h", "h:", ":1", "h:0", "h:-1", "h:65536", "h/x:1", "u@h:1", "h?x:1", "h#:1", "h\\x:1",
        "::1:4151", "[::1", "[x:y]:1", "%31:1", "h x:1", "h\n:1",
    ] {
        assert!(!is_host_and_port(node), "{node}");
    }
}

/// The rates of nsqds with one address were differences between the counts of two processes. While one of them did not answer,
/// the other had the shared address as its name, with the past of both.
#[test]
fn nsqds_that_broadcast_the_same_address_have_those_that_were_given() {
    let uses_given = UsesGiven::default();
    for (nsqds, expected) in [
        (vec![("a:1", "x"), ("b:1", "y")], vec!["x:4151", "y:4151"]),
        (
            vec![("a:1", "x"), ("[::1]:2", "x"), ("c:3", "y")],
            vec!["a:1", "[::1]:2", "c:3"],
        ),
        (vec![("a:1", "x"), ("c:3", "y")], vec!["a:1", "c:3"]),
    ] {
        let nsqds = nsqds.into_iter().map(|(address, broadcast)| Given {
            info: NodeInfo {
                broadcast_address: broadcast.to_owned(),
                http_port: 4151,
                ..NodeInfo::default()
            },
            address: address.to_owned(),
        });
        let mut nsqds: Vec<Given> = nsqds.collect();
        uses_given.tell_apart(&mut nsqds);
        let names = nsqds.iter().map(|nsqd| nsqd.info.http_address());
        assert_eq!(names.collect::<Vec<_>>(), expected);
    }
}

fn target(address: &str, url: &str, is_given: bool) -> Target {
    Target {
        identity: NodeIdentity::at(address),
        url: url.to_owned(),
        is_given,
    }
}

#[test]
fn only_an_address_that_is_not_mapped_gets_advice() {
    let advice = |kind, is_mapped| {
        let failed = Failed {
            why: "x".to_owned(),
            kind,
            refused: None,
        };
        target("n1:4151", "", is_mapped).with_advice(failed).why
    };
    let text = advice(FailureKind::Unreachable, false);
    assert!(text.contains("--nsqd-url-map=n1:4151=URL"), "{text}");
    assert_eq!(advice(FailureKind::Unreachable, true), "x");
    assert_eq!(advice(FailureKind::Refused, false), "x");
}

#[test]
fn two_entries_of_one_address_are_one_target() {
    let target = |address: &str, url: &str| target(address, url, true);
    let targets = [target("n:1", "a"), target("n:2", "b"), target("n:1", "c")];
    let once = each_once(targets.into_iter());
    let urls: Vec<&str> = once.iter().map(|target| &*target.url).collect();
    assert_eq!(urls, ["a", "b"]);
}
