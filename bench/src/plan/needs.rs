//! From a demand and a measurement to what is needed: the arithmetic, and each of its steps with its numbers, its
//! units and what it assumes.

use serde::Serialize;

use super::demand::Demand;
use crate::result::Profile;
use crate::scenario::rate::DAY_SECONDS;
use crate::scenario::unit::{Unit, number};

/// Bytes that a producer sends besides the body of a message: `PUB`, a topic's name
/// of 16 bytes, the line's end and the size. An `MPUB` needs fewer.
pub(super) const PUBLISH_WIRE_BYTES: f64 = 4.0 + 16.0 + 1.0 + 4.0;
/// The `OK` that answers a publish.
pub(super) const OK_WIRE_BYTES: f64 = wire::encode::OK.len() as f64;
/// The bytes before the body when a message is delivered: size, type, timestamp, attempts, id.
pub(super) const DELIVERY_WIRE_BYTES: f64 = wire::frame::HEADER_BYTES as f64;
/// A consumer's `FIN`, an id and the line's end.
pub(super) const FINISH_WIRE_BYTES: f64 = 4.0 + wire::limits::ID_BYTES as f64 + 1.0;
/// The memory for backlogs that ringq gives to each shard, and the bounds of a topic's part of it
/// (docs/reference/policy.md).
const SHARD_MEMORY_BYTES: f64 = (64 << 20) as f64;
const TOPIC_MEMORY_BYTES: [f64; 2] = [(4 << 20) as f64, (32 << 20) as f64];
/// The overhead of Ethernet, IP and TCP with full packets: 1,538 bytes on the line carry 1,460.
const PACKET_FACTOR: f64 = 1538.0 / 1460.0;

/// The needs of a demand, of the whole cluster and at the peak unless a name or comment says otherwise. Rates are
/// messages or bytes per second. `None` stands for what was not measured or not asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Needs {
    pub(super) mean_rate: f64,
    pub(super) peak_rate: f64,
    /// Like `peak_rate`, but each message counts once per replica.
    pub(super) node_traffic: f64,
    /// CPU work of a message with the demand's channels, over that of the measurement.
    pub(super) channel_factor: f64,
    /// Work of a message for its size, over that of the measurement; never below 1.
    pub(super) size_factor: f64,
    pub(super) capacity_per_node: f64,
    /// The capacity of a node times the utilisation.
    pub(super) rate_per_node: f64,
    #[serde(flatten)]
    pub(super) nodes: Nodes,
    /// CPU time for a message and all its deliveries.
    pub(super) cpu_s_per_message: Option<f64>,
    pub(super) cores: Option<f64>,
    /// Memory for a waiting message, as long as it is kept there.
    pub(super) queued_bytes: f64,
    /// Memory that one daemon spends on its backlog.
    pub(super) resident_bytes: f64,
    pub(super) memory_per_node: Option<f64>,
    #[serde(flatten)]
    pub(super) storage: Storage,
    pub(super) network_in: f64,
    pub(super) network_out: f64,
    /// Time until the backlog is gone, with the working nodes at the measured rate. Absent if the nodes have nothing
    /// left beyond the mean rate.
    pub(super) catch_up_s: Option<f64>,
}

/// The nodes of a demand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Nodes {
    /// The nodes that rate, disk and network ask for, before rounding.
    #[serde(rename = "nodes_for_rate")]
    pub(super) for_rate: f64,
    #[serde(rename = "nodes_for_disk")]
    pub(super) for_disk: Option<f64>,
    #[serde(rename = "nodes_for_network")]
    pub(super) for_network: Option<f64>,
    /// The largest of the three numbers of nodes above.
    #[serde(rename = "nodes_exact")]
    pub(super) exact: f64,
    /// The nodes that carry the peak.
    #[serde(rename = "nodes_working")]
    pub(super) working: f64,
    /// The nodes that carry the peak, and the spare nodes.
    #[serde(rename = "nodes")]
    pub(super) all: f64,
    /// Connections of all nodes, spare ones included: each client has one to every node.
    pub(super) connections: Option<f64>,
}

/// The space on disks, and what is written to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Storage {
    /// Messages that wait when consumers were away for the retention, each counted once.
    pub(super) backlog_messages: f64,
    /// Bytes of a message on the disk of one node.
    pub(super) stored_bytes: f64,
    pub(super) disk_bytes: f64,
    /// Bytes written to the disk for each stored one, as measured; 1 if it was not, or less.
    pub(super) write_factor: f64,
    /// Bytes written to the disk per second while consumers are away.
    pub(super) disk_rate: f64,
}

impl Needs {
    /// Rounds the nodes up. Rounding errors must not add a node.
    fn rounded_nodes(&self) -> f64 {
        (self.nodes.exact - 1e-9).ceil()
    }

