//! [`CheckpointOf`]: the messages that a topic owes, and the channels to which it owes them.

use std::iter;

use wire::id::Seq;

use super::runs::{CheckpointRun, Runs};
use crate::range::SeqRange;

/// Encoding and writing a draft of this many runs takes about a millisecond.
const SHORT_RUNS: usize = 16_384;

/// The terms of a pause, which an operator gave: its end, a note, and a name. All of them may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PauseTerms {
    /// The time at which the pause ends by itself, in Unix nanoseconds. 0: the pause has no end.
    pub until_ns: u64,
    /// The time that the operator asked for, in nanoseconds. 0: the pause has no end.
    pub length_ns: u64,
    /// The reason for the pause. Empty: none was given. At most 65,535 bytes are recorded.
    pub note: String,
    /// The name of the operator. Empty: none was given. At most 65,535 bytes are recorded.
    pub by: String,
}

/// The progress of a topic: the messages that the topic and each of its channels still owe. `L` is a list of them.
///
/// All messages that the log has at or above `next` count as not yet distributed. A message below `next` is owed only
/// where a run names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointOf<L> {
    /// All messages below this seq were synced when the checkpoint began. Filled by the log.
    pub synced: Seq,
    /// The first seq this checkpoint knows nothing about. Filled by the log.
    pub next: Seq,
    /// Newer checkpoints have higher numbers. Filled by the log.
    pub number: u64,
    /// True if the topic is paused.
    pub paused: bool,
    /// The terms of the pause. They are not recorded without a pause.
    pub terms: PauseTerms,
    /// The seqs that the topic has not yet given to any channel, sorted.
    pub undistributed: L,
    /// The messages that the topic was emptied of and that can come back. They lie below all messages of
    /// `undistributed`.
    pub undo: Option<TimedRuns<L>>,
    /// The topic's channels.
    pub channels: Vec<ChannelCheckpointOf<L>>,
    /// The topic's grace: the messages that every channel gets which is created until its end. The topic has given them
    /// to the channels that it had. `None`: the topic is not in grace.
    pub grace: Option<TimedRuns<L>>,
}

/// One channel's part of a [`CheckpointOf`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelCheckpointOf<L> {
    /// The channel's name.
    pub name: String,
    /// True if the channel is paused.
    pub paused: bool,
    /// The terms of the pause. They are not recorded without a pause.
    pub terms: PauseTerms,
    /// The messages that the channel still owes its consumers: waiting, in flight, requeued and deferred.
    pub runs: L,
    /// The messages that were emptied and can come back. They lie below all messages of `runs`.
    pub undo: Option<TimedRuns<L>>,
}

/// Messages that a topic or channel keeps until a time: a grace, or an undo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimedRuns<L> {
    /// The end, in Unix nanoseconds.
    pub until_ns: u64,
    /// The messages, sorted.
    pub runs: L,
}

/// A checkpoint that was read.
pub type Checkpoint = CheckpointOf<Vec<CheckpointRun>>;
/// One channel's part of a [`Checkpoint`].
pub type ChannelCheckpoint = ChannelCheckpointOf<Vec<CheckpointRun>>;
/// The part of a [`Checkpoint`] about the grace of a new topic.
pub type GraceCheckpoint = TimedRuns<Vec<CheckpointRun>>;
/// The part of a [`Checkpoint`] or [`ChannelCheckpoint`] about messages that were emptied and can come back.
pub type UndoCheckpoint = TimedRuns<Vec<CheckpointRun>>;

/// A checkpoint while its topic puts it together.
///
/// A topic that owes millions of single messages puts its checkpoint together a slice per turn. Encoding a draft is the
/// keeper's work. A message may change its state while the draft grows, and be named once in its old state and once in
/// its new one. The later entry of a list counts, so the file names each message once.
pub type CheckpointDraft = CheckpointOf<Runs>;
/// One channel's part of a [`CheckpointDraft`].
pub type ChannelDraft = ChannelCheckpointOf<Runs>;
/// The part of a [`CheckpointDraft`] about the topic's grace.
pub type GraceDraft = TimedRuns<Runs>;
/// The part of a [`CheckpointDraft`] or [`ChannelDraft`] about messages that were emptied and can come back.
pub type UndoDraft = TimedRuns<Runs>;

/// The part of a checkpoint that is not about messages: the channels, what is paused, and the ends of the topic's grace
/// and of undos. An answered change of an operator changes this part.
pub type Roster = CheckpointOf<()>;

impl<L> CheckpointOf<L> {
    pub(super) fn lists(&self) -> impl Iterator<Item = &L> {
        let channels = self.channels.iter().map(|channel| &channel.runs);
        let undos = self.channels.iter().filter_map(|it| it.undo.as_ref());
        let timed = undos.chain(&self.undo).chain(&self.grace);
        iter::once(&self.undistributed)
            .chain(channels)
            .chain(timed.map(|timed| &timed.runs))
    }

    /// The checkpoint with other lists.
    pub(super) fn with_lists<'a, M>(&'a self, list: impl Fn(&'a L) -> M) -> CheckpointOf<M> {
        let timed = |timed: &'a TimedRuns<L>| TimedRuns {
            until_ns: timed.until_ns,
            runs: list(&timed.runs),
        };
        let channel = |channel: &'a ChannelCheckpointOf<L>| ChannelCheckpointOf {
            name: channel.name.clone(),
            paused: channel.paused,
            terms: channel.terms.clone(),
            runs: list(&channel.runs),
            undo: channel.undo.as_ref().map(timed),
        };
        CheckpointOf {
            synced: self.synced,
            next: self.next,
            number: self.number,
            paused: self.paused,
            terms: self.terms.clone(),
            undistributed: list(&self.undistributed),
            undo: self.undo.as_ref().map(timed),
            channels: self.channels.iter().map(channel).collect(),
            grace: self.grace.as_ref().map(timed),
        }
    }

    /// The part that is not about messages.
    pub fn roster(&self) -> Roster {
        Roster {
            synced: Seq(0),
            next: Seq(0),
            number: 0,
            ..self.with_lists(|_| ())
        }
    }
}

impl Roster {
    /// Returns whether the roster has this channel.
    #[must_use]
    pub fn names(&self, channel: &str) -> bool {
        self.channels.iter().any(|entry| entry.name == channel)
    }
}

impl Checkpoint {
    /// All ranges of seqs the checkpoint names: a segment that holds any of them stays.
    pub fn named(&self) -> impl Iterator<Item = SeqRange> {
        self.lists().flatten().map(CheckpointRun::range)
    }
}

impl CheckpointDraft {
    /// A draft that names no message yet.
    #[must_use]
    pub fn new(paused: bool, channels: Vec<ChannelDraft>) -> CheckpointDraft {
        CheckpointDraft {
            paused,
            channels,
            ..CheckpointDraft::default()
        }
    }

    /// Returns whether the draft names any message.
    pub(crate) fn names_any(&self) -> bool {
        self.lists().any(|runs| !runs.is_empty())
    }

    /// Returns whether the keeper is done with the draft so soon that other jobs may wait for it.
    pub(crate) fn is_short(&self) -> bool {
        self.lists().map(Runs::count).sum::<usize>() <= SHORT_RUNS
    }
}

impl From<&Checkpoint> for CheckpointDraft {
    fn from(checkpoint: &Checkpoint) -> CheckpointDraft {
        checkpoint.with_lists(|runs| runs.iter().collect())
    }
}
