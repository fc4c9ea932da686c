//! What a channel owes by the thousand is gone through in slices: how long a slice is, and what a crash
//! between two of them brings back.

use diskq::nsqd_files::{ChannelFacts, TopicFacts};
use diskq::{Crash, Keeper, LogOptions, SimFiles, open_log};
use engine_core::stats::StatsFilter;
use engine_core::{
    Broker, BrokerOptions, ClientId, Now, Output, Sent, ShardId, TaskId, TopicOptions,
};
use std::io::IoSlice;
use std::path::Path;
use std::time::Duration;
use wire::encode::{self, FrameDecoded, decode_frame};
use wire::frame::{FrameType, Message};
use wire::identify::ServerSettings;
use wire::limits::Limits;
use wire::name::{ChannelName, TopicName};

const DATA_PATH: &str = "/data";
const TOPIC: &str = "orders";
const CHANNEL: &str = "archive";
const TURN_ENTRIES: usize = 40;
/// Each topic and channel has a small share, whatever is left.
const SPENT_MAX: usize = TURN_ENTRIES + 2 * 16 + 16;
const WALL_NS: u64 = 1_800_000_000_000_000_000;
/// Longer than `--sync-timeout`.
const PAUSE: Duration = Duration::from_millis(2100);

fn topic() -> TopicName<'static> {
    TopicName::new(TOPIC.as_bytes()).unwrap()
}

fn channel() -> ChannelName<'static> {
    ChannelName::new(CHANNEL.as_bytes()).unwrap()
}

fn options() -> BrokerOptions {
    BrokerOptions {
        shard: ShardId(0),
        shards: 1,
        limits: Limits::default(),
        server: ServerSettings::default(),
        topic: TopicOptions {
            log: LogOptions::default(),
            mem_queue_size: 10_000,
            group_commit: false,
            latency: None,
        },
        resident_bytes: 1 << 20,
        turn_entries: TURN_ENTRIES,
        channel_consumers_max: 0,
        asks_for_channels: false,
        topology: None,
        seed: 1,
    }
}

struct World {
    files: SimFiles,
    broker: Broker,
    mono: Duration,
    /// The most entries of long lists that a turn went through, and how many turns went through any.
    spent_max: usize,
    busy_turns: usize,
    checkpoints: usize,
    /// The number of runs that the last checkpoint names.
    runs: usize,
}

impl World {
    fn new() -> World {
        World {
            files: SimFiles::new(),
            broker: Broker::new(options()),
            mono: Duration::ZERO,
            spent_max: 0,
            busy_turns: 0,
            checkpoints: 0,
            runs: 0,
        }
    }

    fn now(&self) -> Now {
        Now {
            mono: self.mono,
            wall_ns: WALL_NS + self.mono.as_nanos() as u64,
        }
    }

    fn connect(&mut self) -> ClientId {
        let now = self.now();
        let id = self.broker.connect(now, "a:1".to_owned(), "a".to_owned());
        self.send(id, b"  V2");
        id
    }

    fn send(&mut self, id: ClientId, mut input: &[u8]) {
        for _ in 0..1000 {
            let now = self.now();
            let mut out = Vec::new();
            let taken = self.broker.receive(now, id, input, &mut out);
            self.perform(out);
            input = &input[taken..];
            if input.is_empty() {
                return;
            }
            self.turn();
        }
        panic!("the broker does not take the input");
    }

    fn turn(&mut self) {
        let now = self.now();
        let mut out = Vec::new();
        if self.broker.next_timeout().is_some_and(|at| at <= now.mono) {
            self.broker.handle_timeout(now, &mut out);
        }
        self.broker.end_turn(now, &mut out);
        self.spent_max = self.spent_max.max(self.broker.entries_spent());
        self.busy_turns += usize::from(self.broker.entries_spent() > 1);
        self.perform(out);
    }

    fn perform(&mut self, mut out: Vec<Output>) {
        while !out.is_empty() {
            for output in std::mem::take(&mut out) {
                let Output::Keeper(key, topic, request) = output else {
                    continue;
                };
                for (name, log) in self.broker.logs() {
                    self.files.observe(Path::new(DATA_PATH), name, log);
                }
                if let diskq::Request::WriteCheckpoint { draft, .. } = &request {
                    self.checkpoints += 1;
                    let channels = draft.channels.iter();
                    self.runs = channels.map(|channel| channel.runs.count()).sum();
                }
                let keeper = Keeper::new(self.files.clone(), DATA_PATH);
                if let Some(reply) = keeper.handle(&topic, request) {
                    let now = self.now();
                    self.broker.handle_reply(now, key, reply, &mut out);
                }
            }
        }
    }

