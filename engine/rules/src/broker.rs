//! [`Broker`]: the rules of one shard, for its topics and its connections.

pub(crate) mod admin;
pub(crate) mod options;
pub(crate) mod publish;
mod receive;
mod report;
mod to_do;

use crate::channel::dead_letters::{LetterBudget, LettersUnderWay};
use crate::channel::delivery::Delivery;
use crate::client::output::{Piece, Token, Verb};
use crate::client::{ANSWER_BYTES_MAX, Blocked, Client, Clients, Ending};
use crate::forward::OutgoingMail;
use crate::ids::{ClientId, ShardId, TopicKey};
use crate::output::{Change, Level, Output, Refusal, Wakeup};
use crate::stats::{StatsFilter, StatsSnapshot, UnfinishedSnapshot};
use crate::topic::restore::DueTimes;
use crate::topic::{Retrier, Topic, Waiter};
use crate::work::Work;
use diskq_log::{
    ChannelFacts, CheckpointNumber, Log, Notice, Now, Random, Recovered, Reply, TopicFacts, plant,
};
use engine_dedup::RestoredKeys;
use options::BrokerOptions;
use slotmap::SlotMap;
use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;
use to_do::{Timer, Timers, ToDo};
use wire::error::WireError;
use wire::identify::ClientSettings;
use wire::name::TopicName;

/// A topic whose log could not be opened at the start. It is not served, and nothing of its files is touched.
#[derive(Debug)]
struct SetAside {
    /// The reason, told to clients that ask for the topic.
    cause: Arc<str>,
    /// Its entry in nsqd.dat, which stays there.
    listed: Option<TopicFacts>,
}

/// One shard's broker.
///
/// Invariants: a topic is here only if [`shard_of`] says so; a client's subscription names a topic and
/// channel that list it as a consumer.
///
/// A connection goes only in [`Broker::detach`] and [`Broker::disconnect`], and a topic only in `remove_topic`. Code
/// that runs after a connection or topic was found takes it by its key (`self.clients[id]`), and panics if it is gone.
#[derive(Debug)]
pub struct Broker {
    options: BrokerOptions,
    /// The time of the call that is under way.
    now: Now,
    /// The outputs of the call that is under way. Empty between two calls.
    out: Vec<Output>,
    topics: SlotMap<TopicKey, Topic>,
    by_name: BTreeMap<Arc<str>, TopicKey>,
    clients: Clients,
    random: Random,
    to_do: ToDo,
    /// The remaining budget of this turn.
    work: Work,
    timers: Timers,
    mail: OutgoingMail,
    letters: LettersUnderWay,
    /// The topics whose logs take no messages: a sync has failed, or the keeper cannot make a segment.
    unhealthy: BTreeSet<TopicKey>,
    /// False if no topic and no channel has an undo.
    may_have_undos: bool,
    /// True if the disk had no room for a topic, and the other shards do not know it yet.
    is_disk_full: bool,
    set_aside: BTreeMap<Box<str>, SetAside>,
    /// Every command has a line in the log.
    is_tracing: bool,
    stop: Stop,
    /// Publishes are refused.
    is_draining: bool,
    /// A SUB or publish may be refused: there are auth servers, or this is a drain.
    checks_permits: bool,
}

/// The shard that owns a topic: a stable hash of its name.
pub fn shard_of(topic: impl AsRef<[u8]>, shards: u32) -> ShardId {
    if shards <= 1 {
        return ShardId(0);
    }
    // FNV-1a with a final mix: names differ mostly in their last characters.
    let hash = topic
        .as_ref()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    ShardId(((hash ^ (hash >> 32)) % u64::from(shards)) as u32)
}

/// A topic that was looked up or created by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// The topic can be used.
    Ready(TopicKey),
    /// The topic was created just now and has not started. The command that created it waits for the start; later
    /// commands do not wait.
    Starting(TopicKey),
}

impl Found {
    fn key(self) -> TopicKey {
        match self {
            Found::Ready(key) | Found::Starting(key) => key,
        }
    }
}

/// The state of a connection's output after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// All output was sent.
    All,
    /// Some output is left. Write again when the socket can take it.
    More,
    /// The connection is over. Close it.
    Over,
}

/// The result of carrying out one command. It decides what happens to the command's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    /// The command's bytes are consumed.
    Next,
    /// The command's bytes stay, and are offered again later.
    Retry,
}

/// The progress of the graceful stop (`broker/admin.rs`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stop {
    #[default]
    No,
    /// The connections end.
    Connections,
    /// The logs are synced, and get their last checkpoints.
    Logs,
}

impl Broker {
    /// A broker without topics.
    pub fn new(options: BrokerOptions) -> Broker {
        Broker {
            now: Now {
                mono: Duration::ZERO,
                wall_ns: 0,
            },
            out: Vec::new(),
            topics: SlotMap::default(),
            by_name: BTreeMap::new(),
            clients: Clients::default(),
            random: Random::new(options.seed),
            to_do: ToDo::default(),
            work: Work::new(options.turn_entries),
            timers: Timers::default(),
            mail: OutgoingMail::new(options.shard, options.shards),
            letters: LettersUnderWay::default(),
            unhealthy: BTreeSet::new(),
            may_have_undos: false,
            is_disk_full: false,
            set_aside: BTreeMap::new(),
            is_tracing: false,
            stop: Stop::default(),
            is_draining: false,
            checks_permits: options.server.auth_required,
            options,
        }
    }

