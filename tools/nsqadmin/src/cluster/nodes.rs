//! The nodes of a cluster, and their figures.

use std::collections::BTreeSet;

use futures_util::FutureExt;
use nsq_http::query;

use super::given::Given;
use super::{Asked, Cluster, gather};
use crate::figures::{Answered, NodeIdentity, NodeStats};
use crate::node::{self, Node, is_host_and_port};
use crate::now::Now;
use crate::outcome::{Gathered, Refusal, Warnings};
use crate::tally::UpstreamName;
use crate::upstream::{Failed, FailureKind, Server, Upstream, counted_name};

/// An nsqd that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The nsqd.
    pub identity: NodeIdentity,
    /// The URL without a slash at its end.
    pub url: String,
    /// True if the URL was given by the operator, and not by the nsqd.
    pub is_given: bool,
    /// Other addresses that the operator has given for this process in direct mode. They are not asked.
    pub other_addresses: Vec<String>,
}

impl Target {
    /// Adds advice to the failure of an nsqd that cannot be reached at the address that it broadcasts.
    pub(super) fn with_advice(&self, mut failed: Failed) -> Failed {
        if failed.kind == FailureKind::Unreachable && !self.is_given {
            let address = &self.identity.address;
            failed.why.push_str(&format!(
                " (the nsqd broadcasts {address}; if this address cannot be reached from here, name its \
                 URL with --nsqd-url-map={address}=URL)"
            ));
        }
        failed
    }
}

/// The part of `/stats` that an nsqd is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats<'a> {
    /// The topic, or an empty text for all.
    pub topic: &'a str,
    /// The channel, or an empty text for all.
    pub channel: &'a str,
    /// True if the clients are wanted.
    pub has_clients: bool,
    /// True if what the channel keeps on disk is wanted.
    pub has_disk: bool,
}

impl Stats<'_> {
    pub(super) fn path(self) -> String {
        let include_clients = if self.has_clients { "" } else { "false" };
        let include_disk = if self.has_disk { "true" } else { "" };
        let query = query(&[
            ("format", "json"),
            ("topic", self.topic),
            ("channel", self.channel),
            ("include_clients", include_clients),
            ("include_disk", include_disk),
        ]);
        format!("/stats{query}")
    }
}

impl Cluster {
    /// Returns all nodes. In direct mode, `has_topics` decides whether the nodes are asked for their
    /// topics.
    ///
    /// # Errors
    /// No server answered.
    pub async fn nodes(
        &self,
        has_topics: bool,
        warnings: &mut Warnings,
    ) -> Result<Vec<Node>, Refusal> {
        if !self.is_lookup_mode() {
            let nsqds = self.nsqds_directly(has_topics, warnings).await?;
            let mut nodes: Vec<Node> = nsqds.into_iter().map(|nsqd| nsqd.node).collect();
            node::sort(&mut nodes);
            return Ok(nodes);
        }
        let answers = self.ask_lookupds("/nodes").await.into_iter();
        let answers = answers.map(|(lookupd, answer)| Ok((lookupd, answer?.producers)));
        let answers = answers.collect::<Gathered<_>>();
        let answers = answers.or_refuse(Server::Nsqlookupd, warnings)?;
        Ok(node::merge(&answers))
    }

    /// Returns the nsqds of direct mode, each process once and each with an address of its own.
    async fn nsqds_directly(
        &self,
        has_topics: bool,
        warnings: &mut Warnings,
    ) -> Result<Vec<Given>, Refusal> {
        let requests = self.nsqds.iter().cloned().map(|address| -> Asked<_> {
            let upstream = self.upstream.clone();
            async move { given_nsqd(&upstream, address, has_topics).await }.boxed()
        });
        let nsqds = gather(requests.collect()).await;
        let nsqds = nsqds.or_refuse(Server::Nsqd, warnings)?;
        let are_all = nsqds.len() == self.nsqds.len();
        Ok(self.noted.told_apart(nsqds, are_all))
    }

