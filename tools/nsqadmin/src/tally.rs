//! [`Tally`]: the counts since the start that `/metrics` shows.
//!
//! The parts of nsqadmin count here, and nothing is read back but by `/metrics`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Time after which a server that nobody asks any more leaves the metrics.
const UPSTREAM_LIFETIME: Duration = Duration::from_secs(600);

/// The number of servers up to which none is forgotten before somebody reads the metrics.
const UPSTREAMS_MIN: usize = 1000;

/// Methods that have a label of their own. A client can send any word.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];

/// The counts. All clones count the same.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    upstreams: Mutex<Upstreams>,
    acts: Mutex<BTreeMap<(String, &'static str), u64>>,
    audit_failures: AtomicU64,
    notifications: [AtomicU64; TOLD.len()],
    collections: Mutex<Collections>,
}

/// A server that nsqadmin asks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UpstreamName {
    /// `nsqd` or `nsqlookupd`.
    pub server: &'static str,
    /// `host:port` of its HTTP interface.
    pub address: String,
}

/// The counts of one server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamCounts {
    /// Requests.
    pub requests: u64,
    /// The time of these requests.
    pub time: Duration,
    /// The requests that failed, by the reason.
    pub failures: BTreeMap<&'static str, u64>,
    /// True if the last request got an answer, even if that was a refusal, and the server is not gone.
    pub is_up: bool,
}

/// The servers that were asked lately.
#[derive(Debug, Default)]
struct Upstreams {
    counted: BTreeMap<UpstreamName, Counted>,
    /// The number of servers at which those that nobody asks any more are forgotten. Nobody may ever read the metrics,
    /// and an nsqlookupd may name other nodes each time.
    forgets_at: usize,
}

#[derive(Debug)]
struct Counted {
    counts: UpstreamCounts,
    asked: Instant,
    /// True if no nsqlookupd knows the server any more. The collector does not ask it then.
    is_gone: bool,
    /// True if the server was asked since it was last said to be gone.
    is_asked_again: bool,
}

/// The labels of [`Told`], in its order.
const TOLD: [&str; 3] = ["sent", "failed", "dropped"];

/// The fate of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The endpoint has answered.
    Sent,
    /// The endpoint has not answered.
    Failed,
    /// Too many notifications waited for the endpoint.
    Dropped,
}

/// The counts of collections, each of which asks all nsqds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Collections {
    /// Collections in which all servers answered.
    pub complete: u64,
    /// Collections in which some servers did not answer.
    pub partial: u64,
    /// Collections without any figures.
    pub failed: u64,
    /// The time of all collections.
    pub time: Duration,
    /// The time of the last collection.
    pub last_time: Duration,
    /// Series for which the last collection found no room in the history.
    pub left_out_series: u64,
}

impl Upstreams {
    /// Forgets servers if there are twice as many as after the last time.
    fn make_room(&mut self, now: Instant) {
        if self.counted.len() >= self.forgets_at {
            self.forget(now);
            self.forgets_at = (2 * self.counted.len()).max(UPSTREAMS_MIN);
        }
    }

    /// Forgets the servers that nobody asks any more, but not those that are gone.
    fn forget(&mut self, now: Instant) {
        let is_asked =
            |counted: &Counted| now.saturating_duration_since(counted.asked) < UPSTREAM_LIFETIME;
        let is_kept = |counted: &Counted| counted.is_gone || is_asked(counted);
        self.counted.retain(|_, counted| is_kept(counted));
    }

    /// Returns the server, which has no requests yet if it is new.
    fn of(&mut self, name: UpstreamName, now: Instant) -> &mut Counted {
        self.counted.entry(name).or_insert_with(|| Counted {
            counts: UpstreamCounts::default(),
            asked: now,
            is_gone: false,
            is_asked_again: false,
        })
    }
}

impl Tally {
    /// Counts a request of a client.
    pub fn count_request(&self, method: &str, status: u16) {
        let known = METHODS.iter().find(|known| **known == method);
        let key = (known.copied().unwrap_or("other"), status);
        *self.0.requests.lock().entry(key).or_default() += 1;
    }

