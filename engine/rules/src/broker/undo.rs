//! The undo of empty, as an operator asks for it.

use super::Broker;
use super::admin::{AdminError, Outcome};
use super::output::Output;
use crate::ids::{TaskId, TopicKey};
use crate::now::Now;
use diskq_log::plant;

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
                self.topics_to_pump.insert(key, &mut topic.in_to_pump);
                self.out.extend(lines.into_iter().map(Output::warning));
            }
        }
    }
}