    /// Returns all nodes as targets.
    ///
    /// # Errors
    /// No server answered.
    pub async fn targets(&self, warnings: &mut Warnings) -> Result<Vec<Target>, Refusal> {
        if !self.is_lookup_mode() {
            let nsqds = self.nsqds_directly(false, warnings).await?;
            let targets = nsqds.into_iter().map(|nsqd| Target {
                identity: nsqd.node.identity(),
                url: format!("http://{}", nsqd.address),
                is_given: true,
                other_addresses: nsqd.other_addresses,
            });
            // The operator has named each of them.
            return Ok(targets.collect());
        }
        let nodes = self.nodes(false, warnings).await?;
        Ok(self.targets_of(nodes.iter().map(Node::identity), warnings))
    }

    /// Returns nsqds of lookup mode as targets, each once. Leaves those out that have registered no address, with a warning: a
    /// text such as `x@host` would send the request elsewhere.
    pub(super) fn targets_of(
        &self,
        nodes: impl Iterator<Item = NodeIdentity>,
        warnings: &mut Warnings,
    ) -> Vec<Target> {
        let can_be_asked = |node: &NodeIdentity| {
            self.url_map.has(&node.address) || is_host_and_port(&node.address)
        };
        let (asked, others): (Vec<_>, Vec<_>) = nodes.partition(can_be_asked);
        if let Some((first, more)) = others.split_first() {
            let more = match more.len() {
                0 => String::new(),
                more => format!(" (nor are {more} more)"),
            };
            warnings.add_text(format!(
                "the nsqd {:?} is not asked{more}, because this broadcast address and HTTP port are no host:port",
                first.address
            ));
        }
        each_once(asked.into_iter().map(|node| self.target(node)))
    }

    /// Returns an nsqd of lookup mode as a target.
    pub(super) fn target(&self, identity: NodeIdentity) -> Target {
        Target {
            url: self.url_map.url(&identity.address),
            is_given: self.url_map.has(&identity.address),
            other_addresses: Vec::new(),
            identity,
        }
    }

    /// Returns the name by which the metrics know an nsqd of lookup mode.
    pub fn counted_name(&self, address: &str) -> UpstreamName {
        counted_name(Server::Nsqd, &self.url_map.url(address))
    }

    /// Asks nsqds for their figures. `targets` beyond the limit on nodes are left out with a warning.
    ///
    /// # Errors
    /// There are targets, and none of them answered.
    pub async fn stats(
        &self,
        targets: Vec<Target>,
        stats: Stats<'_>,
        warnings: &mut Warnings,
    ) -> Result<Vec<NodeStats>, Refusal> {
        if targets.is_empty() {
            return Ok(Vec::new());
        }
        let targets = self.within_limit(targets, warnings);
        let path = stats.path();
        let requests = targets.into_iter().map(|target| -> Asked<_> {
            stats_of(self.upstream.clone(), target, path.clone()).boxed()
        });
        let answers = gather(requests.collect()).await;
        answers.or_refuse(Server::Nsqd, warnings)
    }

    /// Leaves targets beyond the limit on nodes out, with a warning.
    pub(super) fn within_limit(
        &self,
        mut targets: Vec<Target>,
        warnings: &mut Warnings,
    ) -> Vec<Target> {
        if targets.len() > self.nodes_max {
            let left_out = targets.len() - self.nodes_max;
            warnings.add_text(format!("{left_out} nsqds are left out (--max-nodes)"));
            targets.truncate(self.nodes_max);
        }
        targets
    }

