//! [`Index`]: finds the place of a publisher by its id. A hash table with open addressing, which never allocates after
//! [`Index::try_reserve`], and is freed in one piece.

use crate::table::zeroed;

/// A slot without a place. It is zero, so that the system gives the memory of a large index when it is first used.
const FREE: u64 = 0;

/// The places of the publishers, by the hash of their ids.
///
/// ```text
///   a slot:   bit 63                32 31                    0
///                | half of the hash   | place + 1; 0: free   |
/// ```
///
/// Invariant: between the slot to which an id hashes and the slot that has its place, no slot is free.
#[derive(Debug)]
pub(super) struct Index {
    /// The place in each slot, with a part of the hash. The number of slots is a power of two, and at most half of
    /// them are taken.
    slots: Vec<u64>,
    key: u64,
    count: usize,
}

/// Returns the slot of a place, which is below `u32::MAX`.
#[inline]
fn slot(place: u32, hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(place + 1)
}

/// Returns the place in a slot that is not free.
#[inline]
fn place_in(slot: u64) -> u32 {
    (slot as u32).wrapping_sub(1)
}

/// Returns the half of the hash in a slot that is not free.
#[inline]
fn hash_in(slot: u64) -> u32 {
    (slot >> 32) as u32
}

impl Index {
    pub(super) fn new(key: u64) -> Index {
        Index {
            slots: Vec::new(),
            key,
            count: 0,
        }
    }

    /// Makes room for `places` places. `None`: the system refuses the memory.
    pub(super) fn try_reserve(&mut self, places: usize) -> Option<()> {
        let slots = places.saturating_mul(2).next_power_of_two();
        self.slots = zeroed(slots)?;
        Some(())
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the place of an id. `is_it` says whether a place has the id.
    #[inline]
    pub(super) fn find(&self, id: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let hash = self.hash(id);
        let mut at = self.slot_of(hash)?;
        loop {
            let slot = self.slots[at];
            if slot == FREE {
                return None;
            }
            let place = place_in(slot);
            if hash_in(slot) == hash && is_it(place) {
                return Some(place);
            }
            at = self.after(at);
        }
    }

    /// Adds a place. The id has none so far.
    ///
    /// # Panics
    /// If no room was reserved.
    pub(super) fn insert(&mut self, id: u64, place: u32) {
        let hash = self.hash(id);
        let mut at = self.slot_of(hash).expect("room was reserved");
        assert!(
            self.count * 2 < self.slots.len(),
            "half of the slots stay free"
        );
        while self.slots[at] != FREE {
            at = self.after(at);
        }
        self.slots[at] = slot(place, hash);
        self.count += 1;
    }

    /// Removes the place of an id.
    ///
    /// # Panics
    /// If the id does not have this place.
    pub(super) fn remove(&mut self, id: u64, place: u32) {
        let hash = self.hash(id);
        let mut hole = self.slot_of(hash).expect("the id has a place");
        let wanted = slot(place, hash);
        while self.slots[hole] != wanted {
            assert!(self.slots[hole] != FREE, "the id has a place");
            hole = self.after(hole);
        }
        // The slots behind the hole move up if they may lie there, so that no search ends at the hole.
        let mut at = self.after(hole);
        while self.slots[at] != FREE {
            let home = self
                .slot_of(hash_in(self.slots[at]))
                .expect("there are slots");
            let mask = self.slots.len() - 1;
            let distance = |from: usize| at.wrapping_sub(from) & mask;
            if distance(home) >= distance(hole) {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = self.after(at);
        }
        self.slots[hole] = FREE;
        self.count -= 1;
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    /// `None`: no room was reserved, so there is no place at all.
    #[inline]
    fn slot_of(&self, hash: u32) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        Some(hash as usize & mask)
    }

    /// Mixes the id with the key before and between the steps of a 64-bit mixer.
    #[inline]
    fn hash(&self, id: u64) -> u32 {
        let mut mixed = id.wrapping_add(self.key);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ self.key;
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskq_log::Random;
    use std::collections::BTreeMap;

    #[test]
    fn random_ids_are_found_until_they_are_removed() {
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let mut index = Index::new(seed);
            assert_eq!(index.find(1, |_| true), None);
            index.try_reserve(20).expect("there is memory");
            let mut expected: BTreeMap<u64, u32> = BTreeMap::new();
            for place in 0..2000 {
                let id = random.below(60);
                if let Some(place) = expected.remove(&id) {
                    index.remove(id, place);
                } else if expected.len() < 20 {
                    expected.insert(id, place);
                    index.insert(id, place);
                }
                for id in 0..60 {
                    let is_it = |place: u32| expected.get(&id) == Some(&place);
                    assert_eq!(index.find(id, is_it), expected.get(&id).copied());
                }
                assert_eq!(index.count(), expected.len());
            }
        }
    }
}
