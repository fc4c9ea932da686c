//! [`LeftOut`]: counts what has no line of its own in a log, and has the number told at the latest after a minute.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;

/// The longest time for which a number is not told.
const TOLD_AFTER: Duration = Duration::from_secs(60);

/// A number that has not been told yet. All clones count the same.
#[derive(Clone, Debug, Default)]
pub struct LeftOut(Arc<Mutex<Counted>>);

#[derive(Debug, Default)]
struct Counted {
    count: u64,
    /// True while a task waits to tell the number.
    is_awaited: bool,
}

impl LeftOut {
    /// Adds one. After a minute, `tell` gets the number of all that were added and not taken in the meantime. Returns true if
    /// this minute begins now.
    pub fn add<T>(&self, tell: impl FnOnce(u64) -> T + Send + 'static) -> bool
    where
        T: Future<Output = ()> + Send,
    {
        {
            let mut counted = self.0.lock();
            counted.count += 1;
            if std::mem::replace(&mut counted.is_awaited, true) {
                return false;
            }
        }
        let own = self.clone();
        tokio::spawn(async move {
            sleep(TOLD_AFTER).await;
            let count = {
                let mut counted = own.0.lock();
                counted.is_awaited = false;
                std::mem::take(&mut counted.count)
            };
            if count > 0 {
                tell(count).await;
            }
        });
        true
    }

    /// Returns the number for somebody who tells it now.
    #[must_use]
    pub fn take(&self) -> u64 {
        std::mem::take(&mut self.0.lock().count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_number_is_told_once_after_a_minute_unless_it_was_taken_before() {
        let left_out = LeftOut::default();
        let told: Arc<Mutex<Vec<u64>>> = Arc::default();
        let add = || {
            let told = told.clone();
            left_out.add(move |count| async move { told.lock().push(count) })
        };
        let second = Duration::from_secs(1);
        assert!(add());
        sleep(TOLD_AFTER - second).await;
        assert!(!add());
        assert_eq!(*told.lock(), [0; 0]);
        sleep(2 * second).await;
        assert_eq!(*told.lock(), [2]);
        sleep(10 * TOLD_AFTER).await;
        assert_eq!(*told.lock(), [2]);
        assert!(add());
        assert_eq!(left_out.clone().take(), 1);
        sleep(2 * TOLD_AFTER).await;
        assert_eq!(*told.lock(), [2]);
        assert!(add());
        sleep(TOLD_AFTER + second).await;
        assert_eq!(*told.lock(), [2, 1]);
    }
}
