//! [`StateFile`]: the file that keeps a filter over restarts. It belongs to one process.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use new_file::{FileLock, InUse, LockError};
use ringq_dedup::saved::{Saved, restore_file, save_file};
use ringq_dedup::{Filter, ForgetfulBloom, InverseBloom, RoaringPair, StateError};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;

use super::error::SetupError;
use super::key::Key;

/// A filter that is saved in a file, with the sizes that a saved filter must have.
pub(super) trait Sizes: Filter + Saved + Clone {
    fn sizes(&self) -> String;
}

impl Sizes for InverseBloom {
    fn sizes(&self) -> String {
        format!("{} slots", self.slots())
    }
}

impl Sizes for ForgetfulBloom {
    fn sizes(&self) -> String {
        let options = self.options();
        format!(
            "{} filters for {:?}, {} keys per second and false positives of {}",
            options.filters, options.window, options.rate, options.false_positives_max
        )
    }
}

impl Sizes for RoaringPair {
    fn sizes(&self) -> String {
        format!(
            "{} numbers of each of {} sources",
            self.capacity(),
            self.sources_max()
        )
    }
}

/// The name of the time-limited Bloom filter, which earlier versions had. Nothing reads its saved state any more, so
/// the file goes to another filter.
const REMOVED: &str = "time-limited-bloom";

/// The file that keeps a filter over restarts. Until it is dropped, no other process can use the file.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    /// The name of the filter's key.
    key_name: String,
    lock: FileLock,
    /// The warning for the user if the file had a removed filter.
    removed_warning: Option<String>,
}

impl StateFile {
    /// Takes a file for a filter with this key. The calling thread may wait for a second.
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
            key_name: key.name(),
            lock,
            removed_warning: None,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the warning for the user if other processes could use the file, or if the file had a removed filter.
    pub(super) fn warning(&self) -> Option<&str> {
        self.removed_warning.as_deref().or(self.lock.warning())
    }

    /// Returns the saved filter, which must have the key and the sizes of `wanted`. `None` without a saved filter, and
    /// for a removed filter.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or has another filter, or it could not be replaced later.
    pub(super) fn restore<M: Sizes>(&mut self, wanted: &M) -> Result<Option<M>, SetupError> {
        let failed = |error| refused(&self.path, error);
        let restored = match restore_file::<M>(&self.path) {
            Err(StateError::OtherFilter { found, .. }) if found == REMOVED => {
                let no_locks = self.lock.warning().map(|it| format!("; {it}"));
                self.removed_warning = Some(format!(
                    "{} has a filter that was removed, {found}: the filter begins empty, and a save replaces the file{}",
                    self.path.display(),
                    no_locks.unwrap_or_default()
                ));
                None
            }
            restored => restored.map_err(failed)?,
        };
        // A directory that cannot be written is found now, and not at the end.
        let check =
            || new_file::check_replaceable(&self.path).map_err(|error| failed(error.into()));
        let Some(restored) = restored else {
            check()?;
            return Ok(None);
        };
        // A state of an older version does not name its key.
        if let Some(saved) = restored.key_name
            && saved != self.key_name
        {
            return Err(SetupError::OtherKey {
                path: self.path.clone(),
                saved,
                wanted: self.key_name.clone(),
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
        save_file(filter, &self.key_name, &self.path)
    }
}

fn refused(path: &Path, error: StateError) -> SetupError {
    SetupError::State {
        path: path.to_owned(),
        error,
    }
}

/// The result of a save.
pub(crate) type SaveResult = Result<(), Arc<io::Error>>;

/// The saves of one filter. One save runs at a time, on a thread that may block. Saves that wait need no thread: a
/// runtime has few such threads, and a disk that hangs would keep one for each consumer that ends.
#[derive(Debug, Default)]
pub(super) struct Saves {
    /// The number of saves that have begun.
    begun: AtomicU64,
    last: Arc<Mutex<Option<Last>>>,
}

/// The save that ended last.
#[derive(Debug)]
struct Last {
    /// Its number, from 1.
    number: u64,
    began: Instant,
    saved: SaveResult,
}

impl Saves {
    /// Saves by `save`. If another save began after this call, its result counts for both.
    pub(super) async fn save_or_join(
        &self,
        runtime: &Handle,
        save: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> SaveResult {
        let begun = self.begun.load(Ordering::SeqCst);
        let last = Arc::clone(&self.last).lock_owned().await;
        match &*last {
            Some(last) if last.number > begun => last.saved.clone(),
            _ => self.run(last, runtime, save).await,
        }
    }

    /// Saves by `save`, unless a save runs already, or began less than `age` ago.
    pub(super) async fn save_if_older(
        &self,
        age: Duration,
        runtime: &Handle,
        save: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Option<SaveResult> {
        let last = Arc::clone(&self.last).try_lock_owned().ok()?;
        match &*last {
            Some(last) if last.began.elapsed() < age => None,
            _ => Some(self.run(last, runtime, save).await),
        }
    }

    /// Saves. If the future is dropped, the save goes on, and keeps its turn.
    async fn run(
        &self,
        mut last: OwnedMutexGuard<Option<Last>>,
        runtime: &Handle,
        save: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> SaveResult {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let began = Instant::now();
        let saving = runtime.spawn_blocking(move || {
            let saved = save().map_err(Arc::new);
            *last = Some(Last {
                number,
                began,
                saved: saved.clone(),
            });
            saved
        });
        // The runtime ends, or the thread panicked.
        let failed = |error| Err(Arc::new(io::Error::other(error)));
        saving.await.unwrap_or_else(failed)
    }
}
