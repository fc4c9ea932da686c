//! Measures how many publishes per second a core checks for duplicates, without sockets and files.
//!
//!     cargo run --release -p engine-core --example checked_publishes [-- MILLIONS]
//!
//! The producer publishes messages of 200 bytes, 100 in an MPUB, and every tenth batch is a copy of the batch before. A
//! consumer finishes each message. The time is the processor time of the broker for the producer's commands.

#[path = "../tests/path/shell.rs"]
mod shell;

use std::time::Duration;

use engine_core::{
    BrokerOptions, ContentKey, ContentRule, DedupRules, JsonPointer, KeyWindow, MeterRules,
    SampleRate,
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
    rules.add_content("*", rule);
    let mut options = options();
    options.topic.dedup = rules.into();
    options
}

fn with_meter(rate: SampleRate) -> BrokerOptions {
    let mut rules = MeterRules::default();
    rules.add("*", rate);
    let mut options = options();
    options.topic.meters = rules.into();
    options
}

fn body(number: u64) -> Vec<u8> {
    let mut body = format!("{{\"type\":\"order\",\"id\":{number},\"text\":\"").into_bytes();
    body.resize(BODY_BYTES - 2, b'.');
    body.extend_from_slice(b"\"}");
    body
}

/// Returns the publishes per second, and the share of the messages that were stored.
fn measure(options: BrokerOptions, count: u64) -> (f64, f64) {
    let mut shell = Shell::new(Times::default(), options);
    let (producer, consumer) = (shell.connect(), shell.connect());
    let topic = TopicName::new(b"orders").expect("a name");
    shell.receive(Part::Deliver, producer, b"  V2");
    let mut input = b"  V2".to_vec();
    encode::sub(
        &mut input,
        topic,
        ChannelName::new(b"bill").expect("a name"),
    );
    encode::rdy(&mut input, 1000);
    shell.receive(Part::Deliver, consumer, &input);
    let (mut publish, mut to_flush) = (Vec::new(), Vec::new());
    let mut received = Vec::with_capacity(RECEIVED_BYTES);
    let mut stored = 0;
    for batch in 0..count / BATCH {
        shell.mono += Duration::from_micros(100);
        if batch % 10 != 9 {
            publish.clear();
            let bodies: Vec<_> = (batch * BATCH..(batch + 1) * BATCH).map(body).collect();
            encode::mpub(&mut publish, topic, &bodies);
        }
        shell.receive(Part::Publish, producer, &publish);
        shell.end_turn();
        shell.take_clients_to_flush(&mut to_flush);
        received.clear();
        shell.take_output(producer, &mut received);
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
    let pointer = JsonPointer::parse("/id").expect("a pointer");
    for (name, options) in [
        ("no rule", options()),
        ("body", with_key(ContentKey::Body)),
        ("json:/id", with_key(ContentKey::Json(pointer))),
        ("meter, 0.01", with_meter(SampleRate::DEFAULT)),
    ] {
        let (rate, stored) = measure(options, count);
        let nanos = 1e9 / rate;
        println!(
            "{name:12} {rate:10.0} publishes/s, {nanos:5.0} ns each, {stored:.3} of them stored"
        );
    }
}
