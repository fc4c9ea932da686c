//! An nsqd without sockets, and a clock without waiting, for tests of programs that use this crate.
//!
//! [`MockNetwork`] is a [`Connector`](crate::Connector) over memory. Two kinds of servers listen in it: a
//! [`MockServer`] does what the test says, command by command. A [`MockBroker`] is a small nsqd, which stores and
//! delivers messages. Both cut connections at any byte. With a [`VirtualClock`], timeouts and backoff take no time.
//!
//! # A script
//! ```
//! use ringq_client::testing::MockNetwork;
//! use ringq_client::{Outcome, Producer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let network = MockNetwork::new();
//! let mut server = network.server("nsqd-1:4150");
//! let producer = Producer::builder()
//!     .node(server.address())
//!     .connector(network)
//!     .build()?;
//! let publishing = tokio::spawn(async move { producer.publish("orders", "one").await });
//!
//! let mut nsqd = server.accept().await;
//! nsqd.handshake().await;
//! nsqd.expect("PUB orders one").await;
//! nsqd.close();
//!
//! let error = publishing.await?.unwrap_err();
//! assert_eq!(error.outcome(), Outcome::Unknown);
//! # Ok(())
//! # }
//! ```
//!
//! # A small nsqd
//! ```
//! use ringq_client::Producer;
//! use ringq_client::testing::MockNetwork;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let network = MockNetwork::new();
//! let nsqd = network.broker("nsqd-1:4150");
//! let producer = Producer::builder()
//!     .node(nsqd.address())
//!     .connector(network)
//!     .build()?;
//! producer.publish("orders", "one").await?;
//! assert_eq!(nsqd.published("orders"), ["one"]);
//! # Ok(())
//! # }
//! ```

mod connection;
mod network;
mod stored;
mod stream;

use std::time::Duration;

use tokio::time::{Instant, pause, sleep};

pub use connection::{MockConnection, Received};
pub use network::{MockBroker, MockNetwork, MockServer};
pub use stream::Cut;

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