    /// Carries out a call of the shell. Meanwhile the broker has the time and the list of outputs itself.
    #[inline(always)]
    fn call<R>(
        &mut self,
        now: Now,
        out: &mut Vec<Output>,
        act: impl FnOnce(&mut Broker) -> R,
    ) -> R {
        self.now = now;
        self.collect(out, act)
    }

    /// Carries out a call that needs no time.
    #[inline(always)]
    fn collect<R>(&mut self, out: &mut Vec<Output>, act: impl FnOnce(&mut Broker) -> R) -> R {
        std::mem::swap(&mut self.out, out);
        let result = act(self);
        std::mem::swap(&mut self.out, out);
        result
    }

    /// Restores a topic of an earlier run from its recovered log. `listed` is the topic's entry in nsqd.dat, if there
    /// is one. Call this before any connection.
    ///
    /// Returns the number of deferred messages whose recorded due times lie too far ahead, because the wall clock was set
    /// back: these messages are due earlier.
    pub fn restore(
        &mut self,
        now: Now,
        name: TopicName<'_>,
        recovered: Recovered,
        listed: Option<&TopicFacts>,
    ) -> u64 {
        let options = self.options.topic.clone();
        let deferral_max = self.options.limits.req_timeout_max;
        let mut times = DueTimes::new(now, recovered.recorded_ns, deferral_max);
        let topic = Topic::restore(name, options, &mut times, recovered, listed);
        self.may_have_undos |= topic.has_undo();
        let name = topic.name.clone();
        let key = self.topics.insert(topic);
        self.by_name.insert(name, key);
        self.pump_later(key);
        times.moved_count
    }

    /// Begins the keys of a topic. Add its saved state and the messages of the log, and then call
    /// [`Broker::restore_keys`]. `None`: the topic does not keep keys over a restart.
    pub fn begin_keys(&self, now: Now, name: TopicName<'_>) -> Option<RestoredKeys> {
        let options = &self.options.topic;
        RestoredKeys::new(&options.dedup, name, now, options.log.process_seed)
    }

    /// Gives a topic the keys of an earlier run. Call after [`Broker::restore`] and before any connection.
    pub fn restore_keys(&mut self, name: TopicName<'_>, keys: RestoredKeys) {
        if let Some(key) = self.by_name.get(name.as_str())
            && let Some(gate) = &mut self.topics[*key].gate
        {
            gate.restore_keys(keys);
        }
    }

    /// Sets aside a topic of an earlier run whose log cannot be opened: clients that ask for the topic are told
    /// `cause`. Call before any connection.
    pub fn set_aside(&mut self, name: TopicName<'_>, cause: &str, listed: Option<TopicFacts>) {
        let cause = cause.into();
        let aside = SetAside { cause, listed };
        self.set_aside.insert(name.as_str().into(), aside);
    }

    // --- connections

    /// Adds a new connection. `address` is `ip:port`. Until IDENTIFY, /stats shows `ip` as the client's id.
    pub fn connect(&mut self, now: Now, address: String, ip: String) -> ClientId {
        self.now = now;
        let settings = ClientSettings::from_server(&self.options.server);
        let connected_at = (now.wall_ns / 1_000_000_000) as i64;
        let mut client = Client::new(address, ip, connected_at, settings);
        client.heard(now.mono);
        self.insert(client)
    }

    fn insert(&mut self, client: Client) -> ClientId {
        let id = self.clients.insert(client);
        self.arm_heartbeat(id);
        self.arm_deadline(id);
        id
    }

    /// Takes a connection out of this shard, to be attached to another one with its unread input.
    ///
    /// # Panics
    /// If it has a subscription, an unanswered command or runs of a log in its output: the broker
    /// asks for a move only without them.
    pub fn detach(&mut self, id: ClientId) -> Option<Client> {
        let mut client = self.clients.remove(id)?;
        self.disarm(id, &mut client);
        assert!(client.consumer.subscription.is_none() && client.output.all_answered());
        assert!(!client.output.queue.holds_runs());
        Some(client)
    }

    /// Takes over a connection that another shard detached.
    pub fn attach(&mut self, now: Now, mut client: Client) -> ClientId {
        self.now = now;
        client.change_shard();
        client.heard(now.mono);
        let id = self.insert(client);
        self.flush_later(id);
        id
    }

    /// Keeps the reason why a connection ends, for the log. The first reason counts.
    pub fn set_end_reason(&mut self, id: ClientId, reason: String) {
        if let Some(client) = self.clients.get_mut(id) {
            client.set_end_reason(reason);
        }
    }

    /// Removes a connection that has ended. Its messages stay in flight until their timeout.
    pub fn disconnect(&mut self, id: ClientId, out: &mut Vec<Output>) {
        self.collect(out, |broker| {
            let Some(mut client) = broker.clients.remove(id) else {
                return;
            };
            broker.disarm(id, &mut client);
            // nsqd logs the end of a client's loop. A client that never sent the magic has no such loop.
            if client.session.magic_seen {
                log_exit(&mut client, &mut broker.out);
            }
            let Some((topic_key, channel_id)) = client.consumer.subscription else {
                return;
            };
            let topic = &mut broker.topics[topic_key];
            plant!(PinsOfTheGone, client.output.queue.clear(drop));
            client.output.queue.clear(|run| topic.log.unpin(run.first));
            let channel = &mut topic.channels[channel_id];
            channel.consumers.remove(id, &mut client);
            if channel.ephemeral && channel.consumers.all.is_empty() {
                broker.remove_channel(topic_key, channel_id);
            } else {
                broker.pump_later(topic_key);
            }
        })
    }

