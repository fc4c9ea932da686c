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

use super::kept::{Bounds, Kept, Pieces, Totals};
use crate::channel::Channel;
use crate::ranges::Ranges;
use crate::work::Work;
use diskq_log::{GraceDraft, Log, Now, Runs, SeqRange, plant};
use std::collections::BTreeSet;
use std::time::Duration;
use wire::id::Seq;

/// The time between two questions about the channels of a topic in grace. An nsqd that lost its nsqlookupd connects to
/// it again as often as that.
const ASK_EVERY: Duration = Duration::from_secs(15);

/// A topic in grace asks this often at least.
const QUESTIONS_MIN: u32 = 4;

/// The time until the next question, if the topic could not take all channels of the last answer.
const ASK_SOON: Duration = Duration::from_secs(1);

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
pub(crate) struct Grace {
    pub(super) until: Duration,
    /// The same in Unix nanoseconds, as checkpoints have it.
    pub(super) until_ns: u64,
    ask_at: Duration,
    ask_every: Duration,
    /// All distributed messages, each held in the log once for the grace.
    pub(super) kept: Kept<Duration>,
    /// The sizes of the messages, and of those that are on their way to the channels.
    pieces: Pieces,
    bounds: Bounds,
    /// Messages below this seq are beyond the bounds.
    first_kept: Seq,
    /// True when the grace has dropped messages beyond its bounds, and the log says so.
    has_dropped: bool,
    /// Channels that were deleted in the grace. Their messages are dropped.
    deleted: BTreeSet<Box<str>>,
}

impl Grace {
    /// A grace that ends at `until` at the latest. The log holds the messages of `kept` for the grace. `pieces` has the
    /// sizes of these messages, and of those that are on their way to the channels.
    pub(super) fn new(
        now: Now,
        until: Duration,
        options: GraceOptions,
        kept: Kept<Duration>,
        pieces: Pieces,
    ) -> Grace {
        let until = until.min(now.mono + options.period);
        let ask_every = ASK_EVERY.min(options.period / QUESTIONS_MIN);
        let left = (until - now.mono).as_nanos() as u64;
        Grace {
            until,
            until_ns: now.wall_ns.saturating_add(left),
            ask_at: now.mono + ask_every,
            ask_every,
            kept,
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

    /// Gives a new channel all messages. A channel that was deleted in the grace gets none.
    pub(super) fn fill(&self, channel: &mut Channel, log: &mut Log) {
        plant!(GraceForgotten, return);
        if channel.ephemeral || self.deleted.contains(&channel.name) {
            return;
        }
        let mut deferred = self.kept.deferred.iter().peekable();
        for range in self.kept.messages.iter() {
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

    /// The end of the grace, or the next question, whichever is earlier.
    pub(super) fn timeout(&self) -> Duration {
        self.until.min(self.ask_at)
    }

    /// Returns true if it is time to ask again which channels the topic has elsewhere. The next question follows after
    /// a while.
    pub(crate) fn take_question(&mut self, now: Now) -> bool {
        let is_due = self.ask_at <= now.mono;
        if is_due {
            self.ask_at = now.mono + self.ask_every;
        }
        is_due
    }

    /// Has the next question come soon, because the topic could not take a channel of the last answer.
    pub(crate) fn ask_soon(&mut self, now: Now) {
        self.ask_at = self.ask_at.min(now.mono + ASK_SOON);
    }

    /// Returns true if a channel that exists elsewhere is not to be made here, because it was deleted here.
    pub(crate) fn has_deleted(&self, channel: &str) -> bool {
        self.deleted.contains(channel)
    }

    /// Notes that a channel was deleted.
    pub(super) fn delete(&mut self, channel: &Channel) {
        if !channel.ephemeral {
            self.deleted.insert(channel.name.clone());
        }
    }

    /// Keeps messages that every channel was given.
    pub(super) fn keep(&mut self, range: SeqRange, due: Option<Duration>) {
        self.kept.messages.push(range);
        plant!(GraceForgetsDeferral, return);
        if let Some(due) = due {
            self.kept.deferred.push_back((range.start, due));
        }
    }

    /// Takes all messages out. The grace goes on, and gets the messages that are on their way to the channels.
    pub(super) fn take_messages(&mut self, pieces: Pieces) -> Ranges {
        self.pieces = pieces;
        std::mem::take(&mut self.kept).messages
    }

    /// Drops the oldest messages, if there are too many. Messages that are on their way to the channels count already.
    /// They end at `end`. If they are too many, they go as soon as the grace gets them. Returns true if messages were
    /// dropped for the first time.
    pub(super) fn bound(
        &mut self,
        now: Now,
        end: Option<Seq>,
        totals: Totals,
        log: &mut Log,
        work: &mut Work,
    ) -> bool {
        let Some(end) = end.or(self.kept.messages.end()) else {
            return false;
        };
        self.pieces.add(end, totals, now, self.bounds);
        let beyond_bytes = self.pieces.cut(now, self.bounds);
        let deferred = &self.kept.deferred;
        let excess = deferred.len().checked_sub(DEFERRED_MAX + 1);
        let newest_excess = excess.and_then(|excess| {
            let place = deferred.first_place() + excess as u64;
            deferred.iter_from(place).next()
        });
        let beyond_count = newest_excess.map(|(seq, _)| seq.offset(1));
        let beyond = beyond_bytes.max(beyond_count);
        self.first_kept = beyond.map_or(self.first_kept, |seq| seq.max(self.first_kept));
        let count = self.kept.release_below(self.first_kept, log, work);
        count > 0 && !std::mem::replace(&mut self.has_dropped, true)
    }

    /// The grace as a checkpoint begins to record it.
    pub(super) fn draft(&self) -> Option<GraceDraft> {
        plant!(GraceNotRecorded, return None);
        Some(GraceDraft {
            until_ns: self.until_ns,
            runs: Runs::default(),
        })
    }
}
