//! [`Order`]: an action on all topics, or on all channels of topics, that match a filter.
//!
//! ```text
//!   Order ──► subjects that match, with their figures ──► Listing ──► the admin reads it
//!                                                            │
//!   Order with the token of this listing ──► the listing again ──► the same token? ──► acts
//! ```
//!
//! The token stands for the action, its terms, the names, the nodes and the channels. Messages come and go all the time,
//! so their numbers are not part of the token. An undo changes only with a further empty, so its end and its number of
//! messages are.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};
use wire::go_json::is_default;

use crate::cluster::Act;
use crate::figures::{ChannelFigures, NodeStats, TopicFigures, Undo, topic_totals};

/// Most topics or channels that one order touches. Each of them is some requests to each node, and one
/// notification, of which 1000 can wait.
pub const SUBJECTS_MAX: usize = 500;

/// The kind of things that an order is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The topics that match.
    Topics,
    /// The channels of the topics that match.
    Channels,
}

/// The states of topics that the page can narrow its list to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Show {
    /// All topics.
    All,
    /// Topics whose messages wait, in the topic or in a channel.
    Backlog,
    /// Topics without consumers.
    Lonely,
    /// Topics that are paused, or have a paused channel.
    Paused,
}

/// An order, as the body of a request has it. All parts of the filter must match.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The action.
    pub action: Act,
    /// The kind of things.
    pub of: Kind,
    /// Words that the name of a topic must contain, in any order. The case does not matter, as in the
    /// page's search.
    #[serde(default)]
    pub search: String,
    /// The state of a topic.
    pub show: Option<Show>,
    /// The names of the topics.
    pub topics: Option<BTreeSet<String>>,
    /// The name of the channels. An empty text matches all.
    #[serde(default)]
    pub channel: String,
    /// The token of the listing that the admin has read. Without it, nothing is done.
    #[serde(default)]
    pub confirm: String,
    /// `for` of nsqd: the time after which the pause ends.
    #[serde(default, rename = "for")]
    pub limit: String,
    /// The reason of the pause.
    #[serde(default)]
    pub note: String,
    /// `undo` of nsqd: the time for which the messages of emptied topics or channels can come back.
    #[serde(default)]
    pub undo: String,
}

/// A topic or channel that an order touches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Subject {
    /// The topic.
    pub topic: String,
    /// The channel. Empty for a topic.
    #[serde(skip_serializing_if = "is_default")]
    pub channel: String,
    /// Messages that wait: for an order to empty topics those in the topic alone, otherwise also those in
    /// its channels.
    pub depth: i64,
    /// Messages that consumers have and have not finished.
    #[serde(rename = "in_flight_count")]
    pub in_flight: i64,
    /// Messages that are not due yet.
    #[serde(rename = "deferred_count")]
    pub deferred: i64,
    /// Connections of consumers.
    #[serde(rename = "client_count")]
    pub consumers: i64,
    /// True if it is paused on any nsqd.
    #[serde(rename = "paused")]
    pub is_paused: bool,
    /// The messages that the subject was emptied of, while they can come back.
    #[serde(flatten)]
    pub undo: Option<Undo>,
    /// `host:port` of the nsqds that have it.
    pub nodes: BTreeSet<String>,
    /// The channels of a topic that is deleted.
    pub channels: BTreeSet<String>,
}

impl Order {
    /// Returns true if something narrows the order. A missing filter is more likely a mistake than the
    /// wish to act on everything, which `"show":"all"` says.
    pub fn has_filter(&self) -> bool {
        let has_words = !self.search.trim().is_empty();
        has_words || self.show.is_some() || self.topics.is_some() || !self.channel.is_empty()
    }

    /// Returns what the order touches, sorted by name. `inactive` are topics that no nsqd has, which can
    /// only be deleted. An empty has all that match, because messages come and go between the list and the act.
    pub fn subjects(&self, stats: &[NodeStats], inactive: &BTreeSet<String>) -> Vec<Subject> {
        let mut subjects: BTreeMap<(String, String), Subject> = BTreeMap::new();
        let totals = topic_totals(stats);
        let known: BTreeSet<&str> = totals.iter().map(|total| &*total.topic_name).collect();
        for total in totals.iter().filter(|total| self.matches(total)) {
            match self.of {
                Kind::Topics => {
                    let subject = self.of_topic(total);
                    subjects.insert((subject.topic.clone(), String::new()), subject);
                }
                Kind::Channels => {
                    let channels = total.channels.iter();
                    let wanted = channels.filter(|channel| {
                        self.channel.is_empty() || channel.channel_name == self.channel
                    });
                    subjects.extend(wanted.map(|channel| {
                        let key = (channel.topic_name.clone(), channel.channel_name.clone());
                        (key, self.of_channel(channel))
                    }));
                }
            }
        }
        if (self.action, self.of) == (Act::Delete, Kind::Topics) {
            let without_nodes = inactive.iter().filter(|name| !known.contains(&***name));
            for topic in without_nodes {
                let total = TopicFigures::total(topic, Vec::new());
                if self.matches(&total) {
                    let subject = self.of_topic(&total);
                    subjects.insert((topic.clone(), String::new()), subject);
                }
            }
        }
        subjects
            .into_values()
            .filter(|subject| self.action == Act::Empty || self.has_work(subject))
            .collect()
    }

