//! [`TakeoverOptions`] and [`Takeover`]: the options and the result of a takeover.

use std::path::PathBuf;

use diskq::LogOptions;

/// The options of a takeover.
#[derive(Clone, Debug)]
pub struct TakeoverOptions {
    /// The options of the logs that will open the written files.
    pub log: LogOptions,
    /// `--max-msg-size`. A larger message is taken over if it is certainly a message, and noted.
    pub message_bytes_max: u64,
    /// The text behind `nsqd-original-` in the name of the directory that keeps nsqd's files.
    pub label: String,
    /// The wall-clock time in nanoseconds, from which ids are made.
    pub wall_ns: u64,
}

/// The result of a takeover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Takeover {
    /// Topics with messages, in the order of nsqd.dat.
    pub topics: Vec<TopicTakeover>,
    /// The directory that now holds nsqd's files, if there were any.
    pub original: Option<PathBuf>,
    /// One sentence for each fault that was found.
    pub notes: Vec<String>,
    /// The sorted names of the queues with files that nsqd.dat does not list, or whose topic was
    /// deleted since. Their files are unchanged.
    pub unlisted: Vec<String>,
    /// True when this call completed an earlier takeover that was interrupted after its commit.
    pub completed_earlier: bool,
}

/// The result of a takeover for one topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicTakeover {
    /// The topic's name.
    pub name: String,
    /// Number of stored messages. A message in the queues of several channels counts once.
    pub message_count: u64,
    /// Number of messages that wait for a channel.
    pub undistributed_count: u64,
    /// The number of messages that each channel with a queue owes, in the order of nsqd.dat.
    pub channels: Vec<(String, u64)>,
    /// True when the topic had a log of ours. The messages are appended to that log.
    pub is_appended: bool,
}
