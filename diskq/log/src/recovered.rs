//! [`Recovered`]: a log as start-up hands it over, and what is owed from it.

use wire::id::Seq;
use wire::origin::Origin;

use crate::checkpoint::{Checkpoint, Roster};
use crate::error::{Damage, DamageKind};
use crate::log::Log;
use crate::range::SeqRange;
use crate::state::SavedState;

/// A deferred message that no checkpoint has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundDeferral {
    /// The message.
    pub seq: Seq,
    /// The Unix time in ns at which the message is due, if the wall clock was right when it was published.
    pub due_ns: u64,
    /// The deferral that its producer asked for.
    pub defer_ms: u32,
}

/// A log after start-up.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The log. Retain what is owed, then call [`Log::release_unheld`] once.
    pub log: Log,
    /// The newest readable checkpoint. `None`: there never was one, or see `damage`.
    pub checkpoint: Option<Checkpoint>,
    /// The channels that survive a power failure for sure: those of the last surely durable checkpoint. Empty if the
    /// newest checkpoint was written without a sync: a failed sync may have come before it, and after a failed sync no
    /// checkpoint counts as durable.
    pub durable_channels: Roster,
    /// All seqs that exist, sorted, without torn and damaged messages. A seq at or above the checkpoint's `next` is
    /// owed to every channel. A seq below it is owed where the checkpoint names it.
    pub found: Vec<SeqRange>,
    /// The seqs whose messages the files may have had, sorted: those of `found`, torn and damaged ones, and those behind the
    /// last file. A seq in none of these ranges is in no file: no holder needed the message, and its segment was used
    /// again. After damage without seqs, such as a file without a head, these are all seqs.
    pub had: Vec<SeqRange>,
    /// The Unix time in ns at which the file of checkpoints was last written; 0: not known. The wall clock showed
    /// this time when the due times of `checkpoint` were recorded, or a little earlier. So a due time minus this time is at
    /// most what was left of the deferral.
    pub recorded_ns: u64,
    /// Messages at or above the checkpoint's `next` that were published deferred, by seq.
    pub deferred: Vec<FoundDeferral>,
    /// The newest state that the topic has saved. `None`: there is none, or the log's slots have no origins.
    pub state: Option<SavedState>,
    /// Messages at or above this seq stay in the log until the topic has saved its next state, whoever has finished
    /// them: `state` may be in the page cache only, and a power failure may bring back an older state. At most the
    /// `boundary` of `state`.
    pub durable_boundary: Seq,
    /// The origins of the messages at or above the `boundary` of `state`, in the order of the seqs: none unless the
    /// log's slots have origins. All of these messages are in `found`.
    pub origins: Vec<(Seq, Origin)>,
    /// The damage that was found. The log's stats count it already.
    pub damage: Vec<Damage>,
}

impl Recovered {
    /// Returns whether checkpoints may have been cut off. Then `checkpoint` may be older than the channels.
    #[must_use]
    pub fn lacks_checkpoints(&self) -> bool {
        let mut damage = self.damage.iter();
        damage.any(|damage| damage.kind == DamageKind::CheckpointFile)
    }
}

/// Takes the newest messages of a log.
pub trait NewestMessages {
    /// Begins. `next` is the seq of the log's next message. `lost` has the sorted seqs of the messages that the log owes and
    /// has lost. Seqs that no message ever had may be among them.
    fn begin(&mut self, next: Seq, lost: &[SeqRange]);
    /// Returns the seq from which messages are wanted. `segments` has the seq of the first message, the number of messages,
    /// and the bytes of each segment of the log, in the order of the seqs.
    fn from(&self, segments: &[(Seq, u64, u64)]) -> Seq;
    /// Takes a message. `published_ns` is when it was published, in Unix nanoseconds.
    fn add(&mut self, seq: Seq, published_ns: u64, body: &[u8]);
}

/// A durable topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicFacts {
    /// The topic's name.
    pub name: String,
    /// True if the topic is paused.
    pub paused: bool,
    /// The topic's durable channels.
    pub channels: Vec<ChannelFacts>,
}

/// A durable channel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelFacts {
    /// The channel's name.
    pub name: String,
    /// True if the channel is paused.
    pub paused: bool,
}
