//! [`Shared`]: what the connections have in common.

use std::sync::Arc;

use tokio::sync::watch;

use super::config::Config;
use super::streams::Streams;

/// The parts that all connections share.
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) streams: Arc<Streams>,
    /// True when nsq_pubsub stops.
    pub(super) stop: watch::Receiver<bool>,
}
