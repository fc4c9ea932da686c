//! [`ChannelCheck`]: the doctor's sentence about a channel, and whether the channel needs attention. [`Ages`] tell
//! which channels have a message that nobody finishes, and [`Departed`] who the last consumers were.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use nsq_doctor::{ChannelSample, Diagnosis, Flow, Limit, diagnose, short};
use serde::Serialize;

use super::concern::{Concern, Subject};
use super::round::{ChannelRound, Recent, Round};
use super::{ABSENT_MAX, keep_highest, keep_window, time_since};
use crate::figures::write_rounded;

/// The time over which ages are compared, in milliseconds.
const AGES_MILLIS: i64 = 5_000;

/// The age in milliseconds from which a message counts as old, wherever it is. The handler of a message in flight may take
/// this long, and a burst is consumed in this time.
const OLD_MILLIS: i64 = 10_000;

/// The age in milliseconds from which a message counts as old while messages wait and do not become fewer. A backlog that
/// does not shrink shows earlier that nobody finishes the message. The age is half of the window, because a channel
/// that kept up at its begin has no earlier age to compare with.
const OLD_MILLIS_WITH_BACKLOG: i64 = 2_500;

/// Ages that grow by this share of the time, or faster, belong to messages that nobody finishes.
const STUCK_SHARE: f64 = 0.5;

/// The time for which consumers are remembered while no node tells about their channel, in milliseconds.
const ABSENT_MILLIS: i64 = 30 * 60 * 1000;

/// The check of a channel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChannelCheck {
    /// The sentence of the doctor.
    pub sentence: String,
    /// True if the channel needs attention: a concern says so, too.
    pub is_problem: bool,
    /// True if the oldest message gets older.
    pub is_older: bool,
    /// True if messages are delivered again: consumers requeue them, or they time out. So is the oldest one, if it has
    /// failed again and again.
    pub is_retried: bool,
    /// Seconds until no message waits, if the present rates stay and consumers make the backlog shorter.
    #[serde(
        rename = "drained_in_s",
        serialize_with = "write_rounded",
        skip_serializing_if = "Option::is_none"
    )]
    pub drained_in: Option<f64>,
    /// True if the channel has nothing to do.
    #[serde(skip)]
    pub is_idle: bool,
}

/// Returns the check of a channel, and the concern about the channel, if there is one. `departed` tells about the last
/// consumers.
pub(super) fn check_channel(
    name: &(String, String),
    recent: &Recent,
    after: &ChannelRound,
    is_older: bool,
    departed: Option<String>,
) -> (ChannelCheck, Option<Concern>) {
    let (before, elapsed) = recent.earliest(|round| round.channels.get(name));
    let unknown = ChannelSample::default();
    let sample = before.map_or(&unknown, |before| &before.sample);
    let diagnosis = diagnose(sample, &after.sample, elapsed);
    // The messages of a node that has just come back wait for consumers that are about to find it.
    let is_older = is_older && (after.is_oldest_found || !after.sample.awaits_consumers());
    let departed = departed.filter(|_| matches!(diagnosis.limit, Limit::NoConsumers { .. }));
    let flow = Flow::between(sample, &after.sample, elapsed);
    let again_rate = flow.requeues + flow.timeouts;
    let is_retried = again_rate > 0.0 || diagnosis.oldest_failed.is_some();
    let again = if again_rate > 0.0 {
        format!(
            " {}/s are delivered again: look at the messages with the most attempts.",
            short(again_rate)
        )
    } else {
        String::new()
    };
    let check = ChannelCheck {
        sentence: if is_older && !diagnosis.is_problem() {
            format!(
                "The oldest message gets older.{again} {}",
                diagnosis.beside_older()
            )
        } else {
            format!("{diagnosis}{}", departed.unwrap_or_default())
        },
        is_older,
        is_retried,
        is_problem: is_older || (diagnosis.is_problem() && has_work(&diagnosis, &flow)),
        drained_in: before
            .and_then(|before| drained_in(&flow, after.finished_since(before), elapsed)),
        is_idle: matches!(diagnosis.limit, Limit::Idle { .. }),
    };
    // Messages behind a pause of the topic wait in the topic, and the sentence is about them.
    let in_topic = diagnosis.pauses().filter(|paused| paused.is_of_topic);
    let waiting = in_topic.fold(flow.depth, |most, paused| most.max(paused.waiting));
    let subject = Subject::Channel(name.0.clone(), name.1.clone());
    let concern = check.is_problem.then(|| Concern {
        depth: waiting,
        oldest_ms: after.oldest_ms,
        is_older,
        is_retried,
        ..Concern::new(subject, check.sentence.clone())
    });
    (check, concern)
}

