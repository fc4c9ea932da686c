//! The deletion of a topic. A deletion takes effect at the rename of the topic's log.
//!
//! ```text
//!   <topic>.log/ ──rename, sync──► <topic>.log.deleted-<n>/ ──unlink──► empty ──bury──► gone
//!                                  the tombstone
//! ```
//!
//! nsqd.dat is written after the rename. An nsqd.dat that still lists the topic is older than the tombstone, and
//! the tombstone wins ([`Logs::topics`]). So the tombstone stays until an nsqd.dat without the topic is durable.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use diskq_log::{Failure, TopicFacts};

use super::directory::{DELETED_INFIX, LOG_SUFFIX, deleted_topic, log_path, topic_of};
use super::jobs::Keeper;
use crate::error::{Attempt, DiskError};
use crate::files::{Entry, Files};

/// The directory of a deleted log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone(PathBuf);

impl<F: Files> Keeper<F> {
    /// Deletes the log of `topic`: when this returns, the topic is gone for good, whatever nsqd.dat says. The log
    /// must have been closed and its jobs done. A topic without a log is fine, and leaves a tombstone, too.
    ///
    /// The caller then calls [`Keeper::unlink`] at once, and [`Keeper::bury`] when nsqd.dat is written.
    ///
    /// # Errors
    /// The topic is not deleted. After a failed sync, the log has its old name again, unless the rename back fails,
    /// too. Until a later try works, the jobs of a topic of this name fail: the directory holds another topic's
    /// messages.
    pub fn delete_topic(&self, topic: &str) -> Result<Tombstone, DiskError> {
        self.remember_result(topic, || {
            let directory = log_path(&self.data_path, topic);
            let tombstone = self.free_tombstone(topic)?;
            let had_log = self.rename_log(&directory, &tombstone.0)?;
            if !had_log {
                self.files
                    .create_dir(&tombstone.0)
                    .in_attempt("make", &tombstone.0)?;
            }
            self.data_path.sync_names(&self.files).map_err(|error| {
                // The sync's error is the one to report. If the names stay, the next try finds no log.
                let _ = if had_log {
                    self.files.rename(&tombstone.0, &directory)
                } else {
                    self.files.remove_dir(&tombstone.0)
                };
                DiskError::io("sync", &self.data_path, error.into_inner())
            })?;
            Ok(tombstone)
        })
    }

    /// Returns false after a failed sync of the data path. From then on no deletion becomes durable, and a failed
    /// deletion is not worth another try.
    #[must_use]
    pub fn can_delete_topics(&self) -> bool {
        !self.data_path.has_failed()
    }

    /// Removes the log of an ephemeral topic: renames the log to a tombstone, and buries the tombstone at once, without
    /// a sync. nsqd.dat never lists an ephemeral topic, and the next start removes what a crash brings back.
    ///
    /// # Errors
    /// The errors are those of [`Keeper::delete_topic`].
    pub fn delete_ephemeral(&self, topic: &str) -> Result<(), DiskError> {
        self.remember_result(topic, || {
            let tombstone = self.free_tombstone(topic)?;
            if self.rename_log(&log_path(&self.data_path, topic), &tombstone.0)? {
                // A file that stays costs room until the next start.
                let _ = self.bury(&tombstone);
            }
            Ok(())
        })
    }

    /// Unlinks the files of a deleted log. What a crash leaves is unlinked at the next start.
    ///
    /// # Errors
    /// Some of the files are there.
    pub fn unlink(&self, tombstone: &Tombstone) -> Result<(), DiskError> {
        let fail = |error| DiskError::io("remove", &tombstone.0, error);
        let entries = match self.files.list(&tombstone.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(fail)?,
        };
        for entry in entries {
            let path = tombstone.0.join(entry.name);
            self.files.remove(&path).in_attempt("remove", &path)?;
        }
        Ok(())
    }

