//! [`Supply`]: the segments that the next appends get: the pool of recycled ones, and what the keeper prepared.

use std::sync::Arc;
use std::time::Duration;

use crate::error::AppendError;
use crate::file_name::SegmentNumber;
use crate::memory::{Memory, Pages};
use crate::policy::{self, IDLE_AFTER, RETRY_AFTER, SPILLING_ENOUGH};
use crate::request::{Failure, Request};
use crate::segment::next_generation;

use super::answers::Notice;
use super::context::{Context, LogOptions};

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
#[derive(Debug, Default)]
pub(super) struct Supply {
    /// The segment that the keeper prepared.
    spare: Option<Stocked>,
    /// Recycled segments. The last one added is used first, because its pages are the warmest. The fewer segments are
    /// in use, the fewer pages are written to disk and faulted in again.
    pool: Vec<Stocked>,
    /// The size of the new segment that the keeper is preparing, in bytes.
    preparing: Option<u32>,
    /// The number of segments that are being spilled. Their memory comes back to the pool.
    pub(super) spilling: u32,
    /// The size of the segment that an append waits for, in bytes. A refused append does not wait.
    waiting: Option<u32>,
    pub(super) shortage: Option<Shortage>,
    /// The log asks for the smallest segments until this time, because the disk had no room for a larger one.
    small_until: Duration,
    /// The size of new and recycled segments: what flow, batches and backlog need.
    pub(super) steady: u32,
    /// The size that flow and batches need.
    steady_min: u32,
    /// The time at which the tail took its first message. `None`: there is no tail.
    pub(super) tail_since: Option<Duration>,
    /// The time at which the last append came, successful or not: a log without appends gives memory back.
    pub(super) last_append: Duration,
    pub(super) next_number: SegmentNumber,
    generations: u64,
}

