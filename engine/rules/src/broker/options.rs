//! [`BrokerOptions`]: the settings of a broker.

use crate::channel::dead_letters::DEAD_LETTER_BYTES;
use crate::client::consumer::Topology;
use crate::ids::ShardId;
use crate::topic::TopicOptions;
use crate::work::TURN_ENTRIES;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::identify::ServerSettings;
use wire::limits::Limits;
use wire::name::{ChannelName, TopicName};

/// The settings of a broker. They do not change, except for `asks_for_channels`.
#[derive(Debug, Clone)]
pub struct BrokerOptions {
    /// The shard of this broker.
    pub shard: ShardId,
    /// The number of shards.
    pub shards: u32,
    /// The largest sizes of messages and commands.
    pub limits: Limits,
    /// The broker's side of the negotiation at IDENTIFY.
    pub server: ServerSettings,
    /// The settings of every topic.
    pub topic: TopicOptions,
    /// Bytes of sealed segments that stay in memory, of all topics together; each has an equal part,
    /// 4 MiB at least, and no more than its own bound.
    pub resident_bytes: u64,
    /// Entries of long lists that a turn goes through: [`TURN_ENTRIES`](crate::TURN_ENTRIES).
    pub turn_entries: usize,
    /// Bytes that the dead letters of all channels may take on their way to their topics, about:
    /// [`DEAD_LETTER_BYTES`](crate::DEAD_LETTER_BYTES).
    pub dead_letter_bytes: usize,
    /// --max-channel-consumers; 0 for no limit.
    pub channel_consumers_max: u64,
    /// True if a new topic asks for channels before it starts; see [`Broker::set_asks_for_channels`].
    pub asks_for_channels: bool,
    /// The topics and channels that always exist, of all shards.
    pub required: Arc<Required>,
    /// The place of this node, if near consumers are to come first.
    pub topology: Option<Topology>,
    /// Seed of the sampling generator.
    pub seed: u64,
}

/// One shard without rules, for tests and measurements. nsqd sets every field.
impl Default for BrokerOptions {
    fn default() -> BrokerOptions {
        BrokerOptions {
            shard: ShardId(0),
            shards: 1,
            limits: Limits::default(),
            server: ServerSettings::default(),
            topic: TopicOptions::default(),
            resident_bytes: 1 << 20,
            turn_entries: TURN_ENTRIES,
            dead_letter_bytes: DEAD_LETTER_BYTES,
            channel_consumers_max: 0,
            asks_for_channels: false,
            required: Arc::default(),
            topology: None,
            seed: 1,
        }
    }
}

/// Topics and channels that always exist. They are made at the start, and again after their deletion. None is
/// ephemeral.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Required {
    topics: BTreeMap<Box<str>, BTreeSet<Box<str>>>,
}

impl Required {
    /// Adds a topic, and one of its channels.
    ///
    /// # Errors
    /// A name is ephemeral. The error is the name.
    pub fn add(
        &mut self,
        topic: TopicName<'_>,
        channel: Option<ChannelName<'_>>,
    ) -> Result<(), String> {
        if topic.is_ephemeral() {
            return Err(topic.as_str().to_owned());
        }
        let channels = self.topics.entry(topic.as_str().into()).or_default();
        if let Some(channel) = channel {
            if channel.is_ephemeral() {
                return Err(channel.as_str().to_owned());
            }
            channels.insert(channel.as_str().into());
        }
        Ok(())
    }

    pub(crate) fn topics(&self) -> impl Iterator<Item = TopicName<'_>> {
        let names = self.topics.keys();
        names.map(|name| TopicName::new(name.as_bytes()).expect("it was added as a name"))
    }

    /// The channels of a topic. `None`: the topic is not required.
    pub(crate) fn channels(&self, topic: &str) -> Option<impl Iterator<Item = ChannelName<'_>>> {
        let names = self.topics.get(topic)?.iter();
        Some(names.map(|name| ChannelName::new(name.as_bytes()).expect("it was added as a name")))
    }

    pub(crate) fn has_channel(&self, topic: &str, channel: &str) -> bool {
        self.topics
            .get(topic)
            .is_some_and(|channels| channels.contains(channel))
    }
}
