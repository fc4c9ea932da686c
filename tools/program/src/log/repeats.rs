//! [`Repeats`]: decides which repeated lines are written.
//!
//! An action that fails and is retried may fail for each of a thousand topics, four times a second.
//! Each cause therefore has one line per second. Further lines are counted, and the count is
//! written as a line of its own. The number of causes is at most the number of places in the code
//! times the number of the system's error codes. A cause is forgotten after a second without a
//! line.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Level;

/// Time in which a cause has one line.
const ONE_EVERY: Duration = Duration::from_secs(1);

/// The causes that had a line within the last second.
#[derive(Default)]
pub(super) struct Repeats {
    causes: BTreeMap<(Level, String), Cause>,
}

/// Lines that were held back.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) level: Level,
    pub(super) cause: String,
    pub(super) count: u64,
}

struct Cause {
    /// The end of the time in which lines of this cause are held back.
    until: Instant,
    held_count: u64,
}

impl Repeats {
    /// Returns true if a line of this cause should be written. Otherwise counts the line.
    pub(super) fn admit(&mut self, level: Level, cause: String, now: Instant) -> bool {
        let key = (level, cause);
        if let Some(known) = self.causes.get_mut(&key) {
            known.held_count += 1;
            return false;
        }
        let until = now + ONE_EVERY;
        let held_count = 0;
        self.causes.insert(key, Cause { until, held_count });
        true
    }

    /// Returns the time at which [`Repeats::take_held`] next has something to return.
    pub(super) fn next(&self) -> Option<Instant> {
        self.causes.values().map(|cause| cause.until).min()
    }

    /// Returns the lines held back of the causes whose time is over by `now`. The line with their number is
    /// the cause's line for the next second.
    pub(super) fn take_held(&mut self, now: Instant) -> Vec<Held> {
        let mut told = Vec::new();
        self.causes.retain(|key, cause| {
            if cause.until > now {
                return true;
            }
            if cause.held_count == 0 {
                return false;
            }
            told.push(Held::new(key, cause.held_count));
            *cause = Cause {
                until: now + ONE_EVERY,
                held_count: 0,
            };
            true
        });
        told
    }

    /// Returns the lines held back of all causes.
    pub(super) fn take_all_held(&mut self) -> Vec<Held> {
        let held = self
            .causes
            .iter_mut()
            .filter(|(_, cause)| cause.held_count > 0);
        held.map(|(key, cause)| Held::new(key, std::mem::take(&mut cause.held_count)))
            .collect()
    }
}

impl Held {
    fn new((level, cause): &(Level, String), count: u64) -> Held {
        Held {
            level: *level,
            cause: cause.clone(),
            count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                assert_eq!((held.level, &*held.cause), (Level::Error, "often"));
                told += held.count;
                lines += 1;
            }
            if ms % 7 == 0 {
                let is_written = repeats.admit(Level::Error, "often".to_owned(), now);
                written += u64::from(is_written);
                lines += u64::from(is_written);
            }
            if ms % 1500 == 0 {
                assert!(repeats.admit(Level::Error, "seldom".to_owned(), now));
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
