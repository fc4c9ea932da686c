//! The names of a broker's things, as numbers.

use crate::slab::Key;

/// A shard of this process, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u32);

/// A channel of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u32);

/// A task of the shell that waits for the broker, for example an HTTP request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// A connection of this shard.
pub type ClientId = Key;

/// A topic of this shard.
pub type TopicKey = Key;
