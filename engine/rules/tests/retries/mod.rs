//! A producer that repeats its publishes, and a topic that recognises them, over a disk that loses power.
//!
//! The model is one sentence: a message that was acknowledged, and that no power failure can have taken since then, has been
//! delivered or will be. A broker that remembers a key whose message is lost answers the next try with OK and stores
//! nothing, so this message never arrives.

use crate::lists::{DATA_PATH, World, channel, topic};
use diskq::{LogOptions, Seq, open_log};
use diskq_sim::{Crash, SimFiles};
use engine_rules::stats::StatsFilter;
use engine_rules::{
    Broker, BrokerOptions, ClientId, ContentKey, ContentRule, DedupRule, DedupRules, KeyWindow,
    Random, SavedKeys, TopicOptions,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use wire::encode;
use wire::frame::{FrameType, Message};

const STEPS: u64 = 60;

/// The events of some histories, counted.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    pub(crate) duplicates: u64,
    pub(crate) refused: u64,
    pub(crate) power_failures: u64,
    pub(crate) saved_states: u64,
}

/// One random history. The same seed gives the same history.
pub(crate) struct History {
    random: Random,
    world: World,
    group_commit: bool,
    sync_timeout: Duration,
    starts: u64,
    /// All messages below were synced before the last crash.
    synced: Seq,
    /// The number of different messages so far. A message's number is its body.
    messages: u64,
    /// The messages that must have been delivered at the end.
    owed: BTreeSet<u64>,
    delivered: BTreeSet<u64>,
    reached: Reached,
}

