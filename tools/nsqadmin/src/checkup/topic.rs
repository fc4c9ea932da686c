//! What is wrong with a topic as a whole. [`Unclaimed`]: messages wait in the topic itself, because the topic has no
//! channel at their node. [`Dedup`]: the topic forgets early what it has stored, and stores copies that its rule of
//! `--dedup` should have recognised.

use std::collections::{BTreeMap, VecDeque};

use nsq_doctor::{Paused, Unreached, duration, short, sum};

use super::and_more;
use super::concern::{Concern, Subject};
use super::round::{Forgotten, Round, TopicNode, TopicNodes};

/// The age in milliseconds from which an unclaimed message counts as old. A topic that is new at a node has no channel
/// for a moment.
const OLD_MILLIS: i64 = 10_000;

/// Most nodes, and most channels of other nodes, that a sentence names.
const NAMED_MAX: usize = 2;

/// The time over which counts are compared, in milliseconds. nsqd asks for memory for keys only now and then.
const WINDOW_MILLIS: i64 = 600_000;

/// The smallest time between two counts that are kept, in milliseconds. A rate of publishers needs as much.
const STEP_MILLIS: i64 = 60_000;

/// The time for which a publisher has to be remembered after its last message, in seconds. A publisher that is
/// forgotten later does no harm: even producers that draw a new id at each start fill the table some time.
const REMEMBERED_SECONDS_MIN: f64 = 3600.0;

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

/// The counts of the last minutes, by topic and node.
#[derive(Debug, Default)]
pub(super) struct Dedup(BTreeMap<(String, String), VecDeque<Counts>>);

/// The counts of a topic on a node at one time.
#[derive(Clone, Copy, Debug)]
struct Counts {
    /// The time, in steady milliseconds.
    steady_millis: i64,
    forgotten: Forgotten,
}

/// The growth of the counts in the last minutes.
struct Growth<'a> {
    node: &'a str,
    /// Times that the system refused memory.
    refused: i64,
    /// The seconds after its last message at which a publisher is forgotten, if others take its place.
    remembered_seconds: Option<f64>,
    publishers_max: i64,
}

impl Dedup {
    /// Takes the next round. Returns the concerns about topics that forget early.
    pub(super) fn next(&mut self, round: &Round) -> Vec<Concern> {
        self.0.retain(|(topic, node), _| {
            let told = round.topics.get(topic);
            let is_told = told.is_some_and(|nodes| nodes.contains_key(node));
            // A node that does not answer once goes on with its counts.
            is_told || round.is_silent(node)
        });
        let mut concerns = Vec::new();
        for (name, topic) in &round.topics {
            let growths = topic.iter().filter_map(|(address, node)| {
                let now = Counts {
                    steady_millis: round.now.steady_millis,
                    forgotten: node.forgotten?,
                };
                let key = (name.clone(), address.clone());
                let counts = self.0.entry(key).or_default();
                Some(growth(address, counts, now))
            });
            let growths: Vec<Growth<'_>> = growths.collect();
            let sentences = [of_refusals(&growths), of_publishers(&growths)];
            let sentences = sentences.into_iter().flatten();
            let subject = || Subject::Topic(name.clone());
            concerns.extend(sentences.map(|sentence| Concern::new(subject(), sentence)));
        }
        concerns
    }
}

/// Adds the counts of now. Returns the growth since the earliest counts that are not too old.
fn growth<'a>(node: &'a str, counts: &mut VecDeque<Counts>, now: Counts) -> Growth<'a> {
    let age = |earlier: &Counts| now.steady_millis - earlier.steady_millis;
    // A node that has started anew counts from 0. One that was silent for long has counts that are too old.
    let is_earlier = |earlier: &Counts| {
        age(earlier) <= WINDOW_MILLIS
            && earlier.forgotten.refused <= now.forgotten.refused
            && earlier.forgotten.evicted <= now.forgotten.evicted
    };
    counts.retain(is_earlier);
    if counts.back().is_none_or(|last| age(last) >= STEP_MILLIS) {
        counts.push_back(now);
    }
    let first = counts.front().unwrap_or(&now);
    let (before, after) = (&first.forgotten, &now.forgotten);
    let evicted = after.evicted.saturating_sub(before.evicted);
    #[allow(clippy::cast_precision_loss)] // A time needs no more.
    let remembered =
        |publishers: i64| publishers as f64 * (age(first) as f64 / 1000.0) / evicted as f64;
    let is_rate = evicted > 0 && age(first) >= STEP_MILLIS;
    Growth {
        node,
        refused: after.refused.saturating_sub(before.refused),
        remembered_seconds: is_rate.then(|| remembered(after.publishers_max)),
        publishers_max: after.publishers_max,
    }
}

/// Returns the sentence about memory that the system refused.
#[allow(clippy::cast_precision_loss)] // Only some digits are shown.
fn of_refusals(growths: &[Growth<'_>]) -> Option<String> {
    let nodes: Vec<_> = growths.iter().filter(|it| it.refused > 0).collect();
    let times = match sum(nodes.iter().map(|it| it.refused)) {
        0 => return None,
        1 => "once".to_owned(),
        times => format!("{} times", short(times as f64)),
    };
    Some(format!(
        "In the last {}, the system refused memory for keys of --dedup {times} at {}, so the topic forgets keys early, and copies \
         may be stored. Raise the limit of the address space of nsqd (ulimit -v, LimitAS), set vm.overcommit_memory to 0, or \
         give the topic's rule a smaller memory=",
        duration(WINDOW_MILLIS as f64 / 1000.0),
        named(&nodes)
    ))
}

/// Returns the sentence about publishers that are forgotten early.
fn of_publishers(growths: &[Growth<'_>]) -> Option<String> {
    let nodes = growths.iter().filter_map(|it| {
        let seconds = it.remembered_seconds?;
        (seconds < REMEMBERED_SECONDS_MIN).then_some((seconds, it))
    });
    let nodes: Vec<_> = nodes.collect();
    let (seconds, worst) = nodes.iter().min_by(|(a, _), (b, _)| a.total_cmp(b))?;
    let nodes: Vec<_> = nodes.iter().map(|(_, it)| *it).collect();
    Some(format!(
        "A publisher is forgotten {} after its last message at {}, because others need its place, and copies that come later are \
         stored. Raise memory= of the topic's rule --dedup=...=publisher, which has room for {} publishers, or let the \
         producers keep their ids",
        duration(*seconds),
        named(&nodes),
        worst.publishers_max
    ))
}

/// Returns the names of some of the nodes.
fn named(nodes: &[&Growth<'_>]) -> String {
    let names = nodes.iter().take(NAMED_MAX).map(|it| it.node);
    let names = names.collect::<Vec<_>>().join(", ");
    names + &and_more(nodes.len().saturating_sub(NAMED_MAX))
}
