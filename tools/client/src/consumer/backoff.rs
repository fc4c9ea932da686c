//! [`Backoff`]: how much a consumer slows down while messages fail. A state machine without clock, task or I/O.
//!
//! ```text
//!               failure: level 1, a period starts             the period ends: one connection gets RDY 1
//!   level 0 ───────────────────────────────────► period ────────────────────────────────────────► test
//!      ▲                                           ▲                                                │
//!      │ success: level 0                          │ failure: level up; success: level down         │
//!      └───────────────────────────────────────────┴────────────────────────────────────────────────┘
//! ```
//!
//! While a period runs, answers do not count. Many concurrent failures therefore count once.

use std::time::{Duration, Instant};

use crate::config::{BackoffStrategy, Config};

/// The highest level. `Exponential` reaches none above it: 2^62 units of a nanosecond are 146 years.
const LEVEL_MAX: u32 = 62;

/// The answer to a message, for the backoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The message was finished.
    Success,
    /// The message was requeued.
    Failure,
    /// The message was requeued for a reason that has nothing to do with failure.
    Neutral,
}

/// The consequence of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Everything stays.
    Stay,
    /// All connections get RDY 0, and a period of this length starts.
    Pause(Duration),
    /// The backoff is over. All connections get their fair share.
    Leave,
}

/// The backoff of one consumer.
///
/// Invariants: at level 0 no period runs. With `max_backoff_duration` zero the level is always 0.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    strategy: BackoffStrategy,
    multiplier: Duration,
    period_max: Duration,
    level: u32,
    period_end: Option<Instant>,
    random: fastrand::Rng,
}

impl Backoff {
    pub(crate) fn new(config: &Config, seed: u64) -> Backoff {
        Backoff {
            strategy: config.backoff_strategy,
            multiplier: config.backoff_multiplier,
            period_max: config.max_backoff_duration,
            level: 0,
            period_end: None,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Returns the level. 0 means no backoff.
    pub(crate) fn level(&self) -> u32 {
        self.level
    }

    /// Returns true while answers do not count.
    pub(crate) fn is_period_running(&self) -> bool {
        self.period_end.is_some()
    }

    /// Returns the end of the running period.
    pub(crate) fn period_end(&self) -> Option<Instant> {
        self.period_end
    }

    /// Takes an answer.
    pub(crate) fn answer(&mut self, now: Instant, verdict: Verdict) -> Step {
        if self.is_period_running() {
            return Step::Stay;
        }
        let before = self.level;
        match verdict {
            Verdict::Success => self.level = before.saturating_sub(1),
            Verdict::Failure => {
                let is_enabled = !self.period_max.is_zero() && before < LEVEL_MAX;
                if is_enabled && self.draw(before + 1) <= self.period_max {
                    self.level = before + 1;
                }
            }
            Verdict::Neutral => {}
        }
        match (before, self.level) {
            (0, 0) => Step::Stay,
            (_, 0) => Step::Leave,
            (_, level) => {
                let period = self.draw(level).min(self.period_max);
                self.period_end = Some(now + period);
                Step::Pause(period)
            }
        }
    }

    /// Ends the period. The next answer counts.
    pub(crate) fn end_period(&mut self) {
        self.period_end = None;
    }

    /// Starts a period because no connection can be tested now.
    pub(crate) fn wait(&mut self, now: Instant, period: Duration) {
        assert!(self.level > 0, "only a backoff has periods");
        self.period_end = Some(now + period);
    }

    /// Returns the length of a period at `level`.
    fn draw(&mut self, level: u32) -> Duration {
        let nanos = self.multiplier.as_nanos() << level;
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        match self.strategy {
            BackoffStrategy::Exponential => Duration::from_nanos(nanos),
            BackoffStrategy::FullJitter => match nanos {
                0 => Duration::ZERO,
                nanos => Duration::from_nanos(self.random.u64(0..nanos)),
            },
        }
    }
}

#[cfg(test)]
mod tests;
