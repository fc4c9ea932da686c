//! The checkup over real sockets: channels, producers, shards, disks, and servers that are gone.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::support::{Admin, assert_has};
use serde_json::{Value, json};
use test_support::daemon::Daemon;
use test_support::http_server::{Answer, HttpServer};
use test_support::original_nsqd;

fn concern<'a>(attention: &'a Value, key: &str, name: &str) -> Option<&'a str> {
    let concerns = attention["concerns"].as_array()?;
    let found = concerns
        .iter()
        .find(|concern| concern[key] == json!(name))?;
    found["sentence"].as_str()
}

/// Opens a connection that publishes `count` messages to a topic. The connection says that its client is
/// `shop`.
fn publish(nsqd: &Daemon, topic: &str, count: usize) -> TcpStream {
    let mut stream = TcpStream::connect(nsqd.tcp).expect("nsqd listens");
    let identity = json!({"client_id": "shop", "hostname": "host-p", "feature_negotiation": false})
        .to_string();
    let size = u32::try_from(identity.len()).unwrap().to_be_bytes();
    let mut bytes = [b"  V2IDENTIFY\n", &size[..], identity.as_bytes()].concat();
    for _ in 0..count {
        bytes.extend(format!("PUB {topic}\n").into_bytes());
        bytes.extend([0, 0, 0, 4]);
        bytes.extend(b"body");
    }
    stream.write_all(&bytes).expect("nsqd reads");
    stream
}

#[test]
fn channels_producers_shards_and_disks_are_told() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let nsqd = Daemon::nsqd_at(&[&lookupd], &["--shards=2"]);
    nsqd.create_channel("sales", "archive");
    let _producer = publish(&nsqd, "sales", 3);
    nsqd.wait_for_figure("sales", "archive", "depth", 3);
    let admin = Admin::start_at(&[&lookupd], &["--live-interval=100ms"]);
    let is_told = |attention: &Value| concern(attention, "channel", "archive").is_some();
    let attention = admin.wait_for("/api/live/attention", is_told);
    let sentence = concern(&attention, "channel", "archive").unwrap();
    assert_eq!(
        sentence,
        "No consumers: 3 messages wait and 0/s arrive; start a consumer"
    );
    let concerns = attention["concerns"].as_array().unwrap().iter();
    // The disk of the machine may be nearly full.
    let of_topics = concerns.filter(|concern| concern.get("node").is_none());
    assert_eq!(of_topics.count(), 1, "{attention}");
    let topic = admin.json("/api/live/topics/sales");
    assert_eq!(topic["channels"][0]["doctor"]["sentence"], json!(sentence));
    assert_eq!(topic["channels"][0]["doctor"]["is_problem"], json!(true));
    let producer = &topic["publishing"]["producers"][0];
    assert_has(
        producer,
        &json!({"client_id": "shop", "hostname": "host-p", "count": 3}),
    );
    let topics = admin.json("/api/live/topics");
    let doctor = &topics["topics"][0]["channels"][0]["doctor"];
    assert_eq!(doctor["sentence"], json!(sentence));
    let node = admin.json(&format!("/api/live/nodes/{}", nsqd.http));
    assert_eq!(node["health"], json!("OK"));
    let shards = node["shards"].as_array().unwrap();
    assert_eq!(shards.len(), 2, "{node}");
    assert!(
        shards[0]["load"].as_f64().is_some_and(|load| load >= 0.0),
        "{node}"
    );
    let of_disk = |key: &str| node["disk"][key].as_f64().unwrap();
    assert!(of_disk("size_bytes") > of_disk("free_bytes"), "{node}");
    admin.get_error("/api/live/nodes/127.0.0.1:1", 404, "NODE_NOT_FOUND");
    let without = Admin::start_at(&[&lookupd], &["--live-interval=0"]);
    without
        .get("/api/live/attention")
        .expect_error(404, "LIVE_DISABLED");
}

