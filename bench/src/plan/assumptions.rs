//! The assumptions of a plan, in the words of its demand and its profile. Steps name assumptions by their keys.

use serde::Serialize;

use super::demand::Demand;
use super::needs::{
    DELIVERY_WIRE_BYTES, FINISH_WIRE_BYTES, OK_WIRE_BYTES, PUBLISH_WIRE_BYTES, nanos,
    topic_memory_bytes,
};
use crate::result::Profile;
use crate::scenario::unit::{Unit, number};

/// An assumption behind a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Assumption {
    /// The name by which steps refer to the assumption.
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
            Unit::Bytes.show(topic_memory_bytes(demand, profile))
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
