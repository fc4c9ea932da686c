//! [`ToDo`]: what waits for the end of a turn. [`Timers`]: what waits for a time.

use crate::client::{Client, Clients};
use crate::dirty_set::DirtySet;
use crate::ids::{ClientId, TopicKey};
use crate::topic::Topic;
use slotmap::SlotMap;
use std::collections::BTreeSet;
use std::time::Duration;

/// What a shard does at the end of a turn, as far as the turn's budget allows.
#[derive(Debug, Default)]
pub(super) struct ToDo {
    pub(super) topics_to_pump: DirtySet<TopicKey>,
    pub(super) clients_to_flush: DirtySet<ClientId>,
}

impl ToDo {
    /// Names a topic for the end of the turn: it may have something to deliver, or a job for the keeper.
    #[inline]
    pub(super) fn pump_later(&mut self, key: TopicKey, topic: &mut Topic) {
        self.topics_to_pump.insert(key, &mut topic.listed.to_pump);
    }

    /// Names a connection whose output is to be written after the turn.
    #[inline]
    pub(super) fn flush_later(&mut self, id: ClientId, client: &mut Client) {
        self.clients_to_flush
            .insert(id, &mut client.output.in_to_flush);
    }

    /// Takes the topic that was named last for the end of the turn.
    pub(super) fn next_topic(&mut self, topics: &mut SlotMap<TopicKey, Topic>) -> Option<TopicKey> {
        self.topics_to_pump
            .pop_last(|key| Some(&mut topics.get_mut(key)?.listed.to_pump))
    }

    /// Takes the connection that was named first for a write.
    pub(super) fn next_to_flush(&mut self, clients: &mut Clients) -> Option<ClientId> {
        self.clients_to_flush
            .pop_first(|id| Some(&mut clients.get_mut(id)?.output.in_to_flush))
    }
}

/// The purpose of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A heartbeat to a client, and the deadline of its writes.
    Heartbeat(ClientId),
    /// The read deadline of a silent client, or the deadline of the peer's part of an upgrade.
    Deadline(ClientId),
    /// The next timeout, sync or checkpoint of a topic.
    Topic(TopicKey),
}

/// All timers of a shard, by time.
///
/// Each topic has one entry at most and each connection two, whatever happens to them: an entry
/// that is replaced is removed, so neither reconnecting clients nor topics whose next timeout keeps
/// changing leave anything behind.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Duration, Timer)>);

impl Timers {
    /// Moves a timer to `at`, or removes it. `armed` is the time for which the timer is set, and is updated.
    pub(super) fn set(&mut self, timer: Timer, armed: &mut Option<Duration>, at: Option<Duration>) {
        if let Some(before) = armed.take() {
            self.0.remove(&(before, timer));
        }
        if let Some(at) = at {
            self.0.insert((at, timer));
            *armed = Some(at);
        }
    }

    /// Returns when the next timer fires.
    pub(super) fn first(&self) -> Option<Duration> {
        self.0.first().map(|timer| timer.0)
    }

    /// Removes the next timer whose time has come.
    pub(super) fn pop_due(&mut self, now: Duration) -> Option<Timer> {
        let due = self.0.first().is_some_and(|(at, _)| *at <= now);
        let (_, timer) = due.then(|| self.0.pop_first())??;
        Some(timer)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether a timer is set for a time. `None`: the timer is not set at all.
    pub(super) fn is_set(&self, timer: Timer, armed: Option<Duration>) -> bool {
        armed.is_none_or(|at| self.0.contains(&(at, timer)))
    }
}
