//! [`Pace`]: says when the next round of a checkup is due.

use std::time::Duration;

/// The time between two rounds while somebody looks at the page: 2 seconds. The collector asks once a second,
/// and may ask a little early.
const WATCHED: Duration = Duration::from_millis(1800);

/// The time between two rounds while nobody looks. The rounds go on, because usual rates, disks and nodes
/// that vanish need a past.
const UNWATCHED: Duration = Duration::from_secs(10);

/// The time for which a request counts as somebody who looks. A page behind others asks every 10 seconds.
const LOOK_LASTS: Duration = Duration::from_secs(15);

/// The smallest time between two rounds, in durations of the last round. So rounds take at most a tenth of
/// the time, however large the cluster is.
const DURATION_FACTOR: u32 = 10;

/// The times of rounds and looks, as durations since any fixed moment.
#[derive(Debug, Default)]
pub struct Pace {
    began: Option<Duration>,
    took: Duration,
}

impl Pace {
    /// Returns true if a round is due. `looked` is the time of the last look at the page.
    pub fn is_due(&self, now: Duration, looked: Option<Duration>) -> bool {
        let Some(began) = self.began else {
            return true;
        };
        let is_watched = looked.is_some_and(|looked| now.saturating_sub(looked) < LOOK_LASTS);
        let interval = match is_watched {
            true => WATCHED,
            false => UNWATCHED,
        };
        now.saturating_sub(began) >= interval.max(self.took * DURATION_FACTOR)
    }

    /// Takes the begin and the end of a round. A round that is not complete has waited for a server until its time
    /// was over: this duration says nothing about the cost of a round.
    pub fn count(&mut self, began: Duration, ended: Duration, is_complete: bool) {
        self.began = Some(began);
        if is_complete {
            self.took = ended.saturating_sub(began);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn rounds_come_every_two_seconds_while_somebody_looks_and_every_ten_otherwise() {
        let mut pace = Pace::default();
        assert!(pace.is_due(millis(0), None));
        pace.count(millis(0), millis(50), true);
        for (now, looked, expected) in [
            (1_010, Some(1_000), false),
            (1_990, Some(1_500), true),
            (9_999, None, false),
            (10_000, None, true),
            // The look was 15 seconds ago.
            (9_000, Some(0), true),
        ] {
            let looked = looked.map(millis);
            assert_eq!(pace.is_due(millis(now), looked), expected, "at {now} ms");
        }
        pace.count(millis(20_000), millis(20_050), true);
        assert!(!pace.is_due(millis(25_000), Some(millis(10_000))));
    }

    #[test]
    fn the_time_between_rounds_grows_with_the_duration_of_a_round() {
        let mut pace = Pace::default();
        pace.count(millis(0), millis(700), true);
        assert!(!pace.is_due(millis(6_999), Some(millis(6_000))));
        assert!(pace.is_due(millis(7_000), Some(millis(6_000))));
        pace.count(millis(0), millis(3_000), true);
        assert!(!pace.is_due(millis(29_000), None));
        assert!(pace.is_due(millis(30_000), None));
    }

    /// A node that hung for 5 seconds made every later round come 50 seconds after the one before.
    #[test]
    fn a_server_that_does_not_answer_does_not_put_rounds_off() {
        let mut pace = Pace::default();
        pace.count(millis(0), millis(50), true);
        pace.count(millis(2_000), millis(7_000), false);
        assert!(pace.is_due(millis(7_000), Some(millis(6_000))));
        assert!(pace.is_due(millis(12_000), None));
    }
}
