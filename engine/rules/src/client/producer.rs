//! [`Producer`]: what a connection has published, and where to.

use crate::ids::{ShardId, TopicKey};
use std::collections::BTreeMap;
use wire::name::TopicName;

/// The publishes of a connection.
#[derive(Debug, Default)]
pub(crate) struct Producer {
    /// Messages published, by the bytes of the topic's name.
    pub(crate) pub_counts: BTreeMap<Box<[u8]>, u64>,
    /// The topic of the last publish. The broker compares the topic's name before it uses the hint.
    pub(crate) topic_hint: Option<TopicKey>,
    /// The other shard that the last publishes went to.
    remote_shard: Option<ShardId>,
    /// The number of these publishes in a row.
    remote_streak: u32,
    /// Bytes on their way to other shards.
    pub(crate) forwarded_bytes: usize,
}

impl Producer {
    /// Forgets what holds for one shard only.
    pub(super) fn change_shard(&mut self) {
        self.topic_hint = None;
        self.remote_streak = 0;
    }

    /// Counts `messages` published to `topic`.
    pub(crate) fn count_published(&mut self, topic: TopicName<'_>, messages: u64) {
        match self.pub_counts.get_mut(topic.as_bytes()) {
            Some(count) => *count += messages,
            None => {
                self.pub_counts.insert(topic.as_bytes().into(), messages);
            }
        }
    }

    /// Makes the topic of a publish the hint, and ends the streak of remote publishes: the topic is on this shard.
    #[inline]
    pub(crate) fn found_topic(&mut self, key: TopicKey) {
        self.topic_hint = Some(key);
        self.remote_streak = 0;
    }

    /// Counts a publish to a topic of shard `to`. Returns how many publishes in a row went to this shard.
    pub(crate) fn count_remote(&mut self, to: ShardId) -> u32 {
        if self.remote_shard.replace(to) != Some(to) {
            self.remote_streak = 0;
        }
        self.remote_streak += 1;
        self.remote_streak
    }
}
