//! [`Sample`]: what all nodes said at one moment.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nsq_http::{NodeInfo, Stats};

use crate::cluster::{Answer, Cluster, Failure, QueryError};
use crate::flags::Sources;

/// The figures of all nodes at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// The time since the start of the tool.
    pub(super) at: Duration,
    /// The wall clock, in seconds since the Unix epoch.
    pub(super) unix_seconds: i64,
    /// The nodes that answered.
    pub(super) nodes: BTreeMap<String, NodeFigures>,
    /// The nodes that did not answer.
    pub(super) failures: Vec<Failure>,
    /// The nsqlookupds that did not answer.
    pub(super) lookupd_failures: Vec<Failure>,
}

/// The figures of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NodeFigures {
    /// The answer of `/stats`.
    pub(super) stats: Stats,
    /// The value of `--shards`. `None` for a node that is not ringq's.
    pub(super) shards: Option<u64>,
}

impl Sample {
    /// Returns the reasons why the sample lacks nodes, each as a line for the user.
    pub(super) fn problems(&self) -> Vec<String> {
        let failures = self.lookupd_failures.iter().chain(&self.failures);
        let mut lines: Vec<String> = failures.map(problem).collect();
        if self.nodes.is_empty() && lines.is_empty() {
            lines.push("no nsqlookupd knows an nsqd".to_owned());
        }
        lines
    }
}

/// Returns the failure of one address as a line for the user. The line names the address once: the
/// reason also has the address in the URL and in the name of the operation.
pub(super) fn problem(failure: &Failure) -> String {
    let Failure { address, why } = failure;
    let reason = match why.split_once("\": ") {
        Some((request, reason)) if request.starts_with("Get \"http") => reason,
        _ => why,
    };
    let reason = reason.replace(&format!("dial tcp {address}: "), "");
    format!("{address} gives no figures: {reason}")
}

/// Returns the answer of those that answered, perhaps of nobody.
fn partial<T>(asked: Result<Answer<Vec<T>>, QueryError>) -> Answer<Vec<T>> {
    asked.unwrap_or_else(|error| Answer {
        data: Vec::new(),
        failures: error.failures,
    })
}

/// Asks the nodes for their figures.
#[derive(Debug)]
pub(super) struct Sampler {
    cluster: Cluster,
    sources: Sources,
    /// Only this topic, or all topics if the name is empty.
    topic: String,
    /// Only channels of this name, or all channels if the name is empty.
    channel: String,
    began: Instant,
    /// The value of `--shards` of each node, and the start of the process that said it.
    shards: BTreeMap<String, (i64, Option<u64>)>,
}

impl Sampler {
    pub(super) fn new(cluster: Cluster, sources: &Sources, topic: &str, channel: &str) -> Sampler {
        Sampler {
            cluster,
            sources: sources.clone(),
            topic: topic.to_owned(),
            channel: channel.to_owned(),
            began: Instant::now(),
            shards: BTreeMap::new(),
        }
    }

    /// Asks all nodes, and waits for their answers.
    pub(super) fn sample(&mut self) -> Sample {
        let (addresses, lookupd_failures) = self.nodes();
        let (topic, channel) = (&self.topic, &self.channel);
        let answer = partial(self.cluster.stats(&addresses, topic, channel, true));
        let mut nodes = BTreeMap::new();
        for (address, stats) in answer.data {
            let shards = self.shards_of(&address, stats.start_time);
            nodes.insert(address, NodeFigures { stats, shards });
        }
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_seconds = since_1970.map_or(0, |since| since.as_secs());
        Sample {
            at: self.began.elapsed(),
            unix_seconds: i64::try_from(unix_seconds).unwrap_or(i64::MAX),
            nodes,
            failures: answer.failures,
            lookupd_failures,
        }
    }

    /// Returns the addresses of the nodes, and the nsqlookupds that do not answer. Nodes that the user named have the
    /// address that the user named, which may not be the one that they broadcast.
    fn nodes(&self) -> (Vec<String>, Vec<Failure>) {
        match &self.sources {
            Sources::Nsqds(addresses) => (addresses.clone(), Vec::new()),
            Sources::Lookupds(lookupds) => {
                let answer = partial(self.cluster.nodes(lookupds));
                let nodes = answer.data.iter().map(NodeInfo::http_address);
                (nodes.collect(), answer.failures)
            }
        }
    }

    /// Returns the value of `--shards` of a node, which is asked once for each start of the node.
    fn shards_of(&mut self, address: &str, start_time: i64) -> Option<u64> {
        match self.shards.get(address) {
            Some((known_start, shards)) if *known_start == start_time => *shards,
            _ => {
                // Only ringq's nsqd has this key.
                let shards = self.cluster.config_value(address, "shards").ok();
                self.shards.insert(address.to_owned(), (start_time, shards));
                shards
            }
        }
    }
}
