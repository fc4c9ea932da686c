//! The origin of the next segment: the pool of recycled segments, or the keeper.

use std::sync::Arc;
use std::time::Duration;

use crate::error::AppendError;
use crate::file_name::SegmentNumber;
use crate::memory::{Memory, Pages};
use crate::policy::{self, IDLE_AFTER, RETRY_AFTER, TAIL_IDLE_AFTER};
use crate::request::{Failure, Request};

use super::supply::{Shortage, Stocked};
use super::timer::Timer;
use super::{Log, Notice};

impl Log {
    /// Takes back a mapped segment that nobody needs. It goes to the pool for the next appends, or is discarded.
    pub(super) fn recycle(&mut self, segment: SegmentNumber, memory: Memory) {
        let bytes_max = self.options.resident_bytes_min;
        if let Some(memory) = self.supply.recycle(segment, memory, bytes_max) {
            self.discard(segment, Some(memory));
        }
    }

    /// Has a file removed, and its memory unmapped.
    pub(super) fn discard(&mut self, segment: SegmentNumber, memory: Option<Memory>) {
        let request = Request::Discard { segment, memory };
        self.requests.push_back(request);
    }

    /// Ends a spill, successful or not. If an append waits for room and the pool now has a segment that fits, reports
    /// [`Notice::Room`]. If no such segment is there or on its way, asks the keeper for a new one.
    pub(super) fn end_spill(&mut self, notices: &mut Vec<Notice>) {
        self.supply.spilling -= 1;
        let Some(needed) = self.supply.waiting else {
            return;
        };
        if self.supply.can_give(needed) {
            self.supply.waiting = None;
            notices.push(Notice::Room);
        } else if !self.supply.is_coming() {
            self.prepare(needed);
        }
    }

    /// Adapts the size of new segments to the backlog: a larger backlog is kept in larger segments.
    pub(super) fn follow_backlog(&mut self) {
        let held = self.segments.iter().filter(|segment| segment.is_held());
        let live: u64 = held.map(|segment| u64::from(segment.head.bytes)).sum();
        let (least, most) = (self.supply.steady_min, self.options.segment_bytes_max);
        let memory = self.options.resident_bytes_min;
        self.supply.steady = policy::backlog_bytes(live, memory, least, most);
    }

    /// Has the next segment prepared before an append needs it.
    #[cold]
    pub(super) fn prepare_ahead(&mut self) {
        // While the disk has no room for the smallest segment, the retries are the timer's.
        if !self.refuses(self.options.segment_bytes_min) {
            self.prepare(0);
        }
    }

    /// Asks the keeper for a segment of `needed` bytes, which an append needs. Returns the error for the append.
    pub(super) fn ask_for(&mut self, needed: u32) -> AppendError {
        let bytes = policy::segment_bytes(needed, self.options.segment_bytes_min);
        if self.refuses(bytes)
            && let Some(shortage) = &mut self.supply.shortage
        {
            shortage.refused_most = shortage.refused_most.max(bytes);
            let text = Arc::clone(&shortage.text);
            let error = if shortage.is_full {
                AppendError::Full(text)
            } else {
                AppendError::Io(text)
            };
            self.fire_if_due(Timer::Room);
            return error;
        }
        let waiting = self.supply.waiting.unwrap_or(0).max(needed);
        self.supply.waiting = Some(waiting);
        if !self.supply.is_coming() {
            self.prepare(waiting);
        }
        AppendError::WouldBlock
    }

    /// Returns whether a new segment of `bytes` bytes is refused without asking the keeper.
    fn refuses(&self, bytes: u32) -> bool {
        let shortage = self.supply.shortage.as_ref();
        shortage.is_some_and(|shortage| bytes >= shortage.refused_from)
    }

    /// Asks the keeper for a segment that an append of `needed` bytes fits.
    fn prepare(&mut self, needed: u32) {
        let bytes = self.next_segment_bytes(needed);
        let segment = self.supply.next_number();
        self.supply.preparing = Some(bytes);
        self.requests.push_back(Request::Prepare {
            segment,
            bytes,
            pages: self.pages_of(bytes),
        });
    }

    fn pages_of(&self, bytes: u32) -> Pages {
        let is_unsynced = |since| self.sync.began.is_none_or(|began| began < since);
        let is_quicker = self.segments.tail.is_some() && is_unsynced(self.supply.tail_since);
        policy::pages(bytes, is_quicker)
    }

    fn next_segment_bytes(&mut self, needed: u32) -> u32 {
        let options = &self.options;
        let supply = &mut self.supply;
        if supply.shortage.is_some() || self.mono < supply.small_until {
            // On a disk that is nearly full a small segment may still find room.
            return policy::segment_bytes(needed, options.segment_bytes_min);
        }
        let largest = options.segment_bytes_max.max(options.segment_bytes_steady);
        let ample = policy::batch_bytes(needed, largest);
        supply.steady_min = supply.steady_min.max(ample);
        supply.steady = supply.steady.max(supply.steady_min);
        policy::segment_bytes(needed, supply.steady)
    }

