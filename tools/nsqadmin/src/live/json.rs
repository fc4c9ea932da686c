//! The JSON of a snapshot, for the page.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use wire::go_json::{JsonObject, push_array, push_float, push_string};

use super::{Figures, LiveTopic, Snapshot};
use crate::checkup::{Checkup, Subject};

impl Snapshot {
    /// Returns the topics and nodes that differ from another snapshot as JSON, with the names of those
    /// that are gone. Without another one, all are there.
    pub fn changes(&self, before: Option<&Snapshot>) -> String {
        let mut json = String::new();
        let mut object = JsonObject::new(&mut json);
        self.now.push_fields(&mut object);
        object.boolean("is_complete", before.is_none());
        let topics = self.topics.iter().filter(|(name, topic)| {
            let known = before.and_then(|before| before.topics.get(*name));
            known.is_none_or(|known| {
                known.total.figures != topic.total.figures
                    || known.channels.len() != topic.channels.len()
            })
        });
        push_array(object.key("topics"), topics, |out, (name, topic)| {
            topic.push_summary(out, name);
        });
        let nodes = self.nodes.iter().filter(|(name, figures)| {
            before.and_then(|before| before.nodes.get(*name)) != Some(*figures)
        });
        push_array(object.key("nodes"), nodes, |out, (name, figures)| {
            push_named(out, "node", name, figures);
        });
        let none = Snapshot::default();
        let before = before.unwrap_or(&none);
        let gone = before
            .topics
            .keys()
            .filter(|name| !self.topics.contains_key(*name));
        push_array(object.key("gone_topics"), gone, |out, name| {
            push_string(out, name)
        });
        let gone = before
            .nodes
            .keys()
            .filter(|name| !self.nodes.contains_key(*name));
        push_array(object.key("gone_nodes"), gone, |out, name| {
            push_string(out, name)
        });
        object.text("message", &self.message);
        object.end();
        json
    }

    /// Returns all topics with their channels as JSON, each in a line of its own. `checkup` has what limits the channels.
    /// `node_set` of a topic stands for the nodes that have it: figures of other nodes give no rate.
    pub fn topics(&self, checkup: &Checkup) -> String {
        let mut json = String::new();
        let mut object = JsonObject::new(&mut json);
        self.now.push_fields(&mut object);
        push_lines(object.key("topics"), &self.topics, |out, (name, topic)| {
            let mut object = JsonObject::new(out);
            topic.push_summary_fields(&mut object, name);
            object.number("node_set", node_set(&topic.total.nodes));
            let channels = &topic.channels;
            push_array(object.key("channels"), channels, |out, (channel, total)| {
                let mut object = JsonObject::new(out);
                object.text("channel", channel);
                total.figures.push_fields(&mut object);
                checkup.push_doctor(&mut object, name, channel, true);
                object.end();
            });
            object.end();
        });
        object.text("message", &self.message);
        object.end();
        json
    }

    /// Returns all nodes as JSON. `checkup` has their builds, their disks and what needs attention. A node that did not answer
    /// has no figures.
    pub fn nodes(&self, checkup: &Checkup) -> String {
        let mut json = String::new();
        let mut object = JsonObject::new(&mut json);
        self.now.push_fields(&mut object);
        let names: BTreeSet<&String> = self.nodes.keys().chain(checkup.nodes.keys()).collect();
        let concerns = checkup.concerns_of_nodes();
        push_array(object.key("nodes"), names, |out, name| {
            let mut object = JsonObject::new(out);
            object.text("node", name);
            if let Some(figures) = self.nodes.get(name) {
                figures.push_fields(&mut object);
            }
            checkup.push_node_fields(&mut object, name);
            let own = concerns.get(name.as_str()).into_iter().flatten();
            push_array(object.key("sentences"), own, |out, sentence| {
                push_string(out, sentence);
            });
            object.end();
        });
        checkup.push_gone(&mut object, None);
        object.text("message", &self.message);
        object.end();
        json
    }

