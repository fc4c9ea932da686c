//! The names of the directories of logs, and of deleted logs.

use std::path::{Path, PathBuf};

/// The suffix behind the topic's name. The name of a live log ends in this suffix, and the name of a deleted
/// log ends in a digit.
pub const LOG_SUFFIX: &str = ".log";
/// Between a log's name and the number of its deletion.
pub(super) const DELETED_INFIX: &str = ".deleted-";

/// The path of the directory of a log.
pub(crate) fn log_path(data_path: &Path, topic: &str) -> PathBuf {
    data_path.join(format!("{topic}{LOG_SUFFIX}"))
}

/// The topic of a log's directory.
pub(super) fn topic_of(name: &str) -> Option<&str> {
    let topic = name.strip_suffix(LOG_SUFFIX);
    topic.filter(|topic| !topic.is_empty())
}

/// The topic of a tombstone, by the name of its directory.
#[must_use]
pub fn deleted_topic(name: &str) -> Option<&str> {
    let (log, number) = name.rsplit_once(DELETED_INFIX)?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    topic_of(log).filter(|_| is_number)
}
