//! [`KeyTable`]: the keys of a number of successive messages, each with the seq of its message. [`Lost`]: messages
//! whose keys are not found.
//!
//! ```text
//!   a slot, 16 bytes:   bit 127                        48 47                    0
//!                          | fingerprint, 80 bits        | lower bits of the seq |
//! ```
//!
//! The slots are an array with linear probing. Nothing is ever removed from the middle of a table: the topic forgets a
//! whole table at once. The slots are used again without being cleared. A slot that an earlier use has left has a seq
//! outside of the table's messages, so the slot counts as empty.
//!
//! A window of messages needs about 23 bytes per message. A slot has 16 bytes. A fifth of the slots stays empty,
//! because a search in a fuller table takes longer: 20 bytes. One of eight tables is being filled while the window
//! lies in the seven others: 23 bytes. With 14 bytes per message, a slot would have only 78 bits (14 · 8 · 4/5 · 7/8),
//! such as 32 for the seq and 46 for the fingerprint. Then a fresh message would be dropped by mistake with a
//! probability of 10⁻⁸ for a million keys, and no longer 10⁻¹⁸, and slots would lie across cache lines.

use crate::fingerprint::Fingerprint;
use crate::table::zeroed;
use diskq_log::range::normalise;
use diskq_log::{Seq, SeqRange};

/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = size_of::<u128>();

/// Bits of a seq in a slot. The clock makes seqs go forward by 4096 per 1.05 ms (`Seq::from_clock`). So 48 bits tell
/// the seqs of 2.2 years apart. A table that is used again after more than half of this time is cleared.
const SEQ_BITS: u32 = 48;
const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;

/// A slot that was never used.
const EMPTY: u128 = 0;

/// Keys in a table of `slots` slots: four fifths. A fuller table would need long searches: at four fifths, a search for
/// a fresh key looks at 13 neighbouring slots on average.
pub(crate) fn keys_max(slots: usize) -> usize {
    slots / 5 * 4 + slots % 5 * 4 / 5
}

/// Returns the number of slots that `keys` keys need.
pub(crate) fn slots_for(keys: usize) -> usize {
    keys.saturating_mul(5).div_ceil(4).max(2)
}

/// The keys of the messages from `base` up to `end`.
///
/// Invariants: at most [`keys_max`] keys, so a search ends at an empty slot; the seq of each key is in `base..end`.
#[derive(Debug)]
pub(crate) struct KeyTable {
    /// Empty if the table takes no memory, and so has room for no key.
    slots: Vec<u128>,
    /// The seq from which the table has keys.
    pub(crate) base: Seq,
    /// The seq up to which the table has keys.
    pub(crate) end: Seq,
    count: usize,
    /// When the table began, in milliseconds of the topic's clock of keys.
    pub(crate) began_ms: u64,
    /// When the last key came, or when the table began if there is none.
    pub(crate) last_key_ms: u64,
}

/// Where a key was put, so that the key can be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InsertedSlot {
    index: usize,
    /// The end of the table before.
    end: Seq,
}

/// A slot that was overwritten, so that it can be put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overwritten {
    at: InsertedSlot,
    slot: u128,
}

impl KeyTable {
    /// Makes an empty table of `slots` slots. `None`: the system refuses the memory.
    ///
    /// # Panics
    /// If `slots` is less than 2: a search needs an empty slot.
    pub(crate) fn new(slots: usize, base: Seq, now_ms: u64) -> Option<KeyTable> {
        assert!(slots >= 2, "a search needs an empty slot");
        let slots = zeroed(slots)?;
        Some(KeyTable {
            slots,
            ..KeyTable::without_slots(base, now_ms)
        })
    }

    /// Makes a table that takes no memory, and no key.
    pub(crate) fn without_slots(base: Seq, now_ms: u64) -> KeyTable {
        KeyTable {
            slots: Vec::new(),
            base,
            end: base,
            count: 0,
            began_ms: now_ms,
            last_key_ms: now_ms,
        }
    }

    /// Begins the table anew, for messages from `base` on. The old keys are forgotten.
    pub(crate) fn begin_anew(&mut self, base: Seq, now_ms: u64) {
        let is_near = base >= self.end && base.0 - self.base.0 < SEQ_MASK / 2;
        if !is_near {
            // The seqs in the slots would be ambiguous.
            match zeroed(self.slots.len()) {
                Some(slots) => self.slots = slots,
                None => self.slots.fill(EMPTY),
            }
        }
        (self.base, self.end, self.count) = (base, base, 0);
        (self.began_ms, self.last_key_ms) = (now_ms, now_ms);
    }

    /// The number of keys.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The number of keys that still fit.
    pub(crate) fn room(&self) -> usize {
        keys_max(self.slots.len()).saturating_sub(self.count)
    }

    /// Returns false if the table has room for no key, because it has no slots.
    #[inline]
    pub(crate) fn has_slots(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Bytes of the table.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.len() * SLOT_BYTES
    }

    /// The number of slots of the table.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether the table can have a key of message `seq`: the seq is not before its first one, and not too far
    /// behind.
    pub(crate) fn can_take(&self, seq: Seq) -> bool {
        seq >= self.base && seq.0 - self.base.0 < SEQ_MASK / 2
    }

