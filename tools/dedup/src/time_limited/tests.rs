use std::time::Duration;

use super::{GENERATIONS, TimeLimitedBloom, TimeLimitedOptions};
use crate::saved::{Restored, restore, save};
use crate::{Filter, Fingerprint, ForgetfulBloom, ForgetfulOptions, KeyHasher, UnixTime};

const START: UnixTime = UnixTime::from_secs(1_000_000);
const WINDOW: Duration = Duration::from_secs(30);

fn options() -> TimeLimitedOptions {
    TimeLimitedOptions {
        window: WINDOW,
        rate: 100.0,
        rate_max: 400.0,
        false_positives_max: 0.01,
        hasher: KeyHasher::new([3; 16]),
    }
}

fn filter() -> TimeLimitedBloom {
    TimeLimitedBloom::new(options(), START).expect("valid options")
}

fn key(number: u64) -> Fingerprint {
    KeyHasher::new([3; 16]).fingerprint(&number.to_le_bytes())
}

/// Feeds keys at this rate, and returns the time after the last one.
fn feed<F: Filter<Key = Fingerprint>>(
    filter: &mut F,
    numbers: std::ops::Range<u64>,
    rate: f64,
    from: UnixTime,
) -> UnixTime {
    let at = |index: u64| from + Duration::from_secs_f64(index as f64 / rate);
    let count = numbers.end - numbers.start;
    for (index, number) in numbers.enumerate() {
        filter.remember(key(number), at(index as u64));
    }
    at(count)
}

#[test]
fn a_key_is_remembered_for_the_window_and_forgotten_soon_after() {
    let period = WINDOW / GENERATIONS;
    for offset in [0, 1, 1_500, 2_999, 3_000, 100_000] {
        let mut filter = filter();
        let at = START + Duration::from_millis(offset);
        filter.remember(key(1), at);
        assert!(filter.remembers(key(1), at + WINDOW), "{offset}");
        assert!(!filter.remembers(key(1), at + WINDOW + period), "{offset}");
    }
}

/// The window holds at rates from zero to `rate_max`, also when the rate changes. No key of the window is forgotten.
#[test]
fn the_window_holds_while_the_rate_changes() {
    let mut filter = filter();
    let mut now = START;
    let mut number = 0;
    let mut times = Vec::new();
    for (rate, seconds) in [
        (100.0, 40.0),
        (400.0, 60.0),
        (10.0, 20.0),
        (0.5, 100.0),
        (399.0, 35.0),
    ] {
        let count = (rate * seconds) as u64;
        for index in 0..count {
            let at = now + Duration::from_secs_f64(index as f64 / rate);
            filter.remember(key(number), at);
            times.push(at);
            number += 1;
        }
        now += Duration::from_secs_f64(seconds);
        for (number, at) in times.iter().enumerate() {
            if *at + WINDOW >= now {
                assert!(
                    filter.remembers(key(number as u64), now),
                    "{number} at {rate}"
                );
            }
        }
        assert!(filter.false_positives() <= 0.01);
        assert!(filter.bytes() <= filter.bytes_max());
    }
    assert_eq!(filter.shortest_window(), None);
}

/// The measured false positives are those of the formula, below the bound at any load. Among `PROBES` fresh keys, their
/// number has a standard deviation of √(computed · 50,000).
#[test]
fn false_positives_stay_below_the_bound_at_any_load() {
    const PROBES: u64 = 50_000;
    for factor in [0.1, 1.0, 4.0, 30.0] {
        let mut filter = filter();
        let rate = options().rate * factor;
        let now = feed(&mut filter, 0..(rate * 100.0) as u64, rate, START);
        let computed = filter.false_positives();
        let wrong = (0..PROBES).filter(|probe| filter.remembers(key(1 << 40 | probe), now));
        let measured = wrong.count() as f64 / PROBES as f64;
        assert!(computed <= 0.01, "at {factor} times the rate: {computed}");
        assert!(
            (measured - computed).abs() < 6.0 * (computed / PROBES as f64).sqrt(),
            "at {factor} times the rate: {measured}, and {computed} expected"
        );
    }
}

