//! The actions of operators on topics of this shard: create, delete, empty, pause, drain, stop, and peek.

use super::to_do::Timer;
use super::{Broker, Flow, Found, Stop, shard_of};
use crate::client::{Blocked, Client};
use crate::drain::Owed;
use crate::ids::{ChannelId, ClientId, TaskId, TopicKey};
use crate::output::{Change, DeletedLog, Output};
use crate::pause::Pause;
use crate::peek::{
    Candidate, CandidateState, LogEnd, PeekBudget, PeekFrom, PeekQuestion, PeekSlice, PeekState,
    PeekedFrame, PeekedMessage,
};
use crate::topic::{Retrier, Topic, Waiter};
use crate::undo::NoUndo;
use diskq_log::{Look, Now, Request, plant};
use std::sync::Arc;
use std::time::Duration;
use wire::id::{MessageId, Seq};
use wire::name::{ChannelName, TopicName};

/// The topic or channel that an operator named cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminError {
    /// No topic of that name.
    TopicNotFound,
    /// No channel of that name in the topic.
    ChannelNotFound,
    /// An undo is not possible.
    NoUndo(NoUndo),
    /// The topic is not served, for this reason.
    SetAside(Arc<str>),
}

impl From<NoUndo> for AdminError {
    fn from(why: NoUndo) -> AdminError {
        AdminError::NoUndo(why)
    }
}

/// The progress of an operator's command, or of a publish for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The change is made, and survives a crash.
    Done,
    /// The change is made. The task is woken when the change survives a crash.
    Wait,
    /// Nothing was changed. The task is woken to try again when the topic has started, or has caught up: the
    /// messages on their way to the channels have arrived.
    Later,
}

/// An operator's act on a topic, or on a channel of the topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Creates the topic or channel, if it is not there.
    Create,
    /// Deletes the topic with its channels and messages, or the channel with its messages. Its consumers are disconnected.
    /// What is required is made again.
    Delete,
    /// Drops the messages that no channel of the topic has been given yet, and those of the topic's grace. Or drops the
    /// channel's messages: waiting, deferred and in flight. With a time, [`Act::Unempty`] can bring the messages back until
    /// this time is over. Without a time, the messages of an earlier undo are dropped, too. The time is at most
    /// [`UNDO_TIME_MAX`](crate::UNDO_TIME_MAX).
    Empty(Option<Duration>),
    /// Brings the messages back that the topic or channel was emptied of. A topic gives them to the channels that it has
    /// now, or keeps them if it is not open.
    Unempty,
    /// Stops the flow from the topic to its channels, or the delivery of the channel to its consumers. `None` starts it
    /// again.
    Pause(Option<Pause>),
}

impl Broker {
    /// Carries out an act on a topic, or on a channel of the topic. The task is woken as the result says.
    ///
    /// # Errors
    /// There is no such topic or channel, the topic is set aside, or an undo is not possible. Then nothing was changed.
    pub fn administer(
        &mut self,
        now: Now,
        (topic, channel): (TopicName<'_>, Option<ChannelName<'_>>),
        act: &Act,
        task: TaskId,
        out: &mut Vec<Output>,
    ) -> Result<Outcome, AdminError> {
        self.call(now, out, |broker| {
            if let (None, Act::Create) = (channel, act) {
                return broker.create_topic(topic, task);
            }
            let key = broker.find_topic(topic.as_str())?;
            match (channel, act) {
                (None, Act::Delete) => {
                    broker.remove_topic(key, Some(task));
                    broker.make_required(topic);
                    return Ok(Outcome::Wait);
                }
                (Some(channel), Act::Create) => {
                    return Ok(broker.create_channel(key, channel, task));
                }
                _ => {}
            }
            let is_changed = match channel {
                None => broker.change_topic(key, act)?,
                Some(channel) => {
                    let id = broker.topics[key].channels.find(channel.as_str());
                    let id = id.ok_or(AdminError::ChannelNotFound)?;
                    broker.change_channel((key, topic), (id, channel), act)?
                }
            };
            if !is_changed {
                return Ok(broker.try_later(key, task));
            }
            if *act == Act::Unempty {
                plant!(UnemptyBeforeCheckpoint, return Ok(Outcome::Done));
            }
            Ok(broker.wait_until_recorded(key, task))
        })
    }

