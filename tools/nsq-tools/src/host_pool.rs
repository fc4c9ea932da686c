//! [`HostPool`]: chooses one of several destinations, and leaves out those that fail, unless its mode is round-robin.
//!
//! ```text
//!   pick(now) ──► Pick ──► request to the destination ──► report(pick, outcome, now)
//! ```
//!
//! The pool has no clock and no sockets. Times are durations since any fixed moment, and they never
//! go back. Destinations are numbers: places in the caller's list.

use std::time::Duration;

use fastrand::Rng;

use response_times::ResponseTimes;

mod response_times;

/// The time for which a destination that failed is left out.
const RETRY_DELAY: Duration = Duration::from_secs(30);

/// The longest delay between two probes of a destination that keeps failing.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(900);

/// The probability of exploration at the start.
const EXPLORATION_START: f64 = 0.30;

/// The factor by which each exploration lowers the probability of the next one.
const EXPLORATION_DECAY: f64 = 0.90;

/// The lowest probability of exploration.
const EXPLORATION_MIN: f64 = 0.01;

/// The way in which a tool chooses a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One after the other, whether they work or not.
    RoundRobin,
    /// One after the other, without those that fail.
    HostPool,
    /// Mostly at random, and faster destinations more often, without those that fail. Some picks are
    /// in turn, so that slow destinations are measured again.
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

/// The result of a request to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request succeeded after this time.
    Success(Duration),
    /// The request failed.
    Failure,
}

/// One choice of a pool. [`HostPool::report`] consumes the pick, so only one report counts.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the pool learns from the report"]
pub struct Pick {
    /// The place of the destination in the caller's list.
    pub index: usize,
}

/// Destinations with the outcome of their last requests.
///
/// Invariants: `next` is at most the number of hosts. A host that is alive has no retry time.
#[derive(Debug)]
pub struct HostPool {
    hosts: Vec<Host>,
    /// The place where the next pick in turn starts.
    next: usize,
    mode: Mode,
    exploration: f64,
    random: Rng,
}

#[derive(Debug, Default)]
struct Host {
    /// `Some` while the host is dead.
    dead: Option<Dead>,
    times: ResponseTimes,
}

#[derive(Clone, Copy, Debug)]
struct Dead {
    delay: Duration,
    retry_at: Duration,
}

impl Host {
    /// Returns true if a request may go to this host.
    fn is_usable(&self, now: Duration) -> bool {
        self.dead.is_none_or(|dead| dead.retry_at < now)
    }

    /// Doubles the delay of a dead host that gets a request as a probe.
    fn start_probe(&mut self, now: Duration) {
        if let Some(dead) = &mut self.dead {
            dead.delay = (dead.delay * 2).min(RETRY_DELAY_MAX);
            dead.retry_at = now + dead.delay;
        }
    }
}

impl HostPool {
    /// Returns a pool of `count` destinations that are all alive. Pools with the same seed and the
    /// same inputs make the same picks.
    ///
    /// # Panics
    /// `count` is 0.
    pub fn new(count: usize, mode: Mode, seed: u64) -> HostPool {
        assert!(count > 0, "a pool has a destination");
        HostPool {
            hosts: (0..count).map(|_| Host::default()).collect(),
            next: 0,
            mode,
            exploration: EXPLORATION_START,
            random: Rng::with_seed(seed),
        }
    }

    /// Chooses a destination for one request.
    pub fn pick(&mut self, now: Duration) -> Pick {
        let index = match self.mode {
            Mode::RoundRobin => {
                // The counter is raised first, so the first message goes to the second destination.
                self.next = (self.next + 1) % self.hosts.len();
                self.next
            }
            Mode::HostPool => self.pick_in_turn(now),
            Mode::EpsilonGreedy => self.pick_greedily(now),
        };
        Pick { index }
    }

    /// Chooses the first usable destination of `ranking`, for a caller that has its own preference.
    /// If no destination of the ranking is usable, all are alive again, and the first one is the
    /// choice. In the mode round-robin, all destinations are usable.
    ///
    /// # Panics
    /// `ranking` is empty.
    pub fn pick_ranked(&mut self, ranking: &[usize], now: Duration) -> Pick {
        let usable = ranking
            .iter()
            .find(|index| self.hosts[**index].is_usable(now));
        let index = match usable {
            Some(index) => *index,
            None => {
                self.revive_all();
                ranking[0]
            }
        };
        self.hosts[index].start_probe(now);
        Pick { index }
    }

    /// Takes the outcome of the request for which `pick` was the choice.
    pub fn report(&mut self, pick: Pick, outcome: Outcome, now: Duration) {
        let host = &mut self.hosts[pick.index];
        match outcome {
            Outcome::Success(time) => {
                host.dead = None;
                host.times.record(time, now);
            }
            Outcome::Failure if self.mode == Mode::RoundRobin => {}
            Outcome::Failure => {
                host.dead.get_or_insert(Dead {
                    delay: RETRY_DELAY,
                    retry_at: now + RETRY_DELAY,
                });
            }
        }
    }

    /// Scans once around for a usable destination.
    fn pick_in_turn(&mut self, now: Duration) -> usize {
        let count = self.hosts.len();
        let order = (0..count).map(|step| (self.next + step) % count);
        let Some(index) = order.into_iter().find(|i| self.hosts[*i].is_usable(now)) else {
            self.revive_all();
            self.next = 0;
            return 0;
        };
        self.hosts[index].start_probe(now);
        self.next = index + 1;
        index
    }

    fn pick_greedily(&mut self, now: Duration) -> usize {
        if self.random.f64() < self.exploration {
            self.exploration = (self.exploration * EXPLORATION_DECAY).max(EXPLORATION_MIN);
            return self.pick_in_turn(now);
        }
        let Some(index) = self.pick_by_weight(now) else {
            return self.pick_in_turn(now);
        };
        self.hosts[index].start_probe(now);
        index
    }

    /// Chooses at random among the usable destinations with response times. The weight of each is
    /// the reciprocal of its average time. Returns `None` if no destination has a weight.
    fn pick_by_weight(&mut self, now: Duration) -> Option<usize> {
        let mut weights = Vec::with_capacity(self.hosts.len());
        for (index, host) in self.hosts.iter_mut().enumerate() {
            let average = host.times.average(now);
            if host.is_usable(now) && average > 0.0 {
                weights.push((index, 1.0 / average));
            }
        }
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let mut left = self.random.f64() * total;
        for (index, weight) in &weights {
            left -= weight;
            if left <= 0.0 {
                return Some(*index);
            }
        }
        // Rounding may leave a rest that is larger than zero behind the last weight.
        weights.last().map(|(index, _)| *index)
    }

    fn revive_all(&mut self) {
        for host in &mut self.hosts {
            host.dead = None;
        }
    }
}

#[cfg(test)]
mod tests;
