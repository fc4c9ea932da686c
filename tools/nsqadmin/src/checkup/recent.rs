//! [`Recent`]: the rounds of the last seconds, with which a new round is compared.

use std::collections::VecDeque;
use std::time::Duration;

use super::round::{NodeRound, Round};

/// The time over which rates are measured, in milliseconds. Rounds may come more often. Over a shorter
/// time, the rate of a slow consumer would be noise.
const WINDOW_MILLIS: i64 = 5000;

/// The rounds of the last seconds, the earliest first. The earliest one is at least [`WINDOW_MILLIS`] old,
/// as soon as there is such a round.
#[derive(Debug, Default)]
pub(super) struct Recent {
    rounds: VecDeque<Round>,
    /// The time of the round that is checked, in steady milliseconds.
    now: i64,
}

impl Recent {
    /// Forgets the rounds that a round of this time does not need.
    pub(super) fn prepare(&mut self, steady_millis: i64) {
        self.now = steady_millis;
        // The later one of two rounds at one moment counts.
        self.rounds
            .retain(|round| round.now.steady_millis < steady_millis);
        while self
            .rounds
            .get(1)
            .is_some_and(|second| steady_millis - second.now.steady_millis >= WINDOW_MILLIS)
        {
            self.rounds.pop_front();
        }
    }

    /// Adds a round.
    pub(super) fn push(&mut self, round: Round) {
        self.rounds.push_back(round);
    }

    /// Returns true before the second round.
    pub(super) fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// Returns the time since the last round. Zero if there is none.
    pub(super) fn since_last(&self) -> Duration {
        self.rounds
            .back()
            .map_or(Duration::ZERO, |round| self.since(round))
    }

    /// Returns a figure of the earliest round that has it, and the time since this round. A figure that no
    /// round has is younger than the last round: the time is then the time since the last round.
    pub(super) fn earliest<'a, T>(
        &'a self,
        figure: impl Fn(&'a Round) -> Option<&'a T>,
    ) -> (Option<&'a T>, Duration) {
        let found = self.rounds.iter().find_map(|round| {
            let figure = figure(round)?;
            Some((Some(figure), self.since(round)))
        });
        found.unwrap_or((None, self.since_last()))
    }

    /// Returns the earliest answer of a node, and the time from this answer to the node's answer `after`. A round without an
    /// answer tells nothing about the counts of the node, which are not 0.
    pub(super) fn earliest_answer(
        &self,
        address: &str,
        after: &NodeRound,
    ) -> (Option<&NodeRound>, Duration) {
        let mut answers = self.rounds.iter().filter_map(|round| {
            let node = round.nodes.get(address)?;
            node.failure.is_none().then_some(node)
        });
        match answers.next() {
            Some(earlier) => (Some(earlier), between(earlier, after)),
            None => (None, self.since_last()),
        }
    }

    /// Returns the earliest count of a topic's messages at a node, and the time from this answer to the node's answer in
    /// `after`.
    pub(super) fn earliest_count(
        &self,
        topic: &str,
        address: &str,
        after: &Round,
    ) -> Option<(i64, Duration)> {
        let later = after.nodes.get(address)?;
        self.rounds.iter().find_map(|round| {
            let count = round.topics.get(topic)?.nodes.get(address)?.message_count;
            let earlier = round.nodes.get(address)?;
            Some((count, between(earlier, later)))
        })
    }

    fn since(&self, round: &Round) -> Duration {
        duration_of(self.now.saturating_sub(round.now.steady_millis))
    }
}

/// Returns the time between two answers of a node. The answers of other nodes may come seconds earlier or later.
fn between(before: &NodeRound, after: &NodeRound) -> Duration {
    let later = after.answered.steady_millis;
    duration_of(later.saturating_sub(before.answered.steady_millis))
}

fn duration_of(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}
