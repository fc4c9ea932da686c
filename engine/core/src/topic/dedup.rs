//! [`Dedup`]: how a topic recognises the messages that it has stored before.

use crate::dedup_rules::{DedupKey, DedupRule};
use crate::producers::Producers;

/// How a topic recognises the messages that it has stored before, and how often it did.
#[derive(Debug)]
pub(super) struct Dedup {
    pub(super) producers: Producers,
    pub(super) counters: DedupCounters,
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
        let DedupKey::Producer = rule.key;
        Dedup {
            producers: Producers::new(rule.window, rule.memory_bytes, seed),
            counters: DedupCounters::default(),
        }
    }
}
