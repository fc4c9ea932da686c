//! [`LogDirectory`]: one log's directory, its name, and how files come into it and go.

use std::io;
use std::path::{Path, PathBuf};

use diskq_log::checkpoint::{self, CHECKPOINT_FILE};
use diskq_log::plant;
use diskq_log::{Failure, Memory, Pages, SegmentNumber, SyncFailure, partial_file, segment_file};

use crate::files::{Files, SyncError};

/// The suffix behind the topic's name. The name of a live log ends in this suffix, and the name of a deleted
/// log ends in a digit.
pub const LOG_SUFFIX: &str = ".log";
/// Between a log's name and the number of its deletion.
pub(super) const DELETED_INFIX: &str = ".deleted-";

/// The path of the directory of a log.
#[must_use]
pub fn log_path(data_path: &Path, topic: &str) -> PathBuf {
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

/// One log's directory. The modules `reading` and `durable` have the methods that read, and that make durable.
pub(crate) struct LogDirectory<'a, F> {
    pub(super) files: &'a F,
    pub(super) path: PathBuf,
}

impl<'a, F: Files> LogDirectory<'a, F> {
    pub(crate) fn new(files: &'a F, data_path: &Path, topic: &str) -> LogDirectory<'a, F> {
        LogDirectory {
            files,
            path: log_path(data_path, topic),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn segment_path(&self, segment: SegmentNumber) -> PathBuf {
        self.path.join(segment_file(segment))
    }

    pub(super) fn prepare(
        &self,
        segment: SegmentNumber,
        bytes: u32,
        pages: Pages,
    ) -> Result<Memory, Failure> {
        let path = self.segment_path(segment);
        let allocate = || self.files.allocate(&path, u64::from(bytes), pages);
        let allocated = self.complete().and_then(|()| allocate());
        allocated.map_err(|error| Failure::of("allocate", &path, &error))?;
        self.files.map(&path, bytes).map_err(|error| {
            // The mapping's error is the one to report; an unused file goes at the next start.
            let _ = self.files.remove(&path);
            Failure::of("map", &path, &error)
        })
    }

    /// Makes the directory and its checkpoint file if the directory, the file or the first room in the file is missing:
    /// a log is new, or a crash came between the steps of [`LogDirectory::make`]. The jobs that make a segment, a
    /// checkpoint or a saved state call this first. So a topic for which nothing was ever written has no files.
    pub(crate) fn complete(&self) -> io::Result<()> {
        let path = self.checkpoint_path();
        match self.files.length(&path) {
            Ok(bytes) if bytes >= checkpoint::FILE_BYTES_MIN => {
                plant!(
                    CheckpointsWrittenBack,
                    self.write_again(&path, 0..bytes as u32, bytes as u32)?
                );
                Ok(())
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(_) | Err(_) => self.make(),
        }
    }

    /// Makes the log's directory, and reserves room for checkpoints.
    fn make(&self) -> io::Result<()> {
        self.files.create_dir(&self.path)?;
        let reserved = self.files.allocate(
            &self.checkpoint_path(),
            checkpoint::FILE_BYTES_MIN,
            Pages::Small,
        );
        if let Err(error) = reserved {
            // Otherwise the next job would find a directory without room for checkpoints. The error of the reservation
            // is the one to report. A directory that has files is not removed.
            let _ = self.files.remove_dir(&self.path);
            return Err(error);
        }
        Ok(())
    }

    pub(crate) fn checkpoint_path(&self) -> PathBuf {
        self.path.join(CHECKPOINT_FILE)
    }

    /// Writes a copy of a segment. The copy gets its name when it is whole, and synced if `sync` asks for that. So
    /// after a crash of the process, no segment file is half a segment. If that fails, the segment is where it was, so
    /// only a failed sync of the names is final: other files of the log may be concerned.
    pub(super) fn spill(
        &self,
        segment: SegmentNumber,
        memory: &Memory,
        copy: SegmentNumber,
        sync: bool,
    ) -> Result<(), SyncFailure> {
        let path = self.segment_path(copy);
        let partial = self.path.join(partial_file(copy));
        plant!(SpillNotSynced, let sync = false);
        let from = self.segment_path(segment);
        let write = || {
            self.files.copy(&from, memory, &partial)?;
            plant!(
                SpillThroughCache,
                self.files.write_at(&partial, 0, memory.as_ref())?
            );
            if sync {
                self.files.sync(&partial).map_err(SyncError::into_inner)?;
            }
            self.files.rename(&partial, &path)
        };
        let failed = |error| SyncFailure::Retryable(Failure::of("write", &path, &error));
        let written = write().map_err(failed);
        let synced = written.and_then(|()| if sync { self.sync_log_names() } else { Ok(()) });
        synced.inspect_err(|_| {
            // The attempt's error is the one to report; what is left goes at the next start.
            let _ = self.files.remove(&partial);
            let _ = self.files.remove(&path);
        })
    }

    /// A file of this log as reports name it: below the data path.
    pub(crate) fn shown(&self, name: &str) -> String {
        let directory = self.path.file_name().unwrap_or_default().to_string_lossy();
        format!("{directory}/{name}")
    }

    /// Keeps a file under another name, which it returns.
    pub(crate) fn rename_aside(&self, name: &str) -> (String, io::Result<()>) {
        let aside = format!("{name}.damaged");
        let (from, to) = (self.path.join(name), self.path.join(&aside));
        (aside, self.files.rename(&from, &to))
    }

    pub(super) fn discard(&self, segment: SegmentNumber, memory: Option<Memory>) {
        let path = self.segment_path(segment);
        if let Some(memory) = memory {
            self.files.unmap(&path, memory);
        }
        // A file that stays costs room until the next start, which finds that no one holds it.
        let _ = self.files.remove(&path);
    }
}
