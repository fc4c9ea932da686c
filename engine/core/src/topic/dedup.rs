//! [`Dedup`]: how a topic recognises the messages that it has stored before.

use crate::dedup_rules::DedupRule;
use crate::freed_table::FreedTable;
use crate::publishers::{Publishers, Saving};
use crate::ranges::Ranges;
use std::time::Duration;
use wire::id::Seq;

/// The table by which a topic recognises messages that it has stored before, with its counts.
#[derive(Debug)]
pub(super) struct Dedup {
    pub(super) publishers: Publishers,
    pub(super) counters: DedupCounters,
    /// The messages whose numbers are not in a durable saved state. The log keeps them for the next start, whoever has
    /// finished them. Empty for an ephemeral topic.
    pub(super) held: Ranges,
    pub(super) save: Save,
    /// The time before which no further save begins.
    pub(super) save_at: Duration,
}

/// Counters since the process started.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct DedupCounters {
    /// Messages that were answered with OK and not stored, because they had been stored before.
    pub(super) duplicates: u64,
    /// Messages that were stored although the topic could not tell whether it had stored them before: their publisher
    /// gave no number, or a number below all that the topic remembers.
    pub(super) unchecked: u64,
}

impl Dedup {
    /// `seed` is a random number of this process.
    pub(super) fn new(rule: &DedupRule, seed: u64) -> Dedup {
        Dedup {
            publishers: Publishers::new(rule.window, rule.memory_bytes, seed),
            counters: DedupCounters::default(),
            held: Ranges::default(),
            save: Save::Idle,
            save_at: Duration::ZERO,
        }
    }

    /// Takes the table apart at the deletion of its topic. Returns the memory that is to be freed.
    pub(super) fn into_tables(self) -> Vec<Box<dyn FreedTable>> {
        let mut tables = self.publishers.into_tables();
        if let Save::Encoding(_, saving) = self.save {
            tables.push(Box::new(saving.into_body()));
        }
        tables
    }
}

/// The progress of a save of the numbers.
#[derive(Debug)]
pub(super) enum Save {
    /// No save is under way.
    Idle,
    /// The boundary is set. The save waits until all messages below it are synced.
    Syncing(Seq),
    /// The table is being encoded.
    Encoding(Seq, Saving),
    /// The keeper writes the save.
    Writing,
}
