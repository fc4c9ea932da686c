//! Errors of the file system as the failures of jobs.

use std::io;
use std::path::Path;

use diskq_log::{CheckpointFailure, Failure, SyncFailure};

use crate::files::{SyncError, is_shortage};

/// The failure of a sync of `path`.
pub(super) fn sync_failure(path: &Path, error: &SyncError) -> SyncFailure {
    match error {
        SyncError::Open(error) => SyncFailure::Open(Failure::of("open", path, error)),
        SyncError::Sync(error) => SyncFailure::Sync(Failure::of("sync", path, error)),
    }
}

/// The failure of a checkpoint that could not be written to its file. A shortage of room, descriptors or memory is
/// temporary. A file that has room for the checkpoint and refuses it counts as a failed sync.
pub(super) fn checkpoint_write_failure(path: &Path, error: &io::Error) -> CheckpointFailure {
    let failure = Failure::of("write", path, error);
    if failure.is_full() || is_shortage(error) {
        CheckpointFailure::Write(failure)
    } else {
        CheckpointFailure::Sync(failure)
    }
}
