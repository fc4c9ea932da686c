//! [`Concern`]: an entry of the list *Attention* of the page (`/api/live/attention`). It says in one sentence what is wrong
//! with one subject. A channel with a *problem* (`is_problem`) has a concern. `/?show=problem` of the page lists the topics
//! that need attention.

use std::collections::BTreeSet;

use nsq_doctor::{duration, short};
use serde::{Serialize, Serializer};
use wire::go_json::Object;
use wire::json_object;

use super::node::{DiskFigures, NodeCheck};
use super::producer::TopicProducers;
use super::round::{NodeRound, Round};
use super::{Checkup, and_more};

/// The part of a disk that is free below which the disk needs attention.
const FREE_MIN: f64 = 0.1;

/// The part of what is used of a disk below which the waiting messages are not the reason that the disk gets full.
const BACKLOG_SHARE: f64 = 0.1;

/// The load of a shard from which the shard is near the limit of its core.
const LOAD_MAX: f64 = 0.9;

/// The subject of a concern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// `host:port` of an nsqlookupd.
    Lookupd(String),
    /// `host:port` of an nsqd.
    Node(String),
    /// A topic.
    Topic(String),
    /// A topic and its channel.
    Channel(String, String),
}

impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (kind, name) = match self {
            Subject::Lookupd(address) => ("lookupd", address),
            Subject::Node(address) => ("node", address),
            Subject::Topic(topic) => ("topic", topic),
            Subject::Channel(topic, channel) => {
                return json_object! { topic, channel }.serialize(to);
            }
        };
        Object(&[(kind, name)]).serialize(to)
    }
}

/// Something that needs attention.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Concern {
    /// The subject.
    #[serde(flatten)]
    pub subject: Subject,
    /// A sentence that says what is wrong, and what to do.
    pub sentence: String,
    /// Messages that wait. 0 for servers.
    pub depth: i64,
    /// The age of the oldest message in milliseconds, if a node tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_ms: Option<i64>,
    /// True if this age grows: nobody finishes the oldest message.
    pub is_older: bool,
    /// True if messages of the channel are delivered again: consumers requeue them, or they time out.
    pub is_retried: bool,
}

/// Returns all concerns: servers first, because they explain the rest, then the oldest message first.
/// `found` has the concerns about channels, and those about unclaimed messages.
pub(super) fn all(round: &Round, checkup: &Checkup, found: Vec<Concern>) -> Vec<Concern> {
    let mut concerns = lookupds(round);
    let gone = checkup.gone.iter();
    concerns.extend(gone.map(|gone| {
        let subject = Subject::Node(gone.address.clone());
        Concern::new(subject, gone.sentence.clone())
    }));
    for (address, node) in &round.nodes {
        let check = checkup.nodes.get(address);
        concerns.extend(of_node(address, node, check));
    }
    let servers = concerns.len();
    concerns.extend(found);
    let mut explained = BTreeSet::new();
    for concern in &mut concerns[servers..] {
        let (Subject::Topic(topic) | Subject::Channel(topic, _)) = &concern.subject else {
            continue;
        };
        // A backlog may come from a producer that sends more than it used to.
        let producers = checkup.producers.get(topic);
        if concern.depth > 0
            && let Some(grown) = producers.and_then(TopicProducers::grown)
        {
            explained.insert(topic.clone());
            concern.sentence += &format!(". A producer has grown: {grown}");
        }
    }
    concerns.extend(above_usual(checkup, &explained));
    concerns[servers..].sort_by(|a, b| {
        let by_age = b.oldest_ms.unwrap_or(-1).cmp(&a.oldest_ms.unwrap_or(-1));
        let by_depth = || b.depth.cmp(&a.depth);
        by_age
            .then_with(by_depth)
            .then_with(|| a.subject.cmp(&b.subject))
    });
    concerns
}

impl Concern {
    /// Returns a concern that is not about a backlog.
    pub(super) fn new(subject: Subject, sentence: String) -> Concern {
        Concern {
            subject,
            sentence,
            depth: 0,
            oldest_ms: None,
            is_older: false,
            is_retried: false,
        }
    }
}

fn lookupds(round: &Round) -> Vec<Concern> {
    let all: BTreeSet<&String> = round.lookupds.values().flatten().flatten().collect();
    let concerns = round.lookupds.iter().filter_map(|(address, lookupd)| {
        let sentence = match lookupd {
            Err(why) => format!(
                "This nsqlookupd does not answer: {why}. Consumers that ask no other one find no new nodes"
            ),
            Ok(nodes) => {
                let mut missing = all.iter().filter(|node| !nodes.contains(**node));
                let first = missing.next()?;
                let more = and_more(missing.count());
                format!(
                    "This nsqlookupd does not know {first}{more}, and others do: see \
                     --lookupd-tcp-address of the node, and the network between them"
                )
            }
        };
        Some(Concern::new(Subject::Lookupd(address.clone()), sentence))
    });
    concerns.collect()
}

