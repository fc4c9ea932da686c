//! The way of published messages to the channels.

use super::Topic;
use super::unfinished_checkpoint::owed_run;
use crate::client::Clients;
use crate::now::Now;
use crate::work::Work;
use diskq_log::SeqRange;
use std::time::Duration;

impl Topic {
    /// Gives published messages to the channels. The cost is that of the range ends and of the deferred messages,
    /// whatever the number of the others. Messages beyond the turn's budget stay. But the budget always covers
    /// as many deferred messages as were published since the last call: otherwise a flood of deferred messages would
    /// leave more of them behind each turn.
    pub(crate) fn distribute(&mut self, now: Now, clients: &Clients, work: &mut Work) {
        let new_deferred = std::mem::take(&mut self.new_deferred);
        if self.undistributed.is_empty() {
            return;
        }
        if !self.can_distribute() {
            return self.bound_unclaimed(now, work);
        }
        let channels = self.by_name.len();
        work.ensure((new_deferred + 1) * channels);
        while let Some(range) = self.undistributed.front()
            && work.is_left()
        {
            work.spend(channels);
            match self.undistributed_deferred.front().copied() {
                // The message was found in a file that start-up did not read: no channel has it.
                Some((seq, _)) if seq < range.start => {
                    self.undistributed_deferred.pop_front();
                }
                Some((seq, ms)) if seq < range.end => {
                    self.undistributed_deferred.pop_front();
                    self.give(seq.since(range.start), clients);
                    let due = now.mono + Duration::from_millis(u64::from(ms));
                    self.give_deferred(now, due);
                }
                _ => self.give(range.len(), clients),
            }
        }
        self.bound_grace(now, work);
        self.make_checkpoint_due();
    }

    /// Gives published messages to the channels, before a change of which channels get messages. Returns false if the
    /// turn's budget is too small for all of them. Then the change has to wait: the remaining messages are owed to the
    /// channels as they are before the change.
    #[must_use]
    pub(crate) fn catch_up(&mut self, now: Now, clients: &Clients, work: &mut Work) -> bool {
        work.begin_share();
        self.distribute(now, clients, work);
        self.is_caught_up()
    }

    /// True when no message is on its way to the channels. The messages that a topic keeps because it is not open are
    /// not on their way.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.undistributed.is_empty() || !self.is_open()
    }

    /// True when published messages belong to the channels. A topic that is not open keeps them.
    pub(crate) fn is_open(&self) -> bool {
        self.started && !self.paused && !self.by_name.is_empty()
    }

    /// True when messages may pass to the channels in this turn.
    pub(super) fn can_distribute(&self) -> bool {
        let unfinished = self.unfinished.as_ref();
        self.is_open() && !unfinished.is_some_and(|checkpoint| checkpoint.is_past_channels())
    }

    /// Gives the first `count` of the undistributed to every channel.
    fn give(&mut self, count: u64, clients: &Clients) {
        if count == 0 {
            return;
        }
        let range = self.take_undistributed(count, 0);
        self.keep_in_grace(range, None);
        let depth_max = self.options.mem_queue_size;
        for (id, channel) in &mut self.channels {
            channel.accept(range, depth_max, clients, &mut self.log);
            if channel.wants_pump() {
                self.channels_to_pump.insert(id, &mut channel.in_to_pump);
            }
        }
    }

    /// Gives the first of the undistributed to every channel, to be delivered when it is due.
    fn give_deferred(&mut self, now: Now, due: Duration) {
        let due_ns = now.unix_time_of(due);
        let range = self.take_undistributed(1, due_ns);
        self.keep_in_grace(range, Some(due));
        let seq = range.start;
        for channel in self.channels.values_mut() {
            channel.defer(seq, due);
        }
        self.lower_deadline(Some(due));
    }

    /// Takes messages that every channel, and the grace, holds from now on.
    fn take_undistributed(&mut self, count: u64, due_ns: u64) -> SeqRange {
        let range = self.undistributed.take_front(count);
        let holders = self.by_name.len() + usize::from(self.grace.is_some());
        if holders > 1 {
            self.log.retain(range, holders as u64 - 1);
        }
        if let Some(unfinished) = &mut self.unfinished {
            unfinished.add_given(&mut self.log, owed_run(range, due_ns));
        }
        range
    }

    /// An ephemeral topic that cannot pass messages on keeps --mem-queue-size of them.
    pub(super) fn drop_beyond_memory(&mut self) {
        while self.undistributed.count() > self.options.mem_queue_size {
            let Some(seq) = self.undistributed.pop_newest() else {
                return;
            };
            let newest = self.undistributed_deferred.back();
            if newest.is_some_and(|(deferred, _)| *deferred == seq) {
                self.undistributed_deferred.pop_back();
            }
            self.log.release(seq);
        }
    }
}
