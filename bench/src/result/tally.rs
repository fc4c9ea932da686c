//! [`Tally`]: the counts and latencies of one thread in one interval.

use hdrhistogram::Histogram;

use crate::result::{Answers, HistogramKind, HistogramRecord, Percentiles};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

/// Longest latency that a histogram tells from longer ones: an hour, in nanoseconds.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Significant decimal digits of a recorded latency.
const DIGITS: u8 = 3;

/// A histogram of latencies in nanoseconds.
pub type Latencies = Histogram<u64>;

/// Makes an empty histogram for 1 ns to 1 hour, exact to three digits.
pub fn latencies() -> Latencies {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS).expect("constant bounds")
}

/// Latencies, divided by whether the message was intended in the measured time.
#[derive(Clone, Debug)]
pub struct Split {
    /// Latencies of messages intended in the measured time.
    pub measured: Latencies,
    /// Latencies of messages intended before or after the measured time.
    pub other: Latencies,
}

impl Split {
    /// Records `count` messages of the same latency.
    #[inline]
    pub fn record(&mut self, measured: bool, latency_ns: u64, count: u64) {
        let (ours, other) = (&mut self.measured, &mut self.other);
        let histogram = if measured { ours } else { other };
        histogram.saturating_record_n(latency_ns, count);
    }

    fn clear(&mut self) {
        for histogram in [&mut self.measured, &mut self.other] {
            if !histogram.is_empty() {
                histogram.clear();
            }
        }
    }

    /// Returns the latencies of all messages, measured or not.
    pub fn both(&self) -> Latencies {
        let mut both = self.measured.clone();
        add(&mut both, &self.other);
        both
    }
}

impl Default for Split {
    fn default() -> Split {
        Split {
            measured: latencies(),
            other: latencies(),
        }
    }
}

/// Adds one histogram to another.
pub fn add(to: &mut Latencies, from: &Latencies) {
    if !from.is_empty() {
        to.add(from).expect("the same bounds");
    }
}

/// Event counts of an interval or of a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages sent.
    pub sent: u64,
    /// Bytes of the bodies of the messages sent.
    pub sent_bytes: u64,
    /// Messages that the daemon acknowledged.
    pub acknowledged: u64,
    /// Messages delivered, over all channels.
    pub delivered: u64,
    /// The answers of consumers, and what went on beside them.
    pub answers: Answers,
    /// First deliveries behind a later message of the same producer on the same connection.
    pub reordered: u64,
    /// Messages that this run did not publish.
    pub foreign: u64,
    /// Messages that came before their intended send time, by the clock of this machine.
    pub from_future: u64,
}

impl Counts {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Counts) {
        add_fields!(self, other, sent sent_bytes acknowledged delivered reordered foreign from_future);
        let (to, from) = (&mut self.answers, &other.answers);
        add_fields!(to, from, finished requeued touched left_to_time_out reconnected error_answers);
    }
}

/// The counts and latencies of one thread in one interval. Tallies are used again and again: the memory
/// of their histograms is touched beforehand, not while messages wait.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Counts of what happened.
    pub counts: Counts,
    /// The time of the last OK, in nanoseconds; zero for never.
    pub last_answer_ns: u64,
    /// The time of the last delivery, in nanoseconds; zero for never.
    pub last_delivery_ns: u64,
    /// The longest time by which a message came before its intended send time, in nanoseconds; zero for none.
    pub early_ns_max: u64,
    /// The latencies of each [`HistogramKind`], in the order of [`HistogramKind::ALL`].
    pub latencies: [Split; HistogramKind::ALL.len()],
}

impl Tally {
    /// Sets all counts to zero and empties the histograms; keeps their memory.
    pub fn clear(&mut self) {
        self.counts = Counts::default();
        (
            self.last_answer_ns,
            self.last_delivery_ns,
            self.early_ns_max,
        ) = (0, 0, 0);
        self.latencies.iter_mut().for_each(Split::clear);
    }

    /// Returns the latencies of one kind.
    pub fn of(&mut self, kind: HistogramKind) -> &mut Split {
        &mut self.latencies[kind as usize]
    }

    /// Adds counts and latencies of `other`, and keeps the later of the times.
    pub fn add(&mut self, other: &Tally) {
        self.counts.add(&other.counts);
        self.last_answer_ns = self.last_answer_ns.max(other.last_answer_ns);
        self.last_delivery_ns = self.last_delivery_ns.max(other.last_delivery_ns);
        self.early_ns_max = self.early_ns_max.max(other.early_ns_max);
        for (to, from) in self.latencies.iter_mut().zip(&other.latencies) {
            add(&mut to.measured, &from.measured);
            add(&mut to.other, &from.other);
        }
    }
}

/// A count per second or per message; zero where there was no time or no message.
pub fn per(count: u64, of: f64) -> f64 {
    if of > 0.0 { count as f64 / of } else { 0.0 }
}

/// A quantile (0 to 1) in microseconds. The report takes quantiles, too: 99.9 / 100 is above 0.999 in binary, so the
/// percentile of 100,000 values may be the value behind the quantile.
pub fn quantile_us(histogram: &Latencies, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1000.0
}

/// The percentiles of an interval, if there is anything.
pub fn percentiles(histogram: &Latencies) -> Option<Percentiles> {
    (!histogram.is_empty()).then(|| Percentiles {
        count: histogram.len(),
        p50_us: quantile_us(histogram, 0.5),
        p99_us: quantile_us(histogram, 0.99),
        p999_us: quantile_us(histogram, 0.999),
        max_us: histogram.max() as f64 / 1000.0,
    })
}

/// The serialised form of a histogram: V2, deflated.
pub fn serialised(histogram: &Latencies) -> Vec<u8> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .expect("a vector takes everything");
    bytes
}

/// A histogram for a saved result, if there is anything in it.
pub fn record(kind: HistogramKind, histogram: &Latencies) -> Option<HistogramRecord> {
    (!histogram.is_empty()).then(|| HistogramRecord {
        kind,
        count: histogram.len(),
        min_us: histogram.min() as f64 / 1000.0,
        mean_us: histogram.mean() / 1000.0,
        p50_us: quantile_us(histogram, 0.5),
        p90_us: quantile_us(histogram, 0.9),
        p99_us: quantile_us(histogram, 0.99),
        p999_us: quantile_us(histogram, 0.999),
        p9999_us: quantile_us(histogram, 0.9999),
        max_us: histogram.max() as f64 / 1000.0,
        hdr_base64: STANDARD.encode(serialised(histogram)),
        hdr_log: None,
    })
}

#[cfg(test)]
mod tests;
