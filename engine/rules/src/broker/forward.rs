//! Publishes to topics of other shards, on the shard of the client and on the shard of the topic.

use super::output::Output;
use super::{Broker, Found};
use crate::client::Blocked;
use crate::forward::{ForwardBatch, ForwardEntry, ForwardId, ForwardReply, Sender, WaitingPublish};
use crate::ids::{ShardId, TopicKey};
use crate::now::Now;
use crate::publication::Publication;
use crate::refusal::Refusal;
use crate::topic::{Published, Waiter};
use diskq_log::{AppendError, plant};
use wire::command::Batch;
use wire::id::Seq;
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

    /// Publishes the batch of another shard. A shard that stops drops the batch, and nobody gets an answer.
    pub fn handle_forwards(&mut self, now: Now, batch: &ForwardBatch, out: &mut Vec<Output>) {
        self.call(now, out, |broker| broker.publish_batch(batch))
    }

    pub(super) fn publish_batch(&mut self, batch: &ForwardBatch) {
        let is_stopping = self.is_stopping();
        plant!(StopTakesForwards, let is_stopping = false);
        if is_stopping {
            return;
        }
        let mut at = 0;
        for entry in &batch.entries {
            let name = &batch.bytes[at..at + usize::from(entry.topic_bytes)];
            at += name.len();
            let packed = &batch.bytes[at..at + entry.packed_bytes];
            at += packed.len();
            // A dead letter is no new message: it only changes its topic.
            let is_dead_letter = matches!(entry.sender, Some(Sender::Channel { .. }));
            if self.is_draining && !is_dead_letter {
                if let Some(id) = entry.forward_id(batch.from) {
                    self.reply_forward(id, Err(Refusal::Draining));
                }
                continue;
            }
            let topic = TopicName::new(name).expect("the sender decoded it");
            let found = match self.topic_key(topic) {
                Ok(found) => found,
                Err(cause) => {
                    if let Some(id) = entry.forward_id(batch.from) {
                        self.reply_forward(id, Err(Refusal::SetAside(cause)));
                    }
                    continue;
                }
            };
            let key = found.key();
            let Some(id) = entry.forward_id(batch.from) else {
                continue;
            };
            let queue_is_free = self.topics[key].waiting_publishes.is_empty();
            let may_publish = queue_is_free && found == Found::Ready(key);
            // Behind a publish that waits, others wait too: a producer's order stays.
            if !may_publish || !self.publish_forwarded(key, id, entry, packed) {
                let waiting = WaitingPublish {
                    id,
                    entry: *entry,
                    packed: packed.to_vec(),
                };
                self.topics[key].waiting_publishes.push_back(waiting);
            }
            if is_dead_letter {
                // In a drain, the topic may have been withdrawn, because it owed nothing.
                self.announce_again(key);
            }
            self.pump_later(key);
        }
    }

    /// Takes the answers to publishes that this shard forwarded.
    pub fn handle_forward_replies(
        &mut self,
        now: Now,
        replies: Vec<ForwardReply>,
        out: &mut Vec<Output>,
    ) {
        self.call(now, out, |broker| broker.take_replies(replies))
    }

    pub(super) fn take_replies(&mut self, replies: Vec<ForwardReply>) {
        for ForwardReply { id, result } in replies {
            let result = result.as_ref().copied();
            match id.sender {
                Sender::Client(client, token) => {
                    self.resolve(client, token, result);
                    if let Some(sender) = self.clients.get_mut(client) {
                        sender.producer.forwarded_bytes -= id.bytes;
                        self.resume(client, Blocked::Forwards);
                    }
                }
                Sender::Channel {
                    topic,
                    channel,
                    seq,
                    stored,
                } => {
                    // The packed form has the size of the body in front.
                    self.letter_arrived(id.bytes - size_of::<u32>());
                    let letter = (topic, channel, seq);
                    self.dead_letter_answered(letter, result.map(|()| stored));
                }
            }
        }
    }

    /// Tries the forwarded publishes again that wait at a topic. A shard that stops tries none.
    pub(super) fn retry_forwarded(&mut self, key: TopicKey) {
        if self.is_stopping() || !self.topics[key].started {
            return;
        }
        while let Some(waiting) = self.topics[key].waiting_publishes.pop_front() {
            if !self.publish_forwarded(key, waiting.id, &waiting.entry, &waiting.packed) {
                self.topics[key].waiting_publishes.push_front(waiting);
                return;
            }
        }
    }

    /// Refuses the publishes of a drain that were forwarded and wait at a topic. Dead letters stay: they are no new
    /// messages.
    pub(super) fn refuse_in_drain(&mut self, key: TopicKey) {
        let waiting = std::mem::take(&mut self.topics[key].waiting_publishes);
        for waiting in waiting {
            match waiting.id.sender {
                Sender::Channel { .. } => self.topics[key].waiting_publishes.push_back(waiting),
                Sender::Client(..) => self.reply_forward(waiting.id, Err(Refusal::Draining)),
            }
        }
    }

    /// Refuses the forwarded publishes that wait at a topic.
    pub(super) fn refuse_forwarded(&mut self, key: TopicKey, refusal: &Refusal) {
        for waiting in std::mem::take(&mut self.topics[key].waiting_publishes) {
            self.topics[key].refused_count += u64::from(waiting.entry.count);
            self.reply_forward(waiting.id, Err(refusal.clone()));
        }
    }

    pub(super) fn reply_forward(&mut self, id: ForwardId, result: Result<(), Refusal>) {
        self.forward_replies[id.from.0 as usize].push(ForwardReply { id, result });
    }

    /// Returns false when there is no room yet.
    fn publish_forwarded(
        &mut self,
        key: TopicKey,
        mut id: ForwardId,
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
            origin: entry.origin,
        };
        let published = match id.sender {
            // A dead letter must not be lost, even if it looks like another one.
            Sender::Channel { .. } => topic.store(self.now, &publication),
            Sender::Client(..) => topic.publish(self.now, &publication),
        };
        if let (Ok(_), Sender::Channel { stored, .. }) = (&published, &mut id.sender) {
            let upto = topic.log.next_seq();
            *stored = Seq(upto.0 - 1);
            self.answer_dead_letter(key, id, upto, entry.wants_sync);
            return true;
        }
        let result = match published {
            Ok(Published::Done) => Ok(()),
            Ok(Published::AfterSync(upto)) => {
                topic.waiters.add_for_sync(upto, Waiter::Forward(id));
                return true;
            }
            Err(AppendError::WouldBlock) => return false,
            Err(refused) => {
                topic.refused_count += u64::from(entry.count);
                Err(Refusal::Log(refused))
            }
        };
        self.reply_forward(id, result);
        true
    }
}