    pub(super) fn prepared(
        &mut self,
        number: SegmentNumber,
        result: Result<Memory, Failure>,
        notices: &mut Vec<Notice>,
    ) {
        let asked = self.supply.preparing.take();
        self.supply.prepared_upto = self.supply.prepared_upto.max(number);
        let memory = match result {
            Ok(memory) => memory,
            Err(failure) => return self.prepare_refused(asked, &failure, notices),
        };
        let bytes = memory.as_ref().len() as u32;
        let was_short = self.supply.shortage.is_some();
        match &mut self.supply.shortage {
            // The keeper may be asked again for segments that are not larger than this one.
            Some(shortage) if bytes < shortage.refused_most => {
                shortage.refused_from = shortage.refused_from.max(bytes + 1);
            }
            ended => *ended = None,
        }
        // The log asks for another segment only if the spare is too small.
        if let Some(small) = self.supply.spare.replace(Stocked { number, memory }) {
            self.discard(small.number, Some(small.memory));
        }
        match self.supply.waiting {
            // The segment was requested before a larger message came, which it does not fit.
            Some(needed) if bytes < needed => self.prepare(needed),
            waiting => {
                self.supply.waiting = None;
                if waiting.is_some() || was_short {
                    notices.push(Notice::Room);
                }
            }
        }
    }

    /// Takes the keeper's failure to make a segment of `asked` bytes. If the disk had no room, and a smaller segment is
    /// enough, asks for the smaller one. Otherwise a [`Shortage`] begins or goes on: the log refuses appends that need so
    /// much room, those that wait and later ones.
    fn prepare_refused(
        &mut self,
        asked: Option<u32>,
        failure: &Failure,
        notices: &mut Vec<Notice>,
    ) {
        let retry_at = self.mono + RETRY_AFTER;
        let waiting = self.supply.waiting;
        let needed = waiting.unwrap_or(0);
        let bytes = policy::segment_bytes(needed, self.options.segment_bytes_min);
        let is_larger = asked > Some(bytes);
        if let Some(shortage) = &mut self.supply.shortage {
            shortage.retry_at = retry_at;
            if is_larger && waiting.is_none() {
                // The segment was to end the shortage, and no append waits for it.
                return;
            }
        }
        if failure.is_full() && is_larger {
            self.supply.small_until = retry_at;
            return self.prepare(needed);
        }
        self.supply.waiting = None;
        let is_full = failure.is_full();
        let old = self.supply.shortage.take();
        let is_new = old.as_ref().is_none_or(|old| old.is_full != is_full);
        let text = match &old {
            Some(old) if !is_new => Arc::clone(&old.text),
            _ => failure.text.as_str().into(),
        };
        let (from, most) = old.map_or((bytes, bytes), |old| (old.refused_from, old.refused_most));
        self.supply.shortage = Some(Shortage {
            is_full,
            text: Arc::clone(&text),
            retry_at,
            refused_from: from.min(bytes),
            refused_most: most.max(bytes),
        });
        if waiting.is_some() || is_new {
            notices.push(Notice::RoomRefused {
                cause: text,
                is_new,
            });
        }
    }

    /// Returns when the log asks for a segment again in a [`Shortage`]. `None` for a poisoned log, which needs no room.
    pub(super) fn prepare_retry_at(&self) -> Option<Duration> {
        let is_idle = self.supply.preparing.is_none() && self.sync.poisoned.is_none();
        let shortage = self.supply.shortage.as_ref().filter(|_| is_idle);
        shortage.map(|shortage| shortage.retry_at)
    }

    /// Ends the shortage if a segment for the largest refused append has become free. Otherwise asks for room again: for
    /// the smallest segment, so that a large append does not keep out others, and for the large one if small appends have
    /// what they need, or none come.
    pub(super) fn retry_prepare(&mut self) {
        let Some(most) = self.supply.shortage.as_ref().map(|it| it.refused_most) else {
            return;
        };
        if self.supply.can_give(most) {
            self.supply.shortage = None;
        }
        let Some(shortage) = &mut self.supply.shortage else {
            return;
        };
        // Room may have come for a size between. From now on, the keeper is asked for each size once.
        shortage.refused_from = most;
        let has_stock = self.supply.stock().next().is_some();
        let is_idle = self.last_append + IDLE_AFTER <= self.mono;
        self.prepare(if has_stock || is_idle { most } else { 0 });
    }

    /// Returns when an idle log has something to give back.
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
    pub(super) fn trim(&mut self) {
        let is_idle_tail = self.last_append + TAIL_IDLE_AFTER <= self.mono
            && self
                .segments
                .tail
                .as_ref()
                .is_some_and(|tail| !tail.is_held());
        if is_idle_tail {
            self.seal();
        }
        let spare = self.supply.spare.take_if(|_| self.segments.tail.is_none());
        let pool = std::mem::take(&mut self.supply.pool);
        for Stocked { number, memory } in pool.into_iter().chain(spare) {
            self.discard(number, Some(memory));
        }
        self.supply.steady_min = self.options.segment_bytes_min;
        self.follow_backlog();
    }
}
