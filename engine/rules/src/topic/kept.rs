//! [`Kept`]: the messages that a topic holds itself. [`Pieces`]: the sizes and ages of such messages, for the bounds of
//! what a topic keeps. [`Progress`]: the scan of such messages for a checkpoint.

use crate::long_queue::LongQueue;
use crate::ranges::Ranges;
use crate::work::Work;
use diskq_log::{CheckpointRun, Log, Now, SeqRange};
use std::collections::VecDeque;
use std::time::Duration;
use wire::id::Seq;

/// Messages that a topic holds itself, once in the log, and which of them are deferred.
#[derive(Debug, Default)]
pub(super) struct Kept<T> {
    pub(super) messages: Ranges,
    /// The deferred messages in the order of their seqs, each with its deferral in milliseconds or its due time. Entries
    /// in front of the first message are left over.
    pub(super) deferred: LongQueue<(Seq, T)>,
}

impl<T: Copy> Kept<T> {
    /// Releases the messages below a seq, and returns their number. The cost is that of the ranges. Deferrals below the
    /// seq go as far as the budget allows. The others are left over, and are ignored.
    pub(super) fn release_below(&mut self, below: Seq, log: &mut Log, work: &mut Work) -> u64 {
        let before = self.messages.count();
        while let Some(range) = self.messages.front()
            && range.start < below
        {
            let end = range.end.min(below);
            log.release_range(self.messages.take_front(end.since(range.start)));
        }
        while work.is_left() && self.deferred.front().is_some_and(|(seq, _)| *seq < below) {
            work.spend(1);
            self.deferred.pop_front();
        }
        before - self.messages.count()
    }

    /// Returns the deferral of a message.
    pub(super) fn deferral_of(&self, seq: Seq) -> Option<T> {
        let place = self.deferred.place_behind(|(found, _)| *found < seq);
        let (found, deferral) = self.deferred.get(place)?;
        (*found == seq).then_some(*deferral)
    }

    /// Asserts the order of the messages. Returns their number.
    pub(super) fn check(&self) -> u64 {
        self.messages.check();
        self.deferred.check();
        assert!(self.deferred.iter().is_sorted_by_key(|(seq, _)| *seq));
        self.messages.count()
    }
}

/// A piece takes no more messages when it has this part of the bound. So there are about this many pieces.
const PARTS: u32 = 32;

/// The bytes of a message on disk beyond its body: header and slot.
const OVERHEAD: u64 = 50;

/// The messages that a topic has taken since it exists or was restored.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Totals {
    pub(crate) messages: u64,
    pub(crate) body_bytes: u64,
}

/// The pieces of a list of messages, the oldest first.
///
/// ```text
///   kept messages    |------ piece ------|---- piece ----|-- piece --|
///                    ^ released first                    ^ the newest piece grows
/// ```
///
/// A piece knows the number of its messages, which lie side by side, and their bytes together. So the cost depends on
/// the number of pieces, and within a piece the messages count as equally large.
#[derive(Debug)]
pub(super) struct Pieces {
    pieces: VecDeque<Piece>,
    bytes: u64,
    counted: Totals,
}

#[derive(Debug)]
struct Piece {
    /// One past the last seq.
    end: Seq,
    messages: u64,
    bytes: u64,
    /// The time of the first message.
    since: Duration,
}

impl Pieces {
    /// The pieces of messages in a log: one for each part of a range that lies in one segment. The ranges come in the
    /// order of their seqs. The messages count as published now. The messages of a segment count as equally large.
    pub(super) fn of_log(
        log: &Log,
        messages: impl Iterator<Item = SeqRange>,
        totals: Totals,
        now: Now,
    ) -> Pieces {
        let mut messages = messages.peekable();
        let mut pieces = VecDeque::new();
        for (segment, bytes) in log.segment_sizes() {
            while let Some(range) = messages.peek() {
                let (start, end) = (range.start.max(segment.start), range.end.min(segment.end));
                let part = SeqRange::new(start, end);
                if !part.is_empty() {
                    let share = u128::from(bytes) * u128::from(part.len());
                    pieces.push_back(Piece {
                        end: part.end,
                        messages: part.len(),
                        bytes: (share / u128::from(segment.len())) as u64,
                        since: now.mono,
                    });
                }
                if range.end > segment.end {
                    break;
                }
                messages.next();
            }
        }
        Pieces {
            bytes: pieces.iter().map(|piece| piece.bytes).sum(),
            pieces,
            counted: totals,
        }
    }

    /// Counts the messages that were taken since the last call. They end at `end`.
    pub(super) fn add(&mut self, end: Seq, totals: Totals, now: Now, bounds: Bounds) {
        let messages = totals.messages - self.counted.messages;
        let bytes = totals.body_bytes - self.counted.body_bytes + messages * OVERHEAD;
        self.counted = totals;
        self.bytes += bytes;
        if let Some(last) = self.pieces.back_mut()
            && last.end.offset(messages) == end
            && last.bytes + bytes <= bounds.bytes / u64::from(PARTS)
            && now.mono < last.since + bounds.age / PARTS
        {
            last.end = end;
            last.messages += messages;
            last.bytes += bytes;
        } else if messages > 0 {
            self.pieces.push_back(Piece {
                end,
                messages,
                bytes,
                since: now.mono,
            });
        }
    }

    /// The time of the first message.
    pub(super) fn since(&self) -> Option<Duration> {
        self.pieces.front().map(|piece| piece.since)
    }

