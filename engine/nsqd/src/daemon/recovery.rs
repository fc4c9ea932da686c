//! The start of the shards' topics from the files that an earlier run has left, or the original nsqd. On the first start
//! on a data path of the original, its backlog becomes ours, and the log says what became of what. Everything that counts
//! there is `diskq_import::take_over`.

use super::options::segment_bytes_max;
use crate::config::Config;
use crate::shard::Clock;
use diskq::{
    DataPath, DiskError, Keeper, LogOptions, Logs, OsFiles, Recovered, Tombstone, TopicFacts,
};
use diskq_import::{COMMITTED_TAKEOVER, Metadata, TakeoverOptions, TopicTakeover};
use engine_rules::{Broker, BrokerOptions, Now, RestoredKeys, SavedKeys, shard_of};
use jiff::Zoned;
use jiff::fmt::strtime;
use program::{log_error, log_info, log_warn};
use std::collections::BTreeMap;
use std::time::Instant;
use wire::go_error::system_text;
use wire::name::{ChannelName, TopicName};

/// The end of the FATAL line before the takeover is committed. Unlike at other starts, no single topic is set aside:
/// the takeover happens wholly or not at all, so that the original can still go on with all of its files.
const WAY_OUT: &str = "a takeover happens wholly or not at all: mend the cause and start nsqd again, or move the \
                       *.diskqueue.* files in question out of the data path to start without their messages";

/// The end of the FATAL line after the commit: the messages are in the new logs, with or without the original's files.
const WAY_ON: &str = "the takeover counts already: mend the cause and start nsqd again, which completes it. Do not \
                      start the original nsqd here";

/// Takes over what the original nsqd left in the data path, which is locked. Blocks.
///
/// # Errors
/// The reason why the takeover failed, for the FATAL line. Either nothing was changed, or the next start completes the
/// takeover.
pub(super) fn take_over(config: &Config, metadata: &Metadata) -> Result<(), String> {
    let began = Instant::now();
    let wall_ns = Clock::start().now().wall_ns;
    let options = TakeoverOptions {
        log: LogOptions {
            node: config.node_id,
            segment_bytes_max: segment_bytes_max(config).min(diskq::SPILLED_BYTES),
            process_seed: wall_ns ^ (u64::from(std::process::id()) << 32),
            ..LogOptions::default()
        },
        message_bytes_max: config.msg_bytes_max,
        label: local_time(),
        wall_ns,
    };
    let done = diskq_import::take_over(&OsFiles, &config.data_path, &metadata.topics, &options)
        .map_err(|error| {
            let is_committed = config.data_path.join(COMMITTED_TAKEOVER).exists();
            let advice = if is_committed { WAY_ON } else { WAY_OUT };
            format!("failed to take over the data files of nsqd - {error} ({advice})")
        })?;
    if done.completed_earlier {
        log_info!("TAKEOVER: completed an earlier one that was cut off");
    }
    for note in &done.notes {
        log_warn!("TAKEOVER: {note}");
    }
    if !done.unlisted.is_empty() {
        log_warn!(
            "TAKEOVER: nsqd.dat does not list {}, or the topic was deleted: their files are left alone",
            done.unlisted.join(", ")
        );
    }
    for topic in &done.topics {
        log_info!("TAKEOVER: {}", takeover_line(topic));
    }
    if let Some(original) = &done.original {
        log_info!(
            "TAKEOVER: {} in {:.1} s; the files of nsqd are kept in {}",
            takeover_sum(&done.topics),
            began.elapsed().as_secs_f64(),
            original.display()
        );
    }
    Ok(())
}

/// Says how much was taken over. Beside logs with messages, a bare 0 would look like a loss.
fn takeover_sum(topics: &[TopicTakeover]) -> String {
    let messages: u64 = topics.iter().map(|topic| topic.message_count).sum();
    match messages {
        0 => "the files of nsqd had no messages; those in the logs of this nsqd stay as they are"
            .to_owned(),
        _ => format!("{messages} messages of {} topics", topics.len()),
    }
}

fn takeover_line(topic: &TopicTakeover) -> String {
    let TopicTakeover {
        name,
        message_count,
        undistributed_count,
        channels,
        is_appended,
    } = topic;
    let mut line = format!("topic {name}: {message_count} messages");
    if *is_appended {
        line.push_str(" behind those of its log");
    }
    if *undistributed_count > 0 {
        line.push_str(&format!(
            ", {undistributed_count} of them in no channel yet"
        ));
    }
    for (channel, count) in channels {
        line.push_str(&format!(", channel {channel}: {count}"));
    }
    line
}

/// Makes the name suffix of the directory for nsqd's files: the local time.
fn local_time() -> String {
    // A clock outside jiff's range is not worth refusing to start for.
    strtime::format("%Y-%m-%d-%H%M%S", &Zoned::now()).unwrap_or_else(|_| "undated".to_owned())
}

/// The topics of one shard that an earlier run left on disk.
#[derive(Default)]
pub(super) struct StoredTopics {
    /// Topics, with what nsqd.dat says of them.
    pub(super) topics: BTreeMap<String, Option<TopicFacts>>,
    /// The tombstones of deleted topics.
    pub(super) tombstones: Vec<Tombstone>,
}

/// Gives each topic that there is, and each tombstone, to its shard.
///
/// # Errors
/// The data path cannot be read.
pub(super) fn divide(
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
        let shard = shard_of(&*name, shards).0 as usize;
        stored[shard].topics.insert(name, listed);
    }
    let keeper = Keeper::new(OsFiles, config.data_path.clone());
    for (topic, tombstone) in logs.deleted {
        // The unlinking comes first because a full disk needs the room now. A file that stays is tried again
        // when nsqd.dat is written.
        let _ = keeper.unlink(&tombstone);
        let shard = shard_of(&*topic, shards).0 as usize;
        stored[shard].tombstones.push(tombstone);
    }
    Ok(stored)
}

/// Opens the logs of a shard's topics. A topic whose log cannot be opened is set aside.
pub(super) fn restore(
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

#[cfg(test)]
mod tests {
    use super::*;

    /// "0 messages of 0 topics" beside a log with messages looked like a loss.
    #[test]
    fn a_takeover_without_messages_says_what_stays() {
        let topic = |message_count| TopicTakeover {
            name: "t".to_owned(),
            message_count,
            undistributed_count: 0,
            channels: Vec::new(),
            is_appended: false,
        };
        assert_eq!(
            takeover_sum(&[topic(3), topic(4)]),
            "7 messages of 2 topics"
        );
        for topics in [&[][..], &[topic(0)]] {
            let text = takeover_sum(topics);
            test_support::assert_like(&text, "the files of nsqd had no messages; …");
        }
    }
}