    /// Returns a topic with its channels, producers and nodes as JSON, or `None` if there is no such
    /// topic. A topic that only nodes had that have vanished has no figures.
    pub fn topic(&self, name: &str, checkup: &Checkup) -> Option<String> {
        let known = self.topics.get(name);
        if known.is_none() && !checkup.has_lost(name) {
            return None;
        }
        let mut json = String::new();
        let mut object = JsonObject::new(&mut json);
        self.now.push_fields(&mut object);
        if let Some(topic) = known {
            topic.push_summary(object.key("topic"), name);
        }
        let lost = LiveTopic::default();
        let topic = known.unwrap_or(&lost);
        push_array(
            object.key("channels"),
            &topic.channels,
            |out, (channel, total)| {
                let mut object = JsonObject::new(out);
                object.text("channel", channel);
                total.figures.push_fields(&mut object);
                checkup.push_doctor(&mut object, name, channel, false);
                push_array(object.key("nodes"), &total.nodes, |out, (node, figures)| {
                    push_named(out, "node", node, figures);
                });
                object.end();
            },
        );
        push_array(
            object.key("nodes"),
            &topic.total.nodes,
            |out, (node, figures)| {
                push_named(out, "node", node, figures);
            },
        );
        checkup.push_producers(&mut object, name);
        checkup.push_concerns(&mut object, &Subject::Topic(name.to_owned()));
        checkup.push_gone(&mut object, Some(name));
        object.text("message", &self.message);
        object.end();
        Some(json)
    }
}

/// Returns a number for a set of nodes, which a script can read exactly. Two sets have the same number by chance in one of 2^52
/// cases.
fn node_set(nodes: &BTreeMap<String, Figures>) -> i64 {
    let mut hasher = DefaultHasher::new();
    for node in nodes.keys() {
        node.hash(&mut hasher);
    }
    i64::try_from(hasher.finish() >> 12).unwrap_or(i64::MAX)
}

impl LiveTopic {
    fn push_summary(&self, out: &mut String, name: &str) {
        let mut object = JsonObject::new(out);
        self.push_summary_fields(&mut object, name);
        object.end();
    }

    fn push_summary_fields(&self, object: &mut JsonObject<'_>, name: &str) {
        object.text("topic", name);
        self.total.figures.push_fields(object);
        let channels = i64::try_from(self.channels.len()).unwrap_or(i64::MAX);
        object.number("channel_count", channels);
        let count = |nodes: usize| i64::try_from(nodes).unwrap_or(i64::MAX);
        object.number("node_count", count(self.total.nodes.len()));
        let paused = self.total.nodes.values().filter(|node| node.is_paused);
        if self.total.figures.is_paused {
            object.number("paused_node_count", count(paused.count()));
        }
    }
}

/// Appends an array with a line for each item. The page reads them one by one, and not again what has not changed.
fn push_lines<T>(
    out: &mut String,
    items: impl IntoIterator<Item = T>,
    mut push: impl FnMut(&mut String, T),
) {
    out.push('[');
    for (index, item) in items.into_iter().enumerate() {
        out.push_str(if index > 0 { ",\n" } else { "\n" });
        push(out, item);
    }
    out.push_str("\n]");
}

fn push_named(out: &mut String, key: &str, name: &str, figures: &Figures) {
    let mut object = JsonObject::new(out);
    object.text(key, name);
    figures.push_fields(&mut object);
    object.end();
}

impl Figures {
    fn push_fields(&self, object: &mut JsonObject<'_>) {
        object.number("depth", self.depth);
        object.number("channel_depth", self.channel_depth);
        object.number("in_flight", self.in_flight);
        object.number("deferred", self.deferred);
        object.number("message_count", self.message_count);
        let rate = object.key("rate");
        match self.rate {
            // A thousandth of a message per second is enough for a page.
            Some(number) => push_float(rate, (number * 1000.0).round() / 1000.0),
            None => rate.push_str("null"),
        }
        object.number("requeue_count", self.requeue_count);
        object.number("timeout_count", self.timeout_count);
        object.number("clients", self.clients);
        object.number("oldest_ms", self.oldest_ms);
        object.boolean("paused", self.is_paused);
        if let Some(pause) = &self.pause {
            pause.push_fields(object);
        }
        if let Some(undo) = self.undo {
            undo.push_fields(object);
        }
    }
}
