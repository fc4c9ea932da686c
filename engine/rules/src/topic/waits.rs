//! [`Waits`]: the commands and answers that wait for a topic: for room, for its start, for a sync or a checkpoint.

use crate::client::output::Token;
use crate::forward::{ForwardId, WaitingPublish};
use crate::ids::{ClientId, TaskId};
use diskq_log::CheckpointNumber;
use std::collections::VecDeque;
use wire::id::Seq;

/// A client, task or shard that waits for an answer until the keeper has done a sync or a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// An answer promised to a connection.
    Client(ClientId, Token),
    /// A task of the shell, for example an HTTP request.
    Task(TaskId),
    /// A publish that came from another shard.
    Forward(ForwardId),
}

/// A connection or task whose command is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retrier {
    /// A connection.
    Client(ClientId),
    /// A task of the shell.
    Task(TaskId),
}

/// The clients, tasks and shards that wait for a topic or for the keeper.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// Those whose publish found no room.
    pub(crate) for_room: Vec<Retrier>,
    /// Those that wait until the topic has started (only the topic's creator waits for that), or has caught up
    /// ([`Topic::catch_up`](super::Topic::catch_up)).
    pub(crate) for_topic: Vec<Retrier>,
    /// Publishes of other shards that found no room, or the topic not started, in order.
    pub(crate) publishes: VecDeque<WaitingPublish>,
    for_sync: VecDeque<(Seq, Waiter)>,
    for_checkpoint: Vec<(CheckpointNumber, Waiter)>,
}

impl Waits {
    /// Adds a waiter for the sync of all messages below `upto`. The callers add waiters in the order of the messages.
    pub(crate) fn add_for_sync(&mut self, upto: Seq, waiter: Waiter) {
        self.for_sync.push_back((upto, waiter));
    }

    /// Adds a waiter for checkpoint `number`.
    pub(crate) fn add_for_checkpoint(&mut self, number: CheckpointNumber, waiter: Waiter) {
        self.for_checkpoint.push((number, waiter));
    }

    /// Removes and returns the waiters whose messages lie below `synced`.
    pub(crate) fn take_synced(&mut self, synced: Seq) -> Vec<Waiter> {
        let waiting = self.for_sync.iter();
        let count = waiting.take_while(|(upto, _)| *upto <= synced).count();
        let ready = self.for_sync.drain(..count);
        ready.map(|(_, waiter)| waiter).collect()
    }

    /// Removes and returns the waiters for checkpoint `number` or an earlier one. The attempt to write checkpoint
    /// `number` has ended, successfully or not.
    pub(crate) fn take_checkpointed(&mut self, number: CheckpointNumber) -> Vec<Waiter> {
        let waiting = &mut self.for_checkpoint;
        let ready = waiting.extract_if(.., |(wanted, _)| *wanted <= number);
        ready.map(|(_, waiter)| waiter).collect()
    }

    /// Removes and returns all waiters for a sync, because a sync has failed.
    pub(crate) fn take_all_for_sync(&mut self) -> Vec<Waiter> {
        let waiting = self.for_sync.drain(..);
        waiting.map(|(_, waiter)| waiter).collect()
    }

    /// Removes and returns all waiters, because the topic is deleted.
    pub(crate) fn take_all(&mut self) -> Vec<Waiter> {
        let mut waiters = self.take_all_for_sync();
        let waiting = self.for_checkpoint.drain(..);
        waiters.extend(waiting.map(|(_, waiter)| waiter));
        waiters
    }
}
