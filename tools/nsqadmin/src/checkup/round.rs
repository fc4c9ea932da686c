//! [`Round`]: the answers of all servers at one moment, as far as a checkup needs them. [`Recent`]: the rounds of the last
//! seconds, with which a new round is compared.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use nsq_doctor::{ChannelSample, NodeSample, Pause, sum};
use serde::Serialize;

use super::keep_window;
use crate::figures::{Answered, Now};

/// Most topics of a backlog that are named.
const LONGEST_MAX: usize = 3;

/// The time over which rates are measured, in milliseconds. Rounds may come more often. Over a shorter
/// time, the rate of a slow consumer would be noise.
const WINDOW_MILLIS: i64 = 5000;

/// The answers of all servers at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    /// The time of the question to the nodes.
    pub now: Now,
    /// The channels by topic and channel.
    pub channels: BTreeMap<(String, String), ChannelRound>,
    /// The topics.
    pub topics: BTreeMap<String, TopicNodes>,
    /// The topics that get dead letters, each with a channel that they come from, as `topic/channel`.
    pub dead_letters: BTreeMap<String, String>,
    /// The nodes by `host:port`.
    pub nodes: BTreeMap<String, NodeRound>,
    /// The nsqlookupds by `host:port`. Empty in direct mode.
    pub lookupds: BTreeMap<String, LookupdRound>,
}

/// A channel on all nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChannelRound {
    /// The figures for the doctor.
    pub sample: ChannelSample,
    /// The age of the oldest message in milliseconds, if a node tells it.
    pub oldest_ms: Option<i64>,
    /// False if this message is on a node that consumers may not have found yet.
    pub is_oldest_found: bool,
    /// The messages that each connection of a consumer has finished.
    pub finishes: BTreeMap<Connection, i64>,
    /// One of the consumers, in words.
    pub consumer: Option<String>,
}

/// A connection to a node: `host:port` of the node, the client's end, and the time of the connection, in seconds since
/// 1970.
pub(super) type Connection = (String, String, i64);

/// A topic on all nodes by `host:port`.
pub(super) type TopicNodes = BTreeMap<String, TopicNode>;

/// A topic on one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicNode {
    /// Messages that wait in the topic itself.
    pub depth: i64,
    /// The number of channels.
    pub channel_count: usize,
    /// The age of the oldest message of `depth` in milliseconds, if the node tells it.
    pub oldest_ms: Option<i64>,
    /// The messages since the start of the node.
    pub message_count: i64,
    /// The pause of the topic.
    pub pause: Option<Pause>,
}

impl NodeRound {
    /// Returns true if the node refuses messages because its disk has no room. The texts are those of the system.
    pub(super) fn says_disk_is_full(&self) -> bool {
        let texts = ["no space left on device", "disk quota exceeded"];
        self.health.starts_with("NOK") && texts.iter().any(|text| self.health.contains(text))
    }
}

impl TopicNode {
    /// Returns true if messages wait for the first channel.
    pub(super) fn is_unclaimed(&self) -> bool {
        self.channel_count == 0 && self.depth > 0
    }
}

/// The answers of a node in one round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeRound {
    /// The reason why the node did not answer.
    pub failure: Option<String>,
    /// The time of the answer, and the process that gave it.
    pub answered: Answered,
    /// `OK`, or the reason why the node takes no messages.
    pub health: String,
    /// The messages that the node has refused since its start.
    pub refused_count: i64,
    /// The version of ringq, which is empty for another nsqd. `None` if the node did not tell its build.
    pub ringq_version: Option<String>,
    /// The names of the topics, which are still known after the node has vanished.
    pub topics: Arc<BTreeSet<String>>,
    /// The messages of the node, which are told after the node has vanished.
    pub backlog: Arc<Backlog>,
    /// The connections that publish, by topic, the client's end, and the time of the connection. Their rates are not known.
    pub producers: BTreeMap<(String, String, i64), ProducerFigures>,
    /// The shard of each topic, and the messages of the topic since the start.
    pub shards: BTreeMap<String, (u64, i64)>,
    /// The shards' use of their cores, and the disk.
    pub metrics: Option<NodeMetrics>,
    /// About how many bytes the bodies of the messages have that are owed or can be brought back. `None` if the node
    /// does not tell enough.
    pub backlog_bytes: Option<f64>,
}