    /// Returns the figures of one node with all its clients, and `None` for an unknown node.
    ///
    /// # Errors
    /// The node does not answer, or no server knows which nodes there are.
    pub async fn node_stats(
        &self,
        address: &str,
        warnings: &mut Warnings,
    ) -> Result<Option<NodeStats>, Refusal> {
        let targets = self.targets(warnings).await?;
        let found = targets
            .into_iter()
            .find(|target| target.identity.address == address);
        let Some(target) = found else {
            return Ok(None);
        };
        let wanted = Stats {
            has_clients: true,
            ..Stats::default()
        };
        let stats = self.stats(vec![target], wanted, warnings).await?;
        Ok(stats.into_iter().next())
    }
}

/// Leaves out further entries of the same HTTP address, whose figures would count twice: an nsqd that has got another TCP port
/// while its old registration lives.
fn each_once(targets: impl Iterator<Item = Target>) -> Vec<Target> {
    let mut addresses = BTreeSet::new();
    targets
        .filter(|target| addresses.insert(target.identity.address.clone()))
        .collect()
}

/// Asks one nsqd of direct mode what it is.
async fn given_nsqd(
    upstream: &Upstream,
    address: String,
    has_topics: bool,
) -> Result<Given, Failed> {
    let url = format!("http://{address}/info");
    let mut info: nsq_http::NodeInfo = upstream.get(Server::Nsqd, &url).await?;
    info.remote_address.clear();
    if has_topics {
        let url = format!("http://{address}{}", Stats::default().path());
        let stats: nsq_http::Stats = upstream.get(Server::Nsqd, &url).await?;
        let topics = stats.topics.into_iter();
        info.topics = topics.map(|topic| topic.topic_name).collect();
    }
    let mut given = Given {
        node: Node::of_producer(&info),
        start_time: info.start_time,
        address,
        other_addresses: Vec::new(),
    };
    if given.node.broadcast_address.is_empty() {
        given.use_given_address();
    }
    Ok(given)
}

/// Returns the time of an answer that has just come.
pub(super) fn answered_now(stats: &nsq_http::Stats) -> Answered {
    Answered {
        steady_millis: Now::read().steady_millis,
        start_time: stats.start_time,
    }
}

/// Asks one nsqd for its figures.
async fn stats_of(upstream: Upstream, target: Target, path: String) -> Result<NodeStats, Failed> {
    let url = format!("{}{path}", target.url);
    let answer = upstream.get::<nsq_http::Stats>(Server::Nsqd, &url).await;
    let answer = answer.map_err(|failed| target.with_advice(failed))?;
    Ok(NodeStats {
        answered: answered_now(&answer),
        node: target.identity,
        topics: answer.topics,
    })
}

/// Returns the identity of a producer of a topic.
pub(super) fn identity_of(producer: &nsq_http::NodeInfo) -> NodeIdentity {
    NodeIdentity {
        address: producer.http_address(),
        hostname: producer.hostname.clone(),
        region: producer.topology_region.clone(),
        zone: producer.topology_zone.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(address: &str, url: &str, is_given: bool) -> Target {
        Target {
            identity: NodeIdentity::at(address),
            url: url.to_owned(),
            is_given,
            other_addresses: Vec::new(),
        }
    }

    #[test]
    fn only_an_address_that_is_not_mapped_gets_advice() {
        let advice = |kind, is_mapped| {
            let failed = Failed {
                why: "x".to_owned(),
                kind,
                refused: None,
            };
            target("n1:4151", "", is_mapped).with_advice(failed).why
        };
        let text = advice(FailureKind::Unreachable, false);
        assert!(text.contains("--nsqd-url-map=n1:4151=URL"), "{text}");
        assert_eq!(advice(FailureKind::Unreachable, true), "x");
        assert_eq!(advice(FailureKind::Refused, false), "x");
    }

    #[test]
    fn two_entries_of_one_address_are_one_target() {
        let target = |address: &str, url: &str| target(address, url, true);
        let targets = [target("n:1", "a"), target("n:2", "b"), target("n:1", "c")];
        let once = each_once(targets.into_iter());
        let urls: Vec<&str> = once.iter().map(|target| &*target.url).collect();
        assert_eq!(urls, ["a", "b"]);
    }
}
