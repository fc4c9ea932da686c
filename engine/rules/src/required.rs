//! [`Required`]: the topics and channels that must always exist.

use std::collections::{BTreeMap, BTreeSet};
use wire::name::{ChannelName, TopicName};

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
