//! [`Control`]: the state that the threads of a run share, besides their reports.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::result::grid::Grid;
use crate::result::ledger::ChannelLedger;

/// The state that the conductor and the generators of one run share. A thread reads the flags and counters a few
/// hundred times a second at most; a consumer takes the lock of its ledger once per read.
#[derive(Debug, Default)]
pub struct Control {
    /// The times of the run; fixed when all connections are there.
    pub grid: OnceLock<Grid>,
    /// Connections that are set up.
    pub ready: AtomicUsize,
    /// Consumers are to take messages.
    pub consume: AtomicBool,
    /// Producers are to send nothing more.
    pub end_publishing: AtomicBool,
    /// Publishing is over: stalled consumers read again.
    pub published: AtomicBool,
    /// All threads are to end at once.
    pub stop: AtomicBool,
    /// Producers that have sent everything and got every answer.
    pub producers_done: AtomicUsize,
    /// Messages acknowledged by the producers that are done.
    pub owed: AtomicU64,
    /// The ledgers, one per channel of a topic.
    ledgers: Vec<Mutex<ChannelLedger>>,
}

impl Control {
    /// Makes the state of a run with this many channels per topic.
    pub fn new(channels: usize) -> Control {
        Control {
            ledgers: (0..channels).map(|_| Mutex::default()).collect(),
            ..Control::default()
        }
    }

    /// Locks the ledger of a channel.
    pub fn ledger(&self, channel: usize) -> MutexGuard<'_, ChannelLedger> {
        self.ledgers[channel].lock()
    }

    /// Locks the ledgers of all channels, one after the other.
    pub fn all_ledgers(&self) -> impl Iterator<Item = MutexGuard<'_, ChannelLedger>> {
        (0..self.ledgers.len()).map(|channel| self.ledger(channel))
    }

    /// Reads a flag; sees all that was written before [`Control::set`].
    pub fn is_set(flag: &AtomicBool) -> bool {
        flag.load(Ordering::Acquire)
    }

    /// Sets a flag. A flag is never cleared.
    pub fn set(flag: &AtomicBool) {
        flag.store(true, Ordering::Release);
    }

    /// Tells whether every channel has everything that is owed to it, and the messages given back came again.
    pub fn is_drained(&self) -> bool {
        self.all_have(|ledger| ledger.awaited() == 0)
    }

    /// Tells whether every channel has everything that is owed to it, except messages that were given back and
    /// have not come again.
    pub fn has_arrived(&self) -> bool {
        self.all_have(|_| true)
    }

    fn all_have(&self, and: impl Fn(&ChannelLedger) -> bool) -> bool {
        let owed = self.owed.load(Ordering::Acquire);
        self.all_ledgers()
            .all(|ledger| ledger.arrived() >= owed && and(&ledger))
    }

    /// Messages that arrived, over all channels.
    pub fn arrived(&self) -> u64 {
        self.all_ledgers().map(|ledger| ledger.arrived()).sum()
    }
}
