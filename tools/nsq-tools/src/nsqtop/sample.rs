//! [`Sample`]: what all nodes said at one moment. [`Sampler`]: asks them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nsq_http::{NodeInfo, Stats};

use crate::cluster::{Cluster, Failure, QueryError, QueryTimeouts, Sources};

/// The figures of all nodes at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The time since the start of the tool.
    pub at: Duration,
    /// The wall clock, in seconds since the Unix epoch.
    pub unix_seconds: i64,
    /// The nodes that answered.
    pub nodes: BTreeMap<String, NodeFigures>,
    /// The nodes that did not answer.
    pub failures: Vec<Failure>,
    /// The nsqlookupds that did not answer.
    pub lookupd_failures: Vec<Failure>,
}

/// The figures of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFigures {
    /// The answer of `/stats`.
    pub stats: Stats,
    /// The value of `--shards`. `None` for a node that is not ringq's.
    pub shards: Option<u64>,
}

impl Sample {
    /// Returns the reasons why the sample lacks nodes, each as a line for the user.
    pub fn problems(&self) -> Vec<String> {
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

/// The nodes that are asked, and the subject of the question.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) sources: Sources,
    /// The only topic. All topics if it is empty.
    pub(super) topic: String,
    /// The only channel of each topic. All channels if it is empty.
    pub(super) channel: String,
    pub(super) timeouts: QueryTimeouts,
}

/// Asks the nodes for their figures.
#[derive(Debug)]
pub(super) struct Sampler {
    cluster: Cluster,
    question: Question,
    began: Instant,
    /// The value of `--shards` of each node, and the start of the process that said it.
    shards: BTreeMap<String, (i64, Option<u64>)>,
}

impl Sampler {
    pub(super) fn new(question: &Question) -> Sampler {
        Sampler {
            cluster: Cluster::new(question.timeouts),
            question: question.clone(),
            began: Instant::now(),
            shards: BTreeMap::new(),
        }
    }

    /// Asks all nodes, and waits for their answers.
    pub(super) fn sample(&mut self) -> Sample {
        let (addresses, lookupd_failures) = self.nodes();
        let mut failures = Vec::new();
        let mut nodes = BTreeMap::new();
        if !addresses.is_empty() {
            let Question { topic, channel, .. } = &self.question;
            match self.cluster.stats(&addresses, topic, channel, true) {
                Ok(answer) => {
                    failures = answer.failures;
                    for (address, stats) in answer.data {
                        let shards = self.shards_of(&address, stats.start_time);
                        nodes.insert(address, NodeFigures { stats, shards });
                    }
                }
                Err(error) => failures = error.into_failures(),
            }
        }
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_seconds = since_1970.map_or(0, |since| since.as_secs());
        Sample {
            at: self.began.elapsed(),
            unix_seconds: i64::try_from(unix_seconds).unwrap_or(i64::MAX),
            nodes,
            failures,
            lookupd_failures,
        }
    }

    /// Returns the addresses of the nodes, and the nsqlookupds that do not answer. Nodes that the user named have the address that the user
    /// named, which may not be the one that they broadcast.
    fn nodes(&self) -> (Vec<String>, Vec<Failure>) {
        match &self.question.sources {
            Sources::Nsqds(addresses) => (addresses.clone(), Vec::new()),
            Sources::Lookupds(_) => match self.cluster.nodes(&self.question.sources) {
                Ok(answer) => {
                    let nodes = answer.data.iter().map(NodeInfo::http_address);
                    (nodes.collect(), answer.failures)
                }
                Err(error) => (Vec::new(), QueryError::into_failures(error)),
            },
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
