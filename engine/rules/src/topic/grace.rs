//! [`Grace`]: a new topic keeps all messages for the channels that exist elsewhere and are not known here yet.
//!
//! ```text
//!   distribute ──range──► every channel
//!                   └───► the grace, which holds the range in the log like one more channel
//!   a new channel ◄── a copy of the ranges in the grace
//!   end of the grace ──► the ranges are released
//! ```
//!
//! A topic gets grace at its start if an nsqlookupd could not say which channels the topic has elsewhere. Until the end
//! of the grace, a new channel gets all messages since the topic began. Ephemeral topics have no grace, and ephemeral
//! channels get nothing from it.

use super::pieces::{Bounds, Pieces};
use crate::channel::Channel;
use crate::long_queue::LongQueue;
use crate::now::Now;
use crate::ranges::Ranges;
use diskq_log::{Log, SeqRange};
use std::collections::BTreeSet;
use std::time::Duration;
use wire::id::Seq;

/// The time between two questions about the channels of a topic in grace. An nsqd that lost its nsqlookupd connects to
/// it again as often as that.
const ASK_EVERY: Duration = Duration::from_secs(15);

/// A topic in grace asks this often at least.
const QUESTIONS_MIN: u32 = 4;

/// The time until the next question, if the topic could not take all channels of the last answer.
pub(super) const ASK_SOON: Duration = Duration::from_secs(1);

/// The number of deferred messages that a grace keeps. A new channel copies them in one turn: 11 ms.
pub(super) const DEFERRED_MAX: usize = 65_536;

/// The settings of the grace of new topics.
#[derive(Debug, Clone, Copy, Default)]
pub struct GraceOptions {
    /// The time from the start of a topic to the end of its grace. 0: topics have no grace.
    pub period: Duration,
    /// The bytes of messages that the grace of a topic keeps.
    pub bytes_max: u64,
}

/// The grace of a topic.
#[derive(Debug)]
pub(super) struct Grace {
    pub(super) until: Duration,
    /// The same in Unix nanoseconds, as checkpoints have it.
    pub(super) until_ns: u64,
    pub(super) ask_at: Duration,
    pub(super) ask_every: Duration,
    /// All distributed messages, each held in the log once for the grace.
    pub(super) messages: Ranges,
    /// The deferred messages, each with the time at which it becomes due. They are among `messages`, too. Entries in
    /// front of the first message are left over.
    pub(super) deferred: LongQueue<(Seq, Duration)>,
    /// The sizes of the messages, and of those that are on their way to the channels.
    pub(super) pieces: Pieces,
    pub(super) bounds: Bounds,
    /// Messages below this seq are beyond the bounds.
    pub(super) first_kept: Seq,
    /// True when the grace has dropped messages beyond its bounds, and the log says so.
    pub(super) has_dropped: bool,
    /// Channels that were deleted in the grace. Their messages are dropped.
    pub(super) deleted: BTreeSet<Box<str>>,
}

impl Grace {
    /// A grace without messages. It ends at `until` at the latest.
    pub(super) fn new(now: Now, until: Duration, options: GraceOptions, pieces: Pieces) -> Grace {
        let until = until.min(now.mono + options.period);
        let ask_every = ASK_EVERY.min(options.period / QUESTIONS_MIN);
        let left = (until - now.mono).as_nanos() as u64;
        Grace {
            until,
            until_ns: now.wall_ns.saturating_add(left),
            ask_at: now.mono + ask_every,
            ask_every,
            messages: Ranges::default(),
            deferred: LongQueue::default(),
            pieces,
            bounds: Bounds {
                bytes: options.bytes_max,
                age: Duration::MAX,
            },
            first_kept: Seq(0),
            has_dropped: false,
            deleted: BTreeSet::new(),
        }
    }

    /// Gives a new channel all messages.
    pub(super) fn fill(&self, channel: &mut Channel, log: &mut Log) {
        let mut deferred = self.deferred.iter().peekable();
        for range in self.messages.iter() {
            log.retain(range, 1);
            let mut start = range.start;
            while let Some((seq, due)) = deferred.next_if(|(seq, _)| *seq < range.end) {
                if *seq >= start {
                    channel.take_over(SeqRange::new(start, *seq));
                    channel.defer(*seq, *due);
                    start = seq.offset(1);
                }
            }
            channel.take_over(SeqRange::new(start, range.end));
        }
    }
}
