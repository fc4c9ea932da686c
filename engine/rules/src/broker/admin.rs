//! The actions of operators on topics of this shard: create, delete, empty, pause.

use super::output::{Change, DeletedLog, Output};
use super::timers::Timer;
use super::{Broker, Found};
use crate::ids::{ChannelId, ClientId, TaskId, TopicKey};
use crate::now::Now;
use crate::pause::Pause;
use crate::topic::{Retrier, Waiter};
use crate::undo::NoUndo;
use std::sync::Arc;
use std::time::Duration;
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
                Found::Ready(_) if topic.is_recorded => Ok(Outcome::Done),
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
                    topic.waiters.add_for_checkpoint(number, Waiter::Task(task));
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
        if undo.is_some() && (topic.ephemeral || topic.channel(id).ephemeral) {
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
        topic.waiters.add_for_checkpoint(number, Waiter::Task(task));
        Outcome::Wait
    }

    /// Lets a task try its command again when the topic has started, or has caught up.
    pub(super) fn try_later(&mut self, key: TopicKey, task: TaskId) -> Outcome {
        self.topics[key].retriers.push(Retrier::Task(task));
        Outcome::Later
    }

    pub(super) fn remove_channel(&mut self, key: TopicKey, id: ChannelId) {
        let topic = &mut self.topics[key];
        let channel = topic.channel(id);
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
        let is_unused = topic.ephemeral && topic.channels().next().is_none();
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
        for (id, channel) in topic.channels() {
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
        self.topics_to_pump.remove(key, &mut topic.in_to_pump);
        self.unhealthy.remove(&key);
        if let Some(at) = topic.timer_at {
            self.timers.remove(&(at, Timer::Topic(key)));
        }
        self.by_name.remove(&topic.name);
        let is_ephemeral = topic.ephemeral;
        let name = topic.name.clone();
        let (log, discarded) = topic.close();
        self.discarded.extend(discarded);
        self.out.push(Output::DeleteLog(DeletedLog {
            topic: name,
            is_ephemeral,
            requests: log.close(),
            task,
        }));
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
        let channel = self.topics[key].find_channel(name);
        Ok((key, channel.ok_or(AdminError::ChannelNotFound)?))
    }
}
