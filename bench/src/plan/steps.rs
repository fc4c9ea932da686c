//! The arithmetic of [`Needs`] as it is shown: each step with its numbers, its units and what it
//! assumes.

use serde::Serialize;

use super::needs::{
    DELIVERY_WIRE_BYTES, Demand, FINISH_WIRE_BYTES, Needs, OK_WIRE_BYTES, PUBLISH_WIRE_BYTES,
    TOPIC_MEMORY_BYTES_MIN,
};
use crate::result::Profile;
use crate::unit::{Unit, number};

/// One line of the arithmetic.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Step {
    /// The name of the value.
    pub(super) what: &'static str,
    /// From which numbers.
    pub(super) formula: String,
    /// The value, in the unit.
    pub(super) value: f64,
    pub(super) unit: Unit,
    /// Value and unit as people read them.
    pub(super) shown: String,
    /// The [`Assumption::key`]s behind it.
    pub(super) assumes: Vec<char>,
}

/// Something taken for granted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Assumption {
    /// By which steps refer to it.
    pub(super) key: char,
    pub(super) text: String,
}

/// Writes what the arithmetic takes for granted, in the words of this demand and profile.
pub(super) fn assumptions(demand: &Demand, profile: &Profile) -> Vec<Assumption> {
    let percent = |share: f64| format!("{} %", number(share * 100.0));
    let cpu = match (profile.cpu_s_per_published, profile.cpu_s_per_delivered) {
        (Some(published), Some(delivered)) => format!(
            "other channels cost in proportion to CPU, {} per publish and {} per delivery as \
             measured, or as if both cost the same, whichever is more",
            nanos(published),
            nanos(delivered)
        ),
        _ => "a delivery costs as much as a publish (the profile does not tell them apart)".into(),
    };
    let batches = match profile.batch {
        1 => "one at a time".to_owned(),
        batch => format!("in batches of {batch}"),
    };
    let copies = match demand.stored_copies {
        1.0 => "one copy".to_owned(),
        copies => format!("{} copies", number(copies)),
    };
    let texts = [
        "every topic lives on all nodes, and producers spread over them evenly".to_owned(),
        format!(
            "a node is a machine like the measured one: {}, {} cores; generator and daemon shared it \
             if both were local, then a node of its own does better. Messages are published {batches}, \
             as measured",
            profile.machine.cpu_model, profile.cores
        ),
        cpu,
        format!(
            "CPU grows in proportion to the size of messages beyond the measured {} bytes, and \
             smaller ones are not cheaper",
            number(profile.message_bytes)
        ),
        format!(
            "at the peak a node carries {} of its measured rate; the rest is for bursts within \
             it, and for catching up",
            percent(demand.utilisation)
        ),
        "consumers are away in the busiest stretch there is: no longer stretch of the peak than \
         the day's messages make"
            .to_owned(),
        format!(
            "a daemon stores {} bytes with each body, and {copies} of a message whatever the channels \
             (ringq: 34 of frame and 16 of slot, one copy; nsqd: 30, and a copy per channel)",
            number(demand.stored_overhead_bytes)
        ),
        format!(
            "disks and memory are filled to {} at most",
            percent(demand.fill)
        ),
        format!(
            "on the wire a publish adds {PUBLISH_WIRE_BYTES} bytes (PUB, a topic name of 16; a \
             batch adds less) and an OK of {OK_WIRE_BYTES}, a delivery {DELIVERY_WIRE_BYTES} and a \
             FIN of {FINISH_WIRE_BYTES}; packets are full: 1,538 bytes carry 1,460"
        ),
        format!(
            "a daemon keeps {} messages per topic in memory (--mem-queue-size), at least {}; page \
             cache beyond that is welcome, not needed",
            number(demand.mem_queue),
            Unit::Bytes.show(TOPIC_MEMORY_BYTES_MIN)
        ),
        match demand.replicas {
            1.0 => "each message lives on one node: while a node is down, what it holds waits \
                    there, and the spare ones take over what is new"
                .to_owned(),
            replicas => format!(
                "producers publish each message to {replicas} nodes, and consumers drop what they \
                 have already seen"
            ),
        },
    ];
    let keys = 'a'..='z';
    keys.zip(texts)
        .map(|(key, text)| Assumption { key, text })
        .collect()
}

