//! From a demand and a measurement to what is needed: the arithmetic, and nothing else.

use clap::builder::TypedValueParser;
use clap::value_parser;
use serde::Serialize;

use crate::rate::{DAY_SECONDS, parse_count};
use crate::result::Profile;
use crate::span::Span;

/// Bytes of a message on the wire of which the daemon hears besides the body: `PUB`, a topic's name
/// of 16 bytes, the line's end and the size. An `MPUB` needs fewer.
pub(super) const PUBLISH_WIRE_BYTES: f64 = 4.0 + 16.0 + 1.0 + 4.0;
/// The `OK` that answers a publish.
pub(super) const OK_WIRE_BYTES: f64 = wire::encode::OK.len() as f64;
/// The bytes before the body when a message is delivered: size, type, timestamp, attempts, id.
pub(super) const DELIVERY_WIRE_BYTES: f64 = wire::frame::HEADER_BYTES as f64;
/// A consumer's `FIN`, an id and the line's end.
pub(super) const FINISH_WIRE_BYTES: f64 = 4.0 + wire::limits::ID_BYTES as f64 + 1.0;
/// ringq keeps so much of a topic's backlog in memory whatever `--mem-queue-size` says.
pub(super) const TOPIC_MEMORY_BYTES_MIN: f64 = (8 << 20) as f64;
/// The overhead of Ethernet, IP and TCP with full packets: 1,538 bytes on the line carry 1,460.
pub(super) const PACKET_FACTOR: f64 = 1538.0 / 1460.0;

/// The work of the cluster, and how much room it shall keep: the flags of `plan`. Whole numbers are
/// floating-point, too, so that each of them can be varied.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, clap::Args)]
pub(super) struct Demand {
    /// Messages published per day, such as 5e9
    #[arg(long, value_name = "MESSAGES", value_parser = parse_count)]
    pub(super) per_day: f64,
    /// Mean size of a message's body, in bytes
    #[arg(long = "size", value_name = "BYTES", value_parser = parse_count)]
    pub(super) size_bytes: f64,
    /// Channels per topic: how many times each message is delivered
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = up_to_10_000())]
    pub(super) channels: f64,
    /// The rate of the busiest moment, as a multiple of the day's mean
    #[arg(long, value_name = "FACTOR", default_value = "3", value_parser = at_least_1)]
    pub(super) peak: f64,
    /// How long consumers may be away while every message is kept, such as 12h
    #[arg(long = "retention", value_name = "TIME", default_value = "12h", value_parser = seconds)]
    pub(super) retention_s: f64,
    /// Share of its measured rate that a node shall carry at the peak, 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0.6", value_parser = share)]
    pub(super) utilisation: f64,
    /// Share of disk space and memory that may be used, 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0.8", value_parser = share, display_order = 9)]
    pub(super) fill: f64,
    /// Nodes to which producers publish each message; consumers drop what they have seen
    #[arg(long, value_name = "COUNT", default_value = "1",
          value_parser = value_parser!(u16).range(1..).map(f64::from))]
    pub(super) replicas: f64,
    /// Nodes beyond those that carry the peak
    #[arg(long, value_name = "COUNT", default_value = "1", display_order = 7,
          value_parser = value_parser!(u16).map(f64::from))]
    pub(super) spare_nodes: f64,
    /// Bytes the daemon stores with each body: 50 for ringq, 30 for the original nsqd
    #[arg(long = "stored-overhead", value_name = "BYTES", default_value = "50",
          value_parser = value_parser!(u32).map(f64::from))]
    pub(super) stored_overhead_bytes: f64,
    /// Copies of a message the daemon stores: 1 for ringq, as many as channels for the original nsqd
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = up_to_10_000())]
    pub(super) stored_copies: f64,
    /// The daemon's --mem-queue-size: messages per topic that stay in memory
    #[arg(long, value_name = "MESSAGES", default_value = "10000",
          value_parser = value_parser!(u64).map(|count| count as f64))]
    pub(super) mem_queue: f64,
    /// Topics that may have a backlog at the same time
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = value_parser!(u32).map(f64::from))]
    pub(super) topics: f64,
    /// Disk space of a node in GB (1e9 bytes), if it is given: it may ask for more nodes
    #[arg(long = "node-disk-gb", value_name = "GB", value_parser = gigabytes)]
    pub(super) node_disk_bytes: Option<f64>,
    /// Bandwidth of a node per direction in Gbit/s, if it is given: it may ask for more nodes
    #[arg(long = "node-network-gbit", value_name = "GBIT", value_parser = gigabits)]
    pub(super) node_network_bytes: Option<f64>,
}

