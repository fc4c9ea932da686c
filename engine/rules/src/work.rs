//! [`Work`]: the remaining budget of a turn for lists with millions of entries.

/// The number of entries of long lists that a turn goes through. They take 0.1 to 0.3 ms of CPU, page faults of growing
/// lists included (docs/decisions/0006-checkpoints-in-slices.md).
pub const TURN_ENTRIES: usize = 1024;

/// Every turn, each topic and each channel may go through this many entries, even if the budget is spent.
const SHARE_MIN: usize = 16;

/// The rest of a turn's budget for long lists.
///
/// A channel may owe ten million deferred messages. Work on all of them (recording them, moving them to the
/// queue when they become due, dropping them) takes many turns, so that no client waits for all of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    entries: usize,
    left: usize,
    spent: usize,
    spent_before: usize,
}

impl Work {
    pub(crate) fn new(entries: usize) -> Work {
        Work {
            entries,
            left: entries,
            spent: 0,
            spent_before: 0,
        }
    }

    /// Begins the next turn, with the whole budget.
    pub(crate) fn begin_turn(&mut self) {
        self.left = self.entries;
        self.spent_before = std::mem::take(&mut self.spent);
    }

    /// The number of entries that the last turn went through.
    pub(crate) fn spent_before(&self) -> usize {
        self.spent_before
    }

    /// A budget without a bound, for the start, when no client waits for a turn.
    pub(crate) fn unbounded() -> Work {
        Work::new(usize::MAX)
    }

    /// Guarantees a minimum of work for the next topic or channel, even if the budget is spent.
    pub(crate) fn begin_share(&mut self) {
        self.ensure(SHARE_MIN);
    }

    /// Makes sure of an eighth of the turn: a checkpoint that is under way holds back segments and answers.
    pub(crate) fn begin_long_share(&mut self) {
        self.begin_share();
        self.ensure(self.entries / 8);
    }

    /// Makes sure of at least `entries` entries.
    pub(crate) fn ensure(&mut self, entries: usize) {
        self.left = self.left.max(entries);
    }

    /// The number of entries that the turn may still go through.
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

    /// The number of entries that the turn went through.
    #[cfg(test)]
    pub(crate) fn spent(&self) -> usize {
        self.spent
    }
}