/// The messages that a node owes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Their number.
    pub messages: i64,
    /// The number of topics that have some.
    pub topic_count: usize,
    /// The topics with the most of them.
    pub longest: Vec<String>,
}

/// A connection that publishes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
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
    #[serde(skip)]
    pub rate: f64,
    /// The usual messages per second of this connection, or of the one that it replaces. `None` if the topic has not been
    /// watched for long enough.
    #[serde(skip)]
    pub usual: Option<f64>,
}

/// The figures of a node that only its `/metrics` has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeMetrics {
    /// The shards by number.
    pub shards: BTreeMap<u64, ShardUse>,
    /// Bytes of the file system of the messages.
    pub disk_bytes: f64,
    /// Bytes of this file system that nsqd may still use.
    pub free_bytes: f64,
    /// True in a drain.
    pub is_draining: bool,
}

/// The use of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShardUse {
    /// The processor time since the start, in seconds.
    pub cpu_seconds: f64,
    /// The connections.
    pub connections: f64,
}

/// The answer of an nsqlookupd in one round: the nodes that it knows, by `host:port`, or the reason why it did not answer.
pub type LookupdRound = Result<BTreeSet<String>, String>;

impl Round {
    /// Adds the answer of a node.
    pub fn add_node(
        &mut self,
        address: &str,
        stats: &nsq_http::Stats,
        metrics: Option<NodeMetrics>,
    ) -> &mut NodeRound {
        let topics = stats.topics.iter().map(|topic| topic.topic_name.clone());
        let mut node = NodeRound {
            answered: Answered {
                steady_millis: self.now.steady_millis,
                start_time: stats.start_time,
            },
            health: stats.health.clone(),
            refused_count: sum(stats.topics.iter().map(|topic| topic.refused_count)),
            topics: Arc::new(topics.collect()),
            backlog: Arc::new(Backlog::of(&stats.topics)),
            backlog_bytes: backlog_bytes(&stats.topics),
            metrics,
            ..NodeRound::default()
        };
        let uptime = nsq_doctor::uptime(stats.start_time, self.now.unix_millis / 1000);
        for topic in &stats.topics {
            if let Some(shard) = topic.shard {
                let name = topic.topic_name.clone();
                node.shards.insert(name, (shard, topic.message_count));
            }
            self.add_topic(address, topic, uptime);
        }
        for client in &stats.producers {
            for published in &client.pub_counts {
                let topic = published.topic.clone();
                let key = (topic, client.remote_address.clone(), client.connect_ts);
                let producer = ProducerFigures {
                    node: address.to_owned(),
                    remote_address: client.remote_address.clone(),
                    client_id: client.client_id.clone(),
                    hostname: client.hostname.clone(),
                    user_agent: client.user_agent.clone(),
                    connect_ts: client.connect_ts,
                    count: published.count,
                    ..ProducerFigures::default()
                };
                node.producers.insert(key, producer);
            }
        }
        self.nodes
            .entry(address.to_owned())
            .insert_entry(node)
            .into_mut()
    }

    /// Adds a node that did not answer.
    pub fn add_failure(&mut self, address: &str, why: String) {
        let node = NodeRound {
            failure: Some(why),
            ..NodeRound::default()
        };
        self.nodes.insert(address.to_owned(), node);
    }

    /// Returns true if the node was asked and did not answer.
    pub(super) fn is_silent(&self, address: &str) -> bool {
        let node = self.nodes.get(address);
        node.is_some_and(|node| node.failure.is_some())
    }

