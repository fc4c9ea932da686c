//! [`Consumer`]: what a connection is subscribed to, and what it may receive.

use crate::coalescing::Coalescing;
use crate::dirty_set::Listed;
use crate::ids::{ChannelId, TopicKey};
use crate::topology::Locality;
use wire::identify::ClientSettings;

/// The delivery to a connection.
///
/// Invariant: `in_flight` is what the channel's window holds for it.
#[derive(Debug)]
pub(crate) struct Consumer {
    /// The settings of the first IDENTIFY. As in nsqd, a later IDENTIFY does not change deliveries.
    pub(crate) settings: ClientSettings,
    pub(crate) locality: Locality,
    pub(crate) subscription: Option<(TopicKey, ChannelId)>,
    pub(crate) ready_count: u32,
    pub(crate) in_flight: u32,
    /// In its channel's `ready`.
    pub(crate) in_ready: Listed,
    /// In its channel's `refills`: waits until it has credit for more than a few messages.
    pub(crate) in_refills: Listed,
    pub(crate) coalescing: Coalescing,
    pub(crate) message_count: u64,
    pub(crate) finish_count: u64,
    pub(crate) requeue_count: u64,
}

impl Consumer {
    /// A consumer without a channel.
    pub(super) fn new(settings: ClientSettings) -> Consumer {
        Consumer {
            settings,
            locality: Locality::default(),
            subscription: None,
            ready_count: 0,
            in_flight: 0,
            in_ready: Listed::default(),
            in_refills: Listed::default(),
            coalescing: Coalescing::default(),
            message_count: 0,
            finish_count: 0,
            requeue_count: 0,
        }
    }

    /// Returns how many messages RDY still allows.
    #[inline]
    pub(super) fn credit(&self) -> u32 {
        self.ready_count.saturating_sub(self.in_flight)
    }

    /// Counts messages on their way to it.
    #[inline]
    pub(crate) fn delivered(&mut self, count: u32) {
        self.in_flight += count;
        self.message_count += u64::from(count);
    }

    /// Forgets its channel, which is gone with its lists.
    pub(crate) fn channel_gone(&mut self) {
        self.subscription = None;
        self.in_flight = 0;
        self.in_ready = Listed::default();
        self.in_refills = Listed::default();
    }
}
