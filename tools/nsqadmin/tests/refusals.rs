//! Acts that no server carries out, and mistakes of the caller: their status, their message and their line in the
//! audit log.

use crate::support::{Admin, cluster};
use serde_json::json;
use test_support::daemon::Daemon;

/// Starts a cluster of two nsqds and its nsqadmin, which knows both nodes of the topic `clicks`.
fn two_nodes() -> (Daemon, Vec<Daemon>, Admin) {
    let lookupd = Daemon::nsqlookupd(&[]);
    let nsqds = cluster(&[&lookupd], 2);
    let admin = Admin::start_at(&[&lookupd], &["--live-interval=0"]);
    admin.wait_for("/api/topics/clicks/a", |channel| {
        channel["nodes"].as_array().map(Vec::len) == Some(2)
    });
    (lookupd, nsqds, admin)
}

/// Such an act was 200 with a warning, and `partly` in the audit log.
#[test]
fn an_act_on_a_channel_that_no_server_knows_is_404_and_has_failed() {
    let (lookupd, _nsqds, admin) = two_nodes();
    lookupd.post("/topic/create?topic=inactive", b"");
    for topic in ["clicks", "inactive"] {
        for action in ["pause", "unpause", "empty"] {
            let body = format!(r#"{{"action":"{action}"}}"#);
            admin
                .post(&format!("/api/topics/{topic}/nope"), &body)
                .expect_error(404, "CHANNEL_NOT_FOUND");
            let line = admin.wait_for_log(&format!("AUDIT: {action}_channel {topic}/nope"));
            assert!(line.ends_with("failed - CHANNEL_NOT_FOUND"), "{line}");
        }
        admin
            .delete(&format!("/api/topics/{topic}/nope"), "")
            .expect_error(404, "CHANNEL_NOT_FOUND");
        let line = admin.wait_for_log(&format!("AUDIT: delete_channel {topic}/nope"));
        assert!(line.ends_with("failed - CHANNEL_NOT_FOUND"), "{line}");
    }
}

/// A channel that only nsqlookupd knows can be forgotten, and one that only some nodes have can be paused.
#[test]
fn an_act_that_some_servers_carry_out_has_not_failed() {
    let (lookupd, nsqds, admin) = two_nodes();
    lookupd.post("/topic/create?topic=inactive", b"");
    lookupd.post("/channel/create?topic=inactive&channel=old", b"");
    lookupd.post("/channel/create?topic=clicks&channel=old", b"");
    for path in ["/api/topics/inactive/old", "/api/topics/clicks/old"] {
        admin.delete(path, "").expect_status(200);
        admin
            .delete(path, "")
            .expect_error(404, "CHANNEL_NOT_FOUND");
    }
    nsqds[0].create_channel("clicks", "b");
    let pause = r#"{"action":"pause"}"#;
    let paused = admin.post("/api/topics/clicks/b", pause).expect_status(200);
    let message = paused.json()["message"].as_str().map(str::to_owned);
    assert!(message.is_some_and(|it| it.contains("CHANNEL_NOT_FOUND")));
    let line = admin.wait_for_log("AUDIT: pause_channel clicks/b");
    assert!(line.contains(": partly - "), "{line}");
}

/// Such a pause was 200 and `done`, although it would not hold for an nsqd that comes later.
#[test]
fn an_act_on_what_only_nsqlookupd_knows_has_failed() {
    let lookupd = Daemon::nsqlookupd(&[]);
    lookupd.post("/topic/create?topic=inactive", b"");
    lookupd.post("/channel/create?topic=inactive&channel=old", b"");
    let admin = Admin::start_at(&[&lookupd], &["--live-interval=0"]);
    let expected = "NO_NSQD: no nsqd that answers has it, and nothing was done";
    for (subject, kind) in [("inactive", "topic"), ("inactive/old", "channel")] {
        for (action, terms) in [
            ("pause", ""),
            ("pause", r#","for":"10m""#),
            ("unpause", ""),
            ("empty", ""),
            ("unempty", ""),
        ] {
            let body = format!(r#"{{"action":"{action}"{terms}}}"#);
            admin
                .post(&format!("/api/topics/{subject}"), &body)
                .expect_error(404, expected);
            let line = admin.wait_for_log(&format!("AUDIT: {action}_{kind} {subject} "));
            assert!(line.ends_with(&format!("failed - {expected}")), "{line}");
        }
    }
    for path in ["/api/topics/inactive/old", "/api/topics/inactive"] {
        admin.delete(path, "").expect_status(200);
    }
}

/// Every topic was unknown (404) if the address was that of another program, such as an nsqd.
#[test]
fn an_nsqlookupd_that_is_another_program_does_not_say_that_a_topic_is_unknown() {
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("clicks", "a");
    let wrong = format!("--lookupd-http-address={}", nsqd.http);
    let admin = Admin::start(&[&wrong, "--live-interval=0"]);
    for answer in [
        admin.get("/api/topics/clicks"),
        admin.post("/api/topics/clicks", r#"{"action":"pause"}"#),
    ] {
        let text = answer.expect_status(502).text();
        assert!(text.contains("failed to query any nsqlookupd"), "{text}");
    }
}

/// Such a mistake was 502, with the JSON of the nsqds inside of texts inside of JSON.
#[test]
fn a_refusal_of_all_nsqds_is_passed_on_with_its_own_status_and_code() {
    let (_lookupd, _nsqds, admin) = two_nodes();
    for (body, status, code) in [
        (r#"{"action":"unempty"}"#, 404, "UNDO_NOT_FOUND"),
        (r#"{"action":"pause","for":"10"}"#, 400, "INVALID_FOR"),
        (r#"{"action":"empty","undo":"25h"}"#, 400, "INVALID_UNDO"),
    ] {
        let refused = admin.post("/api/topics/clicks/a", body);
        let message = refused.expect_status(status).message();
        assert!(message.starts_with(code), "{message}");
        assert!(!message.contains(['"', '\\', '{']), "{message}");
    }
    let order = json!({"action": "pause", "of": "channels", "topics": ["clicks"], "for": "10"});
    let done = admin.order(&[], order).expect_status(200).json();
    let result = &done["results"][0];
    assert_eq!(result["result"], "failed");
    let message = result["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("INVALID_FOR"), "{message}");
}