/// Returns what is wrong with a node.
fn of_node(address: &str, node: &NodeRound, check: Option<&NodeCheck>) -> Vec<Concern> {
    let mut sentences = Vec::new();
    if let Some(why) = &node.failure {
        sentences.push(format!("This nsqd does not answer: {why}"));
    } else if node.says_disk_is_full() {
        sentences.push(full_disk(node, check));
    } else if node.health != "OK" && !node.health.is_empty() {
        sentences.push(format!("This nsqd takes no messages: {}", node.health));
    }
    if node.metrics.as_ref().is_some_and(|it| it.is_draining) {
        sentences.push(
            "This nsqd drains: it refuses publishes, and ends when its messages are consumed"
                .to_owned(),
        );
    }
    if let Some(disk) = check.and_then(|check| check.disk)
        && !disk.is_full
    {
        let free = disk.free_bytes / disk.size_bytes;
        let is_filling = disk.full_in.filter(|_| disk.is_full_soon);
        if let Some(seconds) = is_filling {
            sentences.push(format!(
                "Disk full in about {} ({}B free): {}",
                duration(seconds),
                short(disk.free_bytes),
                disk_advice(node, disk)
            ));
        } else if free < FREE_MIN {
            sentences.push(format!(
                "The disk has {}B free, {:.0} % of its size: {}",
                short(disk.free_bytes),
                free * 100.0,
                disk_advice(node, disk)
            ));
        }
    }
    for (number, shard) in check.iter().flat_map(|check| &check.shards) {
        let Some(load) = shard.load.filter(|load| *load >= LOAD_MAX) else {
            continue;
        };
        let busiest = shard.busiest.as_ref().map(|busiest| {
            let (rate, all) = (short(busiest.rate), short(shard.arrivals));
            format!("; {} has {rate} of its {all} messages/s", busiest.topic)
        });
        let busiest = busiest.unwrap_or_default();
        sentences.push(format!(
            "Shard {number} uses {:.0} % of its core{busiest}",
            load * 100.0
        ));
    }
    let concern = |sentence| Concern::new(Subject::Node(address.to_owned()), sentence);
    sentences.into_iter().map(concern).collect()
}

/// Returns the sentence about a node whose disk has no room for a message that was refused. Smaller messages may have room.
fn full_disk(node: &NodeRound, check: Option<&NodeCheck>) -> String {
    let refused = match node.refused_count {
        0 => String::new(),
        1 => ", 1 since its start".to_owned(),
        #[allow(clippy::cast_precision_loss)] // A rounded number is shown.
        count => format!(", {} since its start", short(count as f64)),
    };
    let advice = match check.and_then(|check| check.disk) {
        Some(disk) => disk_advice(node, disk),
        None => "make room on it".to_owned(),
    };
    format!("The disk is full, and this nsqd refuses messages{refused}: {advice}")
}

/// Returns what to do about a disk with little room. A small backlog is not the reason.
fn disk_advice(node: &NodeRound, disk: DiskFigures) -> String {
    let used = disk.size_bytes - disk.free_bytes;
    let backlog = node.backlog_bytes;
    match backlog.filter(|bytes| *bytes < used * BACKLOG_SHARE) {
        Some(bytes) => format!(
            "find what uses it; the messages that wait or can be brought back have only about {}B",
            short(bytes)
        ),
        None => "consume or empty the longest backlog, or find what else uses the disk".to_owned(),
    }
}

/// Returns the topics whose rate is many times the usual one although consumers keep up. `explained` has the
/// topics whose concerns name the producer already.
fn above_usual(checkup: &Checkup, explained: &BTreeSet<String>) -> Vec<Concern> {
    let topics = checkup.producers.iter();
    let above_usual = topics
        .filter(|(name, producers)| producers.is_far_above_usual() && !explained.contains(*name));
    let concerns = above_usual.filter_map(|(name, producers)| {
        let sentence = format!(
                "{}/s arrive instead of the usual {}/s, and consumers keep up. A producer has grown: {}",
                short(producers.arrivals),
                short(producers.usual.unwrap_or(0.0)),
                producers.grown()?
            );
        Some(Concern::new(Subject::Topic(name.clone()), sentence))
    });
    concerns.collect()
}
