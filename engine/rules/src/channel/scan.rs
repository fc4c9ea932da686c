//! The scan of a channel for a checkpoint. A channel that owes millions of single messages is scanned in slices
//! over many turns, while its messages move on.
//!
//! ```text
//!   scanned in this order:   waiting ──► deferred ──► requeued ──► window
//!                               │            └────due────►│           ▲ │
//!                               │                         └─deliver───┤ │
//!                               └──────────────deliver────────────────┘ │
//!   noted when it happens:          deferred, requeued ◄────REQ, timeout┘
//! ```
//!
//! Dead letters are scanned behind the requeued messages: first those that wait, then those that are on their way.
//!
//! A message that moves in the direction of the scan is seen at its new place if the scan missed it at its old
//! place. Only a message that leaves the window and stays owed moves against the scan, and a dead letter that is
//! refused. Each such move is noted.
//! So a message that is owed during the whole scan is named at least once. If the scan names it several times,
//! the last state is the newest one, or an older one that the message had during the scan. Deliveries and FINs
//! are most frequent, and need no note.
//!
//! A scan always ends. The scan of a list goes up to the end that the list had when the scan reached the list. An
//! entry behind that end was seen in the list before, or is noted here, or the topic noted it when it gave the message.
//! Notes take nothing from the scan's share, and each slice has at least as many entries as there are notes. So
//! there are no more notes than entries.

use super::{Channel, Moved};
use crate::deferred::DeferredKey;
use crate::long_queue::LongQueue;
use crate::work::Work;
use diskq_log::{CheckpointRun, SeqRange, plant};
use std::ops::Range;
use std::time::Duration;
use wire::id::Seq;

/// The progress of a channel's scan.
#[derive(Debug, Clone)]
pub(crate) enum Scan {
    /// The scan has not begun.
    Begin,
    /// These places are still to be seen.
    Waiting(Range<u64>),
    /// The scan has seen all deferred messages up to `seen`, and ends behind `last`.
    Deferred {
        seen: Option<DeferredKey>,
        last: Option<DeferredKey>,
    },
    /// These places are still to be seen.
    Requeued(Range<u64>),
    /// These places of the waiting dead letters are still to be seen.
    DeadLetters(Range<u64>),
    /// The dead letters on their way are still to be seen, from this seq on.
    SentLetters(Seq),
    /// These seqs of the window's ring are still to be seen.
    Ring(SeqRange),
    /// These seqs of the window's stragglers are still to be seen.
    Stragglers(SeqRange),
}

