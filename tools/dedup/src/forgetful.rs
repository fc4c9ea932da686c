//! [`ForgetfulBloom`]: Bloom filters of the future, the present and the past.

use std::collections::VecDeque;
use std::time::Duration;

use crate::arithmetic::{
    affordable, forgetful_false_positives, half_full_bits, positive, probability, spare_bits,
};
use crate::bits::{Bits, Places};
use crate::error::{FilterOptionError, StateError};
use crate::filter::{Filter, UnixTime, far_ahead};
use crate::key::{Fingerprint, KeyHasher};
use crate::saved::{Reader, Saved, Writer};

/// The options of a [`ForgetfulBloom`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForgetfulOptions {
    /// The number of filters: one of the future, one of the present, and the others of the past. At least 3. With more
    /// filters, the window is more even.
    pub filters: usize,
    /// The time for which a key is remembered, at the least, up to the rate below. It must be longer than attempts ×
    /// (message timeout + requeue delay), and than the longest deferral: see `docs/explain/deduplication.md`.
    pub window: Duration,
    /// The rate of keys for which the filter is made, in keys per second.
    pub rate: f64,
    /// The probability that a fresh key is taken for a known one, at the most, at any load.
    pub false_positives_max: f64,
    /// The hasher of the keys.
    pub hasher: KeyHasher,
}

/// A filter that forgets old keys, from Subramanyam, Gupta, Leslie and Wang, *Idempotent distributed counters using a
/// forgetful Bloom filter* (Cluster Computing, 2016).
///
/// ```text
///   remember(key): into ──► future   present   past ... past     a refresh moves each filter one place to the right,
///                           └─────────┘                          drops the last one, and begins an empty future
///   remembers(key): two neighbouring filters have it
/// ```
///
/// **The filter may drop a fresh message**: with a probability of up to `false_positives_max`, it takes a fresh key for
/// a known one.
///
/// A key stands in two filters, and each refresh moves both of them. So with F filters, a key is remembered for at
/// least F − 2 periods, and for at most F − 1. A period is `window` / (F − 2). Neighbouring filters have independent
/// hash functions, so the false positives of a pair are the product of those of its filters.
///
/// # When the load changes
///
/// Memory stays constant. So does the time per key on average: a refresh clears a whole filter, and so takes longer
/// than other keys do. The bound on false positives holds at each moment, because the filter refreshes early when the
/// filter of the present has all keys that it may have, or the filter of the future has half of them (`tests/load.rs`).
/// Then the window is shorter than asked for: [`shortest_window`](ForgetfulBloom::shortest_window) says by how much.
#[derive(Clone, Debug, PartialEq)]
pub struct ForgetfulBloom {
    options: ForgetfulOptions,
    sizes: Sizes,
    /// The future first.
    filters: VecDeque<AgedFilter>,
    /// The times of the last refreshes, newest first. As many as the periods for which a key is remembered.
    refreshes: VecDeque<UnixTime>,
    /// The latest time that the filter was told.
    now: UnixTime,
    shortest_window: Option<Duration>,
}

/// One filter of the order. A refresh makes it older by one place.
#[derive(Clone, Debug, PartialEq)]
struct AgedFilter {
    /// The id of its hash functions.
    id: u64,
    bits: Bits,
}

impl ForgetfulBloom {
    /// Makes an empty filter. It takes its whole memory at once: see [`bytes`](Filter::bytes).
    ///
    /// # Errors
    /// If an option has no meaning, or if the filter does not fit into the memory of this machine.
    pub fn new(
        options: ForgetfulOptions,
        now: UnixTime,
    ) -> Result<ForgetfulBloom, FilterOptionError> {
        let sizes = sizes(&options)?;
        let filters = options.filters;
        let aged = |id: usize| AgedFilter {
            id: id as u64,
            bits: Bits::new(sizes.bits),
        };
        Ok(ForgetfulBloom {
            options,
            sizes,
            filters: (0..filters).rev().map(aged).collect(),
            refreshes: std::iter::repeat_n(now, filters - 1).collect(),
            now,
            shortest_window: None,
        })
    }

    /// Returns the options with which the filter was made.
    #[must_use]
    pub fn options(&self) -> &ForgetfulOptions {
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
        let fills: Vec<f64> = self
            .filters
            .iter()
            .map(|filter| filter.bits.fill())
            .collect();
        forgetful_false_positives(&fills, self.sizes.hashes)
    }

