use std::time::Duration;

use super::{ForgetfulBloom, ForgetfulOptions, period};
use crate::saved::{Restored, restore, save};
use crate::{Filter, Fingerprint, KeyHasher, UnixTime};

const START: UnixTime = UnixTime::from_secs(1_000_000);

fn options() -> ForgetfulOptions {
    ForgetfulOptions {
        filters: 5,
        window: Duration::from_secs(30),
        rate: 100.0,
        false_positives_max: 0.01,
        hasher: KeyHasher::new([3; 16]),
    }
}

fn filter() -> ForgetfulBloom {
    ForgetfulBloom::new(options(), START).expect("valid options")
}

fn key(number: u64) -> Fingerprint {
    KeyHasher::new([3; 16]).fingerprint(&number.to_le_bytes())
}

/// Feeds keys at this rate until `end`, and returns the time of each.
fn feed(filter: &mut ForgetfulBloom, numbers: std::ops::Range<u64>, rate: f64, from: UnixTime) {
    for (index, number) in numbers.enumerate() {
        filter.remember(
            key(number),
            from + Duration::from_secs_f64(index as f64 / rate),
        );
    }
}

#[test]
fn a_key_is_remembered_for_the_window_and_forgotten_a_period_later() {
    let period = period(&options());
    assert_eq!(period, Duration::from_secs(10));
    for offset in [0, 1, 5_000, 9_999] {
        let mut filter = filter();
        let at = START + Duration::from_millis(offset);
        filter.remember(key(1), at);
        assert!(filter.remembers(key(1), at + options().window), "{offset}");
        let later = at + options().window + period;
        assert!(!filter.remembers(key(1), later), "{offset}");
    }
}

#[test]
fn a_clock_that_is_set_back_by_less_than_the_window_stands_still() {
    let mut filter = filter();
    filter.remember(key(1), START + Duration::from_secs(5));
    filter.remember(key(2), START - Duration::from_secs(20));
    assert!(filter.remembers(key(1), START));
    assert!(filter.remembers(key(2), START + Duration::from_secs(30)));
}

/// The filter waited for the time that a wrong clock had shown, and forgot nothing until then.
#[test]
fn the_time_of_a_clock_that_was_far_ahead_does_not_stay() {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    let mut ahead = filter();
    ahead.remember(key(1), START + YEAR);
    let mut bytes = Vec::new();
    save(&ahead, "body", &mut bytes).expect("memory takes everything");
    let restored: Restored<ForgetfulBloom> = restore(&mut bytes.as_slice()).expect("it was saved");
    let later = START + options().window + period(&options());
    for mut filter in [ahead, restored.filter] {
        filter.remember(key(2), START);
        // Both keys have their window from here on.
        for number in [1, 2] {
            assert!(
                filter.remembers(key(number), START + options().window),
                "{number}"
            );
        }
        for number in [1, 2] {
            assert!(!filter.remembers(key(number), later), "{number}");
        }
        assert_eq!(filter.shortest_window(), None);
    }
}

#[test]
fn everything_is_forgotten_after_a_long_pause() {
    let mut filter = filter();
    feed(&mut filter, 0..1000, 100.0, START);
    let later = START + Duration::from_secs(100_000);
    assert!((0..1000).all(|number| !filter.remembers(key(number), later)));
    assert_eq!(filter.shortest_window(), None);
    filter.remember(key(5), later);
    assert!(filter.remembers(key(5), later + options().window));
}

