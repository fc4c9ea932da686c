mod stored;

use super::*;
use std::time::Duration;

/// Returns a table with room for `places` publishers.
fn table(places: u64) -> Publishers {
    let bytes = ENTRY_BYTES + 2 * 8;
    let table = Publishers::new(64, places * bytes, 7);
    assert_eq!(table.count_max() as u64, places);
    table
}

fn origin(publisher: u64, number: u64) -> Origin {
    Origin { publisher, number }
}

fn has_stored(table: &Publishers, publisher: u64, number: u64) -> bool {
    let found = table.find(publisher);
    found.is_some_and(|found| found.knows(number) == Known::Stored)
}

#[test]
fn publishers_do_not_share_numbers() {
    let mut table = table(3);
    assert!(table.find(1).is_none());
    table.insert(origin(1, 5));
    table.insert(origin(2, 6));
    assert!(has_stored(&table, 1, 5) && has_stored(&table, 2, 6));
    assert!(!has_stored(&table, 1, 6) && !has_stored(&table, 2, 5));
    table.check();
}

/// Redpanda kept every producer that ever was.
#[test]
fn redpanda_28233_unbounded_table_of_publishers() {
    let mut table = table(100);
    for publisher in 1..10_000 {
        table.insert(origin(publisher, 0));
        assert!(table.count() <= 100);
    }
    table.check();
    assert_eq!(table.evicted_count, 9_899);
    assert!(table.entries.capacity() == 100 && table.bits.capacity() == 200);
    assert!(has_stored(&table, 9_999, 0) && has_stored(&table, 9_900, 0));
    assert!(!has_stored(&table, 9_899, 0));
}

/// A table that was too large for the system ended the process at the first message.
#[test]
fn a_table_that_the_system_refuses_is_smaller() {
    let mut table = Publishers::new(1 << 20, 1 << 46, 7);
    let places = table.count_max();
    table.insert(origin(1, 5));
    assert!(has_stored(&table, 1, 5));
    assert!(table.count_max() < places && table.count_max() > 0);
    table.check();
}

/// A publisher with a large window takes the place of another one, whose bits are gone.
#[test]
fn a_new_publisher_has_no_bits_of_an_evicted_one() {
    let bytes = ENTRY_BYTES + (1 << 20) / 8 * 2;
    let mut table = Publishers::new(1 << 20, bytes, 7);
    assert_eq!(table.count_max(), 1);
    (0..200).for_each(|number| table.insert(origin(1, number * 5000)));
    table.insert(origin(2, 900_000));
    let stored = (0..900_000).filter(|number| has_stored(&table, 2, *number));
    assert_eq!(stored.count(), 0);
    assert!(has_stored(&table, 2, 900_000));
    table.check();
}

#[test]
fn a_publisher_that_was_forgotten_begins_without_its_old_numbers() {
    let mut table = table(2);
    (0..50).for_each(|number| table.insert(origin(1, number)));
    table.insert(origin(2, 0));
    table.insert(origin(3, 0));
    assert!(table.find(1).is_none(), "the idle publisher is forgotten");
    table.insert(origin(1, 50));
    assert!(has_stored(&table, 1, 50) && !has_stored(&table, 1, 49));
    table.check();
}

#[test]
fn the_publisher_that_was_idle_the_longest_goes() {
    let mut table = table(3);
    for publisher in [1, 2, 3, 1, 2] {
        table.insert(origin(publisher, 0));
    }
    table.insert(origin(4, 0));
    table.check();
    assert!(table.find(3).is_none());
    for publisher in [1, 2, 4] {
        assert!(has_stored(&table, publisher, 0));
    }
    // The place has no bits of the publisher that had it before.
    assert!(!has_stored(&table, 4, 1));
}

fn saved(table: &Publishers, encoder: &mut TableEncoder) -> Vec<u8> {
    while !table.is_saved(encoder) {
        table.continue_save(encoder, 2);
    }
    std::mem::take(&mut encoder.body)
}

/// Saves the table as it is now.
fn saved_at_once(table: &mut Publishers) -> Vec<u8> {
    table.set_boundary();
    saved(table, &mut table.save().expect("some memory"))
}

