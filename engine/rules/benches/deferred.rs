//! Measures the turns of a shard with a channel that owes millions of deferred messages, or has
//! millions of messages in flight.
//!
//!     cargo bench -p engine-rules --bench deferred [-- COUNT]
//!
//! COUNT messages (ten million by default) are published with different deferrals. A checkpoint
//! records them, and a restart finds them again. All become due at once, are recorded again, and
//! are emptied. Then COUNT messages are published and delivered to one consumer, which finishes
//! none. A checkpoint records them, and they time out all at once. A turn is everything that the
//! broker does between two looks at its connections. The time of a turn is the CPU time of this
//! thread. So the time of other programs does not count, and the keeper's does not count either,
//! because the keeper has its own thread in the real broker.
//!
//! The benchmark needs 400 bytes per message in the directory for temporary files.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use diskq::{ChannelFacts, Keeper, LogOptions, OsFiles, Recovered, Request, TopicFacts, open_log};
use engine_rules::stats::StatsFilter;
use engine_rules::{Act, Broker, BrokerOptions, ClientId, Now, Output, Random, Sent, TaskId};
use rustix::time::{ClockId, clock_gettime};
use wire::encode;
use wire::limits::Limits;
use wire::name::{ChannelName, TopicName};

const TOPIC: &str = "orders";
const CHANNEL: &str = "archive";
const MESSAGES: u64 = 10_000_000;
/// The number of DPUBs in a turn.
const BATCH: u64 = 100;
/// The time between two turns.
const STEP: Duration = Duration::from_micros(100);
/// A time that is longer than `--sync-timeout`, and than a checkpoint takes, so that the next checkpoint becomes due. It
/// is shorter than the timeout of messages.
const PAUSE: Duration = Duration::from_secs(10);
const WALL_NS: u64 = 1_800_000_000_000_000_000;

fn options() -> BrokerOptions {
    BrokerOptions {
        limits: Limits {
            rdy_count_max: i64::MAX,
            ..Limits::default()
        },
        resident_bytes: 64 << 20,
        ..BrokerOptions::default()
    }
}

fn topic() -> TopicName<'static> {
    TopicName::new(TOPIC.as_bytes()).expect("a valid name")
}

/// Returns the CPU time of this thread.
fn spent() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The turns of one part of the run.
#[derive(Default)]
struct Turns {
    count: u64,
    sum: Duration,
    longest: Duration,
    beyond_1_ms: u64,
    checkpoints: u64,
}

impl Turns {
    fn print(&mut self, name: &str) {
        println!(
            "{name:24} {:8} turns {:9.1} ms in all, longest {:10.1} us, {} above 1 ms, {} checkpoints",
            self.count,
            self.sum.as_secs_f64() * 1e3,
            self.longest.as_secs_f64() * 1e6,
            self.beyond_1_ms,
            self.checkpoints,
        );
        *self = Turns::default();
    }
}

struct Run {
    path: PathBuf,
    broker: Broker,
    mono: Duration,
    turns: Turns,
}

impl Run {
    /// Starts a broker on the data path `path`.
    fn start(path: &Path, mono: Duration) -> Run {
        let mut run = Run {
            path: path.to_owned(),
            broker: Broker::new(options()),
            mono,
            turns: Turns::default(),
        };
        let log = LogOptions {
            process_seed: mono.as_nanos() as u64,
            ..LogOptions::default()
        };
        let wall_ns = run.now().wall_ns;
        let recovered: Recovered =
            open_log(&OsFiles, path, TOPIC, log, wall_ns).expect("the log opens");
        assert!(recovered.damage.is_empty(), "{:?}", recovered.damage);
        let now = run.now();
        let listed = TopicFacts {
            name: TOPIC.to_owned(),
            paused: false,
            channels: vec![ChannelFacts {
                name: CHANNEL.to_owned(),
                paused: false,
            }],
        };
        run.broker.restore(now, topic(), recovered, Some(&listed));
        run
    }

    fn now(&self) -> Now {
        Now {
            mono: self.mono,
            wall_ns: WALL_NS + self.mono.as_nanos() as u64,
        }
    }

