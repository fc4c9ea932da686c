//! Acts on all that match, over real sockets: the listing, its token, a node that dies in between, and the
//! audit log and notifications of each act.

use crate::support::{Admin, AuditLog, assert_text};
use serde_json::{Value, json};
use test_support::daemon::Daemon;
use test_support::http_server::{Answer, HttpServer, Received};

/// Returns nsqds that have the topics `orders.eu` and `orders.us`, each with the channel `archive` and a
/// message, and the topic `other`.
fn cluster(lookupd: &Daemon, count: usize) -> Vec<Daemon> {
    let nsqds: Vec<Daemon> = (0..count)
        .map(|_| Daemon::nsqd_at(&[lookupd], &[]))
        .collect();
    for nsqd in &nsqds {
        for topic in ["orders.eu", "orders.us", "other"] {
            nsqd.create_channel(topic, "archive");
            nsqd.publish(topic, &["x"]);
            nsqd.wait_for_figure(topic, "archive", "depth", 1);
        }
    }
    nsqds
}

fn order(action: &str, of: &str, confirm: &str) -> String {
    json!({"action": action, "of": of, "search": "orders", "confirm": confirm}).to_string()
}

/// Returns the listing of an order, and the order with its token.
fn listed(admin: &Admin, action: &str, of: &str) -> (Value, String) {
    let body = order(action, of, "");
    let listing = admin.post("/api/acts", &body).expect_status(200).json();
    let token = listing["confirm"].as_str().expect("a token");
    let confirmed = order(action, of, token);
    (listing, confirmed)
}

fn names(answer: &Value, key: &str) -> Vec<String> {
    let rows = answer[key].as_array().expect("a list").iter();
    rows.map(|row| row["topic"].as_str().expect("a topic").to_owned())
        .collect()
}

/// A node that is gone is not asked, and an act looked as if it counted everywhere.
#[test]
fn acts_name_the_nodes_that_are_gone() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let mut nsqds = cluster(&lookupd, 2);
    let admin = Admin::start_at(&[&lookupd], &["--live-interval=50ms"]);
    let gone = |answer: &Value| answer["gone_nodes"].as_array().map_or(0, Vec::len);
    admin.wait_for("/api/live/topics/orders.eu", |answer| {
        answer["nodes"].as_array().map_or(0, Vec::len) == 2 && gone(answer) == 0
    });
    // Only a node that a checkup has seen can be gone.
    let second = format!("/api/live/nodes/{}", nsqds[1].http);
    admin.wait_for(&second, |node| node["health"] == "OK");
    nsqds[1].kill();
    admin.wait_for("/api/live/topics/orders.eu", |answer| gone(answer) == 1);
    let done = admin.post("/api/topics/orders.eu", r#"{"action":"pause"}"#);
    let message = done.expect_status(200).json()["message"].to_string();
    let expected = format!("nothing was done at http://{}: gone", nsqds[1].http);
    assert!(message.contains(&expected), "{message}");
    let (listing, confirmed) = listed(&admin, "delete", "topics");
    let message = listing["message"].to_string();
    assert!(message.contains(&expected), "{message}");
    let done = admin.posted("/api/acts", &confirmed);
    assert_eq!(done["results"][0]["result"], "partly");
    let message = done["results"][0]["message"].to_string();
    assert!(message.contains("the nsqlookupds keep it"), "{message}");
}

/// nsqlookupd would forget the topic of the node, which nobody could find any more.
#[test]
fn a_deletion_leaves_what_an_unreachable_node_has() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let nsqds = cluster(&lookupd, 2);
    // Nobody listens at port 1.
    let unreachable = format!("--nsqd-url-map={}=http://127.0.0.1:1", nsqds[1].http);
    let admin = Admin::start_at(&[&lookupd], &["--live-interval=0", &unreachable]);
    lookupd.wait_for_producers("orders.eu", 2);
    let (listing, confirmed) = listed(&admin, "delete", "topics");
    assert_eq!(names(&listing, "subjects"), ["orders.eu", "orders.us"]);
    let done = admin.posted("/api/acts", &confirmed);
    for result in done["results"].as_array().expect("a list") {
        assert_eq!(result["result"], "partly");
        let message = result["message"].as_str().expect("a text");
        assert!(message.contains("the nsqlookupds keep it"), "{message}");
    }
    assert!(nsqds[0].channel("orders.eu", "archive").is_none());
    assert_eq!(nsqds[1].figure("orders.eu", "archive", "depth"), 1);
    lookupd.wait_for_producers("orders.eu", 1);
    // An nsqadmin that reaches the node has it as a part of the order.
    let admin = Admin::start_at(&[&lookupd], &["--live-interval=0"]);
    let (_, confirmed) = listed(&admin, "delete", "topics");
    let done = admin.posted("/api/acts", &confirmed);
    assert_eq!(done["results"][0]["result"], "done");
    lookupd.wait_for_producers("orders.eu", 0);
}