/// Adds a step: name, keys of its assumptions, value and unit, formula.
macro_rules! step {
    ($steps:ident, $what:literal [$($key:ident)*], $value:expr => $unit:ident, $($formula:tt)*) => {
        $steps.push(Step {
            what: $what,
            formula: format!($($formula)*),
            value: $value,
            unit: Unit::$unit,
            shown: Unit::$unit.show($value),
            assumes: stringify!($($key)*).chars().filter(|key| *key != ' ').collect(),
        })
    };
}

/// Writes the steps from the demand to the needs, in order.
pub(super) fn steps(demand: &Demand, profile: &Profile, needs: &Needs) -> Vec<Step> {
    let mut steps = Vec::new();
    rate_steps(demand, profile, needs, &mut steps);
    node_steps(demand, needs, &mut steps);
    cpu_steps(demand, profile, needs, &mut steps);
    disk_steps(demand, profile, needs, &mut steps);
    if let (Some(memory), Some(idle)) = (needs.memory_per_node, profile.memory_bytes_idle) {
        let (idle, backlog) = (bytes(idle as f64), bytes(needs.resident_bytes));
        let (queued, fill) = (number(needs.queued_bytes), number(demand.fill));
        step!(
            steps, "memory of a node" [h j], memory => Bytes,
            "({idle} idle, measured + {backlog} of backlog at {queued} bytes a message) / {fill} (fill)"
        );
    }
    let rate = per_s(needs.node_traffic);
    let (channels, size) = (number(demand.channels), number(demand.size_bytes));
    step!(
        steps, "network in" [i], needs.network_in => BytesPerSecond,
        "{rate} x ({size} + {PUBLISH_WIRE_BYTES} + {channels} x {FINISH_WIRE_BYTES} bytes) x \
         1538/1460 (packets)"
    );
    step!(
        steps, "network out" [i], needs.network_out => BytesPerSecond,
        "{rate} x ({channels} x ({size} + {DELIVERY_WIRE_BYTES}) + {OK_WIRE_BYTES} bytes) x \
         1538/1460 (packets)"
    );
    steps
}

fn rate_steps(demand: &Demand, profile: &Profile, needs: &Needs, steps: &mut Vec<Step>) {
    let (mean, peak) = (per_s(needs.mean_rate), per_s(needs.peak_rate));
    let (factor, replicas) = (number(demand.peak), number(demand.replicas));
    let per_day = number(demand.per_day);
    step!(steps, "mean rate" [], needs.mean_rate => PerSecond, "{per_day} messages / 86,400 s");
    step!(steps, "peak rate" [], needs.peak_rate => PerSecond, "{mean} x {factor} (peak)");
    if demand.replicas != 1.0 {
        step!(
            steps, "rate of all nodes" [k], needs.node_traffic => PerSecond,
            "{peak} x {replicas} (replicas)"
        );
    }
    let mut bridges = String::new();
    let (from, to) = (profile.channels.into(), demand.channels);
    let channels = (needs.channel_factor, from, to, "channels");
    let size = (
        needs.size_factor,
        profile.message_bytes,
        demand.size_bytes,
        "bytes",
    );
    for (factor, from, to, what) in [channels, size] {
        if factor != 1.0 {
            let [factor, from, to] = [factor, from, to].map(number);
            bridges += &format!(" / {factor} ({from} -> {to} {what})");
        }
    }
    let measured = per_s(profile.messages_per_s);
    step!(
        steps, "capacity of a node" [b c d], needs.capacity_per_node => PerSecond,
        "{measured} measured{bridges}"
    );
    let (capacity, utilisation) = (per_s(needs.capacity_per_node), number(demand.utilisation));
    step!(
        steps, "planned rate of a node" [e], needs.rate_per_node => PerSecond,
        "{capacity} x {utilisation} (utilisation)"
    );
}

