//! The undo of empty, as an operator asks for it.

use super::Broker;
use super::admin::{AdminError, Outcome};
use super::output::Output;
use crate::ids::TaskId;
use crate::now::Now;
use crate::undo::NoUndo;
use std::time::Duration;

impl Broker {
    /// Drops a channel's messages, as [`Broker::empty_channel`] does, but keeps them for `time`, so that
    /// [`Broker::unempty_channel`] can bring them back. `time` is at most [`UNDO_TIME_MAX`](crate::UNDO_TIME_MAX).
    ///
    /// # Errors
    /// When there is no such topic or channel, or an undo is not possible. Then nothing was dropped.
    pub fn empty_channel_for(
        &mut self,
        now: Now,
        topic: &str,
        channel: &str,
        time: Duration,
        task: TaskId,
    ) -> Result<Outcome, AdminError> {
        let (key, id) = self.find_channel(topic, channel)?;
        let topic = &mut self.topics[key];
        if topic.ephemeral || topic.channel(id).ephemeral {
            return Err(AdminError::UndoOfEphemeral);
        }
        if !topic.catch_up(now, &self.clients, &mut self.work) || topic.is_drafting() {
            return Ok(self.try_later(key, task));
        }
        let emptied = topic.empty_channel_for(now, id, time, &mut self.clients);
        emptied.map_err(|why| match why {
            NoUndo::TooLarge => AdminError::UndoTooLarge,
            NoUndo::NoRoom => AdminError::UndoNoRoom,
        })?;
        self.may_have_undos = true;
        Ok(self.wait_until_recorded(key, task))
    }

    /// Makes the messages pending again that a channel was emptied of.
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
        match topic.unempty_channel(now, id) {
            true => Ok(self.wait_until_recorded(key, task)),
            false => Err(AdminError::UndoNotFound),
        }
    }

    /// Drops the messages of the undos of all topics of the shard: the disk has no room.
    pub(super) fn drop_undos(&mut self, out: &mut Vec<Output>) {
        if !std::mem::take(&mut self.may_have_undos) {
            return;
        }
        for (key, topic) in &mut self.topics {
            let lines = topic.drop_undos();
            if !lines.is_empty() {
                self.topics_to_pump.insert(key, &mut topic.in_to_pump);
                out.extend(lines.into_iter().map(Output::warning));
            }
        }
    }
}
