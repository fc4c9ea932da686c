//! The preparation of a run, before its first connection, and the cleaning up after its last.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Options;
use crate::clock::Clock;
use crate::generator::consumer::{Behaviour, Consumer};
use crate::generator::control::Control;
use crate::generator::pace::{Curve, Pace};
use crate::generator::producer::{Producer, PublishSettings};
use crate::generator::{ConsumerSettings, GeneratorSettings, Reading, Role};
use crate::http::call;
use crate::run::depth;
use crate::scenario::header::{Filler, HEADER_BYTES};
use crate::scenario::size::Sizes;
use crate::scenario::upgrades::Upgrades;
use crate::scenario::{Client, Scenario};
use crate::target::Target;
use fastrand::Rng;

/// Sizes drawn beforehand, to be used in turn.
const SIZES: usize = 4096;
/// Longest time for deleting topics.
const CLEAN_UP_MAX: Duration = Duration::from_secs(20);
/// Descriptors for everything but the connections.
const SPARE_DESCRIPTORS: u64 = 64;

/// A run that is ready to be set up.
pub(super) struct Prepared {
    pub(super) topics: Vec<String>,
    pub(super) prefix: String,
    pub(super) control: Arc<Control>,
    pub(super) generators: Vec<GeneratorSettings>,
    pub(super) connections: usize,
}

pub(super) fn prepare(
    target: &Target,
    scenario: &Scenario,
    options: &Options,
    clock: Clock,
) -> Result<Prepared, String> {
    let connections = u64::from(scenario.producers) + scenario.consumer_connections();
    allow_descriptors(connections)?;
    check(target, scenario)?;
    let upgrades = Arc::new(Upgrades::new(scenario, target.tcp)?);
    // The clock's lower bits differ from run to run.
    let run = (Rng::with_seed(clock.now_ns()).u64(..) & 0xffff) as u16;
    let made_up = || format!("nsq_bench_{run:04x}");
    let prefix = options.topic.clone().unwrap_or_else(made_up);
    let topics = names(&prefix, scenario.topics);
    if wire::name::TopicName::new(topics[topics.len() - 1].as_bytes()).is_none() {
        return Err(format!("`{prefix}` is no name for a topic"));
    }
    let channels = names("ch", scenario.channels.max(1));
    make_channels(target, scenario, &topics, &channels)?;

    let is_consumed = scenario.consumers > 0;
    let consumed = if is_consumed { channels.len() } else { 0 };
    let control = Arc::new(Control::new(consumed));
    if scenario.reads_late() {
        // Messages may time out on their way to a consumer that reads late.
        for mut ledger in control.all_ledgers() {
            ledger.allow_redeliveries();
        }
    }
    let shared = Arc::new(scenario.clone());
    let consuming = options.threads.max(1);
    let threads = threads(scenario, consuming);
    let mut generators: Vec<GeneratorSettings> = (0..threads)
        .map(|generator| GeneratorSettings {
            generator,
            core: (!options.cores.is_empty())
                .then(|| options.cores[generator % options.cores.len()]),
            tcp: target.tcp,
            http: target.http,
            upgrades: Arc::clone(&upgrades),
            clock,
            control: Arc::clone(&control),
            roles: Vec::new(),
            scenario: Arc::clone(&shared),
            seed: scenario.seed ^ (generator as u64) << 32,
        })
        .collect();
    let producers = producers(target, scenario, &topics, run);
    for (index, producer) in producers.into_iter().enumerate() {
        let role = Role::Producer(Box::new(producer));
        generators[index % threads].roles.push(role);
    }
    let behaviour = Behaviour {
        scenario: scenario.clone(),
        run: (scenario.producers > 0).then_some(run),
        owns_topics: options.topic.is_none(),
    };
    let consumers = consumers(&topics, &channels, behaviour);
    for (index, consumer) in consumers.into_iter().enumerate() {
        // Consumers go to the threads from the other end, so that one producer and one consumer are on different
        // threads.
        let thread = threads - 1 - index % consuming;
        generators[thread].roles.push(consumer);
    }
    Ok(Prepared {
        topics,
        prefix,
        control,
        generators,
        connections: usize::try_from(connections).unwrap_or(usize::MAX),
    })
}

