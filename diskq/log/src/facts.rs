//! [`TopicFacts`]: what is recorded of a topic besides its messages.

/// A durable topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicFacts {
    /// The topic's name.
    pub name: String,
    /// True if the topic is paused.
    pub paused: bool,
    /// The topic's durable channels.
    pub channels: Vec<ChannelFacts>,
}

/// A durable channel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelFacts {
    /// The channel's name.
    pub name: String,
    /// True if the channel is paused.
    pub paused: bool,
}
