//! The progress of a tool at a terminal: one line below the log, with the figures so far.

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::time::{Duration, Instant};

use program::log;
use ringq_client::Control;
use tokio::time::{MissedTickBehavior, interval};

/// The time between two states of the line.
const INTERVAL: Duration = Duration::from_secs(1);

/// The figures of a tool at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    /// The number of messages that are done.
    pub count: u64,
    /// The name of these messages in the line: `messages`.
    pub name: &'static str,
    /// The figures behind the rate, without control characters: `3 in flight, 0 errors`.
    pub others: String,
}

impl Figures {
    /// Returns the figures of messages that leave for another place. `errors` is the number of failures so far.
    pub fn of_transfer(count: u64, in_flight: u64, errors: u64) -> Figures {
        Figures {
            count,
            name: "messages",
            others: format!("{in_flight} in flight, {errors} errors"),
        }
    }

    /// Returns the sums of the consumers behind these controls. An error is a message that went back to nsqd.
    pub fn of_consumers(controls: &[Control]) -> Figures {
        let (mut finished, mut in_flight, mut requeued) = (0, 0, 0);
        for control in controls {
            let stats = control.stats();
            finished += stats.finished;
            in_flight += stats.in_flight;
            requeued += stats.requeued;
        }
        Figures::of_transfer(finished, in_flight, requeued)
    }
}

/// Does `work`, and shows the figures below the log meanwhile. Without a terminal as stderr, nothing is shown, and
/// `figures` is not called. The line disappears with the end of the work.
pub async fn beside<T>(work: impl Future<Output = T>, mut figures: impl FnMut() -> Figures) -> T {
    if !io::stderr().is_terminal() {
        return work.await;
    }
    let mut work = pin!(work);
    let mut line = Line::new(figures().count, Instant::now());
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick comes at once, and would show no rate.
    ticks.reset();
    loop {
        tokio::select! {
            biased;
            result = &mut work => {
                log::show_status(String::new());
                return result;
            }
            _ = ticks.tick() => log::show_status(line.next(&figures(), Instant::now())),
        }
    }
}

/// The line, with the part of the past that the rate needs.
struct Line {
    count: u64,
    at: Instant,
}

impl Line {
    fn new(count: u64, at: Instant) -> Line {
        Line { count, at }
    }

    /// Returns the text for these figures. The rate is that since the last call.
    fn next(&mut self, figures: &Figures, now: Instant) -> String {
        let time = now.saturating_duration_since(self.at);
        let new = figures.count.saturating_sub(self.count);
        *self = Line::new(figures.count, now);
        let rate = (new as f64 / time.as_secs_f64().max(0.001)).round();
        let Figures {
            count,
            name,
            others,
        } = figures;
        format!("{count} {name} ({rate}/s), {others}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_time_since_the_last_line() {
        let began = Instant::now();
        let mut line = Line::new(0, began);
        let mut check = |count, milliseconds, expected: &str| {
            let figures = Figures::of_transfer(count, 3, 1);
            let now = began + Duration::from_millis(milliseconds);
            assert_eq!(line.next(&figures, now), expected);
        };
        check(100, 1000, "100 messages (100/s), 3 in flight, 1 errors");
        // A busy machine was late by half a second.
        check(400, 2500, "400 messages (200/s), 3 in flight, 1 errors");
        check(400, 3500, "400 messages (0/s), 3 in flight, 1 errors");
        check(401, 3500, "401 messages (1000/s), 3 in flight, 1 errors");
    }

    #[test]
    fn the_largest_figures_fit_into_a_narrow_terminal() {
        let now = Instant::now();
        let figures = Figures::of_transfer(999_999_999_999, 2500, 999_999_999);
        let text = Line::new(999_990_000_000, now).next(&figures, now + INTERVAL);
        assert!(text.len() < 80, "{text}");
    }
}