    #[inline]
    fn is_used(&self, slot: u128) -> bool {
        seq_in(slot, self.base, self.end).is_some()
    }

    /// Returns the seq of the message with this key.
    #[inline]
    pub(crate) fn find(&self, fingerprint: Fingerprint) -> Option<Seq> {
        let wanted = fingerprint.upper_bits();
        let from = fingerprint.place(self.slots.len());
        let (before, behind) = self.slots.split_at(from);
        for &slot in behind.iter().chain(before) {
            let seq = seq_in(slot, self.base, self.end)?;
            if (slot ^ wanted) >> SEQ_BITS == 0 {
                return Some(seq);
            }
        }
        None
    }

    /// The indices of the slots in the order of a search.
    #[inline]
    fn indices(&self, fingerprint: Fingerprint) -> impl Iterator<Item = usize> + use<> {
        let (from, slots) = (fingerprint.place(self.slots.len()), self.slots.len());
        (from..slots).chain(0..from)
    }

    /// Adds a key that the table does not have. `None`: the table is full.
    #[inline]
    pub(crate) fn insert(&mut self, fingerprint: Fingerprint, seq: Seq) -> Option<InsertedSlot> {
        debug_assert!(self.can_take(seq), "a seq outside of the table");
        if self.room() == 0 {
            return None;
        }
        let mut free = self.indices(fingerprint);
        let index = free.find(|index| !self.is_used(self.slots[*index]))?;
        let slot = fingerprint.upper_bits() | u128::from(seq.0 & SEQ_MASK);
        self.slots[index] = slot;
        let inserted = InsertedSlot {
            index,
            end: self.end,
        };
        self.end = self.end.max(seq.offset(1));
        self.count += 1;
        Some(inserted)
    }

    /// Returns whether a key names one of these messages.
    pub(crate) fn names_any(&self, lost: &Lost) -> bool {
        let mut slots = self.slots.iter();
        slots.any(|slot| used(*slot, self.base, self.end).is_some_and(|it| lost.contains(it.1)))
    }

    /// Makes a key of the table name message `seq` instead of its own one. `None`: the table does not have the key.
    pub(crate) fn overwrite(&mut self, fingerprint: Fingerprint, seq: Seq) -> Option<Overwritten> {
        debug_assert!(self.can_take(seq), "a seq outside of the table");
        let wanted = fingerprint.upper_bits();
        let indices = self.indices(fingerprint);
        let mut used = indices.take_while(|index| self.is_used(self.slots[*index]));
        let index = used.find(|index| (self.slots[*index] ^ wanted) >> SEQ_BITS == 0)?;
        let end = self.end;
        let slot = std::mem::replace(
            &mut self.slots[index],
            wanted | u128::from(seq.0 & SEQ_MASK),
        );
        self.end = end.max(seq.offset(1));
        let at = InsertedSlot { index, end };
        Some(Overwritten { at, slot })
    }

    /// Makes a key name its earlier message again. See [`KeyTable::take_back`] for the order.
    pub(crate) fn put_back(&mut self, overwritten: Overwritten) {
        let Overwritten { at, slot } = overwritten;
        self.slots[at.index] = slot;
        self.end = at.end;
    }

    /// Takes a key back. Keys are taken back in the opposite order of their insertion, so that no search for an earlier
    /// key led over this slot.
    pub(crate) fn take_back(&mut self, inserted: InsertedSlot) {
        self.slots[inserted.index] = EMPTY;
        self.end = inserted.end;
        self.count -= 1;
    }

    /// The slots from index `from` on, at most `count`, as they are. Slots of earlier uses of the table are among them:
    /// see [`used`].
    pub(crate) fn piece(&self, from: usize, count: usize) -> &[u128] {
        let end = self.slots.len().min(from + count);
        &self.slots[from..end]
    }

    /// Asserts the invariants.
    pub(crate) fn check(&self) {
        let used = self.slots.iter().filter(|slot| self.is_used(**slot));
        assert_eq!(used.count(), self.count, "a key without a slot");
        assert!(self.count <= keys_max(self.slots.len()));
        assert!(
            self.count < self.slots.len() || !self.has_slots(),
            "a search would not end"
        );
    }
}

/// Returns the seq in a slot of a table whose messages are `base..end`. `None`: the slot is empty. A slot that an
/// earlier use of the table has left has a seq outside of the messages, at least `end - base` behind `base`.
#[inline]
fn seq_in(slot: u128, base: Seq, end: Seq) -> Option<Seq> {
    let since = (slot as u64).wrapping_sub(base.0) & SEQ_MASK;
    let is_used = slot != EMPTY && since < end.0 - base.0;
    is_used.then(|| Seq(base.0 + since))
}

/// Returns the key in a slot of a table whose messages are `base..end`, and the seq of its message. `None`: the
/// slot is empty.
pub(crate) fn used(slot: u128, base: Seq, end: Seq) -> Option<(Fingerprint, Seq)> {
    let seq = seq_in(slot, base, end)?;
    Some((Fingerprint::from_upper_bits(slot), seq))
}

