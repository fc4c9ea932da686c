//! [`Shared`]: what the connections have in common. [`Streams`]: the open streams, for `/stats`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use ringq_client::Producer;
use tokio::sync::watch;

use super::config::Config;
use super::request::Subscription;
use crate::consuming::Consuming;

/// The parts that all connections share.
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) producer: Producer,
    /// The settings of all consumers. Each channel has its own messages in their filter.
    pub(super) consuming: Consuming,
    pub(super) streams: Arc<Streams>,
    /// True when nsq_pubsub stops.
    pub(super) stop: watch::Receiver<bool>,
}

/// The open streams.
#[derive(Debug, Default)]
pub(super) struct Streams {
    messages: AtomicU64,
    /// The topic and the channel of each stream. The keys have the order in which the streams began.
    open: Mutex<BTreeMap<(Instant, SocketAddr), String>>,
}

/// An open stream. A drop removes it from the list.
#[derive(Debug)]
pub(super) struct Listed {
    streams: Arc<Streams>,
    key: (Instant, SocketAddr),
}

impl Streams {
    /// Adds a stream that began at `since`.
    pub(super) fn open(
        self: &Arc<Streams>,
        peer: SocketAddr,
        subscription: &Subscription,
        since: Instant,
    ) -> Listed {
        let Subscription { topic, channel, .. } = subscription;
        let key = (since, peer);
        self.open.lock().insert(key, format!("{topic} : {channel}"));
        Listed {
            streams: Arc::clone(self),
            key,
        }
    }

    /// Counts messages that were written to a client.
    pub(super) fn count_messages(&self, count: u64) {
        self.messages.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the answer of `/stats`.
    pub(super) fn report(&self, now: Instant) -> String {
        let mut report = format!(
            "Total Messages: {}\n\n",
            self.messages.load(Ordering::Relaxed)
        );
        for ((since, peer), names) in self.open.lock().iter() {
            let seconds = now.saturating_duration_since(*since).as_secs();
            report += &format!("[{peer}] [{names}] connected: {seconds}s\n");
        }
        report
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.streams.open.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests;
