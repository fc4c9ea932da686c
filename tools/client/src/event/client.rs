//! [`Client`]: the producer or consumer to which an event belongs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of the next producer or consumer of this process.
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(1);

/// A producer or a consumer of this process, in events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    pub(super) number: u32,
    /// `topic/channel` of a consumer.
    pub(super) subscription: Option<Arc<str>>,
}

impl Client {
    /// Numbers a new producer.
    pub(crate) fn producer() -> Client {
        Client {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            subscription: None,
        }
    }

    /// Numbers a new consumer.
    pub(crate) fn consumer(topic: &str, channel: &str) -> Client {
        Client {
            subscription: Some(format!("{topic}/{channel}").into()),
            ..Client::producer()
        }
    }

    /// Returns the number of the producer or consumer, which counts both from 1 in each process.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns `topic/channel` of a consumer.
    #[must_use]
    pub fn subscription(&self) -> Option<&str> {
        self.subscription.as_deref()
    }
}
