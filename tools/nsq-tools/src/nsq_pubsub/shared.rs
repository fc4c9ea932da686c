//! [`Shared`]: what the connections have in common.

use std::sync::Arc;

use ringq_client::Producer;
use ringq_client::dedup::Dedup;
use tokio::sync::watch;

use super::config::Config;
use super::streams::Streams;

/// The parts that all connections share.
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) producer: Producer,
    /// The filter of all streams. Each channel has its own messages in it.
    pub(super) dedup: Option<Dedup>,
    pub(super) streams: Arc<Streams>,
    /// True when nsq_pubsub stops.
    pub(super) stop: watch::Receiver<bool>,
}
