//! [`Broker`]: the rules of one shard, for its topics and its connections.

pub(crate) mod admin;
mod consume;
pub(crate) mod options;
pub(crate) mod publish;
mod receive;
mod report;
mod to_do;
pub(crate) mod turn;

use crate::channel::dead_letters::{LetterBudget, LettersUnderWay};
use crate::client::output::{Token, Verb};
use crate::client::{Blocked, Client, Clients, Ending};
use crate::forward::Mail;
use crate::ids::{ClientId, ShardId, TopicKey};
use crate::output::{Change, Level, Output, Refusal};
use crate::topic::Topic;
use crate::topic::restore::DueTimes;
use crate::work::Work;
use diskq_log::{Now, Random, Recovered, TopicFacts, plant};
use engine_dedup::RestoredKeys;
use options::BrokerOptions;
use slotmap::SlotMap;
use std::collections::{BTreeMap, BTreeSet};
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
    mail: Mail,
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
            mail: Mail::new(options.shard, options.shards),
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
