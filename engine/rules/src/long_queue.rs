//! A queue that may hold millions of entries: no call moves more than a piece of it.
//!
//! A [`VecDeque`] that is full moves all of its entries, which takes 30 ms for ten million of them.

use std::collections::VecDeque;
use std::ops::Range;

/// Entries per piece. A queue up to this length is one piece.
pub(crate) const PIECE: usize = 8192;

/// A double-ended queue in pieces. Nearly all queues are one piece, and `first` is looked at first.
///
/// Invariants: no piece has more than [`PIECE`] entries; all pieces of `rest` except the last have exactly [`PIECE`]
/// entries; no piece of `rest` is empty, and `first` is empty only if the queue is empty; `rest_len` is the number of
/// entries in `rest`.
#[derive(Debug, Clone)]
pub(crate) struct LongQueue<T> {
    first: VecDeque<T>,
    rest: VecDeque<VecDeque<T>>,
    rest_len: usize,
    /// The place of the first entry: entries removed at the front minus entries added there.
    front: u64,
}

impl<T> Default for LongQueue<T> {
    fn default() -> LongQueue<T> {
        LongQueue {
            first: VecDeque::new(),
            rest: VecDeque::new(),
            rest_len: 0,
            // Entries may come back to the front of a queue that is new.
            front: 1 << 63,
        }
    }
}

impl<T> LongQueue<T> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.rest_len
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&T> {
        self.first.front()
    }

    #[inline]
    pub(crate) fn front_mut(&mut self) -> Option<&mut T> {
        self.first.front_mut()
    }

    #[inline]
    pub(crate) fn back(&self) -> Option<&T> {
        self.rest.back().unwrap_or(&self.first).back()
    }

    #[inline]
    pub(crate) fn back_mut(&mut self) -> Option<&mut T> {
        self.rest.back_mut().unwrap_or(&mut self.first).back_mut()
    }

    #[inline]
    pub(crate) fn push_back(&mut self, entry: T) {
        if self.rest.is_empty() && self.first.len() < PIECE {
            return self.first.push_back(entry);
        }
        self.push_rest(entry);
    }

    #[cold]
    fn push_rest(&mut self, entry: T) {
        self.rest_len += 1;
        let last = match self.rest.back_mut() {
            Some(last) if last.len() < PIECE => last,
            _ => self.rest.push_back_mut(VecDeque::with_capacity(PIECE)),
        };
        last.push_back(entry);
    }

    /// Adds `count` entries with the same content at the end.
    #[inline]
    pub(crate) fn extend(&mut self, entry: T, count: usize)
    where
        T: Copy,
    {
        if self.rest.is_empty() && self.first.len() + count <= PIECE {
            (0..count).for_each(|_| self.first.push_back(entry));
        } else {
            (0..count).for_each(|_| self.push_back(entry));
        }
    }

    /// Adds an entry in front of all others.
    pub(crate) fn push_front(&mut self, entry: T) {
        self.front -= 1;
        if self.first.len() == PIECE {
            let full = std::mem::take(&mut self.first);
            self.rest_len += full.len();
            self.rest.push_front(full);
        }
        self.first.push_front(entry);
    }

    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let entry = self.first.pop_front()?;
        self.front += 1;
        if self.first.is_empty() {
            self.next_piece();
        }
        Some(entry)
    }

    /// Makes the next piece the first, after the first piece has become empty.
    #[cold]
    fn next_piece(&mut self) {
        if let Some(piece) = self.rest.pop_front() {
            self.rest_len -= piece.len();
            self.first = piece;
        }
    }

    pub(crate) fn pop_back(&mut self) -> Option<T> {
        let Some(last) = self.rest.back_mut() else {
            return self.first.pop_back();
        };
        self.rest_len -= 1;
        let entry = last.pop_back();
        if last.is_empty() {
            self.rest.pop_back();
        }
        entry
    }

    /// The place of the first entry. An entry keeps its place while others come and go.
    #[inline]
    pub(crate) fn first_place(&self) -> u64 {
        self.front
    }

    /// Sets the place of the next entry of an empty queue.
    pub(crate) fn begin_at(&mut self, place: u64) {
        assert!(self.is_empty(), "entries keep their places");
        self.front = place;
    }

    /// The places of all entries.
    pub(crate) fn places(&self) -> Range<u64> {
        self.front..self.front + self.len() as u64
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
    #[inline]
    pub(crate) fn get(&self, place: u64) -> Option<&T> {
        let index = place.checked_sub(self.front)? as usize;
        self.first.get(index).or_else(|| self.get_rest(index))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, place: u64) -> Option<&mut T> {
        let index = place.checked_sub(self.front)? as usize;
        if index < self.first.len() {
            return self.first.get_mut(index);
        }
        self.get_rest_mut(index)
    }

    #[cold]
    fn get_rest(&self, index: usize) -> Option<&T> {
        let behind = index.checked_sub(self.first.len())?;
        self.rest.get(behind / PIECE)?.get(behind % PIECE)
    }

    #[cold]
    fn get_rest_mut(&mut self, index: usize) -> Option<&mut T> {
        let behind = index.checked_sub(self.first.len())?;
        self.rest.get_mut(behind / PIECE)?.get_mut(behind % PIECE)
    }

    /// The entries from `place` on, in order, without entries that were removed.
    pub(crate) fn iter_from(&self, place: u64) -> impl Iterator<Item = &T> {
        let index = place.saturating_sub(self.front).min(self.len() as u64) as usize;
        let behind = index.saturating_sub(self.first.len());
        let first = self.first.range(index.min(self.first.len())..);
        let rest = self.rest.range((behind / PIECE).min(self.rest.len())..);
        first.chain(rest.flatten().skip(behind % PIECE))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.iter_from(self.front)
    }

    /// Asserts the invariants written on the type.
    pub(crate) fn check(&self) {
        let lengths: Vec<usize> = self.rest.iter().map(VecDeque::len).collect();
        assert_eq!(lengths.iter().sum::<usize>(), self.rest_len);
        assert!(self.first.len() <= PIECE && lengths.iter().all(|length| *length <= PIECE));
        assert!(
            !self.first.is_empty() || self.rest.is_empty(),
            "no empty piece"
        );
        if let [inner @ .., last] = lengths.as_slice() {
            assert!(*last > 0, "no empty piece");
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
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let mut queue = LongQueue::default();
            let mut model: VecDeque<(u64, u64)> = VecDeque::new();
            let mut name = 0;
            for _ in 0..8 {
                let op = random.below(5);
                for _ in 0..random.below(3 * PIECE as u64) {
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
                        3 => {
                            let count = random.below(5);
                            queue.extend(name, count as usize);
                            let end = first + model.len() as u64;
                            model.extend((end..end + count).map(|place| (place, name)));
                            None
                        }
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
                for (place, name) in model.iter_mut().step_by(97) {
                    assert_eq!(queue.get(*place), Some(&*name), "seed {seed}");
                    assert_eq!(queue.get_mut(*place), Some(name), "seed {seed}");
                }
                assert_eq!(queue.get(first - 1), None);
                assert_eq!(queue.get(first + model.len() as u64), None);
                for behind in [0, 1, PIECE as u64 - 1, PIECE as u64, random.below(50_000)] {
                    let from = model.iter().filter(|(place, _)| *place >= first + behind);
                    let from = from.map(|(_, name)| name);
                    assert!(queue.iter_from(first + behind).eq(from), "seed {seed}");
                }
                assert!(queue.iter_from(0).eq(queue.iter()));
            }
        }
    }
}
