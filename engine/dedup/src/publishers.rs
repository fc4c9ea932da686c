//! [`Publishers`]: the publishers of a topic, and the numbers of their stored messages.
//!
//! The table has a fixed number of places. Each place has the [`Numbers`] of one publisher and their bits. A new
//! publisher gets a free place, or the place of the publisher that was idle the longest. That publisher is forgotten:
//! its next message is accepted like that of a new publisher.
//!
//! ```text
//!   id ──hash──► index ──► place ──► numbers and bits
//!                           │
//!            newest <──► ... <──► oldest      the order of the last use
//! ```
//!
//! The table is saved while messages go on to be stored ([`Publishers::save`]), a slice per turn. What is saved must be
//! the table of one moment, the *boundary*: each place keeps the numbers that it had at the boundary, from the first
//! change after the boundary on.
//!
//! The bytes of a saved table:
//!
//! ```text
//!   at  size                                        little endian
//!    0   1   1: publishers
//!    1   4   window: the number of bits of each publisher
//!    5       for each publisher
//!         8   id
//!         8   use: publishers that were used later have higher numbers
//!         8   end
//!         8   first
//!         window / 8   the bits
//! ```

mod index;
mod numbers;

use diskq_log::plant;
use index::Index;
pub(crate) use numbers::Known;
use numbers::Numbers;
use std::time::Duration;
use wire::origin::{NUMBER_MAX, Origin};

/// No place.
const NONE: u32 = u32::MAX;

/// Bytes of a place beside its bits: the [`PublisherEntry`], and its slots of the index, of which up to four belong to
/// a place.
const ENTRY_BYTES: u64 = 64 + 4 * 8;
const _: () = assert!(size_of::<PublisherEntry>() == 64);

/// The first byte of a saved table of publishers.
const TAG: u8 = 1;
const HEAD_BYTES: usize = 5;
/// Bytes that the saves of a topic write per second, at most, on average: 4 MiB. Syncs of the shard's topics wait for a
/// save of a large table.
const BYTES_PER_SECOND: u64 = 4 << 20;
/// Words of bits that count as one more entry of a turn's work. Copying them takes some 50 ns.
const WORDS_PER_ENTRY: usize = 64;
/// The bytes of a publisher before its bits.
const PUBLISHER_BYTES: usize = 4 * 8;

/// Words of the bits of a publisher.
fn words(window: u32) -> usize {
    (window / 64).max(1) as usize
}

/// The number of publishers for which a table of about `memory_bytes` bytes has places. `window` is the number of bits of
/// each publisher, a multiple of 64.
pub(crate) fn places_max(window: u32, memory_bytes: u64) -> usize {
    let place_bytes = ENTRY_BYTES + words(window) as u64 * 8 * 2;
    (memory_bytes / place_bytes).clamp(1, u64::from(NONE)) as usize
}

/// One publisher.
#[derive(Clone, Copy, Debug)]
struct PublisherEntry {
    publisher: u64,
    numbers: Numbers,
    /// The numbers at the boundary, if `boundary` is the number of the last boundary. Otherwise nothing has changed since
    /// then.
    numbers_at_boundary: Numbers,
    boundary: u64,
    /// The time of the last use, in uses of the table.
    used: u64,
    /// The publisher that was used next after this one. [`NONE`]: this one is the newest.
    newer: u32,
    /// The publisher that was used last before this one. [`NONE`]: this one is the oldest.
    older: u32,
}

/// The publishers of a topic.
///
/// Invariants: the index has each place once, under its publisher's id; the list of uses has each place once.
#[derive(Debug)]
pub(crate) struct Publishers {
    /// The number of places that there may be.
    places_max: usize,
    /// The words of bits that each place has twice: now, and at the boundary.
    words: usize,
    entries: Vec<PublisherEntry>,
    bits: Vec<u64>,
    index: Index,
    newest: u32,
    oldest: u32,
    /// The number of the last boundary.
    boundary: u64,
    uses: u64,
    /// Publishers that were forgotten because the table was full, since the process started.
    pub(crate) evicted_count: u64,
}

impl Publishers {
    /// An empty table that takes at most about `memory_bytes` bytes. `window` is the number of bits of each publisher,
    /// a multiple of 64. `process_seed` is a random number, so that nobody can choose ids that share a place in the
    /// index.
    pub(crate) fn new(window: u32, memory_bytes: u64, process_seed: u64) -> Publishers {
        Publishers {
            places_max: places_max(window, memory_bytes),
            words: words(window),
            entries: Vec::new(),
            bits: Vec::new(),
            index: Index::new(process_seed),
            newest: NONE,
            oldest: NONE,
            boundary: 0,
            uses: 0,
            evicted_count: 0,
        }
    }

    /// The number of publishers that are remembered.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    /// The most publishers that are remembered.
    pub(crate) fn count_max(&self) -> usize {
        self.places_max
    }

