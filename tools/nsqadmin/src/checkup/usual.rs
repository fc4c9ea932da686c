//! [`Watched`]: the usual rates of a topic and of each connection that publishes to it.
//!
//! ```text
//!   rate ─┬─ not far above usual ─► usual: an average in which a rate counts half after 5 minutes
//!         └─ far above ─► usual stays, for half an hour. Then the rate is accepted, until it is away for half an hour
//! ```
//!
//! A flood does not become usual while it is news. A load that comes and goes is accepted, too: if it is there for half of
//! the time, such as that of a job every ten minutes, after 80 minutes. A connection that ends leaves its usual rate to a new
//! one of the same client at the same node: the client was started anew.

use std::collections::{BTreeMap, BTreeSet};

use super::{ProducerFigures, TopicProducers};

/// The time after which a rate counts half for the usual rate, in seconds.
const HALF_LIFE_SECONDS: f64 = 300.0;

/// The time for which a topic is watched before a rate is called unusual, in seconds.
const WATCHED_SECONDS_MIN: f64 = 60.0;

/// The time after which a rate far above usual is accepted, and after which an accepted rate that is away is forgotten, in
/// seconds.
const FLOOD_SECONDS: f64 = 1_800.0;

/// The part of the time without a rate far above usual that is subtracted from the time with one.
const QUIET_SHARE: f64 = 0.25;

/// Most connections of a topic whose usual rates are remembered after their end: those with the highest rates. Programs
/// that run for a moment have another connection each time.
const ENDED_MAX: usize = 1000;

/// The usual rate below which a connection that has ended is forgotten, in messages per second.
const ENDED_USUAL_MIN: f64 = 0.01;

/// The growth of a rate over the usual one from which a producer has grown.
const GROWN_FACTOR: f64 = 2.0;
/// The smallest growth that counts, in messages per second.
const GROWN_MIN: f64 = 10.0;

/// Returns true if a rate is far above the usual one.
pub(super) fn has_grown(rate: f64, usual: f64) -> bool {
    rate > usual * GROWN_FACTOR && rate > usual + GROWN_MIN
}

/// A topic that is watched.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// The time for which the topic was watched, in seconds.
    seconds: f64,
    /// The time since the last round that had the topic, in seconds.
    absent_seconds: f64,
    topic: Rate,
    /// The rate of publishes over HTTP, and of connections that have ended.
    others: Rate,
    connections: BTreeMap<Connection, Known>,
}

/// The usual rate of something, in messages per second.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    /// The average of the rates that were not far above usual.
    average: f64,
    /// The time that was watched, in seconds.
    seconds: f64,
    /// The mean of the rates far above usual.
    above: f64,
    /// The time with such rates, in seconds, less a part of the time without.
    above_seconds: f64,
    /// The rate of the last flood that has become usual. 0 if there is none, or if it was away for long.
    accepted: f64,
    /// The time for which the rate was far below `accepted`, in seconds.
    away_seconds: f64,
}

/// A connection: its node, the client's end, and its time.
type Connection = (String, String, i64);

/// The client's own name, and that of its machine.
type Client = (String, String);

/// A connection that has published.
#[derive(Debug)]
struct Known {
    client: Client,
    rate: Rate,
}

impl Rate {
    fn usual(&self) -> f64 {
        self.average.max(self.accepted)
    }

    /// Learns from a rate that lasted for this time. Before the topic `is_known`, there is no usual rate to compare with.
    fn learn(&mut self, rate: f64, seconds: f64, is_known: bool) {
        self.away_seconds = if has_grown(self.accepted, rate) {
            self.away_seconds + seconds
        } else {
            0.0
        };
        if self.away_seconds >= FLOOD_SECONDS {
            self.accepted = 0.0;
        }
        // In the first minute, the usual rate is the mean.
        let weight = if self.seconds >= WATCHED_SECONDS_MIN {
            weight(seconds)
        } else {
            seconds / (self.seconds + seconds)
        };
        self.seconds += seconds;
        if !is_known || !has_grown(rate, self.usual()) {
            self.above_seconds = (self.above_seconds - seconds * QUIET_SHARE).max(0.0);
            self.average += (rate - self.average) * weight;
            return;
        }
        self.above_seconds += seconds;
        self.above += (rate - self.above) * seconds / self.above_seconds;
        if self.above_seconds >= FLOOD_SECONDS {
            (self.accepted, self.above_seconds) = (self.above, 0.0);
        }
    }
}

/// Returns the weight of a rate that lasted for this time in an average.
fn weight(seconds: f64) -> f64 {
    1.0 - 0.5_f64.powf(seconds / HALF_LIFE_SECONDS)
}

