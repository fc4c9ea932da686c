//! [`Meter`]: how many messages of a topic are duplicates, and how long a window would find them.
//!
//! The meter looks at a sample of the bodies, chosen by a hash of the body. So it sees all copies of a body or none, and
//! the share of duplicates in the sample is that of the topic. It changes nothing about the messages.
//!
//! ```text
//!   body ──hash──► in the sample? ──no──► done
//!                       │ yes
//!                       ▼
//!   table: hash -> when it came last ──there──► a duplicate: counted by the time and the messages since then
//!                       └─────────── not there ──► added, in place of the oldest of its row
//! ```

use crate::dedup::quick_hash::QuickHash;
use std::time::Duration;

/// Entries of a row, which are two cache lines. A hash belongs into one row.
const ROW: usize = 4;
/// Rows of the table.
const ROWS: usize = 1 << 14;
/// Entries of the table.
const ENTRIES: usize = ROW * ROWS;
/// The most bytes that a meter takes, 1.5 MiB.
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

/// The share of the bodies that a meter looks at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleRate(f64);

impl SampleRate {
    /// One body in a hundred.
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

/// A body that the meter has seen.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The hash of the body. 0: there is none.
    hash: u64,
    /// When the last copy came, in milliseconds of the process.
    at_ms: u64,
    /// The number of the last copy among the messages of the topic.
    number: u64,
}

/// Counts the duplicates in a sample of a topic's messages.
#[derive(Debug)]
pub(crate) struct Meter {
    hash: QuickHash,
    rate: SampleRate,
    /// A body is in the sample if its hash is not above.
    limit: u64,
    /// Empty until the first message of the sample.
    entries: Vec<Entry>,
    /// Messages of the topic since the start.
    messages: u64,
    sampled: u64,
    duplicates: u64,
    /// Duplicates that the windows in time find, and that those in messages find.
    within_time: [u64; TIMES.len()],
    within_count: [u64; COUNTS.len()],
    /// The least age at which an entry had to leave. Duplicates that are further apart are not all seen.
    evicted_ms: u64,
}

/// The result of a meter. The numbers are those since the start of the process.
#[derive(Clone, Debug, PartialEq)]
pub struct MeterReport {
    /// The share of the bodies that the meter looks at.
    pub rate: f64,
    /// Messages in the sample.
    pub sampled: u64,
    /// Messages in the sample with a body that the meter has seen before.
    pub duplicates: u64,
    /// For each window in time: its name, and the messages in the sample that the window finds.
    pub within_time: [(&'static str, u64); TIMES.len()],
    /// For each window in messages: its length, and the messages in the sample that the window finds.
    pub within_count: [(u64, u64); COUNTS.len()],
    /// The time back to which the table reaches, in milliseconds. `None`: no entry had to leave yet.
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
    /// Makes a meter. Producers do not know `secret`, so they cannot choose bodies that are in the sample.
    pub(crate) fn new(rate: SampleRate, secret: u64) -> Meter {
        Meter {
            hash: QuickHash::new(secret),
            rate,
            limit: (rate.0 * u64::MAX as f64) as u64,
            entries: Vec::new(),
            messages: 0,
            sampled: 0,
            duplicates: 0,
            within_time: [0; TIMES.len()],
            within_count: [0; COUNTS.len()],
            evicted_ms: u64::MAX,
        }
    }

    /// Takes the body of a message that comes at `mono`.
    #[inline]
    pub(crate) fn see(&mut self, mono: Duration, body: &[u8]) {
        self.messages += 1;
        let hash = self.hash.hash(body);
        if hash <= self.limit {
            self.see_sampled(mono.as_millis() as u64, hash | 1);
        }
    }

    #[cold]
    fn see_sampled(&mut self, at_ms: u64, hash: u64) {
        if self.entries.is_empty() {
            // Without the table, the meter counts nothing.
            if self.entries.try_reserve_exact(ENTRIES).is_err() {
                return;
            }
            self.entries.resize(ENTRIES, Entry::default());
        }
        self.sampled += 1;
        // The upper bits are alike in the whole sample.
        let row = (hash >> 1) as usize % ROWS * ROW;
        let row = &mut self.entries[row..row + ROW];
        let seen = Entry {
            hash,
            at_ms,
            number: self.messages,
        };
        if let Some(found) = row.iter_mut().find(|entry| entry.hash == hash) {
            let last = std::mem::replace(found, seen);
            self.count(at_ms - last.at_ms.min(at_ms), seen.number - last.number);
            return;
        }
        let age = |entry: &Entry| (entry.hash != 0, entry.number);
        let oldest = row.iter_mut().min_by_key(|entry| age(entry));
        let Some(oldest) = oldest else {
            return;
        };
        if oldest.hash != 0 {
            self.evicted_ms = self.evicted_ms.min(at_ms - oldest.at_ms.min(at_ms));
        }
        *oldest = seen;
    }

    /// Counts a duplicate that comes so many milliseconds and messages after the last copy.
    fn count(&mut self, ms: u64, messages: u64) {
        self.duplicates += 1;
        for (within, (time, _)) in self.within_time.iter_mut().zip(TIMES) {
            *within += u64::from(u128::from(ms) <= time.as_millis());
        }
        for (within, count) in self.within_count.iter_mut().zip(COUNTS) {
            *within += u64::from(messages <= count);
        }
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
            rate: self.rate.0,
            sampled: self.sampled,
            duplicates: self.duplicates,
            within_time,
            within_count,
            reach_ms: (self.evicted_ms != u64::MAX).then_some(self.evicted_ms),
        }
    }
}

#[cfg(test)]
mod tests;
