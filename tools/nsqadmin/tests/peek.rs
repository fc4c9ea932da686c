//! Messages that nsqadmin shows without consuming them: of several nodes, with filters, for users who may
//! read bodies and for others, and nodes that show nothing.

use crate::support::{Admin, assert_has, assert_text};
use serde_json::{Value, json};
use test_support::daemon::Daemon;
use test_support::http_server::{Answer, HttpServer};
use test_support::original_nsqd;

fn nsqd(args: &[&str], bodies: &[&str]) -> Daemon {
    let nsqd = Daemon::nsqd(args);
    nsqd.create_channel("t", "c");
    nsqd.publish("t", bodies);
    let count = i64::try_from(bodies.len()).unwrap();
    nsqd.wait_for_figure("t", "c", "depth", count);
    nsqd
}

fn admin_at(addresses: &[std::net::SocketAddr], args: &[&str]) -> Admin {
    // A later flag of a test counts.
    let args = [&["--peek-bodies=everybody"], args].concat();
    Admin::start_direct(addresses.iter().copied(), &args)
}

fn bodies(answer: &Value) -> Vec<&str> {
    let nodes = answer["nodes"].as_array().expect("nodes");
    let messages = nodes
        .iter()
        .flat_map(|node| node["messages"].as_array().into_iter().flatten());
    messages
        .map(|message| message["body"].as_str().unwrap_or("masked"))
        .collect()
}

/// The page says so: see `WAITING_LISTS` in `page/views/messages.js`.
#[test]
fn what_was_published_before_a_restart_is_only_in_the_lists_of_what_waits() {
    let mut nsqd = nsqd(&[], &["one", "two"]);
    nsqd.restart();
    let admin = admin_at(&[nsqd.http], &[]);
    let check = |target: &str, expected: &[&str]| {
        assert_eq!(bodies(&admin.json(target)), expected, "{target}");
    };
    check("/api/peek/t?from=published", &[]);
    check("/api/peek/t/c?from=newest", &["two", "one"]);
    nsqd.publish("t", &["three"]);
    check("/api/peek/t?from=published", &["three"]);
}