    /// Returns the address of a connection (`ip:port`), for the shell's log lines and bookkeeping.
    pub fn address(&self, id: ClientId) -> Option<&str> {
        self.clients.get(id).map(|client| client.address.as_str())
    }

    /// Number of connections.
    pub fn clients_count(&self) -> usize {
        self.clients.len()
    }

    /// Answers with an error; a fatal one ends the connection.
    fn fail(&mut self, id: ClientId, error: WireError) {
        let client = &mut self.clients[id];
        let line = format!("[{}] - {}", client.address, error.text);
        self.out.push(Output::error(line));
        if error.is_fatal() {
            client.set_end_reason(error.text.clone());
        }
        client.reply_error(error);
        self.flush_later(id);
    }

    /// Answers a publish that the topic's log refuses. The log of nsqd has an ERROR from the moment when the topic's log
    /// began to refuse, so there are few lines about the single publishes.
    fn refuse(&mut self, id: ClientId, error: WireError) {
        let client = &mut self.clients[id];
        self.out.push(refused_publish(&client.address, &error.text));
        client.reply_error(error);
        self.flush_later(id);
    }

    /// Fills in the answer that `reply_later` promised. If the connection was blocked until all its answers were
    /// known, the connection goes on.
    fn resolve(&mut self, id: ClientId, token: Token, result: Result<(), &Refusal>) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        if let Some(text) = client.resolve(token, result) {
            match result {
                Err(Refusal::Log(_) | Refusal::Disk(_)) => {
                    self.out.push(refused_publish(&client.address, &text));
                }
                _ => {
                    let line = format!("[{}] - {text}", client.address);
                    self.out.push(Output::error(line));
                    // The commands whose answers are promised (PUB, MPUB, DPUB, SUB) have only fatal errors.
                    client.set_end_reason(text);
                }
            }
        }
        match client.blocked() {
            Some(Blocked::Subscribing) if client.output.all_answered() => {
                self.resume(id, Blocked::Subscribing);
            }
            // A connection that is ending is not moved: it ends on this shard.
            Some(Blocked::Moving(to))
                if client.output.all_answered() && client.ending() == Ending::No =>
            {
                self.out.push(Output::Move(id, to));
            }
            Some(Blocked::Upgrading)
                if client.output.all_answered() && client.ending() == Ending::No =>
            {
                self.next_upgrade(id);
            }
            _ => {}
        }
        self.flush_later(id);
    }

    /// Lets a connection go on, if `reason` is what it waits for.
    fn resume(&mut self, id: ClientId, reason: Blocked) {
        if let Some(client) = self.clients.get_mut(id)
            && client.unblock(reason)
        {
            self.out.push(Output::Resume(id));
        }
    }

    /// Stops reading a connection and moves it to `to` once all it is owed is answered.
    fn start_move(&mut self, id: ClientId, to: ShardId) {
        let client = &mut self.clients[id];
        client.block(Blocked::Moving(to));
        if client.output.all_answered() {
            self.out.push(Output::Move(id, to));
        }
    }

    // --- to-do lists

    /// Names a topic for the end of the turn: it may have something to deliver, or a job for the keeper.
    fn pump_later(&mut self, key: TopicKey) {
        if let Some(topic) = self.topics.get_mut(key) {
            self.to_do.pump_later(key, topic);
        }
    }

    /// Names a connection whose output is to be written after the turn.
    fn flush_later(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(id) {
            self.to_do.flush_later(id, client);
        }
    }

    // --- topics

    /// Returns the topic of that name, and creates it if it does not exist.
    ///
    /// # Errors
    /// The topic is set aside. The error is the reason.
    fn topic_key(&mut self, name: TopicName<'_>) -> Result<Found, Arc<str>> {
        if let Some(key) = self.by_name.get(name.as_str()) {
            return Ok(Found::Ready(*key));
        }
        if let Some(aside) = self.set_aside.get(name.as_str()) {
            return Err(aside.cause.clone());
        }
        let mut topic = Topic::new(name, self.options.topic.clone());
        topic.started = !self.options.asks_for_channels;
        let shared = topic.name.clone();
        let key = self.topics.insert(topic);
        self.by_name.insert(shared.clone(), key);
        let line = format!("TOPIC({}): created", name.as_str());
        self.out.push(Output::info(line));
        if !name.is_ephemeral() {
            self.out.push(Output::MetadataChanged);
        }
        self.out.push(Output::Changed(Change::topic(&shared, true)));
        if self.options.asks_for_channels {
            self.out.push(Output::AskForChannels(key, shared));
            return Ok(Found::Starting(key));
        }
        Ok(Found::Ready(key))
    }

    /// Returns the topic of a client's command, and creates it if it does not exist.
    ///
    /// # Errors
    /// The topic is set aside, and the client has got the error. Or the topic has not started, and the client waits.
    fn topic_for(
        &mut self,
        id: ClientId,
        verb: Verb,
        name: TopicName<'_>,
    ) -> Result<TopicKey, Flow> {
        match self.topic_key(name) {
            Ok(Found::Ready(key)) => Ok(key),
            Ok(Found::Starting(key)) => Err(self.wait_for_topic(id, key)),
            Err(cause) => {
                self.fail(id, verb.failed(&cause));
                Err(Flow::Next)
            }
        }
    }

    /// Creates a topic if it does not exist, here or on the shard that owns it.
    fn create_topic_at_owner(&mut self, name: TopicName<'_>) {
        let owner = shard_of(name.as_bytes(), self.options.shards);
        if owner == self.options.shard {
            // The command is refused in any case, so the result does not matter.
            let _ = self.topic_key(name);
        } else {
            self.mail.to(owner).push_creation(name);
        }
    }

    /// Asserts the invariants of everything. For tests and simulation.
    pub fn check(&self) {
        for (key, topic) in self.topics.iter() {
            topic.check(&self.clients);
            assert_eq!(self.by_name.get(&topic.name), Some(&key));
            self.to_do.topics_to_pump.check(key, &topic.listed.to_pump);
            assert!(shard_of(&*topic.name, self.options.shards) == self.options.shard);
            assert_eq!(self.unhealthy.contains(&key), topic.log.health().is_some());
        }
        let mut unhealthy = self.unhealthy.iter();
        assert!(unhealthy.all(|key| self.topics.contains_key(*key)));
        let letter_bytes_max = self.options.dead_letter_bytes
            + LetterBudget::bytes_of(self.options.limits.message_bytes_max as usize);
        assert!(
            self.letters.bytes <= letter_bytes_max,
            "too many dead letters are on their way"
        );
        let timers_max = self.topics.len() + 2 * self.clients.len();
        assert!(
            self.timers.len() <= timers_max,
            "timers of things that are gone"
        );
        for (id, client) in self.clients.iter() {
            client.check();
            let timers = &self.timers;
            assert!(timers.is_set(Timer::Heartbeat(id), client.heartbeat_at));
            assert!(timers.is_set(Timer::Deadline(id), client.deadline_at));
            let flushed = &self.to_do.clients_to_flush;
            flushed.check(id, &client.output.in_to_flush);
            if let Some((topic, channel)) = client.consumer.subscription
                && client.ending() == Ending::No
            {
                let channel = &self.topics[topic].channels[channel];
                assert!(channel.consumers.all.contains(&id));
            }
        }
    }
}

