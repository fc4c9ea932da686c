//! A cluster of three nsqds and two nsqlookupds, on hosts in network namespaces. Nodes are killed, restarted and cut off,
//! an nsqlookupd is killed and another one is replaced. In the meantime producers write to any node that answers, and
//! consumers find the nodes: two of the test's own, and one with go-nsq. Every acknowledged message must arrive, and
//! nothing registered may be lost.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crate::network::{Host, Network};
use crate::ringq_lookupd::Lookupd;
use crate::support::{
    Broker, Dns, Launch, TIMEOUT, go_program, http, wait_until, with_own_network,
};
use crate::traffic::{CHANNELS, Consumer, EndOfTraffic, GoConsumer, TOPIC, Traffic, producers};

/// The name of all nsqlookupds.
const LOOKUP: &str = "lookup.example";

/// The topics of the storm of reconnects. Each node has all of them.
const STORM_TOPICS: usize = 200;
/// The number of times that all nsqlookupds are killed during the storm.
const STORM_KILLS: usize = 5;

/// One nsqd with its host.
struct Node {
    host: Host,
    broker: Broker,
}

impl Node {
    fn start(host: Host) -> Node {
        let launch = Launch::new(
            2,
            &[
                &format!("--lookupd-tcp-address={LOOKUP}:4160"),
                &format!("--broadcast-address={}", host.ip),
                "--msg-timeout=3s",
            ],
        )
        .on(&format!("{}:4150", host.ip), &format!("{}:4151", host.ip));
        let broker = host.run(|| launch.start());
        Node { host, broker }
    }

    /// Makes a topic with its channels, as a client on the node's own host does.
    fn create(&self, topic: &str) {
        self.host.run(|| {
            let post = |target: String| self.broker.admin(&target);
            post(format!("/topic/create?topic={topic}"));
            for channel in CHANNELS {
                post(format!("/channel/create?topic={topic}&channel={channel}"));
            }
        });
    }
}

fn start_lookupd(host: &Host) -> Lookupd {
    let ip = host.ip;
    let broadcast = format!("--broadcast-address={ip}");
    host.run(|| Lookupd::start(&format!("{ip}:4160"), &format!("{ip}:4161"), &[broadcast]))
}

/// Kills nsqlookupds, and then starts them again, without any registration.
fn kill_and_start(lookupds: &mut Vec<Lookupd>, hosts: &[&Host]) {
    lookupds.drain(..).for_each(Lookupd::kill);
    lookupds.extend(hosts.iter().map(|host| start_lookupd(host)));
}

/// Waits until each nsqlookupd names exactly these nodes for the topic, and its channels.
fn wait_for_registration(lookupds: &[Lookupd], topic: &str, nodes: &[SocketAddr]) {
    let wanted: BTreeSet<SocketAddr> = nodes.iter().copied().collect();
    let target = format!("/lookup?topic={topic}");
    for lookupd in lookupds {
        let address = lookupd.server.http_address();
        let mut answer = None;
        let is_registered = || {
            let shown = http(address, "GET", &target, b"");
            let is_registered = shown.status == 200 && {
                let shown = shown.json();
                // A node that was cut off may be there twice until its old connection has ended.
                let found: BTreeSet<SocketAddr> = producers(&shown).into_iter().collect();
                found == wanted && shown["channels"] == serde_json::json!(CHANNELS)
            };
            answer = Some(shown);
            is_registered
        };
        let is_registered = wait_until(TIMEOUT, is_registered);
        assert!(
            is_registered,
            "{topic} at {address}: {answer:?} instead of {wanted:?}"
        );
    }
}

