//! The origin of the next segment: the pool of recycled segments, or the keeper.

use std::sync::Arc;
use std::time::Duration;

use crate::error::AppendError;
use crate::file_name::SegmentNumber;
use crate::memory::{Memory, Pages};
use crate::policy::{self, IDLE_AFTER, RETRY_AFTER, TAIL_IDLE_AFTER};
use crate::request::{Failure, Request};

use super::supply::{Refusal, Stocked};
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
        } else if self.supply.refusal.is_none() && !self.supply.is_coming() {
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
        // While the disk is full the retries are the timer's.
        if self.supply.refusal.is_none() {
            self.prepare(0);
        }
    }

    /// Asks the keeper for a segment of `needed` bytes, which an append needs. Returns the error for the append.
    pub(super) fn ask_for(&mut self, needed: u32) -> AppendError {
        if let Some(refusal) = &self.supply.refusal {
            let text = Arc::clone(&refusal.text);
            let error = if refusal.is_full {
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
        if supply.refusal.is_some() || self.mono < supply.small_until {
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
        let was_refused = self.supply.refusal.take().is_some();
        let bytes = memory.as_ref().len();
        if let Some(small) = self.supply.add_spare(Stocked { number, memory }) {
            self.discard(small.number, Some(small.memory));
        }
        match self.supply.waiting {
            // The segment was requested before a larger message came, which it does not fit.
            Some(needed) if bytes < needed as usize => self.prepare(needed),
            waiting => {
                self.supply.waiting = None;
                if waiting.is_some() || was_refused {
                    notices.push(Notice::Room);
                }
            }
        }
    }

    /// Takes the keeper's failure to make a segment of `asked` bytes. If the disk had no room, and a smaller segment is
    /// enough, asks for the smaller one. Otherwise refuses appends, those that wait and later ones, until there is a
    /// segment again. A retry asks for the smallest segment: an append that needed a large one does not keep out others.
    fn prepare_refused(
        &mut self,
        asked: Option<u32>,
        failure: &Failure,
        notices: &mut Vec<Notice>,
    ) {
        let retry_at = self.mono + RETRY_AFTER;
        let needed = self.supply.waiting.unwrap_or(0);
        let least = policy::segment_bytes(needed, self.options.segment_bytes_min);
        if failure.is_full() && asked > Some(least) {
            self.supply.small_until = retry_at;
            return self.prepare(needed);
        }
        self.supply.waiting = None;
        let text: Arc<str> = failure.text.as_str().into();
        self.supply.refusal = Some(Refusal {
            is_full: failure.is_full(),
            text: Arc::clone(&text),
            retry_at,
        });
        notices.push(Notice::RoomRefused(text));
    }

    /// Returns when the log asks for a segment again after a refusal. `None` for a poisoned log, which needs no room.
    pub(super) fn prepare_retry_at(&self) -> Option<Duration> {
        let is_idle = self.supply.preparing.is_none() && self.sync.poisoned.is_none();
        let refusal = self.supply.refusal.as_ref().filter(|_| is_idle);
        refusal.map(|refusal| refusal.retry_at)
    }

    /// Asks for room again.
    pub(super) fn retry_prepare(&mut self) {
        self.prepare(0);
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
