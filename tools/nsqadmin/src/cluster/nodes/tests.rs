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

fn nsqd(address: &str, broadcast: &str, start_time: i64) -> Given {
    Given {
        info: NodeInfo {
            broadcast_address: broadcast.to_owned(),
            http_port: 4151,
            start_time,
            ..NodeInfo::default()
        },
        address: address.to_owned(),
        other_addresses: Vec::new(),
    }
}

fn names(nsqds: Vec<Given>) -> (Vec<String>, String) {
    let (nsqds, notes) = told_apart(nsqds, &mut BTreeSet::new());
    let names = nsqds.iter().map(|nsqd| nsqd.info.http_address());
    (names.collect(), notes.join("\n"))
}

#[test]
fn nsqds_with_addresses_of_their_own_keep_them() {
    let (found, warnings) = names(vec![nsqd("a:1", "x", 1), nsqd("b:1", "y", 1)]);
    assert_eq!(found, ["x:4151", "y:4151"]);
    assert_eq!(warnings, "");
}

/// Their rates were differences between the counts of two processes, for ever.
#[test]
fn nsqds_that_broadcast_the_same_address_have_those_that_were_given() {
    let (found, warnings) = names(vec![
        nsqd("a:1", "x", 1),
        nsqd("[::1]:2", "x", 2),
        nsqd("c:3", "y", 3),
    ]);
    assert_eq!(found, ["a:1", "[::1]:2", "y:4151"]);
    assert!(
        warnings.starts_with("the nsqds a:1, [::1]:2 broadcast the same address x:4151"),
        "{warnings}"
    );
    // The given address of one is the address that another broadcasts.
    let (found, _) = names(vec![
        nsqd("y:4151", "x", 1),
        nsqd("b:2", "x", 2),
        nsqd("c:3", "y", 3),
    ]);
    assert_eq!(found, ["y:4151", "b:2", "c:3"]);
}

/// While one of them did not answer, the other had the shared address as its name. Its past was that of another node.
#[test]
fn an_nsqd_keeps_its_name_while_the_one_with_the_same_address_is_silent() {
    let noted = Noted::default();
    let (a, b) = (nsqd("a:1", "x", 1), nsqd("b:1", "x", 2));
    let other = nsqd("c:3", "y", 3);
    for answering in [
        vec![a.clone(), b.clone()],
        vec![b, other.clone()],
        vec![a.clone(), other],
    ] {
        let given: Vec<String> = answering.iter().map(|it| it.address.clone()).collect();
        let found = noted.told_apart(answering, false);
        let names = found.iter().map(|it| it.info.http_address());
        let expected = given.iter().map(|it| it.replace("c:3", "y:4151"));
        assert_eq!(names.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
    // The other one has got an address of its own.
    let found = noted.told_apart(vec![a, nsqd("b:1", "z", 4)], true);
    let names: Vec<String> = found.iter().map(|it| it.info.http_address()).collect();
    assert_eq!(names, ["x:4151", "z:4151"]);
}

#[test]
fn a_process_with_two_addresses_counts_once() {
    let both = vec![nsqd("localhost:1", "x", 7), nsqd("127.0.0.1:1", "x", 7)];
    let (found, notes) = told_apart(both, &mut BTreeSet::new());
    assert_eq!(
        (found.len(), &*found[0].other_addresses),
        (1, &["127.0.0.1:1".to_owned()][..])
    );
    assert_eq!(
        notes,
        ["localhost:1 and 127.0.0.1:1 are one nsqd, which counts once (--nsqd-http-address)"]
    );
    // A program that tells no start may be another one.
    let (found, _) = names(vec![nsqd("a:1", "x", 0), nsqd("b:1", "x", 0)]);
    assert_eq!(found, ["a:1", "b:1"]);
    // Twice the same address, without a start.
    let (found, _) = names(vec![nsqd("a:1", "x", 0), nsqd("a:1", "x", 0)]);
    assert_eq!(found, ["x:4151"]);
}

fn target(address: &str, url: &str, is_given: bool) -> Target {
    Target {
        identity: NodeIdentity::at(address),
        url: url.to_owned(),
        is_given,
        other_addresses: Vec::new(),
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
