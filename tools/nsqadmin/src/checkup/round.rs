//! [`Round`]: the answers of all servers at one moment, as far as a checkup needs them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nsq_doctor::{ChannelSample, NodeSample, Pause};

use crate::answer;

/// The answers of all servers at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    /// The time, in milliseconds since 1970.
    pub unix_millis: i64,
    /// The channels by topic and channel.
    pub channels: BTreeMap<(String, String), ChannelRound>,
    /// The topics.
    pub topics: BTreeMap<String, TopicRound>,
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
    /// The messages that each connection of a consumer has finished.
    pub finishes: BTreeMap<ConsumerKey, i64>,
}

/// A connection of a consumer of a channel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConsumerKey {
    /// `host:port` of the node.
    pub node: String,
    /// The client's end of the connection.
    pub remote_address: String,
    /// The time of the connection, in seconds since 1970.
    pub connect_ts: i64,
}

/// A topic on all nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicRound {
    /// Messages that wait in the topic itself.
    pub depth: i64,
    /// The number of channels, the largest of all nodes.
    pub channel_count: usize,
    /// The age of the oldest message of `depth` in milliseconds, if a node tells it.
    pub oldest_ms: Option<i64>,
    /// The messages since the start of each node.
    pub messages: BTreeMap<String, i64>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeRound {
    /// The reason why the node did not answer.
    pub failure: Option<String>,
    /// `OK`, or the reason why the node takes no messages.
    pub health: String,
    /// The version of ringq, which is empty for another nsqd. `None` if the node did not tell its build.
    pub ringq_version: Option<String>,
    /// The names of the topics, which are still known after the node has vanished.
    pub topics: Arc<BTreeSet<String>>,
    /// The producers by connection and topic.
    pub producers: BTreeMap<ProducerKey, Producer>,
    /// The shard of each topic, and the messages of the topic since the start.
    pub shards: BTreeMap<String, (u64, i64)>,
    /// The shards' use of their cores, and the disk.
    pub metrics: Option<NodeMetrics>,
    /// About how many bytes the bodies of the messages have that are owed or can be brought back. `None` if the node does not
    /// tell enough.
    pub backlog_bytes: Option<f64>,
}

/// A connection, and a topic to which the connection publishes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProducerKey {
    /// The topic.
    pub topic: String,
    /// The client's end of the connection.
    pub remote_address: String,
    /// The time of the connection, in seconds since 1970.
    pub connect_ts: i64,
}

/// The figures of a [`ProducerKey`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Producer {
    /// The name that the client gave itself.
    pub client_id: String,
    /// The name of the client's machine.
    pub hostname: String,
    /// The client library.
    pub user_agent: String,
    /// The messages since the connection.
    pub count: i64,
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

/// An nsqlookupd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupdRound {
    /// The nodes that it knows, by `host:port`.
    Knows(BTreeSet<String>),
    /// The reason why it did not answer.
    Failed(String),
}

impl LookupdRound {
    /// Returns the nodes that the nsqlookupd knows, or `None` if it did not answer.
    pub fn nodes(&self) -> Option<&BTreeSet<String>> {
        match self {
            LookupdRound::Knows(nodes) => Some(nodes),
            LookupdRound::Failed(_) => None,
        }
    }

    /// Returns true if the nsqlookupd answered.
    pub fn is_answer(&self) -> bool {
        self.nodes().is_some()
    }
}

impl Round {
    /// Adds the answer of a node.
    pub fn add_node(&mut self, address: &str, stats: &answer::Stats, metrics: Option<NodeMetrics>) {
        let topics = stats.topics.iter().map(|topic| topic.topic_name.clone());
        let mut node = NodeRound {
            health: stats.health.clone(),
            topics: Arc::new(topics.collect()),
            backlog_bytes: backlog_bytes(&stats.topics),
            metrics,
            ..NodeRound::default()
        };
        for topic in &stats.topics {
            if let Some(shard) = topic.shard {
                let name = topic.topic_name.clone();
                node.shards.insert(name, (shard, topic.message_count));
            }
            self.add_topic(address, topic);
        }
        for client in &stats.producers {
            for published in &client.pub_counts {
                let key = ProducerKey {
                    topic: published.topic.clone(),
                    remote_address: client.remote_address.clone(),
                    connect_ts: client.connect_ts,
                };
                let producer = Producer {
                    client_id: client.client_id.clone(),
                    hostname: client.hostname.clone(),
                    user_agent: client.user_agent.clone(),
                    count: published.count,
                };
                node.producers.insert(key, producer);
            }
        }
        self.nodes.insert(address.to_owned(), node);
    }

    /// Adds the version of ringq to a node that has told its build.
    pub fn set_ringq_version(&mut self, address: &str, version: String) {
        if let Some(node) = self.nodes.get_mut(address) {
            node.ringq_version = Some(version);
        }
    }

