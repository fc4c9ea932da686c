//! The real binary with real daemons: start, stop, three nodes of which one dies, acts, notifications,
//! and servers that misbehave.

use crate::support::{Admin, AuditLog, assert_has, cluster, path, run_nsqadmin};
use serde_json::{Value, json};
use test_support::daemon::Daemon;
use test_support::held_sockets::{HeldSockets, Place, Question, check_restarts};
use test_support::http::http_with_headers;
use test_support::http_server::{Answer, HttpServer, Received};
use test_support::process::run;
use test_support::{TIMEOUT, assert_like, wait_until};

fn has_nodes(count: usize) -> impl Fn(&Value) -> bool {
    move |figures| {
        figures["nodes"]
            .as_array()
            .is_some_and(|nodes| nodes.len() == count)
    }
}

#[test]
fn a_check_asks_the_nsqds_and_nsqlookupds() {
    let nsqd = Daemon::nsqd(&[]);
    let check = |args: &[&str]| {
        let exit = run_nsqadmin(&[&["--check", "--http-address=127.0.0.1:0"], args].concat());
        (exit.code(), exit.stdout)
    };
    let good = format!("--nsqd-http-address={}", nsqd.http);
    let (code, text) = check(&[&good]);
    assert_eq!(code, 0, "{text}");
    assert_like(&text, "…ok    nsqds         1 of 1 answer\n…");
    let (code, text) = check(&["--", &good, "--nsqd-http-address=127.0.23.7:1"]);
    assert_eq!(code, 0, "{text}");
    assert_like(&text, "…warn  nsqds         1 of 2 answer\n…");
    let other = format!("--lookupd-http-address={}", nsqd.http);
    let (code, text) = check(&[&other]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("answers, but is no nsqlookupd"), "{text}");
    // A start with one of these ends at once.
    for (flag, row) in [
        ("--http-address=", "http-address"),
        ("--history-file=/nope/h", "history-file"),
        ("--audit-log-file=/nope/a", "audit-log-file"),
    ] {
        let (code, text) = check(&[&good, flag]);
        assert_eq!(code, 1, "{text}");
        assert!(text.contains(&format!("FAIL  {row}")), "{text}");
    }
    let directory = tempfile::tempdir().unwrap();
    let files = ["history-file", "audit-log-file"]
        .map(|flag| format!("--{flag}={}", directory.path().join(flag).display()));
    let (code, text) = check(&[&good, &files[0], &files[1]]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    let (code, text) = check(&[]);
    assert_eq!(code, 1, "{text}");
    assert_like(
        &text,
        "…--nsqd-http-address or --lookupd-http-address required…",
    );
}

/// The polls of one nsqadmin were nine tenths of the log of each nsqd and nsqlookupd.
#[test]
fn what_nsqadmin_asks_all_the_time_is_not_in_the_logs_of_the_others() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let nsqds = cluster(&[&lookupd], 1);
    let admin = Admin::start_at(&[&lookupd], &["--live-interval=50ms"]);
    let asked = |daemon: &Daemon| {
        let log = daemon.log();
        let lines = log.lines().filter(|line| line.contains(" GET /"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let has_looked = |live: &Value| live["topics"].to_string().contains("clicks");
    admin.wait_for("/api/live", has_looked);
    admin.wait_for("/api/live/attention", |attention| {
        attention["steady_ms"].as_i64() > Some(0)
    });
    let before = [asked(&lookupd), asked(&nsqds[0])];
    let steady = |answer: &Value| answer["steady_ms"].as_i64().unwrap_or(0);
    let first = steady(&admin.json("/api/live"));
    admin.wait_for("/api/live", |live| steady(live) > first + 1000);
    assert_eq!(
        [asked(&lookupd), asked(&nsqds[0])],
        before,
        "no poll has a line"
    );
    // A question of a page has one.
    admin.get("/api/topics/clicks").expect_status(200);
    nsqds[0].wait_for_log(" GET /stats?format=json&topic=clicks");
    lookupd.wait_for_log(" GET /lookup?topic=clicks");
    // A poll that fails has one, too.
    http_with_headers(nsqds[0].http, "GET", "/nope", &["X-NSQ-Poll: true"], b"").expect_status(404);
    nsqds[0].wait_for_log(" 404 GET /nope ");
    // Nobody reads bodies without one.
    let peek = "/topic/peek?topic=clicks";
    http_with_headers(nsqds[0].http, "GET", peek, &["X-NSQ-Poll: true"], b"").expect_status(200);
    nsqds[0].wait_for_log(" GET /topic/peek?topic=clicks ");
}

/// A pod that was not ready had no name yet, and nsqadmin ended with it.
#[test]
fn one_address_that_does_not_resolve_does_not_end_the_start() {
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    let there = format!("--nsqd-http-address={}", nsqd.http);
    let absent = "--nsqd-http-address=nsqd-1.invalid:4151";
    let admin = Admin::start(&[absent, &there]);
    let warning = " WARNING: failed to resolve --nsqd-http-address (nsqd-1.invalid:4151) - lookup nsqd-1.invalid: ";
    let line = admin.wait_for_log(warning);
    assert_like(
        &line,
        "…; nsqadmin starts with the others, and asks for this name again",
    );
    let answer = admin.json("/api/topics/t");
    assert_like(answer["message"].to_string(), "…nsqd-1.invalid…");
    assert_eq!(
        answer["nodes"].as_array().map(Vec::len),
        Some(1),
        "{answer}"
    );
    // The name of the only nsqlookupd is mistyped.
    let ended = run_nsqadmin(&["--lookupd-http-address=lookup-1.invalid:4161"]);
    let why = "failed to resolve --lookupd-http-address (lookup-1.invalid:4161) - lookup lookup-1.invalid: ";
    assert!(ended.stderr.contains(why), "{}", ended.stderr);
    // A wrong form is a mistake, whatever the others are.
    let ended = run_nsqadmin(&[&there, "--nsqd-http-address=nsqd-1"]);
    assert_like(&ended.stderr, "…missing port in address…");
}

/// A supervisor holds the socket, as systemd does with socket activation.
#[test]
fn restarts_refuse_nobody() {
    let admin = |sockets: &HeldSockets| {
        let mut command = sockets.command(&path());
        command.args(["--log-level=error", "--lookupd-http-address=127.0.0.1:1"]);
        command
    };
    let mut sockets = HeldSockets::default();
    let http = Question::ping(Place::Tcp(sockets.listen("http")));
    check_restarts(|| admin(&sockets), &[http], 3, |_| {});

    let directory = tempfile::tempdir().unwrap();
    let unix = directory.path().join("http");
    let mut sockets = HeldSockets::default();
    sockets.listen_unix("http", &unix);
    let exit = run(&mut admin(&sockets), TIMEOUT);
    let why = "failed - nsqadmin has no unix sockets";
    exit.expect(1, &format!("…listen ({}) {why}…", unix.display()));
}

#[test]
fn a_start_that_fails_says_why() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let http = format!("--http-address={address}");
    let exit = run_nsqadmin(&[&http, "--lookupd-http-address=127.0.0.1:4161"]);
    let text = format!(
        "…FATAL: failed to instantiate nsqadmin - listen ({address}) failed - listen tcp {address}: bind: address already in use…"
    );
    exit.expect(1, &text);
    let text = "--nsqd-http-address or --lookupd-http-address required";
    run_nsqadmin(&[]).expect(1, &format!("…failed to instantiate nsqadmin - {text}…"));
    for args in [["--nope"], ["--log-level=zzz"]] {
        assert_eq!(run_nsqadmin(&args).code(), 2, "{args:?}");
    }
    let exit = run_nsqadmin(&["--version"]);
    assert_eq!(exit.code(), 0);
    assert_like(&exit.stdout, "nsqadmin v1.3.0 (built w/…");
    let lookupd = "--lookupd-http-address=127.0.0.1:4161";
    for [flag, why] in test_support::rows(
        "--audit-log-file=/nonexistent/x | failed to open --audit-log-file (/nonexistent/x) - no such file
         --acl-http-header=a b           | failed to parse --acl-http-header (a b)
         --https-address=127.0.0.1:0     | --https-address needs --tls-cert and --tls-key",
    ) {
        let exit = run_nsqadmin(&["--http-address=127.0.0.1:0", lookupd, flag]);
        exit.expect(1, &format!("…{why}…"));
    }
}

#[test]
fn a_signal_ends_it_with_code_0() {
    for signal in ["TERM", "INT"] {
        let mut admin = Admin::start_alone(&[]);
        admin.get("/ping").expect_status(200);
        let (code, log) = admin.end(signal);
        assert_eq!(code, Some(0));
        assert!(log.contains("INFO: nsqadmin v1.3.0 (built w/"), "{log}");
        assert!(log.contains("200 GET /ping (127.0.0.1:"), "{log}");
        assert!(log.contains("INFO: HTTP: closing 127.0.0.1:"), "{log}");
    }
}

#[test]
fn figures_are_sums_and_a_dead_node_is_a_warning() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let mut nsqds = cluster(&[&lookupd], 3);
    nsqds[0].publish("clicks", &["y", "z"]);
    nsqds[0].wait_for_figure("clicks", "a", "depth", 3);
    let admin = Admin::start_at(&[&lookupd], &["--http-client-request-timeout=5s"]);
    // On a busy machine, a node may miss the deadline of a request. The answer is then a warning.
    let is_whole = |answer: &Value| answer["message"] == json!("");
    let topic = admin.wait_for("/api/topics/clicks", |topic| {
        has_nodes(3)(topic) && is_whole(topic)
    });
    assert_eq!(topic["message_count"], json!(5));
    let counts = topic["nodes"].as_array().unwrap().iter();
    let mut counts: Vec<i64> = counts
        .map(|node| node["message_count"].as_i64().unwrap())
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 1, 3]);
    let channel = admin.wait_for("/api/topics/clicks/a", is_whole);
    assert_has(&channel, &json!({"depth": 5, "memory_depth": 5}));
    let counter = admin.wait_for("/api/counter", is_whole);
    assert_eq!(
        counter["stats"].as_object().map(serde_json::Map::len),
        Some(3)
    );

    // A node that stops in the middle of its work is still registered, and does not answer. The signal takes effect
    // at once on an idle machine only, and on a busy one, the other nodes may miss their deadline, too.
    nsqds[2].signal("STOP");
    let address = nsqds[2].http.to_string();
    let lacks_it = |topic: &Value| {
        let message = topic["message"].as_str().unwrap_or_default();
        has_nodes(2)(topic) && message.contains(&address)
    };
    let topic = admin.wait_for("/api/topics/clicks", lacks_it);
    assert_eq!(topic["message_count"], json!(4));
    let message = topic["message"].as_str().unwrap();
    assert!(message.starts_with("WARNING: Get \"http://"), "{message}");
    assert!(
        message.contains(&address) && message.contains("no answer in time"),
        "{message}"
    );
    nsqds[2].signal("CONT");

    // A node that has died leaves the list.
    nsqds[2].kill();
    let topic = admin.wait_for("/api/topics/clicks", has_nodes(2));
    assert_eq!(topic["message_count"], json!(4));
    let node = admin.json(&format!("/api/nodes/{}", nsqds[0].http));
    assert_has(&node, &json!({"total_messages": 3, "total_clients": 0}));
    // The node may have refused connections before nsqlookupd dropped it.
    let target = format!("/api/nodes/{address}");
    assert!(wait_until(TIMEOUT, || admin.get(&target).status == 404));
    admin.get(&target).expect_error(404, "NODE_NOT_FOUND");
}

