//! [`StateFile`]: the file that keeps a filter over restarts. It belongs to one process.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ringq_dedup::saved::{Saved, restore_file, save_file};
use ringq_dedup::{DedupError, Memory};

use super::error::SetupError;
use super::key::Key;

/// The time for which a lock of another process is tried again. A process that was killed keeps its locks until all of
/// its memory was given back, and a supervisor may start the next process before.
const LOCK_TIME_MAX: Duration = Duration::from_secs(1);
/// The time between two tries.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

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
    /// Open for the lock's sake only. `None` on a file system without locks.
    _lock: Option<File>,
}

impl StateFile {
    /// Takes a file for a filter of such keys. The calling thread may wait for a second.
    ///
    /// # Errors
    /// Another process uses the file, or its directory cannot be written.
    pub(super) fn lock(path: PathBuf, key: &Key) -> Result<StateFile, SetupError> {
        let lock = lock(&path)?;
        Ok(StateFile {
            path,
            keys: key.name(),
            _lock: lock,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
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

/// Most bytes of a process id and the end of its line. A longer file has no id.
const ID_TEXT_MAX: u64 = 16;

/// Locks a state. The lock is that of a file of its own, because each save replaces the state's file. Nobody removes this
/// file: the next process locks it again. It has the process id of its owner.
fn lock(state: &Path) -> Result<Option<File>, SetupError> {
    let path = lock_path(state);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let mut file = match options.open(&path) {
        Ok(file) => file,
        // A missing directory is missing for both.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(refused(state, error.into()));
        }
        Err(error) => return Err(refused(&path, error.into())),
    };
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_TIME_MAX => sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => {
                return Err(SetupError::InUse {
                    path: state.to_owned(),
                    process: owner(&mut file),
                });
            }
            // A file system without locks has nothing to say about other processes.
            Err(TryLockError::Error(_)) => return Ok(None),
        }
    }
    // Somebody else's file of this name keeps its content.
    let is_own = file.metadata().is_ok_and(|file| file.len() == 0) || owner(&mut file).is_some();
    if is_own {
        // The id only serves the sentence of the next process. A full disk that does not take it is no reason to end.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
    }
    Ok(Some(file))
}

/// Returns the path of the lock of a state: `clicks.state.lock` for `clicks.state`.
fn lock_path(state: &Path) -> PathBuf {
    let mut path = OsString::from(state);
    path.push(".lock");
    path.into()
}

/// Returns the process that has written its id to a locked file.
fn owner(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(ID_TEXT_MAX).read_to_string(&mut text).ok()?;
    text.trim_end().parse().ok()
}

fn refused(path: &Path, error: DedupError) -> SetupError {
    SetupError::State {
        path: path.to_owned(),
        error,
    }
}
