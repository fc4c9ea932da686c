//! [`SingleMessage`]: a message that waits to be delivered by itself, outside of the ranges.

use diskq_log::SeqRange;
use wire::id::Seq;

/// A message that a consumer requeued, that timed out, or whose deferral has ended. A message whose deferral has ended
/// may have 0 attempts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SingleMessage {
    pub(crate) seq: Seq,
    pub(crate) attempts: u16,
}

impl SingleMessage {
    /// The message as a range.
    pub(crate) fn range(&self) -> SeqRange {
        SeqRange::one(self.seq)
    }
}
