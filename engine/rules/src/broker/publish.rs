//! PUB, MPUB, DPUB, and publishing on behalf of the shell.

use super::admin::Outcome;
use super::{Broker, Flow, Found, shard_of};
use crate::channel::dead_letters::DeadLetter;
use crate::channel::dead_letters::LetterBudget;
use crate::client::Blocked;
use crate::client::output::Verb;
use crate::forward::{ForwardBatch, ForwardEntry, ForwardId, ForwardReply, Sender, WaitingPublish};
use crate::ids::{ChannelId, ClientId, ShardId, TaskId, TopicKey};
use crate::output::{Output, Refusal};
use crate::topic::{Published, Retrier, Waiter};
use diskq_log::{AppendError, Now, plant};
use engine_dedup::Publication;
use wire::command::Batch;
use wire::id::Seq;
use wire::name::TopicName;

/// A producer whose publishes went to the same other shard this often in a row moves there.
pub const REMOTE_STREAK_MAX: u32 = 16;

/// A connection with more bytes than this on their way to other shards waits for answers.
const FORWARDED_BYTES_MAX: usize = 1024 * 1024;

impl Broker {
    pub(super) fn publish<'b>(
        &mut self,
        id: ClientId,
        verb: Verb,
        name: TopicName<'_>,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
    ) -> Flow {
        if let Err(flow) = self.permit(id, verb, (name, None)) {
            return flow;
        }
        // Nearly always, a client publishes to the topic of its last publish.
        let hint = self.clients[id].producer.topic_hint;
        let hint = hint.filter(|key| {
            self.topics
                .get(*key)
                .is_some_and(|topic| topic.name.as_bytes() == name.as_bytes())
        });
        let key = match hint {
            Some(key) => key,
            None => {
                let shard = shard_of(name.as_bytes(), self.options.shards);
                if shard != self.options.shard {
                    return self.publish_elsewhere(id, verb, shard, name, publication);
                }
                match self.topic_for(id, verb, name) {
                    Ok(key) => key,
                    Err(flow) => return flow,
                }
            }
        };
        let (topic, client) = (&mut self.topics[key], &mut self.clients[id]);
        client.producer.found_topic(key);
        // The methods of the broker with these names would look up the topic and the client again.
        self.to_do.pump_later(key, topic);
        self.to_do.flush_later(id, client);
        match topic.publish(self.now, publication) {
            Ok(done) => {
                client
                    .producer
                    .count_published(name, u64::from(publication.count));
                match done {
                    Published::Done => client.reply(wire::encode::OK),
                    Published::AfterSync(upto) => {
                        let token = client.reply_later(verb);
                        topic.waits.add_for_sync(upto, Waiter::Client(id, token));
                    }
                }
                Flow::Next
            }
            Err(AppendError::WouldBlock) => {
                client.block(Blocked::Room(key));
                topic.waits.for_room.push(Retrier::Client(id));
                Flow::Retry
            }
            Err(refused) => {
                topic.counters.refused_count += u64::from(publication.count);
                self.refuse(id, verb.failed(&refused.to_string()));
                Flow::Next
            }
        }
    }

    fn publish_elsewhere<'b>(
        &mut self,
        id: ClientId,
        verb: Verb,
        shard: ShardId,
        name: TopicName<'_>,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
    ) -> Flow {
        let client = &mut self.clients[id];
        let streak = client.producer.count_remote(shard);
        if streak > REMOTE_STREAK_MAX && client.consumer.subscription.is_none() {
            self.start_move(id, shard);
            return Flow::Retry;
        }
        if client.producer.forwarded_bytes > FORWARDED_BYTES_MAX {
            client.block(Blocked::Forwards);
            return Flow::Retry;
        }
        client
            .producer
            .count_published(name, u64::from(publication.count));
        let token = client.reply_later(verb);
        let batch = self.mail.to(shard);
        client.producer.forwarded_bytes += batch.push(Sender::Client(id, token), name, publication);
        Flow::Next
    }

    /// Publishes for a task of the shell, to a topic of this shard.
    ///
    /// # Errors
    /// The publish was refused.
    pub fn publish_for_task<'b>(
        &mut self,
        now: Now,
        task: TaskId,
        name: TopicName<'_>,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
        out: &mut Vec<Output>,
    ) -> Result<Outcome, Refusal> {
        self.call(now, out, |broker| {
            if broker.is_stopping() {
                return Err(Refusal::Exiting);
            }
            if broker.is_draining {
                return Err(Refusal::Draining);
            }
            let found = broker.topic_key(name).map_err(Refusal::SetAside)?;
            let key = found.key();
            let topic = &mut broker.topics[key];
            if found == Found::Starting(key) {
                topic.waits.for_topic.push(Retrier::Task(task));
                return Ok(Outcome::Later);
            }
            let result = match topic.publish(now, publication) {
                Ok(Published::Done) => Ok(Outcome::Done),
                Ok(Published::AfterSync(upto)) => {
                    topic.waits.add_for_sync(upto, Waiter::Task(task));
                    Ok(Outcome::Wait)
                }
                Err(AppendError::WouldBlock) => {
                    topic.waits.for_room.push(Retrier::Task(task));
                    Ok(Outcome::Later)
                }
                Err(refused) => {
                    topic.counters.refused_count += u64::from(publication.count);
                    Err(Refusal::Log(refused))
                }
            };
            broker.pump_later(key);
            result
        })
    }
}

