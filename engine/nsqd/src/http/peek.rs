//! `/topic/peek` and `/channel/peek`: messages that are shown and not consumed.
//!
//! ```text
//!   shard: a slice (copies, places on disk) ─► a thread beside the shards: reads, filters ─► answer
//!     ▲                                             │
//!     └────────── the next slice, until the limit or the budget is reached
//! ```

mod answer;
mod question;

use std::time::{Duration, Instant};

use super::{BUSY, HttpBroker};
use crate::thread_pool::Full;
use answer::{Answer, Taken};
use engine_rules::{PeekBudget, PeekQuestion};
use futures_channel::oneshot;
use http::StatusCode;
use program::http::{Failure, Query, Reply};
use question::Wanted;

/// Bytes of a frame that a peek looks at. The rest of a longer body is neither searched nor shown.
const FRAME_BYTES_MAX: usize = 256 * 1024;

/// The bounds of the work of one shard in one turn. To copy 256 KiB takes about 30 µs, and to go through 2048 entries
/// about 15 µs.
const SLICE: PeekBudget = PeekBudget {
    messages_max: 128,
    entries_max: 2048,
    bytes_max: 256 * 1024,
    frame_bytes_max: FRAME_BYTES_MAX,
};

/// Messages that one request goes through at most.
const SCANNED_MAX: u64 = 20_000;
/// Bytes of frames that one request goes through at most: those that are copied from memory, and those that are read from
/// disk. One message may exceed this bound.
const SCANNED_BYTES_MAX: u64 = 32 << 20;
/// Bytes of frames that are read from disk for one slice: some 10 ms, after which the time is looked at, and another
/// request has its turn. One message may exceed this bound.
const READ_BYTES_MAX: u64 = 4 << 20;
/// Bytes of bodies that one answer shows at most. One message may exceed this bound.
const SHOWN_BYTES_MAX: usize = 4 << 20;
/// The time after which a request begins no further slice.
const TIME_MAX: Duration = Duration::from_secs(2);

/// Answers `/topic/peek`, and `/channel/peek` if `is_of_channel` is true.
pub(super) async fn peek(
    broker: &HttpBroker,
    is_of_channel: bool,
    query: &Query<'_>,
) -> Result<Reply, Failure> {
    let config = &broker.info().config;
    if let Some(reason) = question::prohibition(config) {
        let forbidden = Failure::new(StatusCode::FORBIDDEN, "PEEK_FORBIDDEN");
        return Err(forbidden.because(reason));
    }
    let answer = search(broker, Wanted::from_query(query, is_of_channel)?).await?;
    Ok(answer.into_reply())
}

async fn search(broker: &HttpBroker, wanted: Wanted) -> Result<Answer, Failure> {
    let started = Instant::now();
    let mut answer = Answer::new(wanted);
    let mut question = PeekQuestion {
        topic: answer.wanted.topic.clone(),
        channel: answer.wanted.channel.clone(),
        from: answer.from(),
        place: answer.wanted.place,
        budget: SLICE,
    };
    loop {
        question.from = answer.from();
        question.budget = answer.slice_budget(SLICE);
        let slice = broker.peek(&question).await?;
        // A thread beside the shards reads and searches the messages.
        let (sender, receiver) = oneshot::channel();
        let files = broker.shared().peeks.clone();
        let take = move || {
            let outcome = answer.take_slice(slice, &files);
            // The caller may be gone: an HTTP client that hung up.
            let _ = sender.send((answer, outcome));
        };
        let begun = broker.shared().peek_threads.give(0, Box::new(take));
        begun.map_err(|Full| BUSY)?;
        let outcome;
        (answer, outcome) = receiver.await.map_err(|_| BUSY)?;
        question.place = answer.next;
        let is_done = answer.is_full() || answer.next.is_none();
        // A message that moves each time that it is looked for must not keep the thread.
        if (outcome == Taken::Whole && is_done) || started.elapsed() >= TIME_MAX {
            return Ok(answer);
        }
    }
}

#[cfg(test)]
mod tests;
