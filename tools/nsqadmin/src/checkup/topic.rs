//! [`Unclaimed`]: messages wait in the topic itself, because the topic has no channel at their node.

use std::collections::BTreeMap;

use nsq_doctor::{Paused, Unreached, sum};

use super::and_more;
use super::concern::{Concern, Subject};
use super::round::{Round, TopicNode, TopicNodes};

/// The age in milliseconds from which an unclaimed message counts as old. A topic that is new at a node has no channel
/// for a moment.
const OLD_MILLIS: i64 = 10_000;

/// Most nodes, and most channels of other nodes, that a sentence names.
const NAMED_MAX: usize = 2;

/// The nodes at which messages are unclaimed, as topic and node, with the time of the first round that said so, in
/// steady milliseconds. nsqd 1.3.0 does not tell the age of a message, so this time stands for it.
#[derive(Debug, Default)]
pub(super) struct Unclaimed(BTreeMap<(String, String), i64>);

impl Unclaimed {
    /// Takes the next round. Returns the concerns about topics with unclaimed messages.
    pub(super) fn next(&mut self, round: &Round) -> Vec<Concern> {
        let node_of = |topic: &String, node: &String| round.topics.get(topic)?.get(node);
        self.0.retain(|(topic, node), _| {
            // A node that does not answer once has its messages still.
            round.is_silent(node) || node_of(topic, node).is_some_and(TopicNode::is_unclaimed)
        });
        let topics = round.topics.iter();
        topics
            .filter_map(|(name, topic)| self.concern(name, topic, round))
            .collect()
    }

    fn concern(&mut self, name: &str, topic: &TopicNodes, round: &Round) -> Option<Concern> {
        let nodes = topic.iter();
        let mut unclaimed: Vec<_> = nodes.filter(|(_, node)| node.is_unclaimed()).collect();
        let has_channels = topic.values().any(|node| node.channel_count > 0);
        if has_channels {
            unclaimed.retain(|(address, node)| {
                let key = (name.to_owned(), (*address).clone());
                let since = *self.0.entry(key).or_insert(round.now.steady_millis);
                let watched = round.now.steady_millis.saturating_sub(since);
                node.oldest_ms.unwrap_or(watched) >= OLD_MILLIS
            });
        }
        if unclaimed.is_empty() {
            return None;
        }
        let depth = sum(unclaimed.iter().map(|(_, node)| node.depth));
        let oldest_ms = unclaimed
            .iter()
            .filter_map(|(_, node)| node.oldest_ms)
            .max();
        let missing = match round.dead_letters.get(name) {
            _ if has_channels => {
                let nodes = unclaimed.iter().map(|(address, _)| (*address).clone());
                let nodes = nodes.collect();
                at_some_nodes(&Unreached { nodes, depth }, name, round)
            }
            Some(from) => format!(
                "Dead letters of {from} wait in the topic: look at them, then publish them again or empty the topic"
            ),
            None => "No channel: messages wait in the topic for the first one; start a consumer"
                .to_owned(),
        };
        // Somebody wanted the pause. What is wrong at the other nodes comes first, as in the doctor's sentences.
        let paused = unclaimed.iter().filter(|(_, node)| node.pause.is_some());
        let sentence = match (paused.count(), pause_of(topic)) {
            (0, _) | (_, None) => missing,
            (count, Some(paused)) if count == unclaimed.len() => format!("{paused}. {missing}"),
            (_, Some(paused)) => format!("{missing}. {paused}"),
        };
        Some(Concern {
            depth,
            oldest_ms,
            is_older: oldest_ms.is_some_and(|age| age >= OLD_MILLIS),
            ..Concern::new(Subject::Topic(name.to_owned()), sentence)
        })
    }
}

/// Returns the pauses of a topic at its nodes.
fn pause_of(topic: &TopicNodes) -> Option<Paused> {
    let nodes = topic.values();
    let found = nodes.filter_map(|node| Some((node.pause.clone()?, node.depth)));
    Paused::new(true, found.collect(), topic.len())
}

/// Returns the sentence about nodes without a channel of a topic that has channels at other nodes.
fn at_some_nodes(unreached: &Unreached, topic: &str, round: &Round) -> String {
    let first = (topic.to_owned(), String::new());
    let channels = round.channels.range(first..);
    let channels = channels.take_while(|((of, _), _)| of == topic);
    let mut channels = channels.map(|((_, name), _)| name.as_str());
    let named: Vec<&str> = channels.by_ref().take(NAMED_MAX).collect();
    let more = and_more(channels.count());
    format!(
        "No channel at {unreached}; other nodes have {}{more}. Connect the consumers to every node: nsqlookupd names it, unless \
         the topic is tombstoned there. Or create the channel on the page Lookup, which creates it at all nodes",
        named.join(", ")
    )
}