fn node_steps(demand: &Demand, needs: &Needs, steps: &mut Vec<Step>) {
    let (traffic, rate) = (per_s(needs.node_traffic), per_s(needs.rate_per_node));
    step!(steps, "nodes for the rate" [a], needs.nodes_for_rate => Nodes, "{traffic} / {rate}");
    if let Some((nodes, each)) = needs.nodes_for_disk.zip(demand.node_disk_bytes) {
        let (all, each) = (bytes(needs.disk_bytes), bytes(each));
        step!(steps, "nodes for the disk" [], nodes => Nodes, "{all} / {each} each");
    }
    if let Some((nodes, each)) = needs.nodes_for_network.zip(demand.node_network_bytes) {
        let busier = needs.network_in.max(needs.network_out);
        let [busier, each] = [busier, each].map(|bytes| Unit::BytesPerSecond.show(bytes));
        let utilisation = number(demand.utilisation);
        step!(
            steps, "nodes for the network" [], nodes => Nodes,
            "{busier} / ({each} each x {utilisation} utilisation)"
        );
    }
    let least = match needs.nodes_working > (needs.nodes_exact - 1e-9).ceil() {
        true => format!(", at least {} for the replicas", number(demand.replicas)),
        false => String::new(),
    };
    let (exact, spare) = (number(needs.nodes_exact), number(demand.spare_nodes));
    step!(steps, "nodes" [k], needs.nodes => Nodes, "{exact} rounded up{least} + {spare} spare");
}

fn cpu_steps(demand: &Demand, profile: &Profile, needs: &Needs, steps: &mut Vec<Step>) {
    let (Some(cores), Some(cpu_s)) = (needs.cores, needs.cpu_s_per_message) else {
        return;
    };
    let mut measured = match profile.daemon_cores_used {
        Some(used) => {
            let rate = per_s(profile.messages_per_s);
            format!("{} cores / {rate} measured", number(used))
        }
        None => format!("{} channels as measured", profile.channels),
    };
    let factors = [
        (needs.channel_factor, "channels"),
        (needs.size_factor, "size"),
    ];
    for (factor, what) in factors.into_iter().filter(|(factor, _)| *factor != 1.0) {
        measured += &format!(" x {} ({what})", number(factor));
    }
    step!(steps, "CPU of a message" [c d], cpu_s * 1e9 => Nanos, "{measured}");
    let (traffic, cpu) = (per_s(needs.node_traffic), nanos(cpu_s));
    let utilisation = number(demand.utilisation);
    step!(steps, "cores" [e], cores => Cores, "{traffic} x {cpu} / {utilisation} (utilisation)");
}

fn disk_steps(demand: &Demand, profile: &Profile, needs: &Needs, steps: &mut Vec<Step>) {
    let backlog = number(needs.backlog_messages);
    let retention = Unit::Seconds.show(demand.retention_s);
    let at_peak = number(needs.peak_rate * demand.retention_s);
    step!(
        steps, "largest backlog" [f], needs.backlog_messages => Count,
        "{retention} at the peak ({at_peak}), within what days hold"
    );
    let (size, overhead) = (
        number(demand.size_bytes),
        number(demand.stored_overhead_bytes),
    );
    let each = format!("{size} + {overhead} bytes");
    let each = match demand.stored_copies {
        1.0 => each,
        copies => format!("({each}) x {} copies", number(copies)),
    };
    step!(steps, "stored per message" [g], needs.stored_bytes => Bytes, "{each}");
    let replicas = match demand.replicas {
        1.0 => String::new(),
        replicas => format!(" x {} (replicas)", number(replicas)),
    };
    let (stored, fill) = (bytes(needs.stored_bytes), number(demand.fill));
    step!(
        steps, "disk space" [h], needs.disk_bytes => Bytes,
        "{backlog} x {stored}{replicas} / {fill} (fill)"
    );
    let written = match needs.write_factor {
        1.0 => String::new(),
        factor => {
            let measured = number(profile.disk_bytes_per_message.unwrap_or(f64::NAN));
            format!(
                " x {} ({measured} bytes per message were measured)",
                number(factor)
            )
        }
    };
    let traffic = per_s(needs.node_traffic);
    step!(
        steps, "disk writes" [], needs.disk_rate => BytesPerSecond,
        "{traffic} x {stored}{written}"
    );
    if let Some(seconds) = needs.catch_up_s {
        let all = needs.nodes_working * needs.capacity_per_node / demand.replicas;
        let (all, mean) = (per_s(all), per_s(needs.mean_rate));
        step!(
            steps, "time to catch up" [b], seconds => Seconds,
            "{backlog} / ({all} of all working nodes - {mean} mean rate)"
        );
    }
}

fn per_s(value: f64) -> String {
    Unit::PerSecond.show(value)
}

fn bytes(value: f64) -> String {
    Unit::Bytes.show(value)
}

fn nanos(seconds: f64) -> String {
    Unit::Nanos.show(seconds * 1e9)
}
