//! nsqadmin and nsq_stat of NSQ itself, with the addresses of nsqds instead of nsqlookupds.

use serde::Deserialize;

use super::{GO, Latency, Poller, Scene, now_seconds};
use crate::support::Broker;

const ACCEPT: &str = "Accept: application/vnd.nsq; version=1.0";

#[derive(Deserialize)]
struct Info {
    version: String,
    broadcast_address: String,
    hostname: String,
    http_port: u16,
    tcp_port: u16,
    topology_zone: String,
    topology_region: String,
}

#[derive(Deserialize)]
struct Stats {
    topics: Option<Vec<Topic>>,
}

#[derive(Deserialize)]
struct Topic {
    topic_name: String,
    depth: i64,
    backend_depth: i64,
    message_count: i64,
    paused: bool,
    channels: Vec<Channel>,
    e2e_processing_latency: Latency,
}

#[derive(Deserialize)]
struct Channel {
    channel_name: String,
    depth: i64,
    backend_depth: i64,
    in_flight_count: i64,
    deferred_count: i64,
    requeue_count: i64,
    timeout_count: i64,
    message_count: i64,
    #[serde(default)]
    global_msg_count: i64,
    client_count: i64,
    clients: Option<Vec<Consumer>>,
    paused: bool,
    // nsqadmin 1.3.0 ends itself if this object is missing.
    e2e_processing_latency: Latency,
}

#[derive(Deserialize)]
struct Consumer {
    remote_address: String,
    version: String,
    client_id: String,
    hostname: String,
    user_agent: String,
    connect_ts: i64,
    in_flight_count: i64,
    ready_count: i64,
    finish_count: i64,
    requeue_count: i64,
    message_count: i64,
    sample_rate: i32,
    deflate: bool,
    snappy: bool,
    tls: bool,
    tls_cipher_suite: String,
    tls_version: String,
    tls_negotiated_protocol: String,
    tls_negotiated_protocol_is_mutual: bool,
    topology_zone: String,
    topology_region: String,
}

/// Asks like nsqadmin, which sends its own `Accept`.
fn admin(broker: &Broker) -> Poller {
    Poller::connect(broker, &[GO[0], ACCEPT, GO[1]])
}

fn topics(admin: &mut Poller, query: &str) -> Vec<Topic> {
    let stats: Stats = admin.decode(&format!("/stats?format=json{query}"));
    stats.topics.unwrap_or_default()
}

fn scene() -> Scene {
    Scene::start(&[
        "--broadcast-address=127.0.0.1",
        "--topology-zone=b",
        "--topology-region=us-east",
        "--e2e-processing-latency-percentile=1.0,0.99,0.95",
    ])
}

#[test]
fn nsqadmin_finds_nodes_topics_and_clients() {
    let scene = scene();
    let mut admin = admin(&scene.broker);
    let info: Info = admin.decode("/info");
    assert_eq!(info.version, "1.3.0");
    assert_eq!(info.broadcast_address, "127.0.0.1");
    assert_eq!(info.http_port, scene.broker.http_addr().port());
    assert_eq!(info.tcp_port, scene.broker.tcp_addr().port());
    assert_eq!([info.topology_zone, info.topology_region], ["b", "us-east"]);
    assert!(!info.hostname.is_empty());

    let names: Vec<_> = topics(&mut admin, "&include_clients=false")
        .into_iter()
        .map(|topic| topic.topic_name)
        .collect();
    assert_eq!(names, ["live#ephemeral", "orders", "returns"]);
    assert!(topics(&mut admin, "&topic=unknown&include_clients=false").is_empty());

    let found = topics(&mut admin, "&topic=orders&channel=billing");
    assert_eq!((found.len(), found[0].channels.len()), (1, 1));
    let channel = &found[0].channels[0];
    assert_eq!(channel.global_msg_count, 5, "deliveries");
    let clients = channel.clients.as_ref().expect("they were asked for");
    assert_eq!(clients.len(), 1);
    let client = &clients[0];
    assert_eq!(
        client.remote_address,
        scene.consumer.local_addr().to_string()
    );
    assert_eq!(client.version, "V2");
    assert_eq!(client.client_id, "worker-7");
    assert_eq!(client.hostname, "worker-7.local");
    assert_eq!(client.user_agent, "billing/2.1");
    assert!((0..=60).contains(&(now_seconds() - client.connect_ts)));
    assert_eq!([client.in_flight_count, client.ready_count], [3, 3]);
    assert_eq!([client.finish_count, client.requeue_count], [1, 1]);
    assert_eq!((client.message_count, client.sample_rate), (5, 0));
    assert_eq!([client.deflate, client.snappy, client.tls], [false; 3]);
    assert!(!client.tls_negotiated_protocol_is_mutual);
    let unset = [
        &client.tls_cipher_suite,
        &client.tls_version,
        &client.tls_negotiated_protocol,
        &client.topology_zone,
        &client.topology_region,
    ];
    assert!(unset.iter().all(|text| text.is_empty()), "{unset:?}");
}

#[test]
fn nsqadmin_shows_figures_without_asking_for_clients() {
    let scene = scene();
    let mut admin = admin(&scene.broker);
    let found = topics(&mut admin, "&topic=orders&include_clients=false");
    let [orders] = &found[..] else {
        panic!("{} topics", found.len());
    };
    assert_eq!([orders.depth, orders.backend_depth], [0, 0]);
    assert_eq!((orders.message_count, orders.paused), (10, false));
    assert_eq!(orders.e2e_processing_latency.count, 1);
    let names: Vec<_> = orders
        .channels
        .iter()
        .map(|channel| &channel.channel_name)
        .collect();
    assert_eq!(names, ["audit", "billing"]);
    let [audit, billing] = &orders.channels[..] else {
        panic!("two names")
    };
    assert_eq!((audit.client_count, audit.paused), (0, true));
    assert_eq!((billing.client_count, billing.paused), (1, false));
    assert!(audit.clients.is_none() && billing.clients.is_none());
    let latency = &billing.e2e_processing_latency;
    assert_eq!(latency.count, 1);
    assert_eq!(latency.all("quantile"), [1.0, 0.99, 0.95]);
    assert_eq!(audit.e2e_processing_latency.count, 0);
}

#[test]
fn nsq_stat_sums_the_figures_of_a_channel() {
    let scene = scene();
    let mut stat = admin(&scene.broker);
    let query = "&topic=orders&channel=billing&include_clients=false";
    let found = topics(&mut stat, query);
    let channel = &found[0].channels[0];
    assert_eq!([channel.depth, channel.backend_depth], [4, 0]);
    assert_eq!([channel.in_flight_count, channel.deferred_count], [3, 2]);
    assert_eq!([channel.requeue_count, channel.timeout_count], [1, 0]);
    assert_eq!([channel.message_count, channel.client_count], [10, 1]);
}