fn up_to_10_000() -> impl TypedValueParser<Value = f64> {
    value_parser!(u32).range(1..=10_000).map(f64::from)
}

fn at_least_1(text: &str) -> Result<f64, String> {
    match parse_count(text)? {
        factor if factor >= 1.0 => Ok(factor),
        _ => Err("the busiest moment is never below the mean: give 1 or more".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err(format!(
            "`{text}` is no share above 0 and up to 1, such as 0.6"
        )),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse().map(|span: Span| span.as_secs_f64())
}

fn gigabytes(text: &str) -> Result<f64, String> {
    parse_count(text).map(|gigabytes| gigabytes * 1e9)
}

fn gigabits(text: &str) -> Result<f64, String> {
    parse_count(text).map(|gigabits| gigabits * 1e9 / 8.0)
}

/// The needs of a demand. They are those of the whole cluster unless they say otherwise. Rates and sizes
/// are those of the peak.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Needs {
    /// Messages per second, mean of the day.
    pub(super) mean_rate: f64,
    /// Messages per second at the peak, each counted once.
    pub(super) peak_rate: f64,
    /// Messages per second at the peak that nodes have to take: each counted once per replica.
    pub(super) node_traffic: f64,
    /// CPU work of a message with the demand's channels, over that of the measurement.
    pub(super) channel_factor: f64,
    /// Work of a message for its size, over that of the measurement; never below 1.
    pub(super) size_factor: f64,
    /// Messages per second that one node can carry within the objective.
    pub(super) capacity_per_node: f64,
    /// Messages per second that one node shall carry: its capacity times the utilisation.
    pub(super) rate_per_node: f64,
    /// Nodes that the rate needs, before rounding.
    pub(super) nodes_for_rate: f64,
    /// Nodes that the disk space needs, before rounding, if a node's is given.
    pub(super) nodes_for_disk: Option<f64>,
    /// Nodes that the network needs, before rounding, if a node's is given.
    pub(super) nodes_for_network: Option<f64>,
    /// The most of these.
    pub(super) nodes_exact: f64,
    /// Nodes that carry the peak.
    pub(super) nodes_working: f64,
    /// With the spare ones.
    pub(super) nodes: f64,
    /// CPU time of a daemon for a message and all its deliveries, in seconds.
    pub(super) cpu_s_per_message: Option<f64>,
    /// Cores of the daemons at the peak, divided by the utilisation.
    pub(super) cores: Option<f64>,
    /// Bytes of memory for a waiting message, as long as it is kept there.
    pub(super) queued_bytes: f64,
    /// Bytes of memory that one daemon spends on its backlog.
    pub(super) resident_bytes: f64,
    /// Memory of one node in bytes.
    pub(super) memory_per_node: Option<f64>,
    /// Messages that wait when consumers were away for the retention, each counted once.
    pub(super) backlog_messages: f64,
    /// Bytes that a message occupies on the disk of one node.
    pub(super) stored_bytes: f64,
    /// Disk space in bytes.
    pub(super) disk_bytes: f64,
    /// Bytes written to the disk for each stored one, as measured; 1 if it was not, or less.
    pub(super) write_factor: f64,
    /// Bytes written per second while consumers are away.
    pub(super) disk_rate: f64,
    /// Bytes per second into the daemons.
    pub(super) network_in: f64,
    /// Bytes per second out of the daemons.
    pub(super) network_out: f64,
    /// Seconds until the backlog is gone, with the working nodes at the measured rate.
    /// Absent if the nodes have nothing left beyond the mean rate.
    pub(super) catch_up_s: Option<f64>,
}

impl Needs {
    /// The whole arithmetic, in the order in which it is shown.
    pub(super) fn of(demand: &Demand, profile: &Profile) -> Needs {
        let mean_rate = demand.per_day / DAY_SECONDS;
        let peak_rate = mean_rate * demand.peak;
        let node_traffic = peak_rate * demand.replicas;

        let channel_factor = channel_factor(demand, profile);
        let size_factor = (demand.size_bytes / profile.message_bytes).max(1.0);
        let capacity_per_node = profile.messages_per_s / (channel_factor * size_factor);
        let rate_per_node = capacity_per_node * demand.utilisation;

        let backlog_messages = backlog(demand, peak_rate);
        let stored_bytes = stored(demand.size_bytes, demand);
        let disk_bytes = backlog_messages * demand.replicas * stored_bytes / demand.fill;
        let written = profile.disk_bytes_per_message.unwrap_or(0.0);
        let write_factor = (written / stored(profile.message_bytes, demand)).max(1.0);
        let disk_rate = node_traffic * stored_bytes * write_factor;

        let bytes_in = demand.size_bytes + PUBLISH_WIRE_BYTES + demand.channels * FINISH_WIRE_BYTES;
        let delivery_bytes = demand.size_bytes + DELIVERY_WIRE_BYTES;
        let bytes_out = demand.channels * delivery_bytes + OK_WIRE_BYTES;
        let network_in = node_traffic * bytes_in * PACKET_FACTOR;
        let network_out = node_traffic * bytes_out * PACKET_FACTOR;

        let nodes_for_rate = node_traffic / rate_per_node;
        let nodes_for_disk = demand.node_disk_bytes.map(|bytes| disk_bytes / bytes);
        let nodes_for_network = demand
            .node_network_bytes
            .map(|bytes| network_in.max(network_out) / (bytes * demand.utilisation));
        let nodes_exact = nodes_for_rate
            .max(nodes_for_disk.unwrap_or(0.0))
            .max(nodes_for_network.unwrap_or(0.0));
        // What rounding errors add must not become a node.
        let nodes_working = (nodes_exact - 1e-9).ceil().max(demand.replicas).max(1.0);

        let cpu_s_per_message =
            measured_cpu_s(profile).map(|cpu| cpu * channel_factor * size_factor);
        let backlog_per_node = backlog_messages * demand.replicas / nodes_working;
        // What stays in memory takes its size at least, even if most of what was queued while
        // measuring had left memory.
        let grown = (stored_bytes / stored(profile.message_bytes, demand)).max(1.0);
        let measured_bytes = profile.memory_bytes_per_queued.unwrap_or(0.0) * grown;
        let queued_bytes = measured_bytes.max(stored_bytes);
        let per_topic = (demand.mem_queue * queued_bytes).max(TOPIC_MEMORY_BYTES_MIN);
        let resident_bytes = (per_topic * demand.topics).min(backlog_per_node * queued_bytes);
        let memory_per_node = profile
            .memory_bytes_idle
            .map(|idle| (idle as f64 + resident_bytes) / demand.fill);

        let spare_rate = nodes_working * capacity_per_node / demand.replicas - mean_rate;
        Needs {
            mean_rate,
            peak_rate,
            node_traffic,
            channel_factor,
            size_factor,
            capacity_per_node,
            rate_per_node,
            nodes_for_rate,
            nodes_for_disk,
            nodes_for_network,
            nodes_exact,
            nodes_working,
            nodes: nodes_working + demand.spare_nodes,
            cpu_s_per_message,
            cores: cpu_s_per_message.map(|cpu| node_traffic * cpu / demand.utilisation),
            queued_bytes,
            resident_bytes,
            memory_per_node,
            backlog_messages,
            stored_bytes,
            disk_bytes,
            write_factor,
            disk_rate,
            network_in,
            network_out,
            catch_up_s: (spare_rate > 0.0).then(|| backlog_messages / spare_rate),
        }
    }
}

/// CPU time of a message with all its deliveries as measured, in seconds.
fn measured_cpu_s(profile: &Profile) -> Option<f64> {
    let parts = profile.cpu_s_per_published.zip(profile.cpu_s_per_delivered);
    let used = profile
        .daemon_cores_used
        .map(|cores| cores / profile.messages_per_s);
    used.or(parts.map(|(published, delivered)| published + f64::from(profile.channels) * delivered))
}

/// Work of a message with the demand's channels over that with the measured ones. The profile's
/// CPU times for a publish and for a delivery come from different phases; the work is never taken to
/// be less than if a delivery cost as much as a publish.
fn channel_factor(demand: &Demand, profile: &Profile) -> f64 {
    let ratio = |(published, delivered): (f64, f64)| {
        let work = |channels: f64| published + channels * delivered;
        work(demand.channels) / work(profile.channels.into())
    };
    let parts = profile.cpu_s_per_published.zip(profile.cpu_s_per_delivered);
    parts.map_or(0.0, ratio).max(ratio((1.0, 1.0)))
}

/// Bytes on the disk of one node for a body of so many.
fn stored(size_bytes: f64, demand: &Demand) -> f64 {
    (size_bytes + demand.stored_overhead_bytes) * demand.stored_copies
}

/// The most that can be published in any stretch as long as the retention: whole days by the day's
/// total, and of the rest no more than the peak allows, nor more than a day's total.
fn backlog(demand: &Demand, peak_rate: f64) -> f64 {
    let days = (demand.retention_s / DAY_SECONDS).floor();
    let rest_s = demand.retention_s - days * DAY_SECONDS;
    days * demand.per_day + (peak_rate * rest_s).min(demand.per_day)
}
