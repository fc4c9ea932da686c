//! Publishes to topics of other shards, on the shard of the client and on the shard of the topic.

use super::output::Output;
use super::{Broker, Found};
use crate::client::Blocked;
use crate::forward::{ForwardBatch, ForwardEntry, ForwardId, ForwardReply, WaitingPublish};
use crate::ids::{ShardId, TopicKey};
use crate::now::Now;
use crate::publication::Publication;
use crate::refusal::Refusal;
use crate::topic::{Published, Waiter};
use diskq_log::AppendError;
use wire::command::Batch;
use wire::name::TopicName;

impl Broker {
    /// Takes the batch of publishes of this turn to topics of shard `to`. `None` if there are none.
    pub fn take_forwards(&mut self, to: ShardId) -> Option<ForwardBatch> {
        let batch = &mut self.forwards[to.0 as usize];
        let empty = ForwardBatch::new(self.options.shard);
        (!batch.is_empty()).then(|| std::mem::replace(batch, empty))
    }

    /// Takes the answers to publishes that shard `to` forwarded here. `None` if there are none.
    pub fn take_forward_replies(&mut self, to: ShardId) -> Option<Vec<ForwardReply>> {
        let replies = &mut self.forward_replies[to.0 as usize];
        (!replies.is_empty()).then(|| std::mem::take(replies))
    }

    /// Publishes the batch of another shard.
    pub fn handle_forwards(&mut self, now: Now, batch: &ForwardBatch, out: &mut Vec<Output>) {
        let mut at = 0;
        for entry in &batch.entries {
            let name = &batch.bytes[at..at + usize::from(entry.topic_bytes)];
            at += name.len();
            let packed = &batch.bytes[at..at + entry.packed_bytes];
            at += packed.len();
            if self.is_draining {
                if entry.verb.is_some() {
                    self.reply_forward(entry.forward_id(batch.from), Err(Refusal::Draining));
                }
                continue;
            }
            let topic = TopicName::new(name).expect("the sender decoded it");
            let found = match self.topic_key(topic, out) {
                Ok(found) => found,
                Err(cause) => {
                    if entry.verb.is_some() {
                        self.reply_forward(
                            entry.forward_id(batch.from),
                            Err(Refusal::SetAside(cause)),
                        );
                    }
                    continue;
                }
            };
            let key = found.key();
            if entry.verb.is_none() {
                continue;
            }
            let queue_is_free = self.topics[key].waiting_publishes.is_empty();
            let may_publish = queue_is_free && found == Found::Ready(key);
            // Behind a publish that waits, others wait too: a producer's order stays.
            if !may_publish || !self.publish_forwarded(now, key, batch.from, entry, packed) {
                let waiting = WaitingPublish {
                    from: batch.from,
                    entry: *entry,
                    packed: packed.to_vec(),
                };
                self.topics[key].waiting_publishes.push_back(waiting);
            }
            self.pump_later(key);
        }
    }

    /// Takes the answers to publishes that this shard forwarded.
    pub fn handle_forward_replies(&mut self, replies: Vec<ForwardReply>, out: &mut Vec<Output>) {
        for reply in replies {
            let id = reply.id;
            self.resolve(id.client, id.token, reply.result.as_ref().copied(), out);
            if let Some(client) = self.clients.get_mut(id.client) {
                client.producer.forwarded_bytes -= id.bytes;
                self.resume(id.client, Blocked::Forwards, out);
            }
        }
    }

    /// Tries the forwarded publishes again that wait at a topic.
    pub(super) fn retry_forwarded(&mut self, now: Now, key: TopicKey) {
        if !self.topics[key].started {
            return;
        }
        while let Some(waiting) = self.topics[key].waiting_publishes.pop_front() {
            if !self.publish_forwarded(now, key, waiting.from, &waiting.entry, &waiting.packed) {
                self.topics[key].waiting_publishes.push_front(waiting);
                return;
            }
        }
    }

    /// Refuses the forwarded publishes that wait at a topic.
    pub(super) fn refuse_forwarded(&mut self, key: TopicKey, refusal: &Refusal) {
        for waiting in std::mem::take(&mut self.topics[key].waiting_publishes) {
            let id = waiting.entry.forward_id(waiting.from);
            self.reply_forward(id, Err(refusal.clone()));
        }
    }

    pub(super) fn reply_forward(&mut self, id: ForwardId, result: Result<(), Refusal>) {
        self.forward_replies[id.from.0 as usize].push(ForwardReply { id, result });
    }

    /// Returns false when there is no room yet.
    fn publish_forwarded(
        &mut self,
        now: Now,
        key: TopicKey,
        from: ShardId,
        entry: &ForwardEntry,
        packed: &[u8],
    ) -> bool {
        let topic = &mut self.topics[key];
        let batch = Batch::from_packed(entry.count, packed).expect("the sender packed it");
        let publication = Publication {
            bodies: batch.iter(),
            count: entry.count,
            body_bytes: entry.body_bytes,
            defer_ms: entry.defer_ms,
        };
        let id = entry.forward_id(from);
        let result = match topic.publish(now, &publication) {
            Ok(Published::Done) => Ok(()),
            Ok(Published::AfterSync(upto)) => {
                topic.waiters.add_for_sync(upto, Waiter::Forward(id));
                return true;
            }
            Err(AppendError::WouldBlock) => return false,
            Err(refused) => Err(Refusal::Log(refused)),
        };
        self.reply_forward(id, result);
        true
    }
}