#[test]
fn a_cluster_loses_no_message_and_no_registration() {
    // The hosts have no way to Go's modules.
    let go_consumer = go_program("consumer", "1.21");
    with_own_network(|| {
        let files = tempfile::tempdir().expect("a directory");
        let network = Network::new();
        let dns = Dns::start(Network::OWN_IP, "timeout:1 attempts:1", "", files.path());
        let [first, second, replacement] = [21, 22, 23].map(|number| network.host(number));
        let name = |hosts: [&Host; 2]| {
            let ips = hosts.map(|host| host.ip.to_string());
            dns.set_a(LOOKUP, &ips.each_ref().map(String::as_str));
        };
        name([&first, &second]);
        let mut lookupds = vec![start_lookupd(&first), start_lookupd(&second)];
        let mut nodes = [11, 12, 13].map(|number| Node::start(network.host(number)));
        let addresses = nodes.each_ref().map(|node| node.broker.tcp_addr());
        let traffic = Traffic::new(addresses.to_vec());
        let ask_at = |lookupds: &[Lookupd]| {
            let addresses = lookupds.iter().map(|lookupd| lookupd.server.http_address());
            traffic.set_lookupds(addresses.collect());
        };
        ask_at(&lookupds);
        let consumers: [Consumer; 2] = Default::default();
        thread::scope(|scope| {
            let end = EndOfTraffic(&traffic);
            // Both channels get every message.
            nodes.iter().for_each(|node| node.create(TOPIC));
            let has_go = go_consumer.is_some();
            let go_consumer = go_consumer.map(|command| {
                GoConsumer::start(command, &format!("{LOOKUP}:4161"), &traffic, scope)
            });
            for number in 0..2 {
                let traffic = &traffic;
                scope.spawn(move || traffic.produce(number));
            }
            for consumer in &consumers {
                let traffic = &traffic;
                scope.spawn(move || consumer.run(traffic, scope));
            }
            let are_found = |lookupds: &[Lookupd]| {
                wait_for_registration(lookupds, TOPIC, &addresses);
                for consumer in &consumers {
                    consumer.expect_after_two_polls(&addresses);
                }
            };
            are_found(&lookupds);

            // A node is killed and comes back.
            nodes[1].broker.kill9();
            wait_for_registration(&lookupds, TOPIC, &[addresses[0], addresses[2]]);
            traffic.wait_for_more(100);
            let Node { host, broker } = &mut nodes[1];
            host.run(|| broker.restart_on_same_ports());
            are_found(&lookupds);

            // Another node is cut off. It gets a topic in this time.
            nodes[2].host.cut();
            for consumer in &consumers {
                consumer.wait_for_loss(addresses[2]);
            }
            traffic.wait_for_more(100);
            nodes[2].create("made-apart");
            nodes[2].host.heal();
            wait_for_registration(&lookupds, "made-apart", &addresses[2..]);
            are_found(&lookupds);

            // One nsqlookupd is killed and comes back. Another one has a new address.
            kill_and_start(&mut lookupds, &[&first, &replacement]);
            name([&first, &replacement]);
            ask_at(&lookupds);
            are_found(&lookupds);
            wait_for_registration(&lookupds, "made-apart", &addresses[2..]);

            // All nsqlookupds are killed again and again, while every node gets new topics.
            thread::scope(|storm| {
                for node in &nodes {
                    storm.spawn(|| (0..STORM_TOPICS).for_each(|n| node.create(&storm_topic(n))));
                }
                for _ in 0..STORM_KILLS {
                    thread::sleep(Duration::from_secs(1));
                    kill_and_start(&mut lookupds, &[&first, &replacement]);
                }
            });
            for n in 0..STORM_TOPICS {
                wait_for_registration(&lookupds, &storm_topic(n), &addresses);
            }
            are_found(&lookupds);
            wait_for_registration(&lookupds, "made-apart", &addresses[2..]);

            traffic.is_published.store(true, Ordering::SeqCst);
            traffic.wait_for_all(0);
            if has_go {
                traffic.wait_for_all(1);
            }
            drop((end, go_consumer));
        });
        assert!(traffic.acknowledged() > 1000, "{}", traffic.acknowledged());
    });
}

fn storm_topic(n: usize) -> String {
    format!("storm-{n}")
}
