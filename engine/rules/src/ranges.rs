//! A sorted list of seq ranges: the backlog of a channel, whatever its length, in a few words.
//!
//! A channel that keeps up holds one range; each restart, `empty` or damaged frame may add one more.
//! Nothing here depends on how many messages the ranges span.

use crate::long_queue::LongQueue;
use crate::peek::{CandidateState, Candidates};
use diskq_log::SeqRange;
use std::ops::Range;
use wire::id::Seq;

/// Ranges of seqs that wait for their first delivery.
///
/// Invariants: no range is empty; they are sorted and do not touch; `count` is the sum of lengths.
#[derive(Debug, Default, Clone)]
pub(crate) struct Ranges {
    ranges: LongQueue<SeqRange>,
    count: u64,
}

impl Ranges {
    /// Number of seqs in all ranges.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// True when no seq is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The first range, if any: what is delivered next.
    pub(crate) fn front(&self) -> Option<SeqRange> {
        self.ranges.front().copied()
    }

    /// One past the last seq.
    pub(crate) fn end(&self) -> Option<Seq> {
        self.ranges.back().map(|range| range.end)
    }

    /// Adds `range` behind all others. Ranges arrive in the order of their seqs.
    ///
    /// # Panics
    /// If `range` starts before the end of the last one: a seq would be owned twice.
    pub(crate) fn push(&mut self, range: SeqRange) {
        if range.is_empty() {
            return;
        }
        self.count += range.len();
        match self.ranges.back_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            Some(last) => {
                assert!(last.end < range.start, "ranges arrive in order");
                self.ranges.push_back(range);
            }
            None => self.ranges.push_back(range),
        }
    }

    /// Adds `range` in front of all others.
    ///
    /// # Panics
    /// If `range` ends behind the start of the first one: a seq would be owned twice.
    pub(crate) fn push_front(&mut self, range: SeqRange) {
        if range.is_empty() {
            return;
        }
        self.count += range.len();
        match self.ranges.front_mut() {
            Some(first) if range.end == first.start => first.start = range.start,
            Some(first) => {
                assert!(range.end < first.start, "ranges arrive in order");
                self.ranges.push_front(range);
            }
            None => self.ranges.push_back(range),
        }
    }

    /// Adds ranges that may lie before, between and behind the others. They come in the order of their seqs. The cost is
    /// that of these ranges, and of the others before the last of them.
    ///
    /// # Panics
    /// If one of them has a seq that is there already.
    pub(crate) fn insert(&mut self, ranges: impl DoubleEndedIterator<Item = SeqRange>) {
        let mut ranges = ranges.rev().peekable();
        let mut before = Vec::new();
        if let Some(last) = ranges.peek() {
            while self.front().is_some_and(|front| front.end <= last.start) {
                before.extend(self.pop());
            }
        }
        for range in ranges {
            while let Some(behind) = before.pop_if(|it| range.end <= it.start) {
                self.push_front(behind);
            }
            self.push_front(range);
        }
        while let Some(range) = before.pop() {
            self.push_front(range);
        }
    }

    /// Removes the first `count` seqs of the first range, which must hold at least that many.
    ///
    /// # Panics
    /// If the first range is shorter than `count`.
    pub(crate) fn take_front(&mut self, count: u64) -> SeqRange {
        let front = self.ranges.front_mut().expect("there is a range");
        assert!(count <= front.len(), "a run lies within one range");
        let taken = SeqRange::new(front.start, front.start.offset(count));
        front.start = taken.end;
        if front.is_empty() {
            self.ranges.pop_front();
        }
        self.count -= count;
        taken
    }

    /// Removes one seq from behind, the newest.
    pub(crate) fn pop_newest(&mut self) -> Option<Seq> {
        let last = self.ranges.back_mut()?;
        last.end = Seq(last.end.0 - 1);
        let newest = last.end;
        if last.is_empty() {
            self.ranges.pop_back();
        }
        self.count -= 1;
        Some(newest)
    }

    /// Removes the first range.
    pub(crate) fn pop(&mut self) -> Option<SeqRange> {
        let range = self.ranges.pop_front()?;
        self.count -= range.len();
        Some(range)
    }

    /// The place of the first range. A range keeps its place while others come and go.
    pub(crate) fn first_place(&self) -> u64 {
        self.ranges.first_place()
    }

    /// The places of all ranges.
    pub(crate) fn places(&self) -> Range<u64> {
        self.ranges.places()
    }

    /// The ranges from `place` on, in order.
    pub(crate) fn iter_from(&self, place: u64) -> impl Iterator<Item = SeqRange> + '_ {
        self.ranges.iter_from(place).copied()
    }

    /// The ranges in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = SeqRange> + '_ {
        self.ranges.iter().copied()
    }

    /// True if a seq is in one of the ranges. The cost grows with the logarithm of their number.
    pub(crate) fn has(&self, seq: Seq) -> bool {
        self.overlaps(SeqRange::one(seq))
    }

    /// True if one of the ranges has a seq of `range`. The cost grows with the logarithm of their number.
    pub(crate) fn overlaps(&self, range: SeqRange) -> bool {
        if self.end().is_none_or(|end| end <= range.start) {
            return false;
        }
        let place = self.ranges.place_behind(|it| it.end <= range.start);
        let found = self.ranges.get(place);
        found.is_some_and(|found| found.start < range.end)
    }

    /// Adds seqs in order, from a place on: the place of a range, and a seq.
    pub(crate) fn add_candidates(&self, at: Option<(u64, u64)>, candidates: &mut Candidates) {
        let (first, from) = at.unwrap_or((0, 0));
        let first = first.max(self.first_place());
        for (range, at) in self.iter_from(first).zip(first..) {
            for seq in range.start.0.max(from)..range.end.0 {
                if candidates.is_full() {
                    return candidates.stop_at((at, seq));
                }
                candidates.take((Seq(seq), 0), CandidateState::Waiting, (at, seq + 1));
            }
        }
    }

    /// Adds seqs, the newest first, from a place on: the place of a range, and the seq behind the next one.
    pub(crate) fn add_newest_candidates(
        &self,
        at: Option<(u64, u64)>,
        candidates: &mut Candidates,
    ) {
        let (first, below) = at.unwrap_or((u64::MAX, u64::MAX));
        let places = self.places();
        let places = places.start..places.end.min(first.saturating_add(1));
        for at in places.rev() {
            let Some(range) = self.ranges.get(at) else {
                return;
            };
            for seq in (range.start.0..range.end.0.min(below)).rev() {
                if candidates.is_full() {
                    return candidates.stop_at((at, seq + 1));
                }
                candidates.take((Seq(seq), 0), CandidateState::Waiting, (at, seq));
            }
        }
    }

    /// Asserts the invariants written on the type.
    pub(crate) fn check(&self) {
        self.ranges.check();
        let mut previous_end: Option<Seq> = None;
        let mut count = 0;
        for range in self.ranges.iter() {
            assert!(!range.is_empty(), "no empty range");
            assert!(
                previous_end.is_none_or(|end| end < range.start),
                "sorted, not touching"
            );
            previous_end = Some(range.end);
            count += range.len();
        }
        assert_eq!(count, self.count, "count is the sum of lengths");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peek::PeekBudget;

    fn range(start: u64, end: u64) -> SeqRange {
        SeqRange {
            start: Seq(start),
            end: Seq(end),
        }
    }

    fn budget(messages_max: usize) -> PeekBudget {
        PeekBudget {
            messages_max,
            entries_max: 1000,
            bytes_max: 0,
            frame_bytes_max: 0,
        }
    }

    #[test]
    fn touching_ranges_become_one_and_gaps_stay() {
        let mut ranges = Ranges::default();
        for (start, end) in [(1, 3), (3, 3), (3, 5), (9, 12)] {
            ranges.push(range(start, end));
        }
        ranges.check();
        assert_eq!(
            ranges.iter().collect::<Vec<_>>(),
            [range(1, 5), range(9, 12)]
        );
        assert_eq!(ranges.take_front(4), range(1, 5));
        assert_eq!(ranges.front(), Some(range(9, 12)));
        assert_eq!(ranges.pop_newest(), Some(Seq(11)));
        assert_eq!(ranges.take_front(1), range(9, 10));
        assert_eq!(ranges.count(), 1);
        ranges.check();
        assert_eq!(ranges.pop_newest(), Some(Seq(10)));
        assert!(ranges.is_empty() && ranges.pop_newest().is_none());
        ranges.check();
    }

    #[test]
    fn earlier_ranges_come_to_the_front() {
        let mut ranges = Ranges::default();
        for (start, end) in [(20, 30), (15, 20), (15, 15), (3, 9)] {
            ranges.push_front(range(start, end));
            ranges.check();
        }
        assert_eq!(
            ranges.iter().collect::<Vec<_>>(),
            [range(3, 9), range(15, 30)]
        );
        assert_eq!(ranges.take_front(6), range(3, 9));
    }

    #[test]
    fn ranges_are_inserted_at_their_places() {
        let mut ranges = Ranges::default();
        for (start, end) in [(1, 4), (10, 20), (40, 50)] {
            ranges.push(range(start, end));
        }
        let all = |ranges: &Ranges| ranges.iter().map(|it| (it.start.0, it.end.0)).collect();
        let check = |mut ranges: Ranges, inserted: &[(u64, u64)], expected: &[(u64, u64)]| {
            ranges.insert(inserted.iter().map(|(start, end)| range(*start, *end)));
            ranges.check();
            let found: Vec<(u64, u64)> = all(&ranges);
            assert_eq!(found, expected, "{inserted:?}");
        };
        check(ranges.clone(), &[], &[(1, 4), (10, 20), (40, 50)]);
        check(
            ranges.clone(),
            &[(5, 8)],
            &[(1, 4), (5, 8), (10, 20), (40, 50)],
        );
        check(ranges.clone(), &[(4, 10)], &[(1, 20), (40, 50)]);
        let inserted = [(0, 1), (6, 7), (20, 21), (30, 40), (60, 70)];
        let expected = [(0, 4), (6, 7), (10, 21), (30, 50), (60, 70)];
        check(ranges, &inserted, &expected);
        check(Ranges::default(), &[(5, 8), (9, 10)], &[(5, 8), (9, 10)]);
    }

    #[test]
    #[should_panic(expected = "ranges arrive in order")]
    fn a_seq_cannot_be_inserted_twice() {
        let mut ranges = Ranges::default();
        ranges.push(range(1, 5));
        ranges.push(range(10, 20));
        ranges.insert([range(4, 6)].into_iter());
    }

    #[test]
    fn candidates_come_in_both_directions_and_in_slices() {
        let mut ranges = Ranges::default();
        for (start, end) in [(1, 4), (7, 8), (10, 13)] {
            ranges.push(range(start, end));
        }
        let all = |newest: bool, count: usize| {
            let (mut found, mut place) = (Vec::new(), None);
            loop {
                let mut slice = Candidates::new(&budget(count), 0);
                if newest {
                    ranges.add_newest_candidates(place, &mut slice)
                } else {
                    ranges.add_candidates(place, &mut slice)
                }
                assert!(slice.found.len() <= count);
                found.extend(slice.found.iter().map(|candidate| candidate.seq.0));
                // To go on behind a message is to go on where the slice says.
                let behind = slice.found.last().map(|candidate| candidate.next.at);
                if slice.next.is_none() {
                    return found;
                }
                place = behind;
            }
        };
        let expected = [1, 2, 3, 7, 10, 11, 12];
        let has = (0..20).filter(|seq| ranges.has(Seq(*seq)));
        assert_eq!(has.collect::<Vec<_>>(), expected);
        let reversed: Vec<u64> = expected.iter().rev().copied().collect();
        for count in 1..9 {
            assert_eq!(all(false, count), expected, "{count}");
            assert_eq!(all(true, count), reversed, "{count}");
        }
        for place in [(0, 0), (u64::MAX, 0), (0, u64::MAX)] {
            ranges.add_candidates(Some(place), &mut Candidates::new(&budget(3), 0));
            ranges.add_newest_candidates(Some(place), &mut Candidates::new(&budget(3), 0));
        }
    }

    #[test]
    #[should_panic(expected = "ranges arrive in order")]
    fn a_seq_cannot_be_owned_twice() {
        let mut ranges = Ranges::default();
        ranges.push(range(1, 5));
        ranges.push(range(4, 6));
    }
}
