//! The reasons for which a segment stays: holders of its messages, socket writes, checkpoints.

use wire::id::Seq;

use crate::range::SeqRange;
use crate::request::Request;
use crate::segment::FRAMES_AT;

use super::Log;
use super::segments::{Place, Residency};

impl Log {
    /// Adds `holders` holders to each seq of the range. A segment lives while it has any.
    ///
    /// Seqs that lie in no segment (lost before the start) are ignored, here and in `release`. [`Log::take_run`]
    /// returns [`Taken::Damaged`](super::Taken::Damaged) for them.
    #[inline]
    pub fn retain(&mut self, range: SeqRange, holders: u64) {
        if let Some(tail) = &mut self.segments.tail {
            tail.holders += tail.range().intersection(&range).len() * holders;
            // All sealed segments end before the tail begins.
            if range.start >= tail.head.base {
                return;
            }
        }
        let index = self.segments.index_at_or_after(range.start);
        for segment in self.segments.sealed.range_mut(index..) {
            if segment.head.base >= range.end {
                return;
            }
            segment.holders += segment.range().intersection(&range).len() * holders;
        }
    }

    /// The holders of all messages.
    #[must_use]
    pub fn holders(&self) -> u64 {
        self.segments.iter().map(|segment| segment.holders).sum()
    }

    /// The segments that hold messages, in the order of their seqs, each with the bytes of its messages.
    pub fn segment_sizes(&self) -> impl Iterator<Item = (SeqRange, u64)> {
        let segments = self.segments.iter();
        segments.map(|segment| (segment.range(), segment.used() - u64::from(FRAMES_AT)))
    }

    /// The sealed segments, in the order of their seqs, each with the bytes of its file.
    pub fn sealed_files(&self) -> impl Iterator<Item = (SeqRange, u64)> {
        let sealed = self.segments.sealed.iter();
        sealed.map(|segment| (segment.range(), u64::from(segment.head.bytes)))
    }

    /// Takes one holder from `seq`.
    ///
    /// # Panics
    /// If the segment of `seq` has fewer holders than that.
    #[inline]
    pub fn release(&mut self, seq: Seq) {
        match self.segments.place(seq) {
            Some(Place::Sealed(index)) => {
                let segment = &mut self.segments.sealed[index];
                segment.release(1);
                if segment.holders == 0 {
                    self.drop_if_unneeded(index);
                }
            }
            // The tail stays, it takes the next append. An idle one goes by `Timer::IdleStock`.
            Some(Place::Tail) => self.segments.at_mut(Place::Tail).release(1),
            None => {}
        }
    }

    /// Takes one holder from each seq of the range.
    ///
    /// # Panics
    /// If a segment has fewer holders than that.
    pub fn release_range(&mut self, range: SeqRange) {
        if range.is_empty() {
            return;
        }
        let mut index = self.segments.index_at_or_after(range.start);
        while let Some(segment) = self.segments.sealed.get_mut(index) {
            if segment.head.base >= range.end {
                return;
            }
            segment.release(segment.range().intersection(&range).len());
            if !self.drop_if_unneeded(index) {
                index += 1;
            }
        }
        if let Some(tail) = &mut self.segments.tail {
            tail.release(tail.range().intersection(&range).len());
        }
    }

    /// Lets go of every segment that nobody holds. Call this once, after start-up has retained all owed messages.
    pub fn release_unheld(&mut self) {
        for segment in &mut self.segments.sealed {
            segment.is_unjudged = false;
        }
        self.drop_unneeded();
        if self.segments.iter().any(|segment| !segment.is_held()) {
            // They go with the first checkpoint.
            self.make_checkpoint_due();
        }
    }

    /// The number of unfinished writes that point into the segments.
    #[must_use]
    pub fn pins(&self) -> usize {
        let pins = self.segments.iter().map(|segment| segment.pins as usize);
        pins.sum()
    }

    /// Keeps the segment of `seq` in memory, because an unfinished socket write points into it.
    ///
    /// # Panics
    /// If the segment is not resident: there is nothing to point into.
    pub fn pin(&mut self, seq: Seq) {
        let place = self
            .segments
            .place(seq)
            .expect("pinned what no segment holds");
        let segment = self.segments.at_mut(place);
        assert!(segment.memory().is_some(), "pinned what is not resident");
        segment.pins += 1;
    }

    /// Ends a pin, because its socket write is finished.
    ///
    /// # Panics
    /// If there was no pin.
    pub fn unpin(&mut self, seq: Seq) {
        let place = self.segments.place(seq).expect("what is pinned stays");
        let segment = self.segments.at_mut(place);
        segment.pins = segment
            .pins
            .checked_sub(1)
            .expect("unpinned more often than pinned");
        if let Place::Sealed(index) = place {
            self.drop_if_unneeded(index);
        }
    }

    /// Lets go of the sealed segment `index` if nobody needs it any more. Returns whether it is gone.
    pub(super) fn drop_if_unneeded(&mut self, index: usize) -> bool {
        let segment = &self.segments.sealed[index];
        let is_needed =
            segment.is_held() || segment.is_unjudged || self.checkpoints.may_name(segment.named_by);
        if is_needed {
            if !self.segments.sealed[index].is_held() {
                self.free_buffer(index);
            }
            return false;
        }
        let segment = self.segments.remove(index);
        let number = segment.number;
        let memory = match segment.residency {
            // A file with damage in it is not trusted with new messages.
            Residency::Mapped(memory) if segment.damaged.is_empty() => {
                self.recycle(number, memory);
                return true;
            }
            Residency::Mapped(memory) => Some(memory),
            // The keeper's reply brings the memory back, and finds no segment: see `spilled`.
            Residency::Spilling { .. } => return true,
            Residency::Loaded(memory) => {
                self.keep_buffer(memory);
                None
            }
            // The keeper's reply brings the loaded memory, and finds no segment: see `loaded`.
            Residency::Loading(piece) => {
                self.free_piece(piece);
                None
            }
            Residency::Cold | Residency::Lost => None,
        };
        if segment.is_unreadable {
            let unmap = |memory| Request::Unmap {
                segment: number,
                memory,
            };
            self.requests.extend(memory.map(unmap));
            self.requests.push_back(Request::SetAside(number));
        } else {
            self.discard(number, memory);
        }
        true
    }

    /// Does [`Log::drop_if_unneeded`] for all sealed segments.
    pub(super) fn drop_unneeded(&mut self) {
        let mut index = 0;
        while index < self.segments.sealed.len() {
            if !self.drop_if_unneeded(index) {
                index += 1;
            }
        }
    }
}
