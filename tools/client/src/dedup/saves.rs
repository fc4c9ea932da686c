//! [`Saves`]: the saves of one filter, by all consumers that share the filter.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;

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