impl Channel {
    /// Continues a scan. Returns whether the scan has seen everything.
    pub(crate) fn scan(
        &mut self,
        scan: &mut Scan,
        work: &mut Work,
        unix_time_of: impl Fn(Duration) -> u64,
        mut out: impl FnMut(CheckpointRun),
    ) -> bool {
        let mut out = |range: SeqRange, attempts: u16, due: Option<Duration>| {
            out(CheckpointRun {
                start: range.start,
                count: range.len(),
                attempts,
                // 0 means that nothing was deferred.
                due_ns: due.map_or(0, |due| unix_time_of(due).max(1)),
            });
        };
        let moved = self.moved.get_or_insert_default();
        work.ensure(moved.len());
        for moved in moved.drain(..) {
            out(SeqRange::one(moved.seq), moved.attempts, moved.due);
        }
        while work.is_left() {
            let slice = work.left();
            let mut seen = 0;
            let next = match scan {
                Scan::Begin => Some(Scan::Waiting(self.waiting.places())),
                Scan::Waiting(places) => {
                    // A range that was delivered in part meanwhile keeps its place; one that is gone is
                    // in the window.
                    places.start = places.start.max(self.waiting.first_place());
                    let ranges = self.waiting.iter_from(places.start);
                    for range in ranges.take(slice.min(left_of(places))) {
                        seen += 1;
                        out(range, 0, None);
                    }
                    places.start += seen as u64;
                    (seen < slice).then(|| Scan::Deferred {
                        seen: None,
                        last: self.deferred.last_key(),
                    })
                }
                Scan::Deferred { seen: key, last } => {
                    let entries = self.deferred.iter_behind(*key);
                    let entries = entries.take_while(|entry| Some(entry.key()) <= *last);
                    for entry in entries.take(slice) {
                        seen += 1;
                        *key = Some(entry.key());
                        plant!(DeferredNotRecorded, continue);
                        out(entry.range(), entry.attempts, Some(entry.due));
                    }
                    (seen < slice).then(|| Scan::Requeued(self.requeued.places()))
                }
                Scan::Requeued(places) => {
                    places.start = places.start.max(self.requeued.first_place());
                    let entries = self.requeued.iter_from(places.start);
                    for entry in entries.take(slice.min(left_of(places))) {
                        seen += 1;
                        out(entry.range(), entry.attempts, None);
                    }
                    places.start += seen as u64;
                    (seen < slice).then(|| match &self.dead_letters {
                        Some(dead) => Scan::DeadLetters(dead.waiting().places()),
                        None => Scan::Ring(self.window.span()),
                    })
                }
                Scan::DeadLetters(places) => {
                    let dead = self.dead_letters.as_ref();
                    let waiting = dead.map(|dead| dead.waiting());
                    let first = waiting.map_or(0, LongQueue::first_place);
                    places.start = places.start.max(first);
                    let entries = waiting.map(|waiting| waiting.iter_from(places.start));
                    let entries = entries.into_iter().flatten();
                    for entry in entries.take(slice.min(left_of(places))) {
                        seen += 1;
                        out(entry.range(), entry.attempts, None);
                    }
                    places.start += seen as u64;
                    (seen < slice).then_some(Scan::SentLetters(Seq(0)))
                }
                Scan::SentLetters(next) => {
                    let dead = self.dead_letters.as_ref();
                    let sent = dead.map(|dead| dead.sent_from(*next));
                    for (seq, sent) in sent.into_iter().flatten().take(slice) {
                        seen += 1;
                        out(SeqRange::one(seq), sent.attempts, None);
                        *next = seq.offset(1);
                    }
                    (seen < slice).then(|| Scan::Ring(self.window.span()))
                }
                Scan::Ring(seqs) => {
                    let places = self.window.ring_from(seqs.start);
                    let end = seqs.end;
                    let places = places.take_while(|(seq, _)| *seq < end);
                    for (seq, entry) in places.take(slice) {
                        seen += 1;
                        seqs.start = seq.offset(1);
                        plant!(InFlightNotRecorded, continue);
                        if let Some(entry) = entry {
                            out(SeqRange::one(seq), entry.attempts, None);
                        }
                    }
                    (seen < slice).then(|| Scan::Stragglers(self.window.span()))
                }
                Scan::Stragglers(seqs) => {
                    let stragglers = self.window.stragglers_from(seqs.start);
                    let end = seqs.end;
                    let stragglers = stragglers.take_while(|(seq, _)| *seq < end);
                    for (seq, entry) in stragglers.take(slice) {
                        seen += 1;
                        out(SeqRange::one(seq), entry.attempts, None);
                        seqs.start = seq.offset(1);
                    }
                    if seen < slice {
                        work.spend(seen);
                        self.moved = None;
                        return true;
                    }
                    None
                }
            };
            work.spend(seen);
            if let Some(next) = next {
                *scan = next;
            }
        }
        false
    }

    /// Tells the scan that is under way of a message that left the window and stays owed.
    #[inline]
    pub(super) fn tell_scan(&mut self, seq: Seq, attempts: u16, due: Option<Duration>) {
        plant!(RequeueNotNoted, return);
        if let Some(moved) = &mut self.moved {
            moved.push(Moved { seq, attempts, due });
        }
    }
}

fn left_of(places: &Range<u64>) -> usize {
    usize::try_from(places.end.saturating_sub(places.start)).unwrap_or(usize::MAX)
}
