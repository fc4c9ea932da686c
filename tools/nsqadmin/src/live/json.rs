//! The JSON of a snapshot, for the page.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Serialize;
use wire::go_json::{push, to_string};
use wire::json_object;

use super::{Figures, LiveTopic, Snapshot, Total};
use crate::checkup::{Checkup, Subject};

impl Snapshot {
    /// Returns the topics and nodes that differ from another snapshot as JSON, with the names of those
    /// that are gone. Without another one, all are there.
    pub fn changes(&self, before: Option<&Snapshot>) -> String {
        let topics = self.topics.iter().filter(|(name, topic)| {
            let known = before.and_then(|before| before.topics.get(*name));
            known.is_none_or(|known| {
                known.total.figures != topic.total.figures
                    || known.channels.len() != topic.channels.len()
            })
        });
        let nodes = self.nodes.iter().filter(|(name, figures)| {
            before.and_then(|before| before.nodes.get(*name)) != Some(*figures)
        });
        let gone_topics = before.iter().flat_map(|before| before.topics.keys());
        let gone_topics = gone_topics.filter(|name| !self.topics.contains_key(*name));
        let gone_nodes = before.iter().flat_map(|before| before.nodes.keys());
        let gone_nodes = gone_nodes.filter(|name| !self.nodes.contains_key(*name));
        to_string(&json_object! {
            #[serde(flatten)]
            now: self.now,
            is_complete: before.is_none(),
            topics: topics.map(|(name, topic)| topic.summary(name)).collect::<Vec<_>>(),
            nodes: nodes.map(of_node).collect::<Vec<_>>(),
            gone_topics: gone_topics.collect::<Vec<_>>(),
            gone_nodes: gone_nodes.collect::<Vec<_>>(),
            message: &self.message,
        })
    }

    /// Returns all topics with their channels as JSON, each in a line of its own: the page reads them one by one, and not
    /// again what has not changed. `checkup` has what limits the channels. `node_set` of a topic stands for the nodes that
    /// have it: figures of other nodes give no rate.
    pub fn topics(&self, checkup: &Checkup) -> String {
        let mut json = to_string(&self.now);
        json.pop();
        json.push_str(",\"topics\":[");
        for (index, (name, topic)) in self.topics.iter().enumerate() {
            json.push_str(if index > 0 { ",\n" } else { "\n" });
            let channels = topic.channels.iter();
            let channels = channels.map(|it| of_channel(name, it, checkup, true));
            let topic = json_object! {
                #[serde(flatten)]
                summary: topic.summary(name),
                node_set: node_set(&topic.total.nodes),
                channels: channels.collect::<Vec<_>>(),
            };
            push(&mut json, &topic);
        }
        json.push_str("\n],\"message\":");
        push(&mut json, &self.message);
        json + "}"
    }

    /// Returns all nodes as JSON. `checkup` has their builds, their disks and what needs attention. A node that did not answer
    /// has no figures.
    pub fn nodes(&self, checkup: &Checkup) -> String {
        let names: BTreeSet<&String> = self.nodes.keys().chain(checkup.nodes.keys()).collect();
        let concerns = checkup.concerns_of_nodes();
        let nodes = names.into_iter().map(|name| {
            json_object! {
                node: name,
                #[serde(flatten)]
                figures: self.nodes.get(name),
                #[serde(flatten)]
                check: checkup.nodes.get(name),
                sentences: concerns.get(name.as_str()).cloned().unwrap_or_default(),
            }
        });
        to_string(&json_object! {
            #[serde(flatten)]
            now: self.now,
            nodes: nodes.collect::<Vec<_>>(),
            gone_nodes: &checkup.gone,
            message: &self.message,
        })
    }

    /// Returns a topic with its channels, producers and nodes as JSON, or `None` if there is no such
    /// topic. A topic that only nodes had that have vanished has no figures.
    pub fn topic(&self, name: &str, checkup: &Checkup) -> Option<String> {
        let known = self.topics.get(name);
        if known.is_none() && checkup.gone_with(name).is_empty() {
            return None;
        }
        let lost = LiveTopic::default();
        let topic = known.unwrap_or(&lost);
        let channels = topic.channels.iter().map(|it| {
            json_object! {
                #[serde(flatten)]
                channel: of_channel(name, it, checkup, false),
                nodes: it.1.nodes.iter().map(of_node).collect::<Vec<_>>(),
            }
        });
        Some(to_string(&json_object! {
            #[serde(flatten)]
            now: self.now,
            #[serde(flatten)]
            topic: known.map(|topic| json_object! { topic: topic.summary(name) }),
            channels: channels.collect::<Vec<_>>(),
            nodes: topic.total.nodes.iter().map(of_node).collect::<Vec<_>>(),
            publishing: checkup.publishing(name),
            concerns: checkup.concerns_of(&Subject::Topic(name.to_owned())),
            gone_nodes: checkup.gone_with(name),
            message: &self.message,
        }))
    }
}

/// Returns a number for a set of nodes, which a script can read exactly. Two sets have the same number by chance in one of 2^52
/// cases.
fn node_set(nodes: &BTreeMap<String, Figures>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for node in nodes.keys() {
        node.hash(&mut hasher);
    }
    hasher.finish() >> 12
}

impl LiveTopic {
    fn summary(&self, name: &str) -> impl Serialize {
        let Total { figures, nodes } = &self.total;
        let paused = nodes.values().filter(|node| node.operated.is_paused);
        let paused = figures.operated.is_paused.then(|| paused.count());
        json_object! {
            topic: name,
            #[serde(flatten)]
            figures,
            channel_count: self.channels.len(),
            node_count: nodes.len(),
            #[serde(flatten)]
            paused: paused.map(|count| json_object! { paused_node_count: count }),
        }
    }
}

fn of_node<'a>((node, figures): (&'a String, &'a Figures)) -> impl Serialize {
    json_object! { node, #[serde(flatten)] figures }
}

/// Returns a channel with the word of the doctor. With `is_brief`, a channel that has nothing to do has none.
fn of_channel(
    topic: &str,
    (channel, total): (&String, &Total),
    checkup: &Checkup,
    is_brief: bool,
) -> impl Serialize {
    json_object! {
        channel,
        #[serde(flatten)]
        figures: &total.figures,
        #[serde(flatten)]
        doctor: checkup.doctor(topic, channel, is_brief),
    }
}
