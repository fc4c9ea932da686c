//! [`InverseBloom`]: a table in which the newest key overwrites.

use crate::arithmetic::{affordable, positive};
use crate::bits::scale;
use crate::error::{FilterOptionError, StateError};
use crate::filter::{Filter, UnixTime};
use crate::key::{Fingerprint, KeyHasher};
use crate::saved::{Reader, Saved, Writer};

/// The opposite of a Bloom filter: it may say that it does not know a key that it has seen, and does not say that it
/// knows a key that it has not seen.
///
/// The filter is a table of fingerprints. A key has one slot, and the newest key overwrites the one before. So the
/// probability that a key is forgotten after x further keys is 1 − (1 − 1/N)^x for N slots
/// ([`arithmetic::forgotten`](crate::arithmetic::forgotten)), and
/// [`arithmetic::slots_for`](crate::arithmetic::slots_for) computes N from a rate, a delay and a probability.
///
/// The table holds whole fingerprints of 128 bits, and not keys. A fresh key is taken for a known one only if both have
/// equal fingerprints, with a probability of at most n · 2⁻¹²⁸ per check for n remembered keys: 3 · 10⁻³³ for a million
/// (see [`Fingerprint`]). The table takes 16 bytes per slot. The source of the idea is Jeff Hodges, *The opposite of a
/// Bloom filter* (2012).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InverseBloom {
    hasher: KeyHasher,
    /// Zero is an empty slot.
    slots: Vec<u128>,
}

/// The value in the table for the fingerprint 0, because 0 marks an empty slot.
const INSTEAD_OF_ZERO: u128 = 1;

impl InverseBloom {
    /// Makes an empty filter with this number of slots, and a secret of zeros. The filter takes 16 bytes per slot from
    /// the start.
    ///
    /// # Errors
    /// If there is no slot, or no memory for the slots.
    pub fn new(slots: u64) -> Result<InverseBloom, FilterOptionError> {
        InverseBloom::with_hasher(slots, KeyHasher::new([0; 16]))
    }

    /// Makes an empty filter with this number of slots. The hasher should have a random secret.
    ///
    /// # Errors
    /// If there is no slot, or no memory for the slots.
    pub fn with_hasher(slots: u64, hasher: KeyHasher) -> Result<InverseBloom, FilterOptionError> {
        positive("slots", slots as f64)?;
        affordable("slots", slots as f64, slots as f64 * 16.0)?;
        Ok(InverseBloom {
            hasher,
            slots: vec![0; slots as usize],
        })
    }

    /// Returns the hasher of the filter's keys.
    #[must_use]
    pub fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    /// Returns the number of slots.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Returns the slot of a key, and what stands there for it.
    fn place(&self, key: Fingerprint) -> (usize, u128) {
        let stored = if key.0 == 0 { INSTEAD_OF_ZERO } else { key.0 };
        let slot = scale(key.0 as u64, self.slots());
        (slot as usize, stored)
    }
}

impl Filter for InverseBloom {
    type Key = Fingerprint;

    fn remembers(&mut self, key: Fingerprint, _now: UnixTime) -> bool {
        let (slot, stored) = self.place(key);
        self.slots[slot] == stored
    }

    fn remember(&mut self, key: Fingerprint, _now: UnixTime) {
        let (slot, stored) = self.place(key);
        self.slots[slot] = stored;
    }

    fn bytes(&self) -> u64 {
        self.slots() * size_of::<u128>() as u64
    }
}

impl Saved for InverseBloom {
    const NAME: &'static str = "inverse-bloom";

    fn write(&self, out: &mut Writer<'_>) -> std::io::Result<()> {
        out.put(&self.hasher.secret())?;
        out.u64(self.slots())?;
        for slot in &self.slots {
            out.put(&slot.to_le_bytes())?;
        }
        Ok(())
    }

    fn read(input: &mut Reader<'_>) -> Result<InverseBloom, StateError> {
        let hasher = KeyHasher::new(input.array()?);
        let count = input.u64()?;
        let slots = input.list(count, |input| Ok(u128::from_le_bytes(input.array()?)))?;
        if slots.is_empty() {
            return Err(StateError::Damaged("no slot"));
        }
        Ok(InverseBloom { hasher, slots })
    }
}

#[cfg(test)]
mod tests;
