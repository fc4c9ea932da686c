//! [`Lost`]: ranges of damaged messages, whose keys a topic does not find.

use diskq_log::range::normalise;
use diskq_log::{Seq, SeqRange};

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
