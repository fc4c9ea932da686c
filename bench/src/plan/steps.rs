//! The arithmetic of [`Needs`] as it is shown: each step with its numbers, its units and what it
//! assumes.

use serde::Serialize;

use super::needs::{
    DELIVERY_WIRE_BYTES, Demand, FINISH_WIRE_BYTES, Needs, OK_WIRE_BYTES, PUBLISH_WIRE_BYTES,
    TOPIC_MEMORY_BYTES_MIN,
};
use crate::report::unit::{Unit, significant};
use crate::result::Profile;

/// One line of the arithmetic.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// What is computed.
    pub what: &'static str,
    /// From which numbers.
    pub formula: String,
    /// The value, in the unit.
    pub value: f64,
    /// The unit of the value.
    pub unit: &'static str,
    /// Value and unit as people read them.
    pub shown: String,
    /// The [`Assumption::key`]s behind it.
    pub assumes: Vec<char>,
}

/// Something taken for granted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Assumption {
    /// By which steps refer to it.
    pub key: char,
    /// What it is.
    pub text: String,
}

/// What the arithmetic takes for granted, in the words of this demand and profile.
#[must_use]
pub(super) fn assumptions(demand: &Demand, profile: &Profile) -> Vec<Assumption> {
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
    let machine = format!(
        "a node is a machine like the measured one: {}, {} cores; generator and daemon shared it \
         if both were local, then a node of its own does better. Messages are published {batches}, \
         as measured",
        profile.machine.cpu_model, profile.cores
    );
    let texts = [
        "every topic lives on all nodes, and producers spread over them evenly".to_owned(),
        machine,
        cpu,
        format!(
            "CPU grows in proportion to the size of messages beyond the measured {} bytes, and \
             smaller ones are not cheaper",
            significant(profile.message_bytes)
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
            "a daemon stores {} bytes with each body, and {} of a message whatever the channels \
             (ringq: 34 of frame and 16 of slot, one copy; nsqd: 30, and a copy per channel)",
            significant(demand.stored_overhead_bytes),
            if demand.stored_copies == 1.0 {
                "one copy".to_owned()
            } else {
                format!("{} copies", significant(demand.stored_copies))
            }
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
            "a daemon keeps {} messages per topic in memory (--mem-queue-size), at least {}; page cache beyond that is welcome, not needed",
            significant(demand.mem_queue),
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

/// The steps from the demand to the needs, in order.
#[must_use]
pub(super) fn steps(demand: &Demand, profile: &Profile, needs: &Needs) -> Vec<Step> {
    let mut steps = Vec::new();
    rate_steps(demand, profile, needs, &mut steps);
    node_steps(demand, profile, needs, &mut steps);
    disk_steps(demand, profile, needs, &mut steps);
    memory_steps(demand, profile, needs, &mut steps);
    network_steps(demand, needs, &mut steps);
    steps
}

fn rate_steps(demand: &Demand, profile: &Profile, needs: &Needs, steps: &mut Vec<Step>) {
    let per_s = |value| Unit::PerSecond.show(value);
    steps.push(step(
        "mean rate",
        format!("{} messages / 86,400 s", Unit::Count.show(demand.per_day)),
        (needs.mean_rate, Unit::PerSecond),
        "",
    ));
    steps.push(step(
        "peak rate",
        format!(
            "{} x {} (peak)",
            per_s(needs.mean_rate),
            significant(demand.peak)
        ),
        (needs.peak_rate, Unit::PerSecond),
        "",
    ));
    if demand.replicas != 1.0 {
        steps.push(step(
            "rate of all nodes",
            format!(
                "{} x {} (replicas)",
                per_s(needs.peak_rate),
                significant(demand.replicas)
            ),
            (needs.node_traffic, Unit::PerSecond),
            "k",
        ));
    }
    let mut formula = format!("{} measured", per_s(profile.messages_per_s));
    if needs.channel_factor != 1.0 {
        let (from, to) = (f64::from(profile.channels), demand.channels);
        let (from, to) = (significant(from), significant(to));
        formula += &format!(
            " / {} ({from} -> {to} channels)",
            significant(needs.channel_factor)
        );
    }
    if needs.size_factor != 1.0 {
        let (from, to) = (
            significant(profile.message_bytes),
            significant(demand.size_bytes),
        );
        formula += &format!(
            " / {} ({from} -> {to} bytes)",
            significant(needs.size_factor)
        );
    }
    steps.push(step(
        "capacity of a node",
        formula,
        (needs.capacity_per_node, Unit::PerSecond),
        "bcd",
    ));
    let utilisation = significant(demand.utilisation);
    steps.push(step(
        "planned rate of a node",
        format!(
            "{} x {utilisation} (utilisation)",
            per_s(needs.capacity_per_node)
        ),
        (needs.rate_per_node, Unit::PerSecond),
        "e",
    ));
}

fn node_steps(demand: &Demand, profile: &Profile, needs: &Needs, steps: &mut Vec<Step>) {
    let per_s = |value| Unit::PerSecond.show(value);
    let exact = |what, formula, value| step(what, formula, (value, Unit::Nodes), "");
    steps.push(Step {
        assumes: vec!['a'],
        ..exact(
            "nodes for the rate",
            format!(
                "{} / {}",
                per_s(needs.node_traffic),
                per_s(needs.rate_per_node)
            ),
            needs.nodes_for_rate,
        )
    });
    if let Some((nodes, bytes)) = needs.nodes_for_disk.zip(demand.node_disk_bytes) {
        let (all, one) = (Unit::Bytes.show(needs.disk_bytes), Unit::Bytes.show(bytes));
        steps.push(exact(
            "nodes for the disk",
            format!("{all} / {one} each"),
            nodes,
        ));
    }
    if let Some((nodes, bytes)) = needs.nodes_for_network.zip(demand.node_network_bytes) {
        let busier = needs.network_in.max(needs.network_out);
        let formula = format!(
            "{} / ({} each x {} utilisation)",
            Unit::BytesPerSecond.show(busier),
            Unit::BytesPerSecond.show(bytes),
            significant(demand.utilisation)
        );
        steps.push(exact("nodes for the network", formula, nodes));
    }
    let mut formula = format!("{} rounded up", significant(needs.nodes_exact));
    if needs.nodes_working > (needs.nodes_exact - 1e-9).ceil() {
        formula += &format!(
            ", at least {} for the replicas",
            significant(demand.replicas)
        );
    }
    formula += &format!(" + {} spare", significant(demand.spare_nodes));
    steps.push(step("nodes", formula, (needs.nodes, Unit::Nodes), "k"));
    if let (Some(cores), Some(cpu)) = (needs.cores, needs.cpu_s_per_message) {
        let mut formula = match profile.daemon_cores_used {
            Some(used) => format!(
                "{} cores / {} measured",
                significant(used),
                per_s(profile.messages_per_s)
            ),
            None => format!("{} channels as measured", profile.channels),
        };
        for (factor, what) in [
            (needs.channel_factor, "channels"),
            (needs.size_factor, "size"),
        ] {
            if factor != 1.0 {
                formula += &format!(" x {} ({what})", significant(factor));
            }
        }
        steps.push(step(
            "CPU of a message",
            formula,
            (cpu * 1e9, Unit::Nanos),
            "cd",
        ));
        let formula = format!(
            "{} x {} / {} (utilisation)",
            per_s(needs.node_traffic),
            nanos(cpu),
            significant(demand.utilisation)
        );
        steps.push(step("cores", formula, (cores, Unit::Cores), "e"));
    }
}

fn disk_steps(demand: &Demand, profile: &Profile, needs: &Needs, steps: &mut Vec<Step>) {
    let count = |value| Unit::Count.show(value);
    let retention = Unit::Seconds.show(demand.retention_s);
    let at_peak = needs.peak_rate * demand.retention_s;
    steps.push(step(
        "largest backlog",
        format!(
            "{retention} at the peak ({}), within what days hold",
            count(at_peak)
        ),
        (needs.backlog_messages, Unit::Count),
        "f",
    ));
    let mut formula = format!(
        "{} + {} bytes",
        significant(demand.size_bytes),
        significant(demand.stored_overhead_bytes)
    );
    if demand.stored_copies != 1.0 {
        formula = format!("({formula}) x {} copies", significant(demand.stored_copies));
    }
    steps.push(step(
        "stored per message",
        formula,
        (needs.stored_bytes, Unit::Bytes),
        "g",
    ));
    let replicas = match demand.replicas {
        1.0 => String::new(),
        replicas => format!(" x {} (replicas)", significant(replicas)),
    };
    let stored = Unit::Bytes.show(needs.stored_bytes);
    let formula = format!(
        "{} x {stored}{replicas} / {} (fill)",
        count(needs.backlog_messages),
        significant(demand.fill)
    );
    steps.push(step(
        "disk space",
        formula,
        (needs.disk_bytes, Unit::Bytes),
        "h",
    ));
    let mut formula = format!("{} x {stored}", Unit::PerSecond.show(needs.node_traffic));
    if needs.write_factor != 1.0 {
        let measured = significant(profile.disk_bytes_per_message.unwrap_or(f64::NAN));
        let factor = significant(needs.write_factor);
        formula += &format!(" x {factor} ({measured} bytes per message were measured)");
    }
    steps.push(step(
        "disk writes",
        formula,
        (needs.disk_rate, Unit::BytesPerSecond),
        "",
    ));
    if let Some(seconds) = needs.catch_up_s {
        let all = needs.nodes_working * needs.capacity_per_node / demand.replicas;
        let formula = format!(
            "{} / ({} of all working nodes - {} mean rate)",
            count(needs.backlog_messages),
            Unit::PerSecond.show(all),
            Unit::PerSecond.show(needs.mean_rate)
        );
        steps.push(step(
            "time to catch up",
            formula,
            (seconds, Unit::Seconds),
            "b",
        ));
    }
}

fn memory_steps(demand: &Demand, profile: &Profile, needs: &Needs, steps: &mut Vec<Step>) {
    let (Some(memory), Some(idle)) = (needs.memory_per_node, profile.memory_bytes_idle) else {
        return;
    };
    let formula = format!(
        "({} idle, measured + {} of backlog at {} bytes a message) / {} (fill)",
        Unit::Bytes.show(idle as f64),
        Unit::Bytes.show(needs.resident_bytes),
        significant(needs.queued_bytes),
        significant(demand.fill)
    );
    steps.push(step(
        "memory of a node",
        formula,
        (memory, Unit::Bytes),
        "hj",
    ));
}

fn network_steps(demand: &Demand, needs: &Needs, steps: &mut Vec<Step>) {
    let rate = Unit::PerSecond.show(needs.node_traffic);
    let channels = significant(demand.channels);
    let size = significant(demand.size_bytes);
    steps.push(step(
        "network in",
        format!(
            "{rate} x ({size} + {PUBLISH_WIRE_BYTES} + {channels} x {FINISH_WIRE_BYTES} bytes) x \
             1538/1460 (packets)"
        ),
        (needs.network_in, Unit::BytesPerSecond),
        "i",
    ));
    steps.push(step(
        "network out",
        format!(
            "{rate} x ({channels} x ({size} + {DELIVERY_WIRE_BYTES}) + {OK_WIRE_BYTES} bytes) x \
             1538/1460 (packets)"
        ),
        (needs.network_out, Unit::BytesPerSecond),
        "i",
    ));
}

fn step(what: &'static str, formula: String, value: (f64, Unit), assumes: &str) -> Step {
    let (value, unit) = value;
    Step {
        what,
        formula,
        value,
        unit: unit.name(),
        shown: unit.show(value),
        assumes: assumes.chars().collect(),
    }
}

fn nanos(seconds: f64) -> String {
    Unit::Nanos.show(seconds * 1e9)
}

fn percent(share: f64) -> String {
    format!("{} %", significant(share * 100.0))
}
