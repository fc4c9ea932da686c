//! The topics that recognise messages by their content, and the copies that any peer sends of them.
//!
//! `numbers.rs` has the knowledge of copies: a message whose copy is acknowledged is there, and all deliveries of a
//! message have the same id. A message of which no copy was sent is fresh, so it must arrive as in a topic without a rule.
//!
//! After a crash, the broker need not know a message that all consumers have finished. The model has each message once, so
//! no copy of such a message is sent.

use super::model::Model;
use super::{TOPICS, World};
use diskq::Recovered;
use engine_rules::{
    Broker, ContentKey, ContentRule, DedupRule, DedupRules, JsonPointer, KeyWindow, Now, SavedKeys,
};
use std::path::Path;
use wire::name::TopicName;

/// A window that covers all messages of a history.
const LARGE: u64 = 20_000;
/// A window that a batch fills.
const SMALL: u64 = 14;

/// True if a history has rules that compare contents. One of five histories has.
pub(crate) fn has_rule(seed: u64) -> bool {
    seed / 5 % 5 == 1
}

/// Adds the rules: `body` for the topics with even indices, and the value at `/id` for the others.
pub(crate) fn add_rules(rules: &mut DedupRules, is_small: bool) {
    let window = KeyWindow::Count(if is_small { SMALL } else { LARGE });
    for (index, name) in TOPICS.iter().enumerate() {
        let key = match index % 2 {
            0 => ContentKey::Body,
            _ => ContentKey::Json(JsonPointer::parse("/id").expect("a pointer")),
        };
        let rule = ContentRule::new(key, window, None).expect("it fits");
        rules.add(name, DedupRule::Content(rule));
    }
}

/// Returns a body with the number of its message, as the rule of the topic needs it.
pub(crate) fn body(topic: usize, number: u64, filler: usize) -> Vec<u8> {
    let filler = (0..filler).map(|at| (at as u64 ^ number) as u8);
    if topic.is_multiple_of(2) {
        return number.to_be_bytes().into_iter().chain(filler).collect();
    }
    let mut body = format!("{{\"id\":\"{number:08}\",\"text\":\"").into_bytes();
    body.extend(filler.map(|byte| b'a' + byte % 26));
    body.extend_from_slice(b"\"}");
    body
}

/// Returns the number of the message in a body.
pub(crate) fn number(body: &[u8]) -> u64 {
    if let Some(rest) = body.strip_prefix(b"{\"id\":\"") {
        let digits = std::str::from_utf8(&rest[..8]).expect("digits");
        return digits.parse().expect("a number");
    }
    u64::from_be_bytes(body[..8].try_into().expect("eight bytes"))
}

impl Model {
    /// Returns whether the broker must know a message of a topic that compares contents, or has lost it: the message was
    /// sent to this process, or some channel has not finished it.
    pub(crate) fn is_known_or_lost(&self, number: u64) -> bool {
        let message = &self.messages[number as usize];
        let is_sampled = self.sampled.iter().any(|place| place.0 == message.topic);
        number >= self.exact_from || !message.eligible.is_empty() && !is_sampled
    }
}

impl World {
    /// Gives a topic that compares contents the keys of its messages, as the program does at a start.
    pub(crate) fn begin_keys(
        &mut self,
        shard: usize,
        name: TopicName<'_>,
        now: Now,
        recovered: &Recovered,
    ) -> Option<engine_rules::RestoredKeys> {
        let path = Path::new(super::DATA_PATH);
        let topic = name.as_str();
        let broker: &Broker = &self.shards[shard].broker;
        let file = diskq::read_topic_file(&self.files, path, topic).expect("the disk reads");
        let saved = file.as_deref().map(SavedKeys::decode).transpose();
        let saved = saved.expect("the file was synced before it got its name");
        let mut keys = broker.begin_keys(now, name)?;
        if let Some(saved) = &saved {
            keys.load(saved).expect("it is of the same rule");
        }
        diskq::read_newest(&self.files, path, topic, recovered, &mut keys).expect("the disk reads");
        if saved.is_some() {
            self.reached.note("keys restored from their file");
        }
        Some(keys)
    }
}
