//! [`ForgetTable`]: all distributions, with bounds for their number and size. [`ForgetDistribution`]: the counts of one field's
//! values, which are forgotten over time.
//!
//! The formula is that of bitly's *Forget Table* (M. Dewar and M. Gorelick, "Forget Table", bitly
//! engineering blog, January 2013; `pyforget` in github.com/bitly/forgettable): a bin with count `c`
//! that was last changed `t` seconds ago is decremented by a sample of the distribution
//! `Poisson(c * rate * t)`, and not below 0. Nothing happens between two readings.
//!
//! One decrement for a long time would be too large: the mean of `c - Poisson(c * rate * t)` is
//! `c * (1 - rate * t)`, a straight line, while each step of a steady process forgets a part of what
//! the step before has left. So a long time is taken in steps of at most `1/64` of the mean lifetime
//! `1 / rate`. The mean is then `c * exp(-rate * t)` within 0.6 % for one half-life, however often the
//! bin is read, and half of a count is forgotten after `ln(2) / rate` seconds.

use std::collections::HashMap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Poisson};
use serde::{Deserialize, Serialize};

/// The longest name of a distribution or of a bin, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 1024;

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
    distributions: HashMap<Box<str>, ForgetDistribution>,
    pub(super) counters: Counters,
    random: StdRng,
}