    /// Returns what is known of the publisher's numbers. `None`: the publisher is not known, or has been forgotten.
    #[inline]
    pub(crate) fn find(&self, publisher: u64) -> Option<Found<'_>> {
        let place = match self.entries.get(self.newest as usize) {
            Some(newest) if newest.publisher == publisher => self.newest,
            _ => {
                let is_it = |place: u32| self.entries[place as usize].publisher == publisher;
                self.index.find(publisher, is_it)?
            }
        } as usize;
        Some(Found {
            numbers: &self.entries[place].numbers,
            bits: &self.bits[place * self.words * 2..][..self.words],
        })
    }

    /// Remembers that the message was stored.
    #[inline]
    pub(crate) fn insert(&mut self, origin: Origin) {
        let is_newest = self
            .entries
            .get(self.newest as usize)
            .is_some_and(|newest| newest.publisher == origin.publisher);
        if !is_newest {
            self.make_newest(origin.publisher);
        }
        let place = self.newest as usize;
        let bits = &mut self.bits[place * self.words * 2..][..self.words * 2];
        let (bits, bits_at_boundary) = bits.split_at_mut(self.words);
        let place = &mut self.entries[place];
        if place.boundary != self.boundary {
            place.boundary = self.boundary;
            place.numbers_at_boundary = place.numbers;
            bits_at_boundary.copy_from_slice(bits);
        }
        place.numbers.insert(bits, origin.number);
    }

    /// Makes this moment the boundary: a save that begins now saves the table as it is now.
    pub(crate) fn set_boundary(&mut self) {
        self.boundary += 1;
    }

    /// Makes a publisher the newest one. Gives the publisher a place if it has none.
    fn make_newest(&mut self, publisher: u64) {
        let is_it = |place: u32| self.entries[place as usize].publisher == publisher;
        let place = match self.index.find(publisher, is_it) {
            Some(place) => {
                self.unlink(place);
                place
            }
            None => self.new_place(publisher),
        };
        let place_before = std::mem::replace(&mut self.newest, place);
        self.uses += 1;
        self.entries[place as usize].used = self.uses;
        self.entries[place as usize].older = place_before;
        self.entries[place as usize].newer = NONE;
        match self.entries.get_mut(place_before as usize) {
            Some(before) => before.newer = place,
            None => self.oldest = place,
        }
    }

    /// Returns a place for a new publisher, which is in the index and not in the list of uses.
    fn new_place(&mut self, publisher: u64) -> u32 {
        let new = PublisherEntry {
            publisher,
            numbers: Numbers::default(),
            // The publisher was not there at the boundary.
            numbers_at_boundary: Numbers::default(),
            boundary: self.boundary,
            used: 0,
            newer: NONE,
            older: NONE,
        };
        if self.entries.is_empty() {
            self.reserve();
        }
        let place = if self.entries.len() < self.places_max {
            self.entries.push(new);
            self.bits.resize(self.entries.len() * self.words * 2, 0);
            self.entries.len() as u32 - 1
        } else {
            let place = self.oldest;
            self.unlink(place);
            let forgotten = std::mem::replace(&mut self.entries[place as usize], new);
            self.index.remove(forgotten.publisher, place);
            // The bits at the boundary are not read: the publisher had no numbers at the boundary.
            self.bits[place as usize * self.words * 2..][..self.words].fill(0);
            self.evicted_count += 1;
            place
        };
        self.index.insert(publisher, place);
        place
    }

    /// Reserves the memory of the whole table. The table never moves: the kernel gives memory for the part that is used. If
    /// the system does not give so much, the table has fewer places.
    fn reserve(&mut self) {
        while self.try_reserve().is_none() && self.places_max > 1 {
            (self.entries, self.bits) = Default::default();
            self.places_max /= 2;
        }
    }

    fn try_reserve(&mut self) -> Option<()> {
        self.entries.try_reserve_exact(self.places_max).ok()?;
        let words = self.places_max.saturating_mul(self.words * 2);
        self.bits.try_reserve_exact(words).ok()?;
        self.index.try_reserve(self.places_max)
    }

    /// Takes a place out of the list of uses.
    fn unlink(&mut self, place: u32) {
        let PublisherEntry { newer, older, .. } = self.entries[place as usize];
        match self.entries.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
    }

    // --- the save

    /// Returns the time that a save should take, on average, so that its bytes do not hold up other writes.
    pub(crate) fn save_time(&self) -> Duration {
        let place_bytes = PUBLISHER_BYTES + self.words * 8;
        let bytes = (self.entries.len() * place_bytes) as u64;
        Duration::from_millis(bytes * 1000 / BYTES_PER_SECOND)
    }

    /// Begins to save the table as it was at the last boundary. No new boundary may be set until the save is done. `None`:
    /// the system refuses the memory for the save.
    pub(crate) fn save(&self) -> Option<TableEncoder> {
        let place_bytes = PUBLISHER_BYTES + self.words * 8;
        let bytes = self.entries.len().saturating_mul(place_bytes);
        let mut body = Vec::new();
        body.try_reserve_exact(bytes.saturating_add(HEAD_BYTES))
            .ok()?;
        body.push(TAG);
        body.extend_from_slice(&(self.words as u32 * 64).to_le_bytes());
        Some(TableEncoder { next: 0, body })
    }

    /// Continues a save, by about `entries` entries of a turn's work. Returns how many it took.
    pub(crate) fn continue_save(&self, encoder: &mut TableEncoder, entries: usize) -> usize {
        let mut spent = 0;
        while spent < entries
            && let Some(place) = self.entries.get(encoder.next)
        {
            spent += 1 + self.words / WORDS_PER_ENTRY;
            let bits = &self.bits[encoder.next * self.words * 2..][..self.words * 2];
            let (bits, bits_at_boundary) = bits.split_at(self.words);
            encoder.next += 1;
            let has_changed = place.boundary == self.boundary;
            plant!(NumbersSavedTooEarly, let has_changed = false);
            let (numbers, bits) = if has_changed {
                (&place.numbers_at_boundary, bits_at_boundary)
            } else {
                (&place.numbers, bits)
            };
            if numbers.end > 0 {
                for field in [place.publisher, place.used, numbers.end, numbers.first] {
                    encoder.body.extend_from_slice(&field.to_le_bytes());
                }
                for word in bits {
                    encoder.body.extend_from_slice(&word.to_le_bytes());
                }
            }
        }
        spent
    }

    /// Returns whether a save has the whole table.
    pub(crate) fn is_saved(&self, encoder: &TableEncoder) -> bool {
        encoder.next == self.entries.len()
    }

    /// Takes the publishers of a saved table over into this one, which is empty. The windows may differ. If the saved
    /// table has more publishers than there are places, those that were used last stay.
    ///
    /// Returns false, and takes nothing over, if the bytes are none of a table of publishers.
    pub(crate) fn load(&mut self, body: &[u8]) -> bool {
        let Some(mut saved) = decode(body) else {
            return false;
        };
        saved.sort_unstable_by_key(|saved| saved.used);
        for saved in saved {
            // Makes the publisher the newest one, whatever its numbers are.
            self.insert(Origin {
                publisher: saved.publisher,
                number: 0,
            });
            let place = self.newest as usize;
            let bits = &mut self.bits[place * self.words * 2..][..self.words];
            bits.fill(0);
            self.entries[place].numbers = saved.numbers.with_window(&saved.words, bits);
        }
        self.evicted_count = 0;
        true
    }

    /// Asserts the invariants written on the type.
    pub(crate) fn check(&self) {
        let (mut place, mut count, mut newer) = (self.newest, 0, NONE);
        while let Some(it) = self.entries.get(place as usize) {
            assert_eq!(it.newer, newer, "the list of uses");
            let is_it = |found: u32| self.entries[found as usize].publisher == it.publisher;
            assert_eq!(self.index.find(it.publisher, is_it), Some(place));
            (newer, place, count) = (place, it.older, count + 1);
        }
        assert_eq!((newer, count), (self.oldest, self.entries.len()));
        assert!(self.entries.len() <= self.places_max);
        assert_eq!(self.index.count(), self.entries.len());
    }
}

