//! The log's own rules: how large segments are, which pages they get, which are kept for the next appends, and what
//! leaves memory. Pure functions of numbers; `log/` has the mechanism. docs/reference/policy.md has the same rules for
//! operators.

use std::time::Duration;

use crate::memory::Pages;
use crate::segment::{PAGE_BYTES, SEGMENT_BYTES_LIMIT, SPILLED_BYTES};

/// The time after which a failed allocation, load, sync or checkpoint is tried again. Promise P6
/// (docs/explain/reliability.md) asks for service within 1 s after space becomes free.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(250);
/// The least time that a segment stays in memory after it was loaded, because its reader has not come yet, or after its
/// spill has failed.
pub(crate) const STAYS_FOR: Duration = Duration::from_secs(1);
/// A log without appends for this long gives back what it has in stock for them, and a log without loads its buffers.
pub(crate) const IDLE_AFTER: Duration = Duration::from_secs(5);
/// A log without appends for this long gives back its last segment, too: a topic that has a message now and then would
/// make a file for each.
pub(crate) const TAIL_IDLE_AFTER: Duration = Duration::from_secs(60);
/// The least size of a segment that may lie in large pages.
pub const LARGE_FROM: u32 = 4 << 20;
/// While this many segments are being spilled, the log allocates no new one: their memory is about to be free. They
/// wait in line, so that the disk never waits for the next spill.
pub const SPILLING_ENOUGH: u32 = 8;
/// The buffers that a log keeps for the next loads. One is read while the next is loaded, and messages of two more may
/// be in flight.
pub(crate) const BUFFERS_MAX: usize = 4;

/// A flow that fills a segment within this time gets larger segments, because each change of segments has a cost. A
/// slower flow keeps small segments, because each topic holds a few.
const FILLED_SOON: Duration = Duration::from_millis(500);
/// Recycled segments may be larger and smaller than new ones by this factor.
const POOL_SIZES: u64 = 4;
/// A segment has this part (1/16) of the backlog's size, but at most [`SPILLED_BYTES`] and the log's part of memory. So
/// a log has several segments in its part of memory.
const SPILL_SHARE: u64 = 16;
/// A segment is larger than [`SPILL_SHARE`] allows only if it has this part (1/1024) of the backlog's size. So a
/// backlog has about 1024 files until its segments have the largest size: what goes through the list of segments stays
/// short.
const BACKLOG_SHARE: u64 = 1024;
/// A tail that nobody needs is begun anew only if it is filled to this part (1/4) at least.
const SPENT_SHARE: u32 = 4;
/// A peek reads the number of the segment's messages divided by this, rounded up: of 16 MiB about 256 KiB.
const PEEK_SHARE: u32 = 64;

/// The size that the flow asks for, after a tail of the flow was full within `filled_in`: twice as large, up to `most`.
pub(crate) fn flow_bytes(flow: u32, filled_in: Duration, most: u32) -> u32 {
    if filled_in < FILLED_SOON && flow < most {
        flow.saturating_mul(2).min(most)
    } else {
        flow
    }
}

/// Returns the segment size that an append of `needed` bytes asks for. The size has room for two such batches, up to
/// [`SPILLED_BYTES`], so that recycled segments serve large batches, too. A batch that needs more than
/// [`SPILLED_BYTES`] gets a segment of its own size ([`segment_bytes`]): an MPUB of five megabytes of one-byte messages
/// takes 51 MiB, and must not make all later segments as large.
pub(crate) fn batch_bytes(needed: u32, most: u32) -> u32 {
    let ample = needed.saturating_mul(2).min(SPILLED_BYTES);
    ample.next_power_of_two().min(most)
}

/// The size that a backlog of `live` bytes asks for, in a log that may keep `memory` bytes in memory: between `least`,
/// which flow and batches need, and `most`.
pub(crate) fn backlog_bytes(live: u64, memory: u64, least: u32, most: u32) -> u32 {
    let spilled_most = u64::from(SPILLED_BYTES).min(memory);
    let share = (live / SPILL_SHARE)
        .min(spilled_most)
        .max(live / BACKLOG_SHARE)
        .min(SEGMENT_BYTES_LIMIT.into()) as u32;
    share.next_power_of_two().clamp(least, most.max(least))
}

/// The size of a segment for an append of `needed` bytes, where `usual` is what flow, batches and backlog ask for.
pub(crate) fn segment_bytes(needed: u32, usual: u32) -> u32 {
    usual.max(needed.next_multiple_of(PAGE_BYTES))
}

/// The pages of a new segment. Large pages are for a flow that fills its segments quicker than it is synced: a sync
/// writes such a page whole.
pub(crate) fn pages(bytes: u32, is_quicker_than_syncs: bool) -> Pages {
    if is_quicker_than_syncs && bytes >= LARGE_FROM {
        Pages::Large
    } else {
        Pages::Small
    }
}

/// Returns whether a segment of `bytes` bytes is that of a larger backlog than `usual` segments are for.
pub(crate) fn is_oversized(bytes: u32, usual: u32) -> bool {
    u64::from(bytes) > u64::from(usual) * POOL_SIZES
}

/// Returns whether the pool takes recycled segments of this size. The size need only be near `usual`, the size of new
/// segments: a backlog that grows and shrinks changes `usual` all the time. `least` is the size that flow and batches
/// need.
pub(crate) fn suits_pool(bytes: u64, usual: u32, least: u32) -> bool {
    let usual = u64::from(usual);
    let least = (usual / POOL_SIZES).max(u64::from(least));
    (least..=usual * POOL_SIZES).contains(&bytes)
}

/// Returns whether a pool of `count` segments and `pooled` bytes has room for `bytes` more: for a few segments in
/// any case, and for more of them up to `memory` bytes.
pub(crate) fn has_pool_room(
    count: usize,
    count_min: usize,
    pooled: u64,
    bytes: u64,
    memory: u64,
) -> bool {
    count < count_min || pooled + bytes <= memory
}

/// Returns whether a tail that nobody needs is begun anew. The tail has `bytes` bytes and is filled up to `end`. The
/// filled part is warm memory, and the rest is cold. So a topic whose consumers keep up stays within a part of one
/// segment.
#[inline]
pub(crate) fn is_begun_anew(end: u32, bytes: u32) -> bool {
    end >= bytes / SPENT_SHARE
}

/// Returns whether so much is in memory that sealed segments leave it.
pub(crate) fn is_too_much(bytes: u64, bytes_min: u64, messages: u64, messages_max: u64) -> bool {
    bytes > bytes_min && messages > messages_max
}

/// The number of messages that a peek reads, of a segment with `count` messages.
pub(crate) fn peek_count(count: u32) -> u32 {
    count.div_ceil(PEEK_SHARE)
}

#[cfg(test)]
mod tests;