    /// Turns until nothing is left to do at this moment.
    fn rest(&mut self) {
        for _ in 0..100_000 {
            self.turn();
            let is_due = self.broker.next_timeout().is_some_and(|at| at <= self.mono);
            if !self.broker.is_turn_open() && !is_due {
                return;
            }
        }
        panic!("there is no end to it");
    }

    fn pass(&mut self, time: Duration) {
        self.mono += time;
        self.rest();
    }

    fn pause(&mut self, paused: bool) {
        let mut out = Vec::new();
        let now = self.now();
        let done = self
            .broker
            .pause_topic(now, TOPIC, paused, TaskId(1), &mut out);
        done.unwrap();
        self.perform(out);
    }

    fn publish_deferred(&mut self, producer: ClientId, defer: Duration) {
        let mut input = Vec::new();
        let due = self.mono + defer;
        let body = (due.as_millis() as u64).to_le_bytes();
        encode::dpub(&mut input, topic(), defer, &body);
        self.send(producer, &input);
    }

    fn subscribe(&mut self, rdy: u32) -> ClientId {
        let consumer = self.connect();
        let mut input = Vec::new();
        encode::sub(&mut input, topic(), channel());
        encode::rdy(&mut input, rdy);
        self.send(consumer, &input);
        self.rest();
        consumer
    }

    /// The messages that were sent to a consumer: id, body and attempts.
    fn received(&mut self, id: ClientId) -> Vec<(wire::id::MessageId, Vec<u8>, u16)> {
        let mut bytes = Vec::new();
        loop {
            let mut slices = [IoSlice::new(&[]); 64];
            let count = self.broker.output(id, &mut slices);
            let before = bytes.len();
            slices[..count]
                .iter()
                .for_each(|slice| bytes.extend_from_slice(slice));
            let now = self.now();
            let mut out = Vec::new();
            let sent = self.broker.sent(now, id, bytes.len() - before, &mut out);
            self.perform(out);
            if sent != Sent::More {
                break;
            }
        }
        let mut rest = &bytes[..];
        let mut messages = Vec::new();
        while let FrameDecoded::Frame {
            kind,
            data,
            consumed,
        } = decode_frame(rest)
        {
            rest = &rest[consumed..];
            if kind == FrameType::Message {
                let message = Message::parse(data).unwrap();
                messages.push((message.id, message.body.to_vec(), message.attempts));
            }
        }
        messages
    }

    /// Depth, in flight, deferred.
    fn counts(&mut self) -> (u64, u64, u64) {
        let now = self.now();
        let mut stats = self.broker.stats(now, &StatsFilter::default());
        let channel = stats.topics.remove(0).channels.remove(0);
        (
            channel.depth,
            channel.in_flight_count,
            channel.deferred_count,
        )
    }

    /// The process is killed, and started again a second later.
    fn restart(&mut self) {
        for (name, log) in self.broker.logs() {
            self.files.observe(Path::new(DATA_PATH), name, log);
        }
        self.files.crash(Crash::Process);
        self.mono += Duration::from_secs(1);
        self.broker = Broker::new(options());
        let log = LogOptions {
            generation_seed: self.mono.as_nanos() as u64,
            ..LogOptions::default()
        };
        let path = Path::new(DATA_PATH);
        let wall_ns = self.now().wall_ns;
        let recovered = open_log(&self.files, path, TOPIC, log, wall_ns).unwrap();
        assert!(recovered.damage.is_empty(), "{:?}", recovered.damage);
        let now = self.now();
        let listed = TopicFacts {
            name: TOPIC.to_owned(),
            paused: false,
            channels: vec![ChannelFacts {
                name: CHANNEL.to_owned(),
                paused: false,
            }],
        };
        self.broker.restore(now, topic(), recovered, Some(&listed));
        self.rest();
    }
}

