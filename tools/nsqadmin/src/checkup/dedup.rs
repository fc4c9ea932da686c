//! [`Dedup`]: topics that forget early what they have stored. They store copies that their rule of `--dedup` should have
//! recognised.

use std::collections::{BTreeMap, VecDeque};

use nsq_doctor::{duration, short, sum};

use super::round::{Forgotten, Round};
use super::{Concern, Subject};

/// The time over which counts are compared, in milliseconds. nsqd asks for memory for keys only now and then.
const WINDOW_MILLIS: i64 = 600_000;

/// The smallest time between two counts that are kept, in milliseconds. A rate of publishers needs as much.
const STEP_MILLIS: i64 = 60_000;

/// The time for which a publisher has to be remembered after its last message, in seconds. A publisher that is forgotten later
/// does no harm: even producers that draw a new id at each start fill the table some time.
const REMEMBERED_SECONDS_MIN: f64 = 3600.0;

/// Most nodes that a sentence names.
const NAMED_MAX: usize = 2;

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
            let answer = round.nodes.get(node);
            // A node that does not answer once goes on with its counts.
            let is_silent = answer.is_some_and(|answer| answer.failure.is_some());
            is_silent
                || round
                    .topics
                    .get(topic)
                    .is_some_and(|it| it.nodes.contains_key(node))
        });
        let mut concerns = Vec::new();
        for (name, topic) in &round.topics {
            let growths = topic.nodes.iter().filter_map(|(address, node)| {
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
    let evicted = now
        .forgotten
        .evicted
        .saturating_sub(first.forgotten.evicted);
    #[allow(clippy::cast_precision_loss)] // A time needs no more.
    let remembered =
        |publishers: i64| publishers as f64 * (age(first) as f64 / 1000.0) / evicted as f64;
    let is_rate = evicted > 0 && age(first) >= STEP_MILLIS;
    Growth {
        node,
        refused: now
            .forgotten
            .refused
            .saturating_sub(first.forgotten.refused),
        remembered_seconds: is_rate.then(|| remembered(now.forgotten.publishers_max)),
        publishers_max: now.forgotten.publishers_max,
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
    match nodes.len().saturating_sub(NAMED_MAX) {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}

#[cfg(test)]
mod tests;