/// Publishes to topics of other shards, on the shard of the client and on the shard of the topic.
impl Broker {
    /// Takes the batch of publishes of this turn to topics of shard `to`. `None` if there are none.
    pub fn take_forwards(&mut self, to: ShardId) -> Option<ForwardBatch> {
        self.mail.take_batch(to)
    }

    /// Takes the answers to publishes that shard `to` forwarded here. `None` if there are none.
    pub fn take_forward_replies(&mut self, to: ShardId) -> Option<Vec<ForwardReply>> {
        self.mail.take_replies(to)
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
                    self.mail.reply(id, Err(Refusal::Draining));
                }
                continue;
            }
            let topic = TopicName::new(name).expect("the sender decoded it");
            let found = match self.topic_key(topic) {
                Ok(found) => found,
                Err(cause) => {
                    if let Some(id) = entry.forward_id(batch.from) {
                        self.mail.reply(id, Err(Refusal::SetAside(cause)));
                    }
                    continue;
                }
            };
            let key = found.key();
            let Some(id) = entry.forward_id(batch.from) else {
                continue;
            };
            let queue_is_free = self.topics[key].waits.publishes.is_empty();
            let may_publish = queue_is_free && found == Found::Ready(key);
            // Behind a publish that waits, others wait too: a producer's order stays.
            if !may_publish || !self.publish_forwarded(key, id, entry, packed) {
                let waiting = WaitingPublish {
                    id,
                    entry: *entry,
                    packed: packed.to_vec(),
                };
                self.topics[key].waits.publishes.push_back(waiting);
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
        while let Some(waiting) = self.topics[key].waits.publishes.pop_front() {
            if !self.publish_forwarded(key, waiting.id, &waiting.entry, &waiting.packed) {
                self.topics[key].waits.publishes.push_front(waiting);
                return;
            }
        }
    }

    /// Refuses the publishes of a drain that were forwarded and wait at a topic. Dead letters stay: they are no new
    /// messages.
    pub(super) fn refuse_in_drain(&mut self, key: TopicKey) {
        let waiting = std::mem::take(&mut self.topics[key].waits.publishes);
        for waiting in waiting {
            match waiting.id.sender {
                Sender::Channel { .. } => self.topics[key].waits.publishes.push_back(waiting),
                Sender::Client(..) => self.mail.reply(waiting.id, Err(Refusal::Draining)),
            }
        }
    }

    /// Refuses the forwarded publishes that wait at a topic.
    pub(super) fn refuse_forwarded(&mut self, key: TopicKey, refusal: &Refusal) {
        for waiting in std::mem::take(&mut self.topics[key].waits.publishes) {
            self.topics[key].counters.refused_count += u64::from(waiting.entry.count);
            self.mail.reply(waiting.id, Err(refusal.clone()));
        }
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
                topic.waits.add_for_sync(upto, Waiter::Forward(id));
                return true;
            }
            Err(AppendError::WouldBlock) => return false,
            Err(refused) => {
                topic.counters.refused_count += u64::from(entry.count);
                Err(Refusal::Log(refused))
            }
        };
        self.mail.reply(id, result);
        true
    }
}

