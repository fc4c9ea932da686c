//! The messages that a topic has not given to its channels, for peeks. Nothing here changes the topic.

use super::Topic;
use crate::peek::{CandidateState, Candidates, PeekBudget, PeekFrom, PeekPlace};
use wire::id::Seq;

impl Topic {
    /// Returns messages of a list within a budget, from a place on. A topic has no messages in flight, and none that
    /// were requeued.
    pub(crate) fn candidates(
        &self,
        from: PeekFrom,
        place: Option<PeekPlace>,
        budget: &PeekBudget,
    ) -> Candidates {
        let mut candidates = Candidates::new(budget, 0);
        let at = place.map(|place| place.at);
        match from {
            PeekFrom::Oldest => self.undistributed.add_candidates(at, &mut candidates),
            PeekFrom::Newest => self
                .undistributed
                .add_newest_candidates(at, &mut candidates),
            PeekFrom::Deferred => self.add_deferred(at, &mut candidates),
            PeekFrom::InFlight | PeekFrom::Requeued | PeekFrom::Attempts(_) => {}
        }
        for candidate in &mut candidates.found {
            if let Some(ms) = self.deferral_of(candidate.seq) {
                candidate.state = CandidateState::DeferredFor(ms);
            }
        }
        candidates
    }

    fn add_deferred(&self, at: Option<(u64, u64)>, candidates: &mut Candidates) {
        let list = &self.undistributed_deferred;
        let first = at.map_or(0, |at| at.0).max(list.first_place());
        for ((seq, ms), at) in list.iter_from(first).zip(first..) {
            if candidates.is_full() {
                return candidates.stop_at((at, 0));
            }
            let state = CandidateState::DeferredFor(*ms);
            candidates.take((*seq, 0), state, (at + 1, 0));
        }
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
