//! The peek: reads a few messages of a cold segment, so that a reader need not wait for the load of the whole segment.

use std::io;
use std::ops::Range;

use diskq_log::segment::{self, Head, seqs_at};
use diskq_log::slot::SLOT_BYTES;
use diskq_log::{Piece, SegmentNumber};

use super::directory::LogDirectory;
use crate::files::Files;
use crate::mapping::Buffer;

impl<F: Files> LogDirectory<'_, F> {
    /// Reads the messages `indices` through the page cache, up to the first message that is not whole. A failure or
    /// damage is not reported here: the load that follows finds and reports it.
    pub(super) fn peek(
        &self,
        segment: SegmentNumber,
        wanted: &Head,
        indices: Range<u32>,
    ) -> Option<Piece> {
        let image = self.read_messages(segment, wanted.bytes, &indices).ok()?;
        let is_whole = |index: &u32| segment::is_whole(&image, wanted, *index);
        let count = indices.clone().take_while(is_whole).count() as u32;
        let seqs = seqs_at(wanted.base, &(indices.start..indices.start + count));
        (!seqs.is_empty()).then(|| Piece {
            memory: self.files.lend(image),
            seqs,
        })
    }

    /// Reads the slots of `indices`, and the bytes between the start of the first slot's frame and the end of the last
    /// slot's frame.
    fn read_messages(
        &self,
        segment: SegmentNumber,
        bytes: u32,
        indices: &Range<u32>,
    ) -> io::Result<Buffer> {
        let path = self.segment_path(segment);
        let mut image = Buffer::zeroed(bytes)?;
        let slots_end = bytes as usize - indices.start as usize * SLOT_BYTES;
        let slots_at = bytes as usize - indices.end as usize * SLOT_BYTES;
        let slots = &mut image[slots_at..slots_end];
        self.files.read_at(&path, slots_at as u64, slots)?;
        let first = segment::slot_at(&image, indices.start);
        let last = segment::slot_at(&image, indices.end - 1);
        if let (Some(first), Some(last)) = (first, last) {
            let frames = first.start as usize..(last.end as usize).min(slots_at);
            // A damaged slot may have any bounds. Bounds out of range leave the frames unread, and frames
            // that were not read are not whole.
            if let Some(frames) = image.get_mut(frames) {
                self.files.read_at(&path, first.start.into(), frames)?;
            }
        }
        Ok(image)
    }
}
