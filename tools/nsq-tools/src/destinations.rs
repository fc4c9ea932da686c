//! [`Destinations`]: the addresses to which a tool sends messages, its choice among them, and the
//! times that they take.
//!
//! ```text
//!   pool.pick(now) ──► Pick ──► request ──► pool.report(pick, outcome, now)
//!                                     └──► time(place, duration) ──► lines of the log
//! ```

use std::time::Duration;

use crate::host_pool::{HostPool, Mode};
use crate::timing_lines::TimingLines;

/// Destinations in the order of the command line.
#[derive(Debug)]
pub struct Destinations {
    /// The choice of the next destination.
    pub pool: HostPool,
    aggregate: TimingLines,
    /// One for each destination, or none if there is only one destination.
    each: Vec<TimingLines>,
}

impl Destinations {
    /// Returns destinations of these names. A line about times comes after each `status_every`
    /// requests. 0 means no lines. `seed` decides the random choices.
    ///
    /// # Panics
    /// There are no names.
    pub fn new(names: &[String], mode: Mode, status_every: usize, seed: u64) -> Destinations {
        let lines = |name: &String| TimingLines::new(&format!("[{name}]:"), status_every);
        Destinations {
            pool: HostPool::new(names.len(), mode, seed),
            aggregate: TimingLines::new("[aggregate]:", status_every),
            each: match names {
                [_] => Vec::new(),
                _ => names.iter().map(lines).collect(),
            },
        }
    }

    /// Returns the warning about rings that are too small. All rings have one size.
    pub fn warning(&self) -> Option<String> {
        self.aggregate.warning()
    }

    /// Records how long a request to this destination took. Returns the line that is due.
    pub fn time_one(&mut self, place: usize, duration: Duration) -> Option<String> {
        self.each.get_mut(place)?.record(duration)
    }

    /// Records how long a message took. Returns the line that is due.
    pub fn time_all(&mut self, duration: Duration) -> Option<String> {
        self.aggregate.record(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_pool::Outcome;

    fn destinations(mode: Mode, count: usize, every: usize) -> Destinations {
        let names: Vec<String> = (0..count).map(|n| format!("h{n}:1")).collect();
        Destinations::new(&names, mode, every, 1)
    }

    #[test]
    fn round_robin_begins_with_the_second() {
        let mut all = destinations(Mode::RoundRobin, 3, 0);
        let places = (0..5).map(|_| {
            let pick = all.pool.pick(Duration::ZERO);
            let place = pick.index;
            all.pool.report(pick, Outcome::Failure, Duration::ZERO);
            place
        });
        assert_eq!(places.collect::<Vec<_>>(), [1, 2, 0, 1, 2]);
    }

    #[test]
    fn the_pool_leaves_failures_out() {
        for mode in [Mode::HostPool, Mode::EpsilonGreedy] {
            let mut all = destinations(mode, 2, 0);
            let mut counts = [0; 2];
            for _ in 0..100 {
                let pick = all.pool.pick(Duration::ZERO);
                counts[pick.index] += 1;
                let outcome = match pick.index {
                    0 => Outcome::Failure,
                    _ => Outcome::Success(Duration::from_millis(3)),
                };
                all.pool.report(pick, outcome, Duration::ZERO);
            }
            assert_eq!(counts, [1, 99], "{mode:?}");
        }
    }

    #[test]
    fn a_ranking_without_a_pool_has_no_fail_over() {
        let mut all = destinations(Mode::RoundRobin, 2, 0);
        for _ in 0..2 {
            let pick = all.pool.pick_ranked(&[1, 0], Duration::ZERO);
            assert_eq!(pick.index, 1);
            all.pool.report(pick, Outcome::Failure, Duration::ZERO);
        }
    }

    #[test]
    fn one_destination_has_only_the_aggregate_line() {
        let time = Duration::from_millis(2);
        let mut one = destinations(Mode::HostPool, 1, 1);
        assert_eq!((one.time_one(0, time), one.time_all(time)), (None, None));
        let line = "[aggregate]: finished 1 - 99th: 2.00ms - 95th: 2.00ms - avg: 2.00ms";
        assert_eq!(one.time_one(0, time), None);
        assert_eq!(one.time_all(time).as_deref(), Some(line));
        assert!(one.warning().is_some());
    }

    #[test]
    fn several_destinations_have_lines_of_their_own() {
        let time = Duration::from_millis(2);
        let mut two = destinations(Mode::HostPool, 2, 1);
        assert_eq!(two.time_one(1, time), None);
        let line = "[h1:1]: finished 1 - 99th: 2.00ms - 95th: 2.00ms - avg: 2.00ms";
        assert_eq!(two.time_one(1, time).as_deref(), Some(line));
        assert_eq!(two.time_one(0, time), None);
    }

    #[test]
    fn modes_have_names() {
        assert_eq!(Mode::parse("round-robin"), Some(Mode::RoundRobin));
        assert_eq!(Mode::parse("hostpool"), Some(Mode::HostPool));
        assert_eq!(Mode::parse("epsilon-greedy"), Some(Mode::EpsilonGreedy));
        assert_eq!(Mode::parse("bogus"), None);
        assert_eq!(Mode::parse(""), None);
    }
}
