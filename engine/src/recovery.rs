//! The start of the shards' topics from the files that an earlier run has left.

use crate::config::Config;
use crate::shard::Clock;
use diskq::{DataPath, DiskError, Keeper, Logs, OsFiles, Tombstone, TopicFacts};
use diskq_nsqd::Metadata;
use engine_core::{Broker, BrokerOptions, place};
use program::{log_error, log_warn};
use std::collections::BTreeMap;
use wire::name::{ChannelName, TopicName};

/// The topics of one shard that an earlier run left on disk.
#[derive(Default)]
pub(crate) struct StoredTopics {
    /// Topics, with what nsqd.dat says of them.
    pub(crate) topics: BTreeMap<String, Option<TopicFacts>>,
    /// The tombstones of deleted topics.
    pub(crate) tombstones: Vec<Tombstone>,
}

/// Gives each topic that there is, and each tombstone, to its shard.
///
/// # Errors
/// The data path cannot be read.
pub(crate) fn divide(
    config: &Config,
    metadata: Metadata,
    shards: u32,
) -> Result<Vec<StoredTopics>, String> {
    let logs = Logs::list(&OsFiles, &config.data_path).map_err(|error| {
        format!(
            "failed to read data-path {} - {error}",
            config.data_path.display()
        )
    })?;
    let mut stored: Vec<StoredTopics> = (0..shards).map(|_| StoredTopics::default()).collect();
    for (name, listed) in logs.topics(&metadata.topics) {
        let shard = place(&*name, shards).0 as usize;
        stored[shard].topics.insert(name, listed);
    }
    let keeper = Keeper::new(OsFiles, config.data_path.clone());
    for (topic, tombstone) in logs.deleted {
        // The unlinking comes first because a full disk needs the room now. A file that stays is tried again
        // when nsqd.dat is written.
        let _ = keeper.unlink(&tombstone);
        let shard = place(&*topic, shards).0 as usize;
        stored[shard].tombstones.push(tombstone);
    }
    Ok(stored)
}

/// Opens the logs of a shard's topics. A topic whose log cannot be opened is set aside.
pub(crate) fn restore(
    options: BrokerOptions,
    path: &DataPath,
    clock: Clock,
    topics: BTreeMap<String, Option<TopicFacts>>,
) -> Broker {
    let log_options = options.topic.log.clone();
    let mut broker = Broker::new(options);
    let keeper = Keeper::new(OsFiles, path.clone());
    for (name, listed) in topics {
        let Some(topic) = TopicName::new(name.as_bytes()) else {
            log_warn!("skipping creation of invalid topic {name}");
            continue;
        };
        let set_aside = |broker: &mut Broker, listed, error: &DiskError| {
            log_error!(
                "TOPIC({name}): set aside: it is not served, and its files stay as they are, until the cause is \
                 mended and nsqd started again - {error}"
            );
            let cause = format!("topic {name} is set aside since the start: {error}");
            broker.set_aside(topic, &cause, listed);
        };
        if topic.is_ephemeral() {
            // Its messages were never to outlive the process.
            if let Err(error) = keeper.delete_ephemeral(&name) {
                set_aside(&mut broker, listed, &error);
                continue;
            }
            if listed.is_none() {
                continue;
            }
        }
        let now = clock.now();
        let recovered =
            match diskq::open_log(&OsFiles, path, &name, log_options.clone(), now.wall_ns) {
                Ok(recovered) => recovered,
                Err(error) => {
                    set_aside(&mut broker, listed, &error);
                    continue;
                }
            };
        for damage in &recovered.damage {
            log_error!("TOPIC({name}): damaged on disk, skipped - {damage}");
        }
        for facts in listed.iter().flat_map(|listed| &listed.channels) {
            if ChannelName::new(facts.name.as_bytes()).is_none() {
                let channel = &facts.name;
                log_warn!("skipping creation of invalid channel {channel}");
            }
        }
        broker.restore(now, topic, recovered, listed.as_ref());
    }
    broker
}
