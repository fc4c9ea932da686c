//! [`PublisherNumbers`]: the numbers of the messages that a topic has stored, by their publishers.

use crate::dedup_rules::PublisherRule;
use crate::freed_table::FreedTable;
use crate::publishers::{Publishers, TableEncoder};
use crate::ranges::Ranges;
use std::time::Duration;
use wire::id::Seq;

/// The table by which a topic recognises the numbers of messages that it has stored before, with its counts.
#[derive(Debug)]
pub(super) struct PublisherNumbers {
    pub(super) publishers: Publishers,
    pub(super) counters: NumberCounters,
    /// The messages whose numbers are not in a durable saved state. The log keeps them for the next start, whoever has
    /// finished them. Empty for an ephemeral topic.
    pub(super) held: Ranges,
    pub(super) save: NumbersSave,
}

/// Counters since the process started.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct NumberCounters {
    /// Messages that were answered with OK and not stored, because they had been stored before.
    pub(super) duplicates: u64,
    /// Messages that were stored although the topic could not tell whether it had stored them before: their publisher
    /// gave no number, or a number below all that the topic remembers.
    pub(super) unchecked: u64,
}

impl PublisherNumbers {
    /// Makes the numbers of a topic, none yet. `process_seed` is a random number of this process.
    pub(super) fn new(rule: &PublisherRule, process_seed: u64) -> PublisherNumbers {
        PublisherNumbers {
            publishers: Publishers::new(rule.window, rule.memory_bytes, process_seed),
            counters: NumberCounters::default(),
            held: Ranges::default(),
            save: NumbersSave::default(),
        }
    }

    /// Takes the table apart at the deletion of its topic. Returns the memory that is to be freed.
    pub(super) fn into_tables(self) -> Vec<Box<dyn FreedTable>> {
        let mut tables = self.publishers.into_tables();
        if let NumbersSaveStep::Encoding(_, encoder) = self.save.step {
            tables.push(Box::new(encoder.into_body()));
        }
        tables
    }
}

/// The state of the save of the numbers.
#[derive(Debug, Default)]
pub(super) struct NumbersSave {
    pub(super) step: NumbersSaveStep,
    /// The time before which no further save begins.
    pub(super) due: Duration,
}

/// The progress of the save.
#[derive(Debug, Default)]
pub(super) enum NumbersSaveStep {
    /// No save is under way.
    #[default]
    Idle,
    /// The boundary is set. The save waits until all messages below it are synced.
    Syncing(Seq),
    /// The table is being encoded.
    Encoding(Seq, TableEncoder),
    /// The keeper writes the save.
    Writing,
}
