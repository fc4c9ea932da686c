//! [`ProducerFigures`]: who publishes to a topic, and how much more than usual.

use std::collections::BTreeMap;

use nsq_doctor::grown;

use super::recent::Recent;
use super::round::{NodeRound, Round};

/// Most producers of a topic that are listed: those with the highest rates.
const LISTED_MAX: usize = 100;

/// The time after which a rate counts half for the usual rate, in seconds.
const HALF_LIFE_SECONDS: f64 = 300.0;

/// The time for which a topic is watched before a rate is called unusual, in seconds.
const WATCHED_SECONDS_MIN: f64 = 60.0;

/// Most names of a topic whose usual rates are remembered while no connection has the name: those with the
/// highest rates. Programs that run for a moment may have another name each time.
const ABSENT_MAX: usize = 1000;

/// The growth of a rate over the usual one from which a producer has grown.
const GROWN_FACTOR: f64 = 2.0;
/// The smallest growth that counts, in messages per second.
const GROWN_MIN: f64 = 10.0;

/// The growth of a topic's rate over the usual one that needs attention although consumers keep up. The rate
/// of the whole topic counts: producers that are started anew, under other names, replace others.
const FAR_ABOVE_FACTOR: f64 = 5.0;
/// The smallest such growth, in messages per second.
const FAR_ABOVE_MIN: f64 = 100.0;
/// The smallest usual rate of such a topic, in messages per second. A topic that is idle most of the time,
/// such as that of a nightly import, has no usual rate to compare with.
const FAR_ABOVE_USUAL_MIN: f64 = 1.0;

/// The producers of a topic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicProducers {
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

/// A connection that publishes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProducerFigures {
    /// `host:port` of the node.
    pub node: String,
    /// The client's end of the connection.
    pub remote_address: String,
    /// The name that the client gave itself.
    pub client_id: String,
    /// The name of the client's machine.
    pub hostname: String,
    /// The client library.
    pub user_agent: String,
    /// The time of the connection, in seconds since 1970.
    pub connect_ts: i64,
    /// The messages since the connection.
    pub count: i64,
    /// Messages per second.
    pub rate: f64,
    /// The usual messages per second: the share of one connection in those of the clients with this
    /// name and machine at this node. `None` if they have not been watched for long enough.
    pub usual: Option<f64>,
}

/// The usual rates of producers, by topic.
#[derive(Debug, Default)]
pub(super) struct Usual(BTreeMap<String, Watched>);

/// A topic that is watched.
#[derive(Debug, Default)]
struct Watched {
    seconds: f64,
    /// The usual rates. [`OTHERS`] stands for those that are not listed.
    rates: BTreeMap<Name, f64>,
}

/// A client, its machine, and the node.
type Name = (String, String, String);

/// The name of all that are not listed. No node has this name.
const OTHERS: Name = (String::new(), String::new(), String::new());

impl TopicProducers {
    /// Returns true if the topic gets many times its usual rate.
    pub(super) fn is_far_above_usual(&self) -> bool {
        self.usual.is_some_and(|usual| {
            usual >= FAR_ABOVE_USUAL_MIN
                && self.arrivals > usual * FAR_ABOVE_FACTOR
                && self.arrivals > usual + FAR_ABOVE_MIN
        })
    }

    /// Returns the producer that has grown most over its usual rate, in words.
    pub(super) fn grown(&self) -> Option<String> {
        let has_grown = |rate: f64, usual: Option<f64>| {
            usual.is_some_and(|usual| rate > usual * GROWN_FACTOR && rate > usual + GROWN_MIN)
        };
        let mut most: Option<(f64, String, f64)> = None;
        let mut named: BTreeMap<String, (f64, Option<f64>)> = BTreeMap::new();
        for producer in &self.listed {
            let name = match producer.client_id.is_empty() {
                true => producer.remote_address.clone(),
                false => format!("{} ({})", producer.client_id, producer.hostname),
            };
            let (rate, usual) = named.entry(name).or_insert((0.0, Some(0.0)));
            *rate += producer.rate;
            *usual = usual.zip(producer.usual).map(|(sum, more)| sum + more);
        }
        let named = named
            .into_iter()
            .map(|(name, (rate, usual))| (name, rate, usual));
        let others = "publishes over HTTP or of other connections".to_owned();
        for (name, rate, usual) in named.chain([(others, self.others, self.others_usual)]) {
            let more = rate - usual.unwrap_or(0.0);
            if has_grown(rate, usual) && most.as_ref().is_none_or(|(least, ..)| more > *least) {
                let text = format!(
                    "{name}: {}/s instead of the usual {}/s",
                    nsq_doctor::short(rate),
                    nsq_doctor::short(usual.unwrap_or(0.0))
                );
                most = Some((more, text, rate));
            }
        }
        most.map(|(_, text, _)| text)
    }
}

