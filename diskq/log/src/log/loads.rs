//! [`Loads`]: the memory of loads, and the loads to be tried again.

use std::time::Duration;

use crate::file_name::SegmentNumber;
use crate::memory::Memory;
use crate::policy::{BUFFERS_MAX, IDLE_AFTER, RETRY_AFTER};

use super::context::Context;

/// The memory of loads, and the loads that failed.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// Memory for the next loads.
    pub(super) buffers: Vec<Memory>,
    /// Loads that failed for want of something that may come back, and when to try again.
    pub(super) retries: Vec<(SegmentNumber, Duration)>,
    /// The time at which the last load was asked for.
    pub(super) last: Duration,
}

impl Loads {
    /// Keeps a buffer for the next load. If there are enough, gives the oldest one back.
    pub(super) fn keep_buffer(&mut self, context: &mut Context, memory: Memory) {
        if self.buffers.len() == BUFFERS_MAX {
            context.free([self.buffers.remove(0)]);
        }
        self.buffers.push(memory);
    }

    pub(super) fn retry_later(&mut self, context: &Context, number: SegmentNumber) {
        self.retries.push((number, context.mono + RETRY_AFTER));
    }

    pub(super) fn retry_at(&self) -> Option<Duration> {
        self.retries.iter().map(|&(_, at)| at).min()
    }

    /// Returns when the unused buffers are given back.
    pub(super) fn trim_at(&self) -> Option<Duration> {
        (!self.buffers.is_empty()).then_some(self.last + IDLE_AFTER)
    }

    pub(super) fn trim(&mut self, context: &mut Context) {
        context.free(self.buffers.drain(..));
    }
}
