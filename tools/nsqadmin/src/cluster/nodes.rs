//! The nodes of a cluster: [`Node`], as the list of nodes shows it, [`Target`], as it is asked, and [`Discovered`], all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nsq_doctor::duration;
use nsq_http::{Lookup, NodeInfo};
use program::log_warn;
use program::tcp_address::split_host_port;
use semver::Version;
use serde::{Serialize, Serializer};
use wire::go_json::is_default;
use wire::json_object;

use super::{Cluster, Gathered, Refusal, Stats, Warnings};
use crate::checkup::LookupdRound;
use crate::figures::NodeIdentity;
use crate::upstream::{Failed, FailureKind, Server, Upstream};

/// An nsqd in the list of nodes, merged from the answers of several nsqlookupds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The nsqd, as the first of these nsqlookupds describes it.
    info: NodeInfo,
    /// For each nsqlookupd that knows the node: the nsqlookupd, and the address from which the node
    /// has connected. `None` without nsqlookupds.
    remote_addresses: Option<Vec<String>>,
    /// True if another node has a higher version.
    is_out_of_date: bool,
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Topology<'a> {
            #[serde(skip_serializing_if = "is_default")]
            topology_zone: &'a str,
            #[serde(skip_serializing_if = "is_default")]
            topology_region: &'a str,
        }
        let info = &self.info;
        let topics = topics_of(info).into_iter();
        let topics = topics.map(|(topic, gone)| json_object! { topic, tombstoned: gone });
        let node = json_object! {
            remote_addresses: &self.remote_addresses,
            remote_address: &info.remote_address,
            hostname: &info.hostname,
            broadcast_address: &info.broadcast_address,
            tcp_port: info.tcp_port,
            http_port: info.http_port,
            version: &info.version,
            #[serde(flatten)]
            topology: Topology {
                topology_zone: &info.topology_zone,
                topology_region: &info.topology_region,
            },
            topics: topics.collect::<Vec<_>>(),
            out_of_date: self.is_out_of_date,
        };
        node.serialize(to)
    }
}

/// Returns the topics of a node by name. True means that the topic is tombstoned there.
pub(super) fn topics_of(node: &NodeInfo) -> BTreeMap<&str, bool> {
    // A server may send fewer flags than topics.
    let flags = node.tombstones.iter().copied();
    let flags = flags.chain(std::iter::repeat(false));
    node.topics.iter().map(String::as_str).zip(flags).collect()
}