#[test]
fn an_order_lists_first_and_then_acts_on_exactly_that() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let nsqds = cluster(&lookupd, 2);
    let audit = AuditLog::default();
    let endpoint = HttpServer::start(|_, _| Answer::status(200));
    let told = format!("--notification-http-endpoint={}", endpoint.url("/told"));
    let admin = Admin::start_at(&[&lookupd], &[&audit.flag(), &told]);
    admin.wait_for("/api/nodes", |answer| {
        let nodes = answer["nodes"].as_array().into_iter().flatten();
        let topics = nodes.map(|node| node["topics"].as_array().map_or(0, Vec::len));
        topics.sum::<usize>() == 6
    });

    let (listing, confirmed) = listed(&admin, "empty", "channels");
    assert_eq!(names(&listing, "subjects"), ["orders.eu", "orders.us"]);
    let first = &listing["subjects"][0];
    assert_eq!(first["channel"], "archive");
    assert_eq!(first["depth"], 2);
    assert_eq!(first["nodes"].as_array().map(Vec::len), Some(2));
    assert_eq!(nsqds[0].figure("orders.eu", "archive", "depth"), 1);
    assert_eq!(audit.text(), "");

    // A topic that has come in the meantime is not touched unseen.
    nsqds[1].create_channel("orders.us", "new");
    nsqds[1].publish("orders.us", &["y"]);
    nsqds[1].wait_for_figure("orders.us", "new", "depth", 1);
    let late = admin.post("/api/acts", &confirmed);
    late.expect_error(409, "LIST_CHANGED");
    assert_eq!(nsqds[0].figure("orders.eu", "archive", "depth"), 1);

    let (listing, confirmed) = listed(&admin, "empty", "channels");
    assert_eq!(listing["subjects"].as_array().map(Vec::len), Some(3));
    // A channel whose consumers have finished in the meantime has nothing to drop.
    let finish = "/channel/empty?topic=orders.us&channel=new";
    nsqds[1].post(finish, b"").expect_status(200);
    let done = admin.posted("/api/acts", &confirmed);
    assert_eq!(done["message"], "");
    assert_eq!(names(&done, "results"), ["orders.eu", "orders.us"]);
    let results = done["results"].as_array().expect("results");
    assert!(results.iter().all(|one| one["result"] == "done"), "{done}");
    for nsqd in &nsqds {
        assert_eq!(nsqd.figure("orders.eu", "archive", "depth"), 0);
        assert_eq!(nsqd.figure("orders.us", "archive", "depth"), 0);
        assert_eq!(nsqd.figure("other", "archive", "depth"), 1);
    }
    let (listing, confirmed) = listed(&admin, "empty", "channels");
    assert_eq!(listing["subjects"].as_array().map(Vec::len), Some(3));
    let done = admin.post("/api/acts", &confirmed).expect_status(200);
    assert_eq!(done.json()["results"], json!([]));

    let lines = audit.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| line["action"] == "empty_channel"));
    let of_eu = lines.iter().find(|line| line["topic"] == "orders.eu");
    assert_eq!(of_eu.expect("a line")["messages"], 2);
    let told = endpoint.wait_for(2);
    let told: Vec<Value> = told.iter().map(Received::json).collect();
    // The acts run at the same time.
    let is_told = |topic: &str, channel: &str| {
        let mut told = told.iter();
        told.any(|one| one["topic"] == topic && one["channel"] == channel)
    };
    assert!(is_told("orders.eu", "archive"), "{told:?}");
    assert!(is_told("orders.us", "archive"), "{told:?}");

    let (listing, confirmed) = listed(&admin, "delete", "topics");
    assert_eq!(
        listing["subjects"][1]["channels"],
        json!(["archive", "new"])
    );
    admin.post("/api/acts", &confirmed).expect_status(200);
    assert_eq!(admin.json("/api/topics")["topics"], json!(["other"]));
    assert!(nsqds[0].channel("orders.eu", "archive").is_none());
}