/// The end of a turn: deliveries, jobs for the keeper, and what is to be written.
impl Broker {
    /// Delivers what this turn made deliverable, and collects the jobs for the keeper. Call once
    /// after a batch of input; call again while [`Broker::is_turn_open`].
    pub fn end_turn(&mut self, now: Now, out: &mut Vec<Output>) {
        self.call(now, out, |broker| {
            let resident_bytes = broker.options.resident_bytes / broker.by_name.len().max(1) as u64;
            let (mut unfinished, mut unserved) = (Vec::new(), Vec::new());
            broker.deliver_own_forwards();
            let bytes_max = broker.options.dead_letter_bytes;
            let mut letter_budget = LetterBudget::new(broker.letters.bytes, bytes_max);
            for _ in 0..broker.to_do.topics_to_pump.len() {
                let Some(key) = broker.to_do.next_topic(&mut broker.topics) else {
                    break;
                };
                let Some(topic) = broker.topics.get_mut(key) else {
                    continue;
                };
                topic.limit_resident(resident_bytes);
                let mut delivery = Delivery {
                    clients: &mut broker.clients,
                    random: &mut broker.random,
                    topology: broker.options.topology.as_ref(),
                    now: now.mono,
                    letters: &mut letter_budget,
                    to_flush: &mut broker.to_do.clients_to_flush,
                };
                let is_served = delivery.letters.is_left();
                topic.pump(now, &mut broker.work, &mut delivery);
                let letters = std::mem::take(&mut topic.output.dead_letters);
                if topic.has_work_left() {
                    let next = if is_served {
                        &mut unfinished
                    } else {
                        &mut unserved
                    };
                    next.push(key);
                }
                broker
                    .out
                    .extend(topic.output.news.drain(..).map(Output::warning));
                let is_awaited =
                    topic.started && topic.is_caught_up() && !topic.waits.for_topic.is_empty();
                while let Some(request) = topic.log.next_request() {
                    broker
                        .out
                        .push(Output::Keeper(key, topic.name.clone(), request));
                }
                if let Some(at) = topic.next_timeout() {
                    broker.arm_topic(key, at);
                }
                if is_awaited {
                    broker.wake_retriers(key);
                }
                if !letters.is_empty() {
                    broker.send_dead_letters(key, letters);
                }
            }
            broker.deliver_own_forwards();
            // The last one is the first of the next turn. So no topic waits for the dead letters of all others.
            for key in unfinished.into_iter().chain(unserved.into_iter().rev()) {
                broker.pump_later(key);
            }
            broker.work.begin_turn();
        })
    }

    /// True while something is left for [`Broker::end_turn`].
    pub fn is_turn_open(&self) -> bool {
        !self.to_do.topics_to_pump.is_empty()
    }

    /// Returns how many entries of long lists the last turn went through: see
    /// [`BrokerOptions::turn_entries`].
    pub fn entries_spent(&self) -> usize {
        self.work.spent_before()
    }

    /// Takes the list of connections with output to write, in `into`.
    pub fn take_clients_to_flush(&mut self, into: &mut Vec<ClientId>) {
        into.clear();
        while let Some(id) = self.to_do.next_to_flush(&mut self.clients) {
            into.push(id);
        }
    }