impl History {
    pub(crate) fn run(seed: u64) -> Reached {
        let mut random = Random::new(seed);
        let group_commit = random.below(3) == 0;
        let sync_timeout = Duration::from_secs([2, 2, 15, 1000][random.below(4) as usize]);
        let options = options(group_commit, sync_timeout, 0);
        let mut world = World::on(SimFiles::seeded(seed), options);
        world.is_checked = true;
        let mut history = History {
            random,
            world,
            group_commit,
            sync_timeout,
            starts: 0,
            synced: Seq(0),
            messages: 0,
            owed: BTreeSet::new(),
            delivered: BTreeSet::new(),
            reached: Reached::default(),
        };
        history.consume(0);
        for _ in 0..STEPS {
            history.step();
        }
        history.world.files.limit(None);
        // Messages in flight of consumers that are gone time out.
        history.pass_time(Duration::from_secs(70));
        history.consume(usize::MAX);
        let lost: Vec<&u64> = history.owed.difference(&history.delivered).collect();
        assert!(
            lost.is_empty(),
            "seed {seed}: acknowledged and lost: {lost:?}"
        );
        history.reached
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..9 => self.publish(),
            9..12 => {
                let seconds = 1 + self.random.below(15);
                self.pass_time(Duration::from_secs(seconds));
            }
            12..14 => {
                let count = self.random.below(30) as usize;
                self.consume(count);
            }
            14 => {
                let room = self.random.below(60_000);
                self.world
                    .files
                    .limit(Some(self.world.files.bytes() + room));
            }
            15 => self.world.files.limit(None),
            16 => self.restart(Crash::Process),
            17 => {
                self.stop();
                self.restart(Crash::Process);
            }
            _ => {
                let seed = self.random.draw();
                self.reached.power_failures += 1;
                self.restart(Crash::Power { seed });
            }
        }
    }

    /// Publishes new messages and old ones. Which of the old ones are there is nothing that a producer knows.
    fn publish(&mut self) {
        let count = 1 + self.random.below(12);
        let mut numbers = Vec::new();
        for _ in 0..count {
            let is_new = self.messages == 0 || self.random.below(2) == 0;
            if is_new {
                numbers.push(self.messages);
                self.messages += 1;
            } else {
                let newest = self.messages.min(40);
                numbers.push(self.messages - 1 - self.random.below(newest));
            }
        }
        let body = |number: &u64| {
            let mut body = number.to_be_bytes().to_vec();
            // The same number is the same body, so its size does not depend on the publish.
            body.resize(8 + (*number as usize * 37) % 1500, b'.');
            body
        };
        let bodies: Vec<Vec<u8>> = numbers.iter().map(body).collect();
        let before = self.duplicates();
        let producer = self.world.connect();
        let mut input = Vec::new();
        match &bodies[..] {
            [one] => encode::publish(&mut input, topic(), one),
            _ => encode::mpub(&mut input, topic(), &bodies),
        }
        self.world.send(producer, &input);
        self.world.rest();
        let (answers, _) = self.received(producer);
        self.reached.duplicates += self.duplicates() - before;
        if answers.last().is_some_and(|answer| answer == b"OK") {
            self.owed.extend(numbers);
        } else {
            self.reached.refused += 1;
        }
        self.disconnect(producer);
    }

    /// The topic's count of duplicates.
    fn duplicates(&mut self) -> u64 {
        let now = self.world.now();
        let stats = self
            .world
            .broker
            .distribute_and_snapshot(now, &StatsFilter::default());
        let keys = stats.topics.iter().filter_map(|topic| topic.keys.as_ref());
        keys.map(|keys| keys.duplicate_count).sum()
    }

    /// Delivers and finishes up to `count` messages.
    fn consume(&mut self, count: usize) {
        let consumer = self.world.connect();
        let mut input = Vec::new();
        encode::sub(&mut input, topic(), channel());
        encode::rdy(&mut input, 10);
        self.world.send(consumer, &input);
        let mut left = count;
        loop {
            self.world.rest();
            let (_, messages) = self.received(consumer);
            let mut input = Vec::new();
            for (id, number) in messages.iter().take(left) {
                self.delivered.insert(*number);
                encode::fin(&mut input, id);
            }
            left = left.saturating_sub(messages.len());
            if messages.is_empty() || left == 0 {
                break;
            }
            self.world.send(consumer, &input);
        }
        self.disconnect(consumer);
    }

    fn pass_time(&mut self, time: Duration) {
        let until = self.world.mono + time;
        while self.world.mono < until {
            let next = self.world.broker.next_timeout().unwrap_or(until);
            self.world.mono = next.clamp(self.world.mono + Duration::from_millis(1), until);
            self.world.rest();
        }
    }

    /// Stops the broker as SIGTERM does.
    fn stop(&mut self) {
        self.world.broker.begin_stop(&mut Vec::new());
        for _ in 0..1000 {
            let now = self.world.now();
            let is_unfinished = self.world.broker.drive_stop(now, &mut Vec::new());
            self.world.rest();
            if !is_unfinished {
                return;
            }
            self.world.mono += Duration::from_millis(250);
        }
        panic!("the broker does not stop");
    }

    fn restart(&mut self, crash: Crash) {
        self.world.observe();
        let marks = self.world.broker.logs().map(|(_, log)| log.synced());
        self.synced = marks.fold(self.synced, Seq::max);
        self.world.files.crash(crash);
        if matches!(crash, Crash::Power { .. }) && !self.group_commit {
            // The last messages may be lost. The producer has to publish them again.
            self.owed.clear();
        }
        self.world.mono += Duration::from_secs(1);
        self.starts += 1;
        let options = options(self.group_commit, self.sync_timeout, self.starts);
        self.world.broker = Broker::new(options.clone());
        let (now, path, name) = (self.world.now(), Path::new(DATA_PATH), topic().as_str());
        let log = options.topic.log;
        let recovered = open_log(&self.world.files, path, name, log, now.wall_ns).expect("opens");
        let file = diskq::read_topic_file(&self.world.files, path, name).expect("the disk reads");
        self.reached.saved_states += u64::from(file.is_some());
        let saved = file.as_deref().map(SavedKeys::decode).transpose();
        let saved = saved.expect("the file was synced before it got its name");
        let keys = self.world.broker.begin_keys(now, topic());
        let mut keys = keys.expect("the topic has a rule");
        if let Some(saved) = &saved {
            keys.load(saved).expect("it is of the same rule");
            assert!(
                saved.boundary() <= self.synced,
                "the file names only synced messages"
            );
        }
        let read = diskq::read_newest(&self.world.files, path, name, &recovered, &mut keys);
        read.expect("the disk reads");
        self.world.broker.restore(now, topic(), recovered, None);
        self.world.broker.restore_keys(topic(), keys);
        self.world.rest();
        self.consume(0);
    }

    fn disconnect(&mut self, id: ClientId) {
        let mut out = Vec::new();
        self.world.broker.disconnect(id, &mut out);
        self.world.perform(out);
        self.world.rest();
    }

    /// Takes the answers and the messages that a client got.
    fn received(&mut self, id: ClientId) -> (Vec<Vec<u8>>, Vec<(wire::id::MessageId, u64)>) {
        let (mut answers, mut messages) = (Vec::new(), Vec::new());
        for (kind, data) in self.world.frames(id) {
            if kind == FrameType::Message {
                let message = Message::parse(&data).expect("a message");
                let number = message.body[..8].try_into().expect("eight bytes");
                messages.push((message.id, u64::from_be_bytes(number)));
            } else {
                answers.push(data);
            }
        }
        (answers, messages)
    }
}

fn options(group_commit: bool, sync_timeout: Duration, starts: u64) -> BrokerOptions {
    let mut rules = DedupRules::default();
    let rule = ContentRule::new(ContentKey::Body, KeyWindow::Count(200), None);
    rules.add("*", DedupRule::Content(rule.expect("it fits")));
    BrokerOptions {
        topic: TopicOptions {
            log: LogOptions {
                segment_bytes_min: 4096,
                segment_bytes_steady: 16 * 1024,
                segment_bytes_max: 64 * 1024,
                resident_messages: 20,
                resident_bytes_min: 32 * 1024,
                sync_every: if group_commit { 1 } else { 2500 },
                sync_timeout,
                process_seed: 100 + starts,
                ..LogOptions::default()
            },
            mem_queue_size: 50,
            group_commit,
            dedup: rules.into(),
            ..TopicOptions::default()
        },
        turn_entries: 40,
        ..BrokerOptions::default()
    }
}