    /// Counts a request to a server. `failure` is the reason if it failed. `is_up` is true if there was
    /// an answer.
    pub fn count_upstream(
        &self,
        name: UpstreamName,
        took: Duration,
        failure: Option<&'static str>,
        is_up: bool,
        now: Instant,
    ) {
        let mut upstreams = self.0.upstreams.lock();
        upstreams.make_room(now);
        let counted = upstreams.of(name, now);
        counted.asked = now;
        counted.is_asked_again = true;
        let counts = &mut counted.counts;
        counts.requests += 1;
        counts.time += took;
        counts.is_up = is_up;
        if let Some(reason) = failure {
            *counts.failures.entry(reason).or_default() += 1;
        }
    }

    /// Takes the servers that are gone now. They are not up. A server that was gone before leaves, unless it was asked since
    /// then.
    pub fn set_gone(&self, gone: &BTreeSet<UpstreamName>, now: Instant) {
        let mut upstreams = self.0.upstreams.lock();
        for name in gone {
            let counted = upstreams.of(name.clone(), now);
            (counted.is_gone, counted.is_asked_again) = (true, false);
            counted.counts.is_up = false;
        }
        upstreams.counted.retain(|name, counted| {
            let was_gone = counted.is_gone;
            counted.is_gone = gone.contains(name);
            counted.is_gone || !was_gone || counted.is_asked_again
        });
    }

    /// Counts an act, or one that was refused.
    pub fn count_act(&self, action: &str, result: &'static str) {
        let key = (action.to_owned(), result);
        *self.0.acts.lock().entry(key).or_default() += 1;
    }

