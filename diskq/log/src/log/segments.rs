//! The segments that hold a log's messages, by seq.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use wire::id::Seq;

use crate::file_name::SegmentNumber;
use crate::memory::{Memory, Written};
use crate::range::{SeqRange, add_joined};
use crate::request::{Piece, Request};
use crate::segment::{FRAMES_AT, Head, count_limit, pieces_from};

/// The place of a segment's bytes.
#[derive(Debug)]
pub enum Residency {
    /// Its file is mapped.
    Mapped(Memory),
    /// The keeper has the memory and copies it to the file `copy`.
    Spilling {
        /// The file of the copy.
        copy: SegmentNumber,
        /// True if the copy is synced before the memory comes back.
        is_synced: bool,
        /// True if a reader has come for it meanwhile.
        is_wanted: bool,
    },
    /// On disk only.
    Cold,
    /// The keeper was asked to load the segment. A piece of the segment may be in memory already.
    Loading(Option<Piece>),
    /// On disk, and in memory as a copy.
    Loaded(Memory),
    /// Its file is gone: all its messages are damaged.
    Lost,
}

/// One segment that holds messages.
#[derive(Debug)]
pub struct Segment {
    /// Its file.
    pub number: SegmentNumber,
    /// The content of its head blocks.
    pub head: Head,
    /// The number of its messages.
    pub count: u32,
    /// The offset at which the last frame ends.
    pub end: u32,
    /// The time of the publish of its first message, in Unix nanoseconds. 0: not known.
    pub began_ns: u64,
    /// The times of the publish of messages that a start has read, in Unix nanoseconds, sorted by seq: the oldest owed ones of
    /// the topic and of each channel.
    pub published: Vec<(Seq, u64)>,
    /// The place of its bytes.
    pub residency: Residency,
    /// The sum of the holders of all its messages.
    pub(super) holders: u64,
    /// Unfinished socket writes that point into it.
    pub(super) pins: u32,
    /// The newest checkpoint that names any of its messages; 0: none ever did.
    pub named_by: u64,
    /// Messages in it that are lost, sorted.
    pub damaged: Vec<SeqRange>,
    /// True if bytes of its file could not be read, or are damaged. Then the file is set aside instead of removed
    /// when nobody needs the segment any more.
    pub is_unreadable: bool,
    /// True if its file is durable as a whole.
    pub(super) is_durable: bool,
    /// True if the segment was found at the start, and is not wholly below the synced mark. The page cache may have its
    /// pages and count them as clean, while the disk does not have them.
    pub is_doubtful: bool,
    /// True if the segment was found at the start, and [`Log::release_unheld`](super::Log::release_unheld) has not
    /// judged it yet.
    pub is_just_recovered: bool,
    /// The read that touched it last.
    pub(super) read_at: u64,
    /// The segment stays in memory until this time: its reader has not come yet, or its last spill has failed.
    pub(super) keep_until: Duration,
}

impl Segment {
    /// A segment that holds no message yet.
    #[must_use]
    pub fn new(number: SegmentNumber, head: Head, residency: Residency) -> Segment {
        Segment {
            number,
            head,
            count: 0,
            end: FRAMES_AT,
            began_ns: 0,
            published: Vec::new(),
            residency,
            holders: 0,
            pins: 0,
            named_by: 0,
            damaged: Vec::new(),
            is_unreadable: false,
            is_durable: false,
            is_doubtful: false,
            is_just_recovered: false,
            read_at: 0,
            keep_until: Duration::ZERO,
        }
    }

    /// One past its last seq.
    #[inline]
    #[must_use]
    pub fn end_seq(&self) -> Seq {
        Seq(self.head.base.0 + u64::from(self.count))
    }

    /// The seqs of its messages.
    #[inline]
    #[must_use]
    pub fn range(&self) -> SeqRange {
        SeqRange::new(self.head.base, self.end_seq())
    }

    /// The bytes behind the last frame and before the last slot.
    #[inline]
    pub(super) fn room(&self) -> u64 {
        u64::from(self.head.bytes) - self.used()
    }

    /// The bytes taken: head blocks, frames and slots.
    #[inline]
    pub(super) fn used(&self) -> u64 {
        u64::from(self.end) + u64::from(self.count) * self.head.slots.bytes() as u64
    }

    #[inline]
    pub(super) fn is_held(&self) -> bool {
        plant!(PinIgnored, return self.holders > 0);
        self.holders > 0 || self.pins > 0
    }

