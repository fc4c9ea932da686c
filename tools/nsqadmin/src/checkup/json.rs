//! The JSON of a checkup, for the page.

use std::collections::BTreeMap;
use std::time::Duration;

use wire::go_json::{JsonObject, push_array, push_float};

use super::{Checkup, Concern, NodeCheck, ProducerFigures, ShardFigures, Subject, TopicProducers};

impl Checkup {
    /// Adds the key `doctor` to the object of a channel. With `is_brief`, a channel that has nothing to
    /// do has no such key.
    pub fn push_doctor(
        &self,
        object: &mut JsonObject<'_>,
        topic: &str,
        channel: &str,
        is_brief: bool,
    ) {
        let name = (topic.to_owned(), channel.to_owned());
        let Some(check) = self.channels.get(&name) else {
            return;
        };
        if is_brief && check.is_idle {
            return;
        }
        let mut doctor = JsonObject::new(object.key("doctor"));
        doctor.text("sentence", &check.sentence);
        doctor.boolean("is_problem", check.is_problem);
        doctor.boolean("is_older", check.is_older);
        doctor.boolean("is_retried", check.is_retried);
        if let Some(seconds) = check.drained_in {
            push_float(doctor.key("drained_in_s"), rounded(seconds));
        }
        doctor.end();
    }

    /// Adds the key `publishing` to the object of a topic: its producers, those with the highest rates first.
    pub fn push_producers(&self, object: &mut JsonObject<'_>, topic: &str) {
        let none = TopicProducers::default();
        let producers = self.producers.get(topic).unwrap_or(&none);
        let mut publishing = JsonObject::new(object.key("publishing"));
        let is_measured = producers.is_measured;
        push_rate(publishing.key("rate"), producers.arrivals, is_measured);
        push_rate(publishing.key("others_rate"), producers.others, is_measured);
        push_usual(&mut publishing, "others_usual_rate", producers.others_usual);
        let count = i64::try_from(producers.count).unwrap_or(i64::MAX);
        publishing.number("producer_count", count);
        push_array(publishing.key("producers"), &producers.listed, |out, it| {
            push_producer(out, it, is_measured);
        });
        publishing.end();
    }

    /// Adds the key `concerns`: what needs attention about this subject.
    pub fn push_concerns(&self, object: &mut JsonObject<'_>, subject: &Subject) {
        let concerns = self.concerns.iter();
        let own = concerns.filter(|concern| concern.subject == *subject);
        push_array(object.key("concerns"), own, |out, concern| {
            push_concern(out, concern);
        });
    }

    /// Returns true if a node that has vanished had the topic.
    pub fn has_lost(&self, topic: &str) -> bool {
        self.gone.iter().any(|gone| gone.topics.contains(topic))
    }

    /// Adds the key `gone_nodes`: the nodes that have vanished, all or those that had a topic.
    pub fn push_gone(&self, object: &mut JsonObject<'_>, topic: Option<&str>) {
        let gone = self.gone.iter();
        let gone = gone.filter(|gone| topic.is_none_or(|topic| gone.topics.contains(topic)));
        push_array(object.key("gone_nodes"), gone, |out, gone| {
            let mut object = JsonObject::new(out);
            object.text("node", &gone.address);
            object.text("sentence", &gone.sentence);
            object.end();
        });
    }

    /// Returns what needs attention. `message` says which servers did not answer. `next` is the time until the next checkup
    /// is expected.
    pub fn attention(&self, message: &str, next: Duration) -> String {
        let mut json = String::new();
        let mut object = JsonObject::new(&mut json);
        self.now.push_fields(&mut object);
        let millis = i64::try_from(next.as_millis()).unwrap_or(i64::MAX);
        object.number("next_ms", millis);
        push_array(object.key("concerns"), &self.concerns, |out, concern| {
            push_concern(out, concern);
        });
        self.push_gone(&mut object, None);
        object.text("message", message);
        object.end();
        json
    }

    /// Returns the health, the shards, the disk and the concerns of a node, or `None` for an unknown node. A
    /// node that has vanished has concerns alone.
    pub fn node(&self, address: &str) -> Option<String> {
        let subject = Subject::Node(address.to_owned());
        let gone = NodeCheck::default();
        let is_gone = || self.concerns.iter().any(|one| one.subject == subject);
        let node = match self.nodes.get(address) {
            Some(node) => node,
            None if is_gone() => &gone,
            None => return None,
        };
        let mut json = String::new();
        let mut object = JsonObject::new(&mut json);
        object.text("node", address);
        push_node(&mut object, node);
        push_array(
            object.key("shards"),
            &node.shards,
            |out, (number, shard)| {
                push_shard(out, *number, shard);
            },
        );
        self.push_concerns(&mut object, &subject);
        object.text("message", "");
        object.end();
        Some(json)
    }