/// The page of a topic and of a channel whose only node was gone said `depth 0` and nothing of the node.
#[test]
fn a_topic_of_a_node_that_is_gone_names_the_node() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let mut nsqds = [(); 2].map(|()| Daemon::nsqd_at(&[&lookupd], &[]));
    nsqds[0].create_channel("other", "a");
    nsqds[1].create_channel("lost", "a");
    let admin = Admin::start_at(&[&lookupd], &["--live-interval=100ms"]);
    let second = nsqds[1].http.to_string();
    let topic_count = |live: &Value| live["topics"].as_array().map(Vec::len);
    admin.wait_for("/api/live", |live| topic_count(live) == Some(2));
    admin.wait_for(&format!("/api/live/nodes/{second}"), |node| {
        node["health"] == json!("OK")
    });
    nsqds[1].kill();
    let has_gone = |topic: &Value| {
        topic["gone_nodes"].as_array().is_some_and(|gone| {
            gone.len() == 1
                && gone[0]["node"] == json!(second)
                && gone[0]["sentence"].as_str().is_some_and(|it| {
                    it.starts_with("This nsqd is gone: no nsqlookupd has known it for ")
                })
        })
    };
    let lost = admin.wait_for("/api/live/topics/lost", |topic| {
        has_gone(topic) && topic["nodes"] == json!([])
    });
    assert_eq!(lost.get("topic"), None, "nobody knows its figures");
    let other = admin.json("/api/live/topics/other");
    assert_eq!(other["gone_nodes"], json!([]));
    admin.get_error("/api/live/topics/nope", 404, "TOPIC_NOT_FOUND");
    nsqds[1].restart();
    admin.wait_for("/api/live/topics/lost", |topic| {
        topic["gone_nodes"] == json!([]) && topic["topic"]["node_count"] == json!(1)
    });
}

/// Only the page knew of such an nsqlookupd.
#[test]
fn an_nsqlookupd_that_does_not_answer_is_logged_when_that_begins_and_when_it_ends() {
    let mut lookupds = [(); 2].map(|()| Daemon::nsqlookupd(&[]));
    let admin = Admin::start_at(&[&lookupds[0], &lookupds[1]], &["--live-interval=100ms"]);
    admin.wait_for("/api/live/attention", |attention| {
        attention["time"] != json!(0)
    });
    let address = lookupds[1].http.to_string();
    lookupds[1].kill();
    let line = admin.wait_for_log(&format!("nsqlookupd {address} does not answer"));
    // The reason is another one if a question was under way.
    assert!(
        line.contains("WARNING: ") && line.contains(". Start it, or correct "),
        "{line}"
    );
    let time = |attention: &Value| attention["time"].as_i64().unwrap_or_default();
    let before = time(&admin.json("/api/live/attention"));
    admin.wait_for("/api/live/attention", |attention| time(attention) > before);
    let lines = || {
        let log = admin.log();
        log.lines()
            .filter(|line| line.contains("does not answer"))
            .count()
    };
    assert_eq!(lines(), 1);
    lookupds[1].restart();
    let line = admin.wait_for_log(&format!("nsqlookupd {address} answers again"));
    assert!(line.contains("INFO: "), "{line}");
    assert_eq!(lines(), 1);
}

/// Starts a stand-in for ringq's nsqd at `ringq:4151`. It counts the questions for `/info`. Its start is `started`.
fn ringq_stand_in(started: &'static AtomicI64) -> HttpServer {
    let channel =
        json!({"channel_name": "c", "depth": 3, "client_count": 1, "oldest_unfinished_ms": 5000});
    let topic = json!({"topic_name": "t", "depth": 2, "message_count": 5, "shard": 0, "channels": [channel]});
    HttpServer::start(move |request, _| match request.path() {
        "/info" => json!({"version": "1.3.0", "ringq_version": "0.9.1"}).into(),
        "/stats" => {
            let start = started.load(Ordering::Relaxed);
            json!({"health": "OK", "start_time": start, "topics": [topic]}).into()
        }
        "/metrics" => "nsqd_data_path_size_bytes 1000\nnsqd_data_path_available_bytes 50\n\
                       nsqd_shard_cpu_seconds_total{shard=\"0\"} 1\n"
            .into(),
        _ => Answer::not_found(),
    })
}

/// Starts an nsqlookupd with a node of each kind, and its nsqadmin.
fn of_both_kinds(ringq: &HttpServer, original: &HttpServer) -> (HttpServer, Admin) {
    let producers = json!({"producers": [
        {"broadcast_address": "ringq", "http_port": 4151, "tcp_port": 4150},
        {"broadcast_address": "original", "http_port": 4151, "tcp_port": 4150},
    ]});
    let lookupd = HttpServer::start(move |_, _| producers.clone().into());
    let admin = Admin::start(&[
        &format!("--lookupd-http-address={}", lookupd.address),
        &format!("--nsqd-url-map=ringq:4151=http://{}", ringq.address),
        &format!("--nsqd-url-map=original:4151=http://{}", original.address),
        "--live-interval=50ms",
    ]);
    (lookupd, admin)
}

