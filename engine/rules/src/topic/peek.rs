//! The messages that a topic has not given to its channels, and those of its log, for peeks. Nothing here changes the
//! topic.

use super::Topic;
use crate::peek::{CandidateState, Candidates, PeekBudget, PeekFrom, PeekPlace};
use wire::id::Seq;

/// Most channels that are asked for each message of the log whether they have finished it. One answer takes 10 to 30
/// ns, or 200 ns if the channel has a million requeued messages. So they take about as long as the copies of a slice.
const ASKED_CHANNELS_MAX: usize = 8;

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
            PeekFrom::Published { since } => {
                self.add_published(since, at, &mut candidates);
                return candidates;
            }
        }
        for candidate in &mut candidates.found {
            if let Some(ms) = self.deferral_of(candidate.seq) {
                candidate.state = CandidateState::DeferredFor(ms);
            }
        }
        candidates
    }

    /// The second number of a place is the seq behind the next one.
    fn add_published(&self, since: Seq, at: Option<(u64, u64)>, candidates: &mut Candidates) {
        let below = at.map_or(u64::MAX, |at| at.1);
        let first = since.0.saturating_add(1);
        for range in self.log.newest_in_memory() {
            for seq in (range.start.0.max(first)..range.end.0.min(below)).rev() {
                if candidates.is_full() {
                    return candidates.stop_at((0, seq + 1));
                }
                let is_finished = self.is_finished(Seq(seq));
                candidates.take(
                    (Seq(seq), 0),
                    CandidateState::Published { is_finished },
                    (0, seq),
                );
            }
            if range.start.0 <= first {
                return;
            }
        }
    }

    /// True if the topic and all of its channels are through with a message of the log. `None` if there are too many
    /// channels to know.
    fn is_finished(&self, seq: Seq) -> Option<bool> {
        let is_cheap = self.channels.len() <= ASKED_CHANNELS_MAX;
        is_cheap.then(|| {
            let mut channels = self.channels.values();
            !self.undistributed.has(seq) && !channels.any(|channel| channel.owes(seq))
        })
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
