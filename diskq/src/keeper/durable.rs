//! Makes a log durable: syncs its files and their names, and writes its checkpoints, its states and the topic's file.

use std::io;
use std::ops::Range;
use std::path::Path;

use diskq_log::checkpoint;
use diskq_log::plant;
use diskq_log::segment::PAGE_BYTES;
use diskq_log::{
    CheckpointJob, Failure, Pages, STATE_FILES, StateJob, SyncFailure, SyncJob, TOPIC_FILE,
    TopicFile, UnfinishedFile, encode_state_head,
};

use super::directory::LogDirectory;
use super::reading::is_media_error;
use crate::data_path::DataPath;
use crate::files::{Files, SyncError, is_shortage};
use crate::mapping;

/// The number of bytes that are written again at a time.
const AGAIN_BYTES: u32 = 1 << 20;

impl<F: Files> LogDirectory<'_, F> {
    /// Does what comes before the sync of a job.
    pub(super) fn prepare_sync(&self, job: &SyncJob) -> Result<(), SyncFailure> {
        job.written.iter().for_each(mapping::let_go);
        for (segment, pieces) in &job.again {
            let path = self.segment_path(*segment);
            for piece in pieces {
                let piece = piece.start / PAGE_BYTES * PAGE_BYTES..piece.end;
                let written = self.write_again(&path, piece, AGAIN_BYTES);
                written.map_err(|error| write_failure(&path, &error))?;
            }
        }
        for &segment in &job.gone {
            let path = self.segment_path(segment);
            match self.files.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(sync_failure(&path, &SyncError::of_open(error)));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Writes a piece of a segment again, as the page cache has it, so that a sync writes it: `at_once` bytes at a
    /// time. Where the device cannot read some of these bytes, goes page by page. A page that the device cannot read
    /// is damage already, and is left as it is.
    pub(super) fn write_again(
        &self,
        path: &Path,
        piece: Range<u32>,
        at_once: u32,
    ) -> io::Result<()> {
        let mut bytes = vec![0; piece.len().min(at_once as usize)];
        for start in piece.clone().step_by(at_once as usize) {
            let end = piece.end.min(start + at_once);
            let part = &mut bytes[..(end - start) as usize];
            match self.files.read_at(path, start.into(), part) {
                Ok(()) => self.files.write_at(path, start.into(), part)?,
                Err(error) if !is_media_error(&error) => return Err(error),
                Err(_) if at_once == PAGE_BYTES => {}
                Err(_) => self.write_again(path, start..end, PAGE_BYTES)?,
            }
        }
        Ok(())
    }

    /// Syncs the files of a job.
    pub(super) fn sync(&self, job: &SyncJob) -> Result<(), SyncFailure> {
        for &segment in &job.segments {
            self.sync_file(&self.segment_path(segment))?;
        }
        for &copy in &job.copies {
            let path = self.segment_path(copy);
            match self.files.sync(&path) {
                // The spill failed. The log knows that, and does not take this sync as proof that the copy is
                // durable.
                Err(SyncError::Final(error)) if error.kind() == io::ErrorKind::NotFound => {}
                synced => synced.map_err(|error| sync_failure(&path, &error))?,
            }
        }
        Ok(())
    }

    pub(super) fn sync_file(&self, path: &Path) -> Result<(), SyncFailure> {
        let synced = self.files.sync(path);
        synced.map_err(|error| sync_failure(path, &error))
    }

    /// Makes the names durable: of the log's files, and of the log.
    pub(super) fn sync_names(&self, data_path: &DataPath) -> Result<(), SyncFailure> {
        plant!(NamesNotSynced, return Ok(()));
        self.sync_log_names()?;
        plant!(LogNameNotSynced, return Ok(()));
        let synced = data_path.sync_names(self.files);
        synced.map_err(|error| sync_failure(data_path, &error))
    }

    /// Makes the names of the log's files durable.
    pub(super) fn sync_log_names(&self) -> Result<(), SyncFailure> {
        let synced = self.files.sync_dir(&self.path);
        synced.map_err(|error| sync_failure(&self.path, &error))
    }

    /// Writes a state of the topic, and syncs it. If that fails, the state in the other file stands, so only a failed
    /// sync of the names is final: other files of the log may be concerned.
    pub(super) fn save_state(
        &self,
        job: &StateJob,
        data_path: &DataPath,
    ) -> Result<(), SyncFailure> {
        let file = usize::from(job.file);
        let path = self.path.join(STATE_FILES[file]);
        let failed = |attempt, path: &Path, error: &io::Error| {
            SyncFailure::Retryable(Failure::of(attempt, path, error))
        };
        if job.sync_other {
            let other = self.path.join(STATE_FILES[1 - file]);
            let synced = self.files.sync(&other);
            synced.map_err(|error| failed("sync", &other, &error.into_inner()))?;
            // Its name may be new, too.
            self.sync_names(data_path)?;
        }
        let head = encode_state_head(job.number, job.boundary, &job.body);
        let written = self
            .complete()
            .and_then(|()| self.files.write_at(&path, 0, &head))
            .and_then(|()| self.files.write_at(&path, head.len() as u64, &job.body));
        written.map_err(|error| failed("write", &path, &error))?;
        let synced = self.files.sync(&path);
        synced.map_err(|error| failed("sync", &path, &error.into_inner()))?;
        if job.names {
            self.sync_names(data_path)?;
        }
        Ok(())
    }

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

    /// Writes a checkpoint. It is not synced.
    pub(super) fn write_checkpoint(&self, job: &CheckpointJob) -> Result<(), SyncFailure> {
        let path = self.checkpoint_path();
        let retryable =
            |error: &io::Error| SyncFailure::Retryable(Failure::of("write", &path, error));
        let failed = |error: io::Error| match error.kind() {
            // Nothing is lost. The urgent thread makes the same file for a segment, and removes it if the disk is full.
            io::ErrorKind::NotFound => retryable(&error),
            _ => write_failure(&path, &error),
        };
        self.complete().map_err(failed)?;
        let encoded = job.draft.encode(job.sync);
        // The last checkpoint stands if this one is too long for its file.
        let bytes = encoded.map_err(|error| retryable(&error))?;
        self.write_place(job.place, &bytes).map_err(failed)
    }

    /// Writes a checkpoint into a place of the file, which [`LogDirectory::complete`] has made.
    pub(crate) fn write_place(&self, place: u8, bytes: &[u8]) -> io::Result<()> {
        let path = self.checkpoint_path();
        let room = checkpoint::place_room(bytes.len());
        let length = self.files.length(&path)?;
        if length < checkpoint::file_bytes(room) {
            self.files
                .allocate(&path, checkpoint::file_bytes(room), Pages::Small)?;
        }
        for (piece, at) in checkpoint::pieces(usize::from(place), bytes.len() as u64) {
            let piece = &bytes[piece.start as usize..piece.end as usize];
            self.files.write_at(&path, at, piece)?;
        }
        // Room for the checkpoints that follow, while there is room: finishing must not need any.
        if length < checkpoint::file_bytes(room * 2) {
            // Not having it is no failure of this checkpoint. The next one tries again.
            let _ = self
                .files
                .allocate(&path, checkpoint::file_bytes(room * 2), Pages::Small);
        }
        Ok(())
    }
}

/// The failure of a sync of `path`.
fn sync_failure(path: &Path, error: &SyncError) -> SyncFailure {
    match error {
        SyncError::Retryable(error) => SyncFailure::Retryable(Failure::of("open", path, error)),
        SyncError::Final(error) => SyncFailure::Final(Failure::of("sync", path, error)),
    }
}

/// The failure of a write that a sync was to follow. A shortage of room, descriptors or memory is temporary. A file
/// that has room for the bytes and refuses them counts as a failed sync.
fn write_failure(path: &Path, error: &io::Error) -> SyncFailure {
    let failure = Failure::of("write", path, error);
    if failure.is_full() || is_shortage(error) {
        SyncFailure::Retryable(failure)
    } else {
        SyncFailure::Final(failure)
    }
}
