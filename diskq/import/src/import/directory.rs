//! The content of a data path that matters to a takeover.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use diskq::{Attempt, DiskError, Files, LOG_SUFFIX, TopicFacts, deleted_topic};

use crate::metadata::FILE_NAME;
use crate::nsqd_files::{FileKind, Queue, is_temporary, parse_name, queue_name};

use super::commit::NEW;

/// A listing of the data path.
#[derive(Default)]
pub(super) struct Directory {
    /// The queues with files, by name.
    pub(super) queues: BTreeMap<String, Queue>,
    /// Files that no program reads, with their lengths.
    ignored: Vec<(String, u64)>,
    /// Queue, name and length of each file of a queue.
    files: Vec<(String, String, u64)>,
    /// The names of all files and directories.
    pub(super) names: BTreeSet<String>,
    /// The topics with a tombstone.
    pub(super) deleted: BTreeSet<String>,
    /// True when there is an unfinished takeover to remove.
    pub(super) has_new: bool,
}

impl Directory {
    /// Looks through the data path, without the files that a committed takeover has `taken` already.
    pub(super) fn list(
        files: &impl Files,
        data_path: &Path,
        taken: &BTreeSet<&str>,
    ) -> Result<Directory, DiskError> {
        let mut listed = files.list(data_path).in_attempt("list", data_path)?;
        listed.retain(|entry| !taken.contains(entry.name.as_str()));
        let mut directory = Directory::default();
        for entry in listed {
            directory.names.insert(entry.name.clone());
            if entry.is_dir {
                directory.has_new |= entry.name == NEW;
                let deleted = deleted_topic(&entry.name);
                directory.deleted.extend(deleted.map(str::to_owned));
                continue;
            }
            if is_temporary(&entry.name, FILE_NAME) {
                directory.ignored.push((entry.name, entry.bytes));
                continue;
            }
            let Some((queue, kind)) = parse_name(&entry.name) else {
                continue;
            };
            let queue = queue.to_owned();
            let queue_files = directory.queues.entry(queue.clone());
            // A link may lead to a queue's file.
            let path = data_path.join(&entry.name);
            let length = || files.length(&path).in_attempt("look at", &path);
            match kind {
                FileKind::Data(number) => {
                    queue_files.or_default().data.insert(number, length()?);
                }
                FileKind::Positions => queue_files.or_default().positions = Some(length()?),
                FileKind::Ignored => {
                    directory.ignored.push((entry.name, entry.bytes));
                    continue;
                }
            }
            directory.files.push((queue, entry.name, entry.bytes));
        }
        Ok(directory)
    }

    /// Removes the queues of topics and channels that `topics` does not list. Returns their names.
    pub(super) fn split_off_unlisted(&mut self, topics: &[TopicFacts]) -> Vec<String> {
        let mut listed = BTreeSet::new();
        for topic in topics {
            listed.insert(queue_name(&topic.name, None));
            let channels = topic.channels.iter();
            listed.extend(channels.map(|channel| queue_name(&topic.name, Some(&channel.name))));
        }
        let unlisted = self
            .queues
            .extract_if(.., |queue, _| !listed.contains(queue));
        let unlisted = unlisted.map(|(queue, _)| queue).collect();
        self.files.retain(|(queue, ..)| listed.contains(queue));
        self.ignored
            .retain(|(name, _)| parse_name(name).is_none_or(|(queue, _)| listed.contains(queue)));
        unlisted
    }

    /// Returns true when the topic has a log of ours.
    pub(super) fn has_log(&self, topic: &str) -> bool {
        self.names.contains(&format!("{topic}{LOG_SUFFIX}"))
    }

    /// Returns the files that the takeover moves aside: the queues' files, and those that no
    /// program reads.
    pub(super) fn old_files(&self) -> Vec<(String, u64)> {
        let queues = self
            .files
            .iter()
            .map(|(_, name, bytes)| (name.clone(), *bytes));
        queues.chain(self.ignored.iter().cloned()).collect()
    }

    pub(super) fn ignored_note(&self) -> Option<String> {
        let (first, _) = self.ignored.first()?;
        let bytes: u64 = self.ignored.iter().map(|(_, bytes)| bytes).sum();
        Some(format!(
            "files that nsqd does not read are also set aside: {first} and others, files: {}, bytes: {bytes}",
            self.ignored.len()
        ))
    }
}