/// The messages that the log has lost by damage. Their keys count as forgotten: the next copy is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Sorted and disjoint.
    ranges: Vec<SeqRange>,
}

impl Lost {
    /// Takes sorted and disjoint ranges.
    pub(crate) fn from_sorted(ranges: Vec<SeqRange>) -> Lost {
        Lost { ranges }
    }

    /// Adds messages.
    pub(crate) fn add(&mut self, seqs: SeqRange) {
        self.ranges.push(seqs);
        normalise(&mut self.ranges);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    #[inline]
    pub(crate) fn contains(&self, seq: Seq) -> bool {
        !self.is_empty() && {
            let index = self.ranges.partition_point(|range| range.end <= seq);
            self.ranges
                .get(index)
                .is_some_and(|range| range.contains(seq))
        }
    }

    /// Forgets the messages below `seq`, which no key names.
    pub(crate) fn forget_below(&mut self, seq: Seq) {
        self.ranges.retain(|range| range.end > seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskq_log::Random;
    use std::collections::BTreeMap;

    fn fingerprint(random: &mut Random) -> Fingerprint {
        Fingerprint::from_upper_bits(u128::from(random.draw()) << 64 | u128::from(random.draw()))
    }

    #[test]
    fn a_table_is_used_again_without_being_cleared() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let slots = 2 + random.below(200) as usize;
            let mut next = Seq((1 << SEQ_BITS) - 300 * random.below(3));
            let mut table = KeyTable::new(slots, next, 0).expect("some memory");
            let mut forgotten = Vec::new();
            for _ in 0..20 {
                let mut model = BTreeMap::new();
                for _ in 0..keys_max(slots) {
                    let key = fingerprint(&mut random);
                    assert_eq!(table.find(key), None);
                    assert!(table.insert(key, next).is_some(), "seed {seed}");
                    model.insert(key, next);
                    next = next.offset(1 + random.below(3));
                }
                table.check();
                assert_eq!(table.insert(fingerprint(&mut random), next), None);
                for (key, seq) in &model {
                    assert_eq!(table.find(*key), Some(*seq), "seed {seed}");
                }
                for key in &forgotten {
                    assert_eq!(table.find(*key), None, "seed {seed}");
                }
                let (base, end) = (table.base, table.end);
                let all = table.piece(0, slots).iter();
                let found: BTreeMap<_, _> = all.filter_map(|it| used(*it, base, end)).collect();
                assert_eq!(found, model, "seed {seed}");
                forgotten = model.into_keys().collect();
                table.begin_anew(next, 0);
                table.check();
            }
        }
    }

    #[test]
    fn keys_are_taken_back_in_the_opposite_order() {
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let mut table = KeyTable::new(50, Seq(1000), 0).expect("some memory");
            let kept: Vec<_> = (0..20).map(|_| fingerprint(&mut random)).collect();
            for (index, key) in kept.iter().enumerate() {
                table.insert(*key, Seq(1000 + index as u64));
            }
            let before = table.piece(0, 50).to_vec();
            let mut places = Vec::new();
            for index in 0..20 {
                let key = fingerprint(&mut random);
                places.push(table.insert(key, Seq(1020 + index)).expect("room"));
            }
            for inserted in places.into_iter().rev() {
                table.take_back(inserted);
            }
            assert_eq!(table.piece(0, 50), before, "seed {seed}");
            table.check();
        }
    }

    #[test]
    fn a_seq_far_away_clears_the_table() {
        let mut random = Random::new(1);
        let key = fingerprint(&mut random);
        let mut table = KeyTable::new(10, Seq(5), 0).expect("some memory");
        assert!(table.insert(key, Seq(5)).is_some());
        assert!(!table.can_take(Seq(5 + SEQ_MASK)));
        // The lower bits of both seqs are equal.
        table.begin_anew(Seq(5 + (1 << SEQ_BITS)), 0);
        assert!(
            table
                .insert(fingerprint(&mut random), Seq(5 + (1 << SEQ_BITS)))
                .is_some()
        );
        assert_eq!(table.find(key), None);
        table.check();
    }

    #[test]
    fn slots_and_keys() {
        for keys in 0..1000 {
            let slots = slots_for(keys);
            assert!(keys_max(slots) >= keys, "{keys}");
            assert!(keys_max(slots) < slots);
        }
        assert_eq!(keys_max(131_072), 104_857);
    }

    #[test]
    fn ranges_are_joined_and_forgotten() {
        let mut lost = Lost::default();
        assert!(!lost.contains(Seq(5)));
        for (start, end) in [(20, 30), (5, 6), (6, 8), (25, 32)] {
            lost.add(SeqRange::new(Seq(start), Seq(end)));
        }
        let numbers =
            |lost: &Lost| -> Vec<u64> { (0..40).filter(|it| lost.contains(Seq(*it))).collect() };
        let both: Vec<u64> = (5..8).chain(20..32).collect();
        assert_eq!(numbers(&lost), both);
        lost.forget_below(Seq(8));
        assert_eq!(numbers(&lost), both[3..]);
        lost.forget_below(Seq(100));
        assert!(lost.is_empty());
    }
}