    /// The output of a connection, to be written at once: fills `slices` and returns how many.
    pub fn output<'a>(&'a self, id: ClientId, slices: &mut [IoSlice<'a>]) -> usize {
        let Some(client) = self.clients.get(id) else {
            return 0;
        };
        let subscription = client.consumer.subscription;
        let topic = subscription.map(|(key, _)| &self.topics[key]);
        let mut count = 0;
        for (slice, (piece, bytes)) in slices.iter_mut().zip(client.output.queue.pieces()) {
            *slice = IoSlice::new(match piece {
                Piece::Buffer(_) | Piece::Message(_) => bytes,
                Piece::Run(run) => topic
                    .expect("runs belong to the subscribed topic")
                    .log
                    .bytes(&run),
            });
            count += 1;
        }
        count
    }

    /// Notes that the first `bytes` bytes of a connection's output were written; 0 means that the socket took nothing.
    /// The queue of a connection that was cut off is empty, but TLS or compression may still report bytes that it had
    /// taken before.
    pub fn sent(&mut self, now: Now, id: ClientId, bytes: usize, out: &mut Vec<Output>) -> Sent {
        let Some(client) = self.clients.get_mut(id) else {
            return Sent::All;
        };
        if client.ending() == Ending::Now {
            return Sent::Over;
        }
        let subscription = client.consumer.subscription;
        client.output.queue.sent(bytes as u64, |run| {
            let (topic, _) = subscription.expect("runs belong to the subscribed topic");
            self.topics[topic].log.unpin(run.first);
        });
        if client.is_over() {
            return Sent::Over;
        }
        client.output.extend_deadline(now.mono, bytes as u64);
        if client.output.answer_bytes() < ANSWER_BYTES_MAX / 2 && client.unblock(Blocked::Output) {
            // The broker did not read the peer, so the peer does not count as silent.
            client.heard(now.mono);
            out.push(Output::Resume(id));
        }
        let left = if client.output.queue.is_empty() {
            Sent::All
        } else {
            Sent::More
        };
        if bytes > 0 && client.consumer.subscription.is_some() && !client.consumer.in_ready.is_set()
        {
            self.make_ready(id);
        }
        left
    }

    /// Ends a connection without ceremony: its socket failed.
    pub fn abandon(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(id) {
            client.end_now();
        }
    }

    /// Returns after a read how long the next answers of a consumer may gather. `None` if they may not, or
    /// there is output for the consumer.
    pub fn coalescing_delay(&mut self, id: ClientId) -> Option<Duration> {
        let client = self.clients.get_mut(id)?;
        let may_wait = client.output.is_empty();
        client
            .consumer
            .coalescing
            .next_delay(client.consumer.in_flight, may_wait)
    }

    /// True while commands of a connection are carried out as they come.
    pub fn is_reading(&self, id: ClientId) -> bool {
        self.clients
            .get(id)
            .is_some_and(|client| !client.is_stopped())
    }

    /// True when input of `bytes` bytes, which was offered already, has more to be carried out:
    /// [`Broker::receive`] stopped for the sake of other connections.
    pub fn has_more(&self, id: ClientId, bytes: usize) -> bool {
        self.clients
            .get(id)
            .is_some_and(|client| client.takes_input(bytes))
    }

    /// Returns how many bytes of input a connection's unfinished command needs. 0 if that is not known.
    pub fn needs(&self, id: ClientId) -> usize {
        self.clients
            .get(id)
            .map_or(0, |client| client.session.needs())
    }

    /// Returns when [`Broker::handle_timeout`] has something to do; may be early.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.timers.first()
    }
}

/// The effects of the keeper's answers.
impl Broker {
    /// Takes the keeper's answer to a job of a topic's log. If the topic was deleted meanwhile, the memory of the
    /// answer goes back to the keeper ([`Output::Free`]).
    pub fn handle_reply(&mut self, now: Now, key: TopicKey, reply: Reply, out: &mut Vec<Output>) {
        self.call(now, out, |broker| {
            let Some(topic) = broker.topics.get_mut(key) else {
                broker.out.extend(reply.into_memory().map(Output::Free));
                return;
            };
            let mut notices = Vec::new();
            topic.log.handle_reply(now.mono, reply, &mut notices);
            broker.follow_health(key);
            for notice in notices {
                broker.handle_notice(key, notice);
            }
            broker.pump_later(key);
        })
    }

    /// Notes whether a topic's log takes messages, and tells when it takes messages again.
    fn follow_health(&mut self, key: TopicKey) {
        let topic = &self.topics[key];
        if topic.log.health().is_some() {
            self.unhealthy.insert(key);
        } else if self.unhealthy.remove(&key) {
            let what = "takes messages again";
            self.out.push(Output::Repeated {
                level: Level::Info,
                cause: what.to_owned(),
                line: format!("TOPIC({}): {what}", topic.name),
            });
        }
    }

    /// Adds an ERROR line about an action that is tried again. `why` ends with the system's error text. The cause leaves
    /// out the text before it, because that has file names, which differ between topics.
    fn repeat_error(&mut self, what: &str, line: String, why: &str) {
        let answer = why.rsplit(": ").next().unwrap_or(why);
        self.out.push(Output::Repeated {
            level: Level::Error,
            cause: format!("{what}: {answer}"),
            line: format!("{line} - {why}"),
        });
    }

