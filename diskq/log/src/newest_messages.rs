//! [`NewestMessages`]: what a start does with the newest messages of a log.

use crate::range::SeqRange;
use wire::id::Seq;

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
