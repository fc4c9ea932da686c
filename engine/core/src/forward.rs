//! Publishes to topics of other shards: one batch per destination and turn, answered by the owner.
//!
//! ```text
//!   bytes:  [topic][i32 size][body] [topic][i32 size][body][i32 size][body] ...
//!   entries: one per command, with the lengths
//! ```

use crate::client::output::{Token, Verb};
use crate::ids::{ClientId, ShardId};
use crate::publication::Publication;
use crate::refusal::Refusal;
use wire::name::TopicName;

/// One publish command on its way to the shard of its topic, or the creation of a topic (`verb` is `None`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForwardEntry {
    client: ClientId,
    token: Token,
    pub(crate) verb: Option<Verb>,
    pub(crate) topic_bytes: u8,
    pub(crate) count: u32,
    pub(crate) body_bytes: u64,
    pub(crate) defer_ms: u32,
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
    pub(crate) from: ShardId,
    pub(crate) entry: ForwardEntry,
    pub(crate) packed: Vec<u8>,
}

/// Identifies a forwarded publish: the shard it came from, its client, and the answer that the client was promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForwardId {
    pub(crate) from: ShardId,
    pub(crate) client: ClientId,
    pub(crate) token: Token,
    pub(crate) bytes: usize,
}

impl ForwardEntry {
    pub(crate) fn forward_id(&self, from: ShardId) -> ForwardId {
        ForwardId {
            from,
            client: self.client,
            token: self.token,
            bytes: self.packed_bytes,
        }
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

    /// Adds one command; returns the bytes it takes.
    pub(crate) fn push<'b>(
        &mut self,
        client: ClientId,
        token: Token,
        verb: Verb,
        topic: TopicName<'_>,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
    ) -> usize {
        let name = topic.as_bytes();
        self.bytes.extend_from_slice(name);
        let before = self.bytes.len();
        for body in publication.bodies.clone() {
            self.bytes
                .extend_from_slice(&(body.len() as u32).to_be_bytes());
            self.bytes.extend_from_slice(body);
        }
        let packed_bytes = self.bytes.len() - before;
        self.entries.push(ForwardEntry {
            client,
            token,
            verb: Some(verb),
            topic_bytes: name.len() as u8,
            count: publication.count,
            body_bytes: publication.body_bytes,
            defer_ms: publication.defer_ms,
            packed_bytes,
        });
        packed_bytes
    }

    /// Adds a topic that is to be created though nothing was published: MPUB with a bad body does
    /// that.
    pub(crate) fn push_creation(&mut self, topic: TopicName<'_>) {
        let name = topic.as_bytes();
        self.bytes.extend_from_slice(name);
        self.entries.push(ForwardEntry {
            client: ClientId::default(),
            token: Token::NONE,
            verb: None,
            topic_bytes: name.len() as u8,
            count: 0,
            body_bytes: 0,
            defer_ms: 0,
            packed_bytes: 0,
        });
    }
}