    fn handle_notice(&mut self, key: TopicKey, notice: Notice) {
        let topic = &mut self.topics[key];
        let name = topic.name.clone();
        if let Some(gate) = &mut topic.gate {
            gate.handle_notice(self.now, &mut topic.log, &notice);
        }
        match notice {
            Notice::Room => {
                self.wake_blocked(key);
                self.retry_forwarded(key);
            }
            Notice::RoomRefused { cause, is_new } => self.room_refused(key, cause, is_new),
            Notice::Loaded(_) => topic.channels.pump_all_later(),
            Notice::LoadFailed(seqs, cause) => {
                topic.channels.pump_all_later();
                let line = format!("TOPIC({name}): cannot read {} messages back", seqs.len());
                self.repeat_error("cannot read messages back", line, &cause);
            }
            Notice::SpillFailed(cause) => {
                let what = "a backlog stays in memory";
                self.repeat_error(what, format!("TOPIC({name}): {what}"), &cause);
            }
            Notice::Synced(upto) => {
                for waiter in topic.waits.take_synced(upto) {
                    self.answer(waiter, Ok(()));
                }
            }
            Notice::StateSaved(_) | Notice::TopicFileWritten(Ok(())) => {}
            Notice::StateFailed(_, cause) => {
                let what = "cannot save the numbers of messages";
                let line = format!(
                    "TOPIC({name}): {what}, after a crash messages that are sent again may be stored twice"
                );
                self.repeat_error(what, line, &cause);
            }
            Notice::SyncDelayed(cause) => {
                let what = "sync waits, is tried again";
                self.repeat_error(what, format!("TOPIC({name}) ERROR: {what}"), &cause);
            }
            Notice::SyncFailed(cause) => self.sync_failed(key, cause),
            Notice::Checkpointed { number, synced } => {
                let kept = topic.mark_recorded(number, synced);
                self.checkpoint_ended(key, number, kept.as_ref().copied());
            }
            Notice::CheckpointFailed { number, cause } => {
                let what = "cannot record progress";
                self.repeat_error(what, format!("TOPIC({name}): {what}"), &cause);
                self.checkpoint_ended(key, number, Err(&Refusal::Disk(cause)));
            }
            Notice::TopicFileWritten(Err(cause)) | Notice::TopicFileNotRenamed(cause) => {
                let what = "cannot save the keys of messages";
                let line =
                    format!("TOPIC({name}): {what}, so duplicates may be stored after a crash");
                self.repeat_error(what, line, &cause);
            }
            Notice::Damage(damage) => {
                let line = format!("TOPIC({name}): damaged on disk - {damage}");
                self.out.push(Output::error(line));
            }
        }
    }

    fn room_refused(&mut self, key: TopicKey, cause: Arc<str>, is_new: bool) {
        let topic = &self.topics[key];
        let is_disk_full = topic.log.is_disk_full();
        // Then the topic is unhealthy until the refused messages would find room. Until then, the metrics count
        // what is refused, and the log is silent.
        if is_new {
            let what = "failed to write message to backend";
            let line = format!("TOPIC({}) ERROR: {what}", topic.name);
            self.repeat_error(what, line, &cause);
        }
        // Without the undos, a full disk has more room. Any other failure would stay.
        if is_disk_full {
            self.is_disk_full = true;
            self.drop_all_undos();
        }
        // The blocked clients and tasks publish again, and this time are refused with the reason.
        self.wake_blocked(key);
        self.refuse_forwarded(key, &Refusal::Disk(cause));
    }

    fn sync_failed(&mut self, key: TopicKey, cause: Arc<str>) {
        let topic = &mut self.topics[key];
        let line = format!(
            "TOPIC({}) ERROR: sync failed, no more messages are taken; what is stored is still delivered - {cause}",
            topic.name
        );
        self.out.push(Output::error(line));
        topic.mark_sync_failed();
        for id in topic.copy_runs(&mut self.clients) {
            self.out.push(Output::Close(id));
        }
        let refusal = Refusal::Disk(cause);
        for waiter in topic.waits.take_all_for_sync() {
            self.answer(waiter, Err(&refusal));
        }
        self.wake_blocked(key);
        self.refuse_forwarded(key, &refusal);
    }

    /// Answers the waiters for a checkpoint that was written or could not be.
    fn checkpoint_ended(
        &mut self,
        key: TopicKey,
        number: CheckpointNumber,
        result: Result<(), &Refusal>,
    ) {
        let topic = &mut self.topics[key];
        topic.advance_stop(number);
        for waiter in topic.waits.take_checkpointed(number) {
            self.answer(waiter, result);
        }
    }

    /// Lets the clients and tasks whose publish found no room try again.
    fn wake_blocked(&mut self, key: TopicKey) {
        let retriers = std::mem::take(&mut self.topics[key].waits.for_room);
        self.wake(retriers, Blocked::Room(key));
    }

    /// Lets the clients and tasks that wait for a topic try again. Call this when the topic has started, has caught up,
    /// or was deleted.
    fn wake_retriers(&mut self, key: TopicKey) {
        let retriers = std::mem::take(&mut self.topics[key].waits.for_topic);
        self.wake(retriers, Blocked::Topic(key));
    }

    fn wake(&mut self, retriers: Vec<Retrier>, reason: Blocked) {
        for retrier in retriers {
            match retrier {
                Retrier::Client(id) => self.resume(id, reason),
                Retrier::Task(task) => self.out.push(Output::Wake(task, Wakeup::Retry)),
            }
        }
    }