/// In a migration node by node, nothing told which nodes were ringq already.
#[test]
fn nodes_have_their_figures_and_tell_which_of_them_are_ringq() {
    static STARTED: AtomicI64 = AtomicI64::new(1_700_000_000);
    let ringq = ringq_stand_in(&STARTED);
    let original = original_nsqd::start(json!([{"topic_name": "t", "depth": 7}]));
    let (_lookupd, admin) = of_both_kinds(&ringq, &original);
    let asked = || {
        let requests = ringq.requests();
        let infos = requests
            .iter()
            .filter(|request| request.target() == "/info");
        infos.count()
    };
    // The builds come with the checkup, and the figures a little later.
    let is_complete = |live: &Value| {
        [&live["nodes"][0], &live["nodes"][1]].iter().all(|node| {
            let has = |key: &str| node.get(key).is_some();
            has("ringq_version") && has("depth")
        })
    };
    let live = admin.wait_for("/api/live/nodes", is_complete);
    let [old, new] = [&live["nodes"][0], &live["nodes"][1]];
    assert_eq!(
        (&old["node"], &new["node"]),
        (&json!("original:4151"), &json!("ringq:4151"))
    );
    assert_eq!(
        (&old["depth"], old.get("ringq_version"), old.get("disk")),
        (&json!(7), Some(&json!("")), None)
    );
    assert_eq!(new["ringq_version"], "0.9.1");
    assert_has(new, &json!({"depth": 2, "channel_depth": 3}));
    assert_has(new, &json!({"clients": 1, "oldest_ms": 5000}));
    assert_eq!(new["disk"]["free_bytes"], 50);
    let sentence = new["sentences"][0].as_str().unwrap_or_default();
    assert!(sentence.starts_with("The disk has 50B free"), "{live}");
    assert_eq!(old["sentences"], json!([]));
    // Only a node that was started anew is asked again.
    let stats = || ringq.requests().len();
    let before = stats();
    admin.wait_for("/api/live/nodes", |_| stats() > before + 20);
    assert_eq!(asked(), 1);
    STARTED.store(1_700_000_100, Ordering::Relaxed);
    admin.wait_for("/api/live/nodes", |_| asked() == 2);
}

/// A node of ringq that did not answer `/info` looked like one of NSQ's.
#[test]
fn a_node_that_does_not_tell_its_build_is_not_taken_for_one_of_nsq() {
    static IS_SILENT: AtomicBool = AtomicBool::new(true);
    let ringq = HttpServer::start(|request, _| match request.path() {
        "/info" if IS_SILENT.load(Ordering::Relaxed) => {
            Answer::new(500, r#"{"message":"INTERNAL_ERROR"}"#)
        }
        "/info" => json!({"version": "1.3.0", "ringq_version": "0.9.1"}).into(),
        _ => json!({"health": "OK", "topics": []}).into(),
    });
    let original = original_nsqd::start(json!([]));
    let (_lookupd, admin) = of_both_kinds(&ringq, &original);
    let version = |live: &Value, index: usize| live["nodes"][index].get("ringq_version").cloned();
    let is_checked = |live: &Value| live["nodes"][1]["health"] == json!("OK");
    let live = admin.wait_for("/api/live/nodes", is_checked);
    assert_eq!(
        (version(&live, 0), version(&live, 1)),
        (Some(json!("")), None),
        "{live}"
    );
    IS_SILENT.store(false, Ordering::Relaxed);
    admin.wait_for("/api/live/nodes", |live| {
        version(live, 1) == Some(json!("0.9.1"))
    });
}

/// NSQ's own nsqd has neither ages nor shards, and a checkup does not ask for its metrics.
#[test]
fn an_nsqd_of_another_kind_has_a_checkup_too() {
    let channel = json!({"channel_name": "c", "depth": 5, "message_count": 5});
    let original = original_nsqd::start(json!([{"topic_name": "t", "channels": [channel]}]));
    // Nobody listens there.
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let admin = Admin::start_direct([original.address, address], &["--live-interval=100ms"]);
    let is_told = |attention: &Value| concern(attention, "channel", "c").is_some();
    let attention = admin.wait_for("/api/live/attention", is_told);
    let silent = concern(&attention, "node", &address.to_string());
    assert!(
        silent.is_some_and(|why| why.contains("does not answer")),
        "{attention}"
    );
    assert_eq!(attention["concerns"][1].get("oldest_ms"), None);
    let node = admin.json("/api/live/nodes/original:4151");
    assert_eq!((&node["shards"], node.get("disk")), (&json!([]), None));
    let requests = original.requests();
    assert!(requests.iter().all(|request| request.path() != "/metrics"));
}
