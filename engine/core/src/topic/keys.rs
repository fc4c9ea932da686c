//! [`Keys`]: the keys of the messages that a topic has stored not long ago.

use super::saving::{Saving, Step};
use crate::dedup::content_rule::ContentRule;
use crate::dedup::fingerprint::KeyHasher;
use crate::dedup::generations::Generations;
use crate::dedup::key::ContentKey;
use crate::stats::KeyStats;
use diskq_log::planted::{Bug, is_planted};
use diskq_log::{Log, Run};
use wire::frame::{DATA_AT, Message};
use wire::id::Seq;

/// The keys of the messages that a topic has stored not long ago.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) key: ContentKey,
    pub(super) generations: Generations,
    pub(super) saving: Saving,
    pub(super) counters: KeyCounters,
    /// For each message of the publish that is under way: true if it is to be stored. Kept for its memory.
    pub(super) fates: Vec<bool>,
}

/// Counters since the process started.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyCounters {
    /// Messages that were answered with OK and not stored.
    duplicates: u64,
    /// The duplicates among them whose first copy was not compared, so that the fingerprint decided.
    unverified: u64,
    /// Messages without the key. They were stored.
    keyless: u64,
    /// Messages that were stored, and whose keys are not remembered: their batch has filled all generations, or the system
    /// has refused the memory.
    unremembered: u64,
}

impl KeyCounters {
    pub(super) fn add(&mut self, more: &KeyCounters) {
        self.duplicates += more.duplicates;
        self.unverified += more.unverified;
        self.keyless += more.keyless;
        self.unremembered += more.unremembered;
    }
}

impl Keys {
    /// `seed` is a random number of this process and topic.
    pub(super) fn new(rule: &ContentRule, now_ms: u64, seed: u64) -> Keys {
        let hasher = KeyHasher::seeded(seed);
        Keys {
            key: rule.key().clone(),
            generations: Generations::new(rule.plan(), hasher, now_ms),
            saving: Saving::default(),
            counters: KeyCounters::default(),
            fates: Vec::new(),
        }
    }

    /// Decides about one message, and inserts its key if the message is fresh. Returns whether the message is to be stored.
    #[inline]
    pub(super) fn judge(
        &mut self,
        log: &Log,
        counters: &mut KeyCounters,
        at: &Judged,
        body: &[u8],
    ) -> bool {
        let Some(fingerprint) = self.key.fingerprint(&self.generations.hasher, body) else {
            counters.keyless += 1;
            return true;
        };
        let first = self.generations.find(fingerprint);
        let is_older = |first: &Seq| *first < log.next_seq();
        let first = first.filter(|first| is_older(first) || !is_planted(Bug::BatchCopiesNotSeen));
        let Some(first) = first else {
            let is_remembered = self.generations.insert(at.now_ms, fingerprint, at.seq);
            counters.unremembered += u64::from(!is_remembered);
            return true;
        };
        match self.is_copy(log, first, body) {
            // Another key has the same fingerprint.
            Some(false) => {
                counters.unremembered += 1;
                return true;
            }
            Some(true) => {}
            None => counters.unverified += 1,
        }
        counters.duplicates += 1;
        false
    }

    /// Returns whether the topic remembers the key of a message.
    pub(super) fn knows(&self, body: &[u8]) -> bool {
        let fingerprint = self.key.fingerprint(&self.generations.hasher, body);
        fingerprint.is_some_and(|it| self.generations.find(it).is_some())
    }

    /// Takes the keys apart at the deletion of their topic. Returns the tables that are to be freed.
    pub(super) fn into_tables(self) -> Vec<Vec<u128>> {
        // The draft shares generations, so it goes first.
        let copy = match self.saving.step {
            Step::Draft(draft) => draft.into_table(),
            Step::Idle | Step::Writing => None,
        };
        let tables = self.generations.into_tables();
        tables.into_iter().chain(copy).collect()
    }

    /// Compares a body with that of a stored message. `None`: the message is not in memory, or its value lies far back.
    fn is_copy(&self, log: &Log, first: Seq, body: &[u8]) -> Option<bool> {
        let (start, end) = log.frame_bounds(first)?;
        let run = Run {
            first,
            count: 1,
            start,
            end,
        };
        let stored = Message::parse(log.bytes(&run).get(DATA_AT..)?)?;
        self.key.is_same(stored.body, body)
    }

    pub(super) fn stats(&self, now_ms: u64) -> KeyStats {
        let generations = &self.generations;
        KeyStats {
            duplicate_count: self.counters.duplicates,
            unverified_count: self.counters.unverified,
            keyless_count: self.counters.keyless,
            unremembered_count: self.counters.unremembered,
            key_count: generations.count(),
            key_count_max: generations.keys_max(),
            memory_bytes: generations.bytes(),
            memory_bytes_max: generations.memory_max(),
            memory_refused_count: generations.refused(),
            reach_ms: generations.reach_ms(now_ms),
        }
    }
}

/// The place of a message that is being judged.
pub(super) struct Judged {
    pub(super) now_ms: u64,
    /// The seq that the message will have if it is stored.
    pub(super) seq: Seq,
}
