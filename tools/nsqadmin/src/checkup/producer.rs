//! [`ProducerFigures`]: who publishes to a topic, and how much more than usual. [`Watched`]: the usual rates of a topic
//! and of each connection that publishes to it.
//!
//! The usual rate is an average in which a rate counts half after half an hour, so a flood is news for some minutes. A
//! connection that ends leaves its usual rate to a new one of the same client at the same node: the client was started anew.

use std::collections::{BTreeMap, BTreeSet};

use nsq_doctor::{grown, short};

use super::round::{Connection, ProducerFigures, Recent, Round};
use super::{ABSENT_MAX, keep_highest};

/// Most producers of a topic that are listed: those with the highest rates.
const LISTED_MAX: usize = 100;

/// The time for which the usual rates of a topic are remembered while no node tells about it, in seconds.
const ABSENT_SECONDS_MAX: f64 = 600.0;

/// The usual rate below which a connection counts as new, in messages per second.
const NEW_USUAL_MAX: f64 = 0.01;

/// The growth of a topic's rate over the usual one that needs attention although consumers keep up. The rate
/// of the whole topic counts: producers that are started anew, under other names, replace others.
const FAR_ABOVE_FACTOR: f64 = 5.0;
/// The smallest such growth, in messages per second.
const FAR_ABOVE_MIN: f64 = 100.0;
/// The smallest usual rate of such a topic, in messages per second. A topic that is idle most of the time,
/// such as that of a nightly import, has no usual rate to compare with.
const FAR_ABOVE_USUAL_MIN: f64 = 1.0;

/// The time after which a rate counts half for the usual rate, in seconds.
const HALF_LIFE_SECONDS: f64 = 1_800.0;

/// The time for which a connection has no usual rate, in seconds.
const NEW_SECONDS: f64 = 600.0;

/// The time for which a topic is watched before a rate is called unusual, in seconds.
const WATCHED_SECONDS_MIN: f64 = 60.0;

/// Most connections of a topic whose usual rates are remembered after their end: those with the highest rates. Programs
/// that run for a moment have another connection each time.
const ENDED_MAX: usize = 1000;

/// The usual rate below which a connection that has ended is forgotten, in messages per second.
const ENDED_USUAL_MIN: f64 = 0.01;

/// The growth of a rate over the usual one from which a producer has grown.
const GROWN_FACTOR: f64 = 2.0;
/// The smallest growth that counts, in messages per second.
const GROWN_MIN: f64 = 10.0;

/// The producers of a topic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicProducers {
    /// False if no node has answered twice with the topic: its rates are not known yet.
    pub is_measured: bool,
    /// Messages per second, over all nodes.
    pub arrivals: f64,
    /// The usual rate of `arrivals`. `None` if the topic has not been watched for long enough.
    pub usual: Option<f64>,
    /// The part of `arrivals` without a connection that is listed: publishes over HTTP, and of
    /// connections that have ended.
    pub others: f64,
    /// The usual rate of `others`.
    pub others_usual: Option<f64>,
    /// The number of producers.
    pub count: usize,
    /// The producers with the highest rates.
    pub listed: Vec<ProducerFigures>,
}

/// The usual rates of producers, by topic.
#[derive(Debug, Default)]
pub(super) struct Usual(BTreeMap<String, Watched>);

impl TopicProducers {
    /// Returns true if the topic gets many times its usual rate.
    pub(super) fn is_far_above_usual(&self) -> bool {
        self.usual.is_some_and(|usual| {
            usual >= FAR_ABOVE_USUAL_MIN
                && self.arrivals > usual * FAR_ABOVE_FACTOR
                && self.arrivals > usual + FAR_ABOVE_MIN
        })
    }

