//! The terms of acts: a pause with an end, a note and a name, and an empty with an undo. The nsqds of this test
//! answer like ringq's and like nsqd 1.3.0, which knows no terms.

use crate::support::{Admin, AuditLog, assert_text};
use serde_json::json;
use test_support::assert_like;
use test_support::daemon::Daemon;
use test_support::http_server::{Answer, HttpServer, Received};

/// The statistics of a paused and emptied topic, and of an emptied channel.
const STATS: &str = r#"{"topics":[{"topic_name":"t","paused":true,"pause_until_ms":1800000000000,"pause_note":"deploying","paused_by":"ann",
    "undo_until_ms":1700000000000,"undo_message_count":3,"channels":[{"channel_name":"c","paused":false,"undo_until_ms":1800000000000,"undo_message_count":7}]}]}"#;

fn answer(request: &Received, node: u16, has_terms: bool) -> Answer {
    let query = request.target();
    match request.path() {
        "/info" => json!({"broadcast_address": "n", "http_port": node}).into(),
        "/stats" => STATS.into(),
        // Terms are read before the topic is looked for.
        "/topic/pause" | "/channel/pause" if has_terms && query.contains("for=10&") => {
            Answer::new(400, r#"{"message":"INVALID_FOR","reason":"no unit"}"#)
        }
        "/topic/empty" | "/channel/empty" if has_terms && query.contains("undo=25h") => {
            Answer::new(400, r#"{"message":"INVALID_UNDO","reason":"too long"}"#)
        }
        _ if query.contains("nsqadmin-asks") => {
            Answer::new(404, r#"{"message":"TOPIC_NOT_FOUND"}"#)
        }
        "/channel/unempty" | "/topic/unempty" if has_terms && request.head.starts_with("GET") => {
            Answer::new(405, r#"{"message":"METHOD_NOT_ALLOWED"}"#)
        }
        "/channel/unempty" | "/topic/unempty" if !has_terms => Answer::not_found(),
        _ => "".into(),
    }
}

/// Starts an nsqd.
fn nsqd(node: u16, has_terms: bool) -> HttpServer {
    HttpServer::start(move |request, _| answer(request, node, has_terms))
}

/// Starts an nsqadmin of these nsqds.
fn admin(nsqds: &[&HttpServer], args: &[&str]) -> Admin {
    let addresses = nsqds.iter().map(|nsqd| nsqd.address);
    Admin::start_direct(addresses, &[&["--live-interval=0"], args].concat())
}

/// Returns the acts that a server got. What nsqadmin asks first does not count.
fn acts(nsqd: &HttpServer) -> Vec<String> {
    let requests = nsqd.requests().into_iter();
    let posts = requests.filter(|request| request.head.starts_with("POST"));
    let targets = posts.map(|request| request.target().to_owned());
    targets.filter(|it| !it.contains("nsqadmin-asks")).collect()
}

#[test]
fn terms_reach_the_nodes_that_know_them() {
    let able = nsqd(1, true);
    let admin = admin(&[&able], &[]);
    let ann = ["X-Forwarded-User: ann"];
    let pause = json!({"action": "pause", "for": "10m", "note": "a b&c"}).to_string();
    let paused = admin.ask("POST", "/api/topics/t/c", &ann, &pause);
    paused.expect_status(200);
    let empty = r#"{"action":"empty","undo":"1h"}"#;
    admin.post("/api/topics/t/c", empty).expect_status(200);
    let unempty = r#"{"action":"unempty"}"#;
    admin.post("/api/topics/t/c", unempty).expect_status(200);
    admin.post("/api/topics/t", empty).expect_status(200);
    admin.post("/api/topics/t", unempty).expect_status(200);
    assert_eq!(
        acts(&able),
        [
            "/channel/pause?topic=t&channel=c&for=10m&note=a+b%26c&by=ann",
            "/channel/empty?topic=t&channel=c&undo=1h",
            "/channel/unempty?topic=t&channel=c",
            "/topic/empty?topic=t&undo=1h",
            "/topic/unempty?topic=t",
        ]
    );
    let abilities = admin.json("/api/abilities?topic=t");
    let expected = json!([{"node": "n:1", "pause_terms": true, "undo": true, "topic_undo": true}]);
    assert_eq!(abilities["nodes"], expected);
    let topic = admin.json("/api/topics/t");
    assert_eq!(topic["pause_until_ms"], 1_800_000_000_000_u64);
    assert_eq!(topic["pause_note"], "deploying");
    assert_eq!(topic["paused_by"], "ann");
    assert_eq!(topic["undo_message_count"], 3);
    let channel = &topic["channels"][0];
    assert_eq!(channel["undo_message_count"], 7);
    assert_eq!(channel.get("paused_by"), None);
}

/// A channel was emptied for good because the name of its undo was mistyped.
#[test]
fn a_term_that_is_mistyped_is_refused() {
    let able = nsqd(1, true);
    let admin = admin(&[&able], &[]);
    let fields = "the fields are action, for, note, undo, messages";
    let long = "x".repeat(100);
    for (name, shown) in [
        ("undoo", "undoo".to_owned()),
        ("channel", "channel".to_owned()),
        (&long, format!("{}…", "x".repeat(64))),
    ] {
        for target in ["/api/topics/t", "/api/topics/t/c"] {
            let body = json!({"action": "empty", name: "10m"}).to_string();
            let why = format!(r#"INVALID_FIELD: \"{shown}\" means nothing here; {fields}"#);
            admin.post(target, &body).expect_error(400, &why);
        }
    }
    assert_eq!(acts(&able), [""; 0]);
    // The case does not matter, as in Go. What has no terms ignores other fields, as the original does.
    let empty = r#"{"Action":"empty","UNDO":"10m","note":null}"#;
    admin.post("/api/topics/t/c", empty).expect_status(200);
    assert_eq!(acts(&able), ["/channel/empty?topic=t&channel=c&undo=10m"]);
    let create = r#"{"topic":"t","more":1}"#;
    admin.post("/api/topics", create).expect_status(200);
}

/// Without a proxy that names the user, a pause was by nobody.
#[test]
fn a_name_that_nobody_has_checked_is_never_taken_for_a_user() {
    let able = nsqd(1, true);
    let audit = AuditLog::default();
    let endpoint = HttpServer::start(|_, _| Answer::status(200));
    let told = format!("--notification-http-endpoint={}", endpoint.url("/told"));
    let admin = admin(&[&able], &[&audit.flag(), &told]);
    let pause = r#"{"action":"pause"}"#;
    let named = "X-Claimed-User: Zoë <b>";
    let ann = "X-Forwarded-User: ann";
    // The user carl, whose password is empty.
    let carl = "Authorization: Basic Y2FybDo=";
    for (headers, by, user, claimed_user) in [
        (
            &[named][..],
            "Zo%C3%AB+%3Cb%3E+%28unverified%29",
            "",
            "Zoë <b>",
        ),
        (&[named, ann], "ann", "ann", ""),
        // Any client could act in the name of anybody: the audit log and the notification had `"user":"carl"`.
        (&[named, carl], "carl+%28unverified%29", "", "carl"),
        // An admin could act in the name of another one.
        (&[carl, ann], "ann", "ann", ""),
        // A name of somebody else's that cannot be shown harms no user.
        (&["X-Claimed-User: \u{202e}", ann], "ann", "ann", ""),
    ] {
        let count = acts(&able).len();
        let paused = admin.ask("POST", "/api/topics/t/c", headers, pause);
        paused.expect_status(200);
        let expected = format!("/channel/pause?topic=t&channel=c&by={by}");
        assert_eq!(acts(&able)[count..], [expected]);
        let line = audit.last();
        let told = endpoint.wait_for(count + 1);
        for (json, place) in [
            (line, "the audit log"),
            (told[count].json(), "the notification"),
        ] {
            let text = |key: &str| json[key].as_str().unwrap_or_default();
            assert_eq!(
                (text("user"), text("claimed_user")),
                (user, claimed_user),
                "{place}"
            );
        }
        let settings = admin.ask("GET", "/api/settings", headers, "").json();
        // The page asks for a name, unless the browser sends one.
        let is_known = headers.contains(&ann) || headers.contains(&carl);
        assert_eq!(settings["is_user_known"], is_known);
    }
    let line = admin.wait_for_log(r#"unverified name "Zoë <b>"): done"#);
    assert_like(
        &line,
        r#"…AUDIT: pause_channel t/c by user "" (127.0.0.1:…"#,
    );
    // The same for an order, and for the other acts.
    let count = acts(&able).len();
    let order = json!({"action": "pause", "of": "topics", "show": "all"});
    admin.order(&[named], order).expect_status(200);
    let expected = "/topic/pause?topic=t&by=Zo%C3%AB+%3Cb%3E+%28unverified%29";
    assert_eq!(acts(&able)[count..], [expected]);
    admin
        .ask("DELETE", "/api/topics/t", &[named], "")
        .expect_status(200);
    let line = admin.wait_for_log("AUDIT: delete_topic t ");
    assert!(line.contains(r#"unverified name "Zoë <b>""#), "{line}");
    // A name that cannot be shown is refused, and nothing is done.
    let count = acts(&able).len();
    let long = format!("X-Claimed-User: {}", "x".repeat(51));
    for (name, why) in [
        (&*long, "has more than 50 characters"),
        (
            "X-Claimed-User: a\u{202e}b",
            "has characters that cannot be seen",
        ),
    ] {
        let expected = format!("INVALID_CLAIMED_USER: the name in X-Claimed-User {why}");
        for (method, target, body) in [
            ("POST", "/api/topics/t/c", pause),
            ("DELETE", "/api/topics/t/c", ""),
            ("POST", "/api/topics", r#"{"topic":"new"}"#),
            ("DELETE", "/api/nodes/n:1", r#"{"topic":"t"}"#),
            (
                "POST",
                "/api/acts",
                r#"{"action":"pause","of":"topics","show":"all"}"#,
            ),
        ] {
            let refused = admin.ask(method, target, &[name], body);
            refused.expect_error(400, &expected);
        }
    }
    assert_eq!(acts(&able).len(), count);
}

#[test]
fn a_node_without_them_is_named_and_nothing_is_done() {
    let (able, unable) = (nsqd(1, true), nsqd(2, false));
    let admin = admin(&[&able, &unable], &[]);
    let pause = r#"{"action":"pause","for":"10m"}"#;
    let empty = r#"{"action":"empty","undo":"10m"}"#;
    let check = |path: &str, body: &str, why: &str| {
        admin
            .post(path, body)
            .expect_error(409, &format!("{why} at n:2"));
    };
    let no_limit = "LIMIT_UNSUPPORTED: nothing was done; no limit of a pause";
    let no_undo = "UNDO_UNSUPPORTED: nothing was done; no undo of emptied";
    check("/api/topics/t/c", pause, no_limit);
    check("/api/topics/t", pause, no_limit);
    check("/api/topics/t/c", empty, &format!("{no_undo} channels"));
    check("/api/topics/t", empty, &format!("{no_undo} topics"));
    let order = json!({"action": "pause", "of": "topics", "show": "all", "for": "1h"});
    let refused = admin.order(&[], order);
    assert_text(&refused, "LIMIT_UNSUPPORTED");
    assert_eq!([acts(&able), acts(&unable)].concat(), [""; 0]);
    // Without an end, every nsqd can pause.
    let pause = r#"{"action":"pause","note":"x"}"#;
    admin.post("/api/topics/t", pause).expect_status(200);
    assert_eq!(acts(&unable), ["/topic/pause?topic=t&note=x"]);
}

/// With a node of NSQ in the cluster, such a value was called LIMIT_UNSUPPORTED.
#[test]
fn a_bad_value_is_named_although_a_node_knows_no_terms() {
    let (able, unable) = (nsqd(1, true), nsqd(2, false));
    let admin = admin(&[&able, &unable], &[]);
    for path in ["/api/topics/t/c", "/api/topics/t"] {
        let pause = r#"{"action":"pause","for":"10","note":"x"}"#;
        admin
            .post(path, pause)
            .expect_error(400, "INVALID_FOR: no unit");
        let empty = r#"{"action":"empty","undo":"25h"}"#;
        admin
            .post(path, empty)
            .expect_error(400, "INVALID_UNDO: too long");
    }
    assert_eq!([acts(&able), acts(&unable)].concat(), [""; 0]);
}

/// Starts an nsqd with the topic `name`. When it is asked what it can do, its answer is not HTTP.
fn garbled_nsqd(node: u16, name: &'static str) -> HttpServer {
    HttpServer::start(move |request, _| {
        if request.target().ends_with("/unempty") && request.head.starts_with("GET") {
            return Answer::status(0);
        }
        let mut answer = answer(request, node, true);
        let body = String::from_utf8(answer.body).unwrap();
        let topic = format!(r#""topic_name":"{name}""#);
        answer.body = body.replace(r#""topic_name":"t""#, &topic).into_bytes();
        answer
    })
}

/// Such an act was `partly`, and in an order `done`.
#[test]
fn a_node_that_does_not_say_what_it_can_do_has_done_nothing() {
    let able = nsqd(1, true);
    let (garbled, alone) = (garbled_nsqd(2, "t"), garbled_nsqd(3, "alone"));
    let admin = admin(&[&able, &garbled, &alone], &[]);
    let pause = r#"{"action":"pause","for":"10m"}"#;
    let refused = admin.post("/api/topics/alone", pause).expect_status(502);
    assert_text(&refused, "UPSTREAM_ERROR");
    let line = admin.wait_for_log("AUDIT: pause_topic alone");
    assert!(line.contains(": failed - "), "{line}");
    let order = json!({"action": "pause", "of": "topics", "show": "all", "for": "1h"});
    let done = admin.order(&[], order).expect_status(200).json();
    let result = |index: usize, key: &str| done["results"][index][key].as_str().unwrap_or_default();
    assert_eq!(
        (result(0, "topic"), result(0, "result")),
        ("alone", "failed")
    );
    assert_eq!((result(1, "topic"), result(1, "result")), ("t", "partly"));
    for (index, node) in [(0, "n:3"), (1, "n:2")] {
        let message = result(index, "message");
        assert_like(message, &format!("…nothing was done at {node}…"));
    }
    assert_eq!(acts(&able), ["/topic/pause?topic=t&for=1h"]);
    assert_eq!([acts(&garbled), acts(&alone)].concat(), [""; 0]);
}

/// The questions stood in the logs as `POST /topic/pause` and, at level INFO, as `querying nsqd .../topic/unempty`.
#[test]
fn a_question_about_abilities_does_not_read_like_an_act() {
    let able = nsqd(1, true);
    let admin = admin(&[&able], &[]);
    admin.json("/api/abilities");
    // Lines are written later than their request is answered, and in the order of their events.
    admin.wait_for_log("200 GET /api/abilities ");
    let requests = able.requests();
    let is_post = |request: &Received| request.head.starts_with("POST");
    assert!(!requests.iter().any(is_post), "{requests:?}");
    assert!(!admin.log().contains("unempty"), "{}", admin.log());
}

/// The first questions of nsqadmin change nothing at a real node.
#[test]
fn a_question_leaves_no_trace() {
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    let admin = Admin::start_direct([nsqd.http], &[]);
    let nodes = admin.json("/api/abilities")["nodes"].clone();
    assert_eq!(nodes.as_array().map(Vec::len), Some(1));
    let topics = nsqd.get("/stats?format=json").json()["topics"].clone();
    assert_eq!(topics.as_array().map(Vec::len), Some(1), "{topics}");
    assert_eq!(topics[0]["paused"], false);
}

/// The dialog said how many messages would come back, and somebody has emptied a node for good since, or once more.
#[test]
fn an_undo_that_brings_another_number_back_than_was_shown_is_refused() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let nsqds = [(); 2].map(|()| {
        let nsqd = Daemon::nsqd_at(&[&lookupd], &[]);
        nsqd.create_channel("t", "c");
        nsqd.publish("t", &["x"]);
        nsqd.wait_for_figure("t", "c", "depth", 1);
        nsqd
    });
    let admin = Admin::start_at(&[&lookupd], &[]);
    admin.wait_for("/api/topics/t/c", |channel| channel["depth"] == 2);
    let act = |body: &str| admin.post("/api/topics/t/c", body);
    act(r#"{"action":"empty","undo":"1h"}"#).expect_status(200);
    let empty = "/channel/empty?topic=t&channel=c";
    nsqds[1].post(empty, b"").expect_status(200);
    let unempty = |messages: &str| json!({"action": "unempty", "messages": messages}).to_string();
    act(&unempty("many")).expect_error(400, "INVALID_MESSAGES: many is not a number");
    let refused = |expected: &str, count: usize| {
        let why = format!(
            "UNDO_CHANGED: {count} messages can be brought back, not {expected}, and nothing was done"
        );
        act(&unempty(expected)).expect_error(409, &why);
    };
    refused("2", 1);
    // The node without an undo is no warning.
    let done = act(&unempty("1")).expect_status(200).json();
    assert_eq!(done["message"], "");
    nsqds[0].wait_for_figure("t", "c", "depth", 1);
    nsqds[1].publish("t", &["y", "z"]);
    nsqds[1].wait_for_figure("t", "c", "depth", 2);
    act(r#"{"action":"empty","undo":"1h"}"#).expect_status(200);
    refused("1", 3);
    assert_eq!(nsqds[0].figure("t", "c", "depth"), 0);
    act(&unempty("3")).expect_status(200);
    nsqds[0].wait_for_figure("t", "c", "depth", 1);
    nsqds[1].wait_for_figure("t", "c", "depth", 2);
}

/// A line said only that a channel was emptied or paused.
#[test]
fn the_audit_log_and_notifications_have_the_terms_and_the_number_of_messages() {
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    nsqd.publish("t", &["x", "y"]);
    nsqd.wait_for_figure("t", "c", "depth", 2);
    let audit = AuditLog::default();
    let endpoint = HttpServer::start(|_, _| Answer::status(200));
    let told = format!("--notification-http-endpoint={}", endpoint.url("/told"));
    let flags = ["--live-interval=50ms", &audit.flag(), &told];
    let admin = Admin::start_direct([nsqd.http], &flags);
    admin.wait_for("/api/live/topics/t", |answer| {
        answer["channels"][0]["depth"] == 2
    });
    let bodies = [
        r#"{"action":"pause","for":"10m","note":"deploying"}"#,
        r#"{"action":"empty","undo":"1h"}"#,
        r#"{"action":"unempty","messages":"2"}"#,
    ];
    for body in bodies {
        admin.post("/api/topics/t/c", body).expect_status(200);
    }
    let details = |json: &serde_json::Value| {
        let keys = ["for", "note", "undo", "messages"];
        keys.map(|key| json.get(key).cloned().unwrap_or_default())
    };
    let none = serde_json::Value::Null;
    let expected = [
        [json!("10m"), json!("deploying"), none.clone(), none.clone()],
        [none.clone(), none.clone(), json!("1h"), json!(2)],
        [none.clone(), none.clone(), none.clone(), json!(2)],
    ];
    let told = endpoint.wait_for(3);
    let told = told.iter().map(Received::json);
    let found = audit.lines().into_iter().chain(told);
    let found = found.map(|json| details(&json));
    let expected = [expected.clone(), expected].concat();
    assert_eq!(found.collect::<Vec<_>>(), expected);
    let end = r#": done [for 10m, note "deploying"]"#;
    assert!(admin.wait_for_log("AUDIT: pause_channel").ends_with(end));
}
