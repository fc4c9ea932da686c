//! [`Shared`]: what all topics share, and the [`Orders`] to them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use ringq_client::Control;

use super::config::Config;
use crate::consuming::Consuming;
use crate::progress;

/// The orders to all topics.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Orders {
    /// True when the topics must come to an end.
    pub(super) stop: bool,
    /// The number of SIGHUPs so far. Each closes the files.
    pub(super) hangup_count: u64,
}

/// The figures of all topics.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// The messages that are synced.
    pub(super) message_count: AtomicU64,
    /// The bytes of these messages, before compression.
    pub(super) bytes: AtomicU64,
}

impl Figures {
    /// Returns the figures for the line at a terminal.
    pub(super) fn shown(&self) -> progress::Figures {
        let mib = self.bytes.load(Ordering::Relaxed) >> 20;
        progress::Figures {
            count: self.message_count.load(Ordering::Relaxed),
            name: "messages synced",
            others: format!("{mib} MiB"),
        }
    }
}

/// The parts that all topics share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) consuming: Consuming,
    pub(super) figures: Figures,
    /// The consumers of the topics, by their topics.
    pub(super) controls: Mutex<BTreeMap<String, Control>>,
}