    /// Makes one turn: due timers, some input, an operator's command, deliveries, and then the
    /// keeper's answers. Returns the number of input bytes that the broker took.
    fn turn(
        &mut self,
        input: Option<(ClientId, &[u8])>,
        act: impl FnOnce(&mut Broker, Now, &mut Vec<Output>),
    ) -> usize {
        let mut out = Vec::new();
        self.mono += STEP;
        let now = self.now();
        let began = spent();
        if self.broker.next_timeout().is_some_and(|at| at <= now.mono) {
            self.broker.handle_timeout(now, &mut out);
        }
        let taken = input.map_or(0, |(producer, input)| {
            self.broker.receive(now, producer, input, &mut out)
        });
        act(&mut self.broker, now, &mut out);
        self.broker.end_turn(now, &mut out);
        if let Some((producer, _)) = input {
            self.take_answers(now, producer, &mut out);
        }
        let mut took = spent() - began;
        let keeper = Keeper::new(OsFiles, &self.path);
        let mut answers = Vec::new();
        while !out.is_empty() {
            for output in std::mem::take(&mut out) {
                match output {
                    Output::Keeper(key, topic, request) => {
                        let is_checkpoint = matches!(request, Request::WriteCheckpoint { .. });
                        self.turns.checkpoints += u64::from(is_checkpoint);
                        answers.extend(keeper.handle(&topic, request).map(|reply| (key, reply)));
                    }
                    Output::Log(_, line) if line.contains("ERROR") => panic!("{line}"),
                    _ => {}
                }
            }
            let began = spent();
            for (key, reply) in answers.drain(..) {
                self.broker.handle_reply(now, key, reply, &mut out);
            }
            took += spent() - began;
        }
        self.turns.count += 1;
        self.turns.sum += took;
        self.turns.longest = self.turns.longest.max(took);
        self.turns.beyond_1_ms += u64::from(took > Duration::from_millis(1));
        taken
    }

    /// Takes the answers of a connection. Otherwise the broker would stop reading the connection.
    fn take_answers(&mut self, now: Now, id: ClientId, out: &mut Vec<Output>) {
        loop {
            let mut slices = [IoSlice::new(&[]); 64];
            let count = self.broker.output(id, &mut slices);
            let bytes = slices[..count].iter().map(|slice| slice.len()).sum();
            if self.broker.sent(now, id, bytes, out) != Sent::More {
                return;
            }
        }
    }

    /// Makes turns until the broker has taken all of the input.
    fn send(&mut self, producer: ClientId, mut input: &[u8]) {
        while !input.is_empty() {
            let taken = self.turn(Some((producer, input)), |_, _, _| {});
            input = &input[taken..];
        }
    }

    /// Makes turns until the broker has nothing to do.
    fn rest(&mut self) {
        while self.broker.is_turn_open()
            || self.broker.next_timeout().is_some_and(|at| at <= self.mono)
        {
            self.turn(None, |_, _, _| {});
        }
    }

    /// Lets time pass until a checkpoint is due, and turns until there is nothing to do.
    fn pause(&mut self) {
        self.rest();
        self.mono += PAUSE;
        self.rest();
    }

    fn in_flight(&mut self) -> u64 {
        let mut stats = self
            .broker
            .distribute_and_snapshot(self.now(), &StatsFilter::default());
        stats.topics.remove(0).channels.remove(0).in_flight_count
    }

    /// Returns the channel's numbers of waiting and of deferred messages.
    fn depths(&mut self) -> (u64, u64) {
        let mut stats = self
            .broker
            .distribute_and_snapshot(self.now(), &StatsFilter::default());
        let channel = stats.topics.remove(0).channels.remove(0);
        (channel.depth, channel.deferred_count)
    }
}

