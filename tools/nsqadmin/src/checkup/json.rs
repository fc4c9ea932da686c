//! The JSON of a checkup, for the page.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use wire::go_json::to_string;
use wire::json_object;

use super::{Checkup, Concern, GoneNode, NodeCheck, Subject, TopicProducers};
use crate::thousandth::rounded;

impl Checkup {
    /// Returns the field `doctor` of a channel. With `is_brief`, a channel that has nothing to do has no such field.
    pub fn doctor(&self, topic: &str, channel: &str, is_brief: bool) -> Option<impl Serialize> {
        let name = (topic.to_owned(), channel.to_owned());
        let check = self.channels.get(&name);
        let check = check.filter(|check| !(is_brief && check.is_idle));
        check.map(|check| json_object! { doctor: check })
    }

    /// Returns who publishes to a topic: its producers, those with the highest rates first. A rate that is not known is
    /// `null`.
    pub fn publishing(&self, topic: &str) -> impl Serialize {
        let none = TopicProducers::default();
        let producers = self.producers.get(topic).unwrap_or(&none);
        let known = |rate| producers.is_measured.then(|| rounded(rate));
        let listed = producers.listed.iter().map(|producer| {
            let usual = producer.usual.map(rounded);
            json_object! {
                #[serde(flatten)]
                producer: producer.clone(),
                rate: known(producer.rate),
                #[serde(flatten)]
                usual: usual.map(|rate| json_object! { usual_rate: rate }),
            }
        });
        let others_usual = producers.others_usual.map(rounded);
        json_object! {
            rate: known(producers.arrivals),
            others_rate: known(producers.others),
            #[serde(flatten)]
            others_usual: others_usual.map(|rate| json_object! { others_usual_rate: rate }),
            producer_count: producers.count,
            producers: listed.collect::<Vec<_>>(),
        }
    }

    /// Returns what needs attention about this subject.
    pub fn concerns_of(&self, subject: &Subject) -> Vec<&Concern> {
        let concerns = self.concerns.iter();
        concerns.filter(|it| it.subject == *subject).collect()
    }

    /// Returns the nodes that have vanished and had a topic.
    pub fn gone_with(&self, topic: &str) -> Vec<&GoneNode> {
        let gone = self.gone.iter();
        gone.filter(|gone| gone.topics.contains(topic)).collect()
    }

    /// Returns what needs attention. `message` says which servers did not answer. `next` is the time until the next checkup
    /// is expected.
    pub fn attention(&self, message: &str, next: Duration) -> String {
        to_string(&json_object! {
            #[serde(flatten)]
            now: self.now,
            next_ms: next.as_millis(),
            concerns: &self.concerns,
            gone_nodes: &self.gone,
            message,
        })
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
        let shards = node.shards.iter().map(|(number, shard)| {
            let busiest = shard.busiest.as_ref();
            json_object! {
                shard: number,
                #[serde(flatten)]
                load: shard.load.map(|load| json_object! { load: rounded(load) }),
                topic_count: shard.topic_count,
                connections: shard.connections,
                rate: rounded(shard.arrivals),
                #[serde(flatten)]
                busiest: busiest.map(|(topic, rate)| {
                    json_object! { busiest_topic: topic, busiest_rate: rounded(*rate) }
                }),
            }
        });
        Some(to_string(&json_object! {
            node: address,
            #[serde(flatten)]
            check: node,
            shards: shards.collect::<Vec<_>>(),
            concerns: self.concerns_of(&subject),
            message: "",
        }))
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
