//! Measures how many publishes per second a core checks for duplicates, without sockets and files.
//!
//!     cargo run --profile dist -p engine-rules --example checked_publishes [-- MILLIONS]
//!
//! Producers publish messages of 200 bytes, 100 in an MPUB or as single PUBs. A batch of 100 comes in one read, and every
//! tenth batch is a copy of the batch before. If there are several producers, the next one sends the next batch. A
//! consumer finishes each message. The time is the processor time of the broker for the producers' commands.

#[path = "../tests/path/shell.rs"]
mod shell;

use std::time::Duration;

use engine_rules::{
    BrokerOptions, ClientId, ContentKey, ContentRule, DedupRule, DedupRules, JsonPointer,
    KeyWindow, PublisherRule, has_publishers,
};
use rustix::time::{ClockId, clock_gettime};
use shell::{Counter, Part, Shell, messages, options};
use wire::encode;
use wire::name::{ChannelName, TopicName};

const BATCH: u64 = 100;
const BODY_BYTES: usize = 200;
/// More than a turn sends to a connection.
const RECEIVED_BYTES: usize = 1 << 20;

/// Adds up the time of the broker for the producer's commands.
#[derive(Default)]
struct Times {
    publishing: Duration,
}

impl Counter for Times {
    fn count<R>(&mut self, part: Part, act: impl FnOnce() -> R) -> R {
        let began = cpu_time();
        let result = act();
        if part == Part::Publish {
            self.publishing += cpu_time() - began;
        }
        result
    }
}

/// The processor time of this thread: other programs on the machine do not count.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn with_key(key: ContentKey) -> BrokerOptions {
    let window = KeyWindow::Count(1_000_000);
    let rule = ContentRule::new(key, window, None).expect("it fits");
    let mut rules = DedupRules::default();
    rules.add("*", DedupRule::Content(rule));
    let mut options = options();
    options.topic.dedup = rules.into();
    options
}

fn with_publishers() -> BrokerOptions {
    let rule = PublisherRule {
        window: PublisherRule::WINDOW_DEFAULT,
        memory_bytes: PublisherRule::MEMORY_DEFAULT,
    };
    let mut rules = DedupRules::default();
    rules.add("*", DedupRule::Publisher(rule));
    let mut options = options();
    options.server.takes_numbers = has_publishers(&rules);
    options.topic.dedup = rules.into();
    options
}

/// The clients that publish, and their commands.
#[derive(Clone, Copy)]
struct Load {
    producers: u64,
    is_numbered: bool,
    is_mpub: bool,
}

impl Load {
    const MPUB: Load = Load {
        producers: 1,
        is_numbered: false,
        is_mpub: true,
    };
    const PUB: Load = Load {
        is_mpub: false,
        ..Load::MPUB
    };

    fn numbered(self, producers: u64) -> Load {
        Load {
            producers,
            is_numbered: true,
            ..self
        }
    }

    /// Encodes a batch. `first` is the number of its first message, if the messages are numbered.
    fn encode(self, into: &mut Vec<u8>, bodies: &[Vec<u8>], first: u64) {
        let topic = topic();
        match (self.is_mpub, self.is_numbered) {
            (true, true) => encode::mpub_numbered(into, topic, first, bodies),
            (true, false) => encode::mpub(into, topic, bodies),
            (false, true) => {
                for (number, body) in (first..).zip(bodies) {
                    encode::publish_numbered(into, topic, number, body);
                }
            }
            (false, false) => {
                for body in bodies {
                    encode::publish(into, topic, body);
                }
            }
        }
    }
}

fn topic() -> TopicName<'static> {
    TopicName::new(b"orders").expect("a name")
}

fn body(number: u64) -> Vec<u8> {
    let mut body = format!("{{\"type\":\"order\",\"id\":{number},\"text\":\"").into_bytes();
    body.resize(BODY_BYTES - 2, b'.');
    body.extend_from_slice(b"\"}");
    body
}

