//! The views of a log for a simulated disk and for tests, which its topic does not need.

use std::collections::VecDeque;
use std::time::Duration;

use wire::id::Seq;

use crate::checkpoint::{Checkpoint, CheckpointDraft};
use crate::file_name::SegmentNumber;
use crate::request::{CheckpointNumber, Request};

use super::supply::Stocked;
use super::{Durable, Log, Residency, Segment};

impl Log {
    /// The sealed segments, in the order of their seqs.
    #[must_use]
    pub fn sealed(&self) -> &VecDeque<Segment> {
        &self.segments.sealed
    }

    /// The segment that takes the next append.
    #[must_use]
    pub fn tail(&self) -> Option<&Segment> {
        self.segments.tail.as_ref()
    }

    /// The segment that holds `seq`.
    #[must_use]
    pub fn segment_of(&self, seq: Seq) -> Option<&Segment> {
        self.segments.find(seq)
    }

    /// The bytes of everything that is mapped, by file, for a simulated file system.
    pub fn segment_images(&self) -> impl Iterator<Item = (SegmentNumber, &[u8])> {
        let segments = self.segments.iter();
        let mapped = segments.filter_map(|segment| match &segment.residency {
            Residency::Mapped(memory) => Some((segment.number, memory.as_ref())),
            _ => None,
        });
        let requested = self
            .context
            .requests
            .iter()
            .filter_map(Request::segment_image);
        let stock = self.supply.stock();
        let stock = stock.map(|stocked| (stocked.number, stocked.memory.as_ref()));
        mapped.chain(requested).chain(stock)
    }

    /// The bytes of the segments that are mapped and hold messages, for a simulated kernel that changes them.
    pub fn segment_images_mut(&mut self) -> impl Iterator<Item = (SegmentNumber, &mut [u8])> {
        let segments = self
            .segments
            .sealed
            .iter_mut()
            .chain(&mut self.segments.tail);
        segments.filter_map(|segment| match &mut segment.residency {
            Residency::Mapped(memory) => Some((segment.number, memory.as_mut())),
            _ => None,
        })
    }

    /// The bytes of the segment that holds `seq`, to be spoiled.
    ///
    /// # Panics
    /// If the segment is not mapped.
    pub fn mapped_bytes_mut(&mut self, seq: Seq) -> &mut [u8] {
        let which = self.segments.which(seq).expect("a segment holds it");
        match &mut self.segments.at_mut(which).residency {
            Residency::Mapped(memory) => memory.as_mut(),
            other => panic!("a mapped segment, and not {other:?}"),
        }
    }

    /// The highest number of a segment file that the keeper was asked for and has answered.
    #[must_use]
    pub fn prepared_upto(&self) -> SegmentNumber {
        self.context.prepared_upto
    }

    /// The sizes of the spare and of the segments in the pool.
    pub fn stock_bytes(&self) -> impl Iterator<Item = usize> {
        let stock = self.supply.stock();
        stock.map(Stocked::bytes)
    }

    /// The jobs that wait to be fetched. To fetch one here starts no sync, other than [`Log::next_request`].
    pub fn pending(&mut self) -> &mut VecDeque<Request> {
        &mut self.context.requests
    }

    /// Returns when a checkpoint is due.
    #[must_use]
    pub fn checkpoint_due_at(&self) -> Option<Duration> {
        self.checkpoint_at()
    }

    /// Writes a checkpoint at once.
    pub fn write_checkpoint(
        &mut self,
        mono: Duration,
        checkpoint: &Checkpoint,
        durable: Durable,
    ) -> CheckpointNumber {
        let number = self.next_checkpoint();
        self.begin_checkpoint(mono, durable);
        for range in checkpoint.named() {
            self.segments.mark_named(range, number.0);
        }
        self.finish_checkpoint(CheckpointDraft::from(checkpoint));
        number
    }
}

impl Segment {
    /// Returns whether its file is durable as a whole.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.is_durable
    }

    /// Returns whether its messages are in memory.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.memory().is_some()
    }
}

impl Request {
    /// The mapped bytes that it takes along, for a simulated file system.
    #[must_use]
    pub fn segment_image(&self) -> Option<(SegmentNumber, &[u8])> {
        match self {
            Request::Spill {
                segment, memory, ..
            }
            | Request::Unmap { segment, memory } => Some((*segment, memory.as_ref())),
            _ => None,
        }
    }
}
