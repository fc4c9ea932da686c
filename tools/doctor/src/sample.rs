//! [`ChannelSample`]: the figures that the doctor looks at.

use std::collections::BTreeMap;
use std::time::Duration;

use nsq_http::{ChannelStats, TopicStats};

/// One channel at one moment, on every node that has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChannelSample {
    /// The nodes by `host:port`, each with its figures.
    pub nodes: BTreeMap<String, NodeSample>,
    /// A channel whose dead letters go to the topic of this channel, as `topic/channel`, if there is one.
    pub dead_letters_of: Option<String>,
}

/// One channel at one moment on one node. Counts begin with the process of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSample {
    /// The messages that wait in the topic, for all channels.
    pub topic_depth: i64,
    /// The pause of the topic, which then gives no messages to its channels.
    pub topic_pause: Option<Pause>,
    /// The pause of the channel, which then delivers no messages.
    pub pause: Option<Pause>,
    /// Messages that wait for a consumer.
    pub depth: i64,
    /// Messages that consumers have and have not finished.
    pub in_flight: i64,
    /// Messages that are not due yet.
    pub deferred: i64,
    /// Messages that the channel has got from its topic.
    pub message_count: i64,
    /// Messages that consumers gave back.
    pub requeue_count: i64,
    /// Messages whose time in flight ran out.
    pub timeout_count: i64,
    /// The age of the oldest message that is not finished, in milliseconds, if the node tells it.
    pub oldest_ms: Option<i64>,
    /// The deliveries of this message that have failed, as far as the node tells them.
    pub oldest_failed: i64,
    /// RDY of each connection of a consumer.
    pub ready: Vec<i64>,
    /// The time since the start of the node's process, if it is known.
    pub uptime: Option<Duration>,
}

/// The terms of a pause on one node. nsqd of NSQ tells none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// The time until the pause ends by itself. `None` is a pause without an end.
    pub left: Option<Duration>,
    /// The name of the one who has paused, or an empty text.
    pub by: String,
    /// The reason, or an empty text.
    pub note: String,
}

/// The seconds by which a node's clock may be ahead of ours, if its start is to count.
const AHEAD_MAX: i64 = 5;

/// Returns the time since the start of a process. Times are in seconds since 1970. `None` for a node that does not tell its start,
/// or whose clock is ahead by more than 5 s.
pub fn uptime(start_time: i64, now: i64) -> Option<Duration> {
    let seconds = u64::try_from(now.saturating_sub(start_time)).unwrap_or(0);
    let is_told = start_time > 0 && start_time <= now.saturating_add(AHEAD_MAX);
    is_told.then(|| Duration::from_secs(seconds))
}

impl Pause {
    /// Returns the terms of a pause that ends at `until_ms`. Times are in milliseconds since 1970.
    pub fn until(until_ms: Option<i64>, now_ms: i64, by: &str, note: &str) -> Pause {
        let left = |until: i64| u64::try_from(until.saturating_sub(now_ms)).unwrap_or(0);
        Pause {
            left: until_ms.map(|until| Duration::from_millis(left(until))),
            by: by.to_owned(),
            note: note.to_owned(),
        }
    }

    /// Returns the terms of the pause of a topic, if it is paused. `now_ms` is the present in milliseconds since 1970.
    pub fn of_topic(topic: &TopicStats, now_ms: i64) -> Option<Pause> {
        let (by, note) = (&topic.paused_by, &topic.pause_note);
        let pause = || Pause::until(topic.pause_until_ms, now_ms, by, note);
        topic.paused.then(pause)
    }

    /// Returns the terms of the pause of a channel, if it is paused.
    fn of_channel(channel: &ChannelStats, now_ms: i64) -> Option<Pause> {
        let (by, note) = (&channel.paused_by, &channel.pause_note);
        let pause = || Pause::until(channel.pause_until_ms, now_ms, by, note);
        channel.paused.then(pause)
    }

    /// Returns the time until the pause ends. A pause without an end lasts longest.
    pub(crate) fn lasts(&self) -> Duration {
        self.left.unwrap_or(Duration::MAX)
    }
}

/// The time in which the consumers find a node that has come back: they ask nsqlookupd every 60 seconds by default, a little
/// later each.
const FOUND_AFTER: Duration = Duration::from_secs(90);

impl NodeSample {
    /// Returns a channel of a node's `/stats`, without the uptime. `now_ms` is the present in milliseconds since 1970.
    pub fn of(topic: &TopicStats, channel: &ChannelStats, now_ms: i64) -> NodeSample {
        let clients = channel.clients.iter().flatten();
        NodeSample {
            topic_depth: topic.depth,
            topic_pause: Pause::of_topic(topic, now_ms),
            pause: Pause::of_channel(channel, now_ms),
            depth: channel.depth,
            in_flight: channel.in_flight_count,
            deferred: channel.deferred_count,
            message_count: channel.message_count,
            requeue_count: channel.requeue_count,
            timeout_count: channel.timeout_count,
            oldest_ms: channel.oldest_unfinished_ms,
            oldest_failed: channel.oldest_failed_attempts,
            ready: clients.map(|client| client.ready_count).collect(),
            uptime: None,
        }
    }

    /// Returns true if consumers that are connected to other nodes may not have found this one yet.
    pub fn may_be_unknown(&self) -> bool {
        self.ready.is_empty() && self.uptime.is_some_and(|uptime| uptime < FOUND_AFTER)
    }

    /// Returns true if the node gives the consumers nothing new, because the channel or its topic is paused.
    pub(crate) fn is_stopped(&self) -> bool {
        self.pause.is_some() || self.topic_pause.is_some()
    }
}

impl ChannelSample {
    pub(crate) fn ready(&self) -> impl Iterator<Item = i64> {
        self.nodes.values().flat_map(|node| &node.ready).copied()
    }

    pub(crate) fn has_backlog_at(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|node| node.depth > 0)
    }

    /// Returns the number of messages that wait or are in flight.
    pub(crate) fn taken_or_waiting(&self) -> i64 {
        let nodes = self.nodes.values();
        sum(nodes.flat_map(|node| [node.depth, node.in_flight]))
    }

    /// Returns true if a node is stopped.
    pub(crate) fn is_stopped_at(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(NodeSample::is_stopped)
    }

    /// Returns true if the consumers of the channel may not have found all nodes yet.
    pub fn awaits_consumers(&self) -> bool {
        let has_consumers = self.nodes.values().any(|node| !node.ready.is_empty());
        has_consumers && self.nodes.values().any(NodeSample::may_be_unknown)
    }

    /// Returns true if a node is there, and consumers may not have found it yet.
    pub(crate) fn may_be_unknown(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(NodeSample::may_be_unknown)
    }

    /// Returns the sample with some of the nodes.
    pub(crate) fn only(&self, wanted: impl Fn(&str) -> bool) -> ChannelSample {
        let nodes = self.nodes.iter().filter(|(name, _)| wanted(name));
        ChannelSample {
            nodes: nodes
                .map(|(name, node)| (name.clone(), node.clone()))
                .collect(),
            dead_letters_of: self.dead_letters_of.clone(),
        }
    }
}

/// Returns the sum of the figures of nodes. A node may answer with any number, so a sum beyond the range stays at
/// its end.
pub fn sum(figures: impl IntoIterator<Item = i64>) -> i64 {
    figures.into_iter().fold(0, i64::saturating_add)
}