#[test]
fn a_dead_node_is_a_warning_and_a_failed_act_does_not_end_the_order() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let mut nsqds = cluster(&lookupd, 2);
    let admin = Admin::start_direct(nsqds.iter().map(|nsqd| nsqd.http), &[]);
    let (_, confirmed) = listed(&admin, "pause", "topics");
    let dead = nsqds[1].http.to_string();
    nsqds[1].kill();
    // The dead node's part of the list can no longer be seen.
    admin
        .post("/api/acts", &confirmed)
        .expect_error(409, "LIST_CHANGED");
    let (listing, confirmed) = listed(&admin, "pause", "topics");
    let warning = listing["message"].as_str().expect("a text");
    assert!(warning.starts_with("WARNING: ") && warning.contains(&dead));
    let done = admin.posted("/api/acts", &confirmed);
    let results = done["results"].as_array().expect("results");
    assert_eq!(results.len(), 2);
    assert!(results.iter().all(|one| one["result"] == "done"), "{done}");
    assert!(
        done["message"]
            .as_str()
            .is_some_and(|it| it.contains(&dead))
    );
    admin.wait_for("/api/topics/orders.us", |topic| topic["paused"] == true);
    admin.wait_for("/api/topics/other", |topic| topic["paused"] == false);
}

/// A node that has answered for the listing, and fails for one of the acts.
#[test]
fn the_result_of_each_act_is_told() {
    let stats = r#"{"topics":[{"topic_name":"a","channels":[]},{"topic_name":"b","channels":[]}]}"#;
    let nsqd = HttpServer::start(move |request, _| match request.path() {
        "/info" => r#"{"broadcast_address":"n","http_port":1}"#.into(),
        "/stats" => stats.into(),
        _ if request.target().contains("topic=b") => Answer::new(500, "broken"),
        _ => "".into(),
    });
    let admin = Admin::start_direct([nsqd.address], &["--live-interval=0"]);
    let order = json!({"action": "delete", "of": "topics", "show": "all"});
    let done = admin.order(&[], order);
    let done = done.expect_status(200).json();
    assert_eq!(done["results"][0]["result"], "done");
    assert_eq!(done["results"][1]["result"], "failed");
    let message = done["message"].as_str().expect("a text");
    assert!(message.contains("got response 500"), "{message}");
    let metrics = admin.get("/metrics").text();
    let failed = "nsqadmin_acts_total{action=\"delete_topic\",result=\"failed\"} 1\n";
    assert!(metrics.contains(failed), "{metrics}");
    // This nsqd answers like one that knows no limit of a pause.
    let limited = r#"{"action":"pause","for":"10m"}"#;
    let refused = admin.post("/api/topics/a", limited);
    assert_eq!(refused.status, 409);
    assert_text(&refused, "LIMIT_UNSUPPORTED");
    let pauses = nsqd.requests();
    let mut pauses = pauses.iter().map(|request| request.target());
    assert!(!pauses.any(|target| target.contains("topic=a&for")));
}

#[test]
fn orders_that_make_no_sense_are_refused() {
    let nsqd = Daemon::nsqd(&[]);
    let admin = Admin::start_direct([nsqd.http], &[]);
    let check = |body: &str, text: &str| {
        let answer = admin.post("/api/acts", body).expect_status(400);
        assert!(answer.text().contains(text), "{body}: {}", answer.text());
    };
    check("", "INVALID_BODY");
    check(r#"{"action":"create","of":"topics"}"#, "INVALID_BODY");
    check(
        r#"{"action":"empty","of":"topics","filter":"x"}"#,
        "INVALID_BODY",
    );
    check(r#"{"action":"delete","of":"topics"}"#, "MISSING_FILTER");
    for number in 0..501 {
        let created = nsqd.post(&format!("/topic/create?topic=many-{number}"), b"");
        created.expect_status(200);
    }
    check(
        r#"{"action":"delete","of":"topics","search":"many"}"#,
        "TOO_MANY: 501 match",
    );
}