/// Above `rate_max`, the filter forgets early, and says so. It takes no more memory than it said beforehand.
#[test]
fn a_load_above_the_maximum_shortens_the_window() {
    let mut filter = filter();
    feed(&mut filter, 0..160_000, 1600.0, START);
    let shortest = filter.shortest_window().expect("it is shorter");
    let expected = WINDOW.as_secs_f64() / 4.0;
    let ratio = shortest.as_secs_f64() / expected;
    assert!((0.9..1.2).contains(&ratio), "{shortest:?}");
    assert_eq!(filter.bytes(), filter.bytes_max());
}

#[test]
fn an_idle_filter_gives_memory_back() {
    let mut filter = filter();
    let now = feed(&mut filter, 0..12_000, 400.0, START);
    let busy = filter.bytes();
    assert!(!filter.remembers(key(1), now + Duration::from_secs(1000)));
    assert!(filter.bytes() < busy, "{} of {busy}", filter.bytes());
}

/// Returns a forgetful filter that takes this memory, for a bound on false positives.
fn forgetful_of(bytes: u64, false_positives_max: f64) -> ForgetfulBloom {
    let forgetful_for = |rate: f64| {
        let options = ForgetfulOptions {
            filters: 5,
            window: WINDOW,
            rate,
            false_positives_max,
            hasher: options().hasher,
        };
        ForgetfulBloom::new(options, START).expect("valid options")
    };
    // It is made for the rate that this memory is enough for.
    let mut rate = 100.0;
    for _ in 0..3 {
        rate *= bytes as f64 / forgetful_for(rate).bytes() as f64;
    }
    let forgetful = forgetful_for(rate);
    let ratio = forgetful.bytes() as f64 / bytes as f64;
    assert!((0.99..1.01).contains(&ratio), "{ratio}");
    forgetful
}

/// At the usual rate, both filters have the same memory. When the load rises to four times this rate, the time-limited
/// filter may grow, and keeps the window. The forgetful one cannot.
#[test]
fn a_filter_that_may_grow_keeps_its_window_for_longer() {
    let mut limited = filter();
    let then = feed(&mut limited, 0..4000, 100.0, START);
    let mut forgetful = forgetful_of(limited.bytes(), 0.01);
    feed(&mut limited, 4000..28_000, 400.0, then);
    feed(&mut forgetful, 0..4000, 100.0, START);
    feed(&mut forgetful, 4000..28_000, 400.0, then);
    assert_eq!(limited.shortest_window(), None);
    assert!(
        forgetful
            .shortest_window()
            .is_some_and(|window| window < WINDOW),
        "{:?}",
        forgetful.shortest_window()
    );
}

/// With the most memory of the time-limited filter, the forgetful one is no worse: both keep the window up to `rate_max`, and
/// the forgetful one takes fewer fresh keys for known ones. Above, it keeps a longer window.
#[test]
fn with_equal_memory_the_forgetful_filter_is_no_worse() {
    for bound in [0.01, 0.001] {
        for factor in [1.0, 2.0, 3.0, 4.0, 6.0, 16.0] {
            let options = TimeLimitedOptions {
                false_positives_max: bound,
                ..options()
            };
            let mut limited = TimeLimitedBloom::new(options, START).expect("valid options");
            let mut forgetful = forgetful_of(limited.bytes_max(), bound);
            let rate = options.rate * factor;
            let before = (rate * 60.0) as u64;
            let mut at = feed(&mut limited, 0..before, rate, START);
            feed(&mut forgetful, 0..before, rate, START);
            // The sums of the probabilities over the next window.
            let (mut of_limited, mut of_forgetful) = (0.0, 0.0);
            let end = before + (rate * WINDOW.as_secs_f64()) as u64;
            for number in (before..end).step_by(10) {
                feed(&mut forgetful, number..number + 10, rate, at);
                at = feed(&mut limited, number..number + 10, rate, at);
                of_forgetful += forgetful.false_positives();
                of_limited += limited.false_positives();
            }
            let windows = (forgetful.shortest_window(), limited.shortest_window());
            if factor <= 4.0 {
                assert_eq!(windows, (None, None), "{bound}, {factor}");
                assert!(of_forgetful < of_limited, "{bound}, {factor}");
            } else {
                let is_longer = windows.0.zip(windows.1).is_some_and(|(a, b)| a > b);
                assert!(is_longer, "{bound}, {factor}: {windows:?}");
            }
        }
    }
}

