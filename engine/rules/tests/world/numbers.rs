//! The publishers that number their messages, and send them again when they feel like it. In histories whose topics compare
//! contents (`contents.rs`), any peer sends messages again, without numbers.
//!
//! The model knows two things of these messages. A message whose copy is acknowledged is there, whatever was lost before.
//! And the broker stores a message once: all of its deliveries have the same id.

use super::contents;
use super::model::{Action, Model};
use super::peer::TestClient;
use super::{Mail, TOPICS, World, topic_name};
use diskq::Reply;
use engine_rules::{DedupRule, DedupRules, PublisherRule};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use wire::encode;
use wire::id::MessageId;

/// The most publishes that a publisher sends again when it has connected.
const UNKNOWN_MAX: usize = 4;
/// The publisher of messages without numbers.
const NOBODY: u64 = 0;
/// Publishers have the ids from 1 on.
const PUBLISHERS: u64 = 3;

/// The rules of a history. Two of five histories have one for publishers, and one of five has rules that compare contents.
pub(crate) fn rules(seed: u64) -> Arc<DedupRules> {
    let mut rules = DedupRules::default();
    if has_rule(seed) {
        let rule = PublisherRule {
            window: PublisherRule::WINDOW_DEFAULT,
            // In some histories, there is room for one publisher only.
            memory_bytes: if is_small(seed) { 1 } else { 1 << 20 },
        };
        rules.add("*", DedupRule::Publisher(rule));
    }
    if contents::has_rule(seed) {
        contents::add_rules(&mut rules, is_small(seed));
    }
    rules.into()
}

fn has_rule(seed: u64) -> bool {
    matches!(seed / 5 % 5, 3 | 4)
}

fn is_small(seed: u64) -> bool {
    seed.is_multiple_of(8)
}

/// A publish with numbers.
#[derive(Debug, Clone)]
struct Batch {
    topic: usize,
    publisher: u64,
    /// The number of the first message.
    first: u64,
    /// The messages, by their numbers in the model.
    messages: Vec<u64>,
}

/// The publishers of a history.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// False if no topic has a rule.
    pub(crate) is_on: bool,
    /// True if the topics have rules that compare contents.
    pub(crate) are_contents: bool,
    /// True if the broker may store a message twice, because it forgets publishers. Then nothing is sent again: the model
    /// has each message once.
    may_double: bool,
    /// The next number of each publisher in each topic.
    next: BTreeMap<(u64, usize), u64>,
    batches: Vec<Batch>,
    /// The id of each message that was delivered. Only messages that are stored once.
    ids: BTreeMap<u64, MessageId>,
    /// The topics in which the broker may store messages twice, because it could not save their numbers. Nothing is sent
    /// again there.
    unsaved: BTreeSet<usize>,
}

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers {
            is_on: has_rule(seed),
            are_contents: contents::has_rule(seed),
            may_double: is_small(seed),
            ..Numbers::default()
        }
    }

    /// Returns whether messages are sent again.
    pub(crate) fn has_copies(&self) -> bool {
        self.is_on || self.are_contents
    }

    /// Returns the number of the first message of a publish.
    pub(crate) fn draw(&mut self, publisher: u64, topic: usize, messages: &[u64]) -> u64 {
        let next = self.next.entry((publisher, topic)).or_default();
        let first = *next;
        *next += messages.len() as u64;
        self.batches.push(Batch {
            topic,
            publisher,
            first,
            messages: messages.to_vec(),
        });
        first
    }

    /// Notes that the broker may store messages of a topic twice from now on.
    pub(crate) fn allow_doubles(&mut self, topic: usize) {
        self.unsaved.insert(topic);
    }

    /// Notes that messages of a topic are gone, and the numbers of these messages, too.
    pub(crate) fn forget_topic(&mut self, topic: usize) {
        let batches = self.batches.iter().filter(|batch| batch.topic == topic);
        for number in batches.flat_map(|batch| &batch.messages) {
            self.ids.remove(number);
        }
    }

    /// Notes that all messages but those of `is_sure` may be gone, so a copy that is sent again is a first one. If the disk
    /// is not trusted, nothing is sent again.
    pub(crate) fn crash(&mut self, is_trusted: bool, is_sure: impl Fn(u64) -> bool) {
        self.ids.retain(|number, _| is_sure(*number));
        if !is_trusted {
            self.unsaved.extend(0..TOPICS.len());
        }
        for (topic, name) in TOPICS.iter().enumerate() {
            if name.ends_with("#ephemeral") {
                self.forget_topic(topic);
            }
        }
    }

    fn check_id(&mut self, topic: usize, number: u64, id: MessageId) {
        let of = |batch: &Batch| batch.messages.contains(&number);
        if !self.batches.iter().any(of) {
            return;
        }
        let known = *self.ids.entry(number).or_insert(id);
        assert_eq!(
            known, id,
            "message {number} of topic {topic} was stored twice"
        );
    }
}

