//! A broker over a simulated disk that processes long lists in small slices.

use diskq::{ChannelFacts, Keeper, LogOptions, TopicFacts, open_log};
use diskq_sim::{Crash, SimFiles};
use engine_rules::stats::StatsFilter;
use engine_rules::{
    Broker, BrokerOptions, ClientId, DeadLetterRules, GraceOptions, Now, Output, Sent, Wakeup,
};
use std::io::IoSlice;
use std::path::Path;
use std::time::Duration;
use wire::encode::{self, FrameDecoded, decode_frame};
use wire::frame::{FrameType, Message};
use wire::name::{ChannelName, TopicName};

pub(crate) const DATA_PATH: &str = "/data";
pub(crate) const TOPIC: &str = "orders";
pub(crate) const CHANNEL: &str = "archive";

/// Returns the place of an operator's act on a topic, or on its channel.
pub(crate) fn place<'a>(
    topic: &'a str,
    channel: Option<&'a str>,
) -> (TopicName<'a>, Option<ChannelName<'a>>) {
    let channel = channel.map(|name| ChannelName::new(name.as_bytes()).expect("a valid name"));
    (
        TopicName::new(topic.as_bytes()).expect("a valid name"),
        channel,
    )
}
pub(crate) const TURN_ENTRIES: usize = 40;
const WALL_NS: u64 = 1_800_000_000_000_000_000;
/// A time that is longer than `--sync-timeout`.
pub(crate) const PAUSE: Duration = Duration::from_millis(2100);

pub(crate) fn topic() -> TopicName<'static> {
    TopicName::new(TOPIC.as_bytes()).unwrap()
}

pub(crate) fn channel() -> ChannelName<'static> {
    ChannelName::new(CHANNEL.as_bytes()).unwrap()
}

pub(crate) fn options() -> BrokerOptions {
    let mut options = BrokerOptions {
        turn_entries: TURN_ENTRIES,
        ..BrokerOptions::default()
    };
    options.topic.grace = GraceOptions {
        period: Duration::from_secs(60),
        bytes_max: 1 << 20,
    };
    options
}

/// A broker with one topic and one channel. Its keeper does each job at once, unless the jobs are held.
pub(crate) struct World {
    options: BrokerOptions,
    pub(crate) files: SimFiles,
    /// True if the keeper does no job with a sync.
    pub(crate) holds_syncs: bool,
    /// The jobs that the keeper has not done.
    pub(crate) held: Vec<Output>,
    pub(crate) broker: Broker,
    pub(crate) mono: Duration,
    /// The highest number of list entries that one turn processed.
    pub(crate) spent_max: usize,
    /// The number of turns that processed any list entry.
    pub(crate) busy_turns: usize,
    pub(crate) checkpoints: usize,
    /// The number of runs in the last checkpoint.
    pub(crate) runs: usize,
    /// True if the broker has asked an operator to try a command again.
    pub(crate) may_retry: bool,
    /// True if the invariants are checked in every turn.
    pub(crate) is_checked: bool,
}

impl World {
    pub(crate) fn new() -> World {
        World::with(options())
    }

    pub(crate) fn with(options: BrokerOptions) -> World {
        World::on(SimFiles::new(), options)
    }

    pub(crate) fn on(files: SimFiles, options: BrokerOptions) -> World {
        World {
            files,
            holds_syncs: false,
            held: Vec::new(),
            broker: Broker::new(options.clone()),
            options,
            mono: Duration::ZERO,
            spent_max: 0,
            busy_turns: 0,
            checkpoints: 0,
            runs: 0,
            may_retry: false,
            is_checked: false,
        }
    }

    /// A world with a rule: after one attempt, messages of all channels go to a topic that comes behind [`TOPIC`].
    pub(crate) fn with_dead_letters() -> World {
        let mut rules = DeadLetterRules::default();
        rules.add(TOPIC, "*", 1, "rejected").unwrap();
        let mut options = options();
        options.topic.dead_letters = rules.into();
        World::with(options)
    }

    pub(crate) fn now(&self) -> Now {
        Now {
            mono: self.mono,
            wall_ns: WALL_NS + self.mono.as_nanos() as u64,
        }
    }

    pub(crate) fn connect(&mut self) -> ClientId {
        let now = self.now();
        let id = self.broker.connect(now, "a:1".to_owned(), "a".to_owned());
        self.send(id, b"  V2");
        id
    }

