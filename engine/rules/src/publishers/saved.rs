//! The bytes of a table of publishers, as a topic saves it.
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

use super::Publishers;
use super::numbers::{Numbers, dirty_words, find_dirty};
use super::table_encoder::TableEncoder;
use crate::work::Work;
use diskq_log::plant;
use std::time::Duration;
use wire::origin::{NUMBER_MAX, Origin};

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

impl Publishers {
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

    /// Continues a save. Returns true if the save is done.
    pub(crate) fn continue_save(&self, encoder: &mut TableEncoder, work: &mut Work) -> bool {
        while let Some(place) = self.entries.get(encoder.next) {
            if !work.is_left() {
                return false;
            }
            work.spend(1 + self.words / WORDS_PER_ENTRY);
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
        true
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
        for Saved {
            publisher,
            numbers,
            words,
            ..
        } in saved
        {
            // Makes the publisher the newest one, whatever its numbers are.
            self.insert(Origin {
                publisher,
                number: 0,
            });
            let place = self.newest as usize;
            let bits = &mut self.bits[place * self.words * 2..][..self.words];
            bits.fill(0);
            self.entries[place].numbers = numbers.with_window(&words, bits);
            let dirty_words = dirty_words(self.words);
            find_dirty(bits, &mut self.dirty[place * dirty_words..][..dirty_words]);
        }
        self.evicted_count = 0;
        true
    }
}

struct Saved {
    publisher: u64,
    used: u64,
    numbers: Numbers,
    words: Vec<u64>,
}

/// Returns the publishers of a saved table. `None`: no program of ours can have written these bytes.
fn decode(body: &[u8]) -> Option<Vec<Saved>> {
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
        let saved = Saved {
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
