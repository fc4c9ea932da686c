//! A queue that may hold millions of entries: no call moves more than a piece of it.
//!
//! A [`VecDeque`] that is full moves all of its entries, which takes 30 ms for ten million of them.

use std::collections::VecDeque;
use std::ops::Range;

/// Entries per piece.
const PIECE: usize = 1024;

/// A double-ended queue in pieces.
///
/// Invariants: there is a piece; all but the first and the last have [`PIECE`] entries; none is empty
/// unless it is the only one; `count` is the sum of their lengths.
#[derive(Debug, Clone)]
pub(crate) struct LongQueue<T> {
    pieces: VecDeque<VecDeque<T>>,
    count: usize,
    /// The place of the first entry: entries removed at the front minus entries added there.
    front: u64,
}

impl<T> Default for LongQueue<T> {
    fn default() -> LongQueue<T> {
        LongQueue {
            pieces: VecDeque::from([VecDeque::new()]),
            count: 0,
            // Entries may come back to the front of a queue that is new.
            front: 1 << 63,
        }
    }
}

impl<T> LongQueue<T> {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&T> {
        self.pieces.front()?.front()
    }

    #[inline]
    pub(crate) fn front_mut(&mut self) -> Option<&mut T> {
        self.pieces.front_mut()?.front_mut()
    }

    #[inline]
    pub(crate) fn back(&self) -> Option<&T> {
        self.pieces.back()?.back()
    }

    #[inline]
    pub(crate) fn back_mut(&mut self) -> Option<&mut T> {
        self.pieces.back_mut()?.back_mut()
    }

    pub(crate) fn push_back(&mut self, entry: T) {
        self.count += 1;
        if let Some(piece) = self.pieces.back_mut()
            && piece.len() < PIECE
        {
            return piece.push_back(entry);
        }
        let mut piece = VecDeque::with_capacity(PIECE);
        piece.push_back(entry);
        self.pieces.push_back(piece);
    }

    /// Adds an entry in front of all others.
    pub(crate) fn push_front(&mut self, entry: T) {
        self.count += 1;
        self.front -= 1;
        if let Some(piece) = self.pieces.front_mut()
            && piece.len() < PIECE
        {
            return piece.push_front(entry);
        }
        self.pieces.push_front(VecDeque::from([entry]));
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let piece = self.pieces.front_mut()?;
        let entry = piece.pop_front()?;
        self.count -= 1;
        self.front += 1;
        if piece.is_empty() && self.pieces.len() > 1 {
            self.pieces.pop_front();
        }
        Some(entry)
    }

    pub(crate) fn pop_back(&mut self) -> Option<T> {
        let piece = self.pieces.back_mut()?;
        let entry = piece.pop_back()?;
        self.count -= 1;
        if piece.is_empty() && self.pieces.len() > 1 {
            self.pieces.pop_back();
        }
        Some(entry)
    }

    /// The place of the first entry. An entry keeps its place while others come and go.
    pub(crate) fn first_place(&self) -> u64 {
        self.front
    }

    /// The places of all entries.
    pub(crate) fn places(&self) -> Range<u64> {
        self.front..self.front + self.count as u64
    }

    /// The place of the first entry that is not `is_before`, or the place behind the last entry. The entries that are
    /// `is_before` come first.
    pub(crate) fn place_behind(&self, is_before: impl Fn(&T) -> bool) -> u64 {
        let Range { mut start, mut end } = self.places();
        while start < end {
            let middle = start + (end - start) / 2;
            match self.get(middle) {
                Some(entry) if is_before(entry) => start = middle + 1,
                _ => end = middle,
            }
        }
        start
    }

    /// The entry at a place.
    pub(crate) fn get(&self, place: u64) -> Option<&T> {
        let index = usize::try_from(place.checked_sub(self.front)?).ok()?;
        let first = self.pieces.front().map_or(0, VecDeque::len);
        match index.checked_sub(first) {
            None => self.pieces.front()?.get(index),
            Some(behind) => self.pieces.get(1 + behind / PIECE)?.get(behind % PIECE),
        }
    }

    /// The entries from `place` on, in order, without entries that were removed.
    pub(crate) fn iter_from(&self, place: u64) -> impl Iterator<Item = &T> {
        let index = usize::try_from(place.saturating_sub(self.front)).unwrap_or(usize::MAX);
        let first = self.pieces.front().map_or(0, VecDeque::len);
        let (piece, skipped) = match index.checked_sub(first) {
            None => (0, index),
            Some(behind) => (1 + behind / PIECE, behind % PIECE),
        };
        let piece = piece.min(self.pieces.len());
        let skipped = if index < self.count {
            skipped
        } else {
            usize::MAX
        };
        self.pieces.range(piece..).flatten().skip(skipped)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flatten()
    }

    /// Asserts the invariants written on the type.
    pub(crate) fn check(&self) {
        let lengths: Vec<usize> = self.pieces.iter().map(VecDeque::len).collect();
        assert_eq!(lengths.iter().sum::<usize>(), self.count);
        assert!(!lengths.is_empty() && lengths.iter().all(|length| *length <= PIECE));
        if let [first, inner @ .., last] = lengths.as_slice() {
            assert!(*first > 0 && *last > 0, "no empty piece");
            assert!(inner.iter().all(|length| *length == PIECE), "full inside");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn it_is_a_queue_whose_entries_keep_their_places() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut queue = LongQueue::default();
            let mut model: VecDeque<(u64, u64)> = VecDeque::new();
            let mut name = 0;
            for _ in 0..8 {
                let op = random.below(4);
                for _ in 0..random.below(2500) {
                    name += 1;
                    let first = queue.first_place();
                    let popped = match op {
                        0 => {
                            queue.push_back(name);
                            model.push_back((first + model.len() as u64, name));
                            None
                        }
                        1 => {
                            queue.push_front(name);
                            model.push_front((first - 1, name));
                            None
                        }
                        2 => Some((queue.pop_front(), model.pop_front())),
                        _ => Some((queue.pop_back(), model.pop_back())),
                    };
                    if let Some((popped, expected)) = popped {
                        assert_eq!(popped, expected.map(|(_, name)| name), "seed {seed}");
                    }
                }
                queue.check();
                assert_eq!(queue.len(), model.len());
                assert_eq!(queue.is_empty(), model.is_empty());
                assert!(queue.iter().eq(model.iter().map(|(_, name)| name)));
                assert_eq!(queue.front(), model.front().map(|(_, name)| name));
                assert_eq!(queue.back(), model.back().map(|(_, name)| name));
                let first = queue.first_place();
                for (place, name) in model.iter().step_by(97) {
                    assert_eq!(queue.get(*place), Some(name), "seed {seed}");
                }
                assert_eq!(queue.get(first - 1), None);
                assert_eq!(queue.get(first + model.len() as u64), None);
                for behind in [0, 1, 1023, 1024, 2500, random.below(5000)] {
                    let from = model.iter().filter(|(place, _)| *place >= first + behind);
                    let from = from.map(|(_, name)| name);
                    assert!(queue.iter_from(first + behind).eq(from), "seed {seed}");
                }
                assert!(queue.iter_from(0).eq(queue.iter()));
            }
        }
    }
}
