//! [`Ages`]: the ages of the oldest messages in the last seconds. They tell which channels have a message that nobody finishes.
//!
//! Rounds are too rare for this while nobody looks at the page. The ages come with the live figures, once a second.

use std::collections::{BTreeMap, VecDeque};

/// The time over which ages are compared, in milliseconds.
const WINDOW_MILLIS: i64 = 5_000;

/// The age in milliseconds from which a message counts as old, wherever it is. The handler of a message in flight may take
/// this long, and a burst is consumed in this time.
const OLD_MILLIS: i64 = 10_000;

/// The age in milliseconds from which a message counts as old while messages wait and do not become fewer. A backlog that
/// does not shrink shows earlier that nobody finishes the message. The age is half of the window, because a channel that kept
/// up at its begin has no earlier age to compare with.
const OLD_MILLIS_WITH_BACKLOG: i64 = 2_500;

/// Ages that grow by this share of the time, or faster, belong to messages that nobody finishes.
const STUCK_SHARE: f64 = 0.5;

/// The channels with work in the last seconds.
#[derive(Debug, Default)]
pub(super) struct Ages {
    /// The times of the samples in steady milliseconds, the earliest first. The earliest one is at least
    /// [`WINDOW_MILLIS`] old, as soon as there is such a time.
    times: VecDeque<i64>,
    /// The samples by topic and channel, the earliest first.
    channels: BTreeMap<String, BTreeMap<String, VecDeque<Sample>>>,
}

/// A channel at one moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    steady_millis: i64,
    depth: i64,
    oldest_ms: i64,
}

impl Ages {
    /// Adds what all channels have at this time: topic, channel, depth and the age of the oldest message.
    pub(super) fn add<'a>(
        &mut self,
        steady_millis: i64,
        channels: impl IntoIterator<Item = (&'a str, &'a str, i64, i64)>,
    ) {
        // Samples of one moment have one time.
        self.times.retain(|time| *time < steady_millis);
        while self
            .times
            .get(1)
            .is_some_and(|second| steady_millis - second >= WINDOW_MILLIS)
        {
            self.times.pop_front();
        }
        self.times.push_back(steady_millis);
        for (topic, channel, depth, oldest_ms) in channels {
            // A channel without work has no sample.
            if oldest_ms > 0 {
                let sample = Sample {
                    steady_millis,
                    depth,
                    oldest_ms,
                };
                self.samples_of(topic, channel).push_back(sample);
            }
        }
        let began = self.times.front().copied().unwrap_or(steady_millis);
        let is_recent = |sample: &Sample| sample.steady_millis >= began;
        self.channels.retain(|_, channels| {
            channels.retain(|_, samples| {
                samples.retain(is_recent);
                !samples.is_empty()
            });
            !channels.is_empty()
        });
    }

    fn samples_of(&mut self, topic: &str, channel: &str) -> &mut VecDeque<Sample> {
        let channels = self.channels.entry(topic.to_owned()).or_default();
        channels.entry(channel.to_owned()).or_default()
    }

    /// Returns true if the channel has an old message at the last time, and its age has grown all the time.
    #[allow(clippy::cast_precision_loss)] // A comparison needs no more.
    pub(super) fn grows(&self, topic: &str, channel: &str) -> bool {
        let channels = self.channels.get(topic);
        let samples = channels.and_then(|channels| channels.get(channel));
        let (Some(samples), Some(began)) = (samples, self.times.front()) else {
            return false;
        };
        let (Some(first), Some(last)) = (samples.front(), samples.back()) else {
            return false;
        };
        if samples.len() < 2 || Some(&last.steady_millis) != self.times.back() {
            return false;
        }
        let before = samples.iter().rev().skip(1);
        let most = before.map(|sample| sample.depth).max().unwrap_or(0);
        let old = if last.depth > 0 && last.depth >= most {
            OLD_MILLIS_WITH_BACKLOG
        } else {
            OLD_MILLIS
        };
        // A message that was published since the first time says that the channel had no work then.
        let had_no_work =
            first.steady_millis > *began && last.oldest_ms <= last.steady_millis - began;
        let (earlier, since) = if had_no_work {
            (0, *began)
        } else {
            (first.oldest_ms, first.steady_millis)
        };
        let grown = last.oldest_ms.saturating_sub(earlier) as f64;
        let elapsed = last.steady_millis.saturating_sub(since) as f64;
        last.oldest_ms >= old && grown >= elapsed * STUCK_SHARE
    }
}
