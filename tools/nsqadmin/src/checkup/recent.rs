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
    /// The time of the round that is checked, in milliseconds since 1970.
    now: i64,
}

impl Recent {
    /// Forgets the rounds that a round of this time does not need.
    pub(super) fn prepare(&mut self, unix_millis: i64) {
        self.now = unix_millis;
        // A clock that has gone back begins anew.
        self.rounds.retain(|round| round.unix_millis < unix_millis);
        while self
            .rounds
            .get(1)
            .is_some_and(|second| unix_millis - second.unix_millis >= WINDOW_MILLIS)
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

    /// Returns the rounds, the earliest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Round> {
        self.rounds.iter()
    }

    /// Returns the last round.
    fn last(&self) -> Option<&Round> {
        self.rounds.back()
    }

    /// Returns the time since the last round. Zero if there is none.
    pub(super) fn since_last(&self) -> Duration {
        self.last()
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

    /// Returns the earliest answer of a node, and the time since then. A round without an answer tells nothing
    /// about the counts of the node, which are not 0.
    pub(super) fn earliest_answer(&self, address: &str) -> (Option<&NodeRound>, Duration) {
        self.earliest(|round| {
            let node = round.nodes.get(address)?;
            node.failure.is_none().then_some(node)
        })
    }

    fn since(&self, round: &Round) -> Duration {
        let millis = self.now.saturating_sub(round.unix_millis);
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }
}
