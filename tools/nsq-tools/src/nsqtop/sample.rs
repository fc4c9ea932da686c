//! [`Sample`]: what all nodes said at one moment.

use std::collections::BTreeMap;
use std::time::Duration;

use nsq_http::Stats;

use crate::cluster::Failure;

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