#[test]
fn one_dead_nsqlookupd_is_a_warning_and_two_are_an_error() {
    let mut lookupds = [(); 2].map(|()| Daemon::nsqlookupd(&[]));
    lookupds[0]
        .post("/topic/create?topic=t", b"")
        .expect_status(200);
    let admin = Admin::start_at(&[&lookupds[0], &lookupds[1]], &[]);
    assert_eq!(
        admin.json("/api/topics"),
        json!({"topics": ["t"], "message": ""})
    );
    lookupds[1].kill();
    let address = lookupds[1].http;
    let refused =
        format!("Get \"http://{address}/topics\": dial tcp {address}: connect: connection refused");
    let expected = json!({"topics": ["t"], "message": format!("WARNING: {refused}")});
    assert_eq!(admin.json("/api/topics"), expected);
    lookupds[0].kill();
    for (method, target, body) in [
        ("GET", "/api/topics", ""),
        ("GET", "/api/topics/t", ""),
        ("GET", "/api/nodes", ""),
        ("POST", "/api/topics", r#"{"topic":"n"}"#),
        ("DELETE", "/api/topics/t", ""),
    ] {
        let answer = admin.ask(method, target, &[], body).expect_status(502);
        let start = "UPSTREAM_ERROR: failed to query any nsqlookupd: ";
        assert!(answer.message().starts_with(start), "{}", answer.text());
    }
}

#[test]
fn acts_reach_the_servers_and_are_told_and_logged() {
    let endpoint = HttpServer::start(|_, _| Answer::new(500, ""));
    let audit = AuditLog::default();
    let lookupd = Daemon::nsqlookupd(&[]);
    let nsqds = cluster(&[&lookupd], 2);
    let hook = endpoint.url("/hook?token=secret");
    let hook = format!("--notification-http-endpoint={hook}");
    let flags = [&hook, &audit.flag(), "--admin-user=carol"];
    let admin = Admin::start_at(&[&lookupd], &flags);
    admin.wait_for("/api/topics/clicks", has_nodes(2));
    let act = |method: &str, target: &str, body: &str| {
        let headers = [
            "X-Forwarded-User: carol",
            "User-Agent: test/1",
            "X-Scheme: https",
        ];
        admin.ask(method, target, &headers, body)
    };
    let done = |answer: test_support::http::Response| {
        assert_eq!(answer.expect_status(200).json(), json!({"message": ""}));
    };
    let post = |target: &str, body: &str| done(act("POST", target, body));
    post("/api/topics/clicks/a?x=1", r#"{"action":"pause"}"#);
    assert_eq!(admin.json("/api/topics/clicks/a")["paused"], json!(true));
    assert_eq!(
        nsqds[1].channel("clicks", "a").unwrap()["paused"],
        json!(true)
    );
    post("/api/topics/clicks/a", r#"{"action":"unpause"}"#);
    assert_eq!(admin.json("/api/topics/clicks/a")["paused"], json!(false));
    post("/api/topics/clicks/a", r#"{"action":"empty"}"#);
    nsqds[0].wait_for_figure("clicks", "a", "depth", 0);
    post("/api/topics/clicks", r#"{"action":"pause"}"#);
    let topic = admin.json("/api/topics/clicks");
    let nodes = topic["nodes"].as_array().unwrap();
    assert!(
        nodes.iter().all(|node| node["paused"] == json!(true)),
        "{topic}"
    );
    post("/api/topics", r#"{"topic":"new","channel":"ch"}"#);
    assert_eq!(
        admin.json("/api/topics?inactive=true")["topics"],
        json!({"new": ["ch"]})
    );
    done(act("DELETE", "/api/topics/new", ""));
    assert_eq!(admin.json("/api/topics?inactive=true")["topics"], json!({}));
    let node = nsqds[0].http.to_string();
    let of_node = format!("/api/nodes/{node}");
    done(act("DELETE", &of_node, r#"{"topic":"clicks"}"#));
    assert_eq!(nsqds[0].channel("clicks", "a"), None);
    assert!(
        !lookupd
            .get("/lookup?topic=clicks")
            .text()
            .contains(&format!("\"http_port\":{}", nsqds[0].http.port()))
    );
    admin
        .delete("/api/topics/clicks", "")
        .expect_error(403, "FORBIDDEN");
    act("DELETE", "/api/topics/nope", "").expect_error(404, "TOPIC_NOT_FOUND");

    let told = endpoint.wait_for(8);
    let first = told[0].json();
    let head = told[0].head.to_lowercase();
    assert!(head.contains("content-type: application/json\r\n"));
    assert_eq!(first["action"], json!("pause_channel"));
    assert_has(&first, &json!({"topic": "clicks", "channel": "a"}));
    assert_has(&first, &json!({"user": "carol", "user_agent": "test/1"}));
    assert_eq!(
        first["url"],
        json!(format!("https://{}/api/topics/clicks/a?x=1", admin.http))
    );
    assert_eq!(first["via"], json!(program::hostname()));
    let told = told.iter().map(Received::json);
    let actions = told.map(|json| json["action"].clone());
    assert_eq!(
        actions.collect::<Vec<_>>(),
        [
            "pause_channel",
            "unpause_channel",
            "empty_channel",
            "pause_topic",
            "create_topic",
            "create_channel",
            "delete_topic",
            "tombstone_topic_producer"
        ],
        "a failed act and a refused one are not told"
    );
    let lines = audit.lines();
    assert_eq!(lines.len(), 10, "{lines:?}");
    assert_has(&lines[0], &json!({"user": "carol", "result": "done"}));
    assert_eq!(lines[7]["node"], json!(node));
    assert_has(&lines[8], &json!({"user": "", "result": "refused"}));
    assert_eq!(lines[9]["result"], json!("failed"));
    admin.wait_for_log("INFO: AUDIT: pause_channel clicks/a by user \"carol\" (127.0.0.1:");
    admin.wait_for_log("INFO: POSTing notification to http://127.0.0.1:");
    let log = admin.log();
    assert!(!log.contains("secret"), "{log}");
}

/// The original ends here.
#[test]
fn a_dead_endpoint_of_notifications_does_no_harm() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let mut admin = Admin::start_at(
        &[&lookupd],
        &["--notification-http-endpoint=http://127.0.0.1:1/x"],
    );
    admin
        .post("/api/topics", r#"{"topic":"t"}"#)
        .expect_status(200);
    admin.wait_for_log(
        "ERROR: failed to POST notification - dial tcp 127.0.0.1:1: connect: connection refused",
    );
    assert!(!admin.has_ended());
    assert_eq!(admin.json("/api/topics")["topics"], json!(["t"]));
}

/// The original ends at the second and the third answer.
#[test]
fn odd_answers_of_servers_do_no_harm() {
    let nsqd = HttpServer::start(|request, _| {
        match request.target() {
        "/stats?format=json&topic=old&include_clients=false" => {
            r#"{"status_code":200,"status_txt":"OK","data":{"topics":[{"topic_name":"old","depth":7,"channels":[{"channel_name":"c","clients":[{}]}]},{"topic_name":"other"}]}}"#.into()
        }
        "/stats?format=json&topic=deep&include_clients=false" => Answer::new(200, "[".repeat(60_000)),
        "/stats?format=json&topic=long&include_clients=false" => Answer::new(200, " ".repeat(70_000)),
        _ => r#"{"topics":[{"topic_name":"t","channels":[{"channel_name":"c"}]}]}"#.into(),
    }
    });
    let port = nsqd.address.port();
    let producer = json!({"broadcast_address": "127.0.0.1", "tcp_port": 1, "http_port": port, "topics": ["a", "b"], "tombstones": [true]});
    let lookupd =
        HttpServer::start(move |_, _| json!({"producers": [producer], "topics": null}).into());
    let flag = format!("--lookupd-http-address={}", lookupd.address);
    let mut admin = Admin::start(&[&flag, "--max-answer-size=65536"]);
    let old = admin.json("/api/topics/old");
    assert_eq!(
        (&old["depth"], &old["channels"][0]["client_count"]),
        (&json!(7), &json!(1))
    );
    assert_eq!(old["nodes"].as_array().map(Vec::len), Some(1));
    let nodes = admin.json("/api/nodes");
    let topics = json!([{"topic": "a", "tombstoned": true}, {"topic": "b", "tombstoned": false}]);
    assert_eq!(nodes["nodes"][0]["topics"], topics);
    let check = |topic: &str, why: &str| {
        let answer = admin.get(&format!("/api/topics/{topic}"));
        let message = answer.expect_status(502).message();
        let start = "UPSTREAM_ERROR: failed to query any nsqd: ";
        assert!(message.starts_with(start), "{message}");
        assert!(message.contains(why), "{message}");
    };
    check("deep", "the answer is not understood: ");
    check(
        "long",
        "the answer has more than 65536 bytes (--max-answer-size)",
    );
    assert_eq!(
        admin.json("/api/topics"),
        json!({"topics": [], "message": ""})
    );
    assert!(!admin.has_ended());
}

#[test]
fn an_address_that_cannot_be_reached_is_named_and_can_be_mapped() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let nsqd = Daemon::nsqd(&[
        "--broadcast-address=127.99.0.1",
        &format!("--lookupd-tcp-address={}", lookupd.tcp),
    ]);
    nsqd.publish("t", &["x"]);
    let node = format!("127.99.0.1:{}", nsqd.http.port());
    let admin = Admin::start_at(&[&lookupd], &[]);
    admin.wait_for("/api/topics", |answer| answer["topics"] == json!(["t"]));
    let answer = admin.get("/api/topics/t").expect_status(502).json();
    let message = answer["message"].as_str().unwrap();
    let flag = format!("--nsqd-url-map={node}=URL");
    assert!(message.contains(&flag), "{message}");
    let mapped = Admin::start_at(
        &[&lookupd],
        &[&format!("--nsqd-url-map={node}=http://{}", nsqd.http)],
    );
    let topic = mapped.wait_for("/api/topics/t", has_nodes(1));
    assert_eq!(
        (&topic["message_count"], &topic["nodes"][0]["node"]),
        (&json!(1), &json!(node))
    );
}

#[test]
fn more_nodes_than_the_limit_are_left_out_with_a_warning() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let _nsqds = cluster(&[&lookupd], 2);
    let admin = Admin::start_at(&[&lookupd], &["--max-nodes=1"]);
    let is_short =
        |topic: &Value| topic["message"] == json!("WARNING: 1 nsqds are left out (--max-nodes)");
    let topic = admin.wait_for("/api/topics/clicks", is_short);
    assert_eq!(topic["nodes"].as_array().map(Vec::len), Some(1));
}

#[test]
fn without_nsqlookupds_topics_are_created_on_the_nsqds() {
    let nsqds = [(); 2].map(|()| Daemon::nsqd(&[]));
    let admin = Admin::start_direct(nsqds.iter().map(|nsqd| nsqd.http), &[]);
    let created = admin.post("/api/topics", r#"{"topic":"t","channel":"c"}"#);
    assert_eq!(created.expect_status(200).json(), json!({"message": ""}));
    assert!(nsqds.iter().all(|nsqd| nsqd.channel("t", "c").is_some()));
    assert_eq!(admin.json("/api/topics")["topics"], json!(["t"]));
    let node = nsqds[1].http.to_string();
    admin
        .delete(&format!("/api/nodes/{node}"), r#"{"topic":"t"}"#)
        .expect_status(200);
    assert_eq!(
        admin.json("/api/topics/t")["nodes"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    admin
        .delete("/api/nodes/127.0.0.1:1", r#"{"topic":"t"}"#)
        .expect_error(404, "NODE_NOT_FOUND");
    admin.delete("/api/topics/t", "").expect_status(200);
    assert_eq!(nsqds[0].channel("t", "c"), None);
}

/// Browsers remove `.` and `..` from addresses, so nobody could show or delete such a topic on the page.
#[test]
fn topics_of_dots_are_shown_and_deleted() {
    let nsqd = Daemon::nsqd(&[]);
    let admin = Admin::start_direct([nsqd.http], &[]);
    for topic in [".", ".."] {
        nsqd.create_channel(topic, "c");
        let target = format!("/api/topics/~{topic}");
        let shown = admin.ask("GET", &target, &[], "").expect_status(200).json();
        assert_eq!(shown["topic_name"], topic, "{shown}");
        let channel = format!("{target}/c");
        admin.ask("GET", &channel, &[], "").expect_status(200);
        admin.ask("DELETE", &target, &[], "").expect_status(200);
        assert!(nsqd.channel(topic, "c").is_none());
    }
}
