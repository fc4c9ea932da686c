use super::*;

#[test]
fn dates_are_those_of_the_calendar() {
    assert_eq!(date(0), "1970-01-01 00:00 UTC");
    assert_eq!(date(951_782_399_000), "2000-02-28 23:59 UTC");
    assert_eq!(date(951_782_400_000), "2000-02-29 00:00 UTC");
    assert_eq!(date(1_735_689_599_000), "2024-12-31 23:59 UTC");
}

#[test]
fn commands_can_be_pasted() {
    assert_eq!(quoted("--rate=5e4"), "--rate=5e4");
    assert_eq!(quoted("p99<5ms,lost=0"), "'p99<5ms,lost=0'");
    assert_eq!(quoted("it's"), r"'it'\''s'");
    assert_eq!(quoted(""), "''");
}