#[test]
fn a_save_has_the_table_at_its_boundary() {
    let mut table = table(4);
    for publisher in 1..4 {
        (0..100).for_each(|number| table.insert(origin(publisher, number)));
    }
    table.set_boundary();
    let mut encoder = table.save().expect("some memory");
    table.continue_save(&mut encoder, 1);
    assert!(!table.is_saved(&encoder));
    // Changes while the save is under way: a known publisher, a new one, and one that takes the place of another.
    table.insert(origin(3, 100));
    table.insert(origin(9, 0));
    table.insert(origin(10, 0));
    let body = saved(&table, &mut encoder);
    let mut loaded = Publishers::new(64, 1 << 20, 1);
    assert!(loaded.load(&body));
    loaded.check();
    assert!(has_stored(&loaded, 3, 99) && has_stored(&loaded, 3, 0));
    assert!(!has_stored(&loaded, 3, 100), "stored after the boundary");
    assert!(loaded.find(9).is_none() && loaded.find(10).is_none());
    assert!(has_stored(&loaded, 2, 99));
    // The next boundary has the changes.
    let body = saved_at_once(&mut table);
    let mut loaded = Publishers::new(128, 1 << 20, 1);
    assert!(loaded.load(&body));
    assert!(has_stored(&loaded, 3, 100) && has_stored(&loaded, 9, 0) && has_stored(&loaded, 10, 0));
    assert!(!has_stored(&loaded, 3, 101));
}

#[test]
fn a_smaller_table_loads_the_publishers_that_were_used_last() {
    let mut table = table(10);
    for publisher in [1, 2, 3, 4, 5, 1, 3] {
        table.insert(origin(publisher, 7));
    }
    let body = saved_at_once(&mut table);
    let mut small = self::table(3);
    assert!(small.load(&body));
    small.check();
    for (publisher, is_there) in [(1, true), (2, false), (3, true), (4, false), (5, true)] {
        assert_eq!(has_stored(&small, publisher, 7), is_there, "{publisher}");
    }
    assert_eq!(small.evicted_count, 0);
}

#[test]
fn bytes_that_are_no_table_are_not_loaded() {
    let mut table = table(3);
    table.insert(origin(1, 7));
    let body = saved_at_once(&mut table);
    for length in 0..body.len() {
        let is_empty = length == 5;
        assert_eq!(self::table(3).load(&body[..length]), is_empty, "{length}");
    }
    for (at, wrong) in [(0, 2), (1, 1), (5, 0), (29, 9)] {
        let mut body = body.clone();
        body[at] = wrong;
        assert!(!self::table(3).load(&body), "byte {at}");
    }
}

/// A table of a million publishers is not written every two seconds.
#[test]
fn large_tables_are_saved_less_often() {
    let mut small = table(1000);
    (1..=1000).for_each(|publisher| small.insert(origin(publisher, 7)));
    assert!(small.save_time() < Duration::from_millis(20));
    let mut large = table(1_000_000);
    (1..=1_000_000).for_each(|publisher| large.insert(origin(publisher, 7)));
    let body = saved_at_once(&mut large);
    let seconds = body.len() as u64 >> 22;
    assert_eq!(large.save_time().as_secs(), seconds);
    assert!(seconds >= 9, "{seconds} s");
}

/// A publisher's bits may have 128 KiB.
#[test]
fn a_turn_saves_few_publishers_with_large_windows() {
    const WINDOW: u32 = 1 << 20;
    /// The entries of long lists that the broker goes through in a turn.
    const TURN_ENTRIES: usize = 1024;
    let mut table = Publishers::new(WINDOW, 64 << 20, 1);
    (1..=40).for_each(|publisher| table.insert(origin(publisher, 7)));
    table.set_boundary();
    let mut encoder = table.save().expect("some memory");
    let mut turns = 0;
    while !table.is_saved(&encoder) {
        table.continue_save(&mut encoder, TURN_ENTRIES);
        turns += 1;
    }
    assert!(turns >= 8, "5 MiB in {turns} turns");
}

#[test]
fn a_save_without_memory_does_not_begin() {
    let mut table = table(3);
    table.insert(origin(1, 5));
    let words = std::mem::replace(&mut table.words, 1 << 57);
    assert!(table.save().is_none());
    table.words = words;
    assert!(table.save().is_some());
}
