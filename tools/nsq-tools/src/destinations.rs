//! [`Destinations`]: the addresses to which a tool sends messages, its choice among them, and the
//! times that they take.
//!
//! ```text
//!   choose(now) ──► Chosen ──► request ──► report(chosen, outcome, now)
//!                                     └──► time(place, duration) ──► lines of the log
//! ```

use std::time::Duration;

use crate::host_pool::{Choice, HostPool, Outcome, Pick};
use crate::timing_lines::TimingLines;

/// The way in which a tool chooses a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One after the other, whether they work or not.
    RoundRobin,
    /// One after the other, without those that fail.
    HostPool,
    /// Mostly fast ones, without those that fail.
    EpsilonGreedy,
}

impl Mode {
    /// Returns the mode of this name.
    pub fn parse(name: &str) -> Option<Mode> {
        match name {
            "round-robin" => Some(Mode::RoundRobin),
            "hostpool" => Some(Mode::HostPool),
            "epsilon-greedy" => Some(Mode::EpsilonGreedy),
            _ => None,
        }
    }
}

/// Destinations in the order of the command line.
#[derive(Debug)]
pub struct Destinations {
    choice: Chooser,
    aggregate: TimingLines,
    /// One for each destination, or none if there is only one destination.
    each: Vec<TimingLines>,
}

#[derive(Debug)]
enum Chooser {
    RoundRobin { count: usize, counter: usize },
    Pool(HostPool),
}

/// The destination of one message. [`Destinations::report`] consumes the choice.
#[derive(Debug)]
#[must_use = "the destinations learn from the report"]
pub struct Chosen {
    place: usize,
    pick: Option<Pick>,
}

impl Chosen {
    /// Returns the place of the destination in the list.
    pub fn place(&self) -> usize {
        self.place
    }
}

impl Destinations {
    /// Returns destinations of these names. A line about times comes after each `status_every`
    /// requests. 0 means no lines. `seed` decides the random choices.
    ///
    /// # Panics
    /// There are no names.
    pub fn new(names: &[String], mode: Mode, status_every: usize, seed: u64) -> Destinations {
        let count = names.len();
        assert!(count > 0, "a tool has a destination");
        let lines = |name: &String| TimingLines::new(&format!("[{name}]:"), status_every);
        Destinations {
            choice: match mode {
                Mode::RoundRobin => Chooser::RoundRobin { count, counter: 0 },
                Mode::HostPool => Chooser::Pool(HostPool::new(count, Choice::InTurn, seed)),
                Mode::EpsilonGreedy => {
                    Chooser::Pool(HostPool::new(count, Choice::EpsilonGreedy, seed))
                }
            },
            aggregate: TimingLines::new("[aggregate]:", status_every),
            each: match count {
                1 => Vec::new(),
                _ => names.iter().map(lines).collect(),
            },
        }
    }

    /// Returns the warning about rings that are too small. All rings have one size.
    pub fn warning(&self) -> Option<String> {
        self.aggregate.warning()
    }

    /// Chooses the destination of the next message.
    pub fn choose(&mut self, now: Duration) -> Chosen {
        match &mut self.choice {
            Chooser::RoundRobin { count, counter } => {
                // The counter is raised first, so the first message goes to the second destination.
                *counter = (*counter + 1) % *count;
                Chosen {
                    place: *counter,
                    pick: None,
                }
            }
            Chooser::Pool(pool) => Chosen::picked(pool.pick(now)),
        }
    }

    /// Chooses the first destination of `ranking` that works. Without a pool, this is the first
    /// destination of `ranking`.
    ///
    /// # Panics
    /// `ranking` is empty.
    pub fn choose_ranked(&mut self, ranking: &[usize], now: Duration) -> Chosen {
        match &mut self.choice {
            Chooser::RoundRobin { .. } => Chosen {
                place: ranking[0],
                pick: None,
            },
            Chooser::Pool(pool) => Chosen::picked(pool.pick_ranked(ranking, now)),
        }
    }

    /// Takes the outcome of the request to the chosen destination.
    pub fn report(&mut self, chosen: Chosen, outcome: Outcome, now: Duration) {
        if let (Chooser::Pool(pool), Some(pick)) = (&mut self.choice, chosen.pick) {
            pool.report(pick, outcome, now);
        }
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

impl Chosen {
    fn picked(pick: Pick) -> Chosen {
        Chosen {
            place: pick.index(),
            pick: Some(pick),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destinations(mode: Mode, count: usize, every: usize) -> Destinations {
        let names: Vec<String> = (0..count).map(|n| format!("h{n}:1")).collect();
        Destinations::new(&names, mode, every, 1)
    }

    #[test]
    fn round_robin_begins_with_the_second() {
        let mut all = destinations(Mode::RoundRobin, 3, 0);
        let places = (0..5).map(|_| {
            let chosen = all.choose(Duration::ZERO);
            let place = chosen.place();
            all.report(chosen, Outcome::Failure, Duration::ZERO);
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
                let chosen = all.choose(Duration::ZERO);
                counts[chosen.place()] += 1;
                let outcome = match chosen.place() {
                    0 => Outcome::Failure,
                    _ => Outcome::Success(Duration::from_millis(3)),
                };
                all.report(chosen, outcome, Duration::ZERO);
            }
            assert_eq!(counts, [1, 99], "{mode:?}");
        }
    }

    #[test]
    fn a_ranking_without_a_pool_has_no_fail_over() {
        let mut all = destinations(Mode::RoundRobin, 2, 0);
        for _ in 0..2 {
            let chosen = all.choose_ranked(&[1, 0], Duration::ZERO);
            assert_eq!(chosen.place(), 1);
            all.report(chosen, Outcome::Failure, Duration::ZERO);
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