    /// Adds the health, the version of ringq and the disk of a node, as far as the node tells them.
    pub fn push_node_fields(&self, object: &mut JsonObject<'_>, address: &str) {
        if let Some(node) = self.nodes.get(address) {
            push_node(object, node);
        }
    }

    /// Returns the sentences about each node that needs attention.
    pub fn concerns_of_nodes(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut sentences: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for concern in &self.concerns {
            if let Subject::Node(address) = &concern.subject {
                sentences
                    .entry(address)
                    .or_default()
                    .push(&concern.sentence);
            }
        }
        sentences
    }
}

fn push_node(object: &mut JsonObject<'_>, node: &NodeCheck) {
    object.text("health", &node.health);
    if let Some(version) = &node.ringq_version {
        object.text("ringq_version", version);
    }
    if let Some(disk) = &node.disk {
        let mut of_disk = JsonObject::new(object.key("disk"));
        push_float(of_disk.key("size_bytes"), disk.size_bytes);
        push_float(of_disk.key("free_bytes"), disk.free_bytes);
        if disk.is_full {
            of_disk.boolean("is_full", true);
        }
        if let Some(seconds) = disk.full_in {
            push_float(of_disk.key("full_in_s"), rounded(seconds));
        }
        of_disk.end();
    }
}

/// Appends a rate, or `null` if it is not known.
fn push_rate(out: &mut String, rate: f64, is_measured: bool) {
    match is_measured {
        true => push_float(out, rounded(rate)),
        false => out.push_str("null"),
    }
}

fn push_producer(out: &mut String, producer: &ProducerFigures, is_measured: bool) {
    let mut object = JsonObject::new(out);
    object.text("node", &producer.node);
    object.text("remote_address", &producer.remote_address);
    object.text("client_id", &producer.client_id);
    object.text("hostname", &producer.hostname);
    object.text("user_agent", &producer.user_agent);
    object.number("connect_ts", producer.connect_ts);
    object.number("count", producer.count);
    push_rate(object.key("rate"), producer.rate, is_measured);
    push_usual(&mut object, "usual_rate", producer.usual);
    object.end();
}

fn push_usual(object: &mut JsonObject<'_>, key: &str, usual: Option<f64>) {
    if let Some(usual) = usual {
        push_float(object.key(key), rounded(usual));
    }
}

fn push_concern(out: &mut String, concern: &Concern) {
    let mut object = JsonObject::new(out);
    match &concern.subject {
        Subject::Lookupd(address) => object.text("lookupd", address),
        Subject::Node(address) => object.text("node", address),
        Subject::Topic(topic) => object.text("topic", topic),
        Subject::Channel(topic, channel) => {
            object.text("topic", topic);
            object.text("channel", channel);
        }
    }
    object.text("sentence", &concern.sentence);
    object.number("depth", concern.depth);
    if let Some(age) = concern.oldest_ms {
        object.number("oldest_ms", age);
    }
    object.boolean("is_older", concern.is_older);
    object.boolean("is_retried", concern.is_retried);
    object.end();
}

fn push_shard(out: &mut String, number: u64, shard: &ShardFigures) {
    let mut object = JsonObject::new(out);
    object.number("shard", i64::try_from(number).unwrap_or(i64::MAX));
    if let Some(load) = shard.load {
        push_float(object.key("load"), rounded(load));
    }
    let topics = i64::try_from(shard.topic_count).unwrap_or(i64::MAX);
    object.number("topic_count", topics);
    push_float(object.key("connections"), shard.connections);
    push_float(object.key("rate"), rounded(shard.arrivals));
    if let Some((topic, rate)) = &shard.busiest {
        object.text("busiest_topic", topic);
        push_float(object.key("busiest_rate"), rounded(*rate));
    }
    object.end();
}

/// A thousandth is enough for a page. A server may tell a number with which the product is infinite.
fn rounded(value: f64) -> f64 {
    let thousandths = (value * 1000.0).round();
    match thousandths.is_finite() {
        true => thousandths / 1000.0,
        false => value,
    }
}
