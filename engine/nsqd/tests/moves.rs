//! Connections that arrive on the wrong shard. A consumer moves to the shard of its topic. A
//! producer moves after a streak: 16 publishes in a row to another shard. The commands that a
//! client sent before the move go with its connection. With five shards, four out of five
//! connections start on the wrong shard.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Broker, Client, FrameType, Message, Random, TIMEOUT, whole_machine};

const SHARDS: [usize; 3] = [1, 2, 5];
const TOPICS: usize = 20;

fn topic(number: usize) -> String {
    format!("moves-{number}")
}

fn with_channels(shards: usize) -> Broker {
    let broker = Broker::start(shards, &[]);
    for number in 0..TOPICS {
        broker.create(&topic(number), "channel");
    }
    broker
}

/// The published bodies of each topic. Every body is unique.
#[derive(Default)]
struct Published {
    bodies: BTreeMap<usize, BTreeSet<String>>,
}

impl Published {
    fn add(&mut self, topic: usize, body: &str) {
        let is_new = self
            .bodies
            .entry(topic)
            .or_default()
            .insert(body.to_owned());
        assert!(is_new, "a test's bodies are unique");
    }

    fn merge(&mut self, other: Published) {
        for (topic, bodies) in other.bodies {
            self.bodies.entry(topic).or_default().extend(bodies);
        }
    }

    /// Consumes everything and checks that each message arrives exactly once.
    fn expect_delivered(&self, broker: &Broker) {
        for (&number, bodies) in &self.bodies {
            let mut missing = bodies.clone();
            let mut consumer = broker.client();
            consumer.send(format!("SUB {} channel\nRDY 500\n", topic(number)).as_bytes());
            consumer.expect_ok();
            while !missing.is_empty() {
                let Some(message) = consumer.message_within(TIMEOUT) else {
                    panic!(
                        "{} lost {} messages: {missing:?}",
                        topic(number),
                        missing.len()
                    );
                };
                let body = message.text();
                assert!(
                    missing.remove(&body),
                    "{body} was not expected, or came twice"
                );
                assert_eq!(message.attempts, 1, "{body}");
                consumer.finish(&message.id);
            }
        }
        for (&number, bodies) in &self.bodies {
            let name = topic(number);
            let count = bodies.len() as u64;
            assert_eq!(broker.topic(&name)["message_count"], count, "{name}");
            let drained = [
                ("message_count", count),
                ("depth", 0),
                ("in_flight_count", 0),
            ];
            broker.wait_for_channel(&name, "channel", &drained);
        }
    }
}

/// An expected answer, in the order of the commands.
#[derive(Debug)]
enum Answer {
    Ok,
    /// The answer to an IDENTIFY. It repeats this message timeout, so it marks a place in the
    /// order.
    Identified(u64),
    Error(String),
}

/// Reads the answers. Finishes and returns the messages in between.
fn expect_answers(client: &mut Client, answers: &[Answer]) -> Vec<Message> {
    let mut messages = Vec::new();
    for (index, expected) in answers.iter().enumerate() {
        let frame = loop {
            let frame = client.frame_after_heartbeats();
            if frame.kind != FrameType::Message {
                break frame;
            }
            let message = Message::parse(&frame.data).expect("whole");
            client.finish(&message.id);
            messages.push(message);
        };
        let text = frame.text();
        let is_right = match expected {
            Answer::Ok => frame.kind == FrameType::Response && text == "OK",
            Answer::Identified(timeout) => {
                frame.kind == FrameType::Response
                    && text.contains(&format!("\"msg_timeout\":{timeout},"))
            }
            Answer::Error(expected) => frame.kind == FrameType::Error && text == *expected,
        };
        assert!(
            is_right,
            "answer {index} of {}: {text:?}, not {expected:?}",
            answers.len()
        );
    }
    messages
}

/// The commands of a producer and their answers.
struct Script {
    bytes: Vec<u8>,
    answers: Vec<Answer>,
    published: Published,
    /// The name of the script, which makes bodies unique.
    name: String,
    count: usize,
}

impl Script {
    fn new(name: &str) -> Script {
        Script {
            bytes: b"  V2".to_vec(),
            answers: Vec::new(),
            published: Published::default(),
            name: name.to_owned(),
            count: 0,
        }
    }

