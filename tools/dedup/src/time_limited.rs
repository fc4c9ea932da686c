//! [`TimeLimitedBloom`]: a window in time, at varying rates.

use std::collections::VecDeque;
use std::time::Duration;

use crate::arithmetic::{
    affordable, age_partitioned_false_positives, half_full_bits, positive, probability, spare_bits,
};
use crate::bits::{Bits, Places};
use crate::error::{FilterOptionError, StateError};
use crate::filter::{Filter, UnixTime, far_ahead};
use crate::key::{Fingerprint, KeyHasher};
use crate::saved::{Reader, Saved, Writer};

/// The options of a [`TimeLimitedBloom`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeLimitedOptions {
    /// The time for which a key is remembered, at the least, up to `rate_max`. It must be longer than attempts ×
    /// (message timeout + requeue delay), and than the longest deferral: see `docs/deduplication.md`.
    pub window: Duration,
    /// The usual rate of keys, in keys per second.
    pub rate: f64,
    /// The rate up to which the window is kept, in keys per second, if it lasts for a whole window. At least `rate`.
    pub rate_max: f64,
    /// The probability that a fresh key is taken for a known one, at the most, at any load.
    pub false_positives_max: f64,
    /// The hasher of the keys.
    pub hasher: KeyHasher,
}

/// A filter that remembers keys for a time, from Rodrigues, Shtul, Baquero and Almeida, *Time-limited Bloom Filter*
/// (arXiv 2306.06742). It is built from the slices of *Age-Partitioned Bloom Filters* by the same authors (arXiv
/// 2001.03147).
///
/// ```text
///   slice    0   1  ...  k-1   k   k+1  ...  k+l-1
///            ▲   ▲        ▲    └── closed: kept until the window has passed since the slice was closed
///            └───┴────────┴─ remember(key) sets one bit in each of the first k slices
///   remembers(key): k neighbouring slices have its bits
/// ```
///
/// **The filter may drop a fresh message**: with a probability of up to `false_positives_max`, it takes a fresh key for
/// a known one.
///
/// A generation ends when it has `rate` · `window` / [`GENERATIONS`] keys, or when a [`GENERATIONS`]th of the window
/// has passed. Then all slices move one place, and an empty one comes first. So a higher rate makes more slices, each
/// of them as full as before, and the window stays. A generation also ends before one of its slices has more set bits
/// than the bound permits at its place. So `false_positives_max` holds at each moment, however the load changes
/// (`tests/load.rs`). Memory follows the rate, between that of an idle filter and [`bytes_max`](Filter::bytes_max).
/// Above `rate_max`, the filter forgets the oldest slice early: [`shortest_window`](TimeLimitedBloom::shortest_window)
/// says by how much the window was missed. A key is remembered for at most the window, a generation more, and the time
/// until the filter is next asked.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeLimitedBloom {
    options: TimeLimitedOptions,
    sizes: Sizes,
    /// The most set bits of each of the first `sizes.hashes` slices.
    set_max: Vec<u64>,
    /// The newest slice first. At least `sizes.hashes`.
    slices: VecDeque<Slice>,
    /// Keys of the newest generation.
    keys: u64,
    /// The time when the newest generation began.
    since: UnixTime,
    /// The latest time that the filter was told.
    now: UnixTime,
    shortest_window: Option<Duration>,
}

/// The parts into which the window is divided at the usual rate. With more parts, less is remembered beyond the window,
/// and a check takes longer.
pub const GENERATIONS: u32 = 10;

#[derive(Clone, Debug, PartialEq)]
struct Slice {
    /// The id of its hash function.
    id: u64,
    bits: Bits,
    /// The time when the slice took its last key. Only for closed slices.
    closed_at: UnixTime,
}

/// The sizes that follow from the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    /// The slices into which a key goes: k.
    hashes: u32,
    /// The most closed slices.
    closed_max: usize,
    /// Bits of a slice.
    bits: u64,
    /// The most keys of a generation.
    keys_max: u64,
}

/// Returns the most bits that may be set in each slice that takes keys, the newest slice first. Slice i is to be as
/// full as i + 1 of k generations make it, where k generations fill half of the bits: 1 − 2^(−(i+1)/k).
fn set_max(sizes: Sizes) -> Vec<u64> {
    let fill = |slice| 1.0 - 0.5_f64.powf(f64::from(slice) / f64::from(sizes.hashes));
    let fills = (1..=sizes.hashes).map(fill);
    // A slice of the smallest size takes one key.
    fills
        .map(|fill| ((sizes.bits as f64 * fill) as u64).max(1))
        .collect()
}

/// The most slices. More would make checks slow.
const SLICES_MAX: f64 = 1000.0;