    /// Counts a line that could not be written to the file of the audit log.
    pub fn count_audit_failure(&self) {
        self.0.audit_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a notification.
    pub fn count_notification(&self, told: Told) {
        self.0.notifications[told as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a collection. `is_complete` is `None` if there are no figures.
    pub fn count_collection(&self, took: Duration, is_complete: Option<bool>) {
        let mut collections = self.0.collections.lock();
        collections.time += took;
        collections.last_time = took;
        match is_complete {
            Some(true) => collections.complete += 1,
            Some(false) => collections.partial += 1,
            None => collections.failed += 1,
        }
    }

    /// Sets the number of series for which the history has no room.
    pub fn set_left_out_series(&self, count: usize) {
        self.0.collections.lock().left_out_series = count as u64;
    }

    /// Returns the requests of clients by method and status.
    pub fn requests(&self) -> BTreeMap<(&'static str, u16), u64> {
        self.0.requests.lock().clone()
    }

    /// Returns the servers that were asked lately.
    pub fn upstreams(&self, now: Instant) -> Vec<(UpstreamName, UpstreamCounts)> {
        let mut upstreams = self.0.upstreams.lock();
        upstreams.forget(now);
        let upstreams = upstreams.counted.iter();
        let upstreams = upstreams.map(|(name, counted)| {
            let mut counts = counted.counts.clone();
            counts.is_up &= !counted.is_gone;
            (name.clone(), counts)
        });
        upstreams.collect()
    }

    /// Returns the acts by action and result.
    pub fn acts(&self) -> BTreeMap<(String, &'static str), u64> {
        self.0.acts.lock().clone()
    }

    /// Returns the number of lines that could not be written to the file of the audit log.
    pub fn audit_failures(&self) -> u64 {
        self.0.audit_failures.load(Ordering::Relaxed)
    }

    /// Returns the number of notifications with this fate.
    pub fn notifications(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.0.notifications.iter();
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        TOLD.into_iter().zip(counts)
    }

    /// Returns the counts of collections.
    pub fn collections(&self) -> Collections {
        *self.0.collections.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(address: &str) -> UpstreamName {
        UpstreamName {
            server: "nsqd",
            address: address.to_owned(),
        }
    }

    #[test]
    fn unknown_methods_share_a_label() {
        let tally = Tally::default();
        tally.count_request("GET", 200);
        tally.count_request("BREW", 405);
        tally.clone().count_request("brew", 405);
        let expected = [(("GET", 200), 1), (("other", 405), 2)];
        assert_eq!(tally.requests(), expected.into_iter().collect());
    }

    /// Without a reader of the metrics, none was ever forgotten.
    #[test]
    fn servers_with_other_names_each_time_take_bounded_memory() {
        let tally = Tally::default();
        let start = Instant::now();
        for number in 0..10_000_u32 {
            let now = start + number * Duration::from_secs(1);
            let name = name(&format!("n{number}:1"));
            tally.count_upstream(name, Duration::ZERO, None, true, now);
        }
        let count = tally.0.upstreams.lock().counted.len();
        assert!(count <= 2 * UPSTREAMS_MIN, "{count}");
    }

    /// The metrics said that a node was up which the nsqlookupds had dropped because it had died.
    #[test]
    fn a_server_that_is_gone_is_down_until_it_is_gone_no_more() {
        let tally = Tally::default();
        let start = Instant::now();
        let ask =
            |address, now| tally.count_upstream(name(address), Duration::ZERO, None, true, now);
        let shown = |now| -> Vec<(String, bool)> {
            let upstreams = tally.upstreams(now).into_iter();
            upstreams
                .map(|(name, counts)| (name.address, counts.is_up))
                .collect()
        };
        let is = |address: &str, is_up| (address.to_owned(), is_up);
        for address in ["died:1", "returns:1"] {
            ask(address, start);
        }
        let gone = BTreeSet::from([name("died:1"), name("returns:1")]);
        tally.set_gone(&gone, start);
        assert_eq!(shown(start), [is("died:1", false), is("returns:1", false)]);
        // Somebody acts on a node that is gone for the nsqlookupds only.
        ask("died:1", start);
        assert_eq!(shown(start)[0], is("died:1", false));
        let later = start + 2 * UPSTREAM_LIFETIME;
        tally.set_gone(&gone, later);
        assert_eq!(shown(later), [is("died:1", false), is("returns:1", false)]);
        ask("returns:1", later);
        tally.set_gone(&BTreeSet::new(), later);
        assert_eq!(shown(later), [is("returns:1", true)]);
        assert_eq!(tally.upstreams(later)[0].1.requests, 2);
    }

    /// The series was missing for 20 seconds, in which the question was not repeated, and the alert about the server ended.
    #[test]
    fn a_server_that_returns_and_hangs_is_down() {
        let tally = Tally::default();
        let now = Instant::now();
        let second = Duration::from_secs(1);
        tally.count_upstream(name("n:1"), second, None, true, now);
        tally.set_gone(&BTreeSet::from([name("n:1")]), now);
        tally.count_upstream(name("n:1"), second, Some("no_answer"), false, now);
        tally.set_gone(&BTreeSet::new(), now);
        let found = tally.upstreams(now);
        assert_eq!(found.len(), 1);
        assert!(!found[0].1.is_up && found[0].1.requests == 2, "{found:?}");
        // Nobody asks a server that has stayed away for half an hour.
        tally.set_gone(&BTreeSet::from([name("n:1")]), now);
        tally.set_gone(&BTreeSet::new(), now);
        assert_eq!(tally.upstreams(now), []);
    }

    #[test]
    fn a_server_that_nobody_asks_leaves() {
        let tally = Tally::default();
        let start = Instant::now();
        let second = Duration::from_secs(1);
        tally.count_upstream(name("old:1"), second, None, true, start);
        let later = start + UPSTREAM_LIFETIME - second;
        tally.count_upstream(name("new:1"), second, None, true, later);
        tally.count_upstream(name("new:1"), second, Some("no_answer"), false, later);
        assert_eq!(tally.upstreams(later).len(), 2);
        let expected = UpstreamCounts {
            requests: 2,
            time: 2 * second,
            failures: [("no_answer", 1)].into_iter().collect(),
            is_up: false,
        };
        let left = tally.upstreams(later + second);
        assert_eq!(left, [(name("new:1"), expected)]);
    }
}
