//! The names of a broker's things, as numbers.

/// A shard of this process, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u32);

/// A task of the shell that waits for the broker, for example an HTTP request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

slotmap::new_key_type! {
    /// A connection of this shard. No later connection of the shard has the same id.
    pub struct ClientId;

    /// A topic of this shard. No later topic of the shard has the same key.
    pub struct TopicKey;

    /// A channel of a topic. No later channel of the topic has the same id.
    pub(crate) struct ChannelId;
}

/// The id of the connection with this number, for tests.
#[cfg(test)]
pub(crate) fn client_id(number: u64) -> ClientId {
    slotmap::KeyData::from_ffi(1 << 32 | number).into()
}
