//! The lists of a channel, for peeks. Nothing here changes the channel.

use super::Channel;
use crate::deferred::DeferredKey;
use crate::peek::{CandidateState, Candidates, PeekFrom, PeekPlace};
use wire::id::Seq;

/// Free places of the window that a slice may step over, for each message that it may find.
const STEPS: usize = 16;

impl Channel {
    /// Returns at most `count` messages of a list, from a place on.
    pub(crate) fn candidates(
        &self,
        from: PeekFrom,
        place: Option<PeekPlace>,
        count: usize,
    ) -> Candidates {
        match from {
            PeekFrom::Oldest => self.waiting.candidates(place, count),
            PeekFrom::Newest => self.waiting.newest_candidates(place, count),
            PeekFrom::InFlight => self.in_flight_candidates(place, count),
            PeekFrom::Deferred => self.deferred_candidates(place, count),
            PeekFrom::Requeued => self.requeued_candidates(place, count),
        }
    }

    /// The first number of a place is 0 for stragglers and 1 for the ring, the second is a seq.
    fn in_flight_candidates(&self, place: Option<PeekPlace>, count: usize) -> Candidates {
        let mut candidates = Candidates::default();
        let PeekPlace(part, seq) = place.unwrap_or(PeekPlace(0, 0));
        if part == 0 {
            for (seq, entry) in self.window.stragglers_from(Seq(seq)) {
                if candidates.found.len() == count {
                    candidates.next = Some(PeekPlace(0, seq.0));
                    return candidates;
                }
                let state = CandidateState::InFlight(entry);
                let next = PeekPlace(0, seq.0 + 1);
                candidates.push((seq, entry.attempts), state, next);
            }
        }
        let first = if part == 0 { 0 } else { seq };
        let places = self.window.ring_from(Seq(first));
        for (steps, (seq, entry)) in places.enumerate() {
            if candidates.found.len() == count || steps == count * STEPS {
                candidates.next = Some(PeekPlace(1, seq.0));
                return candidates;
            }
            if let Some(entry) = entry {
                let state = CandidateState::InFlight(entry);
                let next = PeekPlace(1, seq.0 + 1);
                candidates.push((seq, entry.attempts), state, next);
            }
        }
        candidates
    }

    /// A place is the key of the last message: its due time and its seq.
    fn deferred_candidates(&self, place: Option<PeekPlace>, count: usize) -> Candidates {
        let mut candidates = Candidates::default();
        let mut behind: Option<DeferredKey> = place.map(|PeekPlace(due, seq)| (due, Seq(seq)));
        for entry in self.deferred.iter_behind(behind) {
            if candidates.found.len() == count {
                candidates.next = behind.map(|(due, seq)| PeekPlace(due, seq.0));
                return candidates;
            }
            let key = entry.key();
            let next = PeekPlace(key.0, key.1.0);
            let state = CandidateState::Due(entry.due);
            candidates.push((entry.seq, entry.attempts), state, next);
            behind = Some(key);
        }
        candidates
    }

    fn requeued_candidates(&self, place: Option<PeekPlace>, count: usize) -> Candidates {
        let mut candidates = Candidates::default();
        let first = place
            .map_or(0, |place| place.0)
            .max(self.requeued.first_place());
        let messages = self.requeued.iter_from(first);
        for (message, at) in messages.zip(first..) {
            if candidates.found.len() == count {
                candidates.next = Some(PeekPlace(at, 0));
                return candidates;
            }
            let message = (message.seq, message.attempts);
            candidates.push(message, CandidateState::Requeued, PeekPlace(at + 1, 0));
        }
        candidates
    }
}
