//! [`Retries`]: publishes that no nsqd has, and that are tried again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use program::log_warn;
use ringq_client::PublishError;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::connections::Connections;

/// The time after its first failure for which a publish is tried again.
const RETRY_TIME_MAX: Duration = Duration::from_secs(30);

/// The delay after the first retry that failed. Each further failure doubles the delay.
const DELAY_MIN: Duration = Duration::from_millis(100);

/// The longest delay between two tries.
const DELAY_MAX: Duration = Duration::from_secs(1);

/// The publishes of numbered records that are tried again, because nsqd is away, exits or is drained.
///
/// They have their turns one after the other. So an outage costs one attempt to connect per delay, however many records
/// wait.
#[derive(Debug)]
pub(super) struct Retries {
    connections: Arc<Connections>,
    /// The publishes that are being tried again, or wait for their turn.
    count: AtomicUsize,
    turn: Mutex<()>,
}

/// Counts a publish that is tried again, until the end of its future.
struct Counted<'a>(&'a AtomicUsize);

impl Retries {
    pub(super) fn new(connections: Arc<Connections>) -> Retries {
        Retries {
            connections,
            count: AtomicUsize::new(0),
            turn: Mutex::new(()),
        }
    }

    /// Returns true if a publish is being tried again.
    pub(super) fn is_active(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Publishes. If no nsqd has the record, and the nsqds take numbers, tries again for [`RETRY_TIME_MAX`].
    ///
    /// Without numbers, the first failure is the result, as in NSQ's to_nsq.
    ///
    /// # Errors
    /// The last error of `publish`.
    pub(super) async fn insist<T, F>(
        &self,
        mut publish: impl FnMut() -> F,
    ) -> Result<T, PublishError>
    where
        F: Future<Output = Result<T, PublishError>>,
    {
        let error = match publish().await {
            Err(error) if self.permits_retry(&error) => error,
            result => return result,
        };
        let ends_at = Instant::now() + RETRY_TIME_MAX;
        let _counted = self.begin(&error);
        let _turn = self.turn.lock().await;
        let mut delay = DELAY_MIN;
        loop {
            match publish().await {
                Err(error) if self.permits_retry(&error) && Instant::now() + delay <= ends_at => {}
                result => return result,
            }
            sleep(delay).await;
            delay = (delay * 2).min(DELAY_MAX);
        }
    }

    fn permits_retry(&self, error: &PublishError) -> bool {
        error.permits_retry() && self.connections.has_only_numbering_nsqds()
    }

    /// Counts a publish. Warns of the first one of an outage.
    fn begin(&self, error: &PublishError) -> Counted<'_> {
        if self.count.fetch_add(1, Ordering::Relaxed) == 0 {
            let seconds = RETRY_TIME_MAX.as_secs();
            log_warn!("trying again for up to {seconds} seconds: {error}");
        }
        Counted(&self.count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
