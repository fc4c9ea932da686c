use super::*;

#[test]
fn numbers_are_readable() {
    for (value, text) in [
        (0.0, "0"),
        (1.234, "1.23"),
        (999.6, "1 000"),
        (1_234_567.0, "1 234 567"),
        (-1500.0, "-1 500"),
    ] {
        assert_eq!(count(value), text);
    }
}
