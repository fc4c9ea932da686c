use super::Verdict::{Failure, Neutral, Success};
use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn config(multiplier: Duration, period_max: Duration) -> Config {
    Config {
        backoff_multiplier: multiplier,
        max_backoff_duration: period_max,
        ..Config::default()
    }
}

/// Answers, one per period, and the level and period after each.
fn check(config: &Config, answers: &[(Verdict, u32, Step)]) {
    let mut backoff = Backoff::new(config, 1);
    let now = Instant::now();
    for (index, (verdict, level, step)) in answers.iter().enumerate() {
        let got = backoff.answer(now, *verdict);
        backoff.check();
        assert_eq!((backoff.level(), got), (*level, *step), "answer {index}");
        backoff.end_period();
    }
}

#[test]
fn the_level_follows_failures_and_successes() {
    let pause = |ms| Step::Pause(MS(ms));
    check(
        &config(MS(50), MS(1000)),
        &[
            (Success, 0, Step::Stay),
            (Neutral, 0, Step::Stay),
            (Failure, 1, pause(100)),
            (Failure, 2, pause(200)),
            (Neutral, 2, pause(200)),
            (Failure, 3, pause(400)),
            (Failure, 4, pause(800)),
            // 1600 ms would exceed the maximum.
            (Failure, 4, pause(800)),
            (Success, 3, pause(400)),
            (Success, 2, pause(200)),
            (Success, 1, pause(100)),
            (Success, 0, Step::Leave),
            (Success, 0, Step::Stay),
        ],
    );
}

#[test]
fn the_longest_default_period_is_64_seconds() {
    let mut backoff = Backoff::new(&Config::default(), 1);
    let now = Instant::now();
    let mut periods = Vec::new();
    for _ in 0..8 {
        match backoff.answer(now, Failure) {
            Step::Pause(period) => periods.push(period.as_secs()),
            step => panic!("{step:?}"),
        }
        backoff.end_period();
    }
    assert_eq!(periods, [2, 4, 8, 16, 32, 64, 64, 64]);
}

#[test]
fn answers_during_a_period_do_not_count() {
    let mut backoff = Backoff::new(&config(MS(50), MS(1000)), 1);
    let now = Instant::now();
    assert_eq!(backoff.answer(now, Failure), Step::Pause(MS(100)));
    for verdict in [Failure, Success, Neutral, Failure] {
        assert_eq!(backoff.answer(now + MS(99), verdict), Step::Stay);
    }
    assert_eq!(backoff.period_end(), Some(now + MS(100)));
    backoff.end_period();
    assert_eq!(backoff.answer(now + MS(100), Success), Step::Leave);
}

#[test]
fn a_maximum_of_zero_disables_the_backoff() {
    for multiplier in [Duration::ZERO, MS(50)] {
        check(
            &config(multiplier, Duration::ZERO),
            &[(Failure, 0, Step::Stay), (Failure, 0, Step::Stay)],
        );
    }
}

#[test]
fn a_multiplier_of_zero_never_overflows() {
    let mut backoff = Backoff::new(&config(Duration::ZERO, MS(1)), 1);
    let now = Instant::now();
    for _ in 0..1000 {
        assert_eq!(backoff.answer(now, Failure), Step::Pause(Duration::ZERO));
        backoff.end_period();
    }
    assert_eq!(backoff.level(), LEVEL_MAX);
}

#[test]
fn full_jitter_stays_within_its_bounds() {
    let mut config = config(MS(50), MS(1000));
    config.backoff_strategy = BackoffStrategy::FullJitter;
    let now = Instant::now();
    let mut shorter_than_half = 0;
    for seed in 0..1000 {
        let mut backoff = Backoff::new(&config, seed);
        match backoff.answer(now, Failure) {
            Step::Pause(period) => {
                assert!(period < MS(100), "{period:?}");
                shorter_than_half += usize::from(period < MS(50));
            }
            step => panic!("{step:?}"),
        }
        for _ in 0..20 {
            backoff.end_period();
            let before = backoff.level();
            match backoff.answer(now, Failure) {
                Step::Pause(period) => assert!(period <= MS(1000), "{period:?}"),
                step => panic!("{step:?}"),
            }
            assert!(backoff.level() - before <= 1);
            backoff.check();
        }
    }
    assert!(
        (400..600).contains(&shorter_than_half),
        "{shorter_than_half}"
    );
}

impl Backoff {
    /// Checks the invariants.
    pub(crate) fn check(&self) {
        assert!(self.level > 0 || self.period_end.is_none(), "{self:?}");
        assert!(self.level == 0 || !self.period_max.is_zero(), "{self:?}");
    }
}
