//! [`Pace`]: says when the next round of a checkup is due. [`Looks`]: who looks at the page, for whom rounds come more often.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The time between two rounds while somebody looks at the page: a second. The collector asks once a second,
/// and may ask a little early.
const WATCHED: Duration = Duration::from_millis(900);

/// The time between two rounds while nobody looks. The rounds go on, because usual rates, disks and nodes
/// that vanish need a past.
const UNWATCHED: Duration = Duration::from_secs(10);

/// The time for which a request counts as somebody who looks. A page behind others asks every 10 seconds.
const LOOK_LASTS: Duration = Duration::from_secs(15);

/// The smallest time between two rounds, in durations of the last round. So rounds take at most a tenth of
/// the time, however large the cluster is.
const DURATION_FACTOR: u32 = 10;

/// The last look at a checkup, and when the next checkup is expected.
#[derive(Debug)]
pub(super) struct Looks {
    began: Instant,
    /// The time of the last look since `began`.
    last: Mutex<Option<Duration>>,
    /// The time at which the next checkup is expected, since `began`.
    next_checkup: Mutex<Duration>,
    /// Wakes the collection when somebody begins to look.
    pub(super) begin: Notify,
}

impl Looks {
    pub(super) fn begin() -> Looks {
        Looks {
            began: Instant::now(),
            last: Mutex::default(),
            next_checkup: Mutex::default(),
            begin: Notify::new(),
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn count(&self) {
        let now = self.now();
        let last = self.last.lock().replace(now);
        if last.is_none_or(|last| !is_watched(now, last)) {
            self.expect_checkup(now);
            self.begin.notify_one();
        }
    }

    pub(super) fn last(&self) -> Option<Duration> {
        *self.last.lock()
    }

    pub(super) fn expect_checkup(&self, at: Duration) {
        *self.next_checkup.lock() = at;
    }

    pub(super) fn next_checkup(&self) -> Duration {
        self.next_checkup.lock().saturating_sub(self.now())
    }
}

/// The times of rounds and looks, as durations since any fixed moment.
#[derive(Debug, Default)]
pub(super) struct Pace {
    began: Option<Duration>,
    took: Duration,
}

impl Pace {
    /// Returns true if a round is due. `looked` is the time of the last look at the page.
    pub(super) fn is_due(&self, now: Duration, looked: Option<Duration>) -> bool {
        self.due_in(now, looked).is_zero()
    }

    /// Returns the time until a round is due.
    pub(super) fn due_in(&self, now: Duration, looked: Option<Duration>) -> Duration {
        let Some(began) = self.began else {
            return Duration::ZERO;
        };
        let interval = if looked.is_some_and(|looked| is_watched(now, looked)) {
            WATCHED
        } else {
            UNWATCHED
        };
        (began + interval.max(self.took * DURATION_FACTOR)).saturating_sub(now)
    }

    /// Returns the time that a round takes, without the wait for servers that do not answer.
    pub(super) fn duration(&self) -> Duration {
        self.took
    }

    /// Takes the begin of a round, and the time in which servers answered. The wait for a server that does not answer says
    /// nothing about the cost of a round.
    pub(super) fn count(&mut self, began: Duration, took: Duration) {
        self.began = Some(began);
        self.took = took;
    }
}

/// Returns true if somebody looks at the page, whose last look was at `looked`.
fn is_watched(now: Duration, looked: Duration) -> bool {
    now.saturating_sub(looked) < LOOK_LASTS
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn rounds_come_every_second_while_somebody_looks_and_every_ten_otherwise() {
        let mut pace = Pace::default();
        assert!(pace.is_due(millis(0), None));
        pace.count(millis(0), millis(50));
        for (now, looked, expected) in [
            (810, Some(800), false),
            (990, Some(500), true),
            (9_999, None, false),
            (10_000, None, true),
            // The look was 15 seconds ago.
            (9_000, Some(0), true),
        ] {
            let looked = looked.map(millis);
            assert_eq!(pace.is_due(millis(now), looked), expected, "at {now} ms");
        }
        pace.count(millis(20_000), millis(50));
        assert!(!pace.is_due(millis(25_000), Some(millis(10_000))));
    }

    #[test]
    fn the_time_between_rounds_grows_with_the_duration_of_a_round() {
        let mut pace = Pace::default();
        pace.count(millis(0), millis(700));
        assert!(!pace.is_due(millis(6_999), Some(millis(6_000))));
        assert!(pace.is_due(millis(7_000), Some(millis(6_000))));
        pace.count(millis(0), millis(3_000));
        assert!(!pace.is_due(millis(29_000), None));
        assert!(pace.is_due(millis(30_000), None));
    }

    /// A node that hung for 5 seconds made every later round come 50 seconds after the one before.
    #[test]
    fn a_server_that_does_not_answer_does_not_put_rounds_off() {
        let mut pace = Pace::default();
        pace.count(millis(0), millis(50));
        // The round took 5 seconds, and the other servers answered at once.
        pace.count(millis(2_000), millis(50));
        assert!(pace.is_due(millis(7_000), Some(millis(6_000))));
        assert!(pace.is_due(millis(12_000), None));
    }

    /// While a server was silent, the duration of the last round with all answers counted, however long ago that was.
    #[test]
    fn each_round_tells_how_long_a_round_takes() {
        let mut pace = Pace::default();
        pace.count(millis(0), millis(3_000));
        pace.count(millis(60_000), millis(50));
        assert_eq!(pace.duration(), millis(50));
        assert!(pace.is_due(millis(61_000), Some(millis(60_000))));
    }
}