    /// Adds a node that did not answer.
    pub fn add_failure(&mut self, address: &str, why: String) {
        let node = NodeRound {
            failure: Some(why),
            ..NodeRound::default()
        };
        self.nodes.insert(address.to_owned(), node);
    }

    /// Returns true if all servers answered.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let mut nodes = self.nodes.values();
        let mut lookupds = self.lookupds.values();
        nodes.all(|node| node.failure.is_none()) && lookupds.all(LookupdRound::is_answer)
    }

    fn add_topic(&mut self, address: &str, topic: &answer::Topic) {
        let round = self.topics.entry(topic.topic_name.clone()).or_default();
        round.depth = round.depth.saturating_add(topic.depth);
        round.channel_count = round.channel_count.max(topic.channels.len());
        round.oldest_ms = round.oldest_ms.max(topic.oldest_unfinished_ms);
        let now = self.unix_millis;
        let topic_pause = topic.paused.then(|| {
            let (by, note) = (&topic.paused_by, &topic.pause_note);
            Pause::until(topic.pause_until_ms, now, by, note)
        });
        let messages = topic.message_count;
        round.messages.insert(address.to_owned(), messages);
        for channel in &topic.channels {
            let clients = channel.clients.iter().flatten();
            let node = NodeSample {
                topic_depth: topic.depth,
                topic_pause: topic_pause.clone(),
                pause: channel.paused.then(|| {
                    let (by, note) = (&channel.paused_by, &channel.pause_note);
                    Pause::until(channel.pause_until_ms, now, by, note)
                }),
                depth: channel.depth,
                in_flight: channel.in_flight_count,
                deferred: channel.deferred_count,
                message_count: channel.message_count,
                requeue_count: channel.requeue_count,
                timeout_count: channel.timeout_count,
                ready: clients.map(|client| client.ready_count).collect(),
            };
            let name = (topic.topic_name.clone(), channel.channel_name.clone());
            let round = self.channels.entry(name).or_default();
            round.sample.nodes.insert(address.to_owned(), node);
            round.oldest_ms = round.oldest_ms.max(channel.oldest_unfinished_ms);
            for client in channel.clients.iter().flatten() {
                let key = ConsumerKey {
                    node: address.to_owned(),
                    remote_address: client.remote_address.clone(),
                    connect_ts: client.connect_ts,
                };
                round.finishes.insert(key, client.finish_count);
            }
        }
    }
}

impl ChannelRound {
    /// Returns the number of messages that wait.
    pub(super) fn depth(&self) -> i64 {
        let nodes = self.sample.nodes.values();
        nodes.fold(0, |sum, node| sum.saturating_add(node.depth))
    }

    /// Returns the number of messages that the present consumers have finished since an earlier round. A consumer
    /// that has come since then has finished all its messages since then.
    pub(super) fn finished_since(&self, before: &ChannelRound) -> i64 {
        let finishes = self.finishes.iter();
        let finished = finishes.map(|(consumer, count)| {
            let known = before.finishes.get(consumer).copied().unwrap_or(0);
            count.saturating_sub(known).max(0)
        });
        finished.fold(0, i64::saturating_add)
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
                "nsqd_shard_cpu_seconds_total" => {
                    metrics
                        .shards
                        .entry(shard_of(labels)?)
                        .or_default()
                        .cpu_seconds = value;
                }
                "nsqd_shard_connections" => {
                    metrics
                        .shards
                        .entry(shard_of(labels)?)
                        .or_default()
                        .connections = value;
                }
                _ => {}
            }
        }
        (!metrics.shards.is_empty()).then_some(metrics)
    }
}

/// Returns about how many bytes the bodies of messages have that are owed or can be brought back, if each is as long as
/// the mean of its topic. The channels of a topic share its messages, so the channel with the most of them counts. A node
/// that was started anew does not know how long its older messages are.
#[allow(clippy::cast_precision_loss)] // An estimate needs no more.
fn backlog_bytes(topics: &[answer::Topic]) -> Option<f64> {
    let bytes = topics.iter().map(|topic| {
        let of_channel = |channel: &answer::Channel| {
            nsq_doctor::sum([
                channel.depth,
                channel.in_flight_count,
                channel.deferred_count,
                channel.undo_message_count,
            ])
        };
        let longest = topic.channels.iter().map(of_channel).max().unwrap_or(0);
        let waiting = nsq_doctor::sum([topic.depth, topic.undo_message_count, longest]);
        match (waiting, topic.message_count) {
            (0, _) => Some(0.0),
            (_, 0) => None,
            (waiting, count) => Some(topic.message_bytes as f64 / count as f64 * waiting as f64),
        }
    });
    bytes.sum()
}

fn shard_of(labels: &str) -> Option<u64> {
    let (_, rest) = labels.split_once("shard=\"")?;
    rest.split_once('"')?.0.parse().ok()
}
