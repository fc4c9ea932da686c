//! [`ForgetTable`]: all distributions, with bounds for their number and size.

use std::collections::HashMap;

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

use super::distribution::{ForgetDistribution, Moment, Reading, Seconds};

/// The longest name of a distribution or of a bin, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 1024;

/// The part of the distributions that leaves together when there is no room for a new one.
const EVICTED_PART: usize = 16;

/// The bounds of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The most distributions.
    pub(super) distributions_max: usize,
    /// The most bins of each distribution.
    pub(super) bins_max: usize,
}

/// All distributions.
#[derive(Debug)]
pub(super) struct ForgetTable {
    /// The part that is forgotten, per second.
    pub(super) rate: f64,
    limits: Limits,
    distributions: HashMap<Box<str>, Entry>,
    pub(super) counters: Counters,
    random: StdRng,
}

/// A distribution, and when it last changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Entry {
    changed: Seconds,
    #[serde(flatten)]
    distribution: ForgetDistribution,
}

/// The stored form of a table.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct State {
    distributions: HashMap<Box<str>, Entry>,
}

/// Counters since the start of the tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counters {
    /// Observations that were counted.
    pub(super) observations: u64,
    /// Messages and requests that had nothing to count.
    pub(super) skipped: u64,
    /// Bins that left because their distribution was full.
    pub(super) evicted_bins: u64,
    /// Distributions that left because the table was full.
    pub(super) evicted_distributions: u64,
}

/// The bins of a distribution that are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted<'a> {
    /// These bins.
    Bins(&'a [&'a str]),
    /// The largest bins, at most as many.
    Largest(usize),
}

impl ForgetTable {
    /// Returns a table with what was stored. Bounds that are lower than before apply when bins are
    /// added.
    pub(super) fn new(rate: f64, limits: Limits, state: State, seed: u64) -> ForgetTable {
        ForgetTable {
            rate,
            limits,
            distributions: state.distributions,
            counters: Counters::default(),
            random: StdRng::seed_from_u64(seed),
        }
    }

    /// Counts `n` observations of a value. A name that is empty or longer than [`NAME_BYTES_MAX`]
    /// counts as skipped. Returns false in that case.
    pub(super) fn add(&mut self, name: &str, value: &str, n: u64, now: Seconds) -> bool {
        let is_good = |name: &str| !name.is_empty() && name.len() <= NAME_BYTES_MAX;
        if !is_good(name) || !is_good(value) {
            self.skip();
            return false;
        }
        let is_full = self.distributions.len() >= self.limits.distributions_max;
        if is_full && !self.distributions.contains_key(name) {
            self.make_room();
        }
        let moment = self.moment(now);
        // The name is copied only for a new distribution.
        if !self.distributions.contains_key(name) {
            self.distributions.insert(name.into(), Entry::default());
        }
        let entry = self.distributions.get_mut(name).expect("it is there now");
        entry.changed = now;
        let bins_max = self.limits.bins_max;
        let evicted = entry
            .distribution
            .add(value, n, moment, bins_max, &mut self.random);
        self.counters.evicted_bins += evicted as u64;
        self.counters.observations = self.counters.observations.saturating_add(n);
        true
    }

    /// Counts a message or request that has nothing to count.
    pub(super) fn skip(&mut self) {
        self.counters.skipped += 1;
    }

    /// Decrements a distribution for the time that has passed, and returns what is asked for. An
    /// unknown distribution is empty.
    pub(super) fn read(&mut self, name: &str, wanted: Wanted<'_>, now: Seconds) -> Reading {
        let moment = self.moment(now);
        let empty = Entry::default();
        let entry = match self.distributions.get_mut(name) {
            Some(entry) => {
                entry.distribution.forget(moment, &mut self.random);
                entry
            }
            None => &empty,
        };
        let reading = match wanted {
            Wanted::Bins(values) => entry.distribution.read(values),
            Wanted::Largest(most) => entry.distribution.read_largest(most),
        };
        if entry.distribution.bins() == 0 {
            self.distributions.remove(name);
        }
        reading
    }

    /// Decrements every distribution, and removes the empty ones.
    pub(super) fn forget(&mut self, now: Seconds) {
        let moment = self.moment(now);
        self.distributions.retain(|_, entry| {
            entry.distribution.forget(moment, &mut self.random);
            entry.distribution.bins() > 0
        });
    }

    /// Returns what is stored of the table.
    pub(super) fn state(&self) -> State {
        State {
            distributions: self.distributions.clone(),
        }
    }

    /// Returns the number of distributions.
    pub(super) fn distributions(&self) -> usize {
        self.distributions.len()
    }

    /// Returns the number of bins of all distributions.
    pub(super) fn bins(&self) -> usize {
        let entries = self.distributions.values();
        entries.map(|entry| entry.distribution.bins()).sum()
    }

    fn moment(&self, now: Seconds) -> Moment {
        Moment {
            rate: self.rate,
            now,
        }
    }

    /// Removes the distributions that have not changed for the longest time.
    fn make_room(&mut self) {
        let leaving = self.limits.distributions_max.div_ceil(EVICTED_PART);
        let entries = self.distributions.iter();
        let mut ages: Vec<(Seconds, Box<str>)> = entries
            .map(|(name, entry)| (entry.changed, name.clone()))
            .collect();
        ages.select_nth_unstable_by(leaving - 1, |a, b| {
            a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1))
        });
        for (_, name) in &ages[..leaving] {
            self.distributions.remove(name);
        }
        self.counters.evicted_distributions += leaving as u64;
    }
}

#[cfg(test)]
mod tests;
