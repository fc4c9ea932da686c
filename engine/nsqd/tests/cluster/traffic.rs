//! Producers that write to any node that answers, and consumers that find the nodes by nsqlookupds.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Scope};
use std::time::Duration;

use parking_lot::Mutex;

use crate::support::{Client, Frame, FrameType, Message, TIMEOUT, try_http, wait_until};

/// The topic of all messages.
pub(crate) const TOPIC: &str = "orders";
/// The channels of every topic: that of the test's own consumers, and that of the consumer with go-nsq.
pub(crate) const CHANNELS: [&str; 2] = ["billing", "shipping"];

/// The longest wait for a node. A node that takes longer is tried again later.
const NODE_TIMEOUT: Duration = Duration::from_secs(6);
/// The messages of a producer for which a node that failed is left out.
const MESSAGES_WITHOUT_NODE: usize = 500;
/// The time between two polls of a consumer.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The time between two messages of a producer.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(2);

/// The things that producers, consumers and the test share.
#[derive(Default)]
pub(crate) struct Traffic {
    /// The addresses of the nodes.
    nodes: Vec<SocketAddr>,
    /// The HTTP addresses of the nsqlookupds that consumers ask.
    lookupds: Mutex<Vec<SocketAddr>>,
    /// True when producers are to end.
    pub(crate) is_published: AtomicBool,
    /// True when consumers are to end.
    pub(crate) is_over: AtomicBool,
    acknowledged: Mutex<BTreeSet<Vec<u8>>>,
    /// The messages that have arrived, for each of the channels.
    received: [Mutex<BTreeSet<Vec<u8>>>; 2],
}

/// Ends the traffic when it is dropped, also by a panic.
pub(crate) struct EndOfTraffic<'a>(pub(crate) &'a Traffic);

impl Drop for EndOfTraffic<'_> {
    fn drop(&mut self) {
        self.0.is_published.store(true, Ordering::SeqCst);
        self.0.is_over.store(true, Ordering::SeqCst);
    }
}

impl Traffic {
    pub(crate) fn new(nodes: Vec<SocketAddr>) -> Traffic {
        Traffic {
            nodes,
            ..Traffic::default()
        }
    }

    /// Publishes until [`Traffic::is_published`]. The number tells the producers apart.
    pub(crate) fn produce(&self, number: usize) {
        let mut clients: BTreeMap<SocketAddr, Client> = BTreeMap::new();
        let mut left_out_until: BTreeMap<SocketAddr, usize> = BTreeMap::new();
        for n in 0.. {
            if self.is_published.load(Ordering::SeqCst) {
                return;
            }
            let node = self.nodes[(number + n) % self.nodes.len()];
            if left_out_until.get(&node).is_some_and(|until| n < *until) {
                continue;
            }
            let body = format!("{number}-{n}").into_bytes();
            let client = match clients.remove(&node) {
                Some(client) => Ok(client),
                None => Client::try_connect_within(node, NODE_TIMEOUT),
            };
            match client.and_then(|client| publish(client, &body)) {
                Ok(client) => {
                    clients.insert(node, client);
                    self.acknowledged.lock().insert(body);
                }
                // The message may have arrived nevertheless. The other nodes take the next messages.
                Err(_) => {
                    left_out_until.insert(node, n + MESSAGES_WITHOUT_NODE);
                }
            }
            thread::sleep(PUBLISH_INTERVAL);
        }
    }

    /// Replaces the nsqlookupds that consumers ask.
    pub(crate) fn set_lookupds(&self, addresses: Vec<SocketAddr>) {
        *self.lookupds.lock() = addresses;
    }

    /// Waits until this many further messages are acknowledged.
    pub(crate) fn wait_for_more(&self, messages: usize) {
        let enough = self.acknowledged() + messages;
        let are_enough = || self.acknowledged() >= enough;
        assert!(wait_until(TIMEOUT, are_enough), "no node takes messages");
    }

    /// Returns the number of acknowledged messages.
    pub(crate) fn acknowledged(&self) -> usize {
        self.acknowledged.lock().len()
    }

    /// Waits until every acknowledged message has been received from a channel.
    pub(crate) fn wait_for_all(&self, channel: usize) {
        let missing = || {
            let (acknowledged, received) =
                (self.acknowledged.lock(), self.received[channel].lock());
            let missing = acknowledged.difference(&received);
            let texts = missing.map(|body| String::from_utf8_lossy(body).into_owned());
            texts.collect::<Vec<_>>()
        };
        assert!(
            wait_until(TIMEOUT, || missing().is_empty()),
            "{}: of {} acknowledged messages these are missing: {:?}",
            CHANNELS[channel],
            self.acknowledged(),
            missing()
        );
    }
}

fn publish(mut client: Client, body: &[u8]) -> io::Result<Client> {
    client.try_send(&Client::command_with_body(&format!("PUB {TOPIC}"), body))?;
    loop {
        let frame = next(&mut client)?;
        if frame.is_heartbeat() {
            client.try_send(b"NOP\n")?;
        } else if frame.data == b"OK" {
            return Ok(client);
        } else {
            return Err(io::Error::other(frame.text()));
        }
    }
}

