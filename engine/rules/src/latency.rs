//! End-to-end latency of a channel: from publish to FIN, over the last while, and since the channel was made.
//!
//! The last while has two histograms, each of half a window, the older of which is dropped every half window: what is
//! shown covers between half of `--e2e-processing-latency-window-time` and all of it, as in nsqd.
//! Values are within 1 %, ranks are exact; nsqd's sketch has exact values and ranks within 1 %.

use crate::latency_histogram::LatencyHistogram;
use crate::now::Now;
use crate::stats::{LatencyStats, Percentile};
use crate::window_histogram::{Sum, Together, WindowHistogram};
use diskq_log::SeqRange;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use wire::frame::{ATTEMPTS_AT, TIMESTAMP_AT};
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
        self.halves(mono).for_each(|half| sum.add(half));
    }

    fn halves(&self, mono: Duration) -> impl Iterator<Item = &WindowHistogram> {
        let newer = (!self.is_out_of_date(mono)).then_some(&self.newer);
        let older = (mono < self.rotate_at).then_some(&self.older);
        newer.into_iter().chain(older)
    }
}

/// Returns the latencies of a channel. `None`: they are not measured.
pub(crate) fn stats(
    mono: Duration,
    options: Option<&LatencyOptions>,
    latency: Option<&Latency>,
) -> LatencyStats {
    let (Some(options), Some(latency)) = (options, latency) else {
        return LatencyStats::default();
    };
    let all = Together::new(latency.halves(mono).collect());
    figures(options, all.count(), |quantile| all.value_at(quantile))
}

/// Returns the latencies of all channels of a topic. `None`: no channel measures them. Without channels there are no
/// percentiles, as in nsqd.
pub(crate) fn stats_of_sum(options: Option<&LatencyOptions>, sum: Option<&Sum>) -> LatencyStats {
    let (Some(options), Some(sum)) = (options, sum) else {
        return LatencyStats::default();
    };
    figures(options, sum.count(), |quantile| sum.value_at(quantile))
}

fn figures(options: &LatencyOptions, count: u64, value_at: impl Fn(f64) -> u64) -> LatencyStats {
    let percentile = |&quantile: &f64| Percentile {
        quantile,
        value: value_at(quantile) as f64,
    };
    LatencyStats {
        count,
        percentiles: options.percentiles.iter().map(percentile).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::frame::{HEADER_BYTES, write_header};
    use wire::id::MessageId;

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
}
