use super::*;

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
