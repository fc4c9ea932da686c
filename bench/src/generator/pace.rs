//! [`Pacer`]: when each publish of one producer is intended. No clock and no sockets: times go in and
//! come out.
//!
//! An open loop: the times depend on nothing that the daemon does. A producer that could not send at
//! an intended time sends later and still counts from the intended one.

use std::ops::Range;

use crate::random::exponential;
use crate::scenario::Arrivals;
use fastrand::Rng;

/// A day's curve of rates, with a mean of 1 over the day.
///
/// ```text
///   peak          ..
///                .  .
///   1   - - - - / - -\ - - - -
///   low ....../        \......
///       0         1/2        1      part of the day
/// ```
///
/// `low + (peak - low) * sin^2k(pi x)`, with the exponent that makes the mean 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Curve {
    peak: f64,
    exponent: f64,
}

/// The rate of the night as a share of the mean.
const NIGHT: f64 = 0.2;

impl Curve {
    /// Makes the curve whose highest rate is `peak` times its mean, at least 1.
    pub fn new(peak: f64) -> Curve {
        let wanted = (1.0 - NIGHT) / (peak.max(1.0) - NIGHT);
        let (mut low, mut high) = (0.0, 10_000.0);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if mean_of_power(middle) > wanted {
                low = middle;
            } else {
                high = middle;
            }
        }
        Curve {
            peak: peak.max(1.0),
            exponent: low,
        }
    }

    /// Returns the rate at a part of the day (0 to 1), as a multiple of the mean.
    pub fn at(&self, part: f64) -> f64 {
        let sine = (std::f64::consts::PI * part.clamp(0.0, 1.0)).sin();
        NIGHT + (self.peak - NIGHT) * (sine * sine).powf(self.exponent)
    }
}

/// The mean of `sin^2k(pi x)` for x from 0 to 1, by the midpoint rule.
fn mean_of_power(exponent: f64) -> f64 {
    let parts = 1000;
    let value = |part: i32| {
        let sine = (std::f64::consts::PI * (f64::from(part) + 0.5) / f64::from(parts)).sin();
        (sine * sine).powf(exponent)
    };
    (0..parts).map(value).sum::<f64>() / f64::from(parts)
}

/// The pace of one producer.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Publish commands per second of this producer.
    pub commands_per_s: f64,
    /// The way the intended send times lie.
    pub arrivals: Arrivals,
    /// The part of the first distance (0 to 1) after which the producer begins, so that producers do not send in step.
    pub offset: f64,
    /// The day's curve that the rate follows in the measured time; `None` for a flat rate. Before that time, the rate
    /// is that of its start.
    pub curve: Option<Curve>,
    /// Seed of the random distances of [`Arrivals::Poisson`].
    pub seed: u64,
}

/// The intended send times of one producer's commands, in order.
#[derive(Clone, Debug)]
pub struct Pacer {
    pace: Pace,
    start_ns: u64,
    measured: Range<u64>,
    random: Rng,
    count: u64,
    /// The next intended time, in nanoseconds after the start.
    next: f64,
}

impl Pacer {
    /// Makes the times from `start_ns` on and before the end of the measured time.
    pub fn new(pace: Pace, start_ns: u64, measured: Range<u64>) -> Pacer {
        let mut pacer = Pacer {
            pace,
            start_ns,
            measured,
            random: Rng::with_seed(pace.seed),
            count: 0,
            next: 0.0,
        };
        pacer.next = pacer.distance() * pace.offset;
        pacer
    }

    /// Returns the next intended time in nanoseconds; `None` when it is not before the end.
    #[inline]
    pub fn peek(&self) -> Option<u64> {
        let at = self.start_ns + self.next as u64;
        (at < self.measured.end).then_some(at)
    }

    /// Goes on to the time behind it.
    #[inline]
    pub fn advance(&mut self) {
        self.count += 1;
        let even = self.pace.arrivals == Arrivals::Even && self.pace.curve.is_none();
        if even {
            // The time is computed from the count and not by adding up, so that no error accumulates.
            let interval = 1e9 / self.pace.commands_per_s;
            self.next = (self.count as f64 + self.pace.offset) * interval;
        } else {
            self.next += self.distance();
        }
    }

    /// The distance from the next time to the one behind it.
    fn distance(&mut self) -> f64 {
        let Range { start, end } = self.measured;
        let at_ns = self.start_ns + self.next as u64;
        let factor = self.pace.curve.map_or(1.0, |curve| {
            let length = end.saturating_sub(start).max(1) as f64;
            curve.at(at_ns.saturating_sub(start) as f64 / length)
        });
        let mean = 1e9 / (self.pace.commands_per_s * factor);
        match self.pace.arrivals {
            Arrivals::Even => mean,
            Arrivals::Poisson => mean * exponential(&mut self.random),
        }
    }
}

#[cfg(test)]
mod tests;
