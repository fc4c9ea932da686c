//! [`Meter`]: how many messages of a topic are duplicates, and how many of them a window would find.
//!
//! The meter looks at a sample of the keys, chosen by a hash of the key. So it sees all copies of a message or none.
//! The share of duplicates in the sample is an estimate of the topic's share. The estimate is good if no key makes up
//! a large part of the topic. The meter changes no message.
//!
//! ```text
//!   key ───hash──► in the sample? ──no──► done
//!                       │ yes
//!                       ▼
//!   table: hash -> the copies that rules would have stored ──there──► a duplicate: in the window of which rules?
//!                       └─────────── not there ──► added, in place of the oldest of its row
//! ```
//!
//! A rule drops a copy if the last copy that it has *stored* is in its window: a copy that it drops renews nothing.
//! Rules with different windows store different copies. So the meter remembers one copy for each window.

use crate::content::fingerprint::KeyHasher;
use crate::content::key::ContentKey;
use crate::content::quick_hash::QuickHash;
use std::time::Duration;

/// Entries of a row, in which a search looks at each. A hash belongs into one row.
const ROW: usize = 4;
/// Rows of the table.
const ROWS: usize = 1 << 14;
/// Entries of the table.
const ENTRIES: usize = ROW * ROWS;
/// The bytes that a meter takes with its first message, 3.5 MiB.
pub(crate) const BYTES_MAX: u64 = (ENTRIES * size_of::<Entry>()) as u64;

/// The windows in time.
pub(crate) const TIMES: [(Duration, &str); 5] = [
    (Duration::from_secs(1), "1s"),
    (Duration::from_secs(10), "10s"),
    (Duration::from_secs(60), "1m"),
    (Duration::from_secs(600), "10m"),
    (Duration::from_secs(3600), "1h"),
];

/// The windows in messages.
pub(crate) const COUNTS: [u64; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// The share of the keys that a meter looks at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleRate(f64);

impl SampleRate {
    /// One key in a hundred.
    pub const DEFAULT: SampleRate = SampleRate(0.01);

    /// A rate above 0 and up to 1. `None`: the number is outside.
    #[must_use]
    pub fn new(rate: f64) -> Option<SampleRate> {
        (rate > 0.0 && rate <= 1.0).then_some(SampleRate(rate))
    }

    /// The rate as a number.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }
}

/// The rule of a meter.
#[derive(Clone, Debug, PartialEq)]
pub struct MeterRule {
    /// The part of a message by which two messages are equal.
    pub key: ContentKey,
    /// The share of the keys that the meter looks at.
    pub rate: SampleRate,
}

/// A sample by whole bodies, at the default rate.
impl Default for MeterRule {
    fn default() -> MeterRule {
        MeterRule {
            key: ContentKey::Body,
            rate: SampleRate::DEFAULT,
        }
    }
}

/// The arrival of a message: its time, and the number of the message among those of the topic that have a key.
#[derive(Clone, Copy, Debug, Default)]
struct Arrival {
    /// The lower bits of the milliseconds since the process started. They repeat after 49 days.
    ms: u32,
    /// The lower bits of the number.
    number: u32,
}

/// A key that the meter has seen.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The hash of the key. 0: there is none.
    hash: u64,
    last: Arrival,
    /// For each window, the copy that a rule with this window has stored last.
    stored_ms: [u32; TIMES.len()],
    stored_number: [u32; COUNTS.len()],
}

impl Entry {
    fn new(hash: u64, at: Arrival) -> Entry {
        Entry {
            hash,
            last: at,
            stored_ms: [at.ms; TIMES.len()],
            stored_number: [at.number; COUNTS.len()],
        }
    }
}

/// Counts the duplicates in a sample of a topic's messages.
#[derive(Debug)]
pub(crate) struct Meter {
    /// For whole bodies.
    hash: QuickHash,
    /// For values in bodies.
    hasher: KeyHasher,
    rule: MeterRule,
    /// A key is in the sample if its hash is at most this.
    limit: u64,
    /// Empty until the first message of the sample.
    entries: Vec<Entry>,
    /// Messages of the topic since the start that have a key.
    keyed: u64,
    /// Messages of the topic since the start that have no key.
    unkeyed: u64,
    /// Messages in the sample, with those that have no key.
    sampled: u64,
    /// Messages in the sample that have no key.
    keyless: u64,
    duplicates: u64,
    /// Duplicates that rules with the windows in time would drop, and those with the windows in messages.
    within_time: [u64; TIMES.len()],
    within_count: [u64; COUNTS.len()],
    /// The least age at which an entry left a full row. Copies that are further apart may be counted as fresh.
    evicted_ms: Option<u32>,
}