    fn answer(&mut self, waiter: Waiter, result: Result<(), &Refusal>) {
        match waiter {
            Waiter::Client(id, token) => self.resolve(id, token, result),
            Waiter::Task(task) => {
                self.out.push(Output::Wake(
                    task,
                    Wakeup::Done(result.map_err(Refusal::clone)),
                ));
            }
            Waiter::Forward(id) => self.mail.reply(id, result.map_err(Refusal::clone)),
        }
    }

    /// Refuses everything that waits for a topic, because the topic is being deleted.
    fn refuse_all(&mut self, key: TopicKey) {
        let topic = &mut self.topics[key];
        for waiter in topic.waits.take_all() {
            self.answer(waiter, Err(&Refusal::Exiting));
        }
        self.wake_blocked(key);
        self.wake_retriers(key);
        self.refuse_forwarded(key, &Refusal::Exiting);
    }
}

/// The number of moments in an interval at which heartbeats go out. All connections with the same interval share these
/// moments. So ten thousand idle connections with heartbeats every 30 s wake the shard twice a second instead of three
/// hundred times. A heartbeat is late by at most the time between two moments.
const TICKS_PER_HEARTBEAT: u32 = 64;

/// Heartbeats, read and write deadlines, and the timers of topics.
impl Broker {
    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Now, out: &mut Vec<Output>) {
        self.call(now, out, |broker| {
            while let Some(timer) = broker.timers.pop_due(now.mono) {
                match timer {
                    Timer::Heartbeat(id) => broker.heartbeat(id),
                    Timer::Deadline(id) => broker.deadline(id),
                    Timer::Topic(key) => {
                        let topic = &mut broker.topics[key];
                        topic.listed.timer_at = None;
                        let ended = topic.end_in_time(now);
                        if !ended.is_empty() {
                            broker.out.extend(ended.into_iter().map(Output::info));
                            broker.out.push(Output::MetadataChanged);
                        }
                        topic.handle_timeout(now, &mut broker.clients, &mut broker.work);
                        let grace = topic.grace.as_mut();
                        if grace.is_some_and(|grace| grace.take_question(now))
                            && broker.options.asks_for_channels
                        {
                            broker.out.push(Output::AskAgain(key, topic.name.clone()));
                        }
                        broker.follow_health(key);
                        broker.pump_later(key);
                    }
                }
            }
        })
    }

    /// Has a topic's timer fire at `at`, unless it fires earlier anyway.
    fn arm_topic(&mut self, key: TopicKey, at: Duration) {
        let topic = &mut self.topics[key];
        if topic.listed.timer_at.is_some_and(|armed| armed <= at) {
            return;
        }
        let armed = &mut topic.listed.timer_at;
        self.timers.set(Timer::Topic(key), armed, Some(at));
    }

    /// Sets a client's heartbeat timer, which also checks the write deadline. Called at connect for the write deadline
    /// alone, and for the heartbeats at the magic and at the first IDENTIFY.
    fn arm_heartbeat(&mut self, id: ClientId) {
        let client = &mut self.clients[id];
        let at = client.consumer.settings.heartbeat.map(|interval| {
            let tick = (interval / TICKS_PER_HEARTBEAT).as_nanos().max(1);
            let ticks = (self.now.mono + interval).as_nanos().div_ceil(tick);
            Duration::from_nanos((ticks * tick) as u64)
        });
        let armed = &mut client.heartbeat_at;
        self.timers.set(Timer::Heartbeat(id), armed, at);
    }

    /// Starts a client's read deadline: at connect, and again at each IDENTIFY and upgrade. While an upgrade is under
    /// way, there is no read deadline, but that of [`Broker::upgrade_begins`].
    fn arm_deadline(&mut self, id: ClientId) {
        let client = &self.clients[id];
        let interval = client.session.settings.heartbeat;
        let at = match client.blocked() {
            Some(Blocked::Upgrading) => None,
            _ => interval.map(|interval| self.now.mono + interval * 2),
        };
        self.set_deadline(id, at);
    }

    /// Sets the time by which a client must have sent its next command, or done its part of an upgrade.
    fn set_deadline(&mut self, id: ClientId, at: Option<Duration>) {
        if let Some(client) = self.clients.get_mut(id) {
            let armed = &mut client.deadline_at;
            self.timers.set(Timer::Deadline(id), armed, at);
        }
    }

    /// Forgets the timers of a client that leaves this shard.
    fn disarm(&mut self, id: ClientId, client: &mut Client) {
        let (heartbeat, deadline) = (&mut client.heartbeat_at, &mut client.deadline_at);
        self.timers.set(Timer::Heartbeat(id), heartbeat, None);
        self.timers.set(Timer::Deadline(id), deadline, None);
    }

    fn heartbeat(&mut self, id: ClientId) {
        let client = &mut self.clients[id];
        client.heartbeat_at = None;
        if client.is_overdue(self.now.mono) {
            // Linux reports room in a socket late: when a third of the socket's send buffer is free.
            return self.out.push(Output::WriteExpired(id));
        }
        self.beat(id);
    }

    /// Closes a connection if its output still leaves too slowly. The shell has just written as much as the socket
    /// takes.
    pub fn write_expired(&mut self, now: Now, id: ClientId, out: &mut Vec<Output>) {
        self.call(now, out, |broker| {
            let Some(client) = broker.clients.get_mut(id) else {
                return;
            };
            if client.is_overdue(now.mono) {
                let line = format!(
                    "PROTOCOL(V2): [{}] messagePump error - i/o timeout",
                    client.address
                );
                broker.out.push(Output::error(line));
                client.end_now();
                return broker.out.push(Output::Close(id));
            }
            broker.beat(id);
        })
    }

    /// Sends a heartbeat, and arms the timer of the next one.
    fn beat(&mut self, id: ClientId) {
        let client = &mut self.clients[id];
        if client.ending() == Ending::Now {
            return;
        }
        // A connection that is ending gets no heartbeat, but the timer still checks its write deadline: a peer that
        // reads nothing must not stay for ever. During an upgrade, the peer would take a heartbeat for the upgrade's
        // OK. A peer that has not sent the magic may speak another protocol.
        let is_heard = client.session.magic_seen && client.blocked() != Some(Blocked::Upgrading);
        if client.ending() == Ending::No && is_heard {
            client.output.queue.push_bytes(wire::encode::HEARTBEAT);
            self.flush_later(id);
        }
        self.arm_heartbeat(id);
    }

    fn deadline(&mut self, id: ClientId) {
        let client = &mut self.clients[id];
        client.deadline_at = None;
        if client.ending() != Ending::No {
            return;
        }
        if client.blocked() == Some(Blocked::Upgrading) {
            return self.out.push(Output::UpgradeExpired(id));
        }
        let Some(interval) = client.session.settings.heartbeat else {
            return;
        };
        if client.blocked().is_some() {
            // The broker does not read this client at the moment, so the client does not count as silent.
            client.heard(self.now.mono);
        }
        let at = client.waiting_since + interval * 2;
        if at <= self.now.mono {
            self.out.push(Output::Expired(id));
        } else {
            self.set_deadline(id, Some(at));
        }
    }
}

