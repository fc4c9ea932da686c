//! End-to-end latency of a channel: from publish to FIN, over the last while, and since the channel was made.
//!
//! The last while has two histograms, each of half a window, the older of which is dropped every half window: what is
//! shown covers between half of `--e2e-processing-latency-window-time` and all of it, as in nsqd.
//! Values are within 1 %, ranks are exact; nsqd's sketch has exact values and ranks within 1 %.

use diskq_log::{Now, SeqRange};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use wire::frame::{ATTEMPTS_AT, TIMESTAMP_AT};
use wire::go_json::null_if_empty;
use wire::id::Seq;

/// The longest latency that is recorded: a year. A larger value says that the wall clock was set between publish and FIN.
const VALUE_MAX_NS: u64 = 365 * 24 * 3600 * 1_000_000_000;

/// The settings of the measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyOptions {
    /// Quantiles in (0, 1], in the order in which they are shown.
    pub percentiles: Arc<[f64]>,
    /// The longest time for which a sample counts.
    pub window: Duration,
}

/// The latency of one channel.
#[derive(Debug)]
pub(crate) struct Latency {
    /// The publish times of the messages in flight, in Unix nanoseconds. At FIN, a message may have left memory.
    published_ns: HashMap<Seq, u64>,
    newer: WindowHistogram,
    older: WindowHistogram,
    since_start: LatencyHistogram,
    half_window: Duration,
    /// The time at which `newer` becomes `older`.
    rotate_at: Duration,
}

impl Latency {
    pub(crate) fn new(options: &LatencyOptions) -> Latency {
        Latency {
            published_ns: HashMap::new(),
            newer: WindowHistogram::default(),
            older: WindowHistogram::default(),
            since_start: LatencyHistogram::default(),
            half_window: options.window / 2,
            rotate_at: Duration::ZERO,
        }
    }

    /// Keeps the publish times of the messages in `frames`. `first` is the seq of the first message.
    pub(crate) fn start_samples(&mut self, first: Seq, mut frames: &[u8]) {
        let mut seq = first;
        while let Some((size, rest)) = frames.split_first_chunk() {
            if let Some(timestamp) = frames.get(TIMESTAMP_AT..ATTEMPTS_AT) {
                let timestamp = timestamp.try_into().expect("eight bytes");
                let published = u64::try_from(i64::from_be_bytes(timestamp)).unwrap_or(0);
                self.published_ns.insert(seq, published);
            }
            frames = rest
                .get(u32::from_be_bytes(*size) as usize..)
                .unwrap_or_default();
            seq = seq.offset(1);
        }
    }

    /// Counts the time that finished messages took.
    pub(crate) fn add_samples(&mut self, now: Now, seqs: SeqRange) {
        self.rotate(now.mono);
        for seq in seqs.start.0..seqs.end.0 {
            if let Some(published) = self.published_ns.remove(&Seq(seq)) {
                let took = now.wall_ns.saturating_sub(published).min(VALUE_MAX_NS);
                self.newer.record(took);
                self.since_start.record(took);
            }
        }
    }

    /// The latencies of all messages that the channel has finished in this run. `None`: there are none.
    pub(crate) fn since_start(&self) -> Option<Box<LatencyHistogram>> {
        (!self.since_start.is_empty()).then(|| Box::new(self.since_start))
    }

    /// Drops the sample of a message that goes back to the queue.
    pub(crate) fn forget(&mut self, seq: Seq) {
        self.published_ns.remove(&seq);
    }

    /// Drops the samples of all messages in flight.
    pub(crate) fn forget_all(&mut self) {
        self.published_ns.clear();
    }

    /// Messages that it knows to be in flight.
    pub(crate) fn in_flight_count(&self) -> u64 {
        self.published_ns.len() as u64
    }

    fn rotate(&mut self, mono: Duration) {
        if mono < self.rotate_at {
            return;
        }
        std::mem::swap(&mut self.newer, &mut self.older);
        self.newer.reset();
        if self.is_out_of_date(mono) {
            self.older.reset();
        }
        self.rotate_at = mono + self.half_window;
    }

    /// Returns whether no sample was added for so long that even the newer half is out of date.
    fn is_out_of_date(&self, mono: Duration) -> bool {
        mono >= self.rotate_at + self.half_window
    }

