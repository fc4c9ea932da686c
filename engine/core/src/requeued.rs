//! [`Requeued`]: a message that came back from a consumer.

use diskq_log::SeqRange;
use wire::id::Seq;

/// A message to be delivered again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requeued {
    pub(crate) seq: Seq,
    pub(crate) attempts: u16,
}

impl Requeued {
    /// The message as a range.
    pub(crate) fn range(&self) -> SeqRange {
        SeqRange::one(self.seq)
    }
}
