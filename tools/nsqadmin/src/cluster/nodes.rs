//! The nodes of a cluster, and their figures.

use futures_util::FutureExt;
use program::tcp_address::split_host_port;

use super::{Asked, Cluster, gather, query, with_advice};
use crate::answer;
use crate::figures::{NodeIdentity, NodeStats};
use crate::node::{self, Node, host_port};
use crate::outcome::{Gathered, Refusal, Warnings};
use crate::upstream::{Failed, Server, Upstream};

/// An nsqd that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The nsqd.
    pub identity: NodeIdentity,
    /// The URL without a slash at its end.
    pub url: String,
    /// True if the URL was given by the operator, and not by the nsqd.
    pub is_given: bool,
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
}

impl Stats<'_> {
    pub(super) fn path(self) -> String {
        let include_clients = if self.has_clients { "" } else { "false" };
        let query = query(&[
            ("format", "json"),
            ("topic", self.topic),
            ("channel", self.channel),
            ("include_clients", include_clients),
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
        let lookupds = self.lookupds();
        if lookupds.is_empty() {
            let nodes = self.nodes_directly(has_topics).await;
            let mut nodes: Vec<Node> = nodes
                .or_refuse(Server::Nsqd, warnings)?
                .into_iter()
                .map(|(node, _)| node)
                .collect();
            node::sort(&mut nodes);
            return Ok(nodes);
        }
        let requests = lookupds.into_iter().map(|lookupd| -> Asked<_> {
            let upstream = self.upstream.clone();
            async move {
                let url = format!("http://{lookupd}/nodes");
                let answer: answer::Nodes = upstream.get(Server::Nsqlookupd, &url).await?;
                Ok((lookupd, answer.producers))
            }
            .boxed()
        });
        let answers = gather(requests.collect()).await;
        let answers = answers.or_refuse(Server::Nsqlookupd, warnings)?;
        Ok(node::merge(&answers))
    }

    /// Returns the nsqds of direct mode, each with its given address.
    pub(super) async fn nodes_directly(&self, has_topics: bool) -> Gathered<(Node, String)> {
        let requests = self.nsqds.iter().cloned().map(|address| -> Asked<_> {
            let upstream = self.upstream.clone();
            async move {
                let node = node_directly(&upstream, &address, has_topics).await?;
                Ok((node, address))
            }
            .boxed()
        });
        gather(requests.collect()).await
    }

    /// Returns all nodes as targets.
    ///
    /// # Errors
    /// No server answered.
    pub async fn targets(&self, warnings: &mut Warnings) -> Result<Vec<Target>, Refusal> {
        if !self.is_lookup_mode() {
            let nodes = self.nodes_directly(false).await;
            let nodes = nodes.or_refuse(Server::Nsqd, warnings)?;
            let targets = nodes.into_iter().map(|(node, address)| Target {
                identity: node.identity(),
                url: format!("http://{address}"),
                is_given: true,
            });
            return Ok(targets.collect());
        }
        let nodes = self.nodes(false, warnings).await?;
        Ok(nodes
            .iter()
            .map(|node| self.target(node.identity()))
            .collect())
    }

    /// Returns an nsqd of lookup mode as a target.
    pub(super) fn target(&self, identity: NodeIdentity) -> Target {
        Target {
            url: self.url_map.url(&identity.address),
            is_given: self.url_map.has(&identity.address),
            identity,
        }
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

/// Asks one nsqd of direct mode what it is.
async fn node_directly(
    upstream: &Upstream,
    address: &str,
    has_topics: bool,
) -> Result<Node, Failed> {
    let url = format!("http://{address}/info");
    let mut info: answer::Producer = upstream.get(Server::Nsqd, &url).await?;
    info.remote_address.clear();
    if has_topics {
        let url = format!("http://{address}{}", Stats::default().path());
        let stats: answer::Stats = upstream.get(Server::Nsqd, &url).await?;
        let topics = stats.topics.into_iter();
        info.topics = topics.map(|topic| topic.topic_name).collect();
    }
    let mut node = Node::of_producer(&info);
    if node.broadcast_address.is_empty()
        && let Some((host, port)) = split_host_port(address)
    {
        host.clone_into(&mut node.broadcast_address);
        node.http_port = port.parse().unwrap_or(node.http_port);
    }
    Ok(node)
}

/// Asks one nsqd for its figures.
async fn stats_of(upstream: Upstream, target: Target, path: String) -> Result<NodeStats, Failed> {
    let url = format!("{}{path}", target.url);
    let answer: Result<answer::Stats, Failed> = upstream.get(Server::Nsqd, &url).await;
    match answer {
        Ok(answer) => Ok(NodeStats {
            node: target.identity,
            topics: answer.topics,
        }),
        Err(failed) => Err(with_advice(
            failed,
            &target.identity.address,
            target.is_given,
        )),
    }
}

/// Returns the identity of a producer of a topic.
pub(super) fn identity_of(producer: &answer::Producer) -> NodeIdentity {
    NodeIdentity {
        address: host_port(&producer.broadcast_address, producer.http_port),
        hostname: producer.hostname.clone(),
        region: producer.topology_region.clone(),
        zone: producer.topology_zone.clone(),
    }
}