    /// Returns the shortest time for which a key was remembered so far. `None`: never shorter than the window.
    #[must_use]
    pub fn shortest_window(&self) -> Option<Duration> {
        self.shortest_window
    }

    /// Takes the time, and refreshes as often as a period has passed.
    fn handle_time(&mut self, now: UnixTime) {
        if let Some(ahead) = far_ahead(self.now, now, self.options.window) {
            for at in &mut self.refreshes {
                *at = at.saturating_sub(ahead);
            }
            self.now = now;
        }
        self.now = self.now.max(now);
        let period = period(&self.options);
        // After this many refreshes, nothing is left.
        for _ in 0..self.filters.len() {
            let due = self.refreshes[0] + period;
            if due > self.now {
                return;
            }
            self.refresh(due);
        }
        self.refreshes.make_contiguous().fill(self.now);
    }

    /// Makes the future the present, and forgets the oldest filter.
    fn refresh(&mut self, at: UnixTime) {
        let last = self.filters.len() - 1;
        let id = self.filters[0].id + 1;
        let mut future = self.filters.remove(last).expect("there are at least 3");
        future.id = id;
        future.bits.clear();
        self.filters.push_front(future);
        self.refreshes.pop_back();
        self.refreshes.push_front(at);
        // The newest keys that this refresh forgets came just before the last of the remembered refreshes.
        let remembered = at.saturating_sub(self.refreshes[self.refreshes.len() - 1]);
        if remembered < self.options.window && self.holds_early_keys() {
            let shortest = self.shortest_window.unwrap_or(remembered);
            self.shortest_window = Some(shortest.min(remembered));
        }
    }

    /// Returns whether the oldest pair has keys. The pairs of a new filter have none yet.
    fn holds_early_keys(&self) -> bool {
        let last = self.filters.len() - 1;
        self.filters[last].bits.set_count() > 0
    }

    /// Returns true if one more key could make a filter fuller than the bound on false positives permits. Then one
    /// refresh is enough: the filter of the future, which becomes that of the present, has at most half of the keys
    /// that it may have.
    fn is_full(&self) -> bool {
        let after =
            |index: usize| self.filters[index].bits.set_count() + u64::from(self.sizes.hashes);
        after(0) > self.sizes.future_max() || after(1) > self.sizes.set_max()
    }

    fn has(&self, filter: &AgedFilter, key: Fingerprint) -> bool {
        let places = Places::new(key, filter.id);
        let bits = &filter.bits;
        (0..self.sizes.hashes).all(|number| bits.get(places.get(number, bits.len())))
    }
}

/// The sizes of each filter.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sizes {
    hashes: u32,
    bits: u64,
    /// The part of bits that may be set in a filter: with it, all pairs together have `false_positives_max`.
    fill_max: f64,
}

impl Sizes {
    /// Returns the most bits that may be set in a filter.
    fn set_max(self) -> u64 {
        (self.bits as f64 * self.fill_max) as u64
    }

    /// Returns the most bits that may be set in the filter of the future. The future takes as many keys again when it
    /// is the present. So it is full with half of the keys of a full filter, and then has this part of its bits set: 1
    /// − √(1 − r), if a full filter has the part r.
    fn future_max(self) -> u64 {
        (self.bits as f64 * (1.0 - (1.0 - self.fill_max).sqrt())) as u64
    }
}

/// Returns the sizes that the options ask for.
fn sizes(options: &ForgetfulOptions) -> Result<Sizes, FilterOptionError> {
    if !(3..=64).contains(&options.filters) {
        return Err(FilterOptionError {
            option: "filters",
            requirement: "at least 3 and at most 64",
            value: options.filters as f64,
        });
    }
    positive("window", options.window.as_secs_f64())?;
    positive("rate", options.rate)?;
    probability("false_positives_max", options.false_positives_max)?;
    // A pair may have this part of the false positives, and each of its filters the square root.
    let pair = options.false_positives_max / (options.filters - 1) as f64;
    let hashes = (0.5 * (1.0 / pair).log2()).ceil().max(1.0) as u32;
    let keys = keys(options);
    // The filter of the future must take one key at least. It is full with about a quarter of its bits set, so a
    // quarter of the bits must be more than one key sets.
    let bits = spare_bits(keys, hashes).max(8 * u64::from(hashes));
    let bytes = options.filters as f64 * bits as f64 / 8.0;
    affordable("rate", options.rate, bytes)?;
    // The bound permits this part of set bits in a filter: r^(2k) = pair.
    let fill_max = pair.powf(0.5 / f64::from(hashes));
    Ok(Sizes {
        hashes,
        bits,
        fill_max,
    })
}

