//! [`ForgetDistribution`]: the counts of one field's values, which are forgotten over time.

use std::collections::HashMap;

use rand::Rng;
use serde::{Deserialize, Serialize};

use super::decay::remaining;

/// The part of the bins that leaves together when there is no room for a new one. Removing many at
/// once makes the search for the smallest ones cheap.
const EVICTED_PART: usize = 16;

/// A time in seconds since the Unix epoch.
pub(super) type Seconds = f64;

/// The counts of a categorical distribution. Each bin is decremented when it is read or changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ForgetDistribution {
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
    pub(super) fn add(
        &mut self,
        value: &str,
        n: u64,
        moment: Moment,
        bins_max: usize,
        random: &mut impl Rng,
    ) -> usize {
        let Moment { rate, now } = moment;
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
    pub(super) fn forget(&mut self, Moment { rate, now }: Moment, random: &mut impl Rng) {
        self.bins.retain(|_, bin| {
            bin.forget(rate, now, random);
            bin.count > 0
        });
    }

    /// Returns some bins after a decrement of all. An unknown value has count 0.
    pub(super) fn read(&self, values: &[&str]) -> Reading {
        let count = |value: &str| self.bins.get(value).map_or(0, |bin| bin.count);
        Reading {
            z: self.z(),
            bins: values
                .iter()
                .map(|value| ((*value).into(), count(value)))
                .collect(),
        }
    }

    /// Returns the bins with the largest counts, the largest first and equal ones by name, after a
    /// decrement of all.
    pub(super) fn read_largest(&self, most: usize) -> Reading {
        let bins = self
            .bins
            .iter()
            .map(|(value, bin)| (value.clone(), bin.count));
        let mut bins: Vec<(Box<str>, u64)> = bins.collect();
        bins.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        bins.truncate(most);
        Reading { z: self.z(), bins }
    }

    /// Returns the number of bins, those included that would be empty now.
    pub(super) fn bins(&self) -> usize {
        self.bins.len()
    }

    fn z(&self) -> u64 {
        self.bins.values().map(|bin| bin.count).sum()
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
pub(super) struct Moment {
    /// The part that is forgotten, per second.
    pub(super) rate: f64,
    /// The time.
    pub(super) now: Seconds,
}
