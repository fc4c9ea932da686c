use super::*;
use crate::content::fingerprint::KeyHasher;
use crate::content::generations::{Generations, clock_ms};
use crate::content::json_pointer::JsonPointer;
use crate::content::plan::{KeyWindow, Plan};
use crate::random::Random;
use diskq_log::Seq;

fn meter(rate: f64) -> Meter {
    let rate = SampleRate::new(rate).expect("a rate");
    let key = ContentKey::Body;
    Meter::new(&MeterRule { key, rate }, 5)
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

/// A rule with the same key drops what the meter counts, and stores a message without a key.
#[test]
fn a_value_in_the_body_is_a_key() {
    let pointer = JsonPointer::parse("/id").expect("a pointer");
    for (rate, sampled) in [(1.0, 400..=400), (0.5, 100..=300)] {
        let rule = MeterRule {
            key: ContentKey::Json(pointer.clone()),
            rate: SampleRate::new(rate).expect("a rate"),
        };
        let mut meter = Meter::new(&rule, 5);
        let mut see = |body: String| meter.see(Duration::ZERO, body.as_bytes());
        for number in 0..100 {
            see(format!(r#"{{"id":{number},"try":1}}"#));
            see(format!(r#"{{"try":2,"id":{number}}}"#));
            // A text is another value than a number, and an escape is the same text.
            see(format!(r#"{{"id":"a{number}"}}"#));
            see(format!(r#"{{"id":"\u0061{number}"}}"#));
        }
        let report = meter.report();
        assert!(sampled.contains(&report.sampled), "{report:?}");
        // The sample has both copies or none.
        assert_eq!(report.duplicates * 2, report.sampled);
        assert_eq!((report.keyless, report.rule), (0, rule.clone()));
        // Equal messages without a key are no copies, and each is in the sample or not.
        (0..1000).for_each(|_| meter.see(Duration::ZERO, b"{}"));
        let (keyless, all) = (meter.report().keyless as f64, 1000.0 * rate);
        assert!((keyless - all).abs() <= (1.0 - rate) * 200.0, "{keyless}");
        assert_eq!(meter.report().duplicates, report.duplicates);
        assert_eq!(meter.report().sampled, report.sampled + keyless as u64);
    }
}

/// Regression: messages without a key filled the windows. A rule remembers the keys that it stores.
#[test]
fn messages_without_a_key_take_no_room_in_a_window() {
    let pointer = JsonPointer::parse("/id").expect("a pointer");
    let rule = MeterRule {
        key: ContentKey::Json(pointer),
        rate: SampleRate::new(1.0).expect("a rate"),
    };
    let mut meter = Meter::new(&rule, 5);
    for number in 0..2_000_u64 {
        (0..9).for_each(|_| meter.see(Duration::ZERO, b"none"));
        // Each key comes twice, with 500 keys between.
        let number = number % 500 + number / 1000 * 500;
        let body = format!(r#"{{"id":{number}}}"#);
        meter.see(Duration::ZERO, body.as_bytes());
    }
    let report = meter.report();
    assert_eq!((report.sampled, report.keyless), (20_000, 18_000));
    assert_eq!(
        (report.duplicates, report.within_count[0]),
        (1000, (1_000, 1000))
    );
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

/// Regression: the meter measured from the last copy. A rule measures from the copy that it has stored, so it stores a
/// body that comes every 30 s again and again: with a window of a minute, every third copy.
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

/// Returns the messages of a history that a rule with this window drops.
fn dropped(window: KeyWindow, history: &[(u64, u64)]) -> u64 {
    let plan = Plan::new(window, None).expect("it fits");
    let hasher = KeyHasher::seeded(7);
    let mut keys = Generations::new(plan, hasher, clock_ms(Duration::ZERO));
    let (mut seq, mut dropped) = (Seq(0), 0);
    for &(at_ms, number) in history {
        let now_ms = clock_ms(Duration::from_millis(at_ms));
        keys.begin(now_ms, seq);
        let fingerprint = hasher.fingerprint(|key| key.add(&number.to_le_bytes()));
        if keys.find(fingerprint).is_some() {
            dropped += 1;
            continue;
        }
        assert!(keys.insert(now_ms, fingerprint, seq));
        keys.confirm();
        seq = seq.offset(1);
    }
    dropped
}

/// The meter and real rules see one history. Half of the messages are copies of messages at all distances. A rule remembers
/// its window and up to a seventh more, so it drops somewhat more than the meter says: here at most 1 % of all messages.
#[test]
fn a_rule_drops_what_the_meter_says() {
    let mut random = Random::new(9);
    let mut history: Vec<(u64, u64)> = Vec::new();
    let mut at_ms = 0;
    for index in 0..40_000_u64 {
        // 1,000, 100 or 20 messages per second.
        at_ms += [1, 10, 50][(index / 1000 % 3) as usize];
        // Distances in messages are equally frequent in each power of ten.
        let exponent = random.draw() as f64 / u64::MAX as f64;
        let distance = (index as f64).powf(exponent) as usize;
        let number = match history.len().checked_sub(distance.max(1)) {
            Some(place) if random.below(2) == 0 => history[place].1,
            _ => index,
        };
        history.push((at_ms, number));
    }
    let mut meter = meter(1.0);
    for &(at_ms, number) in &history {
        see(&mut meter, at_ms, number);
    }
    let report = meter.report();
    assert_eq!(report.sampled, history.len() as u64);
    let times = TIMES.iter().zip(report.within_time);
    let times = times.map(|((time, _), (_, count))| (KeyWindow::Time(*time), count));
    let counts = report.within_count.into_iter().take(3);
    let counts = counts.map(|(window, count)| (KeyWindow::Count(window), count));
    for (window, metered) in times.chain(counts) {
        let dropped = report.percent(dropped(window, &history));
        let metered = report.percent(metered);
        assert!(
            (0.0..1.0).contains(&(dropped - metered)),
            "{window:?}: {dropped} %, and {metered} % by the meter"
        );
    }
}

/// One body makes up 30 % of the messages. A sample that has this body shows far more duplicates than there are, and
/// another sample shows none. A sample of all bodies is exact.
#[test]
fn a_frequent_body_is_in_the_sample_or_not() {
    let shown = |rate: f64, secret: u64| {
        let rule = MeterRule {
            rate: SampleRate::new(rate).expect("a rate"),
            ..MeterRule::default()
        };
        let mut meter = Meter::new(&rule, secret);
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
