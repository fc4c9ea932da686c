//! [`ConsumerConnection`]: one connection of a consumer, for the threads that answer messages.

#[cfg(feature = "dedup")]
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use wire::encode;

use super::ready::ConnectionId;
use crate::address::Address;
use crate::connection::{Negotiated, Outbox, Position};
use crate::error::ConnectionLost;

/// nsqd's message timeout if nsqd did not say: its default.
const MSG_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// nsqd's longest message timeout if nsqd did not say: its default.
const MSG_TIMEOUT_MAX_DEFAULT: Duration = Duration::from_secs(15 * 60);

/// One connection. Its counters need no lock.
#[derive(Debug)]
pub(crate) struct ConsumerConnection {
    pub(crate) id: ConnectionId,
    pub(crate) node: Address,
    /// The largest RDY that this nsqd accepts.
    pub(crate) ready_max: u32,
    /// The time that nsqd gives to each message.
    pub(crate) msg_timeout: Duration,
    /// The longest time that nsqd gives to a message that is touched.
    pub(crate) msg_timeout_max: Duration,
    /// True when a message can be given back without counting an attempt.
    pub(crate) has_uncounted: bool,
    pub(crate) outbox: Outbox,
    /// The highest RDY so far.
    ready_peak: AtomicU32,
    received: AtomicU64,
    answered: AtomicU64,
    /// Each message about which the store of handled messages is asked has a clone, until the store has answered or is
    /// not asked any more.
    #[cfg(feature = "dedup")]
    pub(crate) checks: Arc<()>,
    is_lost: AtomicBool,
    /// True when nsqd will send nothing more. The last answer then closes the connection.
    is_draining: AtomicBool,
}

impl ConsumerConnection {
    pub(crate) fn new(
        id: ConnectionId,
        node: Address,
        negotiated: &Negotiated,
        outbox: Outbox,
    ) -> ConsumerConnection {
        let or = |stated: Duration, default| if stated.is_zero() { default } else { stated };
        ConsumerConnection {
            id,
            node,
            ready_max: u32::try_from(negotiated.max_rdy_count.max(0)).unwrap_or(u32::MAX),
            msg_timeout: or(negotiated.msg_timeout, MSG_TIMEOUT_DEFAULT),
            msg_timeout_max: or(negotiated.max_msg_timeout, MSG_TIMEOUT_MAX_DEFAULT),
            has_uncounted: negotiated.req_uncounted,
            outbox,
            ready_peak: AtomicU32::new(0),
            received: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            #[cfg(feature = "dedup")]
            checks: Arc::default(),
            is_lost: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
        }
    }

    /// Sends commands. They are refused when the connection is over or closes.
    pub(crate) fn send(
        &self,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Position, ConnectionLost> {
        self.outbox.append(write)
    }

    /// Sends a RDY count.
    pub(crate) fn set_ready(&self, count: u32) -> Result<Position, ConnectionLost> {
        // Before nsqd can know the count.
        self.ready_peak.fetch_max(count, Ordering::Relaxed);
        self.send(|out| encode::rdy(out, count))
    }

    /// Returns the highest RDY so far.
    pub(crate) fn ready_peak(&self) -> u32 {
        self.ready_peak.load(Ordering::Relaxed)
    }

    /// Counts messages that nsqd sent.
    pub(crate) fn count_received(&self, count: u64) {
        self.received.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts one message that was answered, after its answer was sent. Closes the connection if it was the last one of
    /// a connection that drains.
    pub(crate) fn count_answered(&self) {
        // Sequential consistency: either this thread sees that the connection drains, or `drain` sees this count.
        self.answered.fetch_add(1, Ordering::SeqCst);
        if self.is_draining.load(Ordering::SeqCst) && self.in_flight() == 0 {
            self.outbox.close();
        }
    }

    /// Returns the number of messages about which the store of handled messages is asked.
    #[cfg(feature = "dedup")]
    pub(crate) fn checks(&self) -> usize {
        Arc::strong_count(&self.checks) - 1
    }

    /// Returns the number of messages that were received and not answered.
    pub(crate) fn in_flight(&self) -> u64 {
        let answered = self.answered.load(Ordering::SeqCst);
        let received = self.received.load(Ordering::SeqCst);
        received.saturating_sub(answered)
    }

    /// States that nsqd sends nothing more. The connection closes when its last message is answered.
    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::SeqCst);
        if self.in_flight() == 0 {
            self.outbox.close();
        }
    }

    /// Returns true if nsqd sends nothing more.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::SeqCst)
    }

    /// States that the connection is over: the answers to its messages reach nobody.
    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// Returns true if the connection is over.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }
}