fn run(path: &Path, messages: u64) {
    let mut run = Run::start(path, Duration::from_secs(1));
    let now = run.now();
    let producer = run.broker.connect(now, "a:1".to_owned(), "a".to_owned());
    run.send(producer, b"  V2");
    let mut random = Random::new(1);
    let mut input = Vec::new();
    for _ in 0..messages / BATCH {
        input.clear();
        for _ in 0..BATCH {
            let defer = Duration::from_millis(3_000_000 + random.below(500_000));
            encode::dpub(&mut input, topic(), defer, b"message");
        }
        run.send(producer, &input);
    }
    run.turns.print("published, deferred");
    // The checkpoint that is under way may not know of the last messages. The next one does.
    run.pause();
    run.turns.print("first checkpoint");
    input.clear();
    encode::dpub(&mut input, topic(), Duration::from_secs(3500), b"message");
    for _ in 0..3 {
        run.send(producer, &input);
        run.pause();
    }
    assert_eq!(run.turns.checkpoints, 3, "one after each message");
    run.turns.print("recorded, deferred");
    let (depth, deferred) = run.depths();
    assert_eq!((depth, deferred), (0, messages / BATCH * BATCH + 3));

    let mono = run.mono;
    drop(run);
    let (began, cpu) = (Instant::now(), spent());
    let mut run = Run::start(path, mono);
    println!(
        "{:24} {:.2} s, {:.2} s of CPU",
        "restart",
        began.elapsed().as_secs_f64(),
        (spent() - cpu).as_secs_f64()
    );
    assert_eq!(run.depths(), (depth, deferred));
    run.rest();
    run.turns.print("after the restart");

    run.mono += Duration::from_secs(3600);
    run.rest();
    run.turns.print("due, all at once");
    assert_eq!(run.depths(), (deferred, 0));

    let now = run.now();
    let producer = run.broker.connect(now, "a:1".to_owned(), "a".to_owned());
    run.send(producer, b"  V2");
    input.clear();
    encode::publish(&mut input, topic(), b"message");
    run.send(producer, &input);
    run.pause();
    run.turns.print("recorded, requeued");

    let topic = TopicName::new(TOPIC.as_bytes()).expect("a valid name");
    let place = (topic, ChannelName::new(CHANNEL.as_bytes()));
    run.turn(None, |broker, now, out| {
        broker
            .administer(now, place, &Act::Empty(None), TaskId(0), out)
            .expect("the channel is there");
    });
    run.rest();
    run.turns.print("emptied");
    assert_eq!(run.depths(), (0, 0));
    run_in_flight(&mut run, producer, messages);
}

fn run_in_flight(run: &mut Run, producer: ClientId, messages: u64) {
    let now = run.now();
    let consumer = run.broker.connect(now, "a:2".to_owned(), "a".to_owned());
    let mut input = b"  V2".to_vec();
    let channel = ChannelName::new(CHANNEL.as_bytes()).expect("a valid name");
    encode::sub(&mut input, topic(), channel);
    encode::rdy(&mut input, u32::MAX);
    run.send(consumer, &input);
    run.turns = Turns::default();
    input.clear();
    encode::mpub(
        &mut input,
        topic(),
        std::iter::repeat_n(b"message", BATCH as usize),
    );
    for _ in 0..messages / BATCH {
        run.send(producer, &input);
        let mut out = Vec::new();
        run.take_answers(run.now(), consumer, &mut out);
    }
    run.turns.print("published, in flight");
    assert_eq!(run.in_flight(), messages / BATCH * BATCH);
    input.clear();
    encode::rdy(&mut input, 0);
    run.send(consumer, &input);
    run.pause();
    run.turns.print("recorded, in flight");

    run.mono += Duration::from_secs(100);
    run.rest();
    run.turns.print("timed out, all at once");
    assert_eq!(run.depths(), (messages / BATCH * BATCH, 0));
}

fn main() {
    // cargo adds `--bench` to the arguments.
    let count = std::env::args()
        .skip(1)
        .find(|word| !word.starts_with("--"));
    let messages = count.map_or(MESSAGES, |count| count.parse().expect("a count"));
    let path = std::env::temp_dir().join(format!("ringq-deferred-{}", std::process::id()));
    std::fs::create_dir(&path).expect("a directory for temporary files");
    run(&path, messages);
    std::fs::remove_dir_all(&path).expect("the directory can be removed");
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    println!("{}", peak.unwrap_or_default());
}