/// Refuses a scenario that the daemon cannot serve.
fn check(target: &Target, scenario: &Scenario) -> Result<(), String> {
    if let Some(most) = target.rdy_max
        && scenario.consumers > 0
        && u64::from(scenario.rdy) > most
    {
        return Err(format!(
            "RDY {} is more than the daemon allows ({most}); give --rdy, or the daemon --max-rdy-count",
            scenario.rdy
        ));
    }
    if scenario.via.is_http() && scenario.producers > 0 && target.http.is_none() {
        return Err("publishing over HTTP needs --http-address".into());
    }
    Ok(())
}

/// Returns the number of generator threads. Consumers have `consuming` of them, of their own if clients block.
fn threads(scenario: &Scenario, consuming: usize) -> usize {
    match scenario.client {
        Client::EventLoop => consuming,
        Client::Blocking if scenario.consumers > 0 => scenario.producers as usize + consuming,
        Client::Blocking => scenario.producers.max(1) as usize,
    }
}

/// Refuses the topics that `options` names if the daemon has messages in them: they are those of an application, or of
/// an earlier run, and consumers of this run would get them. Without HTTP, nobody can look.
///
/// # Errors
/// A topic has messages, or `/stats` does not answer; in words for the user.
pub fn check_topics(target: &Target, scenario: &Scenario, options: &Options) -> Result<(), String> {
    let (Some(http), Some(topic), false) = (target.http, &options.topic, options.allow_messages)
    else {
        return Ok(());
    };
    if wire::name::TopicName::new(topic.as_bytes()).is_none() {
        // The run refuses the name.
        return Ok(());
    }
    let depth = depth::ask(http, topic, scenario.topics <= 1)?;
    if depth.is_zero() {
        return Ok(());
    }
    Err(format!(
        "the topic {topic} has messages already ({} wait, {} are in flight, {} are deferred), of an application or of an \
         earlier run: give another --topic, or insist with --allow-messages",
        depth.depth, depth.in_flight, depth.deferred
    ))
}

/// The names of `count` topics or channels: one name as it is, several with a number.
fn names(prefix: &str, count: u32) -> Vec<String> {
    match count {
        0 | 1 => vec![prefix.to_string()],
        _ => (0..count).map(|n| format!("{prefix}_{n:05}")).collect(),
    }
}

/// Channels without consumers are made by HTTP; those with consumers by their SUB.
fn make_channels(
    target: &Target,
    scenario: &Scenario,
    topics: &[String],
    channels: &[String],
) -> Result<(), String> {
    if scenario.consumers > 0 || scenario.channels == 0 {
        return Ok(());
    }
    let http = target.http.ok_or(
        "channels without consumers are made over HTTP: give --http-address, or --channels 0",
    )?;
    for topic in topics {
        call(http, "POST", &format!("/topic/create?topic={topic}"))?;
        for channel in channels {
            let path = format!("/channel/create?topic={topic}&channel={channel}");
            call(http, "POST", &path)?;
        }
    }
    Ok(())
}

/// Deletes the run's topics, as long as that does not take too long. A daemon that is gone keeps them.
pub(super) fn clean_up(target: &Target, topics: &[String], options: &Options) {
    let (Some(http), false) = (target.http, options.keep_topics || options.topic.is_some()) else {
        return;
    };
    let until = Instant::now() + CLEAN_UP_MAX;
    for (topic, left) in topics.iter().zip((0..topics.len()).rev()) {
        // A topic that was never made, or a dead daemon: there is nothing to clean up.
        if call(http, "POST", &format!("/topic/delete?topic={topic}")).is_err() {
            return;
        }
        if Instant::now() > until && left > 0 {
            eprintln!("nsq-bench: the daemon deletes slowly: {left} topics are left in it");
            return;
        }
    }
}

