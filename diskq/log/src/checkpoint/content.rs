//! [`Checkpoint`]: the messages that a topic owes, and the channels to which it owes them.

use wire::id::Seq;

use crate::pause_terms::PauseTerms;
use crate::range::SeqRange;

/// The progress of a topic on disk: the messages that the topic and each of its channels still owe.
///
/// All messages that the log has at or above `next` count as not yet distributed. A message below `next` is owed only
/// where a run names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// All messages below this seq were synced when the checkpoint began. Filled by the log.
    pub synced: Seq,
    /// The first seq this checkpoint knows nothing about. Filled by the log.
    pub next: Seq,
    /// Newer checkpoints have higher numbers. Filled by the log.
    pub number: u64,
    /// True if the topic is paused.
    pub paused: bool,
    /// The terms of the pause.
    pub terms: PauseTerms,
    /// The seqs that the topic has not yet given to any channel, sorted.
    pub undistributed: Vec<CheckpointRun>,
    /// The messages that the topic was emptied of and that can come back. They lie below all messages of
    /// `undistributed`.
    pub undo: Option<UndoCheckpoint>,
    /// The topic's channels.
    pub channels: Vec<ChannelCheckpoint>,
    /// The topic's grace. `None`: the topic is not in grace.
    pub grace: Option<GraceCheckpoint>,
}

/// The part of a [`Checkpoint`] about the grace of a new topic: the messages that every channel gets which is created
/// until the end of the grace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraceCheckpoint {
    /// The end of the grace, in Unix nanoseconds.
    pub until_ns: u64,
    /// The messages, sorted. The topic has given them to the channels that it had.
    pub runs: Vec<CheckpointRun>,
}

/// One channel's part of a [`Checkpoint`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelCheckpoint {
    /// The channel's name.
    pub name: String,
    /// True if the channel is paused.
    pub paused: bool,
    /// The terms of the pause.
    pub terms: PauseTerms,
    /// The messages that the channel still owes its consumers: waiting, in flight, requeued and deferred.
    pub runs: Vec<CheckpointRun>,
    /// The messages that were emptied and can come back. They lie below all messages of `runs`.
    pub undo: Option<UndoCheckpoint>,
}

/// The part of a [`Checkpoint`] or [`ChannelCheckpoint`] about messages that were emptied and can come back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UndoCheckpoint {
    /// The end of the undo, in Unix nanoseconds.
    pub until_ns: u64,
    /// The messages, sorted.
    pub runs: Vec<CheckpointRun>,
}

/// Seqs of one channel that share their attempts and due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointRun {
    /// The first seq.
    pub start: Seq,
    /// The number of seqs.
    pub count: u64,
    /// Deliveries so far.
    pub attempts: u16,
    /// The time from which on the messages may be delivered, in Unix nanoseconds. 0: now.
    pub due_ns: u64,
}

impl Checkpoint {
    /// All ranges of seqs the checkpoint names: a segment that holds any of them stays.
    pub fn named(&self) -> impl Iterator<Item = SeqRange> {
        let runs = self.channels.iter().flat_map(|channel| &channel.runs);
        let undos = self.channels.iter().filter_map(|it| it.undo.as_ref());
        let undos = undos.chain(&self.undo);
        let runs = runs.chain(undos.flat_map(|undo| &undo.runs));
        let runs = runs.chain(self.grace.iter().flat_map(|grace| &grace.runs));
        self.undistributed
            .iter()
            .chain(runs)
            .map(CheckpointRun::range)
    }
}

impl CheckpointRun {
    /// The seqs of the run.
    #[must_use]
    pub fn range(&self) -> SeqRange {
        SeqRange::new(self.start, Seq(self.start.0.saturating_add(self.count)))
    }

    /// Returns whether `next` is the rest of a longer run that begins with this one.
    #[must_use]
    pub fn is_continued_by(&self, next: &CheckpointRun) -> bool {
        self.range().end == next.start
            && (self.attempts, self.due_ns) == (next.attempts, next.due_ns)
    }
}

/// The part of a checkpoint that the log adds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stamp {
    /// Everything below was synced when the checkpoint began.
    pub synced: Seq,
    /// The first seq that the checkpoint knows nothing about.
    pub next: Seq,
    /// The number of the checkpoint.
    pub number: u64,
    /// True if the checkpoint is to be durable.
    pub sync: bool,
}