/// Connects the producers and a consumer.
fn connect(shell: &mut Shell<Times>, load: Load) -> (Vec<ClientId>, ClientId) {
    let mut producers = Vec::new();
    for index in 0..load.producers {
        let mut input = b"  V2".to_vec();
        if load.is_numbered {
            let id = index + 1;
            let json = format!("{{\"feature_negotiation\":true,\"publisher_id\":\"{id:x}\"}}");
            encode::identify(&mut input, json.as_bytes());
        }
        let producer = shell.connect();
        shell.receive(Part::Deliver, producer, &input);
        producers.push(producer);
    }
    let consumer = shell.connect();
    let mut input = b"  V2".to_vec();
    let channel = ChannelName::new(b"bill").expect("a name");
    encode::sub(&mut input, topic(), channel);
    encode::rdy(&mut input, 1000);
    shell.receive(Part::Deliver, consumer, &input);
    (producers, consumer)
}

/// Returns the publishes per second, and the share of the messages that were stored.
fn measure(options: BrokerOptions, load: Load, count: u64) -> (f64, f64) {
    let mut shell = Shell::new(Times::default(), options);
    let (producers, consumer) = connect(&mut shell, load);
    let (mut publish, mut to_flush) = (Vec::new(), Vec::new());
    let mut received = Vec::with_capacity(RECEIVED_BYTES);
    let mut next_numbers = vec![0; producers.len()];
    let (mut stored, mut sender) = (0, 0);
    for batch in 0..count / BATCH {
        shell.mono += Duration::from_micros(100);
        if batch % 10 != 9 {
            publish.clear();
            sender = (sender + 1) % producers.len();
            let bodies: Vec<_> = (batch * BATCH..(batch + 1) * BATCH).map(body).collect();
            load.encode(&mut publish, &bodies, next_numbers[sender]);
            next_numbers[sender] += BATCH;
        }
        shell.receive(Part::Publish, producers[sender], &publish);
        shell.end_turn();
        shell.take_clients_to_flush(&mut to_flush);
        received.clear();
        shell.take_output(producers[sender], &mut received);
        received.clear();
        shell.take_output(consumer, &mut received);
        let mut answers = Vec::new();
        for message in messages(&received) {
            encode::fin(&mut answers, &message.id);
            stored += 1;
        }
        shell.receive(Part::Deliver, consumer, &answers);
        shell.end_turn();
        shell.take_clients_to_flush(&mut to_flush);
    }
    let seconds = shell.counter.publishing.as_secs_f64();
    (count as f64 / seconds, stored as f64 / count as f64)
}

fn main() {
    let millions = std::env::args().nth(1).map_or(Ok(3), |text| text.parse());
    let Ok(millions) = millions else {
        eprintln!("usage: checked_publishes [MILLIONS]");
        std::process::exit(2);
    };
    let count: u64 = millions * 1_000_000;
    let json = ContentKey::Json(JsonPointer::parse("/id").expect("a pointer"));
    let (mpub, single) = (Load::MPUB, Load::PUB);
    for (name, options, load) in [
        ("no rule", options(), mpub),
        ("no rule, PUB", options(), single),
        ("body", with_key(ContentKey::Body), mpub),
        ("json:/id", with_key(json), mpub),
        ("1 publisher", with_publishers(), mpub.numbered(1)),
        ("1 publisher, PUB", with_publishers(), single.numbered(1)),
        ("1,000 publishers", with_publishers(), mpub.numbered(1000)),
        (
            "1,000 publishers, PUB",
            with_publishers(),
            single.numbered(1000),
        ),
    ] {
        let (rate, stored) = measure(options, load, count);
        let nanos = 1e9 / rate;
        println!(
            "{name:21} {rate:10.0} publishes/s, {nanos:5.0} ns each, {stored:.3} of them stored"
        );
    }
}
