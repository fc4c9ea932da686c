use super::RoaringPair;
use crate::saved::{Restored, restore, save};
use crate::{Filter, MessageNumber, UnixTime};

const NOW: UnixTime = UnixTime::ZERO;

fn number(source: u64, number: u64) -> MessageNumber {
    MessageNumber { source, number }
}

#[test]
fn the_last_numbers_are_known_exactly() {
    const CAPACITY: u64 = 100;
    let mut filter = RoaringPair::new(CAPACITY, 10).expect("valid bounds");
    for new in 0..1000 {
        let key = number(1, new * 7);
        assert!(!filter.remembers(key, NOW), "{new} is fresh");
        filter.remember(key, NOW);
        for old in 0..=new {
            let age = new - old;
            let is_known = filter.remembers(number(1, old * 7), NOW);
            if age < CAPACITY {
                assert!(is_known, "{old} of {new}");
            }
            if age >= 2 * CAPACITY {
                assert!(!is_known, "{old} of {new}");
            }
        }
        assert!(!filter.remembers(number(1, new * 7 + 1), NOW));
        assert!(!filter.remembers(number(2, new * 7), NOW));
    }
}

/// A number that comes again does not fill the bitmap, so it pushes no other number out.
#[test]
fn a_number_that_comes_again_takes_no_room() {
    let mut filter = RoaringPair::new(4, 1).expect("valid bounds");
    for new in 0..5 {
        filter.remember(number(1, new), NOW);
    }
    for _ in 0..100 {
        filter.remember(number(1, 0), NOW);
        filter.remember(number(1, 4), NOW);
    }
    assert!((0..5).all(|old| filter.remembers(number(1, old), NOW)));
}

#[test]
fn the_source_that_is_idle_for_longest_is_forgotten_and_accepted_again() {
    let mut filter = RoaringPair::new(10, 2).expect("valid bounds");
    filter.remember(number(1, 5), NOW);
    filter.remember(number(2, 5), NOW);
    filter.remember(number(1, 6), NOW);
    filter.remember(number(3, 5), NOW);
    assert!(!filter.remembers(number(2, 5), NOW));
    assert!(filter.remembers(number(1, 5), NOW));
    assert!(filter.remembers(number(3, 5), NOW));
    assert_eq!((filter.sources(), filter.forgotten_sources()), (2, 1));
    filter.remember(number(2, 7), NOW);
    assert!(filter.remembers(number(2, 7), NOW));
    assert!(!filter.remembers(number(1, 6), NOW));
}

#[test]
fn a_restored_filter_knows_the_same_numbers() {
    let mut filter = RoaringPair::new(50, 3).expect("valid bounds");
    for new in 0..170 {
        filter.remember(number(new % 4, u64::MAX - new * new), NOW);
    }
    let mut bytes = Vec::new();
    save(&filter, "body", &mut bytes).expect("memory takes everything");
    let restored: Restored<RoaringPair> = restore(&mut bytes.as_slice()).expect("what was saved");
    assert_eq!(restored.key_name.as_deref(), Some("body"));
    assert_eq!(restored.filter, filter);
}

#[test]
fn bounds_of_zero_are_refused() {
    assert!(RoaringPair::new(0, 1).is_err());
    assert!(RoaringPair::new(1, 0).is_err());
}