impl Sizes {
    fn new(options: &TimeLimitedOptions) -> Result<Sizes, FilterOptionError> {
        positive("window", options.window.as_secs_f64())?;
        positive("rate", options.rate)?;
        positive("rate_max", options.rate_max)?;
        probability("false_positives_max", options.false_positives_max)?;
        let closed = f64::from(GENERATIONS) * options.rate_max / options.rate;
        if !(f64::from(GENERATIONS)..=SLICES_MAX).contains(&closed) {
            return Err(FilterOptionError {
                option: "rate_max",
                requirement: "at least the rate, and at most 100 times the rate",
                value: options.rate_max,
            });
        }
        // One more, because the oldest slice is kept until its newest key is old.
        let closed_max = closed.ceil() as usize + 1;
        let keys = options.rate * options.window.as_secs_f64() / f64::from(GENERATIONS);
        let keys_max = keys.ceil().max(1.0) as u64;
        // No slice is fuller than this: see `set_max`.
        let is_enough = |hashes: &u32| {
            let open = (1..=*hashes).map(|i| 1.0 - 0.5_f64.powf(f64::from(i) / f64::from(*hashes)));
            let fills: Vec<f64> = open.chain(std::iter::repeat_n(0.5, closed_max)).collect();
            age_partitioned_false_positives(&fills, *hashes) <= options.false_positives_max
        };
        let hashes = (2..=64).find(is_enough).ok_or(FilterOptionError {
            option: "false_positives_max",
            requirement: "larger, for this rate_max",
            value: options.false_positives_max,
        })?;
        let bits = spare_bits(keys_max as f64, hashes);
        let bytes = f64::from(hashes) * bits as f64 / 8.0;
        affordable("rate", options.rate, bytes)?;
        Ok(Sizes {
            hashes,
            closed_max,
            bits,
            keys_max,
        })
    }

    fn slices_max(&self) -> usize {
        self.hashes as usize + self.closed_max
    }
}

impl TimeLimitedBloom {
    /// Makes an empty filter.
    ///
    /// # Errors
    /// If an option has no meaning, if no filter keeps the bound on false positives up to `rate_max`, or if
    /// the filter does not fit into the memory of this machine.
    pub fn new(
        options: TimeLimitedOptions,
        now: UnixTime,
    ) -> Result<TimeLimitedBloom, FilterOptionError> {
        let sizes = Sizes::new(&options)?;
        let slice = |id: u32| Slice {
            id: id.into(),
            bits: Bits::new(sizes.bits),
            closed_at: now,
        };
        let mut slices = VecDeque::with_capacity(sizes.slices_max());
        slices.extend((0..sizes.hashes).rev().map(slice));
        Ok(TimeLimitedBloom {
            options,
            sizes,
            set_max: set_max(sizes),
            slices,
            keys: 0,
            since: now,
            now,
            shortest_window: None,
        })
    }

    /// Returns the options with which the filter was made.
    #[must_use]
    pub fn options(&self) -> &TimeLimitedOptions {
        &self.options
    }

    /// Returns the hasher of the filter's keys.
    #[must_use]
    pub fn hasher(&self) -> &KeyHasher {
        &self.options.hasher
    }

    /// Returns the probability that a fresh key is taken for a known one now, computed from the bits that are set.
    #[must_use]
    pub fn false_positives(&self) -> f64 {
        let fills: Vec<f64> = self.slices.iter().map(|slice| slice.bits.fill()).collect();
        age_partitioned_false_positives(&fills, self.sizes.hashes)
    }

    /// Returns the shortest time for which a key was remembered so far. `None`: never shorter than the window.
    #[must_use]
    pub fn shortest_window(&self) -> Option<Duration> {
        self.shortest_window
    }

    /// Returns the bytes of the lists, without the bits.
    fn list_bytes(&self) -> u64 {
        let lists =
            self.slices.capacity() * size_of::<Slice>() + self.set_max.len() * size_of::<u64>();
        lists as u64
    }

    /// Takes the time: ends the generations whose part of the window has passed, and forgets closed slices whose keys
    /// are all older than the window.
    fn handle_time(&mut self, now: UnixTime) {
        if let Some(ahead) = far_ahead(self.now, now, self.options.window) {
            for slice in &mut self.slices {
                slice.closed_at = slice.closed_at.saturating_sub(ahead);
            }
            self.since = self.since.saturating_sub(ahead);
            self.now = now;
        }
        self.now = self.now.max(now);
        let period = (self.options.window / GENERATIONS).max(Duration::from_nanos(1));
        // After this many generations without a key, no key is left.
        for _ in 0..self.sizes.hashes + 2 * GENERATIONS {
            let end = self.since + period;
            if end > self.now {
                break;
            }
            self.end_generation(end);
        }
        if self.since + period <= self.now {
            self.since = self.now;
        }
        self.retire();
    }

    /// Forgets closed slices whose keys are all older than the window.
    fn retire(&mut self) {
        let open = self.sizes.hashes as usize;
        while self.slices.len() > open {
            let oldest = &self.slices[self.slices.len() - 1];
            if oldest.closed_at + self.options.window > self.now {
                return;
            }
            self.slices.pop_back();
        }
    }

    /// Moves all slices one place, and begins an empty one.
    fn end_generation(&mut self, at: UnixTime) {
        let hashes = self.sizes.hashes as usize;
        self.slices[hashes - 1].closed_at = at;
        let id = self.slices[0].id + 1;
        if self.slices.len() == self.sizes.slices_max() {
            self.forget_early(at);
        }
        self.slices.push_front(Slice {
            id,
            bits: Bits::new(self.sizes.bits),
            closed_at: at,
        });
        self.keys = 0;
        self.since = at;
    }

