//! Where the next segment comes from: the pool of recycled ones, or the keeper.

use std::sync::Arc;
use std::time::Duration;

use crate::error::AppendError;
use crate::file_name::SegmentNumber;
use crate::memory::{Memory, Pages};
use crate::request::{Failure, Request};
use crate::segment::{PAGE_BYTES, SEGMENT_BYTES_LIMIT, SPILLED_BYTES};

use super::{Event, Log, LogOptions};

/// How long after a failed allocation the next is tried: P6 asks for service within 1 s of space.
pub(super) const PREPARE_RETRY: Duration = Duration::from_millis(250);
/// A log without appends for this long gives back what it has in stock for them, one without loads
/// its buffers.
pub(super) const IDLE_AFTER: Duration = Duration::from_secs(5);
/// And its last segment after this: a topic that has a message now and then would make a file for each.
pub(super) const TAIL_IDLE_AFTER: Duration = Duration::from_secs(60);
/// A flow that fills a segment sooner gets larger ones, up to [`LogOptions::segment_bytes_steady`]: each
/// costs a change of segments. A slower one keeps the small: each topic holds a few.
const FILLED_SOON: Duration = Duration::from_millis(500);
/// Recycled segments may be larger and smaller than new ones by this factor.
const POOL_SIZES: u64 = 4;
/// Of a backlog that is spilled, a segment holds this part, up to [`SPILLED_BYTES`] and to the log's part of
/// memory: each log has a few of them there.
const SPILL_SHARE: u64 = 16;
/// A segment is larger only for this part of the backlog: so many files, whatever its size.
const BACKLOG_SHARE: u64 = 1024;

/// From this size on a segment may be in huge pages: it has a few of them.
pub const HUGE_FROM: u32 = 4 << 20;
/// So many segments that are being spilled are supply enough: none has to be made, their memory comes back.
/// The disk is busy with two; with few more it waits for the next ones now and then.
pub const LEAVING_ENOUGH: u32 = 8;

/// A segment file in memory that holds nothing anyone needs.
#[derive(Debug)]
pub(super) struct Stocked {
    pub(super) number: SegmentNumber,
    pub(super) memory: Memory,
}

/// Why there is no next segment.
#[derive(Debug)]
struct Refusal {
    is_full: bool,
    text: Arc<str>,
    retry_at: Duration,
}

/// The segments to come.
#[derive(Debug)]
pub(super) struct Supply {
    /// What the keeper prepared.
    spare: Option<Stocked>,
    /// Recycled ones, the last in first out: its pages are the warmest, and the fewer different
    /// ones are used, the fewer are written to disk and faulted again.
    pool: Vec<Stocked>,
    pool_min: usize,
    /// The job under way.
    preparing: Option<SegmentNumber>,
    /// How many segments are being spilled: their memory comes back.
    leaving: u32,
    /// An append could not be done and needs a segment this large.
    waiting: Option<u32>,
    refusal: Option<Refusal>,
    /// The size of new and recycled segments: what flow, batches and backlog need.
    steady: u32,
    /// What flow and batches need.
    steady_min: u32,
    /// When the tail took its first message.
    tail_since: Duration,
    next_number: SegmentNumber,
    /// Every file up to this number existed when the last reply came.
    prepared_upto: SegmentNumber,
    generations: u64,
}

impl Supply {
    pub(super) fn new(options: &LogOptions, next_number: SegmentNumber) -> Supply {
        Supply {
            spare: None,
            pool: Vec::new(),
            pool_min: options.pool_segments_min,
            preparing: None,
            leaving: 0,
            waiting: None,
            refusal: None,
            steady: options.segment_bytes_min,
            steady_min: options.segment_bytes_min,
            tail_since: Duration::ZERO,
            next_number,
            prepared_upto: SegmentNumber(next_number.0 - 1),
            generations: options.generation_seed,
        }
    }

    /// A random number for the next use of a segment. Never 0.
    pub(super) fn next_generation(&mut self) -> u64 {
        next_generation(&mut self.generations)
    }

