//! [`Keys`]: decides by the content of a message whether the topic stores the message.

use super::keys_save::{KeysSave, KeysSaveStep};
use crate::content::content_rule::ContentRule;
use crate::content::fingerprint::KeyHasher;
use crate::content::generations::Generations;
use crate::content::key::ContentKey;
use crate::stats::KeyStats;
use diskq_log::plant;
use diskq_log::{Log, Run};
use wire::frame::{DATA_AT, Message};
use wire::id::Seq;

/// The keys of the messages that a topic has stored not long ago.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) key: ContentKey,
    pub(super) generations: Generations,
    pub(super) save: KeysSave,
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
    /// Messages that were stored, and whose keys are not remembered: their batch has filled all generations, the system
    /// has refused the memory, or another key with the same fingerprint is remembered.
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
    /// Makes the keys of a topic, none yet. `seed` is a random number of this process and topic.
    pub(super) fn new(rule: &ContentRule, now_ms: u64, seed: u64) -> Keys {
        let hasher = KeyHasher::seeded(seed);
        Keys {
            key: rule.key().clone(),
            generations: Generations::new(rule.plan(), hasher, now_ms),
            save: KeysSave::default(),
            counters: KeyCounters::default(),
            fates: Vec::new(),
        }
    }

    /// Decides about one message, and inserts its key if the message is fresh. Returns whether the message is to be
    /// stored. `of_batch` returns the body of a message of the same publish, which is not in the log yet.
    #[inline]
    pub(super) fn judge<'b>(
        &mut self,
        log: &Log,
        counters: &mut KeyCounters,
        next: &NextMessage,
        body: &[u8],
        of_batch: impl FnOnce(Seq) -> Option<&'b [u8]>,
    ) -> bool {
        let Some(fingerprint) = self.key.fingerprint(&self.generations.hasher, body) else {
            counters.keyless += 1;
            return true;
        };
        let first = self.generations.find(fingerprint);
        plant!(BatchCopiesNotSeen, let first = first.filter(|first| *first < log.next_seq()));
        let Some(first) = first else {
            let is_remembered = self.generations.insert(next.now_ms, fingerprint, next.seq);
            counters.unremembered += u64::from(!is_remembered);
            return true;
        };
        let stored = stored_body(log, first).or_else(|| of_batch(first));
        match stored.and_then(|stored| self.key.is_same(stored, body)) {
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
        // The snapshot shares generations, so it goes first.
        let copy = match self.save.step {
            KeysSaveStep::Snapshot(snapshot) => snapshot.into_table(),
            KeysSaveStep::Idle | KeysSaveStep::Writing => None,
        };
        let tables = self.generations.into_tables();
        tables.into_iter().chain(copy).collect()
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

/// Returns the body of a stored message. `None`: the message is not in memory.
fn stored_body(log: &Log, first: Seq) -> Option<&[u8]> {
    let (start, end) = log.frame_bounds(first)?;
    let run = Run {
        first,
        count: 1,
        start,
        end,
    };
    let stored = Message::parse(log.bytes(&run).get(DATA_AT..)?)?;
    Some(stored.body)
}

/// The time and the seq of the message that is being judged.
pub(super) struct NextMessage {
    pub(super) now_ms: u64,
    /// The seq that the message will have if it is stored.
    pub(super) seq: Seq,
}
