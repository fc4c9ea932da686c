//! The simulated world: shards, keepers, a disk, connections, and the model they are held against.

use diskq::{Crash, Keeper, LogOptions, Recovered, Reply, Request, SimFiles};
use engine_core::{
    Broker, BrokerOptions, Client, ClientId, ForwardBatch, ForwardReply, Now, Output, Random,
    Sent, ShardId, TaskId, TopicKey, TopicOptions, place,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use wire::encode::{self, FrameDecoded, decode_frame};
use wire::frame::{FrameType, Message};
use wire::id::MessageId;
use wire::identify::ServerSettings;
use wire::limits::Limits;
use wire::name::{ChannelName, TopicName};

const DATA_PATH: &str = "/data";
const TOPICS: [&str; 3] = ["orders", "b", "clicks"];
const CHANNELS: [&str; 3] = ["bill", "ship", "x#ephemeral"];
const STEPS: u64 = 250;
const SHARDS_MAX: u64 = 3;

/// What a set of histories must have reached, or it has proved nothing.
#[derive(Debug, Default)]
pub struct Reached {
    counts: BTreeMap<&'static str, u64>,
}

impl Reached {
    fn note(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub fn add(&mut self, other: &Reached) {
        for (what, count) in &other.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }

    pub fn assert_all_seen(&self) {
        for what in [
            "acknowledged", "delivered", "finished", "requeued", "touched", "timed out",
            "deferred", "redelivered", "moved", "forwarded", "killed", "paused", "emptied",
            "channel deleted", "topic deleted", "room awaited", "disk full", "refused",
            "disconnected", "synced before OK",
        ] {
            assert!(self.counts.contains_key(what), "no history reached: {what}");
        }
    }
}

/// What the model knows of one message.
#[derive(Debug, Default, Clone)]
struct Tracked {
    topic: usize,
    body: Vec<u8>,
    acknowledged: bool,
    /// Durable channels that must get it, once it is acknowledged.
    owed: BTreeSet<usize>,
    /// Channels on which it was finished, since the last kill.
    finished: BTreeSet<usize>,
    /// Not before this, on the wall clock of the simulation.
    due: Duration,
}

/// A simulated peer.
#[derive(Debug, Default)]
struct Peer {
    /// Where its connection is: `None` while it moves or after it was closed.
    at: Option<(usize, ClientId)>,
    /// Bytes sent and not yet consumed by the broker.
    input: Vec<u8>,
    /// How much of it was offered already.
    received: Vec<u8>,
    /// Message numbers of publishes that await their answer, in order; each with its verb.
    awaiting: VecDeque<Vec<u64>>,
    subscription: Option<(usize, usize)>,
    /// SUB was answered.
    subscribed: bool,
    ready: u32,
    /// Ids it holds.
    holds: Vec<(MessageId, u64, Duration)>,
    closed: bool,
}

enum Mail {
    Forwards(ForwardBatch),
    Replies(Vec<ForwardReply>),
    Connection(usize, Box<Client>),
}

struct ShardWorld {
    broker: Broker,
    jobs: VecDeque<(TopicKey, Arc<str>, Request)>,
    /// Topics whose log is to be removed, behind how many jobs.
    inbox: VecDeque<Mail>,
}

pub struct World {
    random: Random,
    files: SimFiles,
    shards: Vec<ShardWorld>,
    peers: Vec<Peer>,
    mono: Duration,
    wall_ns: u64,
    group_commit: bool,
    messages: Vec<Tracked>,
    /// Channels that exist for certain, per topic.
    channels: BTreeSet<(usize, usize)>,
    paused: BTreeSet<(usize, Option<usize>)>,
    tasks: u64,
    reached: Reached,
    digest: u64,
}

fn topic_name(topic: usize) -> TopicName<'static> {
    TopicName::new(TOPICS[topic].as_bytes()).expect("a valid name")
}

fn channel_name(channel: usize) -> ChannelName<'static> {
    ChannelName::new(CHANNELS[channel].as_bytes()).expect("a valid name")
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let shards = 1 + random.below(SHARDS_MAX);
        let group_commit = random.below(4) == 0;
        let mut world = World {
            random,
            files: SimFiles::new(),
            shards: Vec::new(),
            peers: Vec::new(),
            mono: Duration::ZERO,
            wall_ns: 1_800_000_000_000_000_000,
            group_commit,
            messages: Vec::new(),
            channels: BTreeSet::new(),
            paused: BTreeSet::new(),
            tasks: 0,
            reached: Reached::default(),
            digest: 0,
        };
        world.start(shards as usize);
        world
    }

    pub fn run(mut self) -> Reached {
        for _ in 0..STEPS {
            self.step();
            self.check();
        }
        self.drain();
        self.reached
    }

    pub fn run_digest(mut self) -> u64 {
        for _ in 0..STEPS {
            self.step();
        }
        self.drain();
        self.digest
    }

    // --- start and kill

    fn options(&self, shard: usize, shards: usize) -> BrokerOptions {
        BrokerOptions {
            shard: ShardId(shard as u32),
            shards: shards as u32,
            limits: Limits::default(),
            server: ServerSettings::default(),
            topic: TopicOptions {
                log: self.log_options(),
                mem_queue_size: 50,
                group_commit: self.group_commit,
            },
            channel_consumers_max: 0,
            seed: 5,
        }
    }

    fn log_options(&self) -> LogOptions {
        LogOptions {
            node: 7,
            segment_bytes_min: 4096,
            segment_bytes_steady: 16 * 1024,
            segment_bytes_max: 64 * 1024,
            resident_messages: 20,
            resident_bytes_min: 32 * 1024,
            sync_every: if self.group_commit { 1 } else { 30 },
            ..LogOptions::default()
        }
    }

    fn start(&mut self, shards: usize) {
        let path = Path::new(DATA_PATH);
        let now = self.now();
        self.shards = (0..shards)
            .map(|shard| ShardWorld {
                broker: Broker::new(self.options(shard, shards)),
                jobs: VecDeque::new(),
                inbox: VecDeque::new(),
            })
            .collect();
        for topic in diskq::list_logs(&self.files, path).expect("the disk lists") {
            let shard = place(&topic, shards as u32).0 as usize;
            let options = self.log_options();
            let recovered: Recovered =
                diskq::open_log(&self.files, path, &topic, options, now.wall_ns).expect("opens");
            assert_eq!(recovered.damage, [], "a kill damages nothing");
            let name = TopicName::new(topic.as_bytes()).expect("a valid name");
            self.shards[shard].broker.restore(now, name, recovered, &[], None);
        }
        for shard in 0..shards {
            self.turn(shard);
        }
    }

    fn kill(&mut self) {
        self.reached.note("killed");
        for shard in &self.shards {
            for (topic, log) in shard.broker.logs() {
                self.files.observe(Path::new(DATA_PATH), topic, log);
            }
        }
        self.files.crash(Crash::Process);
        for peer in &mut self.peers {
            peer.closed = true;
            peer.at = None;
        }
        self.peers.clear();
        for message in &mut self.messages {
            message.finished.clear();
        }
        // Ephemeral channels end with the process.
        self.channels.retain(|(_, channel)| !CHANNELS[*channel].ends_with("#ephemeral"));
        let shards = 1 + self.random.below(SHARDS_MAX) as usize;
        self.start(shards);
    }

    fn now(&self) -> Now {
        Now { mono: self.mono, wall_ns: self.wall_ns }
    }

    // --- one step

    fn step(&mut self) {
        match self.random.below(100) {
            0..=4 => self.connect(),
            5..=27 => self.publish(),
            28..=33 => self.subscribe(),
            34..=41 => self.change_ready(),
            42..=66 => self.answer(),
            67..=69 => self.hang_up(),
            70..=79 => self.advance(),
            80..=90 => self.work_keepers(3),
            91..=94 => self.deliver_mail(2),
            95..=97 => self.administer(),
            98 => self.fill_disk(),
            _ => {
                if self.random.below(3) == 0 {
                    self.kill();
                }
            }
        }
        for shard in 0..self.shards.len() {
            self.turn(shard);
        }
    }

    fn connect(&mut self) {
        if self.peers.iter().filter(|peer| !peer.closed).count() > 8 {
            return;
        }
        let shard = self.random.below(self.shards.len() as u64) as usize;
        let now = self.now();
        let broker = &mut self.shards[shard].broker;
        let id = broker.connect(now, "10.0.0.1:5".to_owned(), "10.0.0.1".to_owned());
        let peer = Peer { at: Some((shard, id)), input: b"  V2".to_vec(), ..Peer::default() };
        self.peers.push(peer);
        self.offer(self.peers.len() - 1);
    }

    fn pick_peer(&mut self, wanted: impl Fn(&Peer) -> bool) -> Option<usize> {
        let matching: Vec<usize> = (0..self.peers.len())
            .filter(|index| !self.peers[*index].closed && wanted(&self.peers[*index]))
            .collect();
        let count = matching.len() as u64;
        (count > 0).then(|| matching[self.random.below(count) as usize])
    }

    fn publish(&mut self) {
        let Some(index) = self.pick_peer(|_| true) else { return self.connect() };
        let topic = self.random.below(TOPICS.len() as u64) as usize;
        let kind = self.random.below(10);
        let count = if kind < 4 { 1 } else { 1 + self.random.below(30) };
        let defer = if kind == 0 { Duration::from_millis(self.random.below(3000)) } else { Duration::ZERO };
        let mut numbers = Vec::new();
        let mut bodies = Vec::new();
        for _ in 0..count {
            let number = self.messages.len() as u64;
            let filler = [3, 40, 300, 2500][self.random.below(4) as usize];
            let mut body = number.to_be_bytes().to_vec();
            body.extend((0..filler).map(|at: usize| (at as u64 ^ number) as u8));
            let due = self.mono + defer;
            // Channels that come later may get it, too; these must.
            let owed = self.channels.iter().filter(|(t, _)| *t == topic).map(|(_, c)| *c).collect();
            let tracked = Tracked { topic, body: body.clone(), due, owed, ..Tracked::default() };
            self.messages.push(tracked);
            numbers.push(number);
            bodies.push(body);
        }
        let input = &mut self.peers[index].input;
        match kind {
            0 => {
                encode::dpub(input, topic_name(topic), defer, &bodies[0]);
                self.reached.note("deferred");
            }
            1..=3 => encode::publish(input, topic_name(topic), &bodies[0]),
            _ => encode::mpub(input, topic_name(topic), &bodies),
        }
        self.peers[index].awaiting.push_back(numbers);
        self.offer(index);
    }

    fn subscribe(&mut self) {
        let Some(index) = self.pick_peer(|peer| peer.subscription.is_none() && peer.awaiting.is_empty())
        else {
            return self.connect();
        };
        let topic = self.random.below(TOPICS.len() as u64) as usize;
        let channel = self.random.below(CHANNELS.len() as u64) as usize;
        let peer = &mut self.peers[index];
        peer.subscription = Some((topic, channel));
        peer.ready = 1 + self.random.below(40) as u32;
        encode::sub(&mut peer.input, topic_name(topic), channel_name(channel));
        encode::rdy(&mut peer.input, peer.ready);
        self.offer(index);
    }

    fn change_ready(&mut self) {
        let Some(index) = self.pick_peer(|peer| peer.subscription.is_some()) else { return };
        let peer = &mut self.peers[index];
        peer.ready = self.random.below(60) as u32;
        encode::rdy(&mut peer.input, peer.ready);
        self.offer(index);
    }

    /// A consumer answers some of what it holds.
    fn answer(&mut self) {
        let Some(index) = self.pick_peer(|peer| !peer.holds.is_empty()) else { return };
        let count = 1 + self.random.below(self.peers[index].holds.len() as u64);
        for _ in 0..count {
            let peer = &mut self.peers[index];
            let at = self.random.below(peer.holds.len() as u64) as usize;
            let (id, number, until) = peer.holds[at];
            let (topic, channel) = peer.subscription.expect("it holds messages");
            // What may have timed out is answered, too, but the model does not rely on it.
            let in_time = until > self.mono;
            match self.random.below(10) {
                0 => {
                    let wait = Duration::from_millis([0, 0, 200, 1500][self.random.below(4) as usize]);
                    encode::req(&mut peer.input, &id, wait);
                    peer.holds.swap_remove(at);
                    if in_time {
                        self.messages[number as usize].due = self.mono + wait;
                        self.reached.note("requeued");
                    }
                }
                1 => {
                    encode::touch(&mut peer.input, &id);
                    if in_time {
                        peer.holds[at].2 = until.max(self.mono + Duration::from_secs(1));
                        self.reached.note("touched");
                    }
                }
                _ => {
                    encode::fin(&mut peer.input, &id);
                    peer.holds.swap_remove(at);
                    if in_time {
                        self.reached.note("finished");
                        let message = &mut self.messages[number as usize];
                        assert_eq!(message.topic, topic);
                        message.finished.insert(channel);
                        message.owed.remove(&channel);
                    }
                }
            }
            if self.peers[index].holds.is_empty() {
                break;
            }
        }
        self.offer(index);
    }

    fn hang_up(&mut self) {
        let Some(index) = self.pick_peer(|_| true) else { return };
        self.reached.note("disconnected");
        self.close_peer(index);
    }

    fn close_peer(&mut self, index: usize) {
        let now = self.now();
        let peer = &mut self.peers[index];
        peer.closed = true;
        if let Some((shard, id)) = peer.at.take() {
            let mut out = Vec::new();
            self.shards[shard].broker.disconnect(now, id, &mut out);
            self.perform(shard, out);
            self.forget_unused_ephemeral(index);
        }
    }

    /// The last consumer of an ephemeral channel takes the channel with it.
    fn forget_unused_ephemeral(&mut self, index: usize) {
        if let Some(subscription) = self.peers[index].subscription
            && CHANNELS[subscription.1].ends_with("#ephemeral")
        {
            let others = self.peers.iter().any(|peer| !peer.closed && peer.subscription == Some(subscription));
            if !others {
                self.channels.remove(&subscription);
            }
        }
    }

    fn advance(&mut self) {
        let step = Duration::from_millis([1, 20, 300, 2100, 30_000][self.random.below(5) as usize]);
        self.advance_by(step);
    }

    /// Lets time pass, never so much at once that a peer that answers is taken for dead.
    fn advance_by(&mut self, mut left: Duration) {
        while !left.is_zero() {
            let step = left.min(Duration::from_secs(20));
            self.advance_once(step);
            left -= step;
        }
    }

    fn advance_once(&mut self, step: Duration) {
        self.mono += step;
        self.wall_ns += step.as_nanos() as u64;
        for shard in 0..self.shards.len() {
            let now = self.now();
            let mut out = Vec::new();
            self.shards[shard].broker.handle_timeout(now, &mut out);
            self.perform(shard, out);
        }
        // Everyone is alive: a NOP now and then, or the deadline closes them.
        for index in 0..self.peers.len() {
            if !self.peers[index].closed {
                encode::nop(&mut self.peers[index].input);
                self.offer(index);
            }
        }
    }

    fn administer(&mut self) {
        let topic = self.random.below(TOPICS.len() as u64) as usize;
        let channel = self.random.below(2) as usize;
        let (topic_name, name) = (TOPICS[topic], CHANNELS[channel]);
        let shard = place(topic_name, self.shards.len() as u32).0 as usize;
        let now = self.now();
        self.tasks += 1;
        let task = TaskId(self.tasks);
        let mut out = Vec::new();
        let broker = &mut self.shards[shard].broker;
        match self.random.below(12) {
            0 | 1 => {
                let paused = self.random.below(2) == 0;
                if broker.pause_topic(now, topic_name, paused, task, &mut out).is_ok() {
                    self.reached.note("paused");
                    self.note_paused((topic, None), paused);
                }
            }
            2 | 3 => {
                let paused = self.random.below(2) == 0;
                let done = broker.pause_channel(now, topic_name, name, paused, task, &mut out);
                if done.is_ok() {
                    self.note_paused((topic, Some(channel)), paused);
                }
            }
            4 => {
                if broker.empty_channel(now, topic_name, name, task).is_ok() {
                    self.reached.note("emptied");
                    self.forget_owed(topic, Some(channel));
                    self.forget_held(topic, Some(channel));
                }
            }
            5 => {
                if broker.empty_topic(now, topic_name, task).is_ok() {
                    // What waited in the topic is gone; the model does not know which that was.
                    if self.paused.contains(&(topic, None)) || !self.has_channel(topic) {
                        self.forget_owed(topic, None);
                    }
                }
            }
            6 => {
                if broker.delete_channel(now, topic_name, name, task, &mut out).is_ok() {
                    self.reached.note("channel deleted");
                    self.channels.remove(&(topic, channel));
                    self.paused.remove(&(topic, Some(channel)));
                    self.forget_owed(topic, Some(channel));
                }
            }
            7 => {
                if self.random.below(3) == 0 && broker.delete_topic(topic_name, &mut out).is_ok() {
                    self.reached.note("topic deleted");
                    self.channels.retain(|(other, _)| *other != topic);
                    self.paused.retain(|(other, _)| *other != topic);
                    self.forget_owed(topic, None);
                    // Publishes under way are refused or land in the topic's successor.
                    for message in self.messages.iter_mut().filter(|m| m.topic == topic) {
                        message.owed.clear();
                        message.finished.clear();
                    }
                }
            }
            _ => {
                // Counts as existing only once a SUB was answered.
                let _ = broker.create_channel(now, topic_name, channel_name(channel), task, &mut out);
            }
        }
        self.perform(shard, out);
    }

    fn note_paused(&mut self, what: (usize, Option<usize>), paused: bool) {
        if paused {
            self.paused.insert(what);
        } else {
            self.paused.remove(&what);
        }
    }

    fn has_channel(&self, topic: usize) -> bool {
        self.channels.iter().any(|(other, _)| *other == topic)
    }

    fn forget_owed(&mut self, topic: usize, channel: Option<usize>) {
        for message in self.messages.iter_mut().filter(|message| message.topic == topic) {
            match channel {
                Some(channel) => {
                    message.owed.remove(&channel);
                }
                None => message.owed.clear(),
            }
        }
    }

    /// Consumers still hold what was emptied; their answers fail from now on.
    fn forget_held(&mut self, topic: usize, channel: Option<usize>) {
        for peer in &mut self.peers {
            if peer.subscription.is_some_and(|(t, c)| t == topic && channel.is_none_or(|x| x == c)) {
                peer.holds.clear();
            }
        }
    }

    fn fill_disk(&mut self) {
        if self.random.below(3) == 0 {
            let bytes = self.files.bytes() + self.random.below(40_000);
            self.files.limit(Some(bytes));
            self.reached.note("disk full");
        } else {
            self.files.limit(None);
        }
    }

    // --- bytes

    /// Offers a peer's input to its broker, perhaps only a part of it.
    fn offer(&mut self, index: usize) {
        let part = self.random.below(4) == 0;
        let peer = &self.peers[index];
        let length = match part {
            true => self.random.below(peer.input.len() as u64 + 1) as usize,
            false => peer.input.len(),
        };
        self.offer_bytes(index, length);
    }

    fn offer_bytes(&mut self, index: usize, length: usize) {
        let now = self.now();
        let peer = &mut self.peers[index];
        let Some((shard, id)) = peer.at else { return };
        let mut out = Vec::new();
        let consumed =
            self.shards[shard].broker.receive(now, id, &peer.input[..length], &mut out);
        peer.input.drain(..consumed);
        self.perform(shard, out);
    }

    fn peer_of(&self, shard: usize, id: ClientId) -> Option<usize> {
        self.peers.iter().position(|peer| peer.at == Some((shard, id)))
    }

    fn perform(&mut self, shard: usize, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Close(id) | Output::Expired(id) => {
                    if let Some(index) = self.peer_of(shard, id) {
                        self.close_peer(index);
                    }
                }
                Output::Move(id, to) => {
                    if let Some(index) = self.peer_of(shard, id) {
                        self.reached.note("moved");
                        let client = self.shards[shard].broker.detach(id).expect("it is there");
                        self.peers[index].at = None;
                        let inbox = &mut self.shards[to.0 as usize].inbox;
                        inbox.push_back(Mail::Connection(index, Box::new(client)));
                    }
                }
                Output::Resume(id) => {
                    if let Some(index) = self.peer_of(shard, id) {
                        self.reached.note("room awaited");
                        let length = self.peers[index].input.len();
                        self.offer_bytes(index, length);
                    }
                }
                Output::Keeper(key, topic, request) => {
                    self.shards[shard].jobs.push_back((key, topic, request));
                }
                Output::DeleteLog(topic, requests) => {
                    drop(requests);
                    // In order: everything given before is done first.
                    while !self.shards[shard].jobs.is_empty() {
                        self.work_keeper(shard);
                    }
                    let keeper = Keeper::new(self.files.clone(), DATA_PATH);
                    keeper.delete_log(&topic).expect("the disk removes");
                }
                Output::Wake(..) | Output::MetadataChanged | Output::Log(..) => {}
            }
        }
    }

    fn turn(&mut self, shard: usize) {
        loop {
            let now = self.now();
            let mut out = Vec::new();
            self.shards[shard].broker.end_turn(now, &mut out);
            self.perform(shard, out);
            let mut to_flush = Vec::new();
            self.shards[shard].broker.take_clients_to_flush(&mut to_flush);
            for id in to_flush {
                self.flush(shard, id);
            }
            for to in 0..self.shards.len() {
                let to_id = ShardId(to as u32);
                if let Some(batch) = self.shards[shard].broker.take_forwards(to_id) {
                    self.reached.note("forwarded");
                    self.shards[to].inbox.push_back(Mail::Forwards(batch));
                }
                if let Some(replies) = self.shards[shard].broker.take_forward_replies(to_id) {
                    self.shards[to].inbox.push_back(Mail::Replies(replies));
                }
            }
            if !self.shards[shard].broker.is_turn_open() {
                return;
            }
        }
    }

    /// Writes a connection's output, in pieces of any size.
    fn flush(&mut self, shard: usize, id: ClientId) {
        let Some(index) = self.peer_of(shard, id) else { return };
        loop {
            let now = self.now();
            let broker = &mut self.shards[shard].broker;
            let mut slices = [IoSlice::new(&[]); 8];
            let count = broker.output(id, &mut slices);
            let mut bytes: Vec<u8> = Vec::new();
            slices[..count].iter().for_each(|slice| bytes.extend_from_slice(slice));
            if !bytes.is_empty() {
                bytes.truncate(1 + self.random.below(bytes.len() as u64) as usize);
            }
            let sent = broker.sent(now, id, bytes.len());
            self.peers[index].received.extend_from_slice(&bytes);
            self.read_frames(index);
            match sent {
                Sent::More => {}
                Sent::All => return,
                Sent::Over => return self.close_peer(index),
            }
        }
    }

    fn read_frames(&mut self, index: usize) {
        let received = std::mem::take(&mut self.peers[index].received);
        let mut at = 0;
        while let FrameDecoded::Frame { kind, data, consumed } = decode_frame(&received[at..]) {
            at += consumed;
            self.digest = data.iter().fold(self.digest, |digest, byte| {
                (digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
            match kind {
                FrameType::Message => self.take_message(index, data),
                FrameType::Error => self.take_error(index, data),
                FrameType::Response => self.take_response(index, data),
            }
        }
        self.peers[index].received = received[at..].to_vec();
    }

    fn take_response(&mut self, index: usize, data: &[u8]) {
        let peer = &mut self.peers[index];
        match data {
            b"_heartbeat_" => {}
            b"OK" => {
                if let Some(numbers) = peer.awaiting.pop_front() {
                    self.reached.note("acknowledged");
                    if self.group_commit {
                        self.reached.note("synced before OK");
                    }
                    for number in numbers {
                        self.acknowledge(number);
                    }
                } else {
                    assert!(!peer.subscribed, "an OK for nothing");
                    peer.subscribed = true;
                    let subscription = peer.subscription.expect("SUB was sent");
                    self.channels.insert(subscription);
                }
            }
            other => panic!("an answer to nothing: {:?}", String::from_utf8_lossy(other)),
        }
    }

    fn acknowledge(&mut self, number: u64) {
        self.messages[number as usize].acknowledged = true;
    }

    fn take_error(&mut self, index: usize, data: &[u8]) {
        let text = String::from_utf8_lossy(data).into_owned();
        let code = text.split(' ').next().unwrap_or_default();
        match code {
            "E_FIN_FAILED" | "E_REQ_FAILED" | "E_TOUCH_FAILED" => {}
            "E_PUB_FAILED" | "E_MPUB_FAILED" | "E_DPUB_FAILED" | "E_SUB_FAILED" => {
                self.reached.note("refused");
                self.peers[index].awaiting.clear();
            }
            _ => panic!("an error that nobody provoked: {text}"),
        }
    }

    fn take_message(&mut self, index: usize, data: &[u8]) {
        let message = Message::parse(data).expect("a whole message");
        let number = u64::from_be_bytes(message.body[..8].try_into().expect("eight bytes"));
        let (topic, channel) = self.peers[index].subscription.expect("only consumers get messages");
        let tracked = &mut self.messages[number as usize];
        assert_eq!(tracked.topic, topic, "a message stays in its topic");
        assert_eq!(tracked.body, message.body, "byte for byte");
        assert!(!tracked.finished.contains(&channel), "finished messages stay away: {number}");
        assert!(message.attempts >= 1);
        if message.attempts > 1 {
            self.reached.note("redelivered");
        }
        self.reached.note("delivered");
        let elsewhere = self.peers.iter().filter(|peer| !peer.closed).any(|peer| {
            peer.subscription == Some((topic, channel))
                && peer.holds.iter().any(|(_, held, until)| *held == number && *until > self.mono)
        });
        assert!(!elsewhere, "a message has one holder at a time: {number}");
        // Default --msg-timeout: one minute; rounding makes it later, never earlier.
        let until = self.mono + Duration::from_secs(60);
        let peer = &mut self.peers[index];
        let before = peer.holds.len();
        peer.holds.retain(|(_, held, _)| *held != number);
        if peer.holds.len() < before {
            self.reached.note("timed out");
        }
        peer.holds.push((message.id, number, until));
        let open = peer.holds.iter().filter(|(_, _, until)| *until > self.mono).count();
        assert!(open <= 2500 + 60);
    }

    // --- keepers and mail

    fn work_keepers(&mut self, jobs_max: u64) {
        for shard in 0..self.shards.len() {
            for _ in 0..self.random.below(jobs_max + 1) {
                self.work_keeper(shard);
            }
        }
    }

    fn work_keeper(&mut self, shard: usize) {
        let Some((key, topic, request)) = self.shards[shard].jobs.pop_front() else { return };
        for (name, log) in self.shards[shard].broker.logs() {
            if *name == *topic {
                self.files.observe(Path::new(DATA_PATH), name, log);
            }
        }
        let keeper = Keeper::new(self.files.clone(), DATA_PATH);
        let reply: Option<Reply> = keeper.handle(&topic, request);
        if let Some(reply) = reply {
            let now = self.now();
            let mut out = Vec::new();
            self.shards[shard].broker.handle_reply(now, key, reply, &mut out);
            self.perform(shard, out);
        }
    }

    fn deliver_mail(&mut self, count_max: u64) {
        for shard in 0..self.shards.len() {
            for _ in 0..self.random.below(count_max + 1) {
                self.deliver_one(shard);
            }
        }
    }

    fn deliver_one(&mut self, shard: usize) {
        let Some(mail) = self.shards[shard].inbox.pop_front() else { return };
        let now = self.now();
        let mut out = Vec::new();
        match mail {
            Mail::Forwards(batch) => {
                self.shards[shard].broker.handle_forwards(now, &batch, &mut out);
            }
            Mail::Replies(replies) => {
                self.shards[shard].broker.handle_forward_replies(replies, &mut out);
            }
            Mail::Connection(index, client) => {
                if self.peers[index].closed {
                    return;
                }
                let id = self.shards[shard].broker.attach(now, *client);
                self.peers[index].at = Some((shard, id));
                let length = self.peers[index].input.len();
                self.offer_bytes(index, length);
            }
        }
        self.perform(shard, out);
    }

    // --- what must hold

    fn check(&self) {
        for shard in &self.shards {
            shard.broker.check();
        }
    }

    /// Faults stop, everything is consumed: then every acknowledged message must have reached every
    /// channel it is owed to.
    fn drain(&mut self) {
        self.files.limit(None);
        self.settle();
        for index in 0..self.peers.len() {
            if !self.peers[index].closed {
                self.close_peer(index);
            }
        }
        self.settle();
        let owed: Vec<(usize, usize)> = self.channels.iter().copied().collect();
        for (topic, _) in &owed {
            let shard = place(TOPICS[*topic], self.shards.len() as u32).0 as usize;
            let (now, mut out) = (self.now(), Vec::new());
            let broker = &mut self.shards[shard].broker;
            // A channel that is gone with its last consumer needs no unpausing.
            let _ = broker.pause_topic(now, TOPICS[*topic], false, TaskId(0), &mut out);
            for channel in CHANNELS {
                let _ = broker.pause_channel(now, TOPICS[*topic], channel, false, TaskId(0), &mut out);
            }
            self.perform(shard, out);
        }
        for (topic, channel) in owed {
            self.drain_channel(topic, channel);
        }
        for (number, message) in self.messages.iter().enumerate() {
            let durable = |c: &&usize| !CHANNELS[**c].ends_with("#ephemeral");
            let missing: Vec<&usize> = message.owed.iter().filter(durable).collect();
            assert!(
                !message.acknowledged || missing.is_empty(),
                "message {number} of {} was acknowledged and is missing on {missing:?}",
                TOPICS[message.topic]
            );
        }
        self.check();
    }

    fn drain_channel(&mut self, topic: usize, channel: usize) {
        let (now, shards) = (self.now(), self.shards.len() as u32);
        let shard = place(TOPICS[topic], shards).0 as usize;
        let id = self.shards[shard].broker.connect(now, "d:1".to_owned(), "d".to_owned());
        let mut input = b"  V2".to_vec();
        encode::sub(&mut input, topic_name(topic), channel_name(channel));
        encode::rdy(&mut input, 50);
        self.peers.push(Peer {
            at: Some((shard, id)),
            input,
            subscription: Some((topic, channel)),
            ready: 50,
            ..Peer::default()
        });
        let index = self.peers.len() - 1;
        let mut quiet = 0;
        while quiet < 4 {
            let length = self.peers[index].input.len();
            self.offer_bytes(index, length);
            self.settle();
            let holds = std::mem::take(&mut self.peers[index].holds);
            assert!(!self.peers[index].closed, "the last consumer stays");
            if holds.is_empty() {
                // In flight at others, or deferred: comes back.
                self.advance_by(Duration::from_secs(61));
                quiet += 1;
                continue;
            }
            quiet = 0;
            for (id, number, _) in holds {
                encode::fin(&mut self.peers[index].input, &id);
                let message = &mut self.messages[number as usize];
                message.finished.insert(channel);
                message.owed.remove(&channel);
            }
        }
        self.close_peer(index);
        self.settle();
    }

    fn settle(&mut self) {
        for _ in 0..200 {
            let mut busy = false;
            for shard in 0..self.shards.len() {
                while !self.shards[shard].jobs.is_empty() || !self.shards[shard].inbox.is_empty() {
                    busy = true;
                    self.work_keeper(shard);
                    self.deliver_one(shard);
                }
                self.turn(shard);
                busy |= !self.shards[shard].jobs.is_empty() || !self.shards[shard].inbox.is_empty();
            }
            if !busy {
                return;
            }
        }
        panic!("the world does not settle");
    }
}