    /// Adds the latencies of the last while to a sum.
    pub(crate) fn add_to(&self, mono: Duration, sum: &mut Sum) {
        if !self.is_out_of_date(mono) {
            sum.add(&self.newer);
        }
        if mono < self.rotate_at {
            sum.add(&self.older);
        }
    }
}

/// End-to-end latency over the last window.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LatencyStats {
    /// Samples in the window.
    pub count: u64,
    /// In the order of the flags; empty (`null` in JSON) when latency is not measured.
    #[serde(serialize_with = "null_if_empty")]
    pub percentiles: Vec<Percentile>,
}

/// One percentile of a latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentile {
    /// The quantile, in (0, 1].
    pub quantile: f64,
    /// Nanoseconds; an estimate, hence not an integer. 0 without samples.
    pub value: f64,
}

/// Returns the latencies of a channel. `None`: they are not measured.
pub(crate) fn stats(
    mono: Duration,
    options: Option<&LatencyOptions>,
    latency: Option<&Latency>,
) -> LatencyStats {
    let sum = latency.map(|latency| {
        let mut sum = Sum::default();
        latency.add_to(mono, &mut sum);
        sum
    });
    stats_of_sum(options, sum.as_ref())
}

/// Returns the latencies of all channels of a topic. `None`: no channel measures them. Without channels there are no
/// percentiles, as in nsqd.
pub(crate) fn stats_of_sum(options: Option<&LatencyOptions>, sum: Option<&Sum>) -> LatencyStats {
    let (Some(options), Some(sum)) = (options, sum) else {
        return LatencyStats::default();
    };
    let percentile = |&quantile: &f64| Percentile {
        quantile,
        value: sum.value_at(quantile) as f64,
    };
    LatencyStats {
        count: sum.count(),
        percentiles: options.percentiles.iter().map(percentile).collect(),
    }
}

/// The upper bounds of the buckets in nanoseconds, from 100 µs to 1 h. One more bucket has no upper bound.
pub const LATENCY_BOUNDS_NS: [u64; 23] = [
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    25_000_000_000,
    50_000_000_000,
    100_000_000_000,
    250_000_000_000,
    500_000_000_000,
    1_000_000_000_000,
    3_600_000_000_000,
];

/// The number of messages by their time from publish to FIN, since the channel was made: 208 bytes. The counts only
/// grow, so a monitoring system can add those of several nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyHistogram {
    /// The number of messages in each bucket; the last one has no upper bound.
    counts: [u64; LATENCY_BOUNDS_NS.len() + 1],
    /// 128 bits: an hour for each of a million messages a second fills 64 bits within seconds.
    sum_ns: u128,
}

impl LatencyHistogram {
    /// Counts a message that took this time. A bound belongs to its bucket.
    pub(crate) fn record(&mut self, took_ns: u64) {
        let bucket = LATENCY_BOUNDS_NS.partition_point(|bound| *bound < took_ns);
        self.counts[bucket] += 1;
        self.sum_ns += u128::from(took_ns);
    }

    /// Returns for each bound of [`LATENCY_BOUNDS_NS`] how many messages took at most this time, and then the number of
    /// all messages.
    pub fn cumulative(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().scan(0, |total, count| {
            *total += count;
            Some(*total)
        })
    }

    /// Returns the time of all messages together in seconds.
    #[must_use]
    pub fn sum_seconds(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// Returns whether no message was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }
}

/// Buckets of an octave: a bucket is at most 1/128 of its values wide.
const BUCKETS: usize = 128;

/// The number of values by their size, within 1 %, for quantiles over a window.
///
/// ```text
///   values    0 ... 127 | 128 ... 255 | 256 ... 511 | 512 ... 1023 | ...
///   octave        0     |      1      |      2      |      3       |        128 buckets each
///   a bucket      1     |      1      |      2      |      4       |        values wide
/// ```
///
/// Only the octaves that have a value take memory: most latencies of a channel lie in a few of them. Each octave has the
/// number of its values, so a quantile looks at the buckets of one octave only.
pub(crate) type WindowHistogram = Histogram<u32>;

/// The values of several histograms together.
pub(crate) type Sum = Histogram<u64>;

/// A histogram. `C` holds the count of a bucket.
#[derive(Debug, Default)]
pub(crate) struct Histogram<C> {
    /// In the order of their indexes.
    octaves: Vec<Octave<C>>,
}

#[derive(Debug)]
struct Octave<C> {
    index: usize,
    /// The number of values: the sum of `counts`.
    count: u64,
    counts: Box<[C; BUCKETS]>,
}

impl<C: Copy + Default> Histogram<C> {
    /// Returns the octave with an index, and makes it if it has no value yet.
    fn octave(&mut self, index: usize) -> &mut Octave<C> {
        let found = self.octaves.binary_search_by_key(&index, |it| it.index);
        let at = found.unwrap_or_else(|at| {
            let new = Octave {
                index,
                count: 0,
                counts: Box::new([C::default(); BUCKETS]),
            };
            self.octaves.insert(at, new);
            at
        });
        &mut self.octaves[at]
    }

