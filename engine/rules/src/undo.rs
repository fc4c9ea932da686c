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

use diskq_log::{CheckpointRun, Now, SeqRange};
use std::time::Duration;
use wire::id::Seq;

/// The longest time for which the messages of an emptied channel or topic can be brought back, counted from the first
/// empty. Later empties add messages, and do not prolong the undo beyond this time.
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
    /// The channels of the topic together would get too many ranges and single messages in one turn. A paused topic whose
    /// channels have no newer messages can take them.
    NeedsPause,
    /// All channels of the topic are ephemeral. They would drop most of the messages.
    OnlyEphemeral,
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
/// Invariants: the runs are sorted and lie apart; none is empty; there is a run.
#[derive(Debug, Clone)]
pub(crate) struct Undo {
    /// The time at which the messages are dropped.
    pub(crate) until: Duration,
    /// The same in Unix nanoseconds, as checkpoints have it.
    pub(crate) until_ns: u64,
    /// The time of the first empty, or of the start that restored the undo. The due times of the runs are Unix times of a
    /// clock that was right at this time and was never set since.
    began: Now,
    /// In order.
    runs: Vec<CheckpointRun>,
}

impl Undo {
    /// An undo that begins at `began` and ends at `until`, which is `until_ns` in Unix nanoseconds. The runs may come in
    /// any order. `None`: there is no message.
    pub(crate) fn new(
        began: Now,
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
        let undo = Undo {
            until,
            until_ns,
            began,
            runs,
        };
        (undo.count() > 0).then(|| Box::new(undo))
    }

    /// Adds messages to an undo, or begins one, and keeps it for `time` from now, or until its end if that is later. The
    /// due times of the runs are those of [`Undo::clock`].
    pub(crate) fn extended(
        before: Option<Box<Undo>>,
        now: Now,
        time: Duration,
        mut runs: Vec<CheckpointRun>,
    ) -> Option<Box<Undo>> {
        let began = Undo::clock(before.as_deref(), now);
        let mut until = (now.mono + time).min(began.mono + UNDO_TIME_MAX);
        if let Some(before) = before {
            until = until.max(before.until);
            runs.extend(before.runs);
        }
        Undo::new(began, until, now.unix_time_of(until), runs)
    }

    /// Returns whether the time of the undo is over.
    pub(crate) fn is_over(&self, now: Now) -> bool {
        self.until <= now.mono
    }

    /// The clock of the due times of an undo that exists or begins now.
    pub(crate) fn clock(before: Option<&Undo>, now: Now) -> Now {
        before.map_or(now, |before| before.began)
    }

    /// Returns the time at which messages become due. `due_ns` is that of their run. `None`: they are due, or were never
    /// deferred.
    pub(crate) fn time_to_come(&self, now: Now, due_ns: u64) -> Option<Duration> {
        let due = self.began.due_time(due_ns);
        due.filter(|due| *due > now.mono)
    }

    /// Returns messages of the undo as a checkpoint records them now: with a due time of the wall clock, which may have been
    /// set.
    pub(crate) fn recorded(&self, now: Now, run: &CheckpointRun) -> CheckpointRun {
        let due = self.began.due_time(run.due_ns);
        CheckpointRun {
            due_ns: due.map_or(0, |due| now.unix_time_of(due).max(1)),
            ..*run
        }
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

    /// Returns whether a message of the range can be brought back. The cost grows with the logarithm of the runs.
    pub(crate) fn overlaps(&self, range: SeqRange) -> bool {
        let runs = self.runs();
        let at = runs.partition_point(|run| run.range().end <= range.start);
        runs.get(at)
            .is_some_and(|run| run.range().start < range.end)
    }

    /// Number of messages.
    pub(crate) fn count(&self) -> u64 {
        self.runs.iter().map(|run| run.count).sum()
    }

    /// Number of ranges, and of messages that have attempts or a due time.
    pub(crate) fn entries(&self) -> usize {
        let entries = self
            .runs
            .iter()
            .map(|run| if is_range(run) { 1 } else { run.count as usize });
        entries.sum()
    }

    /// Asserts the invariants written on the type.
    pub(crate) fn check(&self) {
        let mut end = None;
        for range in self.runs.iter().map(CheckpointRun::range) {
            assert!(!range.is_empty() && end <= Some(range.start));
            end = Some(range.end);
        }
        assert!(!self.runs.is_empty(), "an undo has messages");
    }
}

/// Returns whether the messages of a run were never delivered and are due.
pub(crate) fn is_range(run: &CheckpointRun) -> bool {
    run.attempts == 0 && run.due_ns == 0
}
