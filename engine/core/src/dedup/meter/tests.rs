use super::*;
use crate::random::Random;

fn meter(rate: f64) -> Meter {
    Meter::new(SampleRate::new(rate).expect("a rate"), 5)
}

fn see(meter: &mut Meter, at_ms: u64, number: u64) {
    meter.see(Duration::from_millis(at_ms), &number.to_le_bytes());
}

#[test]
fn rates() {
    for bad in [0.0, -0.1, 1.1, f64::NAN, f64::INFINITY] {
        assert_eq!(SampleRate::new(bad), None, "{bad}");
    }
    assert_eq!(SampleRate::new(1.0).map(SampleRate::get), Some(1.0));
    assert_eq!(SampleRate::DEFAULT.get(), 0.01);
}

#[test]
fn windows_in_time_and_in_messages() {
    let mut meter = meter(1.0);
    for (at_ms, number) in [
        (0, 1),
        (500, 1),
        (5_500, 1),
        (35_500, 1),
        (35_500, 2),
        (4_000_000, 2),
    ] {
        see(&mut meter, at_ms, number);
    }
    let report = meter.report();
    assert_eq!((report.sampled, report.duplicates), (6, 4));
    assert_eq!(
        report.within_time,
        [("1s", 1), ("10s", 2), ("1m", 3), ("10m", 3), ("1h", 3)]
    );
    assert_eq!(report.within_count.map(|it| it.1), [4; 5]);
    assert_eq!(report.percent(3), 50.0);
    for number in 0..20_000 {
        see(&mut meter, 4_000_001, 100 + number);
    }
    see(&mut meter, 4_000_001, 2);
    assert_eq!(meter.report().within_count.map(|it| it.1), [4, 4, 5, 5, 5]);
}

/// Regression: the meter measured from the last copy. A rule measures from the copy that it has stored, so it stores a body
/// that comes every 30 s again and again: with a window of a minute, every third copy.
#[test]
fn a_window_begins_with_the_copy_that_a_rule_stores() {
    let mut meter = meter(1.0);
    for second in (0..3600).step_by(30) {
        see(&mut meter, second * 1000, 1);
    }
    let report = meter.report();
    assert_eq!(report.sampled, 120);
    assert_eq!(
        report.within_time,
        [("1s", 0), ("10s", 0), ("1m", 80), ("10m", 114), ("1h", 119)]
    );
}

/// A rule whose window is a number of messages counts those that it stores. Half of all messages are one body.
#[test]
fn copies_that_a_rule_drops_take_no_room_in_its_window() {
    let mut meter = meter(1.0);
    for number in 0..30_000 {
        see(&mut meter, 0, 0);
        see(&mut meter, 0, 1 + number);
    }
    // Such a rule stores the frequent body, 1000 others, and the frequent body again.
    let dropped = meter.report().within_count[0].1;
    assert!((29_900..30_000).contains(&dropped), "{dropped}");
    assert!(dropped.abs_diff(30_000 - 30) < 20, "{dropped}");
}

/// One body makes up 30 % of the messages. A sample that has this body shows far more duplicates than there are, and another
/// sample shows none. A sample of all bodies is exact.
#[test]
fn a_frequent_body_is_in_the_sample_or_not() {
    let shown = |rate: f64, secret: u64| {
        let mut meter = Meter::new(SampleRate::new(rate).expect("a rate"), secret);
        for number in 0..100_000 {
            see(&mut meter, 0, if number % 10 < 3 { 0 } else { number });
        }
        let report = meter.report();
        report.percent(report.duplicates)
    };
    assert!((29.9..30.0).contains(&shown(1.0, 5)));
    let shares: Vec<f64> = (0..300).map(|secret| shown(0.01, secret)).collect();
    let (with, without): (Vec<f64>, Vec<f64>) = shares.iter().partition(|it| **it > 50.0);
    assert!(with.len() < 12 && without.len() > 288, "{shares:?}");
    assert!(with.iter().all(|it| *it > 95.0) && without.iter().all(|it| *it == 0.0));
}

#[test]
fn nothing_seen() {
    let report = meter(0.5).report();
    assert_eq!(
        (report.sampled, report.percent(0), report.reach_ms),
        (0, 0.0, None)
    );
}

/// A tenth of the messages come again after 1000 others. The sample shows a tenth of duplicates, whatever its rate.
#[test]
fn a_sample_has_the_share_of_all() {
    for rate in [1.0, 0.3, 0.05] {
        let mut meter = meter(rate);
        let (mut random, mut duplicates, count) = (Random::new(3), 0, 200_000);
        for number in 0..count {
            see(&mut meter, number / 100, number);
            if number > 1000 && random.below(9) == 0 {
                see(&mut meter, number / 100, number - 1000);
                duplicates += 1;
            }
        }
        let report = meter.report();
        let expected = f64::from(duplicates) * 100.0 / (count as f64 + f64::from(duplicates));
        let found = report.percent(report.duplicates);
        // A twentieth of 220,000 messages has a standard deviation of 0.3 percent points.
        assert!((found - expected).abs() < 1.2, "{found} {expected}");
        let sampled = report.sampled as f64 / (count + duplicates as u64) as f64;
        assert!((sampled - rate).abs() < 0.01, "{sampled} {rate}");
        let within = report.percent(report.within_count[0].1);
        assert!(
            within < found / 2.0,
            "1000 messages are not enough: {within}"
        );
        let within = report.percent(report.within_count[1].1);
        assert_eq!(within, found);
    }
}

#[test]
fn a_full_table_says_how_far_it_reaches() {
    let mut meter = meter(1.0);
    let count = ENTRIES as u64 * 2;
    for number in 0..count {
        see(&mut meter, number, number);
    }
    let reach_ms = meter.report().reach_ms.expect("entries had to leave");
    assert!(reach_ms < count && reach_ms > 1000, "{reach_ms}");
    assert_eq!(meter.report().duplicates, 0);
}