/// Returns true for `host:port` that can stand in a URL: the host is a name or an IP address, and has no characters of another
/// part of a URL. Any client of nsqlookupd can register any text.
pub fn is_host_and_port(address: &str) -> bool {
    let Some((host, port)) = split_host_port(address) else {
        return false;
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_host = if host.contains(':') {
        host.parse::<Ipv6Addr>().is_ok()
    } else {
        !host.is_empty() && host.bytes().all(is_plain)
    };
    is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Merges the answers of nsqlookupds, each with its address. The first nsqlookupd that knows a node
/// supplies the fields.
fn merge(answers: Vec<(String, Vec<NodeInfo>)>) -> Vec<Node> {
    let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
    for (lookupd, producers) in answers {
        for info in producers {
            let remote = match info.remote_address.as_str() {
                "" => "N/A",
                remote => remote,
            };
            let known_by = format!("{lookupd}/{remote}");
            let node = nodes.entry(info.tcp_address()).or_insert_with(|| Node {
                info,
                ..Node::default()
            });
            node.remote_addresses.get_or_insert_default().push(known_by);
        }
    }
    let mut nodes: Vec<Node> = nodes.into_values().collect();
    let versions: Vec<Version> = nodes.iter().map(|it| version(&it.info.version)).collect();
    let highest = versions.iter().max().cloned();
    for (node, version) in nodes.iter_mut().zip(versions) {
        node.is_out_of_date = Some(version) < highest;
    }
    sort(&mut nodes);
    nodes
}

/// Sorts nodes by hostname. Nodes of one machine are sorted by address.
fn sort(nodes: &mut [Node]) {
    nodes.sort_by(|Node { info: a, .. }, Node { info: b, .. }| {
        let ports = |info: &NodeInfo| (info.http_port, info.tcp_port);
        let key = (&a.hostname, &a.broadcast_address, ports(a));
        key.cmp(&(&b.hostname, &b.broadcast_address, ports(b)))
    });
}

/// Returns the semantic version without its build, which does not count. A text that is none counts as 0.0.0.
fn version(text: &str) -> Version {
    let without_build = text.split('+').next().unwrap_or_default();
    Version::parse(without_build).unwrap_or(Version::new(0, 0, 0))
}

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

impl Target {
    /// Returns an nsqd at the address that the operator has given.
    pub(super) fn given(identity: NodeIdentity, address: &str) -> Target {
        Target {
            identity,
            url: format!("http://{address}"),
            is_given: true,
        }
    }

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

/// The answers to the question which nodes there are.
#[derive(Clone, Debug)]
pub struct Discovered {
    /// The nodes, or the reason why they are not known.
    pub targets: Result<Vec<Target>, Refusal>,
    /// The failures of some servers.
    pub warnings: Warnings,
    /// The answer of each nsqlookupd by `host:port`. Empty in direct mode.
    pub lookupds: BTreeMap<String, LookupdRound>,
}

impl Default for Discovered {
    /// Returns the answers of no server.
    fn default() -> Discovered {
        Discovered {
            targets: Ok(Vec::new()),
            warnings: Warnings::default(),
            lookupds: BTreeMap::new(),
        }
    }
}

impl Discovered {
    /// Adds the warning that servers have not answered for this time.
    pub fn warn_of_silence(&mut self, time: Duration) {
        let time = duration(time.as_secs_f64());
        self.warnings.add_text(format!(
            "not all servers have said for {time} which nsqds there are, so these may be others by now"
        ));
    }

    /// Returns the same answers with the nodes of earlier ones, and a warning, if no server answered now.
    #[must_use]
    pub fn or_known(mut self, earlier: Option<Discovered>) -> Discovered {
        if let Err(refusal) = &self.targets
            && let Some(earlier) = earlier
            && earlier.targets.is_ok()
        {
            let why = refusal.message.trim_start_matches("UPSTREAM_ERROR: ");
            self.warnings.add_text(format!(
                "the figures are those of the nsqds that were known before, because nsqadmin {why}"
            ));
            self.targets = earlier.targets;
        }
        self
    }
}

impl Cluster {
    /// Returns all nodes. In direct mode, each nsqd is asked for its topics, too.
    ///
    /// # Errors
    /// No server answered.
    pub async fn nodes(&self, warnings: &mut Warnings) -> Result<Vec<Node>, Refusal> {
        if !self.is_lookup_mode() {
            let nsqds = self.nsqds_directly(true, warnings).await?;
            let nodes = nsqds.into_iter().map(|nsqd| Node {
                info: nsqd.info,
                ..Node::default()
            });
            let mut nodes: Vec<Node> = nodes.collect();
            sort(&mut nodes);
            return Ok(nodes);
        }
        nodes_in(self.ask_lookupds("/nodes").await, warnings)
    }

    /// Returns the nsqds of direct mode, each with an address of its own.
    async fn nsqds_directly(
        &self,
        has_topics: bool,
        warnings: &mut Warnings,
    ) -> Result<Vec<Given>, Refusal> {
        let addresses = self.nsqds.iter().cloned();
        let nsqds = self.gather(addresses, |upstream, address| {
            given_nsqd(upstream, address, has_topics)
        });
        let mut nsqds = nsqds.await.or_refuse(Server::Nsqd, warnings)?;
        self.uses_given.tell_apart(&mut nsqds);
        Ok(nsqds)
    }

    /// Returns all nodes as targets.
    ///
    /// # Errors
    /// No server answered.
    pub async fn targets(&self, warnings: &mut Warnings) -> Result<Vec<Target>, Refusal> {
        let found = self.discover().await;
        warnings.add_all(&found.warnings);
        found.targets
    }

    /// Asks which nodes there are: each nsqlookupd, or in direct mode each nsqd.
    pub async fn discover(&self) -> Discovered {
        let mut found = Discovered::default();
        let warnings = &mut found.warnings;
        if !self.is_lookup_mode() {
            let nsqds = self.nsqds_directly(false, warnings).await;
            // The operator has named each of them.
            let target = |nsqd: Given| Target::given(NodeIdentity::of(&nsqd.info), &nsqd.address);
            found.targets = nsqds.map(|nsqds| each_once(nsqds.into_iter().map(target)));
            return found;
        }
        let answers = self.ask_lookupds("/nodes").await;
        for (lookupd, answer) in &answers {
            let round = match answer {
                Ok(answer) => Ok(answer
                    .producers
                    .iter()
                    .map(NodeInfo::http_address)
                    .collect()),
                Err(failed) => Err(failed.why.clone()),
            };
            found.lookupds.insert(lookupd.clone(), round);
        }
        found.targets = nodes_in(answers, warnings).map(|nodes| {
            let nodes = nodes.iter().map(|node| NodeIdentity::of(&node.info));
            self.targets_of(nodes, warnings)
        });
        found
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
            identity,
        }
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

/// Returns the nodes in the answers of nsqlookupds to `/nodes`.
fn nodes_in(
    answers: Vec<(String, Result<Lookup, Failed>)>,
    warnings: &mut Warnings,
) -> Result<Vec<Node>, Refusal> {
    let answers = answers.into_iter();
    let answers = answers.map(|(lookupd, answer)| Ok((lookupd, answer?.producers)));
    let answers = answers.collect::<Gathered<_>>();
    Ok(merge(answers.or_refuse(Server::Nsqlookupd, warnings)?))
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
    upstream: Upstream,
    address: String,
    has_topics: bool,
) -> Result<Given, Failed> {
    let url = format!("http://{address}/info");
    let mut info: NodeInfo = upstream.get(Server::Nsqd, &url).await?;
    info.remote_address.clear();
    if has_topics {
        let url = format!("http://{address}{}", Stats::default().path());
        let stats: nsq_http::Stats = upstream.get(Server::Nsqd, &url).await?;
        let topics = stats.topics.into_iter();
        info.topics = topics.map(|topic| topic.topic_name).collect();
    }
    let mut given = Given { info, address };
    if given.info.broadcast_address.is_empty() {
        given.use_given_address();
    }
    Ok(given)
}

/// An nsqd of direct mode that has said what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Given {
    /// The nsqd.
    info: NodeInfo,
    /// The address that the operator has given.
    address: String,
}

impl Given {
    /// Names the nsqd by the address that the operator has given.
    fn use_given_address(&mut self) {
        if let Some((host, port)) = split_host_port(&self.address) {
            host.clone_into(&mut self.info.broadcast_address);
            self.info.http_port = port.parse().unwrap_or(self.info.http_port);
        }
    }
}

/// The choice between the addresses of direct mode: those that the nsqds broadcast, or, once two of them have broadcast the
/// same address, those that the operator has given. Figures are kept by address, so they would have rates between the
/// counts of different processes. An nsqd keeps its name until the process ends, because another one may be silent for a
/// while.
#[derive(Debug, Default)]
pub(super) struct UsesGiven(AtomicBool);

impl UsesGiven {
    /// Gives each nsqd an address of its own. The log has one line about it, which is no failure.
    fn tell_apart(&self, nsqds: &mut [Given]) {
        let mut addresses = BTreeSet::new();
        let mut shared = nsqds.iter().map(|nsqd| nsqd.info.http_address());
        if let Some(shared) = shared.find(|address| !addresses.insert(address.clone()))
            && !self.0.swap(true, Ordering::Relaxed)
        {
            log_warn!(
                "several nsqds broadcast the same address {shared}, so all have the addresses of --nsqd-http-address here: give \
                 each nsqd its own --broadcast-address and port, and name each once"
            );
        }
        if self.0.load(Ordering::Relaxed) {
            nsqds.iter_mut().for_each(Given::use_given_address);
        }
    }
}

#[cfg(test)]
mod tests;