/// The broker's reports about itself, for /ping, nsqd.dat and the nsqlookupds. broker/report.rs has those for /stats.
impl Broker {
    /// Distributes published messages to the channels, within the turn's budget, so that the depths are those of the
    /// channels. Then takes a snapshot of this shard's topics, channels and connections.
    pub fn distribute_and_snapshot(&mut self, now: Now, filter: &StatsFilter) -> StatsSnapshot {
        let mut unfinished = UnfinishedSnapshot::begin(self, filter);
        while !unfinished.proceed(self, now) {}
        unfinished.finish()
    }

    /// Returns the number of topics of this shard.
    pub fn topics_count(&self) -> usize {
        self.topics.len()
    }

    /// The durable topics and channels, for nsqd.dat; those that are set aside stay as they are listed there.
    pub fn durable_topics(&self) -> Vec<TopicFacts> {
        let set_aside = self.set_aside.values();
        let set_aside = set_aside.filter_map(|aside| aside.listed.as_ref());
        let topics = self.by_name.values().map(|key| &self.topics[*key]);
        topics
            .filter(|topic| !topic.ephemeral)
            .map(|topic| TopicFacts {
                name: topic.name.to_string(),
                paused: topic.pause.is_some(),
                channels: topic
                    .channels
                    .iter()
                    .filter(|(_, channel)| !channel.ephemeral)
                    .map(|(_, channel)| ChannelFacts {
                        name: channel.name.to_string(),
                        paused: channel.pause.is_some(),
                    })
                    .collect(),
            })
            .chain(set_aside.cloned())
            .collect()
    }

    /// Returns the names of the topics, in no order. Topics that are set aside are not among them.
    pub fn topic_names(&self) -> Vec<String> {
        let topics = self.by_name.values().map(|key| &self.topics[*key]);
        topics.map(|topic| topic.name.to_string()).collect()
    }

    /// Every topic and channel that is there and not withdrawn by a drain, as if it came now.
    pub fn changes_so_far(&self) -> Vec<Change> {
        let topics = self.by_name.values().map(|key| &self.topics[*key]);
        topics
            .filter(|topic| !topic.is_withdrawn)
            .flat_map(|topic| topic.changes(true))
            .collect()
    }

    /// Returns why a topic of this shard cannot be published to, if there is such a topic: its log takes no messages,
    /// or the topic is set aside. Cheap enough for every turn.
    pub fn health(&self) -> Option<&Arc<str>> {
        let mut topics = self.unhealthy.iter().map(|key| &self.topics[*key]);
        let reason = topics.find_map(|topic| topic.log.health());
        reason.or_else(|| self.set_aside.values().next().map(|aside| &aside.cause))
    }

    /// The logs of this shard with their topics' names, for the simulation of the disk.
    pub fn logs(&self) -> impl Iterator<Item = (&str, &Log)> {
        let topics = self.topics.values();
        topics.map(|topic| (&*topic.name, &topic.log))
    }
}

/// Makes a line about a publish that a log refuses.
fn refused_publish(address: &str, text: &str) -> Output {
    Output::Repeated {
        level: Level::Warning,
        cause: "a publish is refused".to_owned(),
        line: format!("[{address}] - {text}"),
    }
}

/// The last lines of a connection.
fn log_exit(client: &mut Client, out: &mut Vec<Output>) {
    let reason = client.take_end_reason();
    let address = &client.address;
    let line = format!("PROTOCOL(V2): [{address}] exiting ioloop");
    out.push(Output::info(line));
    if let Some(reason) = reason {
        let line = format!("client({address}) - {reason}");
        out.push(Output::error(line));
    }
    let line = format!("PROTOCOL(V2): [{address}] exiting messagePump");
    out.push(Output::info(line));
}

#[cfg(test)]
mod tests;
