//! [`Repeats`]: decides which repeated errors are written.
//!
//! An action that fails and is retried may fail for each of a thousand topics, four times a second.
//! Each cause therefore has one line per second. Further lines are counted, and the count is
//! written as a line of its own. The number of causes is at most the number of places in the code
//! times the number of the system's error codes. A cause is forgotten after a second without a
//! line.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time in which a cause has one line.
const ONE_EVERY: Duration = Duration::from_secs(1);

/// The causes that had a line within the last second.
#[derive(Default)]
pub(super) struct Repeats {
    causes: BTreeMap<String, Cause>,
}

struct Cause {
    /// The end of the time in which lines of this cause are held back.
    until: Instant,
    held_count: u64,
}

impl Repeats {
    /// Returns true if a line of this cause should be written. Otherwise counts the line.
    pub(super) fn admit(&mut self, cause: String, now: Instant) -> bool {
        if let Some(known) = self.causes.get_mut(&cause) {
            known.held_count += 1;
            return false;
        }
        let until = now + ONE_EVERY;
        let held_count = 0;
        self.causes.insert(cause, Cause { until, held_count });
        true
    }

    /// Returns the time at which [`Repeats::take_held`] next has something to return.
    pub(super) fn next(&self) -> Option<Instant> {
        self.causes.values().map(|cause| cause.until).min()
    }

    /// Returns the causes whose time is over by `now`, each with the number of lines held back. The
    /// line with this number is the cause's line for the next second.
    pub(super) fn take_held(&mut self, now: Instant) -> Vec<(String, u64)> {
        let mut told = Vec::new();
        self.causes.retain(|text, cause| {
            if cause.until > now {
                return true;
            }
            if cause.held_count == 0 {
                return false;
            }
            told.push((text.clone(), cause.held_count));
            *cause = Cause {
                until: now + ONE_EVERY,
                held_count: 0,
            };
            true
        });
        told
    }

    /// Returns all causes with lines held back, each with the number of lines.
    pub(super) fn take_all_held(&mut self) -> Vec<(String, u64)> {
        let held = self
            .causes
            .iter_mut()
            .filter(|(_, cause)| cause.held_count > 0);
        held.map(|(text, cause)| (text.clone(), std::mem::take(&mut cause.held_count)))
            .collect()
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
            for (cause, count) in repeats.take_held(now) {
                assert_eq!(cause, "often");
                told += count;
                lines += 1;
            }
            if ms % 7 == 0 {
                let is_written = repeats.admit("often".to_owned(), now);
                written += u64::from(is_written);
                lines += u64::from(is_written);
            }
            if ms % 1500 == 0 {
                assert!(repeats.admit("seldom".to_owned(), now));
            }
        }
        assert_eq!((written, lines), (1, 10), "one a second");
        let held = repeats.take_held(start + Duration::from_secs(11));
        told += held.iter().map(|(_, count)| count).sum::<u64>();
        assert_eq!(written + told, 10_000u64.div_ceil(7));
        assert!(
            repeats
                .take_held(start + Duration::from_secs(13))
                .is_empty()
        );
        assert_eq!(repeats.next(), None, "nothing is kept of what has ended");
    }
}
