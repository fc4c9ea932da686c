//! Publishes to topics of other shards, and dead letters to any topic: one batch per destination and turn, answered by
//! the owner.
//!
//! ```text
//!   bytes:  [topic][i32 size][body] [topic][i32 size][body][i32 size][body] ...
//!   entries: one per command, with the lengths
//! ```

use crate::client::output::Token;
use crate::ids::{ChannelId, ClientId, ShardId, TopicKey};
use crate::output::Refusal;
use engine_dedup::Publication;
use wire::id::Seq;
use wire::name::TopicName;
use wire::origin::Origin;

/// The origin of a message that is on its way to the shard of its topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    /// A publish of a client, and the answer that the client was promised.
    Client(ClientId, Token),
    /// A message of a channel that has reached its attempts. In the answer, `stored` is the message's seq in the
    /// dead-letter topic.
    Channel {
        topic: TopicKey,
        channel: ChannelId,
        seq: Seq,
        stored: Seq,
    },
}

/// One publish on its way to the shard of its topic, or the creation of a topic (`sender` is `None`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForwardEntry {
    pub(crate) sender: Option<Sender>,
    /// True if the answer should not wait for --sync-timeout. Counts for dead letters only.
    pub(crate) wants_sync: bool,
    pub(crate) topic_bytes: u8,
    pub(crate) count: u32,
    pub(crate) body_bytes: u64,
    pub(crate) defer_ms: u32,
    pub(crate) origin: Option<Origin>,
    pub(crate) packed_bytes: usize,
}

/// The publishes of one shard to the topics of another shard, in one turn.
#[derive(Debug)]
pub struct ForwardBatch {
    pub(crate) from: ShardId,
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: Vec<ForwardEntry>,
}

/// The answer to one forwarded publish.
#[derive(Debug, Clone)]
pub struct ForwardReply {
    pub(crate) id: ForwardId,
    pub(crate) result: Result<(), Refusal>,
}

/// A forwarded publish that waits at its topic, for room or for the topic's start.
#[derive(Debug)]
pub(crate) struct WaitingPublish {
    pub(crate) id: ForwardId,
    pub(crate) entry: ForwardEntry,
    pub(crate) packed: Vec<u8>,
}

/// Identifies a forwarded publish: the shard it came from, and its sender there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForwardId {
    pub(crate) from: ShardId,
    pub(crate) sender: Sender,
    pub(crate) bytes: usize,
}

/// The mail of a shard to all shards, itself included: publishes, and answers to publishes.
#[derive(Debug)]
pub(crate) struct OutgoingMail {
    from: ShardId,
    batches: Vec<ForwardBatch>,
    replies: Vec<Vec<ForwardReply>>,
}

impl OutgoingMail {
    pub(crate) fn new(from: ShardId, shards: u32) -> OutgoingMail {
        OutgoingMail {
            from,
            batches: (0..shards).map(|_| ForwardBatch::new(from)).collect(),
            replies: (0..shards).map(|_| Vec::new()).collect(),
        }
    }

    /// The batch of publishes of this turn to topics of a shard.
    pub(crate) fn to(&mut self, shard: ShardId) -> &mut ForwardBatch {
        &mut self.batches[shard.0 as usize]
    }

    /// Adds the answer to a publish.
    pub(crate) fn reply(&mut self, id: ForwardId, result: Result<(), Refusal>) {
        self.replies[id.from.0 as usize].push(ForwardReply { id, result });
    }

    /// Takes the batch to a shard. `None`: there is nothing to send.
    pub(crate) fn take_batch(&mut self, to: ShardId) -> Option<ForwardBatch> {
        let empty = ForwardBatch::new(self.from);
        let batch = self.to(to);
        (!batch.is_empty()).then(|| std::mem::replace(batch, empty))
    }

    /// Takes the answers to publishes of a shard. `None`: there are none.
    pub(crate) fn take_replies(&mut self, to: ShardId) -> Option<Vec<ForwardReply>> {
        let replies = &mut self.replies[to.0 as usize];
        (!replies.is_empty()).then(|| std::mem::take(replies))
    }
}

impl ForwardEntry {
    /// `None`: the creation of a topic has no answer.
    pub(crate) fn forward_id(&self, from: ShardId) -> Option<ForwardId> {
        Some(ForwardId {
            from,
            sender: self.sender?,
            bytes: self.packed_bytes,
        })
    }
}

impl ForwardBatch {
    pub(crate) fn new(from: ShardId) -> ForwardBatch {
        ForwardBatch {
            from,
            bytes: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// True when there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the size of the names and messages.
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// Adds one command; returns the bytes it takes.
    pub(crate) fn push<'b>(
        &mut self,
        sender: Sender,
        topic: TopicName<'_>,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
    ) -> usize {
        let entry = self.add(Some(sender), topic, publication);
        entry.packed_bytes
    }

    /// Adds a message for a dead-letter topic.
    pub(crate) fn push_dead_letter(
        &mut self,
        sender: Sender,
        topic: TopicName<'_>,
        body: &[u8],
        wants_sync: bool,
    ) {
        let entry = self.add(Some(sender), topic, &Publication::one(body, 0, None));
        entry.wants_sync = wants_sync;
    }

    /// Adds a topic that is to be created though nothing was published: MPUB with a bad body does
    /// that.
    pub(crate) fn push_creation(&mut self, topic: TopicName<'_>) {
        let nothing = Publication {
            bodies: std::iter::empty(),
            count: 0,
            body_bytes: 0,
            defer_ms: 0,
            origin: None,
        };
        self.add(None, topic, &nothing);
    }

    fn add<'b>(
        &mut self,
        sender: Option<Sender>,
        topic: TopicName<'_>,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
    ) -> &mut ForwardEntry {
        let name = topic.as_bytes();
        self.bytes.extend_from_slice(name);
        let before = self.bytes.len();
        for body in publication.bodies.clone() {
            self.bytes
                .extend_from_slice(&(body.len() as u32).to_be_bytes());
            self.bytes.extend_from_slice(body);
        }
        self.entries.push_mut(ForwardEntry {
            sender,
            wants_sync: false,
            topic_bytes: name.len() as u8,
            count: publication.count,
            body_bytes: publication.body_bytes,
            defer_ms: publication.defer_ms,
            origin: publication.origin,
            packed_bytes: self.bytes.len() - before,
        })
    }
}