/// Moves dead letters from their channels to the dead-letter topics, which may belong to any shard.
///
/// ```text
///   Channel::take_dead_letters ──► OutgoingMail::to(owner) ──► Topic::publish, and a waiter for the sync
///   Channel::finish_dead_letter ◄── reply: stored ◄─────────┘
///   Channel::return_dead_letter ◄── reply: refused
/// ```
impl Broker {
    /// Sends dead letters of a topic to the shards of the dead-letter topics.
    pub(super) fn send_dead_letters(
        &mut self,
        topic: TopicKey,
        letters: Vec<(ChannelId, DeadLetter)>,
    ) {
        for (channel, letter) in letters {
            let to = TopicName::new(letter.to.as_bytes()).expect("a rule has a valid name");
            let owner = shard_of(to.as_bytes(), self.options.shards);
            let seq = letter.seq;
            let sender = Sender::Channel {
                topic,
                channel,
                seq,
                stored: Seq(0),
            };
            self.letters.bytes += LetterBudget::bytes_of(letter.body.len());
            let batch = self.mail.to(owner);
            batch.push_dead_letter(sender, to, &letter.body, letter.wants_sync);
        }
    }

    /// Notes that a letter with a body of this size is not on its way any more.
    pub(super) fn letter_arrived(&mut self, body_bytes: usize) {
        self.letters.bytes -= LetterBudget::bytes_of(body_bytes);
    }

    /// Delivers what this shard forwards to itself: dead letters, and the answers to them. Mail goes to other shards
    /// only.
    pub(super) fn deliver_own_forwards(&mut self) {
        let own = self.options.shard;
        if let Some(batch) = self.take_forwards(own) {
            self.publish_batch(&batch);
        }
        if let Some(replies) = self.take_forward_replies(own) {
            self.take_replies(replies);
        }
    }

    /// Requests the answer to a dead letter that was published just now. The answer comes after the sync, with any
    /// `--sync-every`. A power failure may take an acknowledged publish before its sync. It must not take a dead
    /// letter, which may have been synced in its old topic long ago.
    pub(super) fn answer_dead_letter(
        &mut self,
        key: TopicKey,
        id: ForwardId,
        upto: Seq,
        wants_sync: bool,
    ) {
        plant!(DeadLetterBeforeSync, return self.mail.reply(id, Ok(())));
        let topic = &mut self.topics[key];
        topic.waits.add_for_sync(upto, Waiter::Forward(id));
        if wants_sync {
            topic.log.want_sync();
        }
    }

    /// Takes the answer to a dead letter: its seq in the dead-letter topic, or the refusal. Does nothing if the topic
    /// or channel was deleted meanwhile.
    pub(super) fn dead_letter_answered(
        &mut self,
        (key, channel_id, seq): (TopicKey, ChannelId, Seq),
        result: Result<Seq, &Refusal>,
    ) {
        let Some(topic) = self.topics.get_mut(key) else {
            return;
        };
        let name = topic.name.clone();
        let log = &mut topic.log;
        let Some(channel) = topic.channels.get_mut(channel_id) else {
            return;
        };
        match result {
            Ok(stored) => {
                channel.finish_dead_letter(self.now.mono, seq, stored, log);
                self.letters.moved_count += u64::from(self.is_draining);
            }
            Err(refusal) => {
                plant!(
                    RefusedLetterForgotten,
                    channel.finish_dead_letter(self.now.mono, seq, seq, log)
                );
                channel.return_dead_letter(self.now.mono, seq);
                let what = "no dead letter can be stored";
                let to = channel.dead_letters.as_ref().map(|dead| dead.to().clone());
                let line = format!(
                    "TOPIC({name}) CHANNEL({}) ERROR: {what} in topic {}, they stay in the channel",
                    channel.name,
                    to.as_deref().unwrap_or_default(),
                );
                self.repeat_error(what, line, &refusal.to_string());
            }
        }
        self.topics[key].after_answer(channel_id);
        self.pump_later(key);
    }
}
