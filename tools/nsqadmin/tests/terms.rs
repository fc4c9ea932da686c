//! The terms of acts: a pause with an end, a note and a name, and an empty with an undo. The nsqds of this test
//! answer like ringq's and like nsqd 1.3.0, which knows no terms.

mod support;

use serde_json::json;
use support::Admin;
use test_support::daemon::Daemon;
use test_support::http_server::{Answer, HttpServer, Received};

/// The statistics of a paused and emptied topic, and of an emptied channel.
const STATS: &str = r#"{"topics":[{"topic_name":"t","paused":true,"pause_until_ms":1800000000000,"pause_note":"deploying","paused_by":"ann",
    "undo_until_ms":1700000000000,"undo_message_count":3,"channels":[{"channel_name":"c","paused":false,"undo_until_ms":1800000000000,"undo_message_count":7}]}]}"#;

fn answer(request: &Received, node: u16, has_terms: bool) -> Answer {
    let (path, query) = request
        .target()
        .split_once('?')
        .unwrap_or((request.target(), ""));
    let info = format!(r#"{{"broadcast_address":"n","http_port":{node}}}"#);
    let (status, body) = match path {
        "/info" => (200, &*info),
        "/stats" => (200, STATS),
        // Terms are read before the topic is looked for.
        "/topic/pause" | "/channel/pause" if has_terms && query.contains("for=10&") => {
            (400, r#"{"message":"INVALID_FOR","reason":"no unit"}"#)
        }
        "/topic/empty" | "/channel/empty" if has_terms && query.contains("undo=25h") => {
            (400, r#"{"message":"INVALID_UNDO","reason":"too long"}"#)
        }
        _ if query.contains("nsqadmin-asks") => (404, r#"{"message":"TOPIC_NOT_FOUND"}"#),
        "/channel/unempty" | "/topic/unempty" if has_terms && request.head.starts_with("GET") => {
            (405, r#"{"message":"METHOD_NOT_ALLOWED"}"#)
        }
        "/channel/unempty" | "/topic/unempty" if !has_terms => (404, r#"{"message":"NOT_FOUND"}"#),
        _ => (200, ""),
    };
    Answer {
        status,
        headers: Vec::new(),
        body: body.as_bytes().to_vec(),
    }
}

/// Starts an nsqd, and returns it with the flag that names it.
fn nsqd(node: u16, has_terms: bool) -> (HttpServer, String) {
    let nsqd = HttpServer::start(move |request, _| answer(request, node, has_terms));
    let url = nsqd.url("");
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let flag = format!("--nsqd-http-address={address}");
    (nsqd, flag)
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
    let (able, flag) = nsqd(1, true);
    let admin = Admin::start(&[&flag, "--live-interval=0"]);
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

#[test]
fn a_node_without_them_is_named_and_nothing_is_done() {
    let (able, first) = nsqd(1, true);
    let (unable, second) = nsqd(2, false);
    let admin = Admin::start(&[&first, &second, "--live-interval=0"]);
    let pause = r#"{"action":"pause","for":"10m"}"#;
    let empty = r#"{"action":"empty","undo":"10m"}"#;
    for (path, body, code, lacks) in [
        (
            "/api/topics/t/c",
            pause,
            "LIMIT_UNSUPPORTED",
            "no limit of a pause",
        ),
        (
            "/api/topics/t",
            pause,
            "LIMIT_UNSUPPORTED",
            "no limit of a pause",
        ),
        (
            "/api/topics/t/c",
            empty,
            "UNDO_UNSUPPORTED",
            "no undo of emptied channels",
        ),
        (
            "/api/topics/t",
            empty,
            "UNDO_UNSUPPORTED",
            "no undo of emptied topics",
        ),
    ] {
        let expected = format!("{code}: nothing was done; {lacks} at n:2");
        admin.post(path, body).expect_error(409, &expected);
    }
    let order = |confirm: &str| {
        let order = json!({"action": "pause", "of": "topics", "show": "all", "for": "1h", "confirm": confirm});
        admin.post("/api/acts", &order.to_string())
    };
    let listing = order("").expect_status(200).json();
    let refused = order(listing["confirm"].as_str().expect("a token"));
    assert!(
        refused.text().contains("LIMIT_UNSUPPORTED"),
        "{}",
        refused.text()
    );
    assert_eq!(acts(&able), <[String; 0]>::default());
    assert_eq!(acts(&unable), <[String; 0]>::default());
    // Without an end, every nsqd can pause.
    let pause = r#"{"action":"pause","note":"x"}"#;
    admin.post("/api/topics/t", pause).expect_status(200);
    assert_eq!(acts(&unable), ["/topic/pause?topic=t&note=x"]);
}

/// With a node of NSQ in the cluster, such a value was called LIMIT_UNSUPPORTED.
#[test]
fn a_bad_value_is_named_although_a_node_knows_no_terms() {
    let (able, first) = nsqd(1, true);
    let (unable, second) = nsqd(2, false);
    let admin = Admin::start(&[&first, &second, "--live-interval=0"]);
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
    assert_eq!(acts(&able), <[String; 0]>::default());
    assert_eq!(acts(&unable), <[String; 0]>::default());
}

/// Starts an nsqd with the topic `name`, which hangs when it is asked what it can do.
fn silent_nsqd(node: u16, name: &'static str) -> (HttpServer, String) {
    let nsqd = HttpServer::start(move |request, _| {
        if request.target().ends_with("/unempty") && request.head.starts_with("GET") {
            std::thread::sleep(std::time::Duration::from_secs(10));
        }
        let mut answer = answer(request, node, true);
        let body = String::from_utf8(answer.body).unwrap();
        let topic = format!(r#""topic_name":"{name}""#);
        answer.body = body.replace(r#""topic_name":"t""#, &topic).into_bytes();
        answer
    });
    let flag = format!("--nsqd-http-address={}", nsqd.address);
    (nsqd, flag)
}

/// Such an act was `partly`, and in an order `done`.
#[test]
fn a_node_that_does_not_say_what_it_can_do_has_done_nothing() {
    let (able, first) = nsqd(1, true);
    let (silent, second) = silent_nsqd(2, "t");
    let (alone, third) = silent_nsqd(3, "alone");
    let flags = ["--live-interval=0", "--http-client-request-timeout=1s"];
    let admin = Admin::start(&[&first, &second, &third, flags[0], flags[1]]);
    let pause = r#"{"action":"pause","for":"10m"}"#;
    let refused = admin.post("/api/topics/alone", pause).expect_status(502);
    assert!(
        refused.text().contains("UPSTREAM_ERROR"),
        "{}",
        refused.text()
    );
    let line = admin.wait_for_log("AUDIT: pause_topic alone");
    assert!(line.contains(": failed - "), "{line}");
    let order = |confirm: &str| {
        let order = json!({"action": "pause", "of": "topics", "show": "all", "for": "1h", "confirm": confirm});
        let answer = admin.post("/api/acts", &order.to_string());
        answer.expect_status(200).json()
    };
    let listing = order("");
    let done = order(listing["confirm"].as_str().expect("a token"));
    let result = |index: usize, key: &str| done["results"][index][key].as_str().unwrap_or_default();
    assert_eq!(
        (result(0, "topic"), result(0, "result")),
        ("alone", "failed")
    );
    assert_eq!((result(1, "topic"), result(1, "result")), ("t", "partly"));
    for (index, node) in [(0, "n:3"), (1, "n:2")] {
        let message = result(index, "message");
        assert!(
            message.contains(&format!("nothing was done at {node}")),
            "{message}"
        );
    }
    assert_eq!(acts(&able), ["/topic/pause?topic=t&for=1h"]);
    assert_eq!(acts(&silent), <[String; 0]>::default());
    assert_eq!(acts(&alone), <[String; 0]>::default());
}

/// The questions stood in the logs as `POST /topic/pause` and, at level INFO, as `querying nsqd .../topic/unempty`.
#[test]
fn a_question_about_abilities_does_not_read_like_an_act() {
    let (able, flag) = nsqd(1, true);
    let admin = Admin::start(&[&flag, "--live-interval=0"]);
    admin.json("/api/abilities");
    // Lines are written later than their request is answered, and in the order of their events.
    admin.wait_for_log("200 GET /api/abilities ");
    let requests = able.requests();
    let posts = requests
        .iter()
        .filter(|request| request.head.starts_with("POST"));
    assert_eq!(posts.count(), 0, "{requests:?}");
    assert!(!admin.log().contains("unempty"), "{}", admin.log());
}

#[test]
fn live_figures_have_the_terms_of_pauses() {
    let (_able, flag) = nsqd(1, true);
    let admin = Admin::start(&[&flag, "--live-interval=50ms"]);
    let is_there = |live: &serde_json::Value| live["topics"][0]["pause_note"] == "deploying";
    let live = admin.wait_for("/api/live/topics", is_there);
    assert_eq!(live["topics"][0]["pause_until_ms"], 1_800_000_000_000_u64);
}

/// The first questions of nsqadmin change nothing at a real node.
#[test]
fn a_question_leaves_no_trace() {
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    let admin = Admin::start(&[&format!("--nsqd-http-address={}", nsqd.http)]);
    let nodes = admin.json("/api/abilities")["nodes"].clone();
    assert_eq!(nodes.as_array().map(Vec::len), Some(1));
    let topics = nsqd.get("/stats?format=json").json()["topics"].clone();
    assert_eq!(topics.as_array().map(Vec::len), Some(1), "{topics}");
    assert_eq!(topics[0]["paused"], false);
}

/// The same with two real nsqds: a pause with all its terms, and an undo over both nodes.
#[test]
fn real_nodes_keep_the_terms() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let nsqds: Vec<Daemon> = (0..2).map(|_| Daemon::nsqd_at(&[&lookupd], &[])).collect();
    for nsqd in &nsqds {
        nsqd.create_channel("t", "c");
    }
    // The other node has nothing to bring back.
    nsqds[0].publish("t", &["x", "y", "z"]);
    nsqds[0].wait_for_figure("t", "c", "depth", 3);
    let admin = Admin::start_at(&[&lookupd], &[]);
    admin.wait_for("/api/abilities?topic=t", |answer| {
        let nodes = answer["nodes"].as_array();
        nodes.is_some_and(|nodes| {
            let can =
                |node: &serde_json::Value| node["pause_terms"] == true && node["undo"] == true;
            nodes.len() == 2 && nodes.iter().all(can)
        })
    });
    let act = |body: &str| admin.ask("POST", "/api/topics/t/c", &["X-Forwarded-User: ann"], body);
    let pause = r#"{"action":"pause","for":"10m","note":"deploying"}"#;
    let done = act(pause).expect_status(200).json();
    assert_eq!(done["message"], "");
    let channel = admin.json("/api/topics/t/c");
    assert_eq!(channel["paused_by"], "ann");
    assert_eq!(channel["pause_note"], "deploying");
    let until = channel["pause_until_ms"].as_u64().expect("an end");
    assert!(until > 1_700_000_000_000, "{until}");
    act(r#"{"action":"unpause"}"#).expect_status(200);
    let channel = admin.json("/api/topics/t/c");
    assert_eq!(channel["paused"], false);
    assert_eq!(channel.get("pause_until_ms"), None);
    let invalid = act(r#"{"action":"pause","for":"never"}"#).expect_status(400);
    assert!(invalid.text().contains("INVALID_FOR"), "{}", invalid.text());

    let done = act(r#"{"action":"empty","undo":"1h"}"#)
        .expect_status(200)
        .json();
    assert_eq!(done["message"], "");
    let channel = admin.json("/api/topics/t/c");
    assert_eq!(channel["depth"], 0);
    assert_eq!(channel["undo_message_count"], 3);
    // The node without an undo is no warning.
    let done = act(r#"{"action":"unempty"}"#).expect_status(200).json();
    assert_eq!(done["message"], "");
    nsqds[0].wait_for_figure("t", "c", "depth", 3);
    assert_eq!(nsqds[1].figure("t", "c", "depth"), 0);
    let again = act(r#"{"action":"unempty"}"#).expect_status(404);
    assert!(again.text().contains("UNDO_NOT_FOUND"), "{}", again.text());
}