    /// Returns the producer that has grown most over its usual rate, in words. The connections of a client to several nodes
    /// count together. Returns `None` if the topic as a whole gets what it usually gets.
    pub(super) fn grown(&self) -> Option<String> {
        // A connection may be new because its program was moved, and the topic gets no more than before.
        self.usual
            .filter(|usual| has_grown(self.arrivals, *usual))?;
        let mut clients: BTreeMap<(&str, &str), Vec<&ProducerFigures>> = BTreeMap::new();
        for producer in &self.listed {
            let name = match producer.client_id.as_str() {
                "" => (producer.remote_address.as_str(), ""),
                id => (id, producer.hostname.as_str()),
            };
            clients.entry(name).or_default().push(producer);
        }
        let clients = clients.values().filter_map(|connections| {
            let rate = connections.iter().map(|one| one.rate).sum();
            let usual: Option<f64> = connections.iter().map(|one| one.usual).sum();
            let usual = usual?;
            has_grown(rate, usual).then(|| (rate - usual, of_client(connections, rate, usual)))
        });
        let others = self.others_usual;
        let others = others.filter(|usual| has_grown(self.others, *usual));
        let others = others.map(|usual| {
            let who = "publishes over HTTP or of other connections";
            (self.others - usual, instead(who, self.others, usual))
        });
        let most = clients.chain(others).max_by(|a, b| a.0.total_cmp(&b.0));
        most.map(|(_, text)| text)
    }
}

/// Returns how a client has grown, in words. A new connection is named, and so is one of several to the same node:
/// programs on one host often have the same name.
fn of_client(connections: &[&ProducerFigures], rate: f64, usual: f64) -> String {
    let growth = |one: &ProducerFigures| one.rate - one.usual.unwrap_or(0.0);
    let most = connections
        .iter()
        .max_by(|a, b| growth(a).total_cmp(&growth(b)))
        .expect("a client has a connection");
    let (node, address, id) = (&most.node, &most.remote_address, &most.client_id);
    let (name, from) = match id.as_str() {
        "" => (address.clone(), String::new()),
        id => (
            format!("{id} ({})", most.hostname),
            format!(" from {address}"),
        ),
    };
    let of_most = most.usual.unwrap_or(0.0);
    let is_alone = growth(most) * 2.0 > rate - usual;
    let has_namesakes = connections.iter().filter(|one| one.node == *node).count() > 1;
    if is_alone && of_most < NEW_USUAL_MAX {
        format!("{name}, new at {node}{from}: {}/s", short(most.rate))
    } else if is_alone && has_namesakes {
        instead(&format!("{name} at {node}{from}"), most.rate, of_most)
    } else {
        instead(&name, rate, usual)
    }
}

fn instead(who: &str, rate: f64, usual: f64) -> String {
    let (rate, usual) = (short(rate), short(usual));
    format!("{who}: {rate}/s instead of the usual {usual}/s")
}

impl Usual {
    /// Returns the producers of each topic, and remembers their rates.
    pub(super) fn producers(
        &mut self,
        recent: &Recent,
        after: &Round,
    ) -> BTreeMap<String, TopicProducers> {
        // Rates are those of a longer time than the one since the last round. Only this time is new.
        let seconds = recent.since_last().as_secs_f64();
        // A wild producer may keep its node from answering, and its usual rate must not be forgotten then.
        self.0.retain(|topic, watched| {
            watched.absent_for(after.topics.contains_key(topic), seconds) < ABSENT_SECONDS_MAX
        });
        let count_max = after.topics.len() + ABSENT_MAX;
        keep_highest(&mut self.0, count_max, |_, it| it.there_until());
        let mut topics: BTreeMap<String, TopicProducers> = BTreeMap::new();
        for (name, topic) in &after.topics {
            let figures = topics.entry(name.clone()).or_default();
            for (address, node) in topic {
                if let Some((earlier, elapsed)) = recent.earliest_count(name, address, after) {
                    let seconds = elapsed.as_secs_f64();
                    figures.is_measured = true;
                    figures.arrivals += rate(Some(earlier), node.message_count, seconds);
                }
            }
        }
        for (address, node) in &after.nodes {
            let (known, elapsed) = recent.earliest_answer(address, node);
            for (key, producer) in &node.producers {
                // All messages of a new connection belong to this time, but not those of a new node.
                let earlier = known.map(|known| known.producers.get(key).map_or(0, |it| it.count));
                let producer = ProducerFigures {
                    rate: rate(earlier, producer.count, elapsed.as_secs_f64()),
                    ..producer.clone()
                };
                topics
                    .entry(key.0.clone())
                    .or_default()
                    .listed
                    .push(producer);
            }
        }
        for (name, figures) in &mut topics {
            let published = figures.listed.iter().map(|producer| producer.rate);
            figures.others = (figures.arrivals - published.sum::<f64>()).max(0.0);
            let watched = self.0.entry(name.clone()).or_default();
            watched.next(figures, seconds, |node| after.is_silent(node));
            figures.count = figures.listed.len();
            let highest_first = |a: &ProducerFigures, b: &ProducerFigures| {
                let order = b.rate.total_cmp(&a.rate).then(b.count.cmp(&a.count));
                order.then_with(|| a.remote_address.cmp(&b.remote_address))
            };
            figures.listed.sort_by(highest_first);
            figures.listed.truncate(LISTED_MAX);
        }
        topics
    }
}