/// Recording, moving to the queue and dropping went through all deferred messages at once: ten million of
/// them stopped the shard for seconds.
#[test]
fn no_turn_goes_through_more_than_its_share() {
    const MESSAGES: u64 = 5_000;
    let slices = |entries: u64| entries as usize / TURN_ENTRIES;
    let mut world = World::new();
    world.subscribe(0);
    let producer = world.connect();
    for n in 0..MESSAGES {
        world.publish_deferred(producer, Duration::from_millis(60_000 + n * 7 % 1000));
        if n % 8 == 0 {
            world.turn();
        }
    }
    world.rest();
    assert_eq!(world.counts(), (0, 0, MESSAGES));

    (world.busy_turns, world.checkpoints) = (0, 0);
    world.pass(PAUSE);
    assert_eq!(world.checkpoints, 1);
    assert!(world.busy_turns >= slices(MESSAGES), "{}", world.busy_turns);

    world.busy_turns = 0;
    world.pass(Duration::from_secs(70));
    assert_eq!(world.counts(), (MESSAGES, 0, 0));
    assert!(world.busy_turns >= slices(MESSAGES));

    (world.busy_turns, world.checkpoints) = (0, 0);
    world.pass(PAUSE);
    assert_eq!(world.checkpoints, 1);
    assert!(world.busy_turns >= slices(MESSAGES));

    world.busy_turns = 0;
    let now = world.now();
    let emptied = world.broker.empty_channel(now, TOPIC, CHANNEL, TaskId(1));
    emptied.unwrap();
    assert_eq!(world.counts(), (0, 0, 0), "at once for all who ask");
    world.rest();
    assert!(world.busy_turns >= slices(MESSAGES));
    assert!(world.spent_max <= SPENT_MAX, "{}", world.spent_max);
}

/// The same of a topic that is paused, and of one that is deleted.
#[test]
fn what_no_channel_was_given_is_gone_through_in_slices_too() {
    const MESSAGES: u64 = 3_000;
    let slices = MESSAGES as usize / TURN_ENTRIES;
    let mut world = World::new();
    world.subscribe(0);
    world.pause(true);
    let producer = world.connect();
    for n in 0..MESSAGES {
        world.publish_deferred(producer, Duration::from_secs(100));
        if n % 2 == 0 {
            let mut input = Vec::new();
            encode::publish(&mut input, topic(), b"12345678");
            world.send(producer, &input);
        }
    }
    (world.busy_turns, world.checkpoints) = (0, 0);
    world.pause(true);
    world.rest();
    assert_eq!(world.checkpoints, 1);
    assert!(world.busy_turns >= slices, "{}", world.busy_turns);
    world.restart();
    world.busy_turns = 0;
    world.pause(false);
    world.rest();
    assert_eq!(world.counts(), (MESSAGES / 2, 0, MESSAGES));
    assert!(world.busy_turns >= slices);

    world.busy_turns = 0;
    let mut out = Vec::new();
    let deleted = world.broker.delete_topic(TOPIC, TaskId(2), &mut out);
    deleted.unwrap();
    world.rest();
    assert!(world.busy_turns >= slices);
    assert!(world.spent_max <= SPENT_MAX, "{}", world.spent_max);
}

/// A crash after each turn in which a checkpoint is put together, while messages come, go and come back: all
/// that is owed is there after it, and what is deferred comes when it is due.
#[test]
fn a_crash_between_two_slices_loses_neither_message_nor_deadline() {
    const MESSAGES: u64 = 200;
    let mut was_finished = false;
    for crash_after in 0.. {
        let mut world = World::new();
        let consumer = world.subscribe(50);
        let producer = world.connect();
        for n in 0..MESSAGES {
            world.publish_deferred(producer, Duration::from_millis(20_000 + n * 37 % 5000));
        }
        // Single messages in flight, and requeued ones, between those that are finished.
        let mut input = Vec::new();
        encode::mpub(&mut input, topic(), std::iter::repeat_n(&[0_u8; 8], 40));
        world.send(producer, &input);
        world.rest();
        let messages = world.received(consumer);
        assert_eq!(messages.len(), 40);
        let mut finished = 0;
        for (id, ..) in messages.iter().step_by(3) {
            let mut input = Vec::new();
            encode::fin(&mut input, id);
            finished += 1;
            world.send(consumer, &input);
        }
        world.rest();
        world.checkpoints = 0;
        world.mono += PAUSE;
        let mut others = messages.iter().skip(1).step_by(3);
        for turn in 0..crash_after {
            world.turn();
            if let Some((id, ..)) = others.next() {
                let mut input = Vec::new();
                let timeout = Duration::from_secs(turn % 3 * 10);
                encode::req(&mut input, id, timeout);
                world.send(consumer, &input);
            }
            world.publish_deferred(producer, Duration::from_secs(15));
        }
        was_finished |= world.checkpoints > 0;
        world.restart();
        // What was finished before the record may come again if the record was cut off.
        let (depth, in_flight, deferred) = world.counts();
        let owed = MESSAGES + crash_after + 40 - finished;
        let there = depth + in_flight + deferred;
        assert!(
            (owed..=owed + finished).contains(&there),
            "{there} are there of {owed} that are owed, after {crash_after} turns"
        );
        assert!(deferred >= MESSAGES + crash_after);
        let consumer = world.subscribe(2500);
        let mut seen = 0;
        for _ in 0..400 {
            for (id, body, attempts) in world.received(consumer) {
                let due = u64::from_le_bytes(body.try_into().unwrap());
                if due > 0 {
                    let now = world.mono.as_millis() as u64;
                    assert!((due..due + 110).contains(&now), "due {due}, came {now}");
                    assert_eq!(attempts, 1);
                    seen += 1;
                }
                let mut input = Vec::new();
                encode::fin(&mut input, &id);
                world.send(consumer, &input);
            }
            world.pass(Duration::from_millis(100));
        }
        assert_eq!(seen, MESSAGES + crash_after);
        assert_eq!(world.counts(), (0, 0, 0));
        if was_finished && crash_after > 20 {
            return;
        }
    }
}

