//! [`Departed`]: who the last consumers of a channel were, and when they left.

use std::collections::BTreeMap;

use nsq_doctor::duration;

use super::round::Round;
use super::{ABSENT_MAX, keep_latest};

/// The time for which consumers are remembered while no node tells about their channel, in milliseconds.
const ABSENT_MILLIS: i64 = 30 * 60 * 1000;

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
            match (&channel.consumer, self.0.get_mut(key)) {
                (Some(name), Some(last)) => {
                    if last.name != *name {
                        last.name.clone_from(name);
                    }
                    (last.count, last.left, last.told) = (channel.finishes.len(), None, now);
                }
                (Some(name), None) => {
                    let last = Last {
                        name: name.clone(),
                        count: channel.finishes.len(),
                        left: None,
                        told: now,
                    };
                    self.0.insert(key.clone(), last);
                }
                (None, Some(last)) => {
                    last.left.get_or_insert(now);
                    last.told = now;
                }
                (None, None) => {}
            }
        }
        self.0
            .retain(|_, last| now.saturating_sub(last.told) < ABSENT_MILLIS);
        let count_max = after.channels.len() + ABSENT_MAX;
        keep_latest(&mut self.0, count_max, |last| last.told);
    }

    /// Returns the sentence about the last consumers of a channel that has none.
    pub(super) fn sentence(&self, channel: &(String, String), now: i64) -> Option<String> {
        let last = self.0.get(channel)?;
        #[allow(clippy::cast_precision_loss)] // A time needs no more.
        let seconds = now.saturating_sub(last.left?) as f64 / 1000.0;
        let ago = if seconds < 1.0 {
            "just now".to_owned()
        } else {
            format!("{} ago", duration(seconds))
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
    use super::super::ChannelRound;
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