    /// Removes a tombstone. A durable nsqd.dat must have been written since the deletion.
    ///
    /// # Errors
    /// The tombstone or some of its files are still there. The next start tries again.
    pub fn bury(&self, tombstone: &Tombstone) -> Result<(), DiskError> {
        self.unlink(tombstone)?;
        match self.files.remove_dir(&tombstone.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(DiskError::io("remove", &tombstone.0, error))
            }
            _ => Ok(()),
        }
    }

    /// Remembers whether a deletion worked.
    fn remember_result<T>(
        &self,
        topic: &str,
        delete: impl FnOnce() -> Result<T, DiskError>,
    ) -> Result<T, DiskError> {
        let result = delete();
        match &result {
            Ok(_) => self.undeleted.lock().remove(topic),
            Err(error) => {
                let text = format!("a topic of this name could not be deleted: {error}");
                let kind = io::ErrorKind::Other;
                let failure = Failure { kind, text };
                self.undeleted.lock().insert(topic.to_owned(), failure)
            }
        };
        result
    }

    /// Returns false if there is no log.
    fn rename_log(&self, directory: &Path, tombstone: &Path) -> Result<bool, DiskError> {
        match self.files.rename(directory, tombstone) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(DiskError::io("rename", directory, error)),
            Ok(()) => Ok(true),
        }
    }

    /// A tombstone that no earlier deletion has.
    fn free_tombstone(&self, topic: &str) -> Result<Tombstone, DiskError> {
        for n in 0u64.. {
            let name = format!("{topic}{LOG_SUFFIX}{DELETED_INFIX}{n}");
            let path = self.data_path.join(name);
            // Asked by name: a listing would need a descriptor, and there may be none.
            match self.files.length(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Tombstone(path));
                }
                Err(error) if error.kind() != io::ErrorKind::IsADirectory => {
                    return Err(DiskError::io("look at", &path, error));
                }
                Ok(_) | Err(_) => {}
            }
        }
        unreachable!("a directory is finite")
    }
}

/// The logs below a data path.
#[derive(Debug, Default)]
pub struct Logs {
    /// The topics that have a log, sorted.
    pub topics: Vec<String>,
    /// The tombstones, with their topics.
    pub deleted: Vec<(String, Tombstone)>,
}

impl Logs {
    /// Looks for the logs below `data_path`. Blocks.
    ///
    /// # Errors
    /// The data path cannot be listed.
    pub fn list(files: &impl Files, data_path: &Path) -> io::Result<Logs> {
        Ok(Logs::among(&files.list(data_path)?, data_path))
    }

    /// The logs among the `entries` of `data_path`.
    #[must_use]
    pub fn among(entries: &[Entry], data_path: &Path) -> Logs {
        let mut logs = Logs::default();
        for Entry { name, .. } in entries.iter().filter(|entry| entry.is_dir) {
            if let Some(topic) = deleted_topic(name) {
                let tombstone = Tombstone(data_path.join(name));
                logs.deleted.push((topic.to_owned(), tombstone));
            } else if let Some(topic) = topic_of(name) {
                logs.topics.push(topic.to_owned());
            }
        }
        logs
    }

    /// Returns all topics, each with its entry in nsqd.dat, if that has one. A topic has a log, or is `listed` in
    /// nsqd.dat. The entry of a topic with a tombstone is older than the deletion and does not count; the topic may
    /// have a new log.
    #[must_use]
    pub fn topics(&self, listed: &[TopicFacts]) -> BTreeMap<String, Option<TopicFacts>> {
        let of_logs = self.topics.iter().map(|topic| (topic.clone(), None));
        let mut topics: BTreeMap<_, _> = of_logs.collect();
        let is_deleted = |name: &str| self.deleted.iter().any(|(topic, _)| topic == name);
        for facts in listed {
            if !is_deleted(&facts.name) {
                topics.insert(facts.name.clone(), Some(facts.clone()));
            }
        }
        topics
    }
}