    #[inline]
    pub(super) fn memory(&self) -> Option<&[u8]> {
        match &self.residency {
            Residency::Mapped(memory) | Residency::Loaded(memory) => Some(memory.as_ref()),
            Residency::Loading(Some(piece)) => Some(piece.memory.as_ref()),
            Residency::Spilling { .. }
            | Residency::Cold
            | Residency::Loading(None)
            | Residency::Lost => None,
        }
    }

    /// The memory, if it has the message `seq`.
    pub(super) fn memory_of(&self, seq: Seq) -> Option<&[u8]> {
        match &self.residency {
            Residency::Loading(Some(piece)) if !piece.seqs.contains(seq) => None,
            _ => self.memory(),
        }
    }

    pub(super) fn is_damaged(&self, seq: Seq) -> bool {
        self.damaged.iter().any(|lost| lost.contains(seq))
    }

    /// The pages with messages from `seq` on, if they are mapped.
    pub(super) fn written_since(&self, seq: Seq) -> Option<Written> {
        let Residency::Mapped(memory) = &self.residency else {
            return None;
        };
        let index = seq.0.saturating_sub(self.head.base.0) as u32;
        let bytes = memory.as_ref();
        let slots = self.head.slots;
        memory.written(pieces_from(bytes, slots, index, self.count, self.end))
    }

    /// The place of the segment's messages in its file.
    pub(super) fn pieces(&self) -> [Range<u32>; 2] {
        let slots = self.count * self.head.slots.bytes() as u32;
        [0..self.end, self.head.bytes - slots..self.head.bytes]
    }

    #[inline]
    pub(super) fn release(&mut self, count: u64) {
        assert!(self.holders >= count, "released more often than retained");
        self.holders -= count;
    }
}

/// Which segment of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Tail,
    Sealed(usize),
}

/// The segments in the order of their seqs: any number of sealed ones, then the tail.
#[derive(Debug, Default)]
pub(super) struct Segments {
    pub(super) sealed: VecDeque<Segment>,
    pub(super) tail: Option<Segment>,
    /// The seq of the next append; 0 until the first append of a new log asks the clock.
    pub(super) next: Seq,
    pub(super) damaged_count: u64,
    /// Counts the reads, so that the least recently read segment is known.
    pub(super) reads: u64,
    /// The index of the sealed segment that the last lookup found. The next lookup is likely to find the same segment.
    last_hit: Cell<usize>,
}