fn producers(target: &Target, scenario: &Scenario, topics: &[String], run: u16) -> Vec<Producer> {
    let count = scenario.producers;
    let rate = scenario.rate.per_second();
    let per_command = scenario.messages_per_command();
    let (filler, sizes) = bodies(&scenario.size, scenario.seed);
    let publish = Arc::new(PublishSettings {
        scenario: scenario.clone(),
        topics: topics.to_vec(),
        host: target.http.map(|http| http.to_string()).unwrap_or_default(),
        filler,
        sizes,
    });
    let curve = (scenario.peak > 1.0).then(|| Curve::new(scenario.peak));
    let producer = |index: u32| {
        let pace = rate.map(|rate| Pace {
            commands_per_s: rate / f64::from(per_command) / f64::from(count),
            arrivals: scenario.arrivals,
            offset: f64::from(index) / f64::from(count),
            curve,
            seed: scenario.seed.wrapping_add(u64::from(index)),
        });
        let limit = match scenario.messages {
            0 => u64::MAX,
            // The first producers send what is left over.
            all => all.saturating_add(u64::from(count - 1 - index)) / u64::from(count),
        };
        Producer::new(Arc::clone(&publish), run, (index, count), pace, limit)
    };
    (0..count).map(producer).collect()
}

/// Makes the filler of all messages, and draws their sizes.
fn bodies(sizes: &Sizes, seed: u64) -> (Vec<u8>, Vec<Filler>) {
    let mut random = Rng::with_seed(seed);
    let mut filler = Vec::with_capacity(sizes.bytes_max() + 8);
    while filler.len() < sizes.bytes_max() {
        filler.extend_from_slice(&random.u64(..).to_le_bytes());
    }
    let is_fixed = matches!(sizes, Sizes::Fixed(_));
    let draws = if is_fixed { 1 } else { SIZES };
    let draw = |_| Filler::new(&filler, sizes.draw(&mut random) - HEADER_BYTES);
    let sizes = (0..draws).map(draw).collect();
    (filler, sizes)
}

fn consumers(topics: &[String], channels: &[String], behaviour: Behaviour) -> Vec<Role> {
    let behaviour = Arc::new(behaviour);
    let scenario = &behaviour.scenario;
    let total = scenario.consumer_connections() as f64;
    let part = |share: f64| (share * total).round() as u64;
    let (slow, stalled) = (part(scenario.slow), part(scenario.stalled));
    let mut consumers = Vec::new();
    for topic in topics {
        for (number, channel) in channels.iter().enumerate() {
            for _ in 0..scenario.consumers {
                let index = consumers.len() as u64;
                let settings = ConsumerSettings {
                    topic: topic.clone(),
                    channel: channel.clone(),
                    reading: match index {
                        index if index < slow => Reading::Slow(scenario.slow_bytes),
                        index if index < slow + stalled => Reading::Stalled,
                        _ => Reading::AtOnce,
                    },
                };
                let seed = scenario.seed.wrapping_mul(31).wrapping_add(index);
                let consumer = Consumer::new(number, Arc::clone(&behaviour), seed);
                consumers.push(Role::Consumer(Box::new(settings), Box::new(consumer)));
            }
        }
    }
    consumers
}

/// Raises the limit of open descriptors as far as needed and possible.
fn allow_descriptors(connections: u64) -> Result<(), String> {
    let needed = connections + SPARE_DESCRIPTORS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = Rlimit {
        current: Some(needed),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).map_err(|error| {
        format!(
            "{connections} connections need {needed} open descriptors, the limit is {} ({error}); \
             raise it with `ulimit -n`",
            limit.current.unwrap_or(u64::MAX)
        )
    })
}

#[cfg(test)]
mod tests;
