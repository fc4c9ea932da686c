//! [`Undo`]: the messages that a channel or topic was emptied of, while an operator can still bring them back.
//!
//! ```text
//!   channel: waiting, requeued, deferred, in flight ──empty──► undo ──unempty──► channel
//!                                                               └──its time is over, or the disk is full──► gone
//! ```
//!
//! The log holds these messages as it held them for the channel. So their segments stay, and no message is copied. The
//! channel gets only later messages after it was emptied, so all seqs of the undo lie below those of the channel.
//!
//! The undo of a topic has messages that no channel had got. Its seqs lie below those that the topic keeps now. Channels
//! may have older and newer messages.

use diskq_log::{CheckpointRun, SeqRange};
use std::time::Duration;
use wire::id::Seq;

/// The longest time for which an emptied channel or topic can be restored.
pub const UNDO_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// The most entries of an undo: ranges, and messages that have attempts or a due time. An operator's command goes through
/// all of them in one turn, which takes less than 1 ms. They take 512 KiB of memory.
pub(crate) const UNDO_ENTRIES_MAX: usize = 16_384;

/// The reason why a topic or channel cannot be emptied with an undo, or why its undo cannot be used. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoUndo {
    /// The topic or channel was not emptied with an undo, or the undo has ended.
    NotFound,
    /// Ephemeral topics and channels have no undo.
    OfEphemeral,
    /// There would be too many ranges and single messages.
    TooLarge,
    /// The disk has no room, so nothing is kept for an undo.
    NoRoom,
    /// The topic is new and keeps its messages for channels that exist elsewhere. These copies have no undo.
    InGrace,
    /// The topic is paused, and its channels have messages that are newer than those of the topic's undo.
    OfPaused,
    /// A channel was emptied later, and its undo has messages that are newer than those of the topic's undo.
    ChannelFirst,
}

/// The messages that a channel or topic was emptied of.
///
/// Invariants: the runs are sorted and lie apart; none is empty; `count` is the sum of their lengths; there is a run.
#[derive(Debug, Clone)]
pub(crate) struct Undo {
    /// The time at which the messages are dropped.
    pub(crate) until: Duration,
    /// The same in Unix nanoseconds, as checkpoints have it.
    pub(crate) until_ns: u64,
    runs: Vec<CheckpointRun>,
    count: u64,
}

impl Undo {
    /// An undo that ends at `until`. The runs may come in any order. `None`: there is no message.
    pub(crate) fn new(
        until: Duration,
        until_ns: u64,
        mut runs: Vec<CheckpointRun>,
    ) -> Option<Box<Undo>> {
        runs.sort_unstable_by_key(|run| run.start);
        runs.dedup_by(|next, run| {
            let is_rest = run.is_continued_by(next);
            if is_rest {
                run.count += next.count;
            }
            is_rest
        });
        let count = runs.iter().map(|run| run.count).sum();
        let undo = Undo {
            until,
            until_ns,
            runs,
            count,
        };
        (count > 0).then(|| Box::new(undo))
    }

    /// The first seq.
    pub(crate) fn first(&self) -> Seq {
        self.runs[0].start
    }

    /// One past the last seq.
    pub(crate) fn end(&self) -> Seq {
        self.runs[self.runs.len() - 1].range().end
    }

    /// The runs in order.
    pub(crate) fn runs(&self) -> &[CheckpointRun] {
        &self.runs
    }

    /// The runs in order, as the last use of the undo.
    pub(crate) fn into_runs(self) -> Vec<CheckpointRun> {
        self.runs
    }

    /// Number of messages.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Number of ranges, and of messages that have attempts or a due time.
    pub(crate) fn entries(&self) -> usize {
        let entries = self.runs.iter().map(|run| match is_range(run) {
            true => 1,
            false => run.count as usize,
        });
        entries.sum()
    }

    /// Asserts the invariants written on the type.
    pub(crate) fn check(&self) {
        let mut end = None;
        for range in self.runs.iter().map(CheckpointRun::range) {
            assert!(!range.is_empty() && end <= Some(range.start));
            end = Some(range.end);
        }
        let count: u64 = self.runs.iter().map(|run| run.count).sum();
        assert_eq!(count, self.count);
        assert!(count > 0, "an undo has messages");
    }
}

/// Returns whether the messages of a run were never delivered and are due.
pub(crate) fn is_range(run: &CheckpointRun) -> bool {
    run.attempts == 0 && run.due_ns == 0
}

/// Describes messages of an undo. `due_ns` is 0 if they are not deferred.
pub(crate) fn undo_run(range: SeqRange, attempts: u16, due_ns: u64) -> CheckpointRun {
    CheckpointRun {
        start: range.start,
        count: range.len(),
        attempts,
        due_ns,
    }
}
