//! [`Destinations`]: the addresses to which a tool sends messages, its choice among them, and the
//! times that they take.
//!
//! ```text
//!   pool.pick(now) ──► Pick ──► request ──► pool.report(pick, success, now)
//!                                     └──► time(place, duration) ──► lines of the log
//! ```

use std::time::Duration;

use fastrand::Rng;
use program::log_info;

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
    /// Returns destinations of these names. A line of the log about times comes after each `status_every`
    /// requests. 0 means no lines. A warning says if the lines are too frequent. `seed` decides the random choices.
    ///
    /// # Panics
    /// There are no names.
    pub fn new(names: &[String], mode: Mode, status_every: usize, seed: u64) -> Destinations {
        let lines = |name: &String| TimingLines::new(&format!("[{name}]:"), status_every);
        let aggregate = TimingLines::new("[aggregate]:", status_every);
        log_line(aggregate.warning());
        Destinations {
            pool: HostPool::new(names.len(), mode, seed),
            aggregate,
            each: match names {
                [_] => Vec::new(),
                _ => names.iter().map(lines).collect(),
            },
        }
    }

    /// Records how long a request to this destination took.
    pub fn time_one(&mut self, place: usize, duration: Duration) {
        let lines = self.each.get_mut(place);
        log_line(lines.and_then(|lines| lines.record(duration)));
    }

    /// Records how long a message took.
    pub fn time_all(&mut self, duration: Duration) {
        log_line(self.aggregate.record(duration));
    }
}

fn log_line(line: Option<String>) {
    if let Some(line) = line {
        log_info!("{line}");
    }
}

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

    /// Takes the outcome of the request for which `pick` was the choice: the time after which it succeeded, or `None` for a
    /// failure.
    pub fn report(&mut self, pick: Pick, success: Option<Duration>, now: Duration) {
        let host = &mut self.hosts[pick.index];
        match success {
            Some(time) => {
                host.dead = None;
                host.times.record(time, now);
            }
            None if self.mode == Mode::RoundRobin => {}
            None => {
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

/// The number of buckets.
const BUCKETS: usize = 120;

/// The time that one bucket covers: all buckets cover five minutes.
const BUCKET_TIME: Duration = Duration::from_millis(2500);

/// Response times in buckets of 2.5 s, in whole milliseconds.
#[derive(Debug)]
struct ResponseTimes {
    buckets: Vec<Bucket>,
    /// The number of the newest bucket, counted from time zero.
    newest: u128,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    count: u64,
    sum_ms: u64,
}

impl Default for ResponseTimes {
    fn default() -> ResponseTimes {
        ResponseTimes {
            buckets: vec![Bucket::default(); BUCKETS],
            newest: 0,
        }
    }
}

impl ResponseTimes {
    /// Records the time of one success. Fractions of milliseconds are dropped.
    fn record(&mut self, time: Duration, now: Duration) {
        self.advance(now);
        let place = self.place(self.newest);
        let bucket = &mut self.buckets[place];
        bucket.count += 1;
        bucket.sum_ms += u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 2);
    }

    /// Returns the weighted sum of the buckets' averages, in milliseconds. The oldest bucket has the
    /// weight 1/120, and the newest one 120/120. An empty bucket repeats the value before it. The
    /// result is 0 without times, and when all times are below a millisecond.
    fn average(&mut self, now: Duration) -> f64 {
        self.advance(now);
        let mut sum = 0.0;
        let mut value = 0.0;
        for age in 1..=BUCKETS {
            let place = (self.place(self.newest) + age) % BUCKETS;
            let bucket = self.buckets[place];
            if bucket.count > 0 {
                value = bucket.sum_ms as f64 / bucket.count as f64;
            }
            sum += value * age as f64 / BUCKETS as f64;
        }
        sum
    }

    /// Empties the buckets that began since the last call.
    fn advance(&mut self, now: Duration) {
        let current = now.as_nanos() / BUCKET_TIME.as_nanos();
        let begun = current.saturating_sub(self.newest).min(BUCKETS as u128);
        for step in 0..begun {
            let place = self.place(current - step);
            self.buckets[place] = Bucket::default();
        }
        self.newest = self.newest.max(current);
    }

    fn place(&self, bucket: u128) -> usize {
        (bucket % BUCKETS as u128) as usize
    }
}

/// The lowest number of durations from which the 99th percentile means something.
const ACCURATE_MIN: usize = 100;

/// The last durations in a ring. Each time the ring wraps, it returns a line.
#[derive(Debug)]
struct TimingLines {
    prefix: String,
    /// The capacity of the ring. 0 turns the lines off.
    every: usize,
    ring: Vec<Duration>,
    next: usize,
}

impl TimingLines {
    /// Returns an empty ring for the last `every` durations. Each line begins with `prefix`.
    fn new(prefix: &str, every: usize) -> TimingLines {
        TimingLines {
            prefix: prefix.to_owned(),
            every,
            ring: Vec::new(),
            next: 0,
        }
    }

    /// Returns the warning for a ring that is too small for percentiles.
    fn warning(&self) -> Option<String> {
        let every = self.every;
        (1..ACCURATE_MIN).contains(&every).then(|| {
            format!(
                "Warning: use more than 100 status values for accurate percentiles (configured with {every})"
            )
        })
    }

    /// Records one duration. Returns the line that is due, if the ring has just wrapped.
    fn record(&mut self, duration: Duration) -> Option<String> {
        if self.every == 0 {
            return None;
        }
        if self.ring.len() < self.every {
            self.ring.push(duration);
            return None;
        }
        let has_wrapped = self.next == 0;
        self.ring[self.next] = duration;
        self.next = (self.next + 1) % self.every;
        has_wrapped.then(|| self.line())
    }

    fn line(&self) -> String {
        let mut sorted = self.ring.clone();
        sorted.sort_unstable();
        let total: Duration = sorted.iter().sum();
        let average = total.as_secs_f64() * 1000.0 / sorted.len() as f64;
        format!(
            "{} finished {} - 99th: {:.2}ms - 95th: {:.2}ms - avg: {average:.2}ms",
            self.prefix,
            self.every,
            percentile_ms(&sorted, 99.0),
            percentile_ms(&sorted, 95.0),
        )
    }
}

/// Returns a percentile of a sorted list that is not empty, in milliseconds.
fn percentile_ms(sorted: &[Duration], percent: f64) -> f64 {
    let place = (percent / 100.0 * sorted.len() as f64 + 0.5).ceil() as usize;
    sorted[place.min(sorted.len() - 1)].as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests;