    /// Removes the messages beyond the bounds. Returns the seq below which all messages are beyond the bounds.
    pub(super) fn cut(&mut self, now: Now, bounds: Bounds) -> Option<Seq> {
        let mut below = None;
        while let Some(oldest) = self.pieces.front_mut() {
            let excess = self.bytes.saturating_sub(bounds.bytes);
            let is_old = now.mono >= oldest.since.saturating_add(bounds.age);
            if excess == 0 && !is_old {
                break;
            }
            if is_old || excess >= oldest.bytes {
                below = Some(oldest.end);
                self.bytes -= oldest.bytes;
                self.pieces.pop_front();
                continue;
            }
            let each = (oldest.bytes / oldest.messages).max(1);
            let gone = excess.div_ceil(each).min(oldest.messages);
            let bytes = (gone * each).min(oldest.bytes);
            oldest.messages -= gone;
            oldest.bytes -= bytes;
            self.bytes -= bytes;
            below = Some(Seq(oldest.end.0.saturating_sub(oldest.messages)));
            if oldest.messages == 0 {
                self.bytes -= oldest.bytes;
                self.pieces.pop_front();
            }
        }
        below
    }
}

/// The bounds of a list of messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) bytes: u64,
    pub(super) age: Duration,
}

/// The progress of the scan of a list of ranges, some of whose messages are deferred.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Progress {
    /// The place of the next range.
    place: u64,
    /// One past the last seq that was seen.
    seen: Seq,
    /// The place of the next deferred message.
    deferred_place: u64,
}

impl Progress {
    /// The progress of a scan that ignores deferred messages before a place.
    pub(super) fn from_deferred(deferred_place: u64) -> Progress {
        Progress {
            deferred_place,
            ..Progress::default()
        }
    }

    /// Continues the scan. Returns whether all messages were seen. Meanwhile messages are removed only from the front.
    pub(super) fn scan<T: Copy>(
        &mut self,
        kept: &Kept<T>,
        due_ns: impl Fn(T) -> u64,
        work: &mut Work,
        mut out: impl FnMut(CheckpointRun),
    ) -> bool {
        let (ranges, deferred) = (&kept.messages, &kept.deferred);
        let next_place = |place: u64| place.max(deferred.first_place()) + 1;
        self.place = self.place.max(ranges.first_place());
        while let Some(range) = ranges.iter_from(self.place).next() {
            if !work.is_left() {
                return false;
            }
            work.spend(1);
            let start = range.start.max(self.seen);
            let next = deferred.iter_from(self.deferred_place).next();
            match next.copied() {
                Some((seq, _)) if seq < start => {
                    self.deferred_place = next_place(self.deferred_place);
                }
                Some((seq, due)) if seq < range.end => {
                    out(CheckpointRun::fresh(SeqRange::new(start, seq), 0));
                    out(CheckpointRun::fresh(SeqRange::one(seq), due_ns(due)));
                    self.seen = seq.offset(1);
                    self.deferred_place = next_place(self.deferred_place);
                }
                _ => {
                    out(CheckpointRun::fresh(SeqRange::new(start, range.end), 0));
                    self.place += 1;
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskq_log::LogOptions;

    fn at(secs: u64) -> Now {
        Now {
            mono: Duration::from_secs(secs),
            wall_ns: 0,
        }
    }

    fn empty() -> Pieces {
        let log = Log::new(LogOptions::default());
        Pieces::of_log(&log, std::iter::empty(), Totals::default(), at(0))
    }

    /// Takes one message of 100 bytes (with its overhead) per step, and returns the first one that is kept at the end.
    fn first_kept(messages: u64, per_step: u64, bounds: Bounds) -> u64 {
        let (mut pieces, mut first) = (empty(), 0);
        for end in (per_step..=messages).step_by(per_step as usize) {
            let taken = Totals {
                messages: end,
                body_bytes: end * 50,
            };
            pieces.add(Seq(end), taken, at(end), bounds);
            let below = pieces.cut(at(end), bounds);
            first = below.map_or(first, |seq| seq.0.max(first));
            assert!(pieces.bytes <= bounds.bytes);
            assert!(pieces.pieces.len() <= 2 * PARTS as usize + 2);
        }
        first
    }

    #[test]
    fn the_newest_messages_within_the_bounds_are_kept() {
        let bytes = |bytes| Bounds {
            bytes,
            age: Duration::MAX,
        };
        assert_eq!(first_kept(1000, 1, bytes(100_000)), 0);
        assert_eq!(first_kept(1001, 1, bytes(100_000)), 1);
        assert_eq!(first_kept(1000, 1, bytes(10_000)), 900);
        assert_eq!(first_kept(1000, 1, bytes(150)), 999);
        assert_eq!(first_kept(1000, 1, bytes(0)), 1000);
        // All at once: the messages of a piece count as equally large.
        assert_eq!(first_kept(1000, 1000, bytes(10_000)), 900);
        let age = |secs| Bounds {
            bytes: u64::MAX,
            age: Duration::from_secs(secs),
        };
        assert_eq!(first_kept(1000, 1, age(2000)), 0);
        // A piece goes when its first message is too old.
        let first = first_kept(1000, 1, age(320));
        assert!((680..=690).contains(&first), "{first}");
    }

    /// An undo brought back the first ten messages, and other channels had the messages behind them.
    #[test]
    fn messages_that_do_not_lie_side_by_side_are_released_one_by_one() {
        let mut pieces = empty();
        let wide = Bounds {
            bytes: 100_000,
            age: Duration::MAX,
        };
        let taken = |messages| Totals {
            messages,
            body_bytes: messages * 50,
        };
        pieces.add(Seq(10), taken(10), at(0), wide);
        pieces.add(Seq(1010), taken(20), at(0), wide);
        let tight = Bounds {
            bytes: 1900,
            ..wide
        };
        assert_eq!(pieces.cut(at(0), tight), Some(Seq(1)));
    }
}