    /// The number the next new file gets.
    pub(super) fn coming_number(&self) -> SegmentNumber {
        self.next_number
    }

    /// Whether a next segment is there or on its way.
    #[inline]
    pub(super) fn has_next(&self) -> bool {
        self.spare.is_some() || !self.pool.is_empty() || self.is_coming()
    }

    #[inline]
    fn is_coming(&self) -> bool {
        self.preparing.is_some() || self.leaving >= LEAVING_ENOUGH
    }

    /// A segment is being spilled from now on.
    pub(super) fn note_leaving(&mut self) {
        self.leaving += 1;
    }

    /// A number for a new file.
    pub(super) fn next_number(&mut self) -> SegmentNumber {
        let number = self.next_number;
        self.next_number = SegmentNumber(number.0 + 1);
        number
    }

    /// A tail begins, maybe behind a full one: if that was full soon, the next ones are larger.
    pub(super) fn note_tail(&mut self, options: &LogOptions, mono: Duration, behind_full: bool) {
        let filled_soon = behind_full && mono.saturating_sub(self.tail_since) < FILLED_SOON;
        if filled_soon && self.steady_min < options.segment_bytes_steady {
            let larger = self.steady_min.saturating_mul(2);
            self.steady_min = larger.min(options.segment_bytes_steady);
        }
        self.tail_since = mono;
    }

    /// A segment of `bytes` bytes at least: the warmest, else the prepared one.
    pub(super) fn take(&mut self, bytes: u32) -> Option<Stocked> {
        let fits = |stocked: &Stocked| stocked.memory.as_ref().len() >= bytes as usize;
        if self.pool.last().is_some_and(fits) {
            return self.pool.pop();
        }
        self.spare.take_if(|spare| fits(spare))
    }

    /// Whether [`Supply::take`] has a segment of `bytes` bytes at least.
    pub(super) fn can_give(&self, bytes: u32) -> bool {
        let mut next = self.pool.last().into_iter().chain(&self.spare);
        next.any(|stocked| stocked.memory.as_ref().len() >= bytes as usize)
    }

    /// Whether a segment of `bytes` bytes is one of a larger backlog.
    pub(super) fn is_large(&self, bytes: u32) -> bool {
        u64::from(bytes) > u64::from(self.steady) * POOL_SIZES
    }

    /// Takes a memory back for the next append, or returns it if it does not fit the pool: a few in
    /// any case, more of them up to `bytes_max`. About the size of new ones will do: a backlog that
    /// swings changes that all the time.
    fn recycle(&mut self, number: SegmentNumber, memory: Memory, bytes_max: u64) -> Option<Memory> {
        let bytes = memory.as_ref().len() as u64;
        let steady = u64::from(self.steady);
        let least = (steady / POOL_SIZES).max(u64::from(self.steady_min));
        let is_alike = (least..=steady * POOL_SIZES).contains(&bytes);
        if !is_alike || !self.has_place(bytes, bytes_max) {
            return Some(memory);
        }
        self.pool.push(Stocked { number, memory });
        None
    }

    fn has_place(&self, bytes: u64, bytes_max: u64) -> bool {
        self.pool.len() < self.pool_min || self.pool_bytes() + bytes <= bytes_max
    }

    fn pool_bytes(&self) -> u64 {
        let bytes = |stocked: &Stocked| stocked.memory.as_ref().len() as u64;
        self.pool.iter().map(bytes).sum()
    }

    pub(super) fn stock(&self) -> impl Iterator<Item = &Stocked> {
        self.pool.iter().chain(&self.spare)
    }

    pub(super) fn into_stock(self) -> impl Iterator<Item = Stocked> {
        self.pool.into_iter().chain(self.spare)
    }

    pub(super) fn prepared_upto(&self) -> SegmentNumber {
        self.prepared_upto
    }

    pub(super) fn refusal_text(&self) -> Option<&Arc<str>> {
        self.refusal.as_ref().map(|refusal| &refusal.text)
    }

    /// When a failed allocation is tried again.
    fn retry_at(&self) -> Option<Duration> {
        let refusal = self.refusal.as_ref().filter(|_| self.preparing.is_none());
        refusal.map(|refusal| refusal.retry_at)
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
    }
}