    fn create_topic(&mut self, name: TopicName<'_>, task: TaskId) -> Result<Outcome, AdminError> {
        let found = self.topic_key(name).map_err(AdminError::SetAside)?;
        let topic = &self.topics[found.key()];
        match found {
            Found::Ready(_) if topic.checkpoints.is_recorded => Ok(Outcome::Done),
            Found::Ready(key) => Ok(self.wait_until_recorded(key, task)),
            Found::Starting(key) => Ok(self.try_later(key, task)),
        }
    }

    fn create_channel(&mut self, key: TopicKey, name: ChannelName<'_>, task: TaskId) -> Outcome {
        let Some(id) = self.channel_id(key, name) else {
            return self.try_later(key, task);
        };
        let topic = &mut self.topics[key];
        match topic.unrecorded(id) {
            Some(number) => {
                topic.waits.add_for_checkpoint(number, Waiter::Task(task));
                self.pump_later(key);
                Outcome::Wait
            }
            None => Outcome::Done,
        }
    }

    /// Empties or pauses a topic, or ends that. Returns false, and changes nothing, if the topic has to start, to catch up,
    /// or to end a checkpoint first.
    fn change_topic(&mut self, key: TopicKey, act: &Act) -> Result<bool, NoUndo> {
        let (now, topic) = (self.now, &mut self.topics[key]);
        match act {
            Act::Empty(Some(time)) => {
                if topic.ephemeral {
                    return Err(NoUndo::OfEphemeral);
                }
                if !topic.started || topic.is_drafting() {
                    return Ok(false);
                }
                topic.empty_for(now, *time)?;
                self.may_have_undos = true;
            }
            Act::Empty(None) => {
                // An open topic keeps no messages of its own: those on their way belong to the channels.
                if !topic.is_open() {
                    topic.empty();
                }
                topic.drop_topic_undo();
                topic.empty_grace(now);
            }
            Act::Unempty => {
                let is_caught_up = topic.catch_up(now, &self.clients, &mut self.work);
                if !is_caught_up || topic.is_drafting() {
                    return Ok(false);
                }
                topic.unempty(now, &self.clients)?;
            }
            Act::Pause(pause) => {
                if !topic.catch_up(now, &self.clients, &mut self.work) {
                    return Ok(false);
                }
                topic.set_pause(now, pause.as_ref());
                self.out.push(Output::MetadataChanged);
            }
            Act::Create | Act::Delete => unreachable!("they are no changes"),
        }
        Ok(true)
    }

