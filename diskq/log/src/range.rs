//! [`SeqRange`]: a half-open run of seqs.

use wire::id::Seq;

/// The seqs from `start` up to, not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeqRange {
    /// The first seq of the range.
    pub start: Seq,
    /// One past the last seq of the range.
    pub end: Seq,
}

impl SeqRange {
    /// The range from `start` up to `end`. An `end` at or below `start` makes an empty range.
    #[must_use]
    pub fn new(start: Seq, end: Seq) -> SeqRange {
        SeqRange { start, end }
    }

    /// The range of the single seq `seq`.
    #[must_use]
    pub fn one(seq: Seq) -> SeqRange {
        SeqRange {
            start: seq,
            end: Seq(seq.0 + 1),
        }
    }

    /// Returns how many seqs the range holds.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }

    /// Returns whether the range holds no seq at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start.0 >= self.end.0
    }

    /// Returns whether `seq` lies in the range.
    #[must_use]
    pub fn contains(&self, seq: Seq) -> bool {
        self.start.0 <= seq.0 && seq.0 < self.end.0
    }

    /// Returns the seqs that both ranges hold. The result is empty if the ranges do not meet.
    #[must_use]
    pub fn intersection(&self, other: &SeqRange) -> SeqRange {
        SeqRange {
            start: Seq(self.start.0.max(other.start.0)),
            end: Seq(self.end.0.min(other.end.0)),
        }
    }
}

/// Adds `range` behind the last of `ranges`, joining the two where they touch.
pub fn push_joined(ranges: &mut Vec<SeqRange>, range: SeqRange) {
    if range.is_empty() {
        return;
    }
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

/// Adds `range` to the sorted `ranges`, joining what touches. Returns how many seqs were new.
pub(crate) fn add_joined(ranges: &mut Vec<SeqRange>, range: SeqRange) -> u64 {
    let known: u64 = ranges
        .iter()
        .map(|known| known.intersection(&range).len())
        .sum();
    ranges.push(range);
    normalise(ranges);
    range.len() - known
}

/// Sorts `ranges`, drops empty ones and joins those that overlap or touch.
pub fn normalise(ranges: &mut Vec<SeqRange>) {
    ranges.sort_unstable();
    ranges.retain(|range| !range.is_empty());
    ranges.dedup_by(|range, last| {
        let is_joined = range.start <= last.end;
        if is_joined {
            last.end = last.end.max(range.end);
        }
        is_joined
    });
}

/// Returns the parts of `range` that none of the sorted, disjoint `others` holds.
#[must_use]
pub fn without(range: SeqRange, others: &[SeqRange]) -> Vec<SeqRange> {
    let mut left = Vec::new();
    let mut start = range.start;
    for other in meeting(range, others) {
        push_joined(&mut left, SeqRange::new(start, other.start));
        start = other.end;
    }
    push_joined(&mut left, SeqRange::new(start, range.end));
    left
}

/// Returns the parts of `range` that the sorted, disjoint `others` hold.
#[must_use]
pub fn within(range: SeqRange, others: &[SeqRange]) -> Vec<SeqRange> {
    meeting(range, others).collect()
}

/// The parts of `range` that the sorted, disjoint `others` hold, one after the other.
pub(crate) fn meeting(range: SeqRange, others: &[SeqRange]) -> impl Iterator<Item = SeqRange> {
    let first = others.partition_point(|other| other.end <= range.start);
    let near = others[first..].iter();
    let near = near.take_while(move |other| other.start < range.end);
    let parts = near.map(move |other| other.intersection(&range));
    parts.filter(|part| !part.is_empty())
}
