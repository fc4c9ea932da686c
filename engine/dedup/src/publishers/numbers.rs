//! [`Numbers`]: the numbers of messages that a topic has stored from one publisher.
//!
//! ```text
//!                    first                     end - window                              end
//!   not remembered ... | all of them were stored | one bit each: stored or not            | not stored
//! ```
//!
//! A publisher counts upwards, so nearly always the next number is `end`. Several connections of one publisher mix
//! their numbers, so a lower number may come later: the bits tell whether it was stored. A publisher without gaps has
//! all of its earlier numbers in the run before the bits, however many these are.

/// The knowledge about a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// No message with this number was stored.
    Fresh,
    /// A message with this number was stored.
    Stored,
    /// The number lies below all that is remembered.
    Forgotten,
}

/// The numbers of one publisher, without the bits. The bits are in a table of their own: bit `n % window` is set if
/// number `n` of the last `window` numbers below `end` was stored.
///
/// Invariant: `first` is at most the larger one of 0 and `end - window`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// One above the highest number. 0: there is none.
    pub(crate) end: u64,
    /// All numbers from this one up to `end - window` were stored.
    pub(crate) first: u64,
}

impl Numbers {
    /// Returns what is known of `number`.
    #[inline]
    pub(crate) fn find(&self, bits: &[u64], number: u64) -> Known {
        let window = bits.len() as u64 * 64;
        if number >= self.end {
            Known::Fresh
        } else if self.end - number <= window {
            if is_set(bits, number) {
                Known::Stored
            } else {
                Known::Fresh
            }
        } else if number >= self.first {
            Known::Stored
        } else {
            Known::Forgotten
        }
    }

    /// Remembers that `number` was stored. A number below the bits is not remembered.
    #[inline]
    pub(crate) fn insert(&mut self, bits: &mut [u64], number: u64) {
        let window = bits.len() as u64 * 64;
        if number >= self.end {
            self.advance(bits, number + 1);
        }
        if self.end - number <= window {
            bits[word(bits, number)] |= mask(number);
        }
    }

    /// Returns the same numbers with the window of `bits`, which are all 0 and are filled. `own` are the bits so far.
    pub(crate) fn with_window(&self, own: &[u64], bits: &mut [u64]) -> Numbers {
        if own.len() == bits.len() {
            bits.copy_from_slice(own);
            return *self;
        }
        let low = |bits: &[u64]| self.end.saturating_sub(bits.len() as u64 * 64);
        let (own_low, low) = (low(own), low(bits));
        let mut first = self.first;
        for number in own_low..low {
            if !is_set(own, number) {
                first = number + 1;
            }
        }
        for number in low..self.end {
            let is_stored = if number >= own_low {
                is_set(own, number)
            } else {
                number >= self.first
            };
            if is_stored {
                bits[word(bits, number)] |= mask(number);
            }
        }
        Numbers {
            end: self.end,
            first: first.min(low),
        }
    }

    /// Moves the bits up to a new end. The numbers that leave the bits join the run before the bits. A number that was
    /// not stored ends the run: a later run begins behind it.
    #[inline]
    fn advance(&mut self, bits: &mut [u64], end: u64) {
        let window = bits.len() as u64 * 64;
        if end - self.end > window {
            bits.fill(0);
            self.first = end - window;
            self.end = end;
            return;
        }
        let mut number = self.end;
        while number < end {
            // The numbers that leave have the bits of the numbers that come. A word of them takes one step: a step for
            // each number of a large window would hold up the shard.
            let first_bit = number % 64;
            let count = (64 - first_bit).min(end - number);
            let mask = u64::MAX >> (64 - count) << first_bit;
            let word = &mut bits[word(bits, number)];
            let not_stored = !*word & mask;
            *word &= !mask;
            if let Some(last) = not_stored.checked_ilog2()
                && let Some(leaves) = (number - first_bit + u64::from(last)).checked_sub(window)
            {
                self.first = leaves + 1;
            }
            number += count;
        }
        self.end = end;
    }
}

#[inline]
fn word(bits: &[u64], number: u64) -> usize {
    (number / 64 % bits.len() as u64) as usize
}

#[inline]
fn mask(number: u64) -> u64 {
    1 << (number % 64)
}

