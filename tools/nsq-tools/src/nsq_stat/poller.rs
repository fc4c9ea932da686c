//! [`Poller`]: asks the cluster for the figures of the channel.
//!
//! The original ends if any address does not answer. This tool ends if no address answers. A node
//! that does not answer counts with its last figures, so the rates of the other nodes stay right, and
//! a warning names the node. If no node that answers has the channel, the tool waits for the others.

use std::collections::{BTreeMap, BTreeSet};

use super::config::{Config, Flags};
use super::table::Figures;
use crate::cluster::{Answer, Cluster, Failure, QueryError};
use nsq_http::{ChannelStats, NodeInfo, Stats};

/// The figures of one poll.
#[derive(Debug)]
pub(super) struct Poll {
    /// `None` while only addresses that do not answer can have the channel.
    pub(super) figures: Option<Figures>,
    /// The addresses that have stopped answering since the last poll, or answer again.
    pub(super) warnings: Vec<String>,
}

/// Asks for the figures, and remembers what it last heard of each node.
#[derive(Debug)]
pub(super) struct Poller<'a> {
    cluster: Cluster,
    config: &'a Config,
    memory: Memory,
}

/// The result of the last poll.
#[derive(Debug, Default)]
struct Memory {
    /// The nodes, each with its last figures. A node without the channel has none.
    nodes: BTreeMap<String, Option<ChannelStats>>,
    /// The addresses that did not answer.
    silent: BTreeSet<String>,
    /// True if the last poll found the channel nowhere. Its warning has been given.
    is_waiting: bool,
}