/// A topic goes on while its checkpoint is put together: the channel gets what was older than the checkpoint
/// when a part of the channel was recorded already.
#[test]
fn what_a_channel_is_given_while_it_is_recorded_is_not_lost() {
    const MESSAGES: u64 = 300;
    for goes_on_after in 0..20 {
        let mut world = World::new();
        world.subscribe(0);
        let producer = world.connect();
        for _ in 0..MESSAGES {
            world.publish_deferred(producer, Duration::from_secs(100));
        }
        world.rest();
        world.pause(true);
        world.rest();
        for n in 0..100 {
            if n % 3 == 0 {
                world.publish_deferred(producer, Duration::from_secs(100));
            } else {
                let mut input = Vec::new();
                encode::publish(&mut input, topic(), b"12345678");
                world.send(producer, &input);
            }
        }
        world.rest();
        world.checkpoints = 0;
        world.pause(true);
        for _ in 0..goes_on_after {
            world.turn();
        }
        world.pause(false);
        while world.checkpoints == 0 {
            world.turn();
        }
        world.restart();
        world.pause(false);
        world.rest();
        assert_eq!(world.counts(), (66, 0, MESSAGES + 34), "{goes_on_after}");
    }
}

/// A consumer that requeues everything moves more messages per turn than a slice has entries. The checkpoint still
/// comes, and what it notes of them stays within the length of the list.
#[test]
fn a_checkpoint_comes_although_messages_are_requeued_all_the_time() {
    const MESSAGES: usize = 1_000;
    for per_turn in [64, 200] {
        let mut world = World::new();
        let consumer = world.subscribe(MESSAGES as u32);
        let producer = world.connect();
        let mut input = Vec::new();
        encode::mpub(&mut input, topic(), std::iter::repeat_n(b"x", MESSAGES));
        world.send(producer, &input);
        world.rest();
        let messages = world.received(consumer);
        assert_eq!(messages.len(), MESSAGES);
        let mut input = Vec::new();
        encode::rdy(&mut input, per_turn);
        for (id, ..) in messages {
            encode::req(&mut input, &id, Duration::ZERO);
        }
        world.send(consumer, &input);
        world.rest();
        let mut requeued = 0;
        world.checkpoints = 0;
        world.mono += PAUSE;
        for _ in 0..10 * MESSAGES / TURN_ENTRIES {
            world.turn();
            let mut input = Vec::new();
            for (id, ..) in world.received(consumer) {
                encode::req(&mut input, &id, Duration::ZERO);
                requeued += 1;
            }
            world.send(consumer, &input);
            if world.checkpoints > 0 {
                break;
            }
        }
        assert_eq!(world.checkpoints, 1, "{requeued} were requeued meanwhile");
        assert!(requeued > MESSAGES / 4, "{requeued}");
        let runs_max = 2 * MESSAGES + 2 * per_turn as usize;
        assert!(world.runs <= runs_max, "{} runs", world.runs);
        world.restart();
        assert_eq!(world.counts(), (MESSAGES as u64, 0, 0));
    }
}
