//! [`Rate`]: limits the number of records per second.

use std::time::Duration;

/// A counter of tokens. It starts at 1 and gains one token every 1/N second, up to N. Each record
/// takes one token.
///
/// The counter has no clock. Times are durations since the start.
#[derive(Debug)]
pub(super) struct Rate {
    /// Records per second.
    per_second: u64,
    /// The tokens that were taken, minus the tokens that the cap has refused.
    taken: u64,
}

impl Rate {
    /// Returns the limit of `per_second` records, or `None` if that is below 1.
    pub(super) fn new(per_second: i64) -> Option<Rate> {
        let per_second = u64::try_from(per_second).ok().filter(|n| *n >= 1)?;
        Some(Rate {
            per_second,
            taken: 0,
        })
    }

    /// Returns the line that says the limit.
    pub(super) fn announcement(&self) -> String {
        format!("Throttling messages rate to max:{}/second", self.per_second)
    }

    /// Takes a token for a record. Returns the time to wait before the record, which is zero if
    /// there was a token.
    pub(super) fn take(&mut self, now: Duration) -> Duration {
        let gained = 1 + self.gained(now);
        // Tokens above the cap are lost.
        self.taken = self.taken.max(gained.saturating_sub(self.per_second));
        self.taken += 1;
        if self.taken <= gained {
            return Duration::ZERO;
        }
        self.time_of(self.taken - 1).saturating_sub(now)
    }

    /// Returns the number of tokens that the counter has gained since the start.
    fn gained(&self, now: Duration) -> u64 {
        let tokens = now.as_nanos().saturating_mul(u128::from(self.per_second)) / NANOS;
        u64::try_from(tokens).unwrap_or(u64::MAX - 1)
    }

    /// Returns the time at which the counter has gained this number of tokens.
    fn time_of(&self, tokens: u64) -> Duration {
        let nanos = (u128::from(tokens) * NANOS).div_ceil(u128::from(self.per_second));
        Duration::from_nanos_u128(nanos)
    }
}

/// The nanoseconds of a second.
const NANOS: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `count` records one after the other from `start`. Returns the end of the last wait.
    fn send(rate: &mut Rate, count: usize, start: Duration) -> Duration {
        (0..count).fold(start, |now, _| now + rate.take(now))
    }

    fn rate(per_second: i64) -> Rate {
        Rate::new(per_second).expect("a rate of at least 1")
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn records_are_spread_over_the_second() {
        let mut rate = rate(10);
        assert_eq!(
            rate.announcement(),
            "Throttling messages rate to max:10/second"
        );
        assert_eq!(send(&mut rate, 1, Duration::ZERO), Duration::ZERO);
        assert_eq!(send(&mut rate, 24, Duration::ZERO), 2400 * MS);
    }

    #[test]
    fn an_idle_time_allows_a_burst_of_one_second() {
        let mut rate = rate(10);
        let start = Duration::from_secs(100);
        assert_eq!(send(&mut rate, 10, start), start);
        assert_eq!(send(&mut rate, 1, start), start + 100 * MS);
        // Half a second of tokens.
        let later = start + 600 * MS;
        assert_eq!(send(&mut rate, 5, later), later);
        assert_eq!(send(&mut rate, 1, later), later + 100 * MS);
    }

    #[test]
    fn a_rate_of_one() {
        let mut rate = rate(1);
        assert_eq!(send(&mut rate, 4, Duration::ZERO), 3000 * MS);
    }

    #[test]
    fn large_rates_do_not_overflow() {
        let mut rate = rate(i64::MAX);
        assert!(send(&mut rate, 10_000, Duration::ZERO) < MS);
        assert_eq!(
            send(&mut rate, 10_000, Duration::MAX / 2),
            Duration::MAX / 2
        );
    }

    #[test]
    fn below_one_there_is_no_limit() {
        assert!(Rate::new(0).is_none());
        assert!(Rate::new(-5).is_none());
    }
}
