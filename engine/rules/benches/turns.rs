//! Measures how long the turns of a shard are. A shard serves a connection only after the current
//! turn.
//!
//!     cargo bench -p engine-rules --bench turns [-- LOAD]
//!
//! The benchmark drives a broker without sockets and files like the shell. In each turn, a
//! producer's commands come in, and the FINs for all messages that consumers got in the last turn.
//! Then messages are delivered, and every connection's output is taken. The time of a turn is that
//! of the broker, without system calls and without the keeper, which has its own thread.

#[path = "../tests/path/shell.rs"]
mod shell;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use engine_rules::ClientId;
use hdrhistogram::Histogram;
use shell::{Counter, Part, Shell, messages, options};
use wire::encode;
use wire::name::{ChannelName, TopicName};

const BODY: [u8; 200] = [7; 200];
/// The number of turns before the measurement: the first messages of topics and fresh memory are
/// not measured.
const WARM_UP_TURNS: usize = 2_000;
const TURNS: usize = 50_000;
/// The size of a receive buffer: more than a turn sends to one connection.
const RECEIVED_BYTES: usize = 1 << 20;

struct Load {
    name: &'static str,
    topics: usize,
    /// The number of channels of each topic.
    channels: usize,
    /// The number of consumers of each channel.
    consumers: usize,
    rdy: u32,
    /// The number of publishes in a turn, each to the next topic.
    commands: usize,
    /// The number of messages of a publish: MPUB, or PUB for 1.
    batch: usize,
}

const LOADS: [Load; 4] = [
    Load {
        name: "mpub-200",
        topics: 1,
        channels: 1,
        consumers: 2,
        rdy: 2500,
        commands: 1,
        batch: 200,
    },
    Load {
        name: "pub-rdy-2",
        topics: 1,
        channels: 1,
        consumers: 1,
        rdy: 2,
        commands: 1,
        batch: 1,
    },
    Load {
        name: "16-channels",
        topics: 1,
        channels: 16,
        consumers: 1,
        rdy: 2500,
        commands: 1,
        batch: 200,
    },
    Load {
        name: "1000-topics",
        topics: 1000,
        channels: 1,
        consumers: 1,
        rdy: 10,
        commands: 20,
        batch: 1,
    },
];

/// The time that the broker took since the start of the turn.
#[derive(Default)]
struct Stopwatch {
    spent: Duration,
}

impl Counter for Stopwatch {
    fn count<R>(&mut self, _part: Part, act: impl FnOnce() -> R) -> R {
        let began = Instant::now();
        let result = act();
        self.spent += began.elapsed();
        result
    }
}

/// A broker under a load.
struct Run {
    shell: Shell<Stopwatch>,
    producer: ClientId,
    /// The input of the next turns, in a circle. It goes to each topic in turn.
    publishes: Vec<Vec<u8>>,
    /// The input that is ready: the FINs of delivered messages.
    answers: BTreeMap<ClientId, Vec<u8>>,
    to_flush: Vec<ClientId>,
    received: Vec<u8>,
    finished: u64,
}

impl Run {
    fn new(load: &Load) -> Run {
        let mut shell = Shell::new(Stopwatch::default(), options());
        let topics: Vec<String> = (0..load.topics).map(|n| format!("topic-{n}")).collect();
        let topic = |n: usize| {
            let name = topics[n % topics.len()].as_bytes();
            TopicName::new(name).expect("a valid name")
        };
        let producer = shell.connect();
        shell.receive(Part::Publish, producer, b"  V2");
        for n in 0..load.topics {
            for channel in 0..load.channels {
                let channel = format!("channel-{channel}");
                let channel = ChannelName::new(channel.as_bytes()).expect("a valid name");
                for _ in 0..load.consumers {
                    let consumer = shell.connect();
                    let mut input = b"  V2".to_vec();
                    encode::sub(&mut input, topic(n), channel);
                    encode::rdy(&mut input, load.rdy);
                    shell.receive(Part::Deliver, consumer, &input);
                    shell.end_turn();
                }
            }
        }
        let publishes = (0..load.topics.div_ceil(load.commands)).map(|turn| {
            let mut input = Vec::new();
            for command in 0..load.commands {
                let topic = topic(turn * load.commands + command);
                if load.batch == 1 {
                    encode::publish(&mut input, topic, &BODY);
                } else {
                    encode::mpub(&mut input, topic, std::iter::repeat_n(&BODY, load.batch));
                }
            }
            input
        });
        Run {
            producer,
            publishes: publishes.collect(),
            shell,
            answers: BTreeMap::new(),
            to_flush: Vec::new(),
            received: Vec::with_capacity(RECEIVED_BYTES),
            finished: 0,
        }
    }

    /// Makes a turn. Returns the time that the broker needed.
    fn turn(&mut self, number: usize) -> Duration {
        self.shell.mono += Duration::from_micros(100);
        self.shell.counter.spent = Duration::ZERO;
        let publishes = &self.publishes[number % self.publishes.len()];
        self.shell.receive(Part::Publish, self.producer, publishes);
        for (consumer, answers) in &mut self.answers {
            self.shell.receive(Part::Deliver, *consumer, answers);
            answers.clear();
        }
        self.shell.end_turn();
        self.shell.take_clients_to_flush(&mut self.to_flush);
        for client in std::mem::take(&mut self.to_flush) {
            self.received.clear();
            self.shell.take_output(client, &mut self.received);
            self.answer(client);
        }
        self.shell.counter.spent
    }

    fn answer(&mut self, client: ClientId) {
        for message in messages(&self.received) {
            encode::fin(self.answers.entry(client).or_default(), &message.id);
            self.finished += 1;
        }
    }
}

fn main() {
    // cargo itself gives `--bench`.
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let wanted: Vec<&String> = wanted
        .iter()
        .filter(|word| !word.starts_with("--"))
        .collect();
    println!("us per turn      p50      p90      p99    p99.9      max   messages per turn");
    for load in &LOADS {
        if !wanted.is_empty() && !wanted.iter().any(|word| *word == load.name) {
            continue;
        }
        let mut run = Run::new(load);
        for number in 0..WARM_UP_TURNS {
            run.turn(number);
        }
        run.finished = 0;
        let mut turns = Histogram::<u64>::new(3).expect("3 digits are allowed");
        for number in 0..TURNS {
            turns += run.turn(number).as_nanos() as u64;
        }
        print!("{:12}", load.name);
        for quantile in [0.5, 0.9, 0.99, 0.999, 1.0] {
            print!(" {:8.1}", turns.value_at_quantile(quantile) as f64 / 1e3);
        }
        let published = load.commands * load.batch;
        let delivered = run.finished as f64 / TURNS as f64;
        println!("   {published} published, {delivered:.0} delivered");
    }
}
