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

impl Broker {
    /// Creates a topic if it is not there.
    ///
    /// # Errors
    /// When the topic is set aside.
    pub fn create_topic(
        &mut self,
        name: TopicName<'_>,
        task: TaskId,
        out: &mut Vec<Output>,
    ) -> Result<Outcome, AdminError> {
        self.collect(out, |broker| {
            let found = broker.topic_key(name).map_err(AdminError::SetAside)?;
            let topic = &broker.topics[found.key()];
            match found {
                Found::Ready(_) if topic.checkpoints.is_recorded => Ok(Outcome::Done),
                Found::Ready(key) => Ok(broker.wait_until_recorded(key, task)),
                Found::Starting(key) => Ok(broker.try_later(key, task)),
            }
        })
    }

    /// Deletes a topic with its channels and messages; its consumers are disconnected. A required topic is made again.
    ///
    /// # Errors
    /// When there is no such topic.
    pub fn delete_topic(
        &mut self,
        now: Now,
        name: &str,
        task: TaskId,
        out: &mut Vec<Output>,
    ) -> Result<Outcome, AdminError> {
        self.call(now, out, |broker| {
            let key = broker.find_topic(name)?;
            broker.remove_topic(key, Some(task));
            if let Some(name) = TopicName::new(name.as_bytes()) {
                broker.make_required(name);
            }
            Ok(Outcome::Wait)
        })
    }

    /// Drops the messages that no channel of the topic has been given yet, and those of the topic's grace. With a time in
    /// `undo`, [`Broker::unempty_topic`] can bring the messages back until this time is over. Without a time, the messages
    /// of an earlier undo are dropped, too. The time is at most [`UNDO_TIME_MAX`](crate::UNDO_TIME_MAX).
    ///
    /// # Errors
    /// When there is no such topic, or an undo is not possible. Then nothing was dropped.
    pub fn empty_topic(
        &mut self,
        now: Now,
        name: &str,
        undo: Option<Duration>,
        task: TaskId,
    ) -> Result<Outcome, AdminError> {
        let key = self.find_topic(name)?;
        let topic = &mut self.topics[key];
        if let Some(time) = undo {
            if topic.ephemeral {
                return Err(NoUndo::OfEphemeral.into());
            }
            if !topic.started || topic.is_drafting() {
                return Ok(self.try_later(key, task));
            }
            topic.empty_for(now, time)?;
            self.may_have_undos = true;
            return Ok(self.wait_until_recorded(key, task));
        }
        // An open topic keeps no messages of its own: those on their way belong to the channels.
        if !topic.is_open() {
            topic.empty();
        }
        topic.drop_topic_undo();
        topic.empty_grace(now);
        Ok(self.wait_until_recorded(key, task))
    }

    /// Stops the flow from a topic to its channels, or starts the flow if `pause` is `None`.
    ///
    /// # Errors
    /// When there is no such topic.
    pub fn pause_topic(
        &mut self,
        now: Now,
        name: &str,
        pause: Option<&Pause>,
        task: TaskId,
        out: &mut Vec<Output>,
    ) -> Result<Outcome, AdminError> {
        let key = self.find_topic(name)?;
        let topic = &mut self.topics[key];
        if !topic.catch_up(now, &self.clients, &mut self.work) {
            return Ok(self.try_later(key, task));
        }
        topic.set_pause(now, pause);
        out.push(Output::MetadataChanged);
        Ok(self.wait_until_recorded(key, task))
    }

    /// Creates a channel if it is not there.
    ///
    /// # Errors
    /// When there is no such topic.
    pub fn create_channel(
        &mut self,
        now: Now,
        topic: &str,
        channel: ChannelName<'_>,
        task: TaskId,
        out: &mut Vec<Output>,
    ) -> Result<Outcome, AdminError> {
        self.call(now, out, |broker| {
            let key = broker.find_topic(topic)?;
            let Some(id) = broker.channel_id(key, channel) else {
                return Ok(broker.try_later(key, task));
            };
            let topic = &mut broker.topics[key];
            match topic.unrecorded(id) {
                Some(number) => {
                    topic.waits.add_for_checkpoint(number, Waiter::Task(task));
                    broker.pump_later(key);
                    Ok(Outcome::Wait)
                }
                None => Ok(Outcome::Done),
            }
        })
    }