    /// Returns true if the topic matches the filter.
    fn matches(&self, total: &TopicFigures) -> bool {
        let name = total.topic_name.to_lowercase();
        let search = self.search.to_lowercase();
        let mut words = search.split_whitespace();
        let is_named = self
            .topics
            .as_ref()
            .is_none_or(|topics| topics.contains(&total.topic_name));
        let mut channels = total.channels.iter();
        let is_shown = match self.show {
            None | Some(Show::All) => true,
            Some(Show::Backlog) => total.depth > 0 || channels.any(|channel| channel.depth > 0),
            Some(Show::Lonely) => channels.all(|channel| channel.client_count == 0),
            Some(Show::Paused) => total.is_paused || channels.any(|channel| channel.is_paused),
        };
        is_named && is_shown && words.all(|word| name.contains(word))
    }

    fn of_topic(&self, total: &TopicFigures) -> Subject {
        // Only the nodes with an undo can bring messages back.
        let parts = total.nodes.iter().flatten();
        let touched = parts.filter(|part| self.action != Act::Unempty || part.undo.is_some());
        let mut subject = Subject {
            topic: total.topic_name.clone(),
            depth: total.depth,
            nodes: touched.map(|part| part.node.clone()).collect(),
            is_paused: total.is_paused,
            undo: total.undo,
            ..Subject::default()
        };
        // Emptying a topic, and its undo, leave the channels as they are.
        if !matches!(self.action, Act::Empty | Act::Unempty) {
            for channel in &total.channels {
                let part = self.of_channel(channel);
                subject.channels.insert(part.channel);
                subject.depth = subject.depth.saturating_add(part.depth);
                subject.in_flight = subject.in_flight.saturating_add(part.in_flight);
                subject.deferred = subject.deferred.saturating_add(part.deferred);
                subject.consumers = subject.consumers.saturating_add(part.consumers);
            }
        }
        subject
    }

    fn of_channel(&self, channel: &ChannelFigures) -> Subject {
        // Only the nodes with an undo can bring messages back.
        let parts = channel.nodes.iter().flatten();
        let touched = parts.filter(|part| self.action != Act::Unempty || part.undo.is_some());
        Subject {
            topic: channel.topic_name.clone(),
            channel: channel.channel_name.clone(),
            nodes: touched.map(|part| part.node.clone()).collect(),
            channels: BTreeSet::new(),
            depth: channel.depth,
            in_flight: channel.in_flight_count,
            deferred: channel.deferred_count,
            consumers: channel.client_count,
            is_paused: channel.is_paused,
            undo: channel.undo,
        }
    }

    /// Returns true if the action would change the subject.
    pub fn has_work(&self, subject: &Subject) -> bool {
        match self.action {
            Act::Pause | Act::Delete | Act::Create => true,
            Act::Unpause => subject.is_paused,
            Act::Empty => subject.message_count() > 0,
            Act::Unempty => subject.undo.is_some(),
        }
    }

    /// Returns the token of a listing. The token is the same in every nsqadmin of the same build.
    pub fn token(&self, subjects: &[Subject]) -> String {
        let mut hasher = DefaultHasher::new();
        let terms = (&self.limit, &self.undo);
        (self.action, self.of, terms).hash(&mut hasher);
        for subject in subjects {
            let Subject { topic, channel, .. } = subject;
            (topic, channel, &subject.nodes, &subject.channels).hash(&mut hasher);
            // An undo stays as it is until somebody empties the topic or channel again.
            if self.action == Act::Unempty {
                let undo = subject.undo.map(|undo| (undo.until_ms, undo.message_count));
                undo.hash(&mut hasher);
            }
        }
        format!("{:016x}", hasher.finish())
    }
}

impl Subject {
    /// Returns true if nothing of it outlives its last consumer. nsqd has no undo for it.
    pub fn is_ephemeral(&self) -> bool {
        let names = [&self.topic, &self.channel];
        names.iter().any(|name| name.ends_with("#ephemeral"))
    }

    /// Returns the number of all its messages.
    pub fn message_count(&self) -> i64 {
        nsq_doctor::sum([self.depth, self.in_flight, self.deferred])
    }
}

#[cfg(test)]
mod tests;
