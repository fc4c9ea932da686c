use std::fs;
use std::path::Path;

use program::check::State;

use super::*;

fn client(json: serde_json::Value) -> ClientStats {
    serde_json::from_value(json).expect("fields of a client")
}

fn judged(judge: fn(&[&ClientStats]) -> Finding, clients: &[ClientStats]) -> Finding {
    judge(&clients.iter().collect::<Vec<_>>())
}

#[test]
fn the_tried_libraries_are_those_that_the_tests_install() {
    let interop = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nsqd/tests/interop");
    for (library, file, line) in [
        ("go-nsq", "go/go.mod", "nsqio/go-nsq v{}"),
        ("gnsq", "python/requirements.txt", "\ngnsq=={}\n"),
        ("pynsq", "python/requirements.txt", "\npynsq=={}\n"),
        ("nsqjs", "node/package.json", "\"nsqjs\": \"{}\""),
    ] {
        let (_, version) = TRIED
            .iter()
            .find(|(name, _)| *name == library)
            .expect(library);
        let text = fs::read_to_string(interop.join(file)).expect(file);
        let line = line.replace("{}", version);
        assert!(text.contains(&line), "{line} is not in {file}");
    }
}

#[test]
fn user_agents_are_compared_with_the_tried_libraries() {
    for (agent, expected) in [
        ("go-nsq/1.1.0", Known::Tried),
        ("nsq_to_file/1.3.0 go-nsq/1.1.0", Known::Tried),
        ("go-nsq/1.0.8", Known::OtherVersion("1.1.0")),
        ("go-nsqx/1.1.0", Known::Not),
        ("billing/2.1", Known::Not),
        ("go-nsq", Known::Not),
        ("", Known::Not),
    ] {
        assert_eq!(known(agent), expected, "{agent}");
    }
    let clients = ["x/1", "go-nsq/1.0.8", "go-nsq/1.1.0", "go-nsq/1.1.0"];
    let clients = clients.map(|agent| client(json!({ "user_agent": agent })));
    let finding = judged(judge_clients, &clients);
    assert_eq!(finding.state, State::Warning);
    let lines = [
        "x/1: not tried, connections: 1",
        "go-nsq/1.0.8: tried in version 1.1.0, connections: 1",
        "go-nsq/1.1.0: tried, connections: 2",
    ];
    assert_eq!(finding.details, lines);
    assert_eq!(judged(judge_clients, &clients[1..]).state, State::Ok);
}

#[test]
fn the_features_in_use_are_counted_and_old_tls_is_a_warning() {
    let plain = client(json!({}));
    let finding = judged(judge_features, std::slice::from_ref(&plain));
    assert_eq!(finding.state, State::Ok);
    assert!(
        finding.found.starts_with("no connection uses TLS"),
        "{finding:?}"
    );
    let tls = |version: &str, suite: &str| {
        let fields = json!({ "tls": true, "tls_version": version, "tls_cipher_suite": suite, "authed": true });
        let finding = judged(
            judge_features,
            &[client(fields), client(json!({ "sample_rate": 5 }))],
        );
        assert!(
            finding
                .found
                .starts_with("connections with TLS 1, auth 1, sampling 1;")
        );
        finding.state
    };
    let modern = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
    assert_eq!(tls("TLS1.2", modern), State::Ok);
    assert_eq!(tls("TLS1.3", "Unknown 4865"), State::Ok);
    assert_eq!(tls("TLS1.1", modern), State::Warning);
    assert_eq!(
        tls("TLS1.2", "TLS_RSA_WITH_AES_128_GCM_SHA256"),
        State::Warning
    );
    assert_eq!(
        tls("TLS1.2", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
        State::Warning
    );
}

/// All clients of a unix socket were one.
#[test]
fn clients_of_a_unix_socket_are_told_apart() {
    let at = |address: &str, id: &str| json!({ "remote_address": address, "client_id": id });
    let stats: Stats = serde_json::from_value(json!({
        "topics": [{ "channels": [{ "clients": [at("@", "a"), at("h:1", "c")] }] }],
        "producers": [at("@", "a"), at("@", "b"), at("h:1", "c"), at("h:2", "c")],
    }))
    .expect("figures");
    assert_eq!(clients(&stats).len(), 4);
}

/// The sum ended the check.
#[test]
fn figures_that_cannot_be_are_no_end() {
    let channel =
        json!({ "depth": i64::MAX, "in_flight_count": i64::MAX, "backend_depth": i64::MAX });
    let topic = json!({ "depth": i64::MAX, "channels": [channel] });
    let stats = serde_json::from_value(json!({ "topics": [topic, topic] })).expect("figures");
    assert_eq!(judge_backlog(&stats, Some(1)).state, State::Warning);
}

#[test]
fn the_backlog_needs_twice_its_room() {
    // 10 messages wait in the topic, 20 in the channel in three ways; each has 970 bytes and 30 of its record.
    let stats: Stats = serde_json::from_value(json!({ "topics": [{
        "topic_name": "orders", "depth": 10, "backend_depth": 4, "message_count": 2, "message_bytes": 1940,
        "channels": [{
            "channel_name": "billing", "depth": 15, "backend_depth": 5, "in_flight_count": 3, "deferred_count": 2,
        }],
    }]}))
    .expect("figures");
    let finding = judge_backlog(&stats, Some(60_000));
    assert_eq!(finding.state, State::Ok);
    assert!(
        finding
            .found
            .starts_with("30 messages, 9 of them on disk: about 29 KiB"),
        "{finding:?}"
    );
    assert_eq!(judge_backlog(&stats, Some(59_999)).state, State::Warning);
    assert_eq!(judge_backlog(&stats, None).state, State::Ok);
    assert_eq!(judge_backlog(&Stats::default(), Some(0)).state, State::Ok);
}

#[test]
fn a_program_that_is_no_nsqd_is_named() {
    let check = |body: &str, expected: &str| {
        let finding = judge_info("http://a", body.as_bytes()).expect_err("it is no nsqd of today");
        assert_eq!(finding.state, State::Warning, "{finding:?}");
        assert!(finding.found.contains(expected), "{finding:?}");
    };
    check("OK", "is no nsqd");
    check("{\"version\":\"1.3.0\"}", "is no nsqd");
    check("[]", "is no nsqd");
    let old = "{\"status_code\":200,\"status_txt\":\"OK\",\"data\":{\"version\":\"0.3.8\",\"tcp_port\":4150}}";
    check(old, "nsqd 0.3.8, which is too old");
    let info = judge_info(
        "http://a",
        b"{\"version\":\"1.2.1\",\"tcp_port\":-1,\"http_port\":4151}",
    );
    assert_eq!(info.expect("an nsqd").version, "1.2.1");
}