    /// The bytes per second in the direction of the network that has more.
    fn busier_direction(&self) -> f64 {
        self.network_in.max(self.network_out)
    }

    /// The messages per second that all working nodes can carry, each message counted once.
    fn rate_of_working_nodes(&self, demand: &Demand) -> f64 {
        self.nodes.working * self.capacity_per_node / demand.replicas
    }

    /// Says what asks for the number of working nodes.
    pub(super) fn reason(&self) -> String {
        let exact = Some(self.nodes.exact);
        if self.nodes.working > self.rounded_nodes().max(1.0) {
            "one for each replica".to_owned()
        } else if self.nodes.for_disk == exact {
            "for the disk space".to_owned()
        } else if self.nodes.for_network == exact {
            "for the network".to_owned()
        } else {
            format!("each {}", per_s(self.rate_per_node))
        }
    }
}

/// One step of the arithmetic.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct CalculationStep {
    pub(super) what: &'static str,
    /// The formula with its numbers.
    pub(super) formula: String,
    pub(super) value: f64,
    pub(super) unit: Unit,
    /// Value and unit as people read them.
    pub(super) shown: String,
    /// The keys of the assumptions behind it.
    pub(super) assumes: Vec<char>,
}

/// Calculates the needs. [`steps`] shows the arithmetic.
pub(super) fn calculate(demand: &Demand, profile: &Profile) -> Needs {
    let mean_rate = demand.per_day / DAY_SECONDS;
    let mut needs = Needs {
        mean_rate,
        peak_rate: mean_rate * demand.peak,
        channel_factor: channel_factor(demand, profile),
        size_factor: (demand.size_bytes / profile.message_bytes).max(1.0),
        storage: Storage {
            stored_bytes: stored(demand.size_bytes, demand),
            ..Storage::default()
        },
        ..Needs::default()
    };
    needs.node_traffic = needs.peak_rate * demand.replicas;
    let factor = needs.channel_factor * needs.size_factor;
    needs.capacity_per_node = profile.messages_per_s / factor;
    needs.rate_per_node = needs.capacity_per_node * demand.utilisation;

    needs.storage.backlog_messages = backlog(demand, needs.peak_rate);
    let kept_messages = needs.storage.backlog_messages * demand.replicas;
    needs.storage.disk_bytes = kept_messages * needs.storage.stored_bytes / demand.fill;
    let stored_when_measured = stored(profile.message_bytes, demand);
    let written = profile.disk_bytes_per_message.unwrap_or(0.0);
    needs.storage.write_factor = (written / stored_when_measured).max(1.0);
    needs.storage.disk_rate =
        needs.node_traffic * needs.storage.stored_bytes * needs.storage.write_factor;

    let bytes_in = demand.size_bytes + PUBLISH_WIRE_BYTES + demand.channels * FINISH_WIRE_BYTES;
    needs.network_in = needs.node_traffic * bytes_in * PACKET_FACTOR;
    let bytes_out = demand.channels * (demand.size_bytes + DELIVERY_WIRE_BYTES) + OK_WIRE_BYTES;
    needs.network_out = needs.node_traffic * bytes_out * PACKET_FACTOR;

    needs.nodes.for_rate = needs.node_traffic / needs.rate_per_node;
    needs.nodes.for_disk = demand
        .node_disk_bytes
        .map(|each| needs.storage.disk_bytes / each);
    let planned = demand
        .node_network_bytes
        .map(|each| each * demand.utilisation);
    needs.nodes.for_network = planned.map(|each| needs.busier_direction() / each);
    let for_the_rest = [needs.nodes.for_disk, needs.nodes.for_network];
    let for_the_rest = for_the_rest.into_iter().flatten();
    needs.nodes.exact = for_the_rest.fold(needs.nodes.for_rate, f64::max);
    needs.nodes.working = needs.rounded_nodes().max(demand.replicas).max(1.0);
    needs.nodes.all = needs.nodes.working + demand.spare_nodes;
    needs.nodes.connections = demand.clients.map(|clients| clients * needs.nodes.all);

    needs.cpu_s_per_message = measured_cpu_s(profile).map(|cpu_s| cpu_s * factor);
    let cores = |cpu_s: f64| needs.node_traffic * cpu_s / demand.utilisation;
    needs.cores = needs.cpu_s_per_message.map(cores);

    // A message in memory takes its size at least, even if most messages had left memory while this was measured.
    let grown = (needs.storage.stored_bytes / stored_when_measured).max(1.0);
    let queued_bytes = profile.memory_bytes_per_queued.unwrap_or(0.0) * grown;
    needs.queued_bytes = queued_bytes.max(needs.storage.stored_bytes);
    let in_memory = demand.mem_queue * needs.queued_bytes;
    let backlogs = in_memory.max(topic_memory_bytes(demand, profile)) * demand.topics;
    needs.resident_bytes = backlogs.min(kept_messages / needs.nodes.working * needs.queued_bytes);
    let memory = |idle: u64| (idle as f64 + needs.resident_bytes) / demand.fill;
    needs.memory_per_node = profile.memory_bytes_idle.map(memory);

    let left = needs.rate_of_working_nodes(demand) - mean_rate;
    needs.catch_up_s = (left > 0.0).then(|| needs.storage.backlog_messages / left);
    needs
}

