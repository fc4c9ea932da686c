//! [`Ring`]: the places of the window's dense part. It grows piece by piece, without moving the places that are there.

use crate::ids::ClientId;
use std::collections::VecDeque;
use std::time::Duration;

/// Places per piece. A ring up to this length is one piece.
pub(super) const PIECE: usize = 8192;

/// One message in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The connection that must finish it.
    pub owner: ClientId,
    /// Deliveries so far, this one included; saturates at 65,535.
    pub attempts: u16,
    /// The time at which it goes back to the queue.
    pub deadline: Duration,
    /// The time at which it was handed to the owner: TOUCH may not go beyond this plus --max-msg-timeout.
    pub delivered: Duration,
}

type Place = Option<Entry>;

/// A queue of places in pieces, with access by position.
///
/// Nearly all rings are one piece, and `first` is looked at first. A [`LongQueue`](crate::long_queue::LongQueue) would
/// cost more for each message in flight.
///
/// Invariants: no piece has more than [`PIECE`] places; all pieces of `rest` except the last have exactly [`PIECE`]
/// places; no piece of `rest` is empty, and `first` is empty only if the ring is empty; `rest_len` is the number of
/// places in `rest`.
#[derive(Debug, Default)]
pub(super) struct Ring {
    first: VecDeque<Place>,
    rest: VecDeque<VecDeque<Place>>,
    rest_len: usize,
}

impl Ring {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.first.len() + self.rest_len
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<&Place> {
        self.first.get(at).or_else(|| self.get_behind(at))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Place> {
        if at < self.first.len() {
            return self.first.get_mut(at);
        }
        self.get_mut_behind(at)
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&Place> {
        self.first.front()
    }

    /// Removes the first place. Returns true if the next place is free, or in another piece: then it is time for
    /// [`Ring::pop_free`].
    #[inline]
    pub(super) fn pop_front(&mut self) -> bool {
        self.first.pop_front();
        match self.first.front() {
            Some(place) => place.is_none(),
            None => self.next_piece(),
        }
    }

    /// Removes the free places at the front, up to the end of the first piece. Returns their number.
    pub(super) fn pop_free(&mut self) -> u64 {
        let mut count = 0;
        loop {
            match self.first.front() {
                Some(None) => {
                    self.first.pop_front();
                    count += 1;
                }
                Some(Some(_)) => return count,
                None => {
                    self.next_piece();
                    return count;
                }
            }
        }
    }

    /// Adds `count` places with the same content at the end.
    #[inline]
    pub(super) fn extend(&mut self, place: Place, count: usize) {
        if self.rest.is_empty() && self.first.len() + count <= PIECE {
            for _ in 0..count {
                self.first.push_back(place);
            }
        } else {
            self.extend_rest(place, count);
        }
    }

    /// Returns the places from position `at` on.
    pub(super) fn iter_from(&self, at: usize) -> impl Iterator<Item = &Place> {
        let first = self.first.range(at.min(self.first.len())..);
        let behind = at.saturating_sub(self.first.len());
        let (piece, skipped) = (behind / PIECE, behind % PIECE);
        let rest = self.rest.range(piece.min(self.rest.len())..).enumerate();
        first.chain(rest.flat_map(move |(index, piece)| {
            let skipped = if index == 0 { skipped } else { 0 };
            piece.range(skipped.min(piece.len())..)
        }))
    }

    /// Counts the places in use, for invariant checks.
    pub(super) fn used_count(&self) -> u64 {
        let pieces = std::iter::once(&self.first).chain(&self.rest);
        let used = pieces.map(|piece| piece.iter().filter(|place| place.is_some()).count());
        used.sum::<usize>() as u64
    }

    /// Asserts the invariants written on the type.
    pub(super) fn check(&self) {
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

    #[cold]
    fn get_behind(&self, at: usize) -> Option<&Place> {
        let behind = at.checked_sub(self.first.len())?;
        self.rest.get(behind / PIECE)?.get(behind % PIECE)
    }

    #[cold]
    fn get_mut_behind(&mut self, at: usize) -> Option<&mut Place> {
        let behind = at.checked_sub(self.first.len())?;
        self.rest.get_mut(behind / PIECE)?.get_mut(behind % PIECE)
    }

    /// Makes the next piece the first, after the first piece has become empty. Returns whether there was a next piece.
    #[cold]
    fn next_piece(&mut self) -> bool {
        let Some(piece) = self.rest.pop_front() else {
            return false;
        };
        self.rest_len -= piece.len();
        self.first = piece;
        true
    }

    #[cold]
    fn extend_rest(&mut self, place: Place, mut count: usize) {
        if self.rest.is_empty() {
            let room = PIECE - self.first.len();
            self.first.extend(std::iter::repeat_n(place, room));
            count -= room;
        }
        self.rest_len += count;
        while count > 0 {
            let last = match self.rest.back_mut() {
                Some(last) if last.len() < PIECE => last,
                _ => self.rest.push_back_mut(VecDeque::with_capacity(PIECE)),
            };
            let room = count.min(PIECE - last.len());
            last.extend(std::iter::repeat_n(place, room));
            count -= room;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use crate::ids::client_id;
    use std::time::Duration;

    fn entry(name: u64) -> Entry {
        Entry {
            owner: client_id(1),
            attempts: 1,
            deadline: Duration::from_nanos(name),
            delivered: Duration::ZERO,
        }
    }

    #[test]
    fn it_is_a_queue_with_access_by_position() {
        for seed in 0..100 {
            let mut random = Random::new(seed);
            let mut ring = Ring::default();
            let mut model: VecDeque<Place> = VecDeque::new();
            for name in 0..60 {
                let place = (random.below(3) > 0).then(|| entry(name));
                let count = random.below(3 * PIECE as u64) as usize;
                match random.below(6) {
                    0 | 1 => {
                        ring.extend(place, count);
                        model.extend(std::iter::repeat_n(place, count));
                    }
                    2 | 3 => {
                        for _ in 0..count {
                            assert_eq!(ring.front(), model.pop_front().as_ref(), "seed {seed}");
                            let next = model.front();
                            assert!(ring.pop_front() || next.is_none_or(Option::is_some));
                        }
                    }
                    4 => {
                        let free = model.iter().take_while(|place| place.is_none()).count();
                        let popped = ring.pop_free() as usize;
                        let is_enough = popped == free || (1..=PIECE).contains(&popped);
                        assert!(popped <= free && is_enough, "seed {seed}");
                        model.drain(..popped);
                    }
                    _ => {
                        let at = random.below(1 + model.len() as u64) as usize;
                        assert_eq!(ring.get(at), model.get(at), "seed {seed}");
                        assert_eq!(ring.get_mut(at), model.get_mut(at), "seed {seed}");
                        if let Some(found) = ring.get_mut(at) {
                            *found = place;
                            model[at] = place;
                        }
                    }
                }
                ring.check();
                assert_eq!(
                    (ring.len(), ring.is_empty()),
                    (model.len(), model.is_empty())
                );
                let at = random.below(1 + model.len() as u64) as usize;
                assert!(ring.iter_from(at).eq(model.range(at..)), "seed {seed}");
                assert_eq!(ring.iter_from(model.len() + 1).next(), None);
            }
        }
    }
}
