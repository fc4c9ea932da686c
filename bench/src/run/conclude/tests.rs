use super::*;
use crate::scenario::rate::Rate;

#[test]
fn samples_that_are_late_by_a_twentieth_say_too_little() {
    let second = 1_000_000_000;
    let sample = |taken_ns: u64| Sample {
        taken_ns,
        ..Sample::default()
    };
    let late =
        |from: u64, to: u64| samples_lateness((second, &sample(from)), (3 * second, &sample(to)));
    assert_eq!(late(second, 3 * second), None);
    assert_eq!(late(second + second / 10, 3 * second + second / 10), None);
    assert_eq!(late(second + second / 9, 3 * second), Some(second / 9));
    // Both were taken at the end: their difference is nothing.
    assert_eq!(late(3 * second, 3 * second), Some(2 * second));
    assert_eq!(late(second, 4 * second), Some(second));
}

/// A warm-up stood still. Its answers came in the measured time, and the rate was above what was offered.
#[test]
fn answers_to_the_warm_up_are_no_rate_above_what_was_offered() {
    let second = 1_000_000_000;
    let grid = Grid {
        start: 0,
        measure: second,
        publish_end: 2 * second,
        interval: second / 10,
    };
    let mut series = Series::new(grid, 1);
    series.measured.sent = 100;
    series.measured.acknowledged = 150;
    let scenario = Scenario {
        rate: Rate::PerSecond(100.0),
        ..Scenario::default()
    };
    let recording = Recording {
        series,
        ended: Ended::Complete,
        ended_ns: 2 * second,
        publish_end_ns: 2 * second,
        published_usage: None,
        consumed_from: None,
        interrupted_ns: None,
        drain: None,
    };
    let times = MeasuredTimes::new(&scenario, grid, &recording);
    let totals = totals(&scenario, &recording, &times);
    assert_eq!(totals.acknowledged_per_s, 100.0);
}