impl<'a> Poller<'a> {
    pub(super) fn new(config: &'a Config) -> Poller<'a> {
        Poller {
            cluster: Cluster::new(config.flags.timeouts),
            config,
            memory: Memory::default(),
        }
    }

    /// Asks for the figures. The error is the reason for the user.
    pub(super) fn poll(&mut self) -> Result<Poll, String> {
        let Flags { topic, channel, .. } = &self.config.flags;
        let found = self.cluster.nodes_of_topic(&self.config.sources, topic);
        let found = without_topic(found)
            .map_err(|error| format!("failed to get topic producers - {error}"))?;
        let mut nodes: BTreeSet<String> = found.data.iter().map(NodeInfo::http_address).collect();
        if !found.failures.is_empty() {
            nodes.extend(self.memory.nodes.keys().cloned());
        }
        let nodes: Vec<String> = nodes.into_iter().collect();
        let mut stats = Answer {
            data: Vec::new(),
            failures: Vec::new(),
        };
        if !nodes.is_empty() || found.failures.is_empty() {
            stats = self
                .cluster
                .stats(&nodes, topic, channel, false)
                .map_err(|error| format!("failed to get nsqd stats - {error}"))?;
        }
        let answered = stats.data.iter().map(|(address, stats)| {
            let channel = channel_of(stats, topic, channel);
            (address.clone(), channel.cloned())
        });
        let answered = answered.collect();
        let mut warnings = self
            .memory
            .update(&nodes, answered, &found.failures, &stats.failures);
        let mut figures = Figures::default();
        let mut has_channel = false;
        for figures_of_node in self.memory.nodes.values().flatten() {
            figures.add(figures_of_node);
            has_channel = true;
        }
        let was_waiting = std::mem::replace(&mut self.memory.is_waiting, !has_channel);
        if has_channel {
            return Ok(Poll {
                figures: Some(figures),
                warnings,
            });
        }
        let missing =
            format!("failed to find channel({channel}) in stats metadata for topic({topic})");
        if found.failures.is_empty() && stats.failures.is_empty() {
            return Err(missing);
        }
        if !was_waiting {
            warnings.push(format!(
                "{missing}; waiting for the addresses that do not answer"
            ));
        }
        Ok(Poll {
            figures: None,
            warnings,
        })
    }
}

/// Takes the nsqlookupds that do not know the topic for answers. nsqlookupd answers a question for an unknown topic with an
/// error. If none knows the topic and all have answered, this stays an error.
fn without_topic(
    found: Result<Answer<Vec<NodeInfo>>, QueryError>,
) -> Result<Answer<Vec<NodeInfo>>, QueryError> {
    let is_silent = |failure: &Failure| !failure.why.contains("TOPIC_NOT_FOUND");
    match found {
        Ok(mut found) => {
            found.failures.retain(is_silent);
            Ok(found)
        }
        Err(error) => {
            let all = error.failures();
            let silent: Vec<Failure> = all.iter().filter(|it| is_silent(it)).cloned().collect();
            if silent.is_empty() || silent.len() == all.len() {
                Err(error)
            } else {
                Ok(Answer {
                    data: Vec::new(),
                    failures: silent,
                })
            }
        }
    }
}

impl Memory {
    /// Takes what a poll has found. `nodes` are all nodes with the topic, and `answered` those that
    /// have answered. Returns the warnings.
    fn update(
        &mut self,
        nodes: &[String],
        mut answered: BTreeMap<String, Option<ChannelStats>>,
        silent_sources: &[Failure],
        silent_nodes: &[Failure],
    ) -> Vec<String> {
        let mut last = std::mem::take(&mut self.nodes);
        for node in nodes {
            let channel = match answered.remove(node) {
                Some(channel) => channel,
                None => last.remove(node).flatten(),
            };
            self.nodes.insert(node.clone(), channel);
        }
        let mut silent = BTreeMap::new();
        for failure in silent_sources {
            let text = format!("{} does not answer - {}", failure.address, failure.why);
            silent.insert(failure.address.clone(), text);
        }
        for failure in silent_nodes {
            let text = format!(
                "nsqd {} does not answer, its last figures count - {}",
                failure.address, failure.why
            );
            silent.insert(failure.address.clone(), text);
        }
        let again = self
            .silent
            .iter()
            .filter(|address| !silent.contains_key(*address));
        let again: Vec<String> = again
            .map(|address| format!("{address} answers again"))
            .collect();
        let new = silent
            .iter()
            .filter(|(address, _)| !self.silent.contains(*address));
        let mut warnings: Vec<String> = new.map(|(_, text)| text.clone()).collect();
        warnings.extend(again);
        self.silent = silent.into_keys().collect();
        warnings
    }
}

/// Returns the figures of the channel in the statistics of one node.
fn channel_of<'a>(stats: &'a Stats, topic: &str, channel: &str) -> Option<&'a ChannelStats> {
    let topics = stats
        .topics
        .iter()
        .filter(|known| known.topic_name == topic);
    topics
        .flat_map(|topic| &topic.channels)
        .find(|known| known.channel_name == channel)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(address: &str) -> Failure {
        Failure {
            address: address.to_owned(),
            why: "refused".to_owned(),
        }
    }

    fn with_depth(depth: i64) -> Option<ChannelStats> {
        Some(ChannelStats {
            depth,
            ..Default::default()
        })
    }

    #[test]
    fn a_silent_node_keeps_its_last_figures_and_is_named_once() {
        let (a, b) = ("a:1".to_owned(), "b:1".to_owned());
        let nodes = [a.clone(), b.clone()];
        let depths = |memory: &Memory| -> Vec<Option<i64>> {
            let channels = memory.nodes.values();
            channels
                .map(|channel| Some(channel.as_ref()?.depth))
                .collect()
        };
        let mut memory = Memory::default();
        let both = BTreeMap::from([(a.clone(), with_depth(1)), (b.clone(), with_depth(2))]);
        assert_eq!(memory.update(&nodes, both, &[], &[]), [""; 0]);
        for warnings in [
            &["nsqd b:1 does not answer, its last figures count - refused"][..],
            &[],
        ] {
            let one = BTreeMap::from([(a.clone(), with_depth(5))]);
            assert_eq!(memory.update(&nodes, one, &[], &[failure("b:1")]), warnings);
            assert_eq!(depths(&memory), [Some(5), Some(2)]);
        }
        let both = BTreeMap::from([(a.clone(), with_depth(6)), (b.clone(), None)]);
        let warnings = memory.update(&nodes, both, &[failure("l:1")], &[]);
        assert_eq!(
            warnings,
            ["l:1 does not answer - refused", "b:1 answers again"]
        );
        assert_eq!(depths(&memory), [Some(6), None]);
        // A node that has left the cluster no longer counts.
        let one = BTreeMap::from([(b.clone(), with_depth(3))]);
        assert_eq!(
            memory.update(&nodes[1..], one, &[], &[]),
            ["l:1 answers again"]
        );
        assert_eq!(depths(&memory), [Some(3)]);
    }
}