    pub(crate) fn send(&mut self, id: ClientId, mut input: &[u8]) {
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

    pub(crate) fn turn(&mut self) {
        let now = self.now();
        let mut out = Vec::new();
        if self.broker.next_timeout().is_some_and(|at| at <= now.mono) {
            self.broker.handle_timeout(now, &mut out);
        }
        self.broker.end_turn(now, &mut out);
        self.spent_max = self.spent_max.max(self.broker.entries_spent());
        self.busy_turns += usize::from(self.broker.entries_spent() > 1);
        self.perform(out);
        if self.is_checked {
            self.broker.check();
        }
    }

    pub(crate) fn perform(&mut self, mut out: Vec<Output>) {
        while !out.is_empty() {
            for output in std::mem::take(&mut out) {
                self.may_retry |= matches!(output, Output::Wake(_, Wakeup::Retry));
                let now = self.now();
                if let Output::AskForChannels(key, _) = output {
                    // No nsqlookupd has answered.
                    let broker = &mut self.broker;
                    broker.handle_channels(now, key, &[], false, &mut out);
                }
                if self.holds_syncs
                    && matches!(&output, Output::Keeper(_, _, request) if request.is_sync())
                {
                    self.held.push(output);
                    continue;
                }
                let Output::Keeper(key, topic, request) = output else {
                    continue;
                };
                self.observe();
                if let diskq::Request::WriteCheckpoint(diskq::CheckpointJob { draft, .. }) =
                    &request
                {
                    self.checkpoints += 1;
                    let channels = draft.channels.iter();
                    self.runs = channels.map(|channel| channel.runs.count()).sum();
                }
                let keeper = Keeper::new(self.files.clone(), DATA_PATH);
                if let Some(reply) = keeper.handle(&topic, request) {
                    self.broker.handle_reply(now, key, reply, &mut out);
                }
            }
        }
    }

    /// Copies the memories of the logs to the disk.
    pub(crate) fn observe(&mut self) {
        for (name, log) in self.broker.logs() {
            self.files.observe(Path::new(DATA_PATH), name, log);
        }
    }

    /// Runs turns until nothing is left to do at this time.
    pub(crate) fn rest(&mut self) {
        for _ in 0..100_000 {
            self.turn();
            let is_due = self.broker.next_timeout().is_some_and(|at| at <= self.mono);
            if !self.broker.is_turn_open() && !is_due {
                return;
            }
        }
        panic!("the broker never comes to rest");
    }

    pub(crate) fn subscribe(&mut self, rdy: u32) -> ClientId {
        self.subscribe_to(channel(), rdy)
    }

    pub(crate) fn subscribe_to(&mut self, channel: ChannelName<'_>, rdy: u32) -> ClientId {
        let consumer = self.connect();
        let mut input = Vec::new();
        encode::sub(&mut input, topic(), channel);
        encode::rdy(&mut input, rdy);
        self.send(consumer, &input);
        self.rest();
        consumer
    }

    /// Takes the messages that were sent to a consumer: id, body and attempts.
    pub(crate) fn received(&mut self, id: ClientId) -> Vec<(wire::id::MessageId, Vec<u8>, u16)> {
        let frames = self.frames(id).into_iter();
        let messages = frames.filter(|(kind, _)| *kind == FrameType::Message);
        let parsed = messages.map(|(_, data)| {
            let message = Message::parse(&data).unwrap();
            (message.id, message.body.to_vec(), message.attempts)
        });
        parsed.collect()
    }

    /// Takes the frames that were sent to a client.
    pub(crate) fn frames(&mut self, id: ClientId) -> Vec<(FrameType, Vec<u8>)> {
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
        let mut frames = Vec::new();
        while let FrameDecoded::Frame {
            kind,
            data,
            consumed,
        } = decode_frame(rest)
        {
            rest = &rest[consumed..];
            frames.push((kind, data.to_vec()));
        }
        frames
    }

    /// Returns the channel's numbers of messages: waiting, in flight, deferred.
    pub(crate) fn counts(&mut self) -> (u64, u64, u64) {
        self.counts_of(CHANNEL)
    }

    pub(crate) fn counts_of(&mut self, name: &str) -> (u64, u64, u64) {
        let now = self.now();
        let mut stats = self
            .broker
            .distribute_and_snapshot(now, &StatsFilter::default());
        let mut channels = stats.topics.remove(0).channels.into_iter();
        let channel = channels.find(|it| it.channel_name == name).unwrap();
        (
            channel.depth,
            channel.in_flight_count,
            channel.deferred_count,
        )
    }

    /// Kills the process and starts it again a second later.
    pub(crate) fn restart(&mut self) {
        self.observe();
        self.files.crash(Crash::Process);
        self.mono += Duration::from_secs(1);
        self.broker = Broker::new(self.options.clone());
        let log = LogOptions {
            process_seed: self.mono.as_nanos() as u64,
            ..self.options.topic.log_options(topic())
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
