//! The file that a topic keeps beside its log: written by the keeper, read at the start.

use std::io;
use std::path::Path;

use diskq_log::{Failure, TOPIC_FILE, TopicFile, UnfinishedFile};

use super::directory::LogDirectory;
use crate::error::{Attempt, DiskError};
use crate::files::{Files, SyncError};

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 20;

impl<F: Files> LogDirectory<'_, F> {
    /// Writes a topic's file under its unfinished name, and syncs it. Makes no directory: a log without a directory has
    /// been deleted, or has stored nothing.
    pub(super) fn write_topic_file(
        &self,
        file: UnfinishedFile,
        contents: &dyn TopicFile,
    ) -> Result<(), Failure> {
        let path = self.path.join(file.name());
        let attempt = || {
            let mut at = 0;
            contents.write(&mut |piece| {
                self.files.write_at(&path, at, piece)?;
                at += piece.len() as u64;
                Ok(())
            })?;
            self.files.sync(&path).map_err(SyncError::into_inner)
        };
        attempt().map_err(|error| {
            // The attempt's error is the one to report. A file that stays goes at the next start.
            let _ = self.files.remove(&path);
            Failure::of("write", &path, &error)
        })
    }

    /// Gives a file that was written its name. The next sync of the log makes the name durable, and needs no new message. A
    /// power failure before that brings back the file that was there before, which is as right, and only older.
    pub(super) fn rename_topic_file(&self, file: UnfinishedFile) -> Result<(), Failure> {
        let (from, to) = (self.path.join(file.name()), self.path.join(TOPIC_FILE));
        let renamed = self.files.rename(&from, &to);
        renamed.map_err(|error| Failure::of("rename", &from, &error))
    }
}

/// Reads the file of a topic. `None`: there is none. Blocks.
///
/// # Errors
/// The file cannot be read.
pub fn read_topic_file(
    files: &impl Files,
    data_path: &Path,
    topic: &str,
) -> Result<Option<Vec<u8>>, DiskError> {
    let path = LogDirectory::new(files, data_path, topic)
        .path
        .join(TOPIC_FILE);
    let length = match files.length(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        length => length.in_attempt("read", &path)?,
    };
    let read = || {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length as usize)?;
        bytes.resize(length as usize, 0);
        for (at, piece) in (0..)
            .step_by(PIECE_BYTES)
            .zip(bytes.chunks_mut(PIECE_BYTES))
        {
            files.read_at(&path, at, piece)?;
        }
        Ok::<_, io::Error>(bytes)
    };
    read().in_attempt("read", &path).map(Some)
}

/// The name that a damaged file has got, and whether it has.
pub type SetAsideFile = (String, io::Result<()>);

/// Keeps a topic's file under another name, because it is damaged.
pub fn set_topic_file_aside(files: &impl Files, data_path: &Path, topic: &str) -> SetAsideFile {
    LogDirectory::new(files, data_path, topic).rename_aside(TOPIC_FILE)
}