/// Adds a step: name, keys of its assumptions, the value and its unit, formula.
macro_rules! step {
    ($steps:ident, $what:literal [$($key:ident)*], $value:expr => $unit:ident, $($formula:tt)*) => {
        $steps.push(CalculationStep {
            what: $what,
            formula: format!($($formula)*),
            value: $value,
            unit: Unit::$unit,
            shown: Unit::$unit.show($value),
            assumes: stringify!($($key)*).chars().filter(|key| *key != ' ').collect(),
        });
    };
}

/// Shows the arithmetic of [`calculate`], in the order in which people read it.
pub(super) fn steps(demand: &Demand, profile: &Profile, needs: &Needs) -> Vec<CalculationStep> {
    let mut steps = Vec::new();
    steps_to_cores(demand, profile, needs, &mut steps);
    steps_to_bytes(demand, profile, needs, &mut steps);
    steps
}

/// Shows the rates, the nodes and their cores.
fn steps_to_cores(
    demand: &Demand,
    profile: &Profile,
    needs: &Needs,
    steps: &mut Vec<CalculationStep>,
) {
    let (mean, traffic) = (per_s(needs.mean_rate), per_s(needs.node_traffic));
    let (measured, utilisation) = (per_s(profile.messages_per_s), number(demand.utilisation));
    step!(steps, "mean rate" [], needs.mean_rate => PerSecond,
        "{} messages / 86,400 s", number(demand.per_day));
    step!(steps, "peak rate" [], needs.peak_rate => PerSecond, "{mean} x {} (peak)", number(demand.peak));
    if demand.replicas != 1.0 {
        step!(steps, "rate of all nodes" [k], needs.node_traffic => PerSecond,
            "{}{}", per_s(needs.peak_rate), replicas(demand));
    }
    let bridge = |factor, from: f64, to: f64, what| {
        let bridged = format!(" ({} -> {} {what})", number(from), number(to));
        unless_1(factor, " / ", &bridged)
    };
    let channels = f64::from(profile.channels);
    let channels = bridge(needs.channel_factor, channels, demand.channels, "channels");
    let (from, to) = (profile.message_bytes, demand.size_bytes);
    let size = bridge(needs.size_factor, from, to, "bytes");
    step!(steps, "capacity of a node" [b c d], needs.capacity_per_node => PerSecond,
        "{measured} measured{channels}{size}");
    step!(steps, "planned rate of a node" [e], needs.rate_per_node => PerSecond,
        "{} x {utilisation} (utilisation)", per_s(needs.capacity_per_node));

    step!(steps, "nodes for the rate" [a], needs.nodes.for_rate => Nodes,
        "{traffic} / {}", per_s(needs.rate_per_node));
    if let Some((nodes, each)) = needs.nodes.for_disk.zip(demand.node_disk_bytes) {
        step!(steps, "nodes for the disk" [], nodes => Nodes,
            "{} / {} each", bytes(needs.storage.disk_bytes), bytes(each));
    }
    if let Some((nodes, each)) = needs.nodes.for_network.zip(demand.node_network_bytes) {
        step!(steps, "nodes for the network" [], nodes => Nodes, "{} / ({} each x {utilisation} utilisation)",
            bytes_per_s(needs.busier_direction()), bytes_per_s(each));
    }
    let mut least = String::new();
    if needs.nodes.working > needs.rounded_nodes() {
        least = format!(", at least {} for the replicas", number(demand.replicas));
    }
    step!(steps, "nodes" [k], needs.nodes.all => Nodes,
        "{} rounded up{least} + {} spare", number(needs.nodes.exact), number(demand.spare_nodes));
    if let Some((connections, clients)) = needs.nodes.connections.zip(demand.clients) {
        step!(steps, "connections" [], connections => Count,
            "{} clients x {} nodes", number(clients), number(needs.nodes.all));
    }

    if let Some((cpu_s, cores)) = needs.cpu_s_per_message.zip(needs.cores) {
        let source = match profile.daemon_cores_used {
            Some(used) => format!("{} cores / {measured} measured", number(used)),
            None => format!("{} channels as measured", profile.channels),
        };
        let channels = unless_1(needs.channel_factor, " x ", " (channels)");
        let size = unless_1(needs.size_factor, " x ", " (size)");
        step!(steps, "CPU of a message" [c d], cpu_s * 1e9 => Nanos, "{source}{channels}{size}");
        step!(steps, "cores" [e], cores => Cores,
            "{traffic} x {} / {utilisation} (utilisation)", nanos(cpu_s));
    }
}