    fn body(&mut self, topic: usize) -> String {
        self.count += 1;
        let body = format!("{} {} to {topic}", self.name, self.count);
        self.published.add(topic, &body);
        body
    }

    /// Adds commands with one answer.
    fn add(&mut self, bytes: &[u8], answer: Answer) {
        self.bytes.extend_from_slice(bytes);
        self.answers.push(answer);
    }

    fn publish_with(&mut self, line: &str, number: usize) {
        let body = self.body(number);
        let command = Client::command_with_body(line, body.as_bytes());
        self.add(&command, Answer::Ok);
    }

    fn publish(&mut self, number: usize) {
        self.publish_with(&format!("PUB {}", topic(number)), number);
    }

    fn publish_deferred(&mut self, number: usize, ms: u64) {
        self.publish_with(&format!("DPUB {} {ms}", topic(number)), number);
    }

    fn publish_many(&mut self, number: usize, count: u64) {
        let bodies: Vec<String> = (0..count).map(|_| self.body(number)).collect();
        self.add(&Client::mpub(&topic(number), &bodies), Answer::Ok);
    }

    /// Adds a command whose answer differs each time. It is valid only before SUB.
    fn mark(&mut self) {
        let timeout = 60_000 + self.answers.len() as u64;
        let json = format!("{{\"feature_negotiation\":true,\"msg_timeout\":{timeout}}}");
        let identify = Client::command_with_body("IDENTIFY", json.as_bytes());
        self.add(&identify, Answer::Identified(timeout));
    }

    /// Adds a command whose error differs each time. It is valid only after SUB.
    fn mark_with_error(&mut self) {
        let id = format!("{:016x}", self.answers.len());
        let error = format!("E_FIN_FAILED FIN {id} failed ID not in flight");
        self.add(format!("FIN {id}\n").as_bytes(), Answer::Error(error));
    }
}

/// The broker decides to move in the middle of the input of one read. The rest of the input moves
/// too.
#[test]
fn a_producer_moves_with_the_commands_it_sent_ahead() {
    let _machine = whole_machine();
    for shards in SHARDS {
        let broker = with_channels(shards);
        let mut published = Published::default();
        let mut clients = Vec::new();
        for number in 0..24 {
            let mut script = Script::new(&format!("producer {number}"));
            script.mark();
            for index in 0..300 {
                script.publish(number % TOPICS);
                if index % 37 == 0 {
                    script.mark();
                }
            }
            for index in 0..100 {
                script.publish((number + index) % TOPICS);
                script.mark();
            }
            let error = "E_INVALID invalid command FOO".to_owned();
            script.add(b"FOO\n", Answer::Error(error));
            let mut client = Client::connect_without_magic(broker.tcp_addr());
            client.send(&script.bytes);
            clients.push((client, script));
        }
        for (mut client, script) in clients {
            expect_answers(&mut client, &script.answers);
            client.expect_close();
            published.merge(script.published);
        }
        published.expect_delivered(&broker);
    }
}

/// The end of the input moves too.
#[test]
fn a_producer_that_hangs_up_its_side_gets_every_answer() {
    for shards in SHARDS {
        let broker = with_channels(shards);
        let mut published = Published::default();
        for number in 0..10 {
            let mut script = Script::new(&format!("producer {number}"));
            for index in 0..200 {
                // Streaks of 25 cause several moves.
                script.publish(index / 25 * 3 % TOPICS);
            }
            script.mark();
            script.publish_many(number, 50);
            let mut client = Client::connect_without_magic(broker.tcp_addr());
            client.send(&script.bytes);
            client.close_write();
            expect_answers(&mut client, &script.answers);
            client.expect_close();
            published.merge(script.published);
        }
        published.expect_delivered(&broker);
    }
}

