//! The survey of all servers, for a checkup.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use reqwest::Method;

use super::{Cluster, REQUESTS_MAX, Stats, Target, with_advice};
use crate::answer;
use crate::checkup::{LookupdRound, NodeMetrics};
use crate::figures::NodeIdentity;
use crate::node::host_port;
use crate::outcome::Warnings;
use crate::upstream::{Failed, Server, Upstream};

/// The metrics of a node without those of topics: no topic has this name.
const MACHINE_METRICS: &str = "/metrics?topic=%20";

/// The answers of a node.
#[derive(Debug)]
pub struct Surveyed {
    /// The node.
    pub node: NodeIdentity,
    /// The figures with all clients.
    pub stats: Result<answer::Stats, Failed>,
    /// The shards and the disk. `None` if the node does not tell them.
    pub metrics: Option<NodeMetrics>,
    /// The build of the node. `None` if the node did not tell it in this round.
    pub build: Option<Build>,
}

/// The build of a node, which stays the same until the node is started anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Build {
    /// The start of the node, in seconds since 1970.
    start_time: i64,
    /// The version of ringq. Empty for another nsqd.
    pub ringq_version: String,
}

/// The builds of nodes by `host:port`.
pub type Builds = BTreeMap<String, Build>;

impl Cluster {
    /// Asks nodes for everything that a checkup needs. `targets` beyond the limit on nodes are left out
    /// with a warning. Nodes in `builds` are not asked what they are, unless they were started anew.
    pub async fn survey(
        &self,
        targets: Vec<Target>,
        builds: &Builds,
        warnings: &mut Warnings,
    ) -> Vec<Surveyed> {
        let targets = self.within_limit(targets, warnings);
        let path = Stats {
            has_clients: true,
            ..Stats::default()
        };
        let path = path.path();
        let asked = targets.into_iter().map(|target| -> BoxFuture<'static, _> {
            let build = builds.get(&target.identity.address).cloned();
            survey_of(self.upstream.clone(), target, path.clone(), build).boxed()
        });
        let asked: Vec<_> = asked.collect();
        stream::iter(asked).buffered(REQUESTS_MAX).collect().await
    }

    /// Asks each nsqlookupd for its nodes.
    pub async fn lookupd_rounds(&self) -> BTreeMap<String, LookupdRound> {
        let asked = self
            .lookupds()
            .into_iter()
            .map(|lookupd| -> BoxFuture<'static, _> {
                let upstream = self.upstream.clone();
                async move {
                    let url = format!("http://{lookupd}/nodes");
                    let round = match upstream
                        .get::<answer::Nodes>(Server::Nsqlookupd, &url)
                        .await
                    {
                        Ok(nodes) => LookupdRound::Knows(addresses(&nodes)),
                        Err(failed) => LookupdRound::Failed(failed.why),
                    };
                    (lookupd, round)
                }
                .boxed()
            });
        let asked: Vec<_> = asked.collect();
        stream::iter(asked).buffered(REQUESTS_MAX).collect().await
    }

    /// Returns the nsqds of direct mode that are not among these targets, because they did not say what
    /// they are.
    pub fn silent_nsqds(&self, targets: &[Target]) -> Vec<String> {
        if self.is_lookup_mode() {
            return Vec::new();
        }
        let is_known = |address: &String| {
            let url = format!("http://{address}");
            targets.iter().any(|target| target.url == url)
        };
        let silent = self.nsqds.iter().filter(|address| !is_known(address));
        silent.cloned().collect()
    }
}

fn addresses(nodes: &answer::Nodes) -> BTreeSet<String> {
    let producers = nodes.producers.iter();
    producers
        .map(|node| host_port(&node.broadcast_address, node.http_port))
        .collect()
}

async fn survey_of(
    upstream: Upstream,
    target: Target,
    path: String,
    known: Option<Build>,
) -> Surveyed {
    let url = format!("{}{path}", target.url);
    let stats = upstream.get::<answer::Stats>(Server::Nsqd, &url).await;
    let stats =
        stats.map_err(|failed| with_advice(failed, &target.identity.address, target.is_given));
    // Only ringq's nsqd has shards and these metrics.
    let may_have = stats.as_ref().is_ok_and(|stats| {
        stats.topics.is_empty() || stats.topics.iter().any(|topic| topic.shard.is_some())
    });
    let metrics = match may_have {
        true => metrics_of(&upstream, &target.url).await,
        false => None,
    };
    let build = match &stats {
        Ok(stats) => build_of(&upstream, &target.url, stats.start_time, known).await,
        Err(_) => None,
    };
    Surveyed {
        node: target.identity,
        stats,
        metrics,
        build,
    }
}

/// Returns the build that is known, or asks a node that was started since then.
async fn build_of(
    upstream: &Upstream,
    url: &str,
    start_time: i64,
    known: Option<Build>,
) -> Option<Build> {
    let known = known.filter(|known| known.start_time == start_time);
    if known.is_some() {
        return known;
    }
    // A node that does not answer here is asked again in the next round.
    let url = format!("{url}/info");
    let info = upstream.get::<answer::Producer>(Server::Nsqd, &url).await;
    Some(Build {
        start_time,
        ringq_version: info.ok()?.ringq_version.unwrap_or_default(),
    })
}

async fn metrics_of(upstream: &Upstream, url: &str) -> Option<NodeMetrics> {
    let url = format!("{url}{MACHINE_METRICS}");
    // A node that has answered and fails here has no metrics in this round.
    let (status, body) = upstream
        .answer(Method::GET, Server::Nsqd, &url)
        .await
        .ok()?;
    match status {
        200 => NodeMetrics::of_metrics(&String::from_utf8_lossy(&body)),
        _ => None,
    }
}
