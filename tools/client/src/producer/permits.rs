//! [`Permits`]: the bound on the publishes without an answer, and the wait for those that have begun.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// The permits of a producer. A publish has one until nsqd has answered, even if its caller has gone away.
///
/// A wait for the publishes that have begun ends their period and begins the next one. Nothing is sent through the
/// channel of a period. The channel closes when no publish of this period or of an earlier one is left. So a wait holds
/// up no later publish.
#[derive(Debug)]
pub(crate) struct Permits {
    free: Arc<Semaphore>,
    /// The present period, and the end of its channel that sees it close.
    period: Mutex<(Arc<Period>, mpsc::Receiver<()>)>,
}

/// What the publishes hold that have begun between two waits.
#[derive(Debug)]
struct Period {
    _open: mpsc::Sender<()>,
    /// Keeps the channel of the next period open, once there is one.
    next: OnceLock<mpsc::Sender<()>>,
}

impl Period {
    fn begin() -> (mpsc::Sender<()>, (Arc<Period>, mpsc::Receiver<()>)) {
        let (open, closed) = mpsc::channel(1);
        let period = Period {
            _open: open.clone(),
            next: OnceLock::new(),
        };
        (open, (Arc::new(period), closed))
    }
}

/// The permit of one publish.
#[derive(Debug)]
pub(crate) struct Permit {
    _slot: OwnedSemaphorePermit,
    _period: Arc<Period>,
}

impl Permits {
    pub(crate) fn new(count: usize) -> Permits {
        let (_, period) = Period::begin();
        Permits {
            free: Arc::new(Semaphore::new(count)),
            period: Mutex::new(period),
        }
    }

    /// Waits for a permit. The publish has begun when this wait has.
    pub(crate) async fn take(&self) -> Permit {
        let period = Arc::clone(&self.period.lock().0);
        let slot = Arc::clone(&self.free).acquire_owned().await;
        Permit {
            _slot: slot.expect("the semaphore is never closed"),
            _period: period,
        }
    }

    /// Waits until no publish that has begun has a permit.
    pub(crate) async fn wait_for_begun(&self) {
        let (open, period) = Period::begin();
        let (ending, mut closed) = std::mem::replace(&mut *self.period.lock(), period);
        ending.next.set(open).expect("a period ends once");
        drop(ending);
        closed.recv().await;
    }

    /// Returns the number of permits that are free.
    #[cfg(test)]
    pub(crate) fn available_permits(&self) -> usize {
        self.free.available_permits()
    }
}
