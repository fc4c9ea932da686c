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
    let nodes = merge(&[
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
        .map(|node| node.broadcast_address.as_str())
        .collect();
    assert_eq!(names, ["n3", "n1", "n2"], "by hostname, then by address");
    let n1 = &nodes[1];
    assert_eq!(n1.hostname, "h", "the first nsqlookupd supplies the fields");
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