    /// Empties, pauses or deletes a channel, or ends that. Returns false as [`Broker::change_topic`].
    fn change_channel(
        &mut self,
        (key, topic_name): (TopicKey, TopicName<'_>),
        (id, name): (ChannelId, ChannelName<'_>),
        act: &Act,
    ) -> Result<bool, NoUndo> {
        let (now, topic) = (self.now, &mut self.topics[key]);
        match act {
            Act::Delete => {
                let required = &self.options.required;
                let is_required = required.has_channel(topic_name.as_str(), name.as_str());
                // The next channel of this name must not get what is on its way to this one.
                if is_required && !topic.catch_up(now, &self.clients, &mut self.work) {
                    return Ok(false);
                }
                self.remove_channel(key, id);
                if is_required {
                    self.make_required(topic_name);
                }
            }
            Act::Empty(undo) => {
                if undo.is_some() && (topic.ephemeral || topic.channels[id].ephemeral) {
                    return Err(NoUndo::OfEphemeral);
                }
                let is_caught_up = topic.catch_up(now, &self.clients, &mut self.work);
                if !is_caught_up || undo.is_some() && topic.is_drafting() {
                    return Ok(false);
                }
                match undo {
                    Some(time) => {
                        topic.empty_channel_for(now, id, *time, &mut self.clients)?;
                        self.may_have_undos = true;
                    }
                    None => topic.empty_channel(id, &mut self.clients),
                }
            }
            Act::Unempty => {
                if topic.is_drafting() {
                    return Ok(false);
                }
                topic.unempty_channel(now, id)?;
            }
            Act::Pause(pause) => {
                topic.set_channel_pause(id, now, pause.as_ref());
                self.out.push(Output::MetadataChanged);
            }
            Act::Create => unreachable!("it is no change"),
        }
        Ok(true)
    }

    /// Has a change recorded and the task woken when that is done.
    pub(super) fn wait_until_recorded(&mut self, key: TopicKey, task: TaskId) -> Outcome {
        self.pump_later(key);
        // An ephemeral topic is gone if its last channel was deleted.
        let Some(topic) = self.topics.get_mut(key).filter(|topic| !topic.ephemeral) else {
            return Outcome::Done;
        };
        let number = topic.request_promised_checkpoint();
        topic.waits.add_for_checkpoint(number, Waiter::Task(task));
        Outcome::Wait
    }

    /// Lets a task try its command again when the topic has started, or has caught up.
    pub(super) fn try_later(&mut self, key: TopicKey, task: TaskId) -> Outcome {
        self.topics[key].waits.for_topic.push(Retrier::Task(task));
        Outcome::Later
    }

    pub(super) fn remove_channel(&mut self, key: TopicKey, id: ChannelId) {
        let topic = &mut self.topics[key];
        let channel = &topic.channels[id];
        let line = format!("TOPIC({}): deleting channel {}", topic.name, channel.name);
        self.out.push(Output::info(line));
        let line = format!("CHANNEL({}): deleting", channel.name);
        self.out.push(Output::info(line));
        if !channel.ephemeral && !topic.ephemeral {
            self.out.push(Output::MetadataChanged);
        }
        let change = Change::channel(&topic.name, &channel.name, false);
        self.out.push(Output::Changed(change));
        let consumers = topic.delete_channel(id, &mut self.clients);
        let is_unused = topic.ephemeral && topic.channels.iter().next().is_none();
        self.cut_off(key, consumers);
        if is_unused {
            self.remove_topic(key, None);
        } else {
            self.pump_later(key);
        }
    }

    fn remove_topic(&mut self, key: TopicKey, task: Option<TaskId>) {
        let topic = &self.topics[key];
        let line = format!("TOPIC({}): deleting", topic.name);
        self.out.push(Output::info(line));
        let mut channels = Vec::new();
        for (id, channel) in topic.channels.iter() {
            let line = format!("CHANNEL({}): deleting", channel.name);
            self.out.push(Output::info(line));
            let change = Change::channel(&topic.name, &channel.name, false);
            self.out.push(Output::Changed(change));
            channels.push(id);
        }
        self.out
            .push(Output::Changed(Change::topic(&topic.name, false)));
        for id in channels {
            let consumers = self.topics[key].delete_channel(id, &mut self.clients);
            self.cut_off(key, consumers);
        }
        self.refuse_all(key);
        let Some(mut topic) = self.topics.remove(key) else {
            return;
        };
        self.to_do
            .topics_to_pump
            .remove(key, &mut topic.listed.to_pump);
        self.unhealthy.remove(&key);
        let armed = &mut topic.listed.timer_at;
        self.timers.set(Timer::Topic(key), armed, None);
        self.by_name.remove(&topic.name);
        self.out.push(Output::DeleteLog(DeletedLog {
            topic: topic.name.clone(),
            is_ephemeral: topic.ephemeral,
            requests: std::mem::take(&mut topic.log).close(),
            task,
        }));
        // The topic may have lists of millions of messages.
        let name = topic.name.clone();
        let drop = Request::Drop(Box::new(topic));
        self.out.push(Output::Keeper(key, name, drop));
    }

    /// Closes the connections of a channel that is gone.
    fn cut_off(&mut self, key: TopicKey, consumers: Vec<ClientId>) {
        let topic = &mut self.topics[key];
        for id in consumers {
            let client = &mut self.clients[id];
            client.output.queue.clear(|run| topic.log.unpin(run.first));
            client.end_now();
            client.consumer.channel_gone();
            self.out.push(Output::Close(id));
        }
    }

    pub(super) fn find_topic(&self, name: &str) -> Result<TopicKey, AdminError> {
        match self.by_name.get(name) {
            Some(key) => Ok(*key),
            None => Err(match self.set_aside.get(name) {
                Some(aside) => AdminError::SetAside(aside.cause.clone()),
                None => AdminError::TopicNotFound,
            }),
        }
    }
}

/// The undos of a shard whose disk is full.
impl Broker {
    /// Returns whether the disk has refused room to a topic since the last call. Then all other shards are to call
    /// [`Broker::drop_undos`]: their undos may be what fills the disk.
    #[must_use]
    pub fn take_full_disk(&mut self) -> bool {
        std::mem::take(&mut self.is_disk_full)
    }

    /// Drops the messages of the undos of all topics of the shard: the disk has no room.
    pub fn drop_undos(&mut self, out: &mut Vec<Output>) {
        self.collect(out, Broker::drop_all_undos);
    }

    pub(super) fn drop_all_undos(&mut self) {
        if !std::mem::take(&mut self.may_have_undos) {
            return;
        }
        for (key, topic) in &mut self.topics {
            let lines = topic.drop_undos();
            if !lines.is_empty() {
                self.to_do.pump_later(key, topic);
                self.out.extend(lines.into_iter().map(Output::warning));
            }
        }
    }
}

/// The start of a new topic. The topic gets the channels that nsqlookupd knows of. So a channel gets the first
/// messages, too, although its consumers have not found this node yet.
///
/// ```text
///   created ──Output::AskForChannels──► the shell asks ──► handle_channels: channels, then messages
///      └─ keeps what is published meanwhile; only the client or task that created it waits
/// ```
///
/// If an nsqlookupd gave no answer, the topic begins its grace (`topic/grace.rs`), and asks again from time to time.
impl Broker {
    /// Makes the required topics and channels of this shard that are not there. Call before any connection.
    pub fn make_all_required(&mut self, now: Now, out: &mut Vec<Output>) {
        self.call(now, out, |broker| {
            let required = broker.options.required.clone();
            for topic in required.topics() {
                if shard_of(topic.as_bytes(), broker.options.shards) == broker.options.shard {
                    broker.make_required(topic);
                }
            }
        })
    }

    /// Makes a topic and its channels if they are required and not there.
    pub(super) fn make_required(&mut self, topic: TopicName<'_>) {
        let required = self.options.required.clone();
        let Some(channels) = required.channels(topic.as_str()) else {
            return;
        };
        let before = self.out.len();
        // A topic that is set aside has its line in the log.
        let Ok(found) = self.topic_key(topic) else {
            return;
        };
        for channel in channels {
            let made = self.channel_id(found.key(), channel);
            debug_assert!(made.is_some(), "the topic is new, or has caught up");
        }
        if self.out.len() > before {
            let line = format!("TOPIC({}): made what --create lists", topic.as_str());
            self.out.push(Output::info(line));
        }
    }

    /// Decides whether later topics ask for channels before they start. They ask if there is an nsqlookupd on the list.
    pub fn set_asks_for_channels(&mut self, asks: bool) {
        self.options.asks_for_channels = asks;
    }

    /// Takes the channels that a topic has elsewhere, and makes those that are not there. A new topic starts. If not
    /// every nsqlookupd has answered (`is_complete` is false), the new topic begins its grace. Does nothing for a topic
    /// that was deleted meanwhile: its deletion has answered the clients and tasks that waited.
    pub fn handle_channels(
        &mut self,
        now: Now,
        key: TopicKey,
        channels: &[ChannelName<'_>],
        is_complete: bool,
        out: &mut Vec<Output>,
    ) {
        self.call(now, out, |broker| {
            for name in channels {
                let Some(topic) = broker.topics.get(key) else {
                    return;
                };
                let is_deleted = topic
                    .grace
                    .as_ref()
                    .is_some_and(|grace| grace.has_deleted(name.as_str()));
                if !is_deleted && broker.channel_id(key, *name).is_none() {
                    debug_assert!(
                        broker.topics[key].started,
                        "a topic that has not started keeps its messages"
                    );
                    if let Some(grace) = &mut broker.topics[key].grace {
                        grace.ask_soon(now);
                    }
                }
            }
            let Some(topic) = broker.topics.get_mut(key).filter(|topic| !topic.started) else {
                return;
            };
            topic.started = true;
            if !is_complete && topic.begin_grace(now) {
                let line = format!(
                    "TOPIC({}): not every nsqlookupd has answered, so a channel that is made \
                     within --new-topic-grace gets all messages",
                    topic.name
                );
                broker.out.push(Output::info(line));
            }
            broker.wake_retriers(key);
            broker.retry_forwarded(key);
            broker.pump_later(key);
        })
    }

    /// Lets a client wait until a topic has started, or has caught up. Then the client's command is tried again.
    pub(super) fn wait_for_topic(&mut self, id: ClientId, key: TopicKey) -> Flow {
        self.clients[id].block(Blocked::Topic(key));
        self.topics[key].waits.for_topic.push(Retrier::Client(id));
        Flow::Retry
    }
}

/// The drain of this shard. The shard refuses publishes, and serves consumers until no message is owed.
///
/// A topic that owes nothing is withdrawn from the nsqlookupds. A topic that still has messages stays there, so that
/// its consumers find this node.
impl Broker {
    /// Begins a drain, or takes it back. Publishes that wait for room are refused, too.
    pub fn set_draining(&mut self, is_draining: bool, out: &mut Vec<Output>) {
        self.collect(out, |broker| {
            if is_draining == broker.is_draining {
                return;
            }
            broker.is_draining = is_draining;
            broker.checks_permits = is_draining || broker.options.server.auth_required;
            let keys = broker.by_name.values().copied().collect::<Vec<_>>();
            for key in keys {
                if is_draining {
                    broker.wake_blocked(key);
                    broker.refuse_in_drain(key);
                } else {
                    broker.announce_again(key);
                }
            }
        })
    }

    /// Returns what this shard still owes. Withdraws topics that owe nothing from the nsqlookupds. Call this from time to
    /// time in a drain.
    pub fn drain(&mut self, now: Now, out: &mut Vec<Output>) -> Owed {
        let mut owed = Owed::default();
        // The shard that has these messages now may have been asked before it got them.
        owed.waiting += std::mem::take(&mut self.letters.moved_count);
        for key in self.by_name.values() {
            let topic = &mut self.topics[*key];
            let before = owed.total();
            topic.add_owed(now, &mut owed);
            if self.is_draining && owed.total() == before && !topic.is_withdrawn {
                topic.is_withdrawn = true;
                out.extend(topic.changes(false).rev().map(Output::Changed));
            }
        }
        owed
    }

    /// Announces a topic that was withdrawn.
    pub(super) fn announce_again(&mut self, key: TopicKey) {
        let topic = &mut self.topics[key];
        if std::mem::take(&mut topic.is_withdrawn) {
            self.out.extend(topic.changes(true).map(Output::Changed));
        }
    }
}

/// The graceful stop of this shard.
///
/// ```text
///   begin_stop: every connection ends ──► drive_stop: the last connection is gone
///                                              └─► each log is synced and has its last checkpoint
/// ```
///
/// The shards of a process do not stop at the same moment. From [`Broker::begin_stop`] on, a shard takes no publish any
/// more, not even one that comes from a shard that still serves clients: its sender would get an OK for a message that
/// no sync covers.
impl Broker {
    /// Begins the stop: ends every connection, and takes no publish any more.
    pub fn begin_stop(&mut self, out: &mut Vec<Output>) {
        self.stop = Stop::Connections;
        for (id, client) in &mut self.clients {
            client.end_now();
            out.push(Output::Close(id));
        }
    }

    /// Returns true after [`Broker::begin_stop`]. Then nothing new may begin, and no connection may come.
    pub fn is_stopping(&self) -> bool {
        self.stop != Stop::No
    }

    /// Does the next step of the stop. Returns true while a connection is left or a log is not durable: call
    /// [`Broker::end_turn`], perform the jobs, and call this again.
    pub fn drive_stop(&mut self, now: Now, out: &mut Vec<Output>) -> bool {
        if self.stop == Stop::Connections && self.clients.is_empty() {
            self.stop = Stop::Logs;
            self.announce_end(out);
        }
        let mut is_unfinished = self.stop == Stop::Connections;
        if self.stop == Stop::Logs {
            for (key, topic) in &mut self.topics {
                if topic.drive_stop(now) {
                    is_unfinished = true;
                    self.to_do.pump_later(key, topic);
                }
            }
        }
        is_unfinished
    }

    /// Says in the log which topics and channels end.
    fn announce_end(&self, out: &mut Vec<Output>) {
        let mut say = |line| out.push(Output::info(line));
        for (_, topic) in self.topics.iter() {
            say(format!("TOPIC({}): closing", topic.name));
            for (_, channel) in topic.channels.iter() {
                say(format!("CHANNEL({}): closing", channel.name));
            }
        }
    }
}

/// Peeks: slices of a channel's or topic's messages. A peek changes nothing: it borrows the broker only to read.
impl Broker {
    /// Returns a slice of messages. The cost is bounded by the question's budget.
    ///
    /// # Errors
    /// There is no such topic or channel.
    pub fn peek(&self, now: Now, question: &PeekQuestion) -> Result<PeekSlice, AdminError> {
        let topic = &self.topics[self.find_topic(&question.topic)?];
        let PeekQuestion {
            from,
            place,
            budget,
            ..
        } = question;
        let candidates = match &question.channel {
            None => topic.candidates(*from, *place, budget),
            Some(name) => {
                let id = topic
                    .channels
                    .find(name)
                    .ok_or(AdminError::ChannelNotFound)?;
                topic.channels[id].candidates(*from, *place, budget)
            }
        };
        let mut slice = PeekSlice {
            next: candidates.next,
            passed: candidates.passed,
            log_end: matches!(from, PeekFrom::Published { .. }).then(|| self.log_end(topic)),
            ..PeekSlice::default()
        };
        let found = &candidates.found;
        let frames = frames_within(topic, found.iter().map(|candidate| candidate.seq), budget);
        for (candidate, frame) in found.iter().zip(frames) {
            slice.messages.push(self.peeked(now, candidate, frame));
        }
        let count = slice.messages.len();
        if count < found.len()
            && let Some(last) = found[..count].last()
        {
            slice.next = Some(last.next);
            slice.passed = last.passed;
        }
        Ok(slice)
    }

    fn log_end(&self, topic: &Topic) -> LogEnd {
        let newest = Seq(topic.log.next_seq().0.saturating_sub(1));
        LogEnd {
            newest,
            newest_id: MessageId::new(newest, self.options.topic.log.node),
            message_count: topic.counters.totals.messages,
            first: topic.counters.first_seq,
        }
    }

    fn peeked(&self, now: Now, candidate: &Candidate, frame: PeekedFrame) -> PeekedMessage {
        let state = match candidate.state {
            CandidateState::Waiting => PeekState::Waiting,
            CandidateState::Requeued => PeekState::Requeued,
            CandidateState::Published { is_finished } => PeekState::Published { is_finished },
            CandidateState::DeferredFor(ms) => PeekState::DeferredFor(ms),
            CandidateState::Due(due) => PeekState::DeferredUntil(unix_ns(now, due)),
            CandidateState::InFlight(entry) => {
                let client = self.clients.get(entry.owner);
                let names =
                    |client: &Client| (client.address.clone(), client.session.client_id.clone());
                PeekState::InFlight {
                    client: client.map(names),
                    since_ns: unix_ns(now, entry.delivered),
                    until_ns: unix_ns(now, entry.deadline),
                }
            }
        };
        PeekedMessage {
            seq: candidate.seq,
            id: MessageId::new(candidate.seq, self.options.topic.log.node),
            attempts: candidate.attempts,
            state,
            frame,
            next: candidate.next,
        }
    }
}

/// Returns the frames of messages until the bytes of the budget end. The first one comes in any case.
fn frames_within(
    topic: &Topic,
    seqs: impl Iterator<Item = Seq>,
    budget: &PeekBudget,
) -> impl Iterator<Item = PeekedFrame> {
    let mut left = None;
    seqs.map_while(move |seq| {
        let frame = frame_of(topic, seq, budget);
        let bytes = frame.copied_bytes();
        let room = left.unwrap_or(budget.bytes_max.max(bytes));
        left = Some(room.checked_sub(bytes)?);
        Some(frame)
    })
}

fn frame_of(topic: &Topic, seq: Seq, budget: &PeekBudget) -> PeekedFrame {
    match topic.log.look(seq) {
        Look::Frame(frame) => {
            let copied = &frame[..frame.len().min(budget.frame_bytes_max)];
            PeekedFrame::Copied(copied.to_vec(), frame.len())
        }
        Look::Cold(cold) => PeekedFrame::Cold(cold),
        Look::Damaged => PeekedFrame::Damaged,
        Look::Gone => PeekedFrame::Gone,
    }
}

/// Returns the Unix time of a moment on the monotonic clock, in nanoseconds.
fn unix_ns(now: Now, at: Duration) -> u64 {
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    match at.checked_sub(now.mono) {
        Some(until) => now.wall_ns.saturating_add(nanos(until)),
        None => now.wall_ns.saturating_sub(nanos(now.mono - at)),
    }
}
