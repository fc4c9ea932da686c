//! [`Supply`]: the segments that the next appends get: the pool of recycled ones, and what the keeper prepared.

use std::sync::Arc;
use std::time::Duration;

use crate::file_name::SegmentNumber;
use crate::memory::Memory;
use crate::policy::{self, SPILLING_ENOUGH};
use crate::random::splitmix64;

use super::options::LogOptions;

/// A segment file in memory that holds nothing anyone needs.
#[derive(Debug)]
pub(super) struct Stocked {
    pub(super) number: SegmentNumber,
    pub(super) memory: Memory,
}

impl Stocked {
    pub(super) fn bytes(&self) -> usize {
        self.memory.as_ref().len()
    }
}

/// A lack of room. It begins when an append is refused, or when a segment that was asked for ahead is not even possible
/// in the smallest size. It ends only when there is a segment for the largest append that was refused. Smaller appends
/// may succeed meanwhile, and do not end it: otherwise the health would change with each batch that a producer repeats.
#[derive(Debug)]
pub(super) struct Shortage {
    /// The disk is full. Otherwise there is another reason, such as too many open files.
    pub(super) is_full: bool,
    /// The first failure, or the last one if its kind is another.
    pub(super) text: Arc<str>,
    /// The time of the next try.
    pub(super) retry_at: Duration,
    /// An append is refused at once if it needs a new segment of this size or a larger one, in bytes.
    pub(super) refused_from: u32,
    /// The largest segment that an append was refused, in bytes.
    pub(super) refused_most: u32,
}

/// The segments to come.
#[derive(Debug)]
pub(super) struct Supply {
    /// The segment that the keeper prepared.
    pub(super) spare: Option<Stocked>,
    /// Recycled segments. The last one added is used first, because its pages are the warmest. The fewer segments are
    /// in use, the fewer pages are written to disk and faulted in again.
    pub(super) pool: Vec<Stocked>,
    pub(super) pool_min: usize,
    /// The size of the new segment that the keeper is preparing, in bytes.
    pub(super) preparing: Option<u32>,
    /// The number of segments that are being spilled. Their memory comes back to the pool.
    pub(super) spilling: u32,
    /// The size of the segment that an append waits for, in bytes. A refused append does not wait.
    pub(super) waiting: Option<u32>,
    pub(super) shortage: Option<Shortage>,
    /// The log asks for the smallest segments until this time, because the disk had no room for a larger one.
    pub(super) small_until: Duration,
    /// The size of new and recycled segments: what flow, batches and backlog need.
    pub(super) steady: u32,
    /// The size that flow and batches need.
    pub(super) steady_min: u32,
    /// The time at which the tail took its first message.
    pub(super) tail_since: Duration,
    pub(super) next_number: SegmentNumber,
    /// Every file up to this number existed when the last reply came.
    pub(super) prepared_upto: SegmentNumber,
    pub(super) generations: u64,
}

impl Supply {
    pub(super) fn new(options: &LogOptions, next_number: SegmentNumber) -> Supply {
        Supply {
            spare: None,
            pool: Vec::new(),
            pool_min: options.pool_segments_min,
            preparing: None,
            spilling: 0,
            waiting: None,
            shortage: None,
            small_until: Duration::ZERO,
            steady: options.segment_bytes_min,
            steady_min: options.segment_bytes_min,
            tail_since: Duration::ZERO,
            next_number,
            prepared_upto: SegmentNumber(next_number.0 - 1),
            generations: options.process_seed,
        }
    }

    /// A random number for the next use of a segment. Never 0.
    pub(super) fn next_generation(&mut self) -> u64 {
        next_generation(&mut self.generations)
    }

    /// Returns whether a next segment is there or on its way.
    #[inline]
    pub(super) fn has_next(&self) -> bool {
        self.spare.is_some() || !self.pool.is_empty() || self.is_coming()
    }

    #[inline]
    pub(super) fn is_coming(&self) -> bool {
        self.preparing.is_some() || self.spilling >= SPILLING_ENOUGH
    }

    /// A number for a new file.
    pub(super) fn next_number(&mut self) -> SegmentNumber {
        let number = self.next_number;
        self.next_number = SegmentNumber(number.0 + 1);
        number
    }

    /// Notes that a tail begins. If the tail before it was full soon, the next segments are larger.
    pub(super) fn follow_flow(&mut self, options: &LogOptions, mono: Duration, behind_full: bool) {
        if behind_full {
            let filled_in = mono.saturating_sub(self.tail_since);
            let most = options.segment_bytes_steady;
            self.steady_min = policy::flow_bytes(self.steady_min, filled_in, most);
        }
        self.tail_since = mono;
    }

    /// A segment of `bytes` bytes at least: the warmest, else the prepared one.
    pub(super) fn take(&mut self, bytes: u32) -> Option<Stocked> {
        let fits = |stocked: &Stocked| stocked.bytes() >= bytes as usize;
        if self.pool.last().is_some_and(fits) {
            return self.pool.pop();
        }
        self.spare.take_if(|spare| fits(spare))
    }

    /// Returns whether [`Supply::take`] has a segment of `bytes` bytes at least.
    pub(super) fn can_give(&self, bytes: u32) -> bool {
        let mut next = self.pool.last().into_iter().chain(&self.spare);
        next.any(|stocked| stocked.bytes() >= bytes as usize)
    }

    /// Takes a memory back for the next append, or returns it if it does not fit the pool.
    pub(super) fn recycle(
        &mut self,
        number: SegmentNumber,
        memory: Memory,
        bytes_max: u64,
    ) -> Option<Memory> {
        let bytes = memory.as_ref().len() as u64;
        let is_suitable = policy::suits_pool(bytes, self.steady, self.steady_min);
        if !is_suitable || !self.has_place(bytes, bytes_max) {
            return Some(memory);
        }
        self.pool.push(Stocked { number, memory });
        None
    }

    fn has_place(&self, bytes: u64, bytes_max: u64) -> bool {
        let pooled = self.pool.iter().map(|stocked| stocked.bytes() as u64).sum();
        policy::has_pool_place(self.pool.len(), self.pool_min, pooled, bytes, bytes_max)
    }

    pub(super) fn stock(&self) -> impl Iterator<Item = &Stocked> {
        self.pool.iter().chain(&self.spare)
    }

    pub(super) fn into_stock(self) -> impl Iterator<Item = Stocked> {
        self.pool.into_iter().chain(self.spare)
    }

    pub(super) fn shortage_text(&self) -> Option<&Arc<str>> {
        self.shortage.as_ref().map(|shortage| &shortage.text)
    }

    pub(super) fn check(&self, options: &LogOptions) {
        assert!(
            self.has_place(0, options.resident_bytes_min)
                || self.pool.len() == options.pool_segments_min,
            "the pool is over its bound"
        );
        assert!(
            self.steady >= self.steady_min && self.steady_min >= options.segment_bytes_min,
            "the steady size went below its own"
        );
        if let Some(shortage) = &self.shortage {
            assert!(shortage.refused_from <= shortage.refused_most);
        }
    }
}

/// Returns the next generation of the sequence that `seed` began: a random number that is not 0.
#[must_use]
pub fn next_generation(seed: &mut u64) -> u64 {
    splitmix64(seed).max(1)
}
