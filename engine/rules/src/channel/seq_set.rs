//! [`SeqSet`]: a set of seqs that finds its smallest seq without a search.

use diskq_log::SeqRange;
use std::collections::BTreeMap;
use wire::id::Seq;

/// Seqs per block.
const BLOCK: u64 = u64::BITS as u64;

/// A set of seqs.
///
/// Seqs that lie close together share a block of 64 bits. So a million neighbours take 0.4 MB, and a million seqs that lie
/// far apart some 25 MB.
///
/// Invariants: no block is empty; `count` is the number of bits in all blocks.
#[derive(Debug, Default)]
pub(crate) struct SeqSet {
    /// The seqs `64 * n..64 * (n + 1)` as bits, by `n`.
    blocks: BTreeMap<u64, u64>,
    count: u64,
}

impl SeqSet {
    /// Number of seqs.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Adds a seq.
    pub(crate) fn insert(&mut self, seq: Seq) {
        let block = self.blocks.entry(seq.0 / BLOCK).or_default();
        let bit = 1 << (seq.0 % BLOCK);
        self.count += u64::from(*block & bit == 0);
        *block |= bit;
    }

    /// Removes a seq.
    pub(crate) fn remove(&mut self, seq: Seq) {
        let number = seq.0 / BLOCK;
        if let Some(block) = self.blocks.get_mut(&number) {
            let bit = 1 << (seq.0 % BLOCK);
            self.count -= u64::from(*block & bit != 0);
            *block &= !bit;
            if *block == 0 {
                self.blocks.remove(&number);
            }
        }
    }

    /// True if a seq is in the set.
    pub(crate) fn has(&self, seq: Seq) -> bool {
        self.overlaps(SeqRange::one(seq))
    }

    /// True if a seq of the range is in the set.
    pub(crate) fn overlaps(&self, range: SeqRange) -> bool {
        let (first, last) = (range.start.0 / BLOCK, range.end.0.div_ceil(BLOCK));
        let mut blocks = self.blocks.range(first..last);
        blocks.any(|(number, block)| {
            let at = number * BLOCK;
            let below = range.start.0.saturating_sub(at);
            let above = (at + BLOCK).saturating_sub(range.end.0);
            (block >> below) << below << above != 0
        })
    }

    /// Returns the smallest seq.
    pub(crate) fn first(&self) -> Option<Seq> {
        let (number, block) = self.blocks.first_key_value()?;
        Some(Seq(number * BLOCK + u64::from(block.trailing_zeros())))
    }

    /// Returns the largest seq.
    pub(crate) fn last(&self) -> Option<Seq> {
        let (number, block) = self.blocks.last_key_value()?;
        Some(Seq(number * BLOCK + u64::from(block.ilog2())))
    }

    /// Removes some of the smallest seqs, 64 at most. Returns false if the set is empty.
    pub(crate) fn drop_part(&mut self) -> bool {
        let Some((_, block)) = self.blocks.pop_first() else {
            return false;
        };
        self.count -= u64::from(block.count_ones());
        true
    }

    /// Asserts the invariants written on the type.
    pub(crate) fn check(&self) {
        let ones = self.blocks.values().map(|block| block.count_ones());
        assert!(ones.clone().all(|ones| ones > 0), "no empty block");
        assert_eq!(ones.map(u64::from).sum::<u64>(), self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use std::collections::BTreeSet;

    #[test]
    fn it_is_a_set() {
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let (mut set, mut model) = (SeqSet::default(), BTreeSet::new());
            let range = [10, 300, 1 << 40][random.below(3) as usize];
            for _ in 0..500 {
                let seq = Seq(random.below(range));
                match random.below(5) {
                    0 => {
                        set.remove(seq);
                        model.remove(&seq);
                    }
                    1 => {
                        if let Some(first) = model.pop_first() {
                            set.remove(first);
                        }
                    }
                    _ => {
                        set.insert(seq);
                        model.insert(seq);
                    }
                }
                assert_eq!(set.first(), model.first().copied(), "seed {seed}");
                assert_eq!(set.last(), model.last().copied(), "seed {seed}");
                assert_eq!(set.count(), model.len() as u64, "seed {seed}");
                let any = Seq(random.below(range));
                assert_eq!(set.has(any), model.contains(&any), "seed {seed}");
            }
            set.check();
            while set.drop_part() {}
            assert_eq!((set.count(), set.first()), (0, None));
        }
    }
}