#[inline]
fn is_set(bits: &[u64], number: u64) -> bool {
    bits[word(bits, number)] & mask(number) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskq_log::Random;
    use std::collections::BTreeSet;

    const WINDOW: u64 = 128;

    #[derive(Default)]
    struct Small {
        numbers: Numbers,
        bits: [u64; 2],
        all: BTreeSet<u64>,
    }

    impl Small {
        fn insert(&mut self, number: u64) {
            self.numbers.insert(&mut self.bits, number);
            self.all.insert(number);
        }

        fn find(&self, number: u64) -> Known {
            self.numbers.find(&self.bits, number)
        }

        /// Nothing that was not stored may count as stored, and within the window nothing is forgotten.
        fn check(&self, number: u64) {
            let known = self.find(number);
            let is_stored = self.all.contains(&number);
            assert!(is_stored || known != Known::Stored, "{number} is lost");
            let is_near = number + WINDOW >= self.numbers.end;
            assert!(!is_near || known != Known::Forgotten, "{number}");
            assert!(!is_stored || !is_near || known == Known::Stored, "{number}");
            let has_invariant = self.numbers.first <= self.numbers.end.saturating_sub(WINDOW);
            assert!(has_invariant, "{:?}", self.numbers);
        }
    }

    #[test]
    fn numbers_without_gaps_are_remembered_as_a_whole() {
        let mut small = Small::default();
        (0..100_000).for_each(|number| small.insert(number));
        for number in [0, 1, 500, 99_000, 99_999] {
            assert_eq!(small.find(number), Known::Stored);
        }
        assert_eq!(small.find(100_000), Known::Fresh);
    }

    /// RabbitMQ's streams count every number below the highest one as stored.
    #[test]
    fn rabbitmq_streams_gap_behind_a_higher_id() {
        let mut small = Small::default();
        small.insert(5);
        small.insert(9);
        assert_eq!(small.find(7), Known::Fresh);
        assert_eq!(small.find(0), Known::Fresh);
        small.insert(7);
        assert_eq!(small.find(7), Known::Stored);
        assert_eq!(small.find(8), Known::Fresh);
    }

    #[test]
    fn a_gap_that_leaves_the_window_forgets_what_is_below_it() {
        let mut small = Small::default();
        (0..10).for_each(|number| small.insert(number));
        (11..400).for_each(|number| small.insert(number));
        assert_eq!(small.find(9), Known::Forgotten);
        assert_eq!(small.find(10), Known::Forgotten);
        assert_eq!(small.find(11), Known::Stored);
        small.insert(10);
        assert_eq!(small.find(10), Known::Forgotten);
    }

    #[test]
    fn a_long_jump_forgets_everything_below_the_window() {
        let mut small = Small::default();
        (0..10).for_each(|number| small.insert(number));
        small.insert(1_000_000);
        assert_eq!(small.find(5), Known::Forgotten);
        assert_eq!(small.find(1_000_000 - WINDOW), Known::Forgotten);
        assert_eq!(small.find(1_000_001 - WINDOW), Known::Fresh);
        small.insert(wire::origin::NUMBER_MAX);
        assert_eq!(small.find(wire::origin::NUMBER_MAX), Known::Stored);
        assert_eq!(small.find(1_000_000), Known::Forgotten);
    }

    /// A window that grows or shrinks knows what it can, and nothing that was not stored.
    #[test]
    fn a_window_of_another_size_knows_the_same_numbers() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut small = Small::default();
            let first = random.below(400);
            for number in first..first + random.below(600) {
                if random.below(60) > 0 {
                    small.insert(number);
                }
            }
            for words in [1, 2, 3, 8] {
                let mut bits = vec![0; words];
                let numbers = small.numbers.with_window(&small.bits, &mut bits);
                let low = numbers.end.saturating_sub(words as u64 * 64);
                assert!(numbers.first <= low);
                for number in 0..numbers.end + 2 {
                    let (before, after) = (small.find(number), numbers.find(&bits, number));
                    let is_near = number >= low;
                    let is_same = match before {
                        Known::Forgotten => after != Known::Stored,
                        Known::Stored if is_near => after == Known::Stored,
                        Known::Stored => after != Known::Fresh,
                        Known::Fresh => after != Known::Stored,
                    };
                    assert!(is_same, "{seed} {words} {number}: {before:?} {after:?}");
                }
            }
        }
    }

    #[test]
    fn random_numbers_agree_with_a_set() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let mut small = Small::default();
            let mut next = random.below(300);
            for _ in 0..400 {
                let number = match random.below(20) {
                    0 => next + random.below(300),
                    1..=6 => next.saturating_sub(random.below(200)),
                    _ => next,
                };
                small.check(number);
                small.insert(number);
                next = next.max(number + 1);
                small.check(number);
                small.check(next.saturating_sub(random.below(300)));
            }
        }
    }
}
