//! [`Sampler`]: asks the nodes for their figures.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use nsq_http::NodeInfo;

use super::config::{Config, Flags};
use super::sample::{NodeFigures, Sample};
use crate::cluster::{Cluster, Failure, QueryError, Sources};

/// Asks the nodes for their figures.
#[derive(Debug)]
pub(super) struct Sampler {
    cluster: Cluster,
    config: Config,
    began: Instant,
    /// The value of `--shards` of each node, and the start of the process that said it.
    shards: BTreeMap<String, (i64, Option<u64>)>,
}

impl Sampler {
    pub(super) fn new(config: &Config) -> Sampler {
        Sampler {
            cluster: Cluster::new(config.flags.timeouts),
            config: config.clone(),
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
            let Flags { topic, channel, .. } = &self.config.flags;
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
        match &self.config.sources {
            Sources::Nsqds(addresses) => (addresses.clone(), Vec::new()),
            Sources::Lookupds(_) => match self.cluster.nodes(&self.config.sources) {
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
