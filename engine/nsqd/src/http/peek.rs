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

use super::{BUSY, Background, Broker, Busy};
use crate::http::admin::failure_of;
use answer::Answer;
use engine_rules::{ColdMessage, PeekBudget, PeekQuestion};
use http::StatusCode;
use program::http::{Failure, Query, Reply};
use question::Wanted;

/// Bytes of a frame that a peek looks at. The rest of a longer body is neither searched nor shown.
pub(crate) const FRAME_BYTES_MAX: usize = 256 * 1024;

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
const READ_BYTES_MAX: u32 = 4 << 20;
/// Bytes of bodies that one answer shows at most. One message may exceed this bound.
const SHOWN_BYTES_MAX: usize = 4 << 20;
/// The time after which a request begins no further slice.
const TIME_MAX: Duration = Duration::from_secs(2);

/// The beginning of a frame ([`FRAME_BYTES_MAX`]), and the length of the whole frame.
pub type ColdFrame = (Vec<u8>, usize);

/// Reads messages of a segment of a topic from disk. Blocks, so it is for threads beside the shards.
/// The arguments are the topic, the first message, the number of neighbours, and the bytes of frames to read. The result
/// ends before the first message that the file does not have whole, or that exceeds the bytes. The first message may exceed
/// them.
pub type ColdReader = Box<dyn Fn(&str, &ColdMessage, u32, u32) -> Vec<ColdFrame> + Send>;

/// Answers `/topic/peek`, and `/channel/peek` if `is_of_channel` is true.
pub(super) async fn peek<B: Broker>(
    broker: &B,
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

async fn search<B: Broker>(broker: &B, wanted: Wanted) -> Result<Answer, Failure> {
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
        let slice = broker.peek(&question).await.map_err(failure_of)?;
        let mut missing;
        let take = move |answer: &mut Answer, read: &ColdReader| answer.take_slice(slice, read);
        (answer, missing) = beside(broker, answer, take).await?;
        while !missing.is_empty() {
            // The messages have moved between the look at the log and the read of the file.
            let seqs = missing.iter().map(|(_, message)| message.seq).collect();
            let found = broker.peek_again(&question.topic, seqs, SLICE).await;
            let found = found.map_err(failure_of)?;
            let rest = missing.split_off(found.len());
            let take = move |answer: &mut Answer, read: &ColdReader| {
                answer.take_moved(missing, found, read);
            };
            (answer, ()) = beside(broker, answer, take).await?;
            missing = rest;
        }
        if answer.is_full() || answer.next.is_none() || started.elapsed() >= TIME_MAX {
            return Ok(answer);
        }
        question.place = answer.next;
    }
}

/// Has a part of the answer read and searched beside the shards.
async fn beside<B: Broker, R: Send + 'static>(
    broker: &B,
    mut answer: Answer,
    act: impl FnOnce(&mut Answer, &ColdReader) -> R + Send + 'static,
) -> Result<(Answer, R), Failure> {
    let read = broker.cold_reader();
    let job = move || {
        let result = act(&mut answer, &read);
        (answer, result)
    };
    let done = broker.in_background(Background::Peek, job).await;
    done.map_err(|Busy| BUSY)
}

#[cfg(test)]
mod tests;
