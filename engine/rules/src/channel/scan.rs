//! The lists of a channel, as checkpoints and peeks go through them.
//!
//! A checkpoint scans the channel. A channel that owes millions of single messages is scanned in slices
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
//! Most moves go in the direction of the scan. Such a message is seen at its new place, if the scan has missed it at its
//! old place. Two moves go against the scan, and each of them is noted: a message leaves the window and stays owed, or
//! the dead-letter topic refuses a dead letter. So each message that is owed during the whole scan is named at least
//! once. If the scan names a message several times, the last state is the newest one, or an older one that the message
//! had during the scan. Deliveries and FINs are most frequent, and need no note.
//!
//! A scan always ends. The scan of a list goes up to the end that the list had when the scan reached the list. An
//! entry behind that end was seen in the list before, or is noted here, or the topic noted it when it gave the message.
//! Notes take nothing from the scan's share, and each slice has at least as many entries as there are notes. So
//! there are no more notes than entries.

use super::single_messages::{DeferredKey, SingleMessage};
use super::{Channel, Moved};
use crate::long_queue::LongQueue;
use crate::peek::{CandidateState, Candidates, PeekBudget, PeekFrom, PeekPlace};
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
            // 0 means that nothing was deferred.
            let due_ns = due.map_or(0, |due| unix_time_of(due).max(1));
            out(CheckpointRun {
                attempts,
                ..CheckpointRun::fresh(range, due_ns)
            });
        };
        let moved = self.moved.get_or_insert_default();
        work.ensure(moved.len());
        for moved in moved.drain(..) {
            out(SeqRange::one(moved.seq), moved.attempts, moved.due);
        }
        while work.is_left() {
            let slice = work.left();
            let seen = self.scan_slice(scan, slice, &mut out);
            work.spend(seen);
            if seen == slice {
                continue;
            }
            match self.next_list(scan) {
                Some(next) => *scan = next,
                None => {
                    self.moved = None;
                    return true;
                }
            }
        }
        false
    }

    /// Passes entries of the list that the scan has reached to `out`, at most `slice`. Returns their number. The list is
    /// at its end if they are fewer.
    fn scan_slice(
        &self,
        scan: &mut Scan,
        slice: usize,
        mut out: impl FnMut(SeqRange, u16, Option<Duration>),
    ) -> usize {
        let mut seen = 0;
        match scan {
            Scan::Begin => {}
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
            }
            Scan::Requeued(places) => seen = scan_queue(&self.requeued, places, slice, out),
            Scan::DeadLetters(places) => {
                if let Some(dead) = &self.dead_letters {
                    seen = scan_queue(dead.waiting(), places, slice, out);
                }
            }
            Scan::SentLetters(next) => {
                let first = *next;
                let sent = self.dead_letters.iter();
                let sent = sent.flat_map(|dead| dead.sent_from(first));
                for (seq, sent) in sent.take(slice) {
                    seen += 1;
                    out(SeqRange::one(seq), sent.attempts, None);
                    *next = seq.offset(1);
                }
            }
            Scan::Ring(seqs) => {
                let (places, end) = (self.window.ring_from(seqs.start), seqs.end);
                let places = places.take_while(|(seq, _)| *seq < end);
                for (seq, entry) in places.take(slice) {
                    seen += 1;
                    seqs.start = seq.offset(1);
                    plant!(InFlightNotRecorded, continue);
                    if let Some(entry) = entry {
                        out(SeqRange::one(seq), entry.attempts, None);
                    }
                }
            }
            Scan::Stragglers(seqs) => {
                let (stragglers, end) = (self.window.stragglers_from(seqs.start), seqs.end);
                let stragglers = stragglers.take_while(|(seq, _)| *seq < end);
                for (seq, entry) in stragglers.take(slice) {
                    seen += 1;
                    out(SeqRange::one(seq), entry.attempts, None);
                    seqs.start = seq.offset(1);
                }
            }
        }
        seen
    }

    /// Returns the list behind the one that the scan has seen, with its present end. `None`: there is no further list.
    fn next_list(&self, scan: &Scan) -> Option<Scan> {
        let next = match scan {
            Scan::Begin => Scan::Waiting(self.waiting.places()),
            Scan::Waiting(_) => Scan::Deferred {
                seen: None,
                last: self.deferred.last_key(),
            },
            Scan::Deferred { .. } => Scan::Requeued(self.requeued.places()),
            Scan::Requeued(_) => match &self.dead_letters {
                Some(dead) => Scan::DeadLetters(dead.waiting().places()),
                None => Scan::Ring(self.window.span()),
            },
            Scan::DeadLetters(_) => Scan::SentLetters(Seq(0)),
            Scan::SentLetters(_) => Scan::Ring(self.window.span()),
            Scan::Ring(_) => Scan::Stragglers(self.window.span()),
            Scan::Stragglers(_) => return None,
        };
        Some(next)
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

/// Passes entries of a queue to `out`, at most `slice`, and moves the start of `places` behind them. Returns their number.
fn scan_queue(
    queue: &LongQueue<SingleMessage>,
    places: &mut Range<u64>,
    slice: usize,
    mut out: impl FnMut(SeqRange, u16, Option<Duration>),
) -> usize {
    places.start = places.start.max(queue.first_place());
    let mut seen = 0;
    for entry in queue
        .iter_from(places.start)
        .take(slice.min(left_of(places)))
    {
        seen += 1;
        out(entry.range(), entry.attempts, None);
    }
    places.start += seen as u64;
    seen
}

fn left_of(places: &Range<u64>) -> usize {
    usize::try_from(places.end.saturating_sub(places.start)).unwrap_or(usize::MAX)
}

/// The lists of messages that have had attempts, in the order in which a message goes from one to the next.
const TRIED: [PeekFrom; 3] = [PeekFrom::InFlight, PeekFrom::Deferred, PeekFrom::Requeued];

/// The lists of a channel, for peeks. Nothing here changes the channel.
impl Channel {
    /// Returns messages of a list within a budget, from a place on.
    pub(crate) fn candidates(
        &self,
        from: PeekFrom,
        place: Option<PeekPlace>,
        budget: &PeekBudget,
    ) -> Candidates {
        let attempts_min = match from {
            PeekFrom::Attempts(least) => least,
            _ => 0,
        };
        let mut candidates = Candidates::new(budget, attempts_min);
        match from {
            PeekFrom::Attempts(_) => {
                let first = place.map_or(0, |place| place.list);
                for (list, from) in (0..).zip(TRIED).skip(usize::from(first)) {
                    candidates.list = list;
                    let place = place.filter(|place| place.list == list);
                    self.add_candidates(from, place, &mut candidates);
                    if candidates.next.is_some() {
                        break;
                    }
                }
            }
            from => self.add_candidates(from, place, &mut candidates),
        }
        candidates
    }

    /// True if the channel has to deliver a message.
    pub(crate) fn owes(&self, seq: Seq) -> bool {
        self.window.has(seq) || self.out_of_order.has(seq) || self.waiting.has(seq)
    }

    fn add_candidates(
        &self,
        from: PeekFrom,
        place: Option<PeekPlace>,
        candidates: &mut Candidates,
    ) {
        let at = place.map(|place| place.at);
        match from {
            PeekFrom::Oldest => self.waiting.add_candidates(at, candidates),
            PeekFrom::Newest => self.waiting.add_newest_candidates(at, candidates),
            PeekFrom::InFlight => self.add_in_flight(at, candidates),
            PeekFrom::Deferred => self.add_deferred(at, candidates),
            PeekFrom::Requeued => self.add_requeued(at, candidates),
            PeekFrom::Attempts(_) | PeekFrom::Published { .. } => {}
        }
    }

    /// The first number of a place is 0 for stragglers and 1 for the ring, the second is a seq.
    fn add_in_flight(&self, at: Option<(u64, u64)>, candidates: &mut Candidates) {
        let (part, seq) = at.unwrap_or((0, 0));
        if part == 0 {
            for (seq, entry) in self.window.stragglers_from(Seq(seq)) {
                if candidates.is_full() {
                    return candidates.stop_at((0, seq.0));
                }
                let state = CandidateState::InFlight(entry);
                candidates.take((seq, entry.attempts), state, (0, seq.0 + 1));
            }
        }
        let first = if part == 0 { 0 } else { seq };
        for (seq, entry) in self.window.ring_from(Seq(first)) {
            if candidates.is_full() {
                return candidates.stop_at((1, seq.0));
            }
            match entry {
                Some(entry) => {
                    let state = CandidateState::InFlight(entry);
                    candidates.take((seq, entry.attempts), state, (1, seq.0 + 1));
                }
                None => candidates.step(),
            }
        }
    }

    /// A place is the key of the last message: its due time and its seq.
    fn add_deferred(&self, at: Option<(u64, u64)>, candidates: &mut Candidates) {
        let mut behind: DeferredKey = at.map_or((0, Seq(0)), |(due, seq)| (due, Seq(seq)));
        for entry in self.deferred.iter_behind(Some(behind)) {
            if candidates.is_full() {
                return candidates.stop_at((behind.0, behind.1.0));
            }
            behind = entry.key();
            let state = CandidateState::Due(entry.due);
            candidates.take((entry.seq, entry.attempts), state, (behind.0, behind.1.0));
        }
    }

    fn add_requeued(&self, at: Option<(u64, u64)>, candidates: &mut Candidates) {
        let first = at.map_or(0, |at| at.0).max(self.requeued.first_place());
        let messages = self.requeued.iter_from(first);
        for (message, at) in messages.zip(first..) {
            if candidates.is_full() {
                return candidates.stop_at((at, 0));
            }
            let message = (message.seq, message.attempts);
            candidates.take(message, CandidateState::Requeued, (at + 1, 0));
        }
    }
}