/// The next of the random numbers that `seed` began (splitmix64). Never 0.
#[must_use]
pub fn next_generation(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *seed;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ mixed >> 31).max(1)
}

impl Log {
    /// A segment file in memory that holds nothing anyone needs: for the next appends, or gone.
    pub(super) fn recycle(&mut self, segment: SegmentNumber, memory: Memory) {
        let bytes_max = self.options.resident_bytes_min;
        if let Some(memory) = self.supply.recycle(segment, memory, bytes_max) {
            self.requests.push_back(Request::Discard {
                segment,
                memory: Some(memory),
            });
        }
    }

    /// A segment is spilled, or stays. Tells those that wait for room if the pool has what they wait for; if it
    /// has not and nothing else comes, a new one is made.
    pub(super) fn note_left(&mut self, events: &mut Vec<Event>) {
        self.supply.leaving -= 1;
        let Some(needed) = self.supply.waiting else {
            return;
        };
        if self.supply.can_give(needed) {
            self.supply.waiting = None;
            events.push(Event::Room);
        } else if self.supply.refusal.is_none() && !self.supply.is_coming() {
            self.prepare(needed);
        }
    }

    /// A larger backlog is kept in larger segments, a smaller one in smaller ones.
    pub(super) fn follow_backlog(&mut self) {
        let held = self.segments.iter().filter(|segment| segment.is_held());
        let live: u64 = held.map(|segment| u64::from(segment.head.bytes)).sum();
        let spill_most = u64::from(SPILLED_BYTES).min(self.options.resident_bytes_min);
        let spill_bytes = (live / SPILL_SHARE).min(spill_most);
        let share = spill_bytes.max(live / BACKLOG_SHARE);
        let share = share.min(u64::from(SEGMENT_BYTES_LIMIT)) as u32;
        let least = self.supply.steady_min;
        let most = self.options.segment_bytes_max.max(least);
        self.supply.steady = share.next_power_of_two().clamp(least, most);
    }

    /// The current segment is half full: has the next one prepared.
    #[cold]
    pub(super) fn prepare_ahead(&mut self) {
        // While the disk is full the retries are the timer's.
        if self.supply.refusal.is_none() {
            self.prepare(0);
        }
    }

    /// An append needs a segment of `needed` bytes and there is none.
    pub(super) fn ask_for(&mut self, needed: u32) -> AppendError {
        let waiting = self.supply.waiting.unwrap_or(0).max(needed);
        self.supply.waiting = Some(waiting);
        if let Some(refusal) = &self.supply.refusal {
            let text = Arc::clone(&refusal.text);
            let error = if refusal.is_full {
                AppendError::Full(text)
            } else {
                AppendError::Io(text)
            };
            self.retry_prepare_if_due();
            return error;
        }
        if !self.supply.is_coming() {
            self.prepare(waiting);
        }
        AppendError::WouldBlock
    }

    fn prepare(&mut self, needed: u32) {
        let bytes = self.next_segment_bytes(needed);
        let segment = self.supply.next_number();
        self.supply.preparing = Some(segment);
        self.requests.push_back(Request::Prepare {
            segment,
            bytes,
            pages: self.pages_of(bytes),
        });
    }

    /// Huge pages are for a flow that fills its segments quicker than it is synced: a sync writes them whole.
    fn pages_of(&self, bytes: u32) -> Pages {
        let is_unsynced = |since| self.sync.began().is_none_or(|began| began < since);
        let is_quicker = self.segments.tail.is_some() && is_unsynced(self.supply.tail_since);
        if is_quicker && bytes >= HUGE_FROM {
            Pages::Huge
        } else {
            Pages::Small
        }
    }