impl Usual {
    /// Returns the producers of each topic, and remembers their rates.
    pub(super) fn producers(
        &mut self,
        recent: &Recent,
        after: &Round,
    ) -> BTreeMap<String, TopicProducers> {
        self.0.retain(|topic, _| after.topics.contains_key(topic));
        let mut topics: BTreeMap<String, TopicProducers> = BTreeMap::new();
        for (name, topic) in &after.topics {
            let (known, elapsed) = recent.earliest(|round| round.topics.get(name));
            let figures = topics.entry(name.clone()).or_default();
            for (node, count) in &topic.messages {
                let earlier = known.and_then(|known| known.messages.get(node));
                figures.arrivals += rate(earlier.copied(), *count, elapsed.as_secs_f64());
            }
        }
        for (address, node) in &after.nodes {
            let (known, elapsed) = recent.earliest_answer(address);
            for producer in producers_of(address, known, node, elapsed.as_secs_f64()) {
                let (topic, producer) = producer;
                topics.entry(topic).or_default().listed.push(producer);
            }
        }
        // Rates are those of a longer time than the one since the last round. Only this time is new.
        let seconds = recent.since_last().as_secs_f64();
        for (name, figures) in &mut topics {
            let published = figures.listed.iter().map(|producer| producer.rate);
            figures.others = (figures.arrivals - published.sum::<f64>()).max(0.0);
            self.0
                .entry(name.clone())
                .or_default()
                .next(figures, seconds);
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

#[cfg(test)]
impl Usual {
    /// Returns how many names of a topic have a usual rate, and whether a client is among them.
    pub(super) fn known(&self, topic: &str, client: &str) -> (usize, bool) {
        let rates = &self.0[topic].rates;
        (rates.len(), rates.keys().any(|(id, ..)| id == client))
    }
}

impl Watched {
    /// Tells the usual rates, and learns from the present ones. `seconds` is the time since the last round.
    fn next(&mut self, figures: &mut TopicProducers, seconds: f64) {
        let name = |producer: &ProducerFigures| -> Name {
            let ProducerFigures {
                client_id,
                hostname,
                node,
                ..
            } = producer;
            (client_id.clone(), hostname.clone(), node.clone())
        };
        let mut now = BTreeMap::from([(OTHERS, figures.others)]);
        let mut connections: BTreeMap<Name, f64> = BTreeMap::new();
        for producer in &figures.listed {
            *now.entry(name(producer)).or_insert(0.0) += producer.rate;
            *connections.entry(name(producer)).or_insert(0.0) += 1.0;
        }
        let is_known = self.seconds >= WATCHED_SECONDS_MIN;
        let usual = |key: &Name| is_known.then(|| self.rates.get(key).copied().unwrap_or(0.0));
        figures.usual = is_known.then(|| self.rates.values().sum());
        figures.others_usual = usual(&OTHERS);
        for producer in &mut figures.listed {
            let name = name(producer);
            let count = connections.get(&name).copied().unwrap_or(1.0);
            producer.usual = usual(&name).map(|usual| usual / count);
        }
        if seconds <= 0.0 {
            return;
        }
        // In the first minute, the usual rate is the mean.
        let weight = match is_known {
            true => 1.0 - 0.5_f64.powf(seconds / HALF_LIFE_SECONDS),
            false => seconds / (self.seconds + seconds),
        };
        self.seconds += seconds;
        for (key, rate) in &now {
            let usual = self.rates.entry(key.clone()).or_insert(match is_known {
                true => 0.0,
                false => *rate,
            });
            *usual += (rate - *usual) * weight;
        }
        self.rates.retain(|key, usual| {
            if !now.contains_key(key) {
                *usual *= 1.0 - weight;
            }
            now.contains_key(key) || *usual > 0.01
        });
        self.forget_lowest(&now);
    }

    /// Forgets the lowest rates of the names that are not there now, if there are too many.
    fn forget_lowest(&mut self, now: &BTreeMap<Name, f64>) {
        let absent = self.rates.iter().filter(|(key, _)| !now.contains_key(*key));
        let mut usual: Vec<f64> = absent.map(|(_, usual)| *usual).collect();
        let mut excess = usual.len().saturating_sub(ABSENT_MAX);
        if excess == 0 {
            return;
        }
        let (_, highest, _) = usual.select_nth_unstable_by(excess - 1, f64::total_cmp);
        self.rates.retain(|key, usual| {
            let is_forgotten = excess > 0 && *usual <= *highest && !now.contains_key(key);
            excess -= usize::from(is_forgotten);
            !is_forgotten
        });
    }
}

/// Returns the producers of a node, each with its topic.
fn producers_of<'a>(
    address: &'a str,
    before: Option<&'a NodeRound>,
    after: &'a NodeRound,
    seconds: f64,
) -> impl Iterator<Item = (String, ProducerFigures)> + 'a {
    after.producers.iter().map(move |(key, producer)| {
        let earlier = before.and_then(|node| node.producers.get(key));
        // All messages of a new connection belong to this time, but not those of a new node.
        let earlier = match (earlier, before) {
            (Some(earlier), _) => Some(earlier.count),
            (None, Some(_)) => Some(0),
            (None, None) => None,
        };
        let figures = ProducerFigures {
            node: address.to_owned(),
            remote_address: key.remote_address.clone(),
            client_id: producer.client_id.clone(),
            hostname: producer.hostname.clone(),
            user_agent: producer.user_agent.clone(),
            connect_ts: key.connect_ts,
            count: producer.count,
            rate: rate(earlier, producer.count, seconds),
            usual: None,
        };
        (key.topic.clone(), figures)
    })
}

#[allow(clippy::cast_precision_loss)] // A rate needs no more.
fn rate(earlier: Option<i64>, count: i64, seconds: f64) -> f64 {
    match earlier {
        Some(earlier) if seconds > 0.0 => grown(earlier, count) as f64 / seconds,
        _ => 0.0,
    }
}