#[test]
fn a_restored_filter_goes_on() {
    let mut filter = filter();
    let now = feed(&mut filter, 0..6000, 200.0, START);
    let mut bytes = Vec::new();
    save(&filter, "body", &mut bytes).expect("memory takes everything");
    let restored: Restored<TimeLimitedBloom> =
        restore(&mut bytes.as_slice()).expect("what was saved");
    assert_eq!(restored.key_name.as_deref(), Some("body"));
    let mut restored = restored.filter;
    assert_eq!(restored, filter);
    let later = now + Duration::from_secs(15);
    for number in 0..6000 {
        let is_known = filter.remembers(key(number), later);
        assert_eq!(restored.remembers(key(number), later), is_known);
    }
}

/// The filter waited for the time that a wrong clock had shown, and forgot nothing until then.
#[test]
fn the_time_of_a_clock_that_was_far_ahead_does_not_stay() {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    let mut ahead = filter();
    // Some of the keys are in closed slices.
    feed(&mut ahead, 0..2000, 100.0, START + YEAR);
    let mut bytes = Vec::new();
    save(&ahead, "body", &mut bytes).expect("memory takes everything");
    let restored: Restored<TimeLimitedBloom> =
        restore(&mut bytes.as_slice()).expect("it was saved");
    for mut filter in [ahead, restored.filter] {
        filter.remember(key(5000), START);
        // The first key was 20 s old when the clock was set back.
        let left = WINDOW - Duration::from_secs(20);
        assert!(filter.remembers(key(0), START + left));
        assert!(filter.remembers(key(1999), START + WINDOW));
        assert!(filter.remembers(key(5000), START + WINDOW));
        let later = START + WINDOW + WINDOW / GENERATIONS;
        let forgets = |number: &u64| !filter.remembers(key(*number), later);
        let forgotten = (0..2000).chain([5000]).filter(forgets).count();
        assert!(forgotten > 1950, "{forgotten}");
    }
}

#[test]
fn options_without_meaning_are_refused() {
    type Change = fn(&mut TimeLimitedOptions);
    let changes: [(Change, &str); 4] = [
        (|it| it.window = Duration::ZERO, "window is 0"),
        (
            |it| it.rate_max = 99.0,
            "rate_max is 99, and must be at least the rate",
        ),
        (
            |it| it.rate_max = 10_001.0,
            "rate_max is 10001, and must be at least the rate",
        ),
        (
            |it| it.false_positives_max = 1.0,
            "false_positives_max is 1",
        ),
    ];
    for (change, text) in changes {
        let mut options = options();
        change(&mut options);
        let error = TimeLimitedBloom::new(options, START)
            .expect_err(text)
            .to_string();
        assert!(error.starts_with(text), "{error}");
    }
}

#[test]
fn a_size_beyond_the_memory_is_an_error() {
    let options = TimeLimitedOptions {
        rate: 1e18,
        rate_max: 2e18,
        ..options()
    };
    let error = TimeLimitedBloom::new(options, START).expect_err("no machine has this memory");
    assert!(error.to_string().contains("memory"), "{error}");
}