    fn add_topic(&mut self, address: &str, topic: &nsq_http::TopicStats, uptime: Option<Duration>) {
        let now = self.now.unix_millis;
        let round = self.topics.entry(topic.topic_name.clone()).or_default();
        let node = TopicNode {
            depth: topic.depth,
            channel_count: topic.channels.len(),
            oldest_ms: topic.oldest_unfinished_ms,
            message_count: topic.message_count,
            pause: Pause::of_topic(topic, now),
        };
        round.insert(address.to_owned(), node);
        for channel in &topic.channels {
            let mut node = NodeSample::of(topic, channel, now);
            node.uptime = uptime;
            if !channel.dead_letter_topic.is_empty() {
                let from = format!("{}/{}", topic.topic_name, channel.channel_name);
                let to = channel.dead_letter_topic.clone();
                self.dead_letters.entry(to).or_insert(from);
            }
            let is_found = !node.may_be_unknown();
            let name = (topic.topic_name.clone(), channel.channel_name.clone());
            let round = self.channels.entry(name).or_default();
            if channel.oldest_unfinished_ms >= round.oldest_ms {
                round.is_oldest_found = is_found;
            }
            round.sample.nodes.insert(address.to_owned(), node);
            round.oldest_ms = round.oldest_ms.max(channel.oldest_unfinished_ms);
            for client in channel.clients.iter().flatten() {
                let client_end = client.remote_address.clone();
                let key = (address.to_owned(), client_end, client.connect_ts);
                round.finishes.insert(key, client.finish_count);
                round.consumer.get_or_insert_with(|| name_of(client));
            }
        }
    }
}

impl ChannelRound {
    /// Returns the number of messages that wait.
    pub(super) fn depth(&self) -> i64 {
        sum(self.sample.nodes.values().map(|node| node.depth))
    }

    /// Returns the number of messages that the present consumers have finished since an earlier round. A consumer
    /// that has come since then has finished all its messages since then.
    pub(super) fn finished_since(&self, before: &ChannelRound) -> i64 {
        sum(self.finishes.iter().map(|(consumer, count)| {
            let known = before.finishes.get(consumer).copied().unwrap_or(0);
            count.saturating_sub(known).max(0)
        }))
    }
}

impl NodeMetrics {
    /// Reads the metrics of ringq's nsqd. `None` if these are other metrics.
    pub fn of_metrics(text: &str) -> Option<NodeMetrics> {
        let mut metrics = NodeMetrics::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, value)) = line.rsplit_once(' ') else {
                continue;
            };
            // JSON has neither infinite numbers nor NaN.
            let Some(value) = value.parse().ok().filter(|it: &f64| it.is_finite()) else {
                continue;
            };
            let (family, labels) = name.split_once('{').unwrap_or((name, ""));
            match family {
                "nsqd_data_path_size_bytes" => metrics.disk_bytes = value,
                "nsqd_data_path_available_bytes" => metrics.free_bytes = value,
                "nsqd_draining" => metrics.is_draining = value > 0.0,
                "nsqd_shard_cpu_seconds_total" => metrics.shard(labels)?.cpu_seconds = value,
                "nsqd_shard_connections" => metrics.shard(labels)?.connections = value,
                _ => {}
            }
        }
        (!metrics.shards.is_empty()).then_some(metrics)
    }

    /// Returns the shard that the labels name.
    fn shard(&mut self, labels: &str) -> Option<&mut ShardUse> {
        let (_, rest) = labels.split_once("shard=\"")?;
        let number = rest.split_once('"')?.0.parse().ok()?;
        Some(self.shards.entry(number).or_default())
    }
}

impl Backlog {
    fn of(topics: &[nsq_http::TopicStats]) -> Backlog {
        let with_messages = topics.iter().map(|topic| (owed(topic, false), topic));
        let mut with_messages: Vec<_> = with_messages.filter(|(owed, _)| *owed > 0).collect();
        with_messages.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.topic_name.cmp(&b.1.topic_name)));
        let names = with_messages
            .iter()
            .map(|(_, topic)| topic.topic_name.clone());
        Backlog {
            messages: nsq_doctor::sum(with_messages.iter().map(|(owed, _)| *owed)),
            topic_count: with_messages.len(),
            longest: names.take(LONGEST_MAX).collect(),
        }
    }
}

/// Returns the number of messages that a topic owes, and with `has_undo` those that can be brought back. The channels of a
/// topic share its messages, so the channel with the most of them counts.
fn owed(topic: &nsq_http::TopicStats, has_undo: bool) -> i64 {
    let undo = |count: i64| if has_undo { count } else { 0 };
    let of_channel = |channel: &nsq_http::ChannelStats| {
        nsq_doctor::sum([
            channel.depth,
            channel.in_flight_count,
            channel.deferred_count,
            undo(channel.undo_message_count),
        ])
    };
    let longest = topic.channels.iter().map(of_channel).max().unwrap_or(0);
    nsq_doctor::sum([topic.depth, undo(topic.undo_message_count), longest])
}