    /// Returns true if one more key could make a slice fuller than the bound on false positives permits.
    fn is_full(&self) -> bool {
        let mut slices = self.slices.iter().zip(&self.set_max);
        slices.any(|(slice, set_max)| slice.bits.set_count() >= *set_max)
    }

    /// Forgets the oldest slice before the window has passed, because there is no room for another one.
    fn forget_early(&mut self, at: UnixTime) {
        let Some(oldest) = self.slices.pop_back() else {
            return;
        };
        let remembered = at.saturating_sub(oldest.closed_at);
        if remembered < self.options.window {
            let shortest = self.shortest_window.unwrap_or(remembered);
            self.shortest_window = Some(shortest.min(remembered));
        }
    }
}

impl Slice {
    fn place(&self, key: Fingerprint) -> u64 {
        Places::new(key, self.id).get(0, self.bits.len())
    }
}

impl Filter for TimeLimitedBloom {
    type Key = Fingerprint;

    /// Looks for k neighbouring slices with the key's bits, from the oldest slices to the newest. A slice without the
    /// key's bit rules out every run that contains the slice. So a fresh key costs some two checks for every k slices.
    fn remembers(&mut self, key: Fingerprint, now: UnixTime) -> bool {
        self.handle_time(now);
        let run_length = self.sizes.hashes as usize;
        let has = |slice: usize| self.slices[slice].bits.get(self.slices[slice].place(key));
        let mut end = self.slices.len();
        while end >= run_length {
            match (end - run_length..end).find(|slice| !has(*slice)) {
                None => return true,
                Some(clear) => end = clear,
            }
        }
        false
    }

    fn remember(&mut self, key: Fingerprint, now: UnixTime) {
        self.handle_time(now);
        // Each pass moves the slices one place, so after `hashes` passes all of them are empty.
        while self.keys >= self.sizes.keys_max || self.is_full() {
            self.end_generation(self.now);
            self.retire();
        }
        for slice in self.slices.iter_mut().take(self.sizes.hashes as usize) {
            let place = slice.place(key);
            slice.bits.set(place);
        }
        self.keys += 1;
    }

    fn bytes(&self) -> u64 {
        let bits: u64 = self.slices.iter().map(|slice| slice.bits.bytes()).sum();
        self.list_bytes() + bits
    }

    fn bytes_max(&self) -> u64 {
        let bits = self.sizes.slices_max() as u64 * self.sizes.bits.div_ceil(64) * 8;
        self.list_bytes() + bits
    }
}

impl Saved for TimeLimitedBloom {
    const NAME: &'static str = "time-limited-bloom";

    fn write(&self, out: &mut Writer<'_>) -> std::io::Result<()> {
        let options = &self.options;
        out.put(&options.hasher.secret())?;
        out.duration(options.window)?;
        for number in [options.rate, options.rate_max, options.false_positives_max] {
            out.put(&number.to_le_bytes())?;
        }
        out.duration(self.now)?;
        out.duration(self.since)?;
        out.duration(self.shortest_window.unwrap_or(Duration::MAX))?;
        out.u64(self.sizes.bits)?;
        out.u64(self.keys)?;
        out.u64(self.slices.len() as u64)?;
        for slice in &self.slices {
            out.u64(slice.id)?;
            out.duration(slice.closed_at)?;
            out.bits(&slice.bits)?;
        }
        Ok(())
    }

    fn read(input: &mut Reader<'_>) -> Result<TimeLimitedBloom, StateError> {
        let options = TimeLimitedOptions {
            hasher: KeyHasher::new(input.array()?),
            window: input.duration()?,
            rate: f64::from_le_bytes(input.array()?),
            rate_max: f64::from_le_bytes(input.array()?),
            false_positives_max: f64::from_le_bytes(input.array()?),
        };
        let damaged = |_| StateError::Damaged("options without meaning");
        let mut sizes = Sizes::new(&options).map_err(damaged)?;
        let (now, since, shortest) = (input.duration()?, input.duration()?, input.duration()?);
        let plain = half_full_bits(sizes.keys_max as f64, sizes.hashes);
        sizes.bits = input.size(plain, sizes.bits)?;
        let keys = input.u64()?;
        let count = input.u64()?;
        let range = u64::from(sizes.hashes)..=sizes.slices_max() as u64;
        if !range.contains(&count) {
            return Err(StateError::Damaged("a number of slices without meaning"));
        }
        let saved = input.list(count, |input| {
            Ok(Slice {
                id: input.u64()?,
                closed_at: input.duration()?,
                bits: input.bits(sizes.bits)?,
            })
        })?;
        let mut slices = VecDeque::with_capacity(sizes.slices_max());
        slices.extend(saved);
        Ok(TimeLimitedBloom {
            options,
            sizes,
            set_max: set_max(sizes),
            slices,
            keys,
            since,
            now,
            shortest_window: (shortest < Duration::MAX).then_some(shortest),
        })
    }
}

#[cfg(test)]
mod tests;
