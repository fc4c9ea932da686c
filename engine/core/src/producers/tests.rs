use super::*;

/// Returns a table with room for `places` publishers.
fn table(places: u64) -> Producers {
    let bytes = PLACE_BYTES + 2 * 8;
    let table = Producers::new(64, places * bytes, 7);
    assert_eq!(table.count_max() as u64, places);
    table
}

fn origin(producer: u64, number: u64) -> Origin {
    Origin { producer, number }
}

fn has_stored(table: &Producers, producer: u64, number: u64) -> bool {
    let found = table.find(producer);
    found.is_some_and(|found| found.has_stored(number))
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
fn redpanda_28233_unbounded_table_of_producers() {
    let mut table = table(100);
    for producer in 1..10_000 {
        table.insert(origin(producer, 0));
        assert!(table.count() <= 100);
    }
    table.check();
    assert_eq!(table.evicted_count, 9_899);
    assert!(table.places.capacity() == 100 && table.bits.capacity() == 100);
    assert!(has_stored(&table, 9_999, 0) && has_stored(&table, 9_900, 0));
    assert!(!has_stored(&table, 9_899, 0));
}

/// Redpanda refused the next message of a producer that it had evicted.
#[test]
fn redpanda_22670_idle_producer_evicted_then_refused() {
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
fn the_producer_that_was_idle_the_longest_goes() {
    let mut table = table(3);
    for producer in [1, 2, 3, 1, 2] {
        table.insert(origin(producer, 0));
    }
    table.insert(origin(4, 0));
    table.check();
    assert!(table.find(3).is_none());
    for producer in [1, 2, 4] {
        assert!(has_stored(&table, producer, 0));
    }
    // The place has no bits of the publisher that had it before.
    assert!(!has_stored(&table, 4, 1));
}
