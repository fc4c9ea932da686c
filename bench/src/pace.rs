//! [`Pacer`]: when each publish of one producer is intended. No clock and no sockets: times go in and
//! come out.
//!
//! An open loop: the times depend on nothing that the daemon does. A producer that could not send at
//! an intended time sends later and still counts from the intended one.

use crate::random::Random;
use crate::scenario::Arrivals;

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
    /// The curve whose highest rate is `peak` times its mean, at least 1.
    #[must_use]
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

    /// The rate over the mean at a part of the day, 0 to 1.
    #[must_use]
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
    /// How the times lie.
    pub arrivals: Arrivals,
    /// Where in the first interval the producer begins, 0 to 1, so that producers do not march in
    /// step.
    pub offset: f64,
    /// The factor over the time between the two, if it is not flat. Before, it is that of its start.
    pub curve: Option<(Curve, u64, u64)>,
    /// For random distances.
    pub seed: u64,
}

/// The intended send times of one producer's commands, in order.
#[derive(Clone, Debug)]
pub struct Pacer {
    pace: Pace,
    start_ns: u64,
    end_ns: u64,
    random: Random,
    /// Commands given out.
    count: u64,
    /// The next intended time, in nanoseconds after the start.
    next: f64,
}

impl Pacer {
    /// Times from `start_ns` on and before `end_ns`.
    #[must_use]
    pub fn new(pace: Pace, start_ns: u64, end_ns: u64) -> Pacer {
        let mut pacer = Pacer {
            pace,
            start_ns,
            end_ns,
            random: Random::new(pace.seed),
            count: 0,
            next: 0.0,
        };
        pacer.next = pacer.distance() * pace.offset;
        pacer
    }

    /// The next intended time in nanoseconds; `None` when it is not before the end.
    #[inline]
    #[must_use]
    pub fn peek(&self) -> Option<u64> {
        let at = self.start_ns + self.next as u64;
        (at < self.end_ns).then_some(at)
    }

    /// Goes on to the time behind it.
    #[inline]
    pub fn advance(&mut self) {
        self.count += 1;
        let even = self.pace.arrivals == Arrivals::Even && self.pace.curve.is_none();
        if even {
            // From the count and not by adding up, so that no error accumulates.
            let interval = 1e9 / self.pace.commands_per_s;
            self.next = (self.count as f64 + self.pace.offset) * interval;
        } else {
            self.next += self.distance();
        }
    }

    /// The offered load at a time, in commands per second.
    #[must_use]
    pub fn commands_per_s_at(&self, at_ns: u64) -> f64 {
        let factor = self.pace.curve.map_or(1.0, |(curve, from_ns, to_ns)| {
            let length = to_ns.saturating_sub(from_ns).max(1) as f64;
            curve.at(at_ns.saturating_sub(from_ns) as f64 / length)
        });
        self.pace.commands_per_s * factor
    }

    fn distance(&mut self) -> f64 {
        let mean = 1e9 / self.commands_per_s_at(self.start_ns + self.next as u64);
        match self.pace.arrivals {
            Arrivals::Even => mean,
            Arrivals::Poisson => mean * self.random.exponential(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn times(pace: Pace, seconds: u64) -> Vec<u64> {
        let mut pacer = Pacer::new(pace, SECOND, SECOND + seconds * SECOND);
        let mut times = Vec::new();
        while let Some(at) = pacer.peek() {
            times.push(at - SECOND);
            pacer.advance();
        }
        assert!(times.is_sorted());
        times
    }

    fn pace(commands_per_s: f64) -> Pace {
        Pace {
            commands_per_s,
            arrivals: Arrivals::Even,
            offset: 0.0,
            curve: None,
            seed: 5,
        }
    }

    #[test]
    fn even_times_do_not_drift() {
        let thirds = times(pace(3.0), 1000);
        assert_eq!(thirds.len(), 3000);
        assert_eq!(thirds[2997], 999 * SECOND);
        let offset = times(
            Pace {
                offset: 0.5,
                ..pace(10.0)
            },
            1,
        );
        assert_eq!(offset[..2], [SECOND / 20, 3 * SECOND / 20]);
        assert_eq!(offset.len(), 10);
    }

    #[test]
    fn random_times_keep_the_rate() {
        let arrivals = Arrivals::Poisson;
        let times = times(
            Pace {
                arrivals,
                ..pace(1000.0)
            },
            20,
        );
        assert!((19_000..21_000).contains(&times.len()), "{}", times.len());
        let short = times
            .windows(2)
            .filter(|pair| pair[1] - pair[0] < SECOND / 1000);
        let share = short.count() as f64 / times.len() as f64;
        assert!((share - 0.632).abs() < 0.02, "{share}");
    }

    #[test]
    fn a_day_has_its_mean_and_its_peak() {
        for peak in [1.0, 1.5, 2.0, 4.0, 10.0] {
            let curve = Curve::new(peak);
            let mean = (0..1000)
                .map(|n| curve.at(f64::from(n) / 1000.0))
                .sum::<f64>()
                / 1000.0;
            assert!((mean - 1.0).abs() < 0.01, "peak {peak}: mean {mean}");
            assert!(
                (curve.at(0.5) - peak).abs() < 0.01,
                "peak {peak}: {}",
                curve.at(0.5)
            );
            assert!(curve.at(0.0) <= 1.0);
        }
        let curve = Some((Curve::new(4.0), SECOND, 21 * SECOND));
        let times = times(
            Pace {
                curve,
                ..pace(1000.0)
            },
            20,
        );
        assert!((19_500..20_500).contains(&times.len()), "{}", times.len());
        let noon = times
            .iter()
            .filter(|at| (9 * SECOND..11 * SECOND).contains(*at));
        let noon = noon.count() as f64 / 2000.0;
        assert!((3.3..=4.0).contains(&noon), "{noon}");
    }
}
