//! The survey of all servers, for a checkup.

use std::collections::BTreeMap;

use nsq_http::NodeInfo;

use super::stats::answered_now;
use super::{Cluster, Stats, Target, Warnings};
use crate::checkup::NodeMetrics;
use crate::figures::{Answered, NodeIdentity};
use crate::upstream::{Failed, Server, Upstream};

/// The metrics of a node without those of topics: no topic has this name.
const MACHINE_METRICS: &str = "/metrics?topic=%20";

/// The answers of a node.
#[derive(Debug)]
pub struct Surveyed {
    /// The node.
    pub node: NodeIdentity,
    /// The figures with all clients, and the time of this answer.
    pub stats: Result<(nsq_http::Stats, Answered), Failed>,
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

impl Surveyed {
    /// Asks nodes for everything that a checkup needs. `targets` beyond the limit on nodes are left out
    /// with a warning. Nodes in `builds` are not asked what they are, unless they were started anew.
    pub async fn of_all(
        cluster: &Cluster,
        targets: Vec<Target>,
        builds: &Builds,
        warnings: &mut Warnings,
    ) -> Vec<Surveyed> {
        let targets = cluster.within_limit(targets, warnings);
        let path = Stats::default().with_clients().path();
        let asked = cluster.each(targets, |upstream, target| {
            let build = builds.get(&target.identity.address).cloned();
            survey_of(upstream, target, path.clone(), build)
        });
        asked.await
    }
}

async fn survey_of(
    upstream: Upstream,
    target: Target,
    path: String,
    known: Option<Build>,
) -> Surveyed {
    let url = format!("{}{path}", target.url);
    let stats = upstream.get::<nsq_http::Stats>(Server::Nsqd, &url).await;
    let answered = stats.as_ref().map(answered_now).unwrap_or_default();
    let stats = stats.map(|stats| (stats, answered));
    let stats = stats.map_err(|failed| target.with_advice(failed));
    // Only ringq's nsqd has shards and these metrics.
    let may_have = stats.as_ref().is_ok_and(|(stats, _)| {
        stats.topics.is_empty() || stats.topics.iter().any(|topic| topic.shard.is_some())
    });
    let (mut metrics, mut build) = (None, None);
    if may_have {
        metrics = metrics_of(&upstream, &target.url).await;
    }
    if let Ok((_, answered)) = &stats {
        build = build_of(&upstream, &target.url, answered.start_time, known).await;
    }
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
    let info = upstream.get::<NodeInfo>(Server::Nsqd, &url).await;
    Some(Build {
        start_time,
        ringq_version: info.ok()?.ringq_version.unwrap_or_default(),
    })
}

async fn metrics_of(upstream: &Upstream, url: &str) -> Option<NodeMetrics> {
    let url = format!("{url}{MACHINE_METRICS}");
    // A node that has answered and fails here has no metrics in this round.
    let (status, body) = upstream.answer(&url).await.ok()?;
    match status {
        200 => NodeMetrics::of_metrics(&String::from_utf8_lossy(&body)),
        _ => None,
    }
}