#[test]
fn all_nodes_or_one_show_their_messages_and_keep_them() {
    let nsqds = [
        nsqd(&[], &[r#"{"order":{"id":1}}"#, "two"]),
        nsqd(&[], &[r#"{"order":{"id":3}}"#]),
    ];
    let admin = admin_at(&[nsqds[0].http, nsqds[1].http], &[]);
    let all = admin.json("/api/peek/t/c");
    assert_eq!(bodies(&all).len(), 3, "{all}");
    assert_eq!(all["bodies"], json!(true));
    let second = nsqds[1].http.to_string();
    let one = admin.json(&format!("/api/peek/t/c?node={second}"));
    assert_eq!(bodies(&one), [r#"{"order":{"id":3}}"#]);
    assert_eq!(one["nodes"][0]["node"], json!(second));
    let url = one["nodes"][0]["url"].as_str().unwrap();
    assert_eq!(
        url,
        format!("http://{second}/channel/peek?topic=t&channel=c")
    );
    let found = admin.json("/api/peek/t/c?json=%2Forder%2Fid&equals=1");
    assert_eq!(bodies(&found), [r#"{"order":{"id":1}}"#]);
    assert_eq!(bodies(&admin.json("/api/peek/t/c?contains=two")), ["two"]);
    // One message at a time, and the next one from where the last answer ended.
    let first = nsqds[0].http.to_string();
    let page = admin.json(&format!("/api/peek/t/c?node={first}&limit=1"));
    let next = page["nodes"][0]["next"].as_str().expect("one is left");
    let rest = admin.json(&format!("/api/peek/t/c?node={first}&cursor={next}"));
    assert_eq!(bodies(&rest), ["two"]);
    assert_eq!(bodies(&admin.json("/api/peek/t")), [""; 0]);
    // The list of published messages, for the topic and for its channel.
    for target in ["/api/peek/t", "/api/peek/t/c"] {
        let published = admin.json(&format!("{target}?from=published&node={first}"));
        assert_eq!(bodies(&published), ["two", r#"{"order":{"id":1}}"#]);
        let node = &published["nodes"][0];
        let url = format!("http://{first}/topic/peek?topic=t&from=published");
        assert_eq!((&node["url"], node.get("from")), (&json!(url), None));
    }
    // The live tail of a channel that does not exist showed the messages of the topic.
    for from in ["published", "newest"] {
        let missing = admin.get(&format!("/api/peek/t/nope?from={from}"));
        missing.expect_error(404, "CHANNEL_NOT_FOUND");
    }
    nsqds[1].create_channel("t", "second");
    let some = admin.json("/api/peek/t/second?from=published");
    assert_eq!(bodies(&some), [r#"{"order":{"id":3}}"#]);
    // Each node goes on behind its own message.
    let all = admin.json("/api/peek/t?from=published&limit=1");
    assert_eq!(bodies(&all).len(), 2);
    let newest = all["nodes"].as_array().unwrap().iter().map(|node| {
        let (node, id) = (node["node"].as_str(), node["newest"].as_str());
        format!("{}/{}", node.expect("a name"), id.expect("an id"))
    });
    let since = newest.collect::<Vec<_>>().join(",");
    let target = format!("/api/peek/t?from=published&since={since}");
    let none = admin.json(&target);
    assert_eq!(bodies(&none), [""; 0]);
    assert_eq!(none["nodes"][0]["unscanned_messages"], json!(0));
    nsqds[1].publish("t", &["more"]);
    assert_eq!(bodies(&admin.json(&target)), ["more"]);
    // An id alone, as nsqd takes it, and other parameters were dropped in silence.
    let names = "HOST:PORT/ID for each node, separated by commas";
    let why = format!("INVALID_ARG_SINCE: with from=published, since is {names}");
    for question in ["from=published&since=0f3c", "from=newest&since=n:1/0f3c"] {
        let refused = admin.get(&format!("/api/peek/t?{question}"));
        refused.expect_error(400, &why);
    }
    let refused = admin.get("/api/peek/t?limits=1").expect_status(400);
    let why = "UNKNOWN_PARAMETER: limits is none of from, limit, max_body, ";
    assert_text(&refused, why);
    for nsqd in &nsqds {
        assert_eq!(
            nsqd.figure("t", "c", "message_count"),
            nsqd.figure("t", "c", "depth")
        );
    }
}

#[test]
fn who_may_not_read_bodies_sees_everything_else() {
    let nsqd = nsqd(&[], &["secret"]);
    let carol = ["X-Forwarded-User: carol"];
    for (flag, for_carol, for_others) in [
        ("admins", "secret", "masked"),
        ("everybody", "secret", "secret"),
        ("nobody", "masked", "masked"),
    ] {
        let flag = format!("--peek-bodies={flag}");
        let admin = admin_at(&[nsqd.http], &["--admin-user=carol", &flag]);
        for (headers, expected) in [(&carol[..], for_carol), (&[], for_others)] {
            let text = admin.ask("GET", "/api/peek/t/c", headers, "").text();
            let answer: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(bodies(&answer), [expected], "{flag}");
            assert_eq!(
                text.contains("secret"),
                expected == "secret",
                "{flag}: {text}"
            );
            assert_eq!(answer["nodes"][0]["messages"][0]["body_bytes"], json!(6));
            let settings = admin.ask("GET", "/api/settings", headers, "").json();
            assert_eq!(settings["may_read_bodies"], json!(expected == "secret"));
            // A search tells what a body contains.
            for query in ["contains=secret", "json=%2Fa", "json=%2Fa&equals=1"] {
                let target = format!("/api/peek/t/c?{query}");
                let found = admin.ask("GET", &target, headers, "");
                match expected {
                    "secret" => drop(found.expect_status(200)),
                    _ => drop(found.expect_error(403, "FORBIDDEN_BODIES")),
                }
            }
        }
    }
}

/// An operator who replaced the original showed all bodies to everybody who reached nsqadmin.
#[test]
fn without_admins_nobody_reads_bodies_unless_the_operator_says_so() {
    let nsqd = nsqd(&[], &["secret"]);
    let carol = ["X-Forwarded-User: carol"];
    for [flag, expected, line] in test_support::rows(
        "--log-level=info        | masked | INFO: without --admin-user, nobody may read the bodies of messages; --peek-bodies=everybody shows them to everybody who reaches this address
         --peek-bodies=admins    | masked | INFO: without --admin-user, nobody may read the bodies
         --peek-bodies=everybody | secret | WARNING: with --peek-bodies=everybody, everybody who reaches this address may read the bodies of messages",
    ) {
        let admin = Admin::start_direct([nsqd.http], &[flag]);
        admin.wait_for_log(line);
        for headers in [&carol[..], &[]] {
            let text = admin.ask("GET", "/api/peek/t/c", headers, "").text();
            let answer: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(bodies(&answer), [expected], "{flag}");
            assert_eq!(text.contains("secret"), expected == "secret", "{text}");
        }
        let found = admin.get("/api/peek/t/c?contains=secret").status;
        assert_eq!(
            found,
            if expected == "secret" { 200 } else { 403 },
            "{flag}"
        );
    }
}

#[test]
fn nodes_without_messages_say_why() {
    let topics = json!([{"topic_name": "t", "channels": [{"channel_name": "c"}]}]);
    let original = original_nsqd::start(topics);
    let forbidding = nsqd(&["--peek=false"], &["x"]);
    let open = nsqd(&[], &["y"]);
    let other = Daemon::nsqd(&[]);
    let addresses = [original.address, forbidding.http, open.http, other.http];
    let admin = admin_at(&addresses, &[]);
    let answer = admin.json("/api/peek/t/c");
    assert_eq!(bodies(&answer), ["y"]);
    let node = |name: &str| {
        let nodes = answer["nodes"].as_array().unwrap();
        let found = nodes.iter().find(|node| node["node"] == json!(name));
        found
            .unwrap_or_else(|| panic!("{name} in {answer}"))
            .clone()
    };
    let said = node(original_nsqd::ADDRESS);
    assert_eq!(said["outcome"], json!("not_served"));
    let reason = said["reason"].as_str().unwrap();
    assert!(reason.contains("Run ringq's nsqd there"), "{reason}");
    let said = node(&forbidding.http.to_string());
    assert_eq!(said["outcome"], json!("forbidden"));
    let reason = said["reason"].as_str().unwrap();
    assert!(reason.contains("--peek=false"), "{reason}");
    let published = admin.json("/api/peek/t/c?from=published");
    assert_eq!(bodies(&published), ["y"]);
    let outcomes = published["nodes"].as_array().unwrap().iter();
    let mut outcomes: Vec<_> = outcomes.map(|node| node["outcome"].clone()).collect();
    outcomes.sort_by_key(Value::to_string);
    assert_eq!(outcomes, ["forbidden", "messages", "not_served"]);
    let absent = format!("CHANNEL_NOT_FOUND: the nsqd {} does not have it", open.http);
    admin.get_error(
        &format!("/api/peek/t/nope?node={}", open.http),
        404,
        &absent,
    );
    admin.get_error("/api/peek/nope", 404, "TOPIC_NOT_FOUND");
    admin.get_error("/api/peek/t/c?node=127.0.0.1:1", 404, "NODE_NOT_FOUND");
    let bad = admin.get("/api/peek/t/c?from=middle").expect_status(400);
    assert_text(&bad, "from is oldest");
}

/// The address in the answers of [`older_nsqd`].
const OLDER: &str = "older:4151";

/// An nsqd with peeks, and without the lists that came later.
fn older_nsqd() -> HttpServer {
    let waiting = json!({"id": "0f3c7a5e61c01000", "attempts": 0, "state": "waiting", "timestamp": 1,
        "body_bytes": 7, "is_cut": false, "encoding": "text", "body": "waiting"});
    let topics = json!([{"topic_name": "t", "channels": [{"channel_name": "c"}]}]);
    HttpServer::start(move |request, _| match request.path() {
        "/info" => {
            json!({"version": "1.3.0", "broadcast_address": "older", "http_port": 4151}).into()
        }
        "/stats" => json!({"health": "OK", "topics": topics}).into(),
        "/channel/peek" | "/topic/peek" if request.target().contains("from=newest") => {
            json!({"topic": "t", "messages": [waiting], "scanned_messages": 1, "scanned_bytes": 41,
                "ended_by": "end"})
            .into()
        }
        "/channel/peek" | "/topic/peek" => {
            let refusal = r#"{"message":"INVALID_ARG_FROM","reason":"from is oldest or newest"}"#;
            Answer::new(400, refusal)
        }
        _ => Answer::not_found(),
    })
}

#[test]
fn an_older_nsqd_shows_what_it_can_and_says_what_it_cannot() {
    let older = older_nsqd();
    let admin = admin_at(&[older.address], &[]);
    for (target, path) in [
        ("/api/peek/t/c", "/channel/peek?topic=t&channel=c"),
        ("/api/peek/t", "/topic/peek?topic=t"),
    ] {
        let answer = admin.json(&format!("{target}?from=published&since={OLDER}/0f"));
        assert_eq!(bodies(&answer), ["waiting"], "{answer}");
        let node = &answer["nodes"][0];
        assert_eq!(node["from"], json!("newest"));
        let url = node["url"].as_str().expect("a URL");
        assert!(url.ends_with(&format!("{path}&from=newest")), "{url}");
    }
    let answer = admin.json("/api/peek/t/c?from=attempts");
    let node = &answer["nodes"][0];
    assert_has(node, &json!({"node": OLDER, "outcome": "older"}));
    let reason = node["reason"].as_str().expect("a reason");
    assert!(reason.contains("older than nsqadmin"), "{reason}");
    admin.get("/api/peek/t/c?from=middle").expect_status(400);
}