/// The encoding of a table that is being saved, a slice per turn.
#[derive(Debug)]
pub(crate) struct TableEncoder {
    /// The place that is encoded next.
    next: usize,
    pub(crate) body: Vec<u8>,
}

/// A publisher that is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'a> {
    numbers: &'a Numbers,
    bits: &'a [u64],
}

impl Found<'_> {
    /// Returns what is known of a number.
    #[inline]
    pub(crate) fn knows(&self, number: u64) -> Known {
        self.numbers.find(self.bits, number)
    }
}

/// A publisher of a saved table.
struct SavedPublisher {
    publisher: u64,
    used: u64,
    numbers: Numbers,
    words: Vec<u64>,
}

/// Returns the publishers of a saved table. `None`: no program of ours can have written these bytes.
fn decode(body: &[u8]) -> Option<Vec<SavedPublisher>> {
    let (head, rest) = body.split_first_chunk::<HEAD_BYTES>()?;
    let [TAG, window @ ..] = *head else {
        return None;
    };
    let window = u32::from_le_bytes(window);
    if window == 0 || !window.is_multiple_of(64) {
        return None;
    }
    let entries = rest.chunks_exact(PUBLISHER_BYTES + window as usize / 8);
    if !entries.remainder().is_empty() {
        return None;
    }
    let mut all = Vec::new();
    for entry in entries {
        let (fields, _) = entry.as_chunks::<8>();
        let mut fields = fields.iter().copied().map(u64::from_le_bytes);
        let saved = SavedPublisher {
            publisher: fields.next()?,
            used: fields.next()?,
            numbers: Numbers {
                end: fields.next()?,
                first: fields.next()?,
            },
            words: fields.collect(),
        };
        let Numbers { end, first } = saved.numbers;
        let is_possible = saved.publisher != 0
            && (1..=NUMBER_MAX + 1).contains(&end)
            && first <= end.saturating_sub(u64::from(window));
        if !is_possible {
            return None;
        }
        all.push(saved);
    }
    Some(all)
}

#[cfg(test)]
mod tests;