impl Supply {
    pub(super) fn new(options: &LogOptions, next_number: SegmentNumber) -> Supply {
        Supply {
            steady: options.segment_bytes_min,
            steady_min: options.segment_bytes_min,
            next_number,
            generations: options.process_seed,
            ..Supply::default()
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
    fn is_coming(&self) -> bool {
        self.preparing.is_some() || self.spilling >= SPILLING_ENOUGH
    }

    /// A number for a new file.
    pub(super) fn next_number(&mut self) -> SegmentNumber {
        let number = self.next_number;
        self.next_number = SegmentNumber(number.0 + 1);
        number
    }

    /// Notes that a tail begins. If the tail before it was full soon, the next segments are larger.
    pub(super) fn follow_flow(&mut self, context: &Context) {
        if let Some(since) = self.tail_since.replace(context.mono) {
            let filled_in = context.mono.saturating_sub(since);
            let most = context.options.segment_bytes_steady;
            self.steady_min = policy::flow_bytes(self.steady_min, filled_in, most);
        }
    }

    /// Adapts the size of new segments to a backlog of `live` bytes: a larger backlog is kept in larger segments.
    pub(super) fn follow_backlog(&mut self, options: &LogOptions, live: u64) {
        let (memory, most) = (options.resident_bytes_min, options.segment_bytes_max);
        self.steady = policy::backlog_bytes(live, memory, self.steady_min, most);
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

    /// Takes back a mapped segment that nobody needs. It goes to the pool for the next appends, or is discarded.
    pub(super) fn recycle(&mut self, context: &mut Context, number: SegmentNumber, memory: Memory) {
        let bytes = memory.as_ref().len() as u64;
        let is_suitable = policy::suits_pool(bytes, self.steady, self.steady_min);
        if is_suitable && self.has_room(bytes, &context.options) {
            self.pool.push(Stocked { number, memory });
        } else {
            context.discard(number, Some(memory));
        }
    }

    fn has_room(&self, bytes: u64, options: &LogOptions) -> bool {
        let (least, memory) = (options.pool_segments_min, options.resident_bytes_min);
        let pooled = self.pool.iter().map(|stocked| stocked.bytes() as u64).sum();
        policy::has_pool_room(self.pool.len(), least, pooled, bytes, memory)
    }

    /// Ends a spill, successful or not. If an append waits for room and the pool now has a segment that fits, reports
    /// [`Notice::Room`]. If no such segment is there or on its way, asks the keeper for a new one.
    pub(super) fn end_spill(&mut self, context: &mut Context) {
        self.spilling -= 1;
        let Some(needed) = self.waiting else {
            return;
        };
        if self.can_give(needed) {
            self.waiting = None;
            context.tell(Notice::Room);
        } else if !self.is_coming() {
            self.prepare(context, needed);
        }
    }

    /// Has the next segment prepared before an append needs it.
    #[cold]
    pub(super) fn prepare_ahead(&mut self, context: &mut Context) {
        // While the disk has no room for the smallest segment, the retries are the timer's.
        if !self.refuses(context.options.segment_bytes_min) {
            self.prepare(context, 0);
        }
    }

    /// Asks the keeper for a segment of `needed` bytes, which an append needs. Returns the error for the append.
    pub(super) fn ask_for(&mut self, context: &mut Context, needed: u32) -> AppendError {
        let bytes = policy::segment_bytes(needed, context.options.segment_bytes_min);
        if self.refuses(bytes)
            && let Some(shortage) = &mut self.shortage
        {
            shortage.refused_most = shortage.refused_most.max(bytes);
            let text = Arc::clone(&shortage.text);
            return if shortage.is_full {
                AppendError::Full(text)
            } else {
                AppendError::Io(text)
            };
        }
        let waiting = self.waiting.unwrap_or(0).max(needed);
        self.waiting = Some(waiting);
        if !self.is_coming() {
            self.prepare(context, waiting);
        }
        AppendError::WouldBlock
    }

    /// Returns whether a new segment of `bytes` bytes is refused without asking the keeper.
    fn refuses(&self, bytes: u32) -> bool {
        let shortage = self.shortage.as_ref();
        shortage.is_some_and(|shortage| bytes >= shortage.refused_from)
    }

    /// Asks the keeper for a segment that an append of `needed` bytes fits.
    fn prepare(&mut self, context: &mut Context, needed: u32) {
        let bytes = self.next_segment_bytes(context, needed);
        self.preparing = Some(bytes);
        context.ask(Request::Prepare {
            segment: self.next_number(),
            bytes,
            pages: self.pages_of(context, bytes),
        });
    }

    fn pages_of(&self, context: &Context, bytes: u32) -> Pages {
        let is_unsynced = |since| context.sync_began.is_none_or(|began| began < since);
        policy::pages(bytes, self.tail_since.is_some_and(is_unsynced))
    }

    fn next_segment_bytes(&mut self, context: &Context, needed: u32) -> u32 {
        let options = &context.options;
        if self.shortage.is_some() || context.mono < self.small_until {
            // On a disk that is nearly full a small segment may still find room.
            return policy::segment_bytes(needed, options.segment_bytes_min);
        }
        let largest = options.segment_bytes_max.max(options.segment_bytes_steady);
        let ample = policy::batch_bytes(needed, largest);
        self.steady_min = self.steady_min.max(ample);
        self.steady = self.steady.max(self.steady_min);
        policy::segment_bytes(needed, self.steady)
    }

    pub(super) fn prepared(
        &mut self,
        context: &mut Context,
        number: SegmentNumber,
        result: Result<Memory, Failure>,
    ) {
        let asked = self.preparing.take();
        context.prepared_upto = context.prepared_upto.max(number);
        let memory = match result {
            Ok(memory) => memory,
            Err(failure) => return self.prepare_refused(context, asked, &failure),
        };
        let bytes = memory.as_ref().len() as u32;
        let was_short = self.shortage.is_some();
        match &mut self.shortage {
            // The keeper may be asked again for segments that are not larger than this one.
            Some(shortage) if bytes < shortage.refused_most => {
                shortage.refused_from = shortage.refused_from.max(bytes + 1);
            }
            ended => *ended = None,
        }
        // The log asks for another segment only if the spare is too small.
        if let Some(small) = self.spare.replace(Stocked { number, memory }) {
            context.discard(small.number, Some(small.memory));
        }
        match self.waiting {
            // The segment was requested before a larger message came, which it does not fit.
            Some(needed) if bytes < needed => self.prepare(context, needed),
            waiting => {
                self.waiting = None;
                if waiting.is_some() || was_short {
                    context.tell(Notice::Room);
                }
            }
        }
    }

    /// Takes the keeper's failure to make a segment of `asked` bytes. If the disk had no room, and a smaller segment is
    /// enough, asks for the smaller one. Otherwise a [`Shortage`] begins or goes on: the log refuses appends that need so
    /// much room, those that wait and later ones.
    fn prepare_refused(&mut self, context: &mut Context, asked: Option<u32>, failure: &Failure) {
        let retry_at = context.mono + RETRY_AFTER;
        let waiting = self.waiting;
        let needed = waiting.unwrap_or(0);
        let bytes = policy::segment_bytes(needed, context.options.segment_bytes_min);
        let is_larger = asked > Some(bytes);
        if let Some(shortage) = &mut self.shortage {
            shortage.retry_at = retry_at;
            if is_larger && waiting.is_none() {
                // The segment was to end the shortage, and no append waits for it.
                return;
            }
        }
        if failure.is_full() && is_larger {
            self.small_until = retry_at;
            return self.prepare(context, needed);
        }
        self.waiting = None;
        let is_full = failure.is_full();
        let old = self.shortage.take();
        let is_new = old.as_ref().is_none_or(|old| old.is_full != is_full);
        let text = match &old {
            Some(old) if !is_new => Arc::clone(&old.text),
            _ => failure.text.as_str().into(),
        };
        let (from, most) = old.map_or((bytes, bytes), |old| (old.refused_from, old.refused_most));
        self.shortage = Some(Shortage {
            is_full,
            text: Arc::clone(&text),
            retry_at,
            refused_from: from.min(bytes),
            refused_most: most.max(bytes),
        });
        if waiting.is_some() || is_new {
            let cause = text;
            context.tell(Notice::RoomRefused { cause, is_new });
        }
    }

    /// Returns when the log asks for a segment again in a [`Shortage`].
    pub(super) fn retry_at(&self) -> Option<Duration> {
        let is_idle = self.preparing.is_none();
        let shortage = self.shortage.as_ref().filter(|_| is_idle);
        shortage.map(|shortage| shortage.retry_at)
    }

    /// Ends the shortage if a segment for the largest refused append has become free. Otherwise asks for room again: for
    /// the smallest segment, so that a large append does not keep out others, and for the large one if small appends have
    /// what they need, or none come.
    pub(super) fn retry(&mut self, context: &mut Context) {
        let Some(most) = self.shortage.as_ref().map(|it| it.refused_most) else {
            return;
        };
        if self.can_give(most) {
            self.shortage = None;
        }
        let Some(shortage) = &mut self.shortage else {
            return;
        };
        // Room may have come for a size between. From now on, the keeper is asked for each size once.
        shortage.refused_from = most;
        let has_stock = self.stock().next().is_some();
        let is_idle = self.last_append + IDLE_AFTER <= context.mono;
        self.prepare(context, if has_stock || is_idle { most } else { 0 });
    }

    /// Returns when an idle log has stock to give back. The spare is for the next append while there is a tail.
    pub(super) fn trim_at(&self, has_tail: bool) -> Option<Duration> {
        let has_stock = !self.pool.is_empty() || !has_tail && self.spare.is_some();
        has_stock.then_some(self.last_append + IDLE_AFTER)
    }

    /// Gives back the pool, and the spare if there is no tail.
    pub(super) fn trim(&mut self, context: &mut Context, has_tail: bool) {
        let spare = self.spare.take_if(|_| !has_tail);
        for Stocked { number, memory } in std::mem::take(&mut self.pool).into_iter().chain(spare) {
            context.discard(number, Some(memory));
        }
        self.steady_min = context.options.segment_bytes_min;
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
        let is_full = self.pool.len() == options.pool_segments_min;
        assert!(
            is_full || self.has_room(0, options),
            "the pool is over its bound"
        );
        let is_ordered = self.steady >= self.steady_min;
        let is_large_enough = self.steady_min >= options.segment_bytes_min;
        assert!(
            is_ordered && is_large_enough,
            "the steady size went below its own"
        );
        if let Some(shortage) = &self.shortage {
            assert!(shortage.refused_from <= shortage.refused_most);
        }
    }
}
