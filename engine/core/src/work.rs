//! [`Work`]: what a turn may still do of the things that come by the million.

/// How many entries of long lists a turn goes through: about a quarter of a millisecond.
pub const TURN_ENTRIES: usize = 2048;

/// Each topic and each channel gets on by this many entries in each turn, whatever the others have to do.
const SHARE_MIN: usize = 16;

/// What is left of a turn's share of the long lists.
///
/// A channel may owe ten million deferred messages. What has to be done for all of them (recording them,
/// moving them to the queue when they become due, dropping them) is done over many turns, so that nobody
/// waits for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    left: usize,
    spent: usize,
}

impl Work {
    pub(crate) fn new(entries: usize) -> Work {
        Work {
            left: entries,
            spent: 0,
        }
    }

    /// No bound: at start, when nobody waits for a turn.
    pub(crate) fn unbounded() -> Work {
        Work::new(usize::MAX)
    }

    /// Makes sure that the next one in line is not left out.
    pub(crate) fn begin_share(&mut self) {
        self.left = self.left.max(SHARE_MIN);
    }

    /// How many entries may still be gone through.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    pub(crate) fn is_left(&self) -> bool {
        self.left > 0
    }

    /// Notes that `entries` entries were gone through.
    pub(crate) fn spend(&mut self, entries: usize) {
        self.left = self.left.saturating_sub(entries);
        self.spent += entries;
    }

    /// How many entries were gone through.
    pub(crate) fn spent(&self) -> usize {
        self.spent
    }
}