    fn next_segment_bytes(&mut self, needed: u32) -> u32 {
        let options = &self.options;
        let supply = &mut self.supply;
        let whole_pages = needed.next_multiple_of(PAGE_BYTES);
        if supply.refusal.is_some() {
            // On a disk that is nearly full a small segment may still find room.
            return whole_pages.max(options.segment_bytes_min);
        }
        // A segment has room for two large batches, so that recycled segments serve large batches, too. A batch
        // of more than 8 MiB gets a segment of its own size: an MPUB of five megabytes of one-byte messages
        // takes 51 MiB, and must not make all later segments as large.
        let ample = needed
            .saturating_mul(2)
            .min(SPILLED_BYTES)
            .next_power_of_two();
        let largest = options.segment_bytes_max.max(options.segment_bytes_steady);
        supply.steady_min = supply.steady_min.max(ample.min(largest));
        supply.steady = supply.steady.max(supply.steady_min);
        supply.steady.max(whole_pages)
    }

    pub(super) fn prepared(
        &mut self,
        number: SegmentNumber,
        result: Result<Memory, Failure>,
        events: &mut Vec<Event>,
    ) {
        self.supply.preparing = None;
        self.supply.prepared_upto = self.supply.prepared_upto.max(number);
        let memory = match result {
            Ok(memory) => memory,
            Err(failure) => return self.prepare_refused(&failure, events),
        };
        let was_refused = self.supply.refusal.take().is_some();
        let bytes = memory.as_ref().len();
        if let Some(small) = self.supply.spare.replace(Stocked { number, memory }) {
            self.requests.push_back(Request::Discard {
                segment: small.number,
                memory: Some(small.memory),
            });
        }
        match self.supply.waiting {
            // Asked for when smaller messages were the largest.
            Some(needed) if bytes < needed as usize => self.prepare(needed),
            waiting => {
                self.supply.waiting = None;
                if waiting.is_some() || was_refused {
                    events.push(Event::Room);
                }
            }
        }
    }

    fn prepare_refused(&mut self, failure: &Failure, events: &mut Vec<Event>) {
        let text: Arc<str> = failure.text.as_str().into();
        let retry_at = self.mono + PREPARE_RETRY;
        self.supply.refusal = Some(Refusal {
            is_full: failure.is_full(),
            text: Arc::clone(&text),
            retry_at,
        });
        events.push(Event::RoomRefused(text));
    }

    /// When room is tried to be made again: a log that takes no more messages needs none.
    pub(super) fn prepare_retry_at(&self) -> Option<Duration> {
        let is_needed = self.sync.poisoned().is_none();
        self.supply.retry_at().filter(|_| is_needed)
    }

    pub(super) fn retry_prepare_if_due(&mut self) {
        if self.prepare_retry_at().is_some_and(|at| at <= self.mono) {
            self.prepare(self.supply.waiting.unwrap_or(0));
        }
    }

    /// When an idle log has something to give back.
    pub(super) fn trim_at(&self) -> Option<Duration> {
        let tail = self.segments.tail.as_ref();
        let has_stock =
            !self.supply.pool.is_empty() || tail.is_none() && self.supply.spare.is_some();
        let stock_at = has_stock.then_some(self.last_append + IDLE_AFTER);
        let has_tail = tail.is_some_and(|tail| !tail.is_held());
        let tail_at = has_tail.then_some(self.last_append + TAIL_IDLE_AFTER);
        [stock_at, tail_at].into_iter().flatten().min()
    }

    /// Gives back the pool, later a tail whose messages are all finished, and then the spare: an idle
    /// topic costs no memory.
    pub(super) fn trim_if_idle(&mut self) {
        if self.trim_at().is_none_or(|at| at > self.mono) {
            return;
        }
        let is_idle_tail = self.last_append + TAIL_IDLE_AFTER <= self.mono
            && self
                .segments
                .tail
                .as_ref()
                .is_some_and(|tail| !tail.is_held());
        if is_idle_tail {
            self.seal_tail();
        }
        let spare = self.supply.spare.take_if(|_| self.segments.tail.is_none());
        for Stocked { number, memory } in self.supply.pool.drain(..).chain(spare) {
            self.requests.push_back(Request::Discard {
                segment: number,
                memory: Some(memory),
            });
        }
        self.supply.steady_min = self.options.segment_bytes_min;
        self.follow_backlog();
    }
}