/// The stored form of a table.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct State {
    distributions: HashMap<Box<str>, ForgetDistribution>,
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
            self.distributions.insert(name.into(), Default::default());
        }
        let distribution = self.distributions.get_mut(name).expect("it is there now");
        let bins_max = self.limits.bins_max;
        let evicted = distribution.add(value, n, moment, bins_max, &mut self.random);
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
        let Some(distribution) = self.distributions.get_mut(name) else {
            return ForgetDistribution::default().read(wanted);
        };
        distribution.forget(moment, &mut self.random);
        let reading = distribution.read(wanted);
        if distribution.bins.is_empty() {
            self.distributions.remove(name);
        }
        reading
    }

    /// Decrements every distribution, and removes the empty ones.
    pub(super) fn forget(&mut self, now: Seconds) {
        let moment = self.moment(now);
        self.distributions.retain(|_, distribution| {
            distribution.forget(moment, &mut self.random);
            !distribution.bins.is_empty()
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

    /// Returns the number of bins of all distributions, those included that would be empty now.
    pub(super) fn bins(&self) -> usize {
        let distributions = self.distributions.values();
        distributions.map(|it| it.bins.len()).sum()
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

/// The part of the bins, or of the distributions, that leaves together when there is no room for a new one. Removing many at
/// once makes the search for the smallest ones cheap.
const EVICTED_PART: usize = 16;

/// A time in seconds since the Unix epoch.
pub(super) type Seconds = f64;

/// The counts of a categorical distribution. Each bin is decremented when it is read or changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct ForgetDistribution {
    /// The time of the last [`add`](ForgetDistribution::add).
    changed: Seconds,
    bins: HashMap<Box<str>, Bin>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Bin {
    count: u64,
    /// The time of the last decrement.
    at: Seconds,
}

/// A distribution at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reading {
    /// The sum of all counts.
    pub(super) z: u64,
    /// The bins that are asked for, each with its count.
    pub(super) bins: Vec<(Box<str>, u64)>,
}

impl Bin {
    /// Decrements the count for the time that has passed.
    fn forget(&mut self, rate: f64, now: Seconds, random: &mut impl Rng) {
        self.count = remaining(self.count, rate * (now - self.at), random);
        // The time of a clock that was set back counts from there.
        self.at = now;
    }
}

impl ForgetDistribution {
    /// Adds `n` observations of a value. Returns the number of bins that had to leave.
    fn add(
        &mut self,
        value: &str,
        n: u64,
        moment: Moment,
        bins_max: usize,
        random: &mut impl Rng,
    ) -> usize {
        let Moment { rate, now } = moment;
        self.changed = now;
        if let Some(bin) = self.bins.get_mut(value) {
            bin.forget(rate, now, random);
            bin.count = bin.count.saturating_add(n);
            return 0;
        }
        let evicted = if self.bins.len() >= bins_max {
            self.make_room(moment, bins_max, random)
        } else {
            0
        };
        let bin = Bin { count: n, at: now };
        self.bins.insert(value.into(), bin);
        evicted
    }

    /// Decrements every bin, and removes the empty ones.
    fn forget(&mut self, Moment { rate, now }: Moment, random: &mut impl Rng) {
        self.bins.retain(|_, bin| {
            bin.forget(rate, now, random);
            bin.count > 0
        });
    }

    /// Returns what is asked for, after a decrement of all bins. An unknown value has count 0. Of the largest bins, the
    /// largest comes first, and equal ones have the order of their names.
    fn read(&self, wanted: Wanted<'_>) -> Reading {
        let bins = match wanted {
            Wanted::Bins(values) => {
                let count = |value: &str| self.bins.get(value).map_or(0, |bin| bin.count);
                let bins = values.iter().map(|value| ((*value).into(), count(value)));
                bins.collect()
            }
            Wanted::Largest(most) => {
                let all = self.bins.iter();
                let mut bins: Vec<_> = all.map(|(name, bin)| (name.clone(), bin.count)).collect();
                bins.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
                bins.truncate(most);
                bins
            }
        };
        let z = self.bins.values().map(|bin| bin.count).sum();
        Reading { z, bins }
    }

    /// Removes empty bins, or else the smallest ones. Returns the number of bins that were not empty.
    fn make_room(&mut self, moment: Moment, bins_max: usize, random: &mut impl Rng) -> usize {
        self.forget(moment, random);
        if self.bins.len() < bins_max {
            return 0;
        }
        let leaving = bins_max.div_ceil(EVICTED_PART);
        let mut counts: Vec<(u64, Box<str>)> = self
            .bins
            .iter()
            .map(|(value, bin)| (bin.count, value.clone()))
            .collect();
        counts.select_nth_unstable(leaving - 1);
        for (_, value) in &counts[..leaving] {
            self.bins.remove(value);
        }
        leaving
    }
}

/// A moment, and the rate at which counts are forgotten.
#[derive(Clone, Copy, Debug)]
struct Moment {
    /// The part that is forgotten, per second.
    rate: f64,
    /// The time.
    now: Seconds,
}

/// The longest step, in mean lifetimes.
const STEP_LIFETIMES: f64 = 1.0 / 64.0;

/// The mean lifetimes, beyond those that bring a count down to 1, after which nothing is left: the
/// last message survives them with a probability of 2e-9.
const LAST_LIFETIMES: f64 = 20.0;

/// Returns what is left of a count after some mean lifetimes, which is `rate * t`. A time that is not
/// positive changes nothing: clocks are set back.
fn remaining(mut count: u64, lifetimes: f64, random: &mut impl Rng) -> u64 {
    if count == 0 || lifetimes.is_nan() || lifetimes <= 0.0 {
        return count;
    }
    if lifetimes > (count as f64).ln() + LAST_LIFETIMES {
        return 0;
    }
    let steps = (lifetimes / STEP_LIFETIMES).ceil();
    let lifetimes_per_step = lifetimes / steps;
    for _ in 0..steps as u64 {
        count = count.saturating_sub(poisson(count as f64 * lifetimes_per_step, random));
        if count == 0 {
            break;
        }
    }
    count
}

/// Returns a sample of the Poisson distribution with this mean.
fn poisson(mean: f64, random: &mut impl Rng) -> u64 {
    match Poisson::new(mean) {
        Ok(distribution) => distribution.sample(random) as u64,
        // Only a mean above 0 is accepted, and the product of two small numbers may be 0.
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests;