fn next(client: &mut Client) -> io::Result<Frame> {
    let frame = client.try_frame()?;
    frame.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// A consumer, which asks all nsqlookupds and connects to each node that one of them names.
#[derive(Default)]
pub(crate) struct Consumer {
    polls: AtomicUsize,
    /// The nodes that the nsqlookupds named in the last poll.
    found: Mutex<BTreeSet<SocketAddr>>,
    connected: Mutex<BTreeSet<SocketAddr>>,
}

impl Consumer {
    /// Consumes until [`Traffic::is_over`].
    pub(crate) fn run<'scope>(
        &'scope self,
        traffic: &'scope Traffic,
        scope: &'scope Scope<'scope, '_>,
    ) {
        while !traffic.is_over.load(Ordering::SeqCst) {
            let lookupds = traffic.lookupds.lock().clone();
            let nodes: BTreeSet<SocketAddr> = lookupds.into_iter().flat_map(ask).collect();
            *self.found.lock() = nodes.clone();
            self.polls.fetch_add(1, Ordering::SeqCst);
            for node in nodes {
                if self.connected.lock().contains(&node) {
                    continue;
                }
                // A node that cannot be reached is tried again at the next poll.
                if let Ok(client) = subscribe(node) {
                    self.connected.lock().insert(node);
                    scope.spawn(move || {
                        // The connection ends with an error, or with the traffic.
                        let _ = receive(client, traffic);
                        self.connected.lock().remove(&node);
                    });
                }
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until the consumer has noticed that a node is gone.
    pub(crate) fn wait_for_loss(&self, node: SocketAddr) {
        let is_lost = || !self.connected.lock().contains(&node);
        assert!(wait_until(TIMEOUT, is_lost), "{node} does not answer");
    }

    /// Waits for two polls that begin from now on, and expects that the consumer has then found these nodes, which the
    /// nsqlookupds name already. Waits until the consumer is connected to them.
    pub(crate) fn expect_after_two_polls(&self, nodes: &[SocketAddr]) {
        let polls = || self.polls.load(Ordering::SeqCst);
        // A poll that is under way may have asked earlier.
        let enough = polls() + 3;
        assert!(wait_until(TIMEOUT, || polls() >= enough), "a poll hangs");
        let found = self.found.lock().clone();
        for node in nodes {
            assert!(found.contains(node), "{node} is not in {found:?}");
            let is_connected = || self.connected.lock().contains(node);
            assert!(
                wait_until(TIMEOUT, is_connected),
                "{node} takes no consumer"
            );
        }
    }
}

/// Asks an nsqlookupd for the nodes of the topic. One that cannot be reached names none.
fn ask(lookupd: SocketAddr) -> Vec<SocketAddr> {
    let target = format!("/lookup?topic={TOPIC}");
    let Ok(answer) = try_http(lookupd, "GET", &target, &[], b"") else {
        return Vec::new();
    };
    match answer.status {
        200 => producers(&answer.json()),
        _ => Vec::new(),
    }
}

/// Returns the addresses of the producers in an answer of `/lookup`.
pub(crate) fn producers(answer: &serde_json::Value) -> Vec<SocketAddr> {
    let producers = answer["producers"].as_array().expect("a list").iter();
    let address = |producer: &serde_json::Value| {
        let host = producer["broadcast_address"].as_str().expect("a text");
        let text = format!("{host}:{}", producer["tcp_port"]);
        text.parse().expect("the nodes announce IP addresses")
    };
    producers.map(address).collect()
}

fn subscribe(node: SocketAddr) -> io::Result<Client> {
    let mut client = Client::try_connect_within(node, NODE_TIMEOUT)?;
    let identify = Client::command_with_body("IDENTIFY", br#"{"heartbeat_interval":2000}"#);
    client.try_send(&identify)?;
    client.try_send(format!("SUB {TOPIC} {}\nRDY 100\n", CHANNELS[0]).as_bytes())?;
    for _ in ["IDENTIFY", "SUB"] {
        let frame = next(&mut client)?;
        if frame.data != b"OK" {
            return Err(io::Error::other(frame.text()));
        }
    }
    Ok(client)
}

fn receive(mut client: Client, traffic: &Traffic) -> io::Result<()> {
    while !traffic.is_over.load(Ordering::SeqCst) {
        let frame = next(&mut client)?;
        if frame.is_heartbeat() {
            client.try_send(b"NOP\n")?;
        } else if frame.kind == FrameType::Message {
            let message = Message::parse(&frame.data).expect("a whole header");
            let finish = [b"FIN ", &message.id[..], b"\n"].concat();
            traffic.received[0].lock().insert(message.body);
            client.try_send(&finish)?;
        } else {
            // A FIN that came too late. The message comes again.
            assert!(frame.text().starts_with("E_FIN_FAILED"), "{}", frame.text());
        }
    }
    Ok(())
}

/// A consumer with go-nsq, which ends when it is dropped.
pub(crate) struct GoConsumer(Child);

impl GoConsumer {
    /// Starts the program with the name of all nsqlookupds.
    pub(crate) fn start<'scope>(
        mut command: Command,
        lookupd: &str,
        traffic: &'scope Traffic,
        scope: &'scope Scope<'scope, '_>,
    ) -> GoConsumer {
        let mut child = command
            .args(["--lookupd", lookupd, "--topic", TOPIC])
            .args(["--channel", CHANNELS[1]])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it was built");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        scope.spawn(move || {
            for body in output.split(b'\n').map_while(Result::ok) {
                traffic.received[1].lock().insert(body);
            }
        });
        GoConsumer(child)
    }
}

impl Drop for GoConsumer {
    fn drop(&mut self) {
        // Both calls fail only if the process has been waited for already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