impl Segments {
    pub(super) fn from_found(found: Vec<Segment>, next: Seq, damaged_count: u64) -> Segments {
        Segments {
            sealed: found.into(),
            next,
            damaged_count,
            ..Segments::default()
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Segment> {
        self.sealed.iter().chain(&self.tail)
    }

    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Segment> + Clone {
        self.tail.iter().chain(self.sealed.iter().rev())
    }

    /// The segment that holds `seq`. A few ns for the tail and the one of the last lookup.
    #[inline]
    pub(super) fn which(&self, seq: Seq) -> Option<Which> {
        if let Some(tail) = &self.tail
            && seq >= tail.head.base
        {
            return (seq < tail.end_seq()).then_some(Which::Tail);
        }
        let is_hit = |segment: &Segment| segment.range().contains(seq);
        let last_hit = self.last_hit.get();
        if self.sealed.get(last_hit).is_some_and(is_hit) {
            return Some(Which::Sealed(last_hit));
        }
        let index = self.index_at_or_after(seq);
        if self.sealed.get(index).is_some_and(is_hit) {
            self.last_hit.set(index);
            return Some(Which::Sealed(index));
        }
        None
    }

    /// The segment that holds `seq`.
    pub(super) fn find(&self, seq: Seq) -> Option<&Segment> {
        match self.which(seq)? {
            Which::Tail => self.tail.as_ref(),
            Which::Sealed(index) => self.sealed.get(index),
        }
    }

    /// The segment of the run that begins at `seq`, and its memory.
    ///
    /// # Panics
    /// For a run that nobody holds.
    #[inline]
    pub(super) fn resident(&self, seq: Seq) -> (&Segment, &[u8]) {
        let segment = self.find(seq).expect("a run nobody holds");
        let memory = segment.memory();
        (
            segment,
            memory.expect("a run in a segment that is not resident"),
        )
    }

    pub(super) fn at_mut(&mut self, which: Which) -> &mut Segment {
        match which {
            Which::Tail => self.tail.as_mut().expect("it was looked up just now"),
            Which::Sealed(index) => &mut self.sealed[index],
        }
    }

    /// The first sealed segment that ends behind `seq`.
    pub(super) fn index_at_or_after(&self, seq: Seq) -> usize {
        self.sealed
            .partition_point(|segment| segment.end_seq() <= seq)
    }

    /// Returns the first seq at or after `seq` that lies in a segment, whether it has holders or not.
    pub(super) fn next_contained(&self, seq: Seq) -> Option<Seq> {
        let sealed = self.sealed.get(self.index_at_or_after(seq));
        sealed
            .or(self.tail.as_ref())
            .map(|segment| segment.head.base.max(seq))
    }

    pub(super) fn remove(&mut self, index: usize) -> Segment {
        self.last_hit.set(0);
        let removed = self.sealed.remove(index);
        removed.expect("the index was looked up just now")
    }

    /// Notes that a reader needs a sealed segment, or will soon.
    #[inline]
    pub(super) fn note_read(&mut self, index: usize) {
        self.reads += 1;
        self.sealed[index].read_at = self.reads;
    }

    /// The bytes of all segments that have messages someone needs.
    pub(super) fn live_bytes(&self) -> u64 {
        let held = self.iter().filter(|segment| segment.is_held());
        held.map(|segment| u64::from(segment.head.bytes)).sum()
    }

    /// Adds `holders` holders to each seq of the range.
    #[inline]
    pub(super) fn retain(&mut self, range: SeqRange, holders: u64) {
        if let Some(tail) = &mut self.tail {
            tail.holders += tail.range().intersection(&range).len() * holders;
            // All sealed segments end before the tail begins.
            if range.start >= tail.head.base {
                return;
            }
        }
        let index = self.index_at_or_after(range.start);
        for segment in self.sealed.range_mut(index..) {
            if segment.head.base >= range.end {
                return;
            }
            segment.holders += segment.range().intersection(&range).len() * holders;
        }
    }

    /// Marks the segments of `range` as named by checkpoint `number`. They stay until a durable checkpoint does not
    /// name them.
    pub(super) fn mark_named(&mut self, range: SeqRange, number: u64) {
        let index = self.index_at_or_after(range.start);
        for segment in self.sealed.range_mut(index..).chain(&mut self.tail) {
            if segment.head.base >= range.end {
                return;
            }
            if range.start < segment.end_seq() {
                segment.named_by = number;
            }
        }
    }

    /// Adds damage that was found in a segment. Returns how many messages are lost that were not before.
    pub(super) fn add_damage(&mut self, which: Which, seqs: SeqRange) -> u64 {
        let added = add_joined(&mut self.at_mut(which).damaged, seqs);
        self.damaged_count += added;
        added
    }

    /// The sealed segment of a file that is being loaded.
    pub(super) fn loading(&self, number: SegmentNumber) -> Option<usize> {
        self.sealed.iter().position(|segment| {
            segment.number == number && matches!(segment.residency, Residency::Loading(_))
        })
    }

    /// Returns the jobs with which the keeper takes all memory back at the end.
    pub(super) fn into_requests(self) -> impl Iterator<Item = Request> {
        let segments = self.sealed.into_iter().chain(self.tail);
        segments.filter_map(|segment| match segment.residency {
            Residency::Mapped(memory) => Some(Request::Unmap {
                segment: segment.number,
                memory,
            }),
            Residency::Loaded(memory) => Some(Request::Free(memory)),
            Residency::Loading(piece) => piece.map(|piece| Request::Free(piece.memory)),
            Residency::Spilling { .. } | Residency::Cold | Residency::Lost => None,
        })
    }

    pub(super) fn check(&self) {
        let mut end = Seq(0);
        for segment in self.iter() {
            assert!(segment.head.base >= end, "segments overlap");
            let (head, count) = (&segment.head, segment.count);
            assert!(count > 0, "an empty segment is kept");
            assert!(count <= count_limit(head), "impossibly many messages");
            let bytes = u64::from(head.bytes);
            assert!(segment.used() <= bytes, "frames run into slots");
            match segment.memory() {
                Some(memory) => assert_eq!(memory.len() as u64, bytes, "memory of another size"),
                None => assert_eq!(segment.pins, 0, "pinned and not resident"),
            }
            let is_inside = |d: &SeqRange| d.intersection(&segment.range()) == *d && !d.is_empty();
            let is_all_inside = segment.damaged.iter().all(is_inside);
            assert!(is_all_inside, "damage outside of its segment");
            end = segment.end_seq();
        }
        if let Some(tail) = &self.tail {
            let is_mapped = matches!(tail.residency, Residency::Mapped(_));
            assert!(is_mapped, "the tail is mapped");
            let end = tail.end_seq();
            assert_eq!(end, self.next, "the tail ends where the next append starts");
        }
    }
}
