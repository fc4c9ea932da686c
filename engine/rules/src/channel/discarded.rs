//! [`Discarded`]: the messages of an emptied or deleted channel, while they are released slice by slice.

use crate::channel::seq_set::SeqSet;
use crate::channel::single_messages::{Deferred, SingleMessage};
use crate::long_queue::LongQueue;
use crate::ranges::Ranges;
use crate::window::Window;
use crate::work::Work;
use diskq_log::{CheckpointRun, Log, SeqRange, plant};
use std::time::Duration;
use wire::id::Seq;

/// Messages that are owed to nobody any more and are still held in the log. Each turn releases a slice of them.
#[derive(Debug, Default)]
pub(crate) struct Discarded {
    pub(crate) waiting: Ranges,
    pub(crate) requeued: LongQueue<SingleMessage>,
    pub(crate) deferred: Deferred,
    pub(crate) window: Window,
    pub(crate) dead_letters: LongQueue<SingleMessage>,
    /// Seqs of these messages.
    pub(crate) out_of_order: SeqSet,
    /// The deferred messages of a topic. They are among the waiting messages, too.
    pub(crate) undistributed_deferred: LongQueue<(Seq, u32)>,
}

impl Discarded {
    /// The messages that are still held.
    pub(crate) fn count(&self) -> u64 {
        let queued = self.waiting.count() + self.requeued.len() as u64;
        let dead = self.dead_letters.len() as u64;
        queued + self.deferred.count() + self.window.count() + dead
    }

    /// Calls `out` for all messages, in no order. `unix_time_of` turns a due time into Unix nanoseconds.
    pub(crate) fn describe(
        &self,
        unix_time_of: impl Fn(Duration) -> u64,
        mut out: impl FnMut(CheckpointRun),
    ) {
        let mut out = |range: SeqRange, attempts: u16, due_ns: u64| {
            out(CheckpointRun {
                attempts,
                ..CheckpointRun::fresh(range, due_ns)
            });
        };
        for range in self.waiting.iter() {
            out(range, 0, 0);
        }
        for message in self.requeued.iter().chain(self.dead_letters.iter()) {
            out(message.range(), message.attempts, 0);
        }
        for entry in self.deferred.iter_behind(None) {
            // 0 means that the message is not deferred.
            let due_ns = unix_time_of(entry.due).max(1);
            out(entry.range(), entry.attempts, due_ns);
        }
        plant!(UndoForgetsFlight, return);
        for (seq, entry) in self.window.iter() {
            out(SeqRange::one(seq), entry.attempts, 0);
        }
    }

    /// Drops a slice of the messages, and releases them in `log`. Returns whether nothing is left.
    pub(crate) fn release_slice(&mut self, log: &mut Log, work: &mut Work) -> bool {
        while work.is_left() {
            work.spend(1);
            let gone = self.waiting.pop();
            let gone = gone.or_else(|| Some(self.requeued.pop_front()?.range()));
            let gone = gone.or_else(|| Some(self.deferred.pop()?.range()));
            let gone = gone.or_else(|| Some(self.dead_letters.pop_front()?.range()));
            let gone = gone.or_else(|| self.window.drop_part());
            if let Some(range) = gone {
                plant!(EmptyKeepsHolds, continue);
                log.release_range(range);
            } else if self.undistributed_deferred.pop_front().is_none()
                && !self.out_of_order.drop_part()
            {
                return true;
            }
        }
        false
    }
}
