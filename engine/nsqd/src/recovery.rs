//! The start of the shards' topics from the files that an earlier run has left.

use crate::config::Config;
use crate::shard::Clock;
use diskq::{DataPath, DiskError, Keeper, Logs, OsFiles, Recovered, Tombstone, TopicFacts};
use diskq_import::Metadata;
use engine_rules::{Broker, BrokerOptions, Now, RestoredKeys, SavedKeys, place};
use program::{log_error, log_warn};
use std::collections::BTreeMap;
use wire::go_error::system_text;
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
    let topic_options = options.topic.clone();
    let mut broker = Broker::new(options);
    let keeper = Keeper::new(OsFiles, path.clone());
    let mut moved_count = 0;
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
        let log_options = topic_options.log_options(topic);
        let recovered = match diskq::open_log(&OsFiles, path, &name, log_options, now.wall_ns) {
            Ok(recovered) => recovered,
            Err(error) => {
                set_aside(&mut broker, listed, &error);
                continue;
            }
        };
        let keys = restored_keys(&broker, path, now, topic, &recovered);
        for damage in &recovered.damage {
            log_error!("TOPIC({name}): damaged on disk - {damage}");
        }
        for facts in listed.iter().flat_map(|listed| &listed.channels) {
            if ChannelName::new(facts.name.as_bytes()).is_none() {
                let channel = &facts.name;
                log_warn!("skipping creation of invalid channel {channel}");
            }
        }
        moved_count += broker.restore(now, topic, recovered, listed.as_ref());
        if let Some(keys) = keys {
            broker.restore_keys(topic, keys);
        }
    }
    if moved_count > 0 {
        log_warn!(
            "{moved_count} deferred messages were due too far ahead, because the wall clock was set back or was wrong: they \
             are due after what was left of their deferral, or after --max-req-timeout if that is not known"
        );
    }
    broker
}

/// Returns the keys of a topic's messages: those of its file, and those of the newest messages in its log. `None`: the topic
/// has no rule that compares contents. Whatever cannot be read costs keys, and so perhaps duplicates, and no message.
fn restored_keys(
    broker: &Broker,
    path: &DataPath,
    now: Now,
    topic: TopicName<'_>,
    recovered: &Recovered,
) -> Option<RestoredKeys> {
    let name = topic.as_str();
    let mut keys = broker.begin_keys(now, topic)?;
    if let Some(bytes) = saved_file(path, name) {
        match SavedKeys::decode(&bytes) {
            Ok(saved) => {
                if let Err(key) = keys.load(&saved) {
                    log_warn!(
                        "TOPIC({name}): its keys were saved by a rule of --dedup with the key {}, and the key is {key} now: the \
                         saved keys are not used, so a copy of an earlier message is stored if that message is not in the \
                         log any more",
                        saved.rule()
                    );
                }
            }
            Err(why) => set_keys_aside(path, name, &why.to_string()),
        }
    }
    if let Err(error) = diskq::read_newest(&OsFiles, path, name, recovered, &mut keys) {
        log_warn!("TOPIC({name}): cannot read the keys of all its messages - {error}");
    }
    Some(keys)
}

/// Reads the file of a topic's keys, if there is one.
fn saved_file(path: &DataPath, name: &str) -> Option<Vec<u8>> {
    let read = diskq::read_topic_file(&OsFiles, path, name);
    read.unwrap_or_else(|error| {
        log_error!(
            "TOPIC({name}): cannot read its file of keys, so duplicates may be stored - {error}"
        );
        None
    })
}

fn set_keys_aside(path: &DataPath, name: &str, why: &str) {
    let (aside, kept) = diskq::set_topic_file_aside(&OsFiles, path, name);
    let kept = match kept {
        Ok(()) => format!("it is kept as {aside}"),
        Err(error) => format!("it cannot be renamed to {aside} ({})", system_text(&error)),
    };
    log_error!(
        "TOPIC({name}): its file of keys {why}, so duplicates of messages from before the start may be stored; {kept}"
    );
}
