//! Looks at single messages, without any change of the log: no read is counted, and no segment is loaded.

use wire::id::Seq;

use crate::range::SeqRange;
use crate::segment::{self, slot_at};

use super::Log;
use super::look::{ColdMessage, Look};
use super::segments::{Residency, Segment};

impl Log {
    /// The messages of the newest segments, the newest segment first, up to the first one that is not in memory. This
    /// includes messages that nobody holds any more.
    pub fn newest_in_memory(&self) -> impl Iterator<Item = SeqRange> {
        let segments = &self.segments;
        let newest = segments.tail.iter().chain(segments.sealed.iter().rev());
        let is_in_memory = |segment: &&Segment| {
            matches!(
                segment.residency,
                Residency::Mapped(_) | Residency::Loaded(_)
            )
        };
        newest.take_while(is_in_memory).map(Segment::range)
    }

    /// Finds a message.
    #[must_use]
    pub fn look(&self, seq: Seq) -> Look<'_> {
        let Some(segment) = self.segments.find(seq) else {
            return Look::Gone;
        };
        let is_lost = matches!(segment.residency, Residency::Lost);
        if is_lost || segment.damaged.iter().any(|lost| lost.contains(seq)) {
            return Look::Damaged;
        }
        let index = seq.since(segment.head.base) as u32;
        let is_in_memory = match &segment.residency {
            Residency::Loading(Some(piece)) => piece.seqs.contains(seq),
            _ => true,
        };
        let Some(memory) = segment.memory().filter(|_| is_in_memory) else {
            return Look::Cold(ColdMessage {
                segment: segment.number,
                head: segment.head,
                index,
            });
        };
        // Pages that a sync could not write may change: see `check_run`.
        if self.has_failed_sync() && !segment::is_whole(memory, &segment.head, index) {
            return Look::Damaged;
        }
        let frame = slot_at(memory, segment.head.slots, index)
            .and_then(|slot| memory.get(slot.start as usize..slot.end as usize));
        frame.map_or(Look::Damaged, Look::Frame)
    }
}
