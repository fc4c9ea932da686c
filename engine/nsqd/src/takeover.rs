//! The first start on a data directory of the original nsqd: its backlog becomes ours, and the log
//! says what became of what. Everything that counts is `diskq_import::take_over`.

use crate::config::Config;
use crate::options::segment_bytes_max;
use diskq::{LogOptions, OsFiles};
use diskq_import::{COMMITTED_TAKEOVER, Metadata, TakeoverOptions, TopicTakeover};
use jiff::Zoned;
use jiff::fmt::strtime;
use program::{log_info, log_warn};
use std::time::{Instant, SystemTime};

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
pub(crate) fn run(config: &Config, metadata: &Metadata) -> Result<(), String> {
    let began = Instant::now();
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let wall_ns = unix.unwrap_or_default().as_nanos() as u64;
    let defaults = LogOptions::default();
    let options = TakeoverOptions {
        log: LogOptions {
            node: config.node_id,
            segment_bytes_max: segment_bytes_max(config).min(diskq::SPILLED_BYTES),
            process_seed: wall_ns ^ (u64::from(std::process::id()) << 32),
            ..defaults
        },
        message_bytes_max: config.msg_bytes_max,
        label: label(),
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
        log_info!("TAKEOVER: {}", line(topic));
    }
    if let Some(original) = &done.original {
        log_info!(
            "TAKEOVER: {} in {:.1} s; the files of nsqd are kept in {}",
            sum(&done.topics),
            began.elapsed().as_secs_f64(),
            original.display()
        );
    }
    Ok(())
}

/// Says how much was taken over. Beside logs with messages, a bare 0 would look like a loss.
fn sum(topics: &[TopicTakeover]) -> String {
    let messages: u64 = topics.iter().map(|topic| topic.message_count).sum();
    match messages {
        0 => "the files of nsqd had no messages; those in the logs of this nsqd stay as they are"
            .to_owned(),
        _ => format!("{messages} messages of {} topics", topics.len()),
    }
}

fn line(topic: &TopicTakeover) -> String {
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
fn label() -> String {
    // A clock outside jiff's range is not worth refusing to start for.
    strtime::format("%Y-%m-%d-%H%M%S", &Zoned::now()).unwrap_or_else(|_| "undated".to_owned())
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
        assert_eq!(sum(&[topic(3), topic(4)]), "7 messages of 2 topics");
        for topics in [&[][..], &[topic(0)]] {
            let text = sum(topics);
            assert!(
                text.starts_with("the files of nsqd had no messages; "),
                "{text}"
            );
        }
    }
}
