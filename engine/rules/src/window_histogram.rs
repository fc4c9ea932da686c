//! [`WindowHistogram`]: the number of values by their size, within 1 %, for quantiles over a window.
//!
//! ```text
//!   values    0 ... 127 | 128 ... 255 | 256 ... 511 | 512 ... 1023 | ...
//!   octave        0     |      1      |      2      |      3       |        128 buckets each
//!   a bucket      1     |      1      |      2      |      4       |        values wide
//! ```
//!
//! Only the octaves that have a value take memory: most latencies of a channel lie in a few of them. Each octave has the
//! number of its values, so a quantile looks at the buckets of one octave only.

/// Buckets of an octave: a bucket is at most 1/128 of its values wide.
const BUCKETS: usize = 128;
/// The octaves of 64-bit values.
const OCTAVES: usize = (u64::BITS - BUCKETS.ilog2() + 1) as usize;

/// A histogram.
#[derive(Debug, Default)]
pub(crate) struct WindowHistogram {
    /// In the order of their indexes.
    octaves: Vec<Octave>,
}

#[derive(Debug)]
struct Octave {
    index: usize,
    /// The number of values: the sum of `counts`.
    count: u64,
    counts: Box<[u32; BUCKETS]>,
}

impl WindowHistogram {
    /// Counts a value. A bucket that is full keeps its count.
    pub(crate) fn record(&mut self, value: u64) {
        let (octave, bucket) = place(value);
        let found = self.octaves.binary_search_by_key(&octave, |it| it.index);
        let at = found.unwrap_or_else(|at| {
            let new = Octave {
                index: octave,
                count: 0,
                counts: Box::new([0; BUCKETS]),
            };
            self.octaves.insert(at, new);
            at
        });
        let octave = &mut self.octaves[at];
        if let Some(count) = octave.counts[bucket].checked_add(1) {
            octave.counts[bucket] = count;
            octave.count += 1;
        }
    }

    /// Removes all values, and gives their memory back.
    pub(crate) fn reset(&mut self) {
        self.octaves.clear();
    }

    fn octave(&self, index: usize) -> Option<&Octave> {
        let found = self.octaves.binary_search_by_key(&index, |it| it.index);
        Some(&self.octaves[found.ok()?])
    }
}

/// The values of several histograms together.
#[derive(Debug)]
pub(crate) struct Together<'a> {
    histograms: Vec<&'a WindowHistogram>,
    /// The number of values in each octave.
    counts: [u64; OCTAVES],
}

impl<'a> Together<'a> {
    /// Puts histograms together.
    pub(crate) fn new(histograms: Vec<&'a WindowHistogram>) -> Together<'a> {
        let mut counts = [0; OCTAVES];
        for octave in histograms.iter().flat_map(|it| &it.octaves) {
            counts[octave.index] += octave.count;
        }
        Together { histograms, counts }
    }

    /// Returns the number of all values.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the highest value of the bucket that has the quantile, a number in (0, 1]. Returns 0 without values.
    pub(crate) fn value_at(&self, quantile: f64) -> u64 {
        let rank = rank(quantile, self.count());
        let Some((octave, rank)) = find(self.counts.iter().copied(), rank) else {
            return 0;
        };
        let mut counts = [0; BUCKETS];
        for part in self.histograms.iter().filter_map(|it| it.octave(octave)) {
            for (sum, count) in counts.iter_mut().zip(&*part.counts) {
                *sum += u64::from(*count);
            }
        }
        in_octave(octave, &counts, rank)
    }
}

/// The values of histograms that come one after the other.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    /// In the order of their indexes.
    octaves: Vec<SumOctave>,
}

#[derive(Debug)]
struct SumOctave {
    index: usize,
    count: u64,
    counts: Box<[u64; BUCKETS]>,
}

impl Sum {
    /// Adds the values of a histogram.
    pub(crate) fn add(&mut self, histogram: &WindowHistogram) {
        for octave in &histogram.octaves {
            let index = octave.index;
            let found = self.octaves.binary_search_by_key(&index, |it| it.index);
            let at = found.unwrap_or_else(|at| {
                let new = SumOctave {
                    index,
                    count: 0,
                    counts: Box::new([0; BUCKETS]),
                };
                self.octaves.insert(at, new);
                at
            });
            let sum = &mut self.octaves[at];
            sum.count += octave.count;
            for (sum, count) in sum.counts.iter_mut().zip(&*octave.counts) {
                *sum += u64::from(*count);
            }
        }
    }