/// The filter keeps its bound on false positives, below and above the rate for which it is made. Among `PROBES` fresh
/// keys, the number of false positives has a standard deviation of √(computed · 50,000).
#[test]
fn false_positives_stay_below_the_bound_at_any_load() {
    const PROBES: u64 = 50_000;
    for factor in [0.5, 1.0, 4.0, 20.0] {
        let mut filter = filter();
        let rate = options().rate * factor;
        let count = (rate * 100.0) as u64;
        feed(&mut filter, 0..count, rate, START);
        let now = START + Duration::from_secs(100);
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

/// Above the rate for which it is made, the filter forgets early, and says so.
#[test]
fn a_load_that_is_too_high_shortens_the_window() {
    let mut filter = filter();
    feed(&mut filter, 0..10_000, 100.0, START);
    assert_eq!(filter.shortest_window(), None);
    let then = START + Duration::from_secs(100);
    feed(&mut filter, 10_000..50_000, 1000.0, then);
    let shortest = filter.shortest_window().expect("it is shorter");
    assert!(
        (Duration::from_secs(2)..Duration::from_secs(6)).contains(&shortest),
        "{shortest:?}"
    );
    // The keys within this window are remembered.
    let now = then + Duration::from_secs(40);
    let within = (1000.0 * shortest.as_secs_f64()) as u64;
    assert!((50_000 - within..50_000).all(|number| filter.remembers(key(number), now)));
}

/// The keys of the paper: the id of a client, and the number of its message. All clients use the same numbers.
#[test]
fn clients_with_the_same_numbers_are_told_apart() {
    let hasher = options().hasher;
    let key = |client: &str, number: u64| {
        hasher.fingerprint_of_parts(&[client.as_bytes(), &number.to_le_bytes()])
    };
    let mut filter = filter();
    let clients = ["a", "ab", "b"];
    let at = |number: u64| START + Duration::from_millis(number * 30);
    let mut dropped = 0;
    for number in 0..500 {
        for client in clients {
            dropped += u64::from(filter.remembers(key(client, number), at(number)));
            filter.remember(key(client, number), at(number));
        }
        dropped += u64::from(filter.remembers(key("c", number), at(number)));
        let oldest = number.saturating_sub(100);
        let mut copies = (oldest..=number).flat_map(|it| clients.map(|client| key(client, it)));
        assert!(copies.all(|it| filter.remembers(it, at(number))));
    }
    // The bound permits 20 of 2000.
    assert!(dropped <= 20, "{dropped} fresh messages count as copies");
}

#[test]
fn memory_does_not_change() {
    let mut filter = filter();
    let bytes = filter.bytes();
    feed(&mut filter, 0..20_000, 2000.0, START);
    assert_eq!(filter.bytes(), bytes);
}

#[test]
fn a_restored_filter_goes_on() {
    let mut filter = filter();
    feed(&mut filter, 0..3000, 100.0, START);
    let mut bytes = Vec::new();
    save(&filter, "body", &mut bytes).expect("memory takes everything");
    let restored: Restored<ForgetfulBloom> =
        restore(&mut bytes.as_slice()).expect("what was saved");
    assert_eq!(restored.key_name.as_deref(), Some("body"));
    let mut restored = restored.filter;
    assert_eq!(restored, filter);
    let now = START + Duration::from_secs(45);
    for number in 0..3000 {
        let is_known = filter.remembers(key(number), now);
        assert_eq!(restored.remembers(key(number), now), is_known);
    }
}

#[test]
fn options_without_meaning_are_refused() {
    type Change = fn(&mut ForgetfulOptions);
    let changes: [(Change, &str); 5] = [
        (
            |it| it.filters = 2,
            "filters is 2, and must be at least 3 and at most 64",
        ),
        (
            |it| it.window = Duration::ZERO,
            "window is 0, and must be a positive number",
        ),
        (
            |it| it.rate = -1.0,
            "rate is -1, and must be a positive number",
        ),
        (
            |it| it.false_positives_max = 0.0,
            "false_positives_max is 0, and must be above 0 and below 1",
        ),
        (
            |it| it.false_positives_max = f64::NAN,
            "false_positives_max is NaN, and must be above 0 and below 1",
        ),
    ];
    for (change, text) in changes {
        let mut options = options();
        change(&mut options);
        let error = ForgetfulBloom::new(options, START).expect_err(text);
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn a_size_beyond_the_memory_is_an_error() {
    let options = ForgetfulOptions {
        rate: 1e18,
        ..options()
    };
    let error = ForgetfulBloom::new(options, START).expect_err("no machine has this memory");
    assert!(error.to_string().contains("memory"), "{error}");
}