/// Returns the seconds until no message waits. `finished` is the number of messages that consumers have finished in
/// this time: the flow also counts messages that were emptied, and they say nothing about the rest.
#[allow(clippy::cast_precision_loss)] // A time needs no more.
fn drained_in(flow: &Flow, finished: i64, elapsed: Duration) -> Option<f64> {
    let finishes = flow.finishes.min(finished as f64 / elapsed.as_secs_f64());
    let shrinks = finishes - flow.arrivals;
    (flow.depth > 0 && shrinks > 0.0 && flow.growth < 0.0).then(|| flow.depth as f64 / shrinks)
}

/// Returns true if a channel with a problem has something to do. A paused channel without messages
/// needs no attention.
fn has_work(diagnosis: &Diagnosis, flow: &Flow) -> bool {
    match &diagnosis.limit {
        Limit::Paused(_) => diagnosis.pauses().any(|paused| paused.waiting > 0),
        _ => flow.depth > 0 || flow.deferred > 0 || flow.in_flight > 0.0 || flow.arrivals > 0.0,
    }
}

/// The ages of the oldest messages in the last seconds, of the channels with work. Rounds are too rare for them while
/// nobody looks at the page. The ages come with the live figures, once a second.
#[derive(Debug, Default)]
pub(super) struct Ages {
    /// The times of the samples in steady milliseconds, the earliest first. The earliest one is at least
    /// [`AGES_MILLIS`] old, as soon as there is such a time.
    times: VecDeque<i64>,
    /// The samples by topic and channel, the earliest first.
    channels: BTreeMap<(String, String), VecDeque<Sample>>,
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
        keep_window(&mut self.times, steady_millis, AGES_MILLIS, |time| *time);
        self.times.push_back(steady_millis);
        for (topic, channel, depth, oldest_ms) in channels {
            // A channel without work has no sample.
            if oldest_ms > 0 {
                let sample = Sample {
                    steady_millis,
                    depth,
                    oldest_ms,
                };
                let name = (topic.to_owned(), channel.to_owned());
                self.channels.entry(name).or_default().push_back(sample);
            }
        }
        let began = self.times.front().copied().unwrap_or(steady_millis);
        self.channels.retain(|_, samples| {
            samples.retain(|sample| sample.steady_millis >= began);
            !samples.is_empty()
        });
    }

    /// Returns true if the channel has an old message at the last time, and its age has grown all the time.
    #[allow(clippy::cast_precision_loss)] // A comparison needs no more.
    pub(super) fn grows(&self, channel: &(String, String)) -> bool {
        let samples = self.channels.get(channel);
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

/// The last consumers of each channel, by topic and channel.
#[derive(Debug, Default)]
pub(super) struct Departed(BTreeMap<(String, String), Last>);

/// The consumers of a channel in the last round that had some.
#[derive(Debug)]
struct Last {
    /// One of them, in words.
    name: String,
    /// The number of their connections.
    count: usize,
    /// The time of the first round without a consumer, in steady milliseconds. `None` while there is one.
    left: Option<i64>,
    /// The time of the last round with the channel, in steady milliseconds.
    told: i64,
}

impl Departed {
    /// Takes the next round.
    pub(super) fn next(&mut self, after: &Round) {
        let now = after.now.steady_millis;
        for (key, channel) in &after.channels {
            if let Some(name) = &channel.consumer {
                let last = Last {
                    name: name.clone(),
                    count: channel.finishes.len(),
                    left: None,
                    told: now,
                };
                self.0.insert(key.clone(), last);
            } else if let Some(last) = self.0.get_mut(key) {
                last.left.get_or_insert(now);
                last.told = now;
            }
        }
        self.0
            .retain(|_, last| now.saturating_sub(last.told) < ABSENT_MILLIS);
        let count_max = after.channels.len() + ABSENT_MAX;
        keep_highest(&mut self.0, count_max, |_, last| last.told);
    }

    /// Returns the sentence about the last consumers of a channel that has none.
    pub(super) fn sentence(&self, channel: &(String, String), now: i64) -> Option<String> {
        let last = self.0.get(channel)?;
        let ago = match time_since(last.left?, now) {
            None => "just now".to_owned(),
            Some(time) => format!("{time} ago"),
        };
        let name = &last.name;
        Some(match last.count {
            0 | 1 => format!(". The last one left {ago}: {name}"),
            count => format!(". The last ones left {ago}: {name} and {} more", count - 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each name was remembered for half an hour, however many there were.
    #[test]
    fn channels_with_other_names_each_time_take_bounded_memory() {
        let mut departed = Departed::default();
        let present = 60_000;
        for step in 0..4 {
            let mut round = Round::default();
            round.now.steady_millis = step;
            let channels = (0..present).map(|number| {
                let channel = ChannelRound {
                    consumer: Some("x".to_owned()),
                    ..ChannelRound::default()
                };
                (("t".to_owned(), format!("c{step}-{number}")), channel)
            });
            round.channels.extend(channels);
            departed.next(&round);
        }
        assert_eq!(departed.0.len(), present + ABSENT_MAX);
        let now = departed.0.values().filter(|last| last.told == 3);
        assert_eq!(now.count(), present, "those that are there stay");
    }
}