    /// Returns the number of all values.
    pub(crate) fn count(&self) -> u64 {
        self.octaves.iter().map(|octave| octave.count).sum()
    }

    /// Returns the highest value of the bucket that has the quantile, a number in (0, 1]. Returns 0 without values.
    pub(crate) fn value_at(&self, quantile: f64) -> u64 {
        let counts = self.octaves.iter().map(|octave| octave.count);
        let Some((at, rank)) = find(counts, rank(quantile, self.count())) else {
            return 0;
        };
        let octave = &self.octaves[at];
        in_octave(octave.index, &octave.counts, rank)
    }
}

/// Returns the rank of a quantile among so many values. The first value has the rank 1.
fn rank(quantile: f64, count: u64) -> u64 {
    ((quantile * count as f64).ceil() as u64).max(1)
}

/// Returns the highest value of the bucket that has the value of this rank in its octave.
fn in_octave(octave: usize, counts: &[u64; BUCKETS], rank: u64) -> u64 {
    let found = find(counts.iter().copied(), rank);
    let (bucket, _) = found.expect("the octave has as many values as its buckets");
    highest(octave, bucket)
}

/// Returns the index of the count that has the value of this rank, and the rank among the values of this count.
fn find(counts: impl Iterator<Item = u64>, mut rank: u64) -> Option<(usize, u64)> {
    for (index, count) in counts.enumerate() {
        if rank <= count {
            return Some((index, rank));
        }
        rank -= count;
    }
    None
}

/// Returns the octave and the bucket of a value.
fn place(value: u64) -> (usize, usize) {
    let octave = match value.checked_ilog2() {
        Some(log) if log >= BUCKETS.ilog2() => (log - BUCKETS.ilog2() + 1) as usize,
        _ => return (0, value as usize),
    };
    let bucket = (value >> (octave - 1)) as usize - BUCKETS;
    (octave, bucket)
}

/// Returns the highest value of a bucket.
fn highest(octave: usize, bucket: usize) -> u64 {
    match octave.checked_sub(1) {
        None => bucket as u64,
        Some(shift) => (((BUCKETS + bucket) as u64) << shift) | ((1 << shift) - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::Histogram;

    #[test]
    fn a_bucket_has_its_values_within_one_per_cent() {
        let values = (0..2000).chain((0..64).map(|shift| u64::MAX >> shift));
        let mut before = None;
        let mut places: Vec<_> = values.map(|value| (value, place(value))).collect();
        places.sort_unstable();
        for (value, (octave, bucket)) in places {
            let most = highest(octave, bucket);
            assert!(octave < OCTAVES && bucket < BUCKETS, "{value}");
            assert!(value <= most && most - value <= value / 128, "{value}");
            assert!(before <= Some((octave, bucket)), "{value}");
            before = Some((octave, bucket));
        }
    }

    /// HdrHistogram with two digits has the same buckets.
    #[test]
    fn quantiles_are_those_of_hdr_histogram() {
        let mut state = 7_u64;
        let mut random = |bits: u32| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state >> (64 - bits)
        };
        for round in 0..200 {
            let mut expected = Histogram::<u32>::new(2).expect("two digits are possible");
            let mut halves = [WindowHistogram::default(), WindowHistogram::default()];
            for _ in 0..random(9) {
                let bits = 1 + random(5) as u32 + random(3) as u32;
                let value = random(bits);
                expected.record(value).expect("it grows");
                halves[random(1) as usize].record(value);
            }
            let together = Together::new(halves.iter().collect());
            let mut sum = Sum::default();
            halves.iter().for_each(|half| sum.add(half));
            assert_eq!(together.count(), expected.len(), "round {round}");
            assert_eq!(sum.count(), expected.len(), "round {round}");
            for quantile in [1e-9, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0] {
                let found = together.value_at(quantile);
                assert_eq!(found, expected.value_at_quantile(quantile), "{quantile}");
                assert_eq!(sum.value_at(quantile), found, "{quantile}");
            }
        }
    }

    #[test]
    fn a_reset_histogram_is_empty() {
        let mut histogram = WindowHistogram::default();
        histogram.record(5);
        histogram.reset();
        let together = Together::new(vec![&histogram]);
        assert_eq!((together.count(), together.value_at(0.5)), (0, 0));
    }
}