#[allow(clippy::cast_precision_loss)] // A rate needs no more.
fn rate(earlier: Option<i64>, count: i64, seconds: f64) -> f64 {
    match earlier {
        Some(earlier) if seconds > 0.0 => grown(earlier, count) as f64 / seconds,
        _ => 0.0,
    }
}

/// Returns true if a rate is far above the usual one.
fn has_grown(rate: f64, usual: f64) -> bool {
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
    usual: f64,
    /// The time that was watched, in seconds.
    seconds: f64,
}

/// The client's own name, and that of its machine.
type Client = (String, String);

/// A connection that has published.
#[derive(Debug)]
struct Known {
    client: Client,
    rate: Rate,
}

impl Rate {
    /// Learns from a rate that lasted for this time. Before the topic `is_known`, the usual rate is the mean. A connection that
    /// comes later counts as new for some minutes.
    fn learn(&mut self, rate: f64, seconds: f64, is_known: bool) {
        let weight = if !is_known {
            seconds / (self.seconds + seconds)
        } else if self.seconds < NEW_SECONDS {
            0.0
        } else {
            weight(seconds)
        };
        self.seconds += seconds;
        self.usual += (rate - self.usual) * weight;
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
    fn absent_for(&mut self, is_there: bool, seconds: f64) -> f64 {
        self.absent_seconds = if is_there {
            0.0
        } else {
            self.absent_seconds + seconds
        };
        self.absent_seconds
    }

    /// Returns the time of the last round with the topic, in milliseconds before now.
    #[allow(clippy::cast_possible_truncation)] // Absent topics are forgotten after some minutes.
    fn there_until(&self) -> i64 {
        -(self.absent_seconds * 1000.0) as i64
    }

    /// Tells the usual rates, and learns from the present ones. `seconds` is the time since the last round. A silent node
    /// tells nothing about its connections.
    fn next(
        &mut self,
        figures: &mut TopicProducers,
        seconds: f64,
        is_silent: impl Fn(&str) -> bool,
    ) {
        let is_known = self.seconds >= WATCHED_SECONDS_MIN;
        let told = |rate: &Rate| is_known.then_some(rate.usual);
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
            known.rate.usual > ENDED_USUAL_MIN
        });
        // The lowest rates of the connections that are not there now are forgotten. Rates are not negative, so their
        // bits have their order.
        keep_highest(
            &mut self.connections,
            now.len() + ENDED_MAX,
            |connection, known| {
                let is_there = now.contains(connection);
                let rate = known.rate.usual.to_bits().cast_signed();
                if is_there { i64::MAX } else { rate }
            },
        );
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
                of_client.push((known.rate.usual, connection.clone()));
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
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Usual {
        /// Returns how many connections of a topic have a usual rate, and whether a client is among them.
        pub(in crate::checkup) fn known(&self, topic: &str, client: &str) -> (usize, bool) {
            let connections = &self.0[topic].connections;
            let mut known = connections.values();
            let has = known.any(|known| known.client.0 == client);
            (connections.len(), has)
        }
    }
}
