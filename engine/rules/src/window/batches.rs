//! [`Batches`]: the deadlines of messages in flight, for one timeout value.

use crate::long_queue::LongQueue;
use std::time::Duration;

use diskq_log::SeqRange;

/// Messages with the same deadline: they were delivered, or touched, at about the same time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    pub(super) deadline: Duration,
    pub(super) seqs: SeqRange,
}

/// The batches of one timeout value, the earliest deadline first.
///
/// A sweep drops the batches that no message needs any more. Each call of [`Batches::sweep`] goes a few batches
/// further: `kept` has the batches that the sweep has checked and kept, `batches` those that it has not reached.
#[derive(Debug)]
pub(super) struct Batches {
    pub(super) timeout: Duration,
    kept: LongQueue<Batch>,
    batches: LongQueue<Batch>,
}

impl Batches {
    pub(super) fn new(timeout: Duration) -> Batches {
        Batches {
            timeout,
            kept: LongQueue::default(),
            batches: LongQueue::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len() + self.batches.len()
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&Batch> {
        self.kept.front().or_else(|| self.batches.front())
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut Batch> {
        self.kept.front_mut().or_else(|| self.batches.front_mut())
    }

    pub(super) fn pop_front(&mut self) -> Option<Batch> {
        self.kept.pop_front().or_else(|| self.batches.pop_front())
    }

    /// Adds a batch, or extends the last batch. Returns true if the batch was added.
    #[inline]
    pub(super) fn push(&mut self, batch: Batch) -> bool {
        if let Some(last) = self.batches.back_mut()
            && last.deadline == batch.deadline
            && last.seqs.end == batch.seqs.start
        {
            last.seqs.end = batch.seqs.end;
            return false;
        }
        self.batches.push_back(batch);
        true
    }

    /// Goes on with the sweep, for at most `most` batches. Returns how many batches were dropped.
    pub(super) fn sweep(&mut self, most: usize, is_needed: impl Fn(&Batch) -> bool) -> usize {
        let mut dropped = 0;
        for _ in 0..most {
            let Some(batch) = self.batches.pop_front() else {
                std::mem::swap(&mut self.kept, &mut self.batches);
                break;
            };
            if is_needed(&batch) {
                self.kept.push_back(batch);
            } else {
                dropped += 1;
            }
        }
        dropped
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Batch> {
        self.kept.iter().chain(self.batches.iter())
    }
}