/// Returns about how many bytes the bodies of messages have that are owed or can be brought back, if each is as long as
/// the mean of its topic. A node that was started anew does not know how long its older messages are.
#[allow(clippy::cast_precision_loss)] // An estimate needs no more.
fn backlog_bytes(topics: &[nsq_http::TopicStats]) -> Option<f64> {
    let bytes = topics
        .iter()
        .map(|topic| match (owed(topic, true), topic.message_count) {
            (0, _) => Some(0.0),
            (_, 0) => None,
            (waiting, count) => Some(topic.message_bytes as f64 / count as f64 * waiting as f64),
        });
    bytes.sum()
}

/// Returns `client_id (hostname, remote_address)`.
fn name_of(consumer: &nsq_http::ClientStats) -> String {
    let (id, address) = (&consumer.client_id, &consumer.remote_address);
    if id.is_empty() {
        address.clone()
    } else {
        format!("{id} ({}, {address})", consumer.hostname)
    }
}

/// The rounds of the last seconds, the earliest first. The earliest one is at least [`WINDOW_MILLIS`] old,
/// as soon as there is such a round.
#[derive(Debug, Default)]
pub(super) struct Recent {
    rounds: VecDeque<Round>,
    /// The time of the round that is checked, in steady milliseconds.
    now: i64,
}

impl Recent {
    /// Forgets the rounds that a round of this time does not need.
    pub(super) fn prepare(&mut self, steady_millis: i64) {
        self.now = steady_millis;
        // The later one of two rounds at one moment counts.
        keep_window(&mut self.rounds, steady_millis, WINDOW_MILLIS, |round| {
            round.now.steady_millis
        });
    }

    /// Adds a round.
    pub(super) fn push(&mut self, round: Round) {
        self.rounds.push_back(round);
    }

    /// Returns true before the second round.
    pub(super) fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// Returns the time since the last round. Zero if there is none.
    pub(super) fn since_last(&self) -> Duration {
        self.rounds
            .back()
            .map_or(Duration::ZERO, |round| self.since(round))
    }

    /// Returns a figure of the earliest round that has it, and the time since this round. A figure that no
    /// round has is younger than the last round: the time is then the time since the last round.
    pub(super) fn earliest<'a, T>(
        &'a self,
        figure: impl Fn(&'a Round) -> Option<&'a T>,
    ) -> (Option<&'a T>, Duration) {
        let mut rounds = self.rounds.iter();
        let found = rounds.find_map(|round| Some((Some(figure(round)?), self.since(round))));
        found.unwrap_or((None, self.since_last()))
    }

    /// Returns the earliest answer of a node, and the time from this answer to the node's answer `after`. A round
    /// without an answer tells nothing about the counts of the node, which are not 0.
    pub(super) fn earliest_answer(
        &self,
        address: &str,
        after: &NodeRound,
    ) -> (Option<&NodeRound>, Duration) {
        let mut answers = self.rounds.iter().filter_map(|round| {
            let node = round.nodes.get(address)?;
            node.failure.is_none().then_some(node)
        });
        match answers.next() {
            Some(earlier) => (Some(earlier), between(earlier, after)),
            None => (None, self.since_last()),
        }
    }

    /// Returns the earliest count of a topic's messages at a node, and the time from this answer to the node's answer in
    /// `after`.
    pub(super) fn earliest_count(
        &self,
        topic: &str,
        address: &str,
        after: &Round,
    ) -> Option<(i64, Duration)> {
        let later = after.nodes.get(address)?;
        self.rounds.iter().find_map(|round| {
            let count = round.topics.get(topic)?.get(address)?.message_count;
            let earlier = round.nodes.get(address)?;
            Some((count, between(earlier, later)))
        })
    }

    fn since(&self, round: &Round) -> Duration {
        duration_of(self.now.saturating_sub(round.now.steady_millis))
    }
}

/// Returns the time between two answers of a node. The answers of other nodes may come seconds earlier or later.
fn between(before: &NodeRound, after: &NodeRound) -> Duration {
    let later = after.answered.steady_millis;
    duration_of(later.saturating_sub(before.answered.steady_millis))
}

fn duration_of(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}
