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
//! A message that moves in the direction of the scan is seen at its new place if the scan missed it at its old
//! place. Only a message that leaves the window and stays owed moves against the scan: each such move is noted.
//! So a message that is owed during the whole scan is named at least once. If the scan names it several times,
//! the newest state comes last. Deliveries and FINs are most frequent, and need no note.

use super::Channel;
use crate::deferred::DeferredKey;
use crate::work::Work;
use diskq::planted::{Bug, is_planted};
use diskq::{CheckpointRun, SeqRange};
use std::time::Duration;
use wire::id::Seq;

/// The progress of a channel's scan.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scan {
    /// The scan has not begun.
    Begin,
    /// The next range is at this place.
    Waiting(u64),
    /// The scan has seen all deferred messages up to this key.
    Deferred(Option<DeferredKey>),
    /// The next one is at this place.
    Requeued(u64),
    /// The window's ring below this seq was seen.
    Ring(Seq),
    /// The window's stragglers below this seq were seen.
    Stragglers(Seq),
}

/// A message that left the window for a place that the scan may have passed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moved {
    pub(super) seq: Seq,
    pub(super) attempts: u16,
    pub(super) due: Option<Duration>,
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
        for moved in self.moved.get_or_insert_default().drain(..) {
            out(SeqRange::one(moved.seq), moved.attempts, moved.due);
            work.spend(1);
        }
        while work.is_left() {
            let slice = work.left();
            let mut seen = 0;
            let next = match scan {
                Scan::Begin => Some(Scan::Waiting(self.waiting.first_place())),
                Scan::Waiting(place) => {
                    // A range that was delivered in part meanwhile keeps its place; one that is gone is
                    // in the window.
                    *place = (*place).max(self.waiting.first_place());
                    for range in self.waiting.iter_from(*place).take(slice) {
                        seen += 1;
                        out(range, 0, None);
                    }
                    *place += seen as u64;
                    (seen < slice).then_some(Scan::Deferred(None))
                }
                Scan::Deferred(key) => {
                    for entry in self.deferred.iter_behind(*key).take(slice) {
                        seen += 1;
                        if !is_planted(Bug::DeferredNotRecorded) {
                            out(entry.range(), entry.attempts, Some(entry.due));
                        }
                        *key = Some(entry.key());
                    }
                    (seen < slice).then(|| Scan::Requeued(self.requeued.first_place()))
                }
                Scan::Requeued(place) => {
                    *place = (*place).max(self.requeued.first_place());
                    for entry in self.requeued.iter_from(*place).take(slice) {
                        seen += 1;
                        out(entry.range(), entry.attempts, None);
                    }
                    *place += seen as u64;
                    (seen < slice).then_some(Scan::Ring(Seq(0)))
                }
                Scan::Ring(from) => {
                    for (seq, entry) in self.window.ring_from(*from).take(slice) {
                        seen += 1;
                        if let Some(entry) = entry
                            && !is_planted(Bug::InFlightNotRecorded)
                        {
                            out(SeqRange::one(seq), entry.attempts, None);
                        }
                        *from = seq.offset(1);
                    }
                    (seen < slice).then_some(Scan::Stragglers(Seq(0)))
                }
                Scan::Stragglers(from) => {
                    for (seq, entry) in self.window.stragglers_from(*from).take(slice) {
                        seen += 1;
                        out(SeqRange::one(seq), entry.attempts, None);
                        *from = seq.offset(1);
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

    /// Notes a message that left the window and stays owed, if a scan is under way.
    #[inline]
    pub(super) fn note_moved(&mut self, seq: Seq, attempts: u16, due: Option<Duration>) {
        if let Some(moved) = &mut self.moved {
            moved.push(Moved { seq, attempts, due });
        }
    }
}