    /// Removes all values, and gives their memory back.
    pub(crate) fn reset(&mut self) {
        self.octaves.clear();
    }
}

impl WindowHistogram {
    /// Counts a value. A bucket that is full keeps its count.
    pub(crate) fn record(&mut self, value: u64) {
        let (octave, bucket) = place(value);
        let octave = self.octave(octave);
        if let Some(count) = octave.counts[bucket].checked_add(1) {
            octave.counts[bucket] = count;
            octave.count += 1;
        }
    }
}

impl Sum {
    /// Adds the values of a histogram.
    pub(crate) fn add(&mut self, histogram: &WindowHistogram) {
        for octave in &histogram.octaves {
            let sum = self.octave(octave.index);
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
        let rank = ((quantile * self.count() as f64).ceil() as u64).max(1);
        let counts = self.octaves.iter().map(|octave| octave.count);
        let Some((at, rank)) = find(counts, rank) else {
            return 0;
        };
        let octave = &self.octaves[at];
        let found = find(octave.counts.iter().copied(), rank);
        let (bucket, _) = found.expect("the octave has as many values as its buckets");
        highest(octave.index, bucket)
    }
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
    use hdrhistogram::Histogram as Reference;
    use wire::frame::{HEADER_BYTES, write_header};
    use wire::id::MessageId;

    const OCTAVES: usize = (u64::BITS - BUCKETS.ilog2() + 1) as usize;
    const OPTIONS_WINDOW: Duration = Duration::from_secs(600);

    fn options() -> LatencyOptions {
        LatencyOptions {
            percentiles: [0.99, 0.5].into(),
            window: OPTIONS_WINDOW,
        }
    }

    fn now(seconds: u64) -> Now {
        Now {
            mono: Duration::from_secs(seconds),
            wall_ns: (1000 + seconds) * 1_000_000_000,
        }
    }

    fn frames(published: &[u64], body: &[u8]) -> Vec<u8> {
        let mut frames = Vec::new();
        for seconds in published {
            let mut header = [0; HEADER_BYTES];
            let timestamp = ((1000 + seconds) * 1_000_000_000) as i64;
            let bytes = body.len() as u32;
            write_header(&mut header, bytes, timestamp, 1, &MessageId([b'0'; 16]));
            frames.extend_from_slice(&header);
            frames.extend_from_slice(body);
        }
        frames
    }

    fn shown(latency: &Latency, seconds: u64) -> (u64, Vec<u64>) {
        let mono = Duration::from_secs(seconds);
        let stats = stats(mono, Some(&options()), Some(latency));
        let seconds = |p: &Percentile| (p.value / 1e9).round() as u64;
        (stats.count, stats.percentiles.iter().map(seconds).collect())
    }

    #[test]
    fn from_publish_to_fin() {
        let mut latency = Latency::new(&options());
        assert_eq!(shown(&latency, 0), (0, vec![0, 0]));
        assert_eq!(latency.since_start(), None);
        latency.start_samples(Seq(7), &frames(&[0, 1, 2], b"body"));
        latency.add_samples(now(10), SeqRange::new(Seq(7), Seq(9)));
        // Requeued and delivered again: it is the first publish that counts.
        latency.forget(Seq(9));
        latency.add_samples(now(11), SeqRange::new(Seq(9), Seq(10)));
        assert_eq!(shown(&latency, 12), (2, vec![10, 9]));
        latency.start_samples(Seq(9), &frames(&[2], b""));
        latency.add_samples(now(22), SeqRange::new(Seq(9), Seq(10)));
        assert_eq!(shown(&latency, 23), (3, vec![20, 10]));
        assert!(latency.published_ns.is_empty());
    }

    #[test]
    fn samples_count_for_half_a_window_to_a_whole_one() {
        let mut latency = Latency::new(&options());
        let sample = |latency: &mut Latency, seconds: u64| {
            latency.start_samples(Seq(seconds), &frames(&[seconds - 1], b"x"));
            let seqs = SeqRange::new(Seq(seconds), Seq(seconds + 1));
            latency.add_samples(now(seconds), seqs);
        };
        sample(&mut latency, 1);
        sample(&mut latency, 200);
        sample(&mut latency, 302);
        assert_eq!(shown(&latency, 600).0, 3);
        assert_eq!(shown(&latency, 602).0, 1, "the first half is gone");
        assert_eq!(shown(&latency, 5000).0, 0);
        let all = latency.since_start().expect("three samples");
        assert_eq!(all.cumulative().last(), Some(3));
        assert_eq!(all.sum_seconds(), 3.0);
    }

    #[test]
    fn several_channels_together_and_none_if_not_wanted() {
        let mut channels = [1, 2].map(|_| Latency::new(&options()));
        for (latency, published) in channels.iter_mut().zip([0, 90]) {
            latency.start_samples(Seq(1), &frames(&[published], b"x"));
            latency.add_samples(now(100), SeqRange::new(Seq(1), Seq(2)));
        }
        let options = options();
        let mut sum = Sum::default();
        for latency in &channels {
            latency.add_to(now(100).mono, &mut sum);
        }
        let all = stats_of_sum(Some(&options), Some(&sum));
        assert_eq!(all.count, 2);
        assert!((all.percentiles[0].value - 100e9).abs() < 1e9);
        assert!((all.percentiles[1].value - 10e9).abs() < 0.1e9);
        let nothing = LatencyStats::default();
        assert_eq!(stats_of_sum(None, Some(&sum)), nothing);
        assert_eq!(stats_of_sum(Some(&options), None), nothing);
        assert_eq!(stats(now(100).mono, None, Some(&channels[0])), nothing);
        assert_eq!(stats(now(100).mono, Some(&options), None), nothing);
    }

    #[test]
    fn each_time_is_in_the_bucket_of_the_next_bound() {
        let mut histogram = LatencyHistogram::default();
        assert!(histogram.is_empty());
        assert!(LATENCY_BOUNDS_NS.is_sorted());
        for took in [0, 100_000, 100_001, 2_500_000, u64::MAX, u64::MAX] {
            histogram.record(took);
        }
        assert!(!histogram.is_empty());
        let shown: Vec<u64> = histogram.cumulative().collect();
        let expected = [&[2, 3, 3, 3][..], &[4; 19], &[6]].concat();
        assert_eq!(shown, expected);
        let sum = 2.0 * u64::MAX as f64 / 1e9 + 0.0027;
        assert!((histogram.sum_seconds() - sum).abs() < 1e-3 * sum);
        assert_eq!(size_of::<LatencyHistogram>(), 208);
    }

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
            let mut expected = Reference::<u32>::new(2).expect("two digits are possible");
            let mut halves = [WindowHistogram::default(), WindowHistogram::default()];
            for _ in 0..random(9) {
                let bits = 1 + random(5) as u32 + random(3) as u32;
                let value = random(bits);
                expected.record(value).expect("it grows");
                halves[random(1) as usize].record(value);
            }
            let mut sum = Sum::default();
            halves.iter().for_each(|half| sum.add(half));
            assert_eq!(sum.count(), expected.len(), "round {round}");
            for quantile in [1e-9, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0] {
                let found = sum.value_at(quantile);
                assert_eq!(found, expected.value_at_quantile(quantile), "{quantile}");
            }
        }
    }

    #[test]
    fn a_reset_histogram_is_empty() {
        let mut histogram = WindowHistogram::default();
        histogram.record(5);
        histogram.reset();
        let mut sum = Sum::default();
        sum.add(&histogram);
        assert_eq!((sum.count(), sum.value_at(0.5)), (0, 0));
    }
}
