//! The lists of a channel, for peeks. Nothing here changes the channel.

use super::Channel;
use crate::deferred::DeferredKey;
use crate::peek::{CandidateState, Candidates, PeekBudget, PeekFrom, PeekPlace};
use wire::id::Seq;

/// The lists of messages that have had attempts, in the order in which a message goes from one to the next.
const TRIED: [PeekFrom; 3] = [PeekFrom::InFlight, PeekFrom::Deferred, PeekFrom::Requeued];

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
