use super::*;
use crate::lookup::{Lookup, NodeInfo};
use crate::stats::{ClientStats, LatencyStats, Stats, TopicStats};

#[test]
fn missing_fields_and_null_mean_the_default() {
    let stats: Stats = read(
        br#"{"topics":[{"topic_name":"t","channels":null,"depth":null},
            {"channels":[{"channel_name":"c","clients":[{}]}]}],"x":1}"#,
    )
    .unwrap();
    assert_eq!(stats.topics[0].topic_name, "t");
    assert_eq!(
        stats.topics[0].e2e_processing_latency,
        LatencyStats::default()
    );
    let channel = &stats.topics[1].channels[0];
    assert_eq!(channel.clients, Some(vec![ClientStats::default()]));
    assert_eq!(channel.client_count, None);
    for body in [
        r#"{"topics":null}"#,
        r#"{"version":null,"topics":null,"health":null,"producers":null}"#,
        "{}",
    ] {
        assert_eq!(read::<Stats>(body.as_bytes()).unwrap(), Stats::default());
    }
}

/// Any client of nsqlookupd can register such an nsqd.
#[test]
fn a_wrong_port_of_one_nsqd_hides_no_other() {
    let answer = br#"{"producers":[{"http_port":70000,"tcp_port":-1},{"http_port":4151}]}"#;
    let ports = read::<Lookup>(answer).unwrap().producers;
    let ports: Vec<i64> = ports.iter().map(|producer| producer.http_port).collect();
    assert_eq!(ports, [70_000, 4151]);
}

#[test]
fn a_node_has_an_address_of_each_protocol() {
    let node: NodeInfo =
        read(br#"{"broadcast_address":"::1","tcp_port":4150,"http_port":4151}"#).unwrap();
    assert_eq!(node.tcp_address(), "[::1]:4150");
    assert_eq!(node.http_address(), "[::1]:4151");
}

#[test]
fn the_envelope_of_old_versions_is_opened() {
    for body in [
        r#"{"status_code":200,"status_txt":"OK","data":{"topics":["a"]}}"#,
        r#" { "status_txt":"OK","data":{"topics":["a"]} }"#,
        r#"{"data":{"topics":["a"],"channels":null}}"#,
        r#"{"topics":["a"],"data":{"topics":["b"]}}"#,
    ] {
        let found: Lookup = read(body.as_bytes()).unwrap();
        assert_eq!(found.topics, ["a"], "{body}");
    }
    let empty: Lookup = read(br#"{"status_code":200,"status_txt":"OK","data":null}"#).unwrap();
    assert_eq!(empty, Lookup::default());
    let refused = br#"{"status_code":500,"status_txt":"INVALID_REQUEST","data":null}"#;
    let error = read::<Lookup>(refused).unwrap_err().to_string();
    assert_eq!(error, "status_code 500: INVALID_REQUEST");
}

#[test]
fn integers_are_exact_and_other_types_are_errors() {
    let topic: TopicStats = read(br#"{"message_count":9007199254740993}"#).unwrap();
    assert_eq!(topic.message_count, 9_007_199_254_740_993);
    for body in [
        r#"{"depth":"1"}"#,
        "[",
        "",
        r#"{"channels":[1]}"#,
        r#"{"data":{"depth":"1"}}"#,
        "7",
    ] {
        assert!(read::<TopicStats>(body.as_bytes()).is_err(), "{body}");
    }
    let text: Lookup = read(b"{\"topics\":[\"\xff\"]}").unwrap();
    assert_eq!(text.topics, ["\u{fffd}"]);
}

#[test]
fn a_refusal_has_a_code_and_perhaps_a_reason() {
    for (body, message, reason) in [
        (
            r#"{"message":"INVALID_FOR","reason":"no unit"}"#,
            "INVALID_FOR",
            "no unit",
        ),
        (r#"{"message":"TOPIC_NOT_FOUND"}"#, "TOPIC_NOT_FOUND", ""),
        (
            r#"{"status_code":404,"status_txt":"TOPIC_NOT_FOUND","data":null}"#,
            "TOPIC_NOT_FOUND",
            "",
        ),
        ("<html>no</html>", "", ""),
        ("", "", ""),
    ] {
        let refusal = Refusal::read(body.as_bytes());
        let found = (&*refusal.message, &*refusal.reason);
        assert_eq!(found, (message, reason), "{body}");
    }
}