    /// Deletes a channel with its messages; its consumers are disconnected. A required channel is made again.
    ///
    /// # Errors
    /// When there is no such topic or channel.
    pub fn delete_channel(
        &mut self,
        now: Now,
        topic: &str,
        channel: &str,
        task: TaskId,
        out: &mut Vec<Output>,
    ) -> Result<Outcome, AdminError> {
        self.call(now, out, |broker| {
            let (key, id) = broker.find_channel(topic, channel)?;
            let is_required = broker.options.required.has_channel(topic, channel);
            // The next channel of this name must not get what is on its way to this one.
            if is_required && !broker.topics[key].catch_up(now, &broker.clients, &mut broker.work) {
                return Ok(broker.try_later(key, task));
            }
            broker.remove_channel(key, id);
            if is_required && let Some(name) = TopicName::new(topic.as_bytes()) {
                broker.make_required(name);
            }
            Ok(broker.wait_until_recorded(key, task))
        })
    }

    /// Drops a channel's messages: waiting, deferred and in flight. With a time in `undo`, [`Broker::unempty_channel`] can
    /// bring the messages back until this time is over. Without a time, the messages of an earlier undo are dropped, too.
    /// The time is at most [`UNDO_TIME_MAX`](crate::UNDO_TIME_MAX).
    ///
    /// # Errors
    /// When there is no such topic or channel, or an undo is not possible. Then nothing was dropped.
    pub fn empty_channel(
        &mut self,
        now: Now,
        (topic, channel): (&str, &str),
        undo: Option<Duration>,
        task: TaskId,
    ) -> Result<Outcome, AdminError> {
        let (key, id) = self.find_channel(topic, channel)?;
        let topic = &mut self.topics[key];
        if undo.is_some() && (topic.ephemeral || topic.channels[id].ephemeral) {
            return Err(NoUndo::OfEphemeral.into());
        }
        let is_caught_up = topic.catch_up(now, &self.clients, &mut self.work);
        if !is_caught_up || undo.is_some() && topic.is_drafting() {
            return Ok(self.try_later(key, task));
        }
        match undo {
            Some(time) => {
                topic.empty_channel_for(now, id, time, &mut self.clients)?;
                self.may_have_undos = true;
            }
            None => topic.empty_channel(id, &mut self.clients),
        }
        Ok(self.wait_until_recorded(key, task))
    }

    /// Stops the delivery of a channel to its consumers, or starts the delivery if `pause` is `None`.
    ///
    /// # Errors
    /// When there is no such topic or channel.
    pub fn pause_channel(
        &mut self,
        now: Now,
        topic: &str,
        channel: &str,
        pause: Option<&Pause>,
        task: TaskId,
        out: &mut Vec<Output>,
    ) -> Result<Outcome, AdminError> {
        let (key, id) = self.find_channel(topic, channel)?;
        let topic = &mut self.topics[key];
        topic.set_channel_pause(id, now, pause);
        out.push(Output::MetadataChanged);
        Ok(self.wait_until_recorded(key, task))
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

    pub(super) fn find_channel(
        &self,
        topic: &str,
        name: &str,
    ) -> Result<(TopicKey, ChannelId), AdminError> {
        let key = self.find_topic(topic)?;
        let channel = self.topics[key].channels.find(name);
        Ok((key, channel.ok_or(AdminError::ChannelNotFound)?))
    }
}

/// The undo of empty, as an operator asks for it.
impl Broker {
    /// Brings the messages back that a channel was emptied of.
    ///
    /// # Errors
    /// When there is no such topic or channel, or no undo.
    pub fn unempty_channel(
        &mut self,
        now: Now,
        topic: &str,
        channel: &str,
        task: TaskId,
    ) -> Result<Outcome, AdminError> {
        let (key, id) = self.find_channel(topic, channel)?;
        let topic = &mut self.topics[key];
        if topic.is_drafting() {
            return Ok(self.try_later(key, task));
        }
        topic.unempty_channel(now, id)?;
        Ok(self.wait_for_use(key, task))
    }

    /// Brings the messages back that a topic was emptied of. The topic gives them to the channels that it has now, or
    /// keeps them if it is not open.
    ///
    /// # Errors
    /// When there is no such topic, or its undo cannot be used. Then nothing was changed.
    pub fn unempty_topic(
        &mut self,
        now: Now,
        name: &str,
        task: TaskId,
    ) -> Result<Outcome, AdminError> {
        let key = self.find_topic(name)?;
        let topic = &mut self.topics[key];
        if !topic.catch_up(now, &self.clients, &mut self.work) || topic.is_drafting() {
            return Ok(self.try_later(key, task));
        }
        topic.unempty(now, &self.clients)?;
        Ok(self.wait_for_use(key, task))
    }

    fn wait_for_use(&mut self, key: TopicKey, task: TaskId) -> Outcome {
        plant!(UnemptyBeforeCheckpoint, return Outcome::Done);
        self.wait_until_recorded(key, task)
    }

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
