//! [`Repeats`]: decides which repeated lines are written.
//!
//! An action that fails and is retried may fail for each of a thousand topics, four times a second.
//! Each cause therefore has one line per second. Further lines are counted, and the count is
//! written with the last of these lines. The number of causes is at most the number of places in the
//! code times the number of the system's error codes, or the number of topics of a tool. A cause is
//! forgotten after a second without a line.
//!
//! Something that comes and goes is one cause, and so the last line about it says how it is now.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Level;
use super::line::Line;

/// Time in which a cause has one line.
const ONE_EVERY: Duration = Duration::from_secs(1);

/// The causes that had a line within the last second.
#[derive(Default)]
pub(super) struct Repeats {
    causes: BTreeMap<String, Cause>,
}

/// Lines of one cause that were held back.
pub(super) struct Held {
    pub(super) count: u64,
    /// The most severe level of the lines. An alarm for errors must not miss one before a line of level INFO.
    pub(super) level: Level,
    pub(super) last: Line,
}

struct Cause {
    /// The end of the time in which lines of this cause are held back.
    until: Instant,
    held: Option<Held>,
}

impl Repeats {
    /// Returns the line if it should be written. Otherwise holds it back.
    pub(super) fn admit(&mut self, cause: String, line: Line, now: Instant) -> Option<Line> {
        if let Some(known) = self.causes.get_mut(&cause) {
            let (mut count, mut level) = (1, line.level);
            if let Some(held) = &known.held {
                count += held.count;
                level = level.max(held.level);
            }
            let last = line;
            known.held = Some(Held { count, level, last });
            return None;
        }
        let until = now + ONE_EVERY;
        self.causes.insert(cause, Cause { until, held: None });
        Some(line)
    }

    /// Returns the time at which [`Repeats::take_held`] next has something to return.
    pub(super) fn next(&self) -> Option<Instant> {
        self.causes.values().map(|cause| cause.until).min()
    }

    /// Returns the lines held back of the causes whose time is over by `now`. The line about them is
    /// the cause's line for the next second.
    pub(super) fn take_held(&mut self, now: Instant) -> Vec<Held> {
        let mut told = Vec::new();
        self.causes.retain(|_, cause| {
            if cause.until > now {
                return true;
            }
            let Some(held) = cause.held.take() else {
                return false;
            };
            told.push(held);
            cause.until = now + ONE_EVERY;
            true
        });
        told
    }

    /// Returns the lines held back of all causes.
    pub(super) fn take_all_held(&mut self) -> Vec<Held> {
        let causes = self.causes.values_mut();
        causes.filter_map(|cause| cause.held.take()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Level;

    fn line(text: &str) -> Line {
        Line::now(Level::Error, text.to_owned())
    }

    #[test]
    fn a_cause_has_one_line_a_second_and_no_line_is_forgotten() {
        let mut repeats = Repeats::default();
        let start = Instant::now();
        let (mut written, mut told) = (0, 0);
        let mut lines = 0;
        // The test logs 140 lines a second, and another cause now and then.
        for ms in 0..10_000 {
            let now = start + Duration::from_millis(ms);
            for held in repeats.take_held(now) {
                assert_eq!(held.last.text, "often");
                told += held.count;
                lines += 1;
            }
            if ms % 7 == 0 {
                let line = repeats.admit("often".to_owned(), line("often"), now);
                let is_written = u64::from(line.is_some());
                written += is_written;
                lines += is_written;
            }
            if ms % 1500 == 0 {
                let line = repeats.admit("seldom".to_owned(), line("seldom"), now);
                assert!(line.is_some());
            }
        }
        assert_eq!((written, lines), (1, 10), "one a second");
        let held = repeats.take_held(start + Duration::from_secs(11));
        told += held.iter().map(|held| held.count).sum::<u64>();
        assert_eq!(written + told, 10_000u64.div_ceil(7));
        assert!(
            repeats
                .take_held(start + Duration::from_secs(13))
                .is_empty()
        );
        assert_eq!(repeats.next(), None, "nothing is kept of what has ended");
    }
}
