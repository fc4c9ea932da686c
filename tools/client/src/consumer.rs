//! [`Consumer`]: a stream of messages from all nodes that have a topic.
//!
//! ```text
//!   discovery ─► nodes ─► one task per nsqd ─► inbox ─► Consumer (stream, run) ─► application
//!                              │   ▲                                                  │
//!                              ▼   │ RDY, FIN, REQ, TOUCH                             ▼
//!                             nsqd └──────────────── hub (flow control) ◄────────── answers
//! ```

mod builder;
mod control;
mod discovery;
mod error;
mod inbox;
mod receiver;
mod run;
mod shared;
#[cfg(feature = "dedup")]
mod sieve;
mod touching;
#[cfg(feature = "dedup")]
mod waiting_copies;

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

pub use builder::ConsumerBuilder;
pub use control::{ConsumerStats, Control, NodeStats};
pub use error::{ConnectError, NodeError};
pub use touching::AutoTouch;

use crate::event::Event;
use crate::hub::Phase;
use crate::message::{GivenUp, Message};
use discovery::Discovery;

use shared::ConsumerShared;

/// The callback for messages that are given up.
type GiveUp = dyn Fn(GivenUp) + Send + Sync;

/// Receives the messages of a topic and channel, from all its nodes.
///
/// A consumer is a [`Stream`] of messages. [`run`](Consumer::run) calls a handler for each message instead. Heartbeats,
/// RDY and reconnection go on in tasks of their own, however long the application takes for a message.
///
/// Dropping a consumer stops it in the background, as [`Control::shutdown`] does.
///
/// ```no_run
/// use ringq_client::{Config, Consumer, Requeue};
///
/// # async fn save(body: &[u8]) -> std::io::Result<()> { Ok(()) }
/// # async fn example() -> Result<(), ringq_client::ConnectError> {
/// let mut consumer = Consumer::builder("orders", "billing")
///     .lookupd("127.0.0.1:4161")
///     .config(Config { max_in_flight: 100, ..Config::default() })
///     .connect()
///     .await?;
/// while let Some(message) = consumer.next().await {
///     match save(message.body()).await {
///         Ok(()) => message.finish(),
///         Err(_) => message.requeue(Requeue::Automatic),
///     };
/// }
/// # Ok(())
/// # }
/// ```
///
/// A test needs no nsqd, with the feature `testing`:
///
/// ```
/// use ringq_client::testing::MockNetwork;
/// use ringq_client::{Consumer, Requeue};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let network = MockNetwork::new();
/// let nsqd = network.broker("nsqd-1:4150");
/// nsqd.publish("orders", "one");
/// let mut consumer = Consumer::builder("orders", "billing")
///     .node(nsqd.address())
///     .connector(network)
///     .connect()
///     .await?;
///
/// let message = consumer.next().await.ok_or("the consumer has stopped")?;
/// assert_eq!((&message.body()[..], message.attempts()), (&b"one"[..], 1));
/// message.requeue_without_backoff(Requeue::After(std::time::Duration::ZERO));
///
/// let message = consumer.next().await.ok_or("the consumer has stopped")?;
/// assert_eq!(message.attempts(), 2);
/// message.finish().await?;
///
/// consumer.control().shutdown().await;
/// assert!(consumer.next().await.is_none());
/// assert_eq!(nsqd.depth("orders", "billing"), (0, 0));
/// # Ok(())
/// # }
/// ```
pub struct Consumer {
    shared: Arc<ConsumerShared>,
    control: Control,
    give_up: Option<Box<GiveUp>>,
    /// Messages that were taken from the inbox together.
    taken: VecDeque<Message>,
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("control", &self.control)
            .finish_non_exhaustive()
    }
}

impl Consumer {
    /// Begins to describe a consumer of `channel` of `topic`.
    pub fn builder(topic: impl Into<String>, channel: impl Into<String>) -> ConsumerBuilder {
        ConsumerBuilder::new(topic.into(), channel.into())
    }

    fn new(
        shared: Arc<ConsumerShared>,
        discovery: Arc<Discovery>,
        give_up: Option<Box<GiveUp>>,
        retry_first_connection: bool,
    ) -> Consumer {
        Consumer {
            control: Control::new(Arc::clone(&shared), discovery, retry_first_connection),
            shared,
            give_up,
            taken: VecDeque::new(),
        }
    }

    /// Returns a handle that changes, observes and stops the consumer.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Returns the next message, or `None` when the consumer has stopped. Dropping the future loses no message.
    pub async fn next(&mut self) -> Option<Message> {
        poll_fn(|cx| self.poll_message(cx)).await
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        loop {
            while let Some(message) = self.taken.pop_front() {
                if let Some(message) = self.admit(message) {
                    return Poll::Ready(Some(message));
                }
            }
            if !ready!(self.shared.inbox.poll_take(cx, &mut self.taken)) {
                return Poll::Ready(None);
            }
        }
    }

    /// Returns the message if the application is to have it.
    fn admit(&self, message: Message) -> Option<Message> {
        let delivery = message.delivery();
        let hub = &self.shared.hub;
        if delivery.source.line.is_lost() {
            // nsqd delivers the message again, and nobody could answer this delivery.
            delivery.forget();
            return None;
        }
        if self.shared.gives_back && hub.phase() != Phase::Running {
            delivery.give_back();
            return None;
        }
        if !delivery.is_given_up() {
            return Some(message);
        }
        hub.events.emit(Event::GaveUp {
            client: hub.client.clone(),
            node: message.node().clone(),
            id: message.id(),
            attempts: message.attempts(),
        });
        if let Some(give_up) = &self.give_up {
            give_up(GivenUp::from(&message));
        }
        // The application has not handled the message, so a copy on another node is as fresh as before.
        #[cfg(feature = "dedup")]
        delivery.release_claim();
        message.finish();
        None
    }
}

impl Stream for Consumer {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        self.poll_message(cx)
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.shared.stop();
        // After CLS, so nsqd does not send these messages here again. The inbox refuses messages from now on, because
        // nobody takes them.
        for message in self
            .shared
            .inbox
            .refuse()
            .into_iter()
            .chain(self.taken.drain(..))
        {
            message.delivery().give_back();
        }
    }
}

#[cfg(test)]
mod tests;