/// The result of a meter. The numbers are those since the start of the process.
#[derive(Clone, Debug, PartialEq)]
pub struct MeterReport {
    /// The key that the meter compares, and the share of the keys in its sample.
    pub rule: MeterRule,
    /// Messages in the sample.
    pub sampled: u64,
    /// Messages in the sample that have no key. A rule stores each of them.
    pub keyless: u64,
    /// Messages in the sample with a key that the meter has seen before.
    pub duplicates: u64,
    /// For each window in time: its name, and the messages in the sample that a rule with this window would drop.
    pub within_time: [(&'static str, u64); TIMES.len()],
    /// For each window in messages: its length, and the messages in the sample that a rule with this window would drop.
    pub within_count: [(u64, u64); COUNTS.len()],
    /// The time back to which the table reaches, in milliseconds. `None`: no entry has left a full row yet.
    pub reach_ms: Option<u64>,
}

impl MeterReport {
    /// Returns `count` in percent of the messages in the sample. 0 if there are none.
    #[must_use]
    pub fn percent(&self, count: u64) -> f64 {
        match self.sampled {
            0 => 0.0,
            sampled => count as f64 * 100.0 / sampled as f64,
        }
    }
}

impl Meter {
    /// Makes a meter. Producers do not know `secret`, so they cannot choose keys that are in the sample.
    pub(crate) fn new(rule: &MeterRule, secret: u64) -> Meter {
        Meter {
            hash: QuickHash::new(secret),
            hasher: KeyHasher::seeded(secret),
            rule: rule.clone(),
            limit: (rule.rate.0 * u64::MAX as f64) as u64,
            entries: Vec::new(),
            keyed: 0,
            unkeyed: 0,
            sampled: 0,
            keyless: 0,
            duplicates: 0,
            within_time: [0; TIMES.len()],
            within_count: [0; COUNTS.len()],
            evicted_ms: None,
        }
    }

    /// Takes the body of a message that comes at `mono`.
    #[inline]
    pub(crate) fn see(&mut self, mono: Duration, body: &[u8]) {
        let hash = match &self.rule.key {
            ContentKey::Body => self.hash.hash(body),
            key => match key.fingerprint(&self.hasher, body) {
                Some(fingerprint) => fingerprint.upper_word(),
                None => return self.see_keyless(),
            },
        };
        self.keyed += 1;
        if hash <= self.limit {
            self.see_sampled(mono.as_millis() as u32, hash | 1);
        }
    }

    /// Takes a message without a key. It is no duplicate of another one, so the sample takes each by itself.
    #[cold]
    fn see_keyless(&mut self) {
        self.unkeyed += 1;
        let hash = self.hash.hash(&self.unkeyed.to_le_bytes());
        if hash <= self.limit && self.has_table() {
            self.sampled += 1;
            self.keyless += 1;
        }
    }

    /// Makes the table if there is none. Returns false if the system refuses the memory. Then the meter counts nothing.
    fn has_table(&mut self) -> bool {
        if self.entries.is_empty() {
            if self.entries.try_reserve_exact(ENTRIES).is_err() {
                return false;
            }
            self.entries.resize(ENTRIES, Entry::default());
        }
        true
    }

    #[cold]
    fn see_sampled(&mut self, ms: u32, hash: u64) {
        if !self.has_table() {
            return;
        }
        self.sampled += 1;
        // The upper bits are alike in the whole sample.
        let row = (hash >> 1) as usize % ROWS * ROW;
        let row = &mut self.entries[row..row + ROW];
        let number = self.keyed as u32;
        let at = Arrival { ms, number };
        if let Some(found) = row.iter_mut().find(|entry| entry.hash == hash) {
            found.last = at;
            self.duplicates += 1;
            let times = found.stored_ms.iter_mut().zip(TIMES);
            for (within, (stored, (time, _))) in self.within_time.iter_mut().zip(times) {
                match u128::from(ms.wrapping_sub(*stored)) <= time.as_millis() {
                    true => *within += 1,
                    false => *stored = ms,
                }
            }
            let counts = found.stored_number.iter_mut().zip(COUNTS);
            for (within, (stored, count)) in self.within_count.iter_mut().zip(counts) {
                // A rule counts the keys that it stores.
                let since = u128::from(number.wrapping_sub(*stored));
                let sampled = self.sampled - self.keyless;
                let since = since * u128::from(sampled - *within) / u128::from(sampled);
                match since <= u128::from(count) {
                    true => *within += 1,
                    false => *stored = number,
                }
            }
            return;
        }
        let age = |entry: &Entry| match entry.hash {
            0 => u32::MAX,
            _ => number.wrapping_sub(entry.last.number),
        };
        let oldest = row.iter_mut().max_by_key(|entry| age(entry));
        let Some(oldest) = oldest else {
            return;
        };
        if oldest.hash != 0 {
            let age_ms = ms.wrapping_sub(oldest.last.ms);
            self.evicted_ms = Some(self.evicted_ms.map_or(age_ms, |least| least.min(age_ms)));
        }
        *oldest = Entry::new(hash, at);
    }

    /// Reports the duplicates so far.
    pub(crate) fn report(&self) -> MeterReport {
        let mut within_time = TIMES.map(|(_, name)| (name, 0));
        for (window, count) in within_time.iter_mut().zip(self.within_time) {
            window.1 = count;
        }
        let mut within_count = COUNTS.map(|window| (window, 0));
        for (window, count) in within_count.iter_mut().zip(self.within_count) {
            window.1 = count;
        }
        MeterReport {
            rule: self.rule.clone(),
            sampled: self.sampled,
            keyless: self.keyless,
            duplicates: self.duplicates,
            within_time,
            within_count,
            reach_ms: self.evicted_ms.map(u64::from),
        }
    }
}

#[cfg(test)]
mod tests;