/// Producers send streaks of different lengths to different topics, and write them in pieces while
/// they read answers. So connections move repeatedly, at any byte of the stream.
#[test]
fn producers_that_move_all_the_time_lose_nothing() {
    let _machine = whole_machine();
    for shards in SHARDS {
        let broker = with_channels(shards);
        let address = broker.tcp_addr();
        let producers: Vec<_> = (0..6)
            .map(|number| {
                thread::spawn(move || {
                    let mut random = Random::new(number * 100 + shards as u64);
                    let mut script = Script::new(&format!("producer {number}"));
                    while script.count < 2500 {
                        let topic = random.below(TOPICS as u64) as usize;
                        for _ in 0..random.between(1, 60) {
                            match random.below(12) {
                                0 => script.publish_many(topic, random.between(1, 5)),
                                1 => script.publish_deferred(topic, random.below(50)),
                                2 => script.mark(),
                                _ => script.publish(topic),
                            }
                        }
                    }
                    let mut client = Client::connect_without_magic(address);
                    let mut writer = client.writer();
                    let bytes = std::mem::take(&mut script.bytes);
                    let sender = thread::spawn(move || {
                        let mut rest = bytes.as_slice();
                        while !rest.is_empty() {
                            let size = random.between(1, 3000).min(rest.len() as u64) as usize;
                            writer.write_all(&rest[..size]).expect("the broker reads");
                            rest = &rest[size..];
                        }
                    });
                    expect_answers(&mut client, &script.answers);
                    sender.join().expect("the sender does not panic");
                    script.published
                })
            })
            .collect();
        let mut published = Published::default();
        for producer in producers {
            match producer.join() {
                Ok(part) => published.merge(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        published.expect_delivered(&broker);
    }
}

/// One write has IDENTIFY, publishes to all topics, SUB, RDY, FINs of unknown ids, and further
/// publishes. SUB moves the connection in the middle of this input.
#[test]
fn a_consumer_moves_with_the_commands_it_sent_ahead() {
    for shards in SHARDS {
        let broker = with_channels(shards);
        let mut published = Published::default();
        for number in 0..30 {
            let own = number % TOPICS;
            let name = format!("consumer {number}");
            let mut script = Script::new(&name);
            script.mark();
            for index in 0..40 {
                // No publish goes to the consumer's own topic, because the consumer might get it.
                script.publish((own + 1 + index % (TOPICS - 1)) % TOPICS);
            }
            script.mark();
            let sub = format!("SUB {} own-{number}\n", topic(own));
            script.add(sub.as_bytes(), Answer::Ok);
            script.bytes.extend_from_slice(b"RDY 10\nNOP\nNOP\n");
            for index in 0..40 {
                script.mark_with_error();
                script.publish((own + 1 + index % (TOPICS - 1)) % TOPICS);
                script.bytes.extend_from_slice(b"NOP\n");
            }
            // The consumer's channel is new and the topic is quiet now, so exactly these messages
            // arrive.
            script.publish_many(own, 25);
            let mut client = Client::connect_without_magic(broker.tcp_addr());
            client.send(&script.bytes);
            let mut messages = expect_answers(&mut client, &script.answers);
            while messages.len() < 25 {
                let message = client.take();
                messages.push(message);
            }
            let bodies: BTreeSet<String> = messages.iter().map(|message| message.text()).collect();
            let to_own = format!("to {own}");
            assert_eq!(bodies.len(), 25, "each once: {bodies:?}");
            assert!(
                bodies
                    .iter()
                    .all(|body| body.starts_with(&name) && body.ends_with(&to_own)),
                "{bodies:?}"
            );
            drop(client);
            broker.admin(&format!(
                "/channel/delete?topic={}&channel=own-{number}",
                topic(own)
            ));
            published.merge(script.published);
        }
        // The channels of all topics still have every message. Channel counts name `channel` only.
        published.expect_delivered(&broker);
    }
}

/// A subscribed client stays with its topic and publishes to all shards, with batches that cross
/// shards. The answers come in order, with errors and messages in between.
#[test]
fn one_connection_publishes_to_all_shards_in_order() {
    let _machine = whole_machine();
    for shards in SHARDS {
        let broker = with_channels(shards);
        let mut random = Random::new(5);
        let mut script = Script::new("all");
        script.add(b"SUB moves-other channel\nRDY 100\n", Answer::Ok);
        for _ in 0..1500 {
            let topic = random.below(TOPICS as u64) as usize;
            match random.below(10) {
                0 | 1 => script.publish_many(topic, random.between(1, 20)),
                2 => script.publish_deferred(topic, random.below(100)),
                3 | 4 => script.mark_with_error(),
                _ => script.publish(topic),
            }
        }
        let mut client = Client::connect_without_magic(broker.tcp_addr());
        let mut writer = client.writer();
        let bytes = std::mem::take(&mut script.bytes);
        let sender = thread::spawn(move || writer.write_all(&bytes).expect("the broker reads"));
        // Messages arrive for this client at the same time.
        let mut other = broker.client();
        let mut expected = BTreeSet::new();
        for number in 0..50 {
            let body = format!("other {number}");
            other.publish("moves-other", body.as_bytes());
            expected.insert(body);
        }
        let mut got = expect_answers(&mut client, &script.answers);
        while got.len() < expected.len() {
            let message = client.take();
            got.push(message);
        }
        let got: BTreeSet<String> = got.iter().map(|message| message.text()).collect();
        assert_eq!(got, expected);
        sender.join().expect("the sender does not panic");
        script.published.expect_delivered(&broker);
    }
}

/// Many consumers of one channel share a backlog. Most of them start on the wrong shard.
#[test]
fn consumers_from_all_shards_share_a_channel() {
    for shards in SHARDS {
        let broker = with_channels(shards);
        let mut producer = broker.client();
        let bodies: Vec<String> = (0..3000).map(|number| format!("shared {number}")).collect();
        for chunk in bodies.chunks(500) {
            producer.publish_many(&topic(0), chunk);
        }
        let address = broker.tcp_addr();
        // Each consumer continues until all messages have arrived at any consumer.
        let left = Arc::new(AtomicUsize::new(bodies.len()));
        let consumers: Vec<_> = (0..20)
            .map(|_| {
                let left = left.clone();
                thread::spawn(move || {
                    let mut client = Client::connect_without_magic(address);
                    let identify = Client::command_with_body("IDENTIFY", b"{\"client_id\":\"x\"}");
                    let sub = format!("SUB {} channel\nRDY 10\nNOP\n", topic(0));
                    client.send(&[b"  V2", identify.as_slice(), sub.as_bytes()].concat());
                    client.expect_ok();
                    client.expect_ok();
                    let mut got = Vec::new();
                    let start = Instant::now();
                    while left.load(Ordering::SeqCst) > 0 && start.elapsed() < TIMEOUT {
                        let Some(message) = client.message_within(Duration::from_millis(100))
                        else {
                            continue;
                        };
                        assert_eq!(message.attempts, 1);
                        client.finish(&message.id);
                        got.push(message.text());
                        left.fetch_sub(1, Ordering::SeqCst);
                    }
                    (client, got)
                })
            })
            .collect();
        let mut all = BTreeSet::new();
        for consumer in consumers {
            let (_client, got) = match consumer.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            for body in got {
                assert!(all.insert(body.clone()), "{body} was delivered twice");
            }
        }
        assert_eq!(
            all.len(),
            bodies.len(),
            "each message went to exactly one consumer"
        );
    }
}

/// HTTP connections that repeatedly publish to one topic move to its shard. The requests that a
/// client sent ahead move, too, complete or incomplete.
#[test]
fn http_connections_move_with_the_requests_sent_ahead() {
    let _machine = whole_machine();
    for shards in SHARDS {
        let broker = with_channels(shards);
        let mut published = Published::default();
        let mut connections = Vec::new();
        for connection in 0..10 {
            let mut requests = String::new();
            for number in 0..TOPICS {
                for count in 0..40 {
                    let body = format!("http-{connection}-{number}-{count}");
                    published.add(number, &body);
                    let (topic, length) = (topic(number), body.len());
                    requests += &format!("POST /pub?topic={topic} HTTP/1.1\r\nHost: x\r\n");
                    requests += &format!("Content-Length: {length}\r\n\r\n{body}");
                }
            }
            connections.push(thread::spawn({
                let address = broker.http_addr();
                move || talk_http(address, requests.as_bytes())
            }));
        }
        for connection in connections {
            let answers = connection.join().expect("the connection lasts");
            assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), TOPICS * 40);
            assert_eq!(answers.matches("\r\n\r\nOK").count(), TOPICS * 40);
        }
        published.expect_delivered(&broker);
    }
}

/// Sends everything in pieces that end anywhere. Returns the answers.
fn talk_http(address: std::net::SocketAddr, requests: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("listening");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let mut reader = stream.try_clone().expect("descriptors are left");
    let answers = thread::spawn(move || {
        let mut answers = String::new();
        reader
            .read_to_string(&mut answers)
            .expect("it ends in order");
        answers
    });
    for piece in requests.chunks(5011) {
        stream.write_all(piece).expect("connected");
    }
    stream.shutdown(Shutdown::Write).expect("connected");
    answers.join().expect("the reader ends")
}