/// Shows the space on disks, the memory and the bytes on the network.
fn steps_to_bytes(
    demand: &Demand,
    profile: &Profile,
    needs: &Needs,
    steps: &mut Vec<CalculationStep>,
) {
    let (traffic, fill) = (per_s(needs.node_traffic), number(demand.fill));
    let (size, backlog) = (
        number(demand.size_bytes),
        number(needs.storage.backlog_messages),
    );
    step!(steps, "largest backlog" [f], needs.storage.backlog_messages => Count,
        "{} at the peak ({}), within what days hold", Unit::Seconds.show(demand.retention_s),
        number(needs.peak_rate * demand.retention_s));
    let overhead = number(demand.stored_overhead_bytes);
    let copies = unless_1(demand.stored_copies, " x ", " copies");
    let (open, close) = if copies.is_empty() {
        ("", "")
    } else {
        ("(", ")")
    };
    step!(steps, "stored per message" [g], needs.storage.stored_bytes => Bytes,
        "{open}{size} + {overhead} bytes{close}{copies}");
    let stored = bytes(needs.storage.stored_bytes);
    step!(steps, "disk space" [h], needs.storage.disk_bytes => Bytes,
        "{backlog} x {stored}{} / {fill} (fill)", replicas(demand));
    let written = number(profile.disk_bytes_per_message.unwrap_or(0.0));
    let written = format!(" ({written} bytes per message were measured)");
    step!(steps, "disk writes" [], needs.storage.disk_rate => BytesPerSecond,
        "{traffic} x {stored}{}", unless_1(needs.storage.write_factor, " x ", &written));
    if let Some(catch_up_s) = needs.catch_up_s {
        step!(steps, "time to catch up" [b], catch_up_s => Seconds,
            "{backlog} / ({} of all working nodes - {} mean rate)",
            per_s(needs.rate_of_working_nodes(demand)), per_s(needs.mean_rate));
    }

    if let Some((memory, idle)) = needs.memory_per_node.zip(profile.memory_bytes_idle) {
        step!(steps, "memory of a node" [h j], memory => Bytes,
            "({} idle, measured + {} of backlog at {} bytes a message) / {fill} (fill)",
            bytes(idle as f64), bytes(needs.resident_bytes), number(needs.queued_bytes));
    }

    let channels = number(demand.channels);
    step!(steps, "network in" [i], needs.network_in => BytesPerSecond,
        "{traffic} x ({size} + {PUBLISH_WIRE_BYTES} + {channels} x {FINISH_WIRE_BYTES} bytes) x 1538/1460 (packets)");
    step!(steps, "network out" [i], needs.network_out => BytesPerSecond,
        "{traffic} x ({channels} x ({size} + {DELIVERY_WIRE_BYTES}) + {OK_WIRE_BYTES} bytes) x 1538/1460 (packets)");
}

/// Writes the number of replicas as a factor.
fn replicas(demand: &Demand) -> String {
    unless_1(demand.replicas, " x ", " (replicas)")
}

/// Writes a factor between two texts, or nothing if it is 1.
fn unless_1(factor: f64, before: &str, behind: &str) -> String {
    match factor {
        1.0 => String::new(),
        factor => format!("{before}{}{behind}", number(factor)),
    }
}

pub(super) fn per_s(value: f64) -> String {
    Unit::PerSecond.show(value)
}

pub(super) fn bytes(value: f64) -> String {
    Unit::Bytes.show(value)
}

pub(super) fn bytes_per_s(value: f64) -> String {
    Unit::BytesPerSecond.show(value)
}

pub(super) fn nanos(seconds: f64) -> String {
    Unit::Nanos.show(seconds * 1e9)
}

/// The memory that a topic's backlog has whatever `--mem-queue-size` says. Each core has a shard, and topics spread
/// over the shards.
pub(super) fn topic_memory_bytes(demand: &Demand, profile: &Profile) -> f64 {
    let [least, most] = TOPIC_MEMORY_BYTES;
    (SHARD_MEMORY_BYTES * f64::from(profile.cores) / demand.topics).clamp(least, most)
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

/// Bytes on the disk of one node for a body of `size_bytes`.
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
