//! The messages that a topic has not given to its channels, for peeks. Nothing here changes the topic.

use super::Topic;
use crate::peek::{CandidateState, Candidates, PeekFrom, PeekPlace};
use wire::id::Seq;

impl Topic {
    /// Returns at most `count` messages of a list, from a place on. A topic has no messages in flight, and none that
    /// were requeued.
    pub(crate) fn candidates(
        &self,
        from: PeekFrom,
        place: Option<PeekPlace>,
        count: usize,
    ) -> Candidates {
        let mut candidates = match from {
            PeekFrom::Oldest => self.undistributed.candidates(place, count),
            PeekFrom::Newest => self.undistributed.newest_candidates(place, count),
            PeekFrom::Deferred => self.deferred_candidates(place, count),
            PeekFrom::InFlight | PeekFrom::Requeued => Candidates::default(),
        };
        for candidate in &mut candidates.found {
            if let Some(ms) = self.deferral_of(candidate.seq) {
                candidate.state = CandidateState::DeferredFor(ms);
            }
        }
        candidates
    }

    fn deferred_candidates(&self, place: Option<PeekPlace>, count: usize) -> Candidates {
        let mut candidates = Candidates::default();
        let list = &self.undistributed_deferred;
        let first = place.map_or(0, |place| place.0).max(list.first_place());
        for ((seq, ms), at) in list.iter_from(first).zip(first..) {
            if candidates.found.len() == count {
                candidates.next = Some(PeekPlace(at, 0));
                return candidates;
            }
            let state = CandidateState::DeferredFor(*ms);
            candidates.push((*seq, 0), state, PeekPlace(at + 1, 0));
        }
        candidates
    }

    /// Returns the deferral of an undistributed message in milliseconds. The list is in the order of the seqs.
    fn deferral_of(&self, seq: Seq) -> Option<u32> {
        let list = &self.undistributed_deferred;
        let (mut low, mut high) = (list.places().start, list.places().end);
        while low < high {
            let middle = low + (high - low) / 2;
            let (found, ms) = list.get(middle)?;
            match found.cmp(&seq) {
                std::cmp::Ordering::Equal => return Some(*ms),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}