/// Returns the keys for which a filter is made. It takes keys for two periods: as the future, and as the present. The
/// period is rounded down, as it was when saved filters got their sizes.
fn keys(options: &ForgetfulOptions) -> f64 {
    let period = options.window / periods(options);
    2.0 * options.rate * period.max(Duration::from_nanos(1)).as_secs_f64()
}

/// Returns the number of periods in the window.
fn periods(options: &ForgetfulOptions) -> u32 {
    (options.filters - 2) as u32
}

/// Returns the time between two refreshes at the rate for which the filter is made. It is rounded up, because the periods
/// must cover the window.
fn period(options: &ForgetfulOptions) -> Duration {
    let periods = periods(options);
    let part = options.window / periods;
    if part * periods < options.window {
        part + Duration::from_nanos(1)
    } else {
        part
    }
}

impl Filter for ForgetfulBloom {
    type Key = Fingerprint;

    fn remembers(&mut self, key: Fingerprint, now: UnixTime) -> bool {
        self.handle_time(now);
        let mut before = false;
        for filter in &self.filters {
            let has = self.has(filter, key);
            if before && has {
                return true;
            }
            before = has;
        }
        false
    }

    fn remember(&mut self, key: Fingerprint, now: UnixTime) {
        self.handle_time(now);
        if self.is_full() {
            self.refresh(self.now);
        }
        for filter in self.filters.iter_mut().take(2) {
            let places = Places::new(key, filter.id);
            for number in 0..self.sizes.hashes {
                let place = places.get(number, filter.bits.len());
                filter.bits.set(place);
            }
        }
    }

    fn bytes(&self) -> u64 {
        let bits: u64 = self.filters.iter().map(|filter| filter.bits.bytes()).sum();
        let lists = self.filters.capacity() * size_of::<AgedFilter>()
            + self.refreshes.capacity() * size_of::<UnixTime>();
        bits + lists as u64
    }
}

impl Saved for ForgetfulBloom {
    const NAME: &'static str = "forgetful-bloom";

    fn write(&self, out: &mut Writer<'_>) -> std::io::Result<()> {
        let options = &self.options;
        out.put(&options.hasher.secret())?;
        out.u64(options.filters as u64)?;
        out.duration(options.window)?;
        out.put(&options.rate.to_le_bytes())?;
        out.put(&options.false_positives_max.to_le_bytes())?;
        out.duration(self.now)?;
        out.duration(self.shortest_window.unwrap_or(Duration::MAX))?;
        out.u64(self.sizes.bits)?;
        for at in &self.refreshes {
            out.duration(*at)?;
        }
        for filter in &self.filters {
            out.u64(filter.id)?;
            out.bits(&filter.bits)?;
        }
        Ok(())
    }

    fn read(input: &mut Reader<'_>) -> Result<ForgetfulBloom, StateError> {
        let hasher = KeyHasher::new(input.array()?);
        let options = ForgetfulOptions {
            filters: input.u64()? as usize,
            window: input.duration()?,
            rate: f64::from_le_bytes(input.array()?),
            false_positives_max: f64::from_le_bytes(input.array()?),
            hasher,
        };
        let now = input.duration()?;
        let shortest = input.duration()?;
        let mut sizes =
            sizes(&options).map_err(|_| StateError::Damaged("options without meaning"))?;
        let plain = half_full_bits(keys(&options), sizes.hashes);
        sizes.bits = input.size(plain, sizes.bits)?;
        let mut refreshes = VecDeque::with_capacity(options.filters - 1);
        for _ in 0..options.filters - 1 {
            refreshes.push_back(input.duration()?);
        }
        let mut filters = VecDeque::with_capacity(options.filters);
        for _ in 0..options.filters {
            let id = input.u64()?;
            let bits = input.bits(sizes.bits)?;
            filters.push_back(AgedFilter { id, bits });
        }
        Ok(ForgetfulBloom {
            options,
            sizes,
            filters,
            refreshes,
            now,
            shortest_window: (shortest < Duration::MAX).then_some(shortest),
        })
    }
}

#[cfg(test)]
mod tests;
