//! [`VirtualClock`]: the time of a test.

use std::time::Duration;

use tokio::time::{Instant, pause, sleep};

/// A clock that stands still while tasks have something to do, and that jumps to the next timer when all tasks wait. A
/// test that waits for minutes takes milliseconds. The clock is the one of tokio's runtime for the current thread.
///
/// ```
/// use std::time::Duration;
///
/// use ringq_client::testing::VirtualClock;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let clock = VirtualClock::start();
/// clock.advance(Duration::from_secs(3600)).await;
/// assert_eq!(clock.elapsed().as_secs(), 3600);
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct VirtualClock {
    start: Instant,
}

impl VirtualClock {
    /// Stops the real clock of this runtime.
    ///
    /// # Panics
    /// Outside a runtime for the current thread, and if the clock is stopped already.
    #[must_use]
    pub fn start() -> VirtualClock {
        pause();
        VirtualClock {
            start: Instant::now(),
        }
    }

    /// Waits until `duration` has passed on this clock. Timers of all tasks fire in order, and their tasks run.
    /// Timers have a resolution of 1 ms.
    pub async fn advance(&self, duration: Duration) {
        sleep(duration).await;
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}
