//! [`StateFile`]: the file that keeps a filter over restarts. It belongs to one process.

use std::io;
use std::path::{Path, PathBuf};

use new_file::{FileLock, InUse, LockError};
use ringq_dedup::saved::{Saved, restore_file, save_file};
use ringq_dedup::{DedupError, Memory};

use super::error::SetupError;
use super::key::Key;

/// A filter that is saved in a file, with the sizes that a saved filter must have.
pub(super) trait Sizes: Memory + Saved + Clone {
    fn sizes(&self) -> String;
}

/// The file that keeps a filter over restarts. Until it is dropped, no other process can use the file.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    /// The name of the filter's keys.
    keys: String,
    lock: FileLock,
}

impl StateFile {
    /// Takes a file for a filter of such keys. The calling thread may wait for a second.
    ///
    /// # Errors
    /// Another process uses the file, or the lock cannot be made.
    pub(super) fn lock(path: PathBuf, key: &Key) -> Result<StateFile, SetupError> {
        let lock = FileLock::take(&path).map_err(|error| match error {
            LockError::InUse(InUse { path, process }) => SetupError::InUse { path, process },
            LockError::Io {
                path: failed,
                source,
            } if failed == path => refused(&path, source.into()),
            LockError::Io { path, source } => SetupError::Lock {
                path,
                error: source,
            },
        })?;
        Ok(StateFile {
            path,
            keys: key.name(),
            lock,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the warning for the user if other processes could use the file.
    pub(super) fn warning(&self) -> Option<&str> {
        self.lock.warning()
    }

    /// Returns the saved filter, which must have the keys and the sizes of `wanted`. `None` without a saved filter.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or has another filter, or it could not be replaced later.
    pub(super) fn restore<M: Sizes>(&self, wanted: &M) -> Result<Option<M>, SetupError> {
        let failed = |error| refused(&self.path, error);
        let restored = restore_file::<M>(&self.path).map_err(failed)?;
        // A directory that cannot be written is found now, and not at the end.
        let check =
            || new_file::check_replaceable(&self.path).map_err(|error| failed(error.into()));
        let Some(restored) = restored else {
            check()?;
            return Ok(None);
        };
        // A state of an older version does not name its keys.
        if let Some(saved) = restored.keys
            && saved != self.keys
        {
            return Err(SetupError::OtherKey {
                path: self.path.clone(),
                saved,
                wanted: self.keys.clone(),
            });
        }
        let (saved, wanted) = (restored.filter.sizes(), wanted.sizes());
        if saved != wanted {
            return Err(SetupError::OtherSizes {
                path: self.path.clone(),
                saved,
                wanted,
            });
        }
        check()?;
        Ok(Some(restored.filter))
    }

    /// Saves a filter.
    pub(super) fn save<M: Sizes>(&self, filter: &M) -> io::Result<()> {
        save_file(filter, &self.keys, &self.path)
    }
}

fn refused(path: &Path, error: DedupError) -> SetupError {
    SetupError::State {
        path: path.to_owned(),
        error,
    }
}