impl Model {
    /// Notes that a peer got a message that the broker must store once.
    pub(crate) fn check_copy(&mut self, number: u64, id: MessageId, is_late: bool) {
        if self.numbers.has_copies() && !is_late {
            let topic = self.messages[number as usize].topic;
            self.numbers.check_id(topic, number, id);
        }
    }

    /// Notes that a copy of a message was acknowledged. Even if the first one was lost, the message is there now, for
    /// all channels that have been there since the first attempt.
    pub(crate) fn acknowledge_copy(&mut self, number: u64) {
        let message = &mut self.messages[number as usize];
        message.owed.extend(message.eligible.iter().copied());
    }
}

impl World {
    /// Gives a peer the id of a publisher, in histories with a rule.
    pub(crate) fn become_publisher(&mut self, index: usize) {
        if !self.model.numbers.is_on || self.random.below(3) == 0 {
            return;
        }
        let publisher = 1 + self.random.below(PUBLISHERS);
        let json = format!(r#"{{"feature_negotiation":true,"publisher_id":"{publisher:x}"}}"#);
        self.send(index, Action::Other, |out| {
            encode::identify(out, json.as_bytes())
        });
        self.peers[index].identify_as(publisher);
        // A publisher does not know whether these messages were stored.
        let messages = &self.model.messages;
        let is_open = |number: &u64| {
            let message = &messages[*number as usize];
            message.is_lost || !message.acknowledged
        };
        let own = self.own_batches(publisher).into_iter().rev();
        let open: Vec<Batch> = own
            .filter(|batch| batch.messages.iter().any(is_open))
            .take(UNKNOWN_MAX)
            .collect();
        for batch in open.into_iter().rev() {
            self.send_copy(index, batch, 0);
        }
    }

    /// Publishes when a sync has ended and the broker does not know that yet: these messages are not synced, and a save of
    /// numbers follows. Sometimes the process ends behind the save.
    pub(super) fn disturb_saves(&mut self, mail: &Mail) {
        let Mail::Keeper(_, reply, _) = mail else {
            return;
        };
        if !self.model.numbers.is_on || self.is_ending {
            return;
        }
        match reply {
            Reply::Synced { .. } if self.random.below(2) == 0 => {
                for _ in 0..4 {
                    self.publish();
                }
            }
            Reply::StateWritten { result: Ok(()), .. } => {
                self.is_killed_soon |= self.random.below(12) == 0;
            }
            _ => {}
        }
    }

    /// Sends messages again, which may not be synced, just before a crash.
    pub(crate) fn send_again_at_the_end(&mut self) {
        for index in 0..self.peers.len() {
            if !self.peers[index].closed && self.peers[index].may_send() {
                self.send_again(index);
            }
        }
        for shard in 0..self.shards.len() {
            self.turn(shard);
        }
    }

    /// The publishes of a publisher, without those whose messages may be stored twice. An ephemeral topic ends with its
    /// last channel, and forgets all numbers.
    fn own_batches(&self, publisher: u64) -> Vec<Batch> {
        let Numbers {
            batches,
            unsaved,
            may_double,
            ..
        } = &self.model.numbers;
        let is_known = |batch: &Batch| {
            let mut messages = batch.messages.iter();
            publisher != NOBODY || messages.all(|number| self.model.is_known_or_lost(*number))
        };
        let is_own = |batch: &&Batch| {
            let is_kept = !unsaved.contains(&batch.topic) && !may_double && is_known(batch);
            batch.publisher == publisher && is_kept && !TOPICS[batch.topic].ends_with("#ephemeral")
        };
        batches.iter().filter(is_own).cloned().collect()
    }

    /// Sends messages again, some of them or all of an earlier publish. Returns false if there are none.
    pub(crate) fn send_again(&mut self, index: usize) -> bool {
        let nobody = self.model.numbers.are_contents.then_some(NOBODY);
        let Some(publisher) = self.peers[index].publisher.or(nobody) else {
            return false;
        };
        let own = self.own_batches(publisher);
        let Some(last) = own.len().checked_sub(1) else {
            return false;
        };
        // Mostly one of the last ones.
        let back = match self.random.below(3) {
            0 => self.random.below(own.len() as u64) as usize,
            _ => self.random.below(4) as usize,
        };
        let batch = own[last.saturating_sub(back)].clone();
        let from = self.random.below(batch.messages.len() as u64);
        let from = if self.random.below(2) == 0 { 0 } else { from };
        self.send_copy(index, batch, from);
        true
    }

    /// Sends the messages of an earlier publish from one of them on.
    fn send_copy(&mut self, index: usize, batch: Batch, from: u64) {
        let Batch {
            topic,
            publisher,
            first,
            messages,
        } = batch;
        let messages = messages[from as usize..].to_vec();
        let body = |number: &u64| self.model.messages[*number as usize].body.clone();
        let bodies: Vec<Vec<u8>> = messages.iter().map(body).collect();
        let (name, number) = (topic_name(topic), first + from);
        let action = Action::PublishAgain(messages.clone());
        let has_number = publisher != NOBODY;
        self.send(index, action, |out| match &bodies[..] {
            [body] if has_number => encode::publish_numbered(out, name, number, body),
            bodies if has_number => encode::mpub_numbered(out, name, number, bodies),
            [body] => encode::publish(out, name, body),
            bodies => encode::mpub(out, name, bodies),
        });
        let is_old = |number: &u64| *number < self.model.exact_from;
        if !has_number && messages.iter().any(is_old) {
            self.reached.note("content sent again after a crash");
        }
        self.reached.note("sent again");
        let is_lost = |number: &u64| self.model.messages[*number as usize].is_lost;
        if messages.iter().any(is_lost) {
            self.reached.note("sent again after a power failure");
        }
        for number in &messages {
            self.model.messages[*number as usize].send_again();
        }
        self.await_publish(index, topic, messages, true);
    }

    /// Encodes a publish, with numbers if the peer is a publisher.
    pub(crate) fn encode_publish(
        &mut self,
        index: usize,
        topic: usize,
        defer: Option<Duration>,
        is_batch: bool,
        (numbers, bodies): (&[u64], &[Vec<u8>]),
        out: &mut Vec<u8>,
    ) {
        let name = topic_name(topic);
        let publisher = self.peers[index].publisher;
        let first = publisher.map(|publisher| self.model.numbers.draw(publisher, topic, numbers));
        if self.model.numbers.are_contents {
            self.model.numbers.draw(NOBODY, topic, numbers);
            if is_batch && !self.model.numbers.may_double && self.random.below(4) == 0 {
                // The topic must recognise a copy within the batch.
                self.reached.note("copy within a batch");
                let copied = self.random.below(bodies.len() as u64) as usize;
                return encode::mpub(out, name, bodies.iter().chain([&bodies[copied]]));
            }
        }
        match (defer, bodies, first) {
            (Some(defer), _, None) => encode::dpub(out, name, defer, &bodies[0]),
            (Some(defer), _, Some(first)) => {
                encode::dpub_numbered(out, name, defer, first, &bodies[0]);
            }
            (None, [body], None) if !is_batch => encode::publish(out, name, body),
            (None, [body], Some(first)) if !is_batch => {
                encode::publish_numbered(out, name, first, body);
            }
            (None, bodies, None) => encode::mpub(out, name, bodies),
            (None, bodies, Some(first)) => encode::mpub_numbered(out, name, first, bodies),
        }
    }
}

impl TestClient {
    /// Notes that the peer asks for the agreement to number its messages.
    fn identify_as(&mut self, publisher: u64) {
        self.publisher = Some(publisher);
        self.await_numbers();
    }
}
