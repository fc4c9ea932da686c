//! [`DueTimes`]: the due times that an earlier run has recorded, on the monotonic clock of this run.

use crate::now::Now;
use diskq_log::FoundDeferral;
use std::time::Duration;

/// Turns recorded due times into times of the monotonic clock.
///
/// A record has the Unix time at which a message is due. If the wall clock was set back since, or was wrong at one of
/// the two times, the due time may lie years ahead. A message waits no longer than it had to wait when it was recorded,
/// which the time of the record tells, and never longer than the longest deferral.
#[derive(Debug)]
pub(crate) struct DueTimes {
    pub(crate) now: Now,
    /// The Unix time of the record in nanoseconds; 0: not known.
    recorded_ns: u64,
    /// The longest deferral of any message.
    deferral_max: Duration,
    /// The number of messages that wait less than the wall clock says.
    pub(crate) moved_count: u64,
}

impl DueTimes {
    pub(crate) fn new(now: Now, recorded_ns: u64, deferral_max: Duration) -> DueTimes {
        DueTimes {
            now,
            recorded_ns,
            deferral_max,
            moved_count: 0,
        }
    }

    /// Returns the due time of `count` recorded messages. A due time in the past becomes the current time. `None` if
    /// `due_ns` is 0: the messages are not deferred.
    pub(crate) fn recorded(&mut self, due_ns: u64, count: u64) -> Option<Duration> {
        let waited = Duration::from_nanos(due_ns.saturating_sub(self.recorded_ns));
        (due_ns > 0).then(|| self.now.mono + self.wait(due_ns, waited, count))
    }

    /// Returns how long a message waits that was published deferred and is in no record.
    pub(crate) fn found(&mut self, found: &FoundDeferral) -> Duration {
        let deferral = Duration::from_millis(found.defer_ms.into());
        self.wait(found.due_ns, deferral, 1)
    }

    fn wait(&mut self, due_ns: u64, longest: Duration, count: u64) -> Duration {
        let wait = Duration::from_nanos(due_ns.saturating_sub(self.now.wall_ns));
        let longest = longest.min(self.deferral_max);
        if wait > longest {
            self.moved_count += count;
        }
        wait.min(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_recorded_message_waits_no_longer_than_it_had_to_wait() {
        let hour = Duration::from_secs(3600);
        for (wall, recorded, due, wait) in [
            (1000, 990, 1010, 10),
            // The clock was set back by 300 s.
            (700, 998, 1010, 12),
            // The clock begins in 1970.
            (0, 1_800_000_000, 1_800_000_002, 2),
            // The time of the record is not known.
            (700, 0, 1010, 310),
            (0, 0, 1_800_000_000, 3600),
            // The time has passed.
            (1000, 990, 999, 0),
        ] {
            let now = Now {
                mono: Duration::from_secs(5),
                wall_ns: wall * SECOND,
            };
            let mut times = DueTimes::new(now, recorded * SECOND, hour);
            let expected = now.mono + Duration::from_secs(wait);
            assert_eq!(times.recorded(due * SECOND, 3), Some(expected), "{wall}");
            let is_moved = due.saturating_sub(wall) > wait;
            assert_eq!(times.moved_count, u64::from(is_moved) * 3);
            assert_eq!(times.recorded(0, 3), None);
        }
    }

    #[test]
    fn a_message_that_was_published_deferred_waits_no_longer_than_its_deferral() {
        let now = Now {
            mono: Duration::from_secs(5),
            wall_ns: 700 * SECOND,
        };
        let mut times = DueTimes::new(now, 0, Duration::from_secs(3600));
        let mut found = FoundDeferral {
            seq: wire::id::Seq(1),
            due_ns: 1000 * SECOND,
            defer_ms: 2000,
        };
        assert_eq!(times.found(&found), Duration::from_secs(2));
        found.due_ns = 701 * SECOND;
        assert_eq!(times.found(&found), Duration::from_secs(1));
        assert_eq!(times.moved_count, 1);
    }
}