fn connection_of(producer: &ProducerFigures) -> Connection {
    let address = producer.remote_address.clone();
    (producer.node.clone(), address, producer.connect_ts)
}

impl Watched {
    /// Counts a round with or without the topic. Returns the seconds since the last one with it.
    pub(super) fn absent_for(&mut self, is_there: bool, seconds: f64) -> f64 {
        self.absent_seconds = if is_there {
            0.0
        } else {
            self.absent_seconds + seconds
        };
        self.absent_seconds
    }

    /// Returns the time of the last round with the topic, in milliseconds before now.
    #[allow(clippy::cast_possible_truncation)] // Absent topics are forgotten after some minutes.
    pub(super) fn there_until(&self) -> i64 {
        -(self.absent_seconds * 1000.0) as i64
    }

    /// Tells the usual rates, and learns from the present ones. `seconds` is the time since the last round. A silent node
    /// tells nothing about its connections.
    pub(super) fn next(
        &mut self,
        figures: &mut TopicProducers,
        seconds: f64,
        is_silent: impl Fn(&str) -> bool,
    ) {
        let is_known = self.seconds >= WATCHED_SECONDS_MIN;
        let told = |rate: &Rate| is_known.then(|| rate.usual());
        let now: BTreeSet<Connection> = figures.listed.iter().map(connection_of).collect();
        self.add_new(&figures.listed, &now);
        figures.usual = told(&self.topic);
        figures.others_usual = told(&self.others);
        for producer in &mut figures.listed {
            let known = self.connections.get(&connection_of(producer));
            producer.usual = known.and_then(|known| told(&known.rate));
        }
        if seconds <= 0.0 {
            return;
        }
        self.seconds += seconds;
        self.topic.learn(figures.arrivals, seconds, is_known);
        self.others.learn(figures.others, seconds, is_known);
        for producer in &figures.listed {
            if let Some(known) = self.connections.get_mut(&connection_of(producer)) {
                known.rate.learn(producer.rate, seconds, is_known);
            }
        }
        self.connections.retain(|connection, known| {
            if now.contains(connection) || is_silent(&connection.0) {
                return true;
            }
            known.rate.learn(0.0, seconds, is_known);
            known.rate.usual() > ENDED_USUAL_MIN
        });
        self.forget_lowest(&now);
    }

    /// Adds the connections that are new. Each takes the usual rate over from one that has ended, the highest first.
    fn add_new(&mut self, listed: &[ProducerFigures], now: &BTreeSet<Connection>) {
        let new: Vec<_> = listed
            .iter()
            .map(|producer| (connection_of(producer), producer))
            .filter(|(connection, _)| !self.connections.contains_key(connection))
            .collect();
        if new.is_empty() {
            return;
        }
        let mut ended: BTreeMap<(String, Client), Vec<(f64, Connection)>> = BTreeMap::new();
        for (connection, known) in &self.connections {
            if !now.contains(connection) {
                let client = (connection.0.clone(), known.client.clone());
                let of_client = ended.entry(client).or_default();
                of_client.push((known.rate.usual(), connection.clone()));
            }
        }
        for of_client in ended.values_mut() {
            of_client.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        for (connection, producer) in new {
            let client = (producer.client_id.clone(), producer.hostname.clone());
            let of_client = ended.get_mut(&(connection.0.clone(), client.clone()));
            let replaced = of_client.and_then(|ended| self.connections.remove(&ended.pop()?.1));
            let rate = replaced.map(|known| known.rate).unwrap_or_default();
            self.connections.insert(connection, Known { client, rate });
        }
    }

    /// Forgets the lowest rates of the connections that are not there now, if there are too many.
    fn forget_lowest(&mut self, now: &BTreeSet<Connection>) {
        let ended = self.connections.iter();
        let ended = ended.filter(|(connection, _)| !now.contains(*connection));
        let mut usual: Vec<f64> = ended.map(|(_, known)| known.rate.usual()).collect();
        let mut excess = usual.len().saturating_sub(ENDED_MAX);
        if excess == 0 {
            return;
        }
        let (_, highest, _) = usual.select_nth_unstable_by(excess - 1, f64::total_cmp);
        self.connections.retain(|connection, known| {
            let is_low = known.rate.usual() <= *highest && !now.contains(connection);
            let is_forgotten = excess > 0 && is_low;
            excess -= usize::from(is_forgotten);
            !is_forgotten
        });
    }

    /// Returns how many connections have a usual rate, and whether a client is among them.
    #[cfg(test)]
    pub(super) fn known(&self, client: &str) -> (usize, bool) {
        let mut known = self.connections.values();
        let has = known.any(|known| known.client.0 == client);
        (self.connections.len(), has)
    }
}
