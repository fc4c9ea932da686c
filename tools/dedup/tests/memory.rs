//! The memory of each filter: what it says beforehand, and what it takes from the allocator, at the most and at each
//! moment. A copy and a save are counted, too.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io;
use std::time::Duration;

use ringq_dedup::saved::{Saved, restore, save};
use ringq_dedup::{
    Filter, Fingerprint, ForgetfulBloom, ForgetfulOptions, InverseBloom, KeyHasher, MessageNumber,
    RoaringPair, StateError, UnixTime,
};

const START: UnixTime = UnixTime::from_secs(1_000_000);

thread_local! {
    /// The bytes that this thread has from the allocator, and the most of them since the last look.
    static BYTES: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
    /// The largest piece that this thread gets from the allocator.
    static PIECE_MAX: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Counts what malloc of the GNU C library takes for each piece: a header of 8 bytes, all in multiples of 16, and at
/// least 32.
struct Counting;

fn taken(bytes: usize) -> i64 {
    (bytes + 8).next_multiple_of(16).max(32) as i64
}

fn count(change: i64) {
    let now = BYTES.get() + change;
    BYTES.set(now);
    PEAK.set(PEAK.get().max(now));
}

// SAFETY: each call goes to the system's allocator unchanged, or is refused. Counting touches variables of the thread
// only, which need no memory.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > PIECE_MAX.get() {
            return std::ptr::null_mut();
        }
        count(taken(layout.size()));
        // SAFETY: the caller keeps the promise that `System` needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(taken(layout.size()));
        // SAFETY: the caller keeps the promise that `System` needs.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if bytes > PIECE_MAX.get() {
            return std::ptr::null_mut();
        }
        // The old piece and the new one may be there at the same time.
        count(taken(bytes));
        count(-taken(layout.size()));
        // SAFETY: the caller keeps the promise that `System` needs.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-taken(layout.size()));
        // SAFETY: the caller keeps the promise that `System` needs.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns what `action` makes, with the bytes that are left with it and the most bytes that it took.
fn counted<T>(action: impl FnOnce() -> T) -> (T, i64, i64) {
    let before = BYTES.get();
    PEAK.set(before);
    let made = action();
    (made, BYTES.get() - before, PEAK.get() - before)
}

/// The checks that a filter must pass.
struct Check<'a> {
    name: &'a str,
    /// The pieces of memory for which the filter does not say the allocator's own bytes.
    pieces: i64,
    /// The bound on what the filter says, as a multiple of what it takes at the most.
    ratio_max: f64,
}

const fn named(name: &str, pieces: i64, ratio_max: f64) -> Check<'_> {
    Check {
        name,
        pieces,
        ratio_max,
    }
}

/// Feeds a filter, and checks its figures against the allocator's.
fn check<F: Filter + Saved + Clone>(
    Check {
        name,
        pieces,
        ratio_max,
    }: Check<'_>,
    make: impl FnOnce() -> F,
    feed: impl Fn(&mut F),
) {
    let own = 24 * pieces;
    let (mut filter, empty, _) = counted(make);
    let said = filter.bytes_max() as i64 + own;
    assert!(empty <= said, "{name}: {empty} of {said}");
    let ((), fed, peak) = counted(|| feed(&mut filter));
    let (used, peak) = (empty + fed, empty + peak);
    let says = filter.bytes() as i64 + own;
    println!("{name}: at most {said} bytes, took {peak}, says {says}, has {used}");
    assert_eq!(
        filter.bytes_max() as i64 + own,
        said,
        "{name}: the bound changed"
    );
    assert!(peak <= said, "{name}: {peak} of {said}");
    assert!(
        used <= says && says <= said,
        "{name}: {used}, {says}, {said}"
    );
    let ratio = said as f64 / peak as f64;
    assert!(
        ratio <= ratio_max,
        "{name}: {said} bytes are said, and {peak} taken"
    );
    // The copy of the filter, from which a consumer saves it.
    let (copy, _, copied) = counted(|| filter.clone());
    assert!(copied <= said, "{name}: the copy takes {copied} of {said}");
    let (saved, _, saving) = counted(|| save(&copy, "body", &mut io::sink()));
    saved.expect("a sink takes everything");
    assert!(
        saving < 1000,
        "{name}: a save takes {saving} bytes beside the copy"
    );
}

fn hasher() -> KeyHasher {
    KeyHasher::new([4; 16])
}

fn feed_keys<F: Filter<Key = Fingerprint>>(filter: &mut F, rate: f64, count: u64) {
    for number in 0..count {
        let at = START + Duration::from_secs_f64(number as f64 / rate);
        filter.remember(hasher().fingerprint(&number.to_le_bytes()), at);
    }
}

/// The tool aborted at its start.
#[test]
fn a_saved_filter_that_finds_no_memory_is_an_error() {
    let filter = InverseBloom::new(1_000_000).expect("a valid size");
    let mut bytes = Vec::new();
    save(&filter, "body", &mut bytes).expect("memory takes everything");
    PIECE_MAX.set(8_000_000);
    let restored = restore::<InverseBloom>(&mut bytes.as_slice());
    PIECE_MAX.set(usize::MAX);
    let Err(StateError::Io(error)) = restored else {
        panic!("{restored:?}");
    };
    assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    let text = "the system refuses 8388608 bytes of memory for the saved filter";
    assert_eq!(error.to_string(), text);
    // No byte more than the filter needs.
    let (restored, bytes, peak) = counted(|| restore::<InverseBloom>(&mut bytes.as_slice()));
    restored.expect("there is memory");
    assert!(bytes <= 16_000_100, "{bytes} bytes, {peak} at the most");
}

#[test]
fn the_inverse_filter() {
    let check_slots = |slots: u64| {
        check(
            named("inverse", 1, 1.3),
            || InverseBloom::new(slots).expect("a valid size"),
            |filter| feed_keys(filter, 100.0, 3 * slots),
        );
    };
    [100, 1000, 100_000].into_iter().for_each(check_slots);
}

#[test]
fn the_forgetful_filter() {
    for (filters, rate) in [(3, 100.0), (5, 1000.0), (64, 1000.0)] {
        let options = ForgetfulOptions {
            filters,
            window: Duration::from_secs(30),
            rate,
            false_positives_max: 0.001,
            hasher: hasher(),
        };
        check(
            named("forgetful", filters as i64 + 2, 1.3),
            || ForgetfulBloom::new(options, START).expect("valid options"),
            |filter| feed_keys(filter, 3.0 * rate, 100_000),
        );
    }
}

/// Returns numbers of a source, of which any two differ in their upper 32 bits. In this order, they leave the nodes of
/// a tree as empty as they can be.
fn spread(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|number| (number << 32) | (number % 7))
}

fn feed_numbers(filter: &mut RoaringPair, source: u64, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        filter.remember(MessageNumber { source, number }, START);
    }
}

/// One number per container is the worst case. The filter says at most 1.3 times what it takes then.
#[test]
fn a_roaring_pair_with_one_number_per_container() {
    for (capacity, sources) in [(20_000_u64, 1_u64), (3000, 20)] {
        check(
            // The bound has a source more than there are most of the time.
            named(
                "Roaring pair, one number per container",
                0,
                1.3 * (sources + 1) as f64 / sources as f64,
            ),
            || RoaringPair::new(capacity, sources as usize).expect("valid bounds"),
            |filter| {
                for source in 0..sources {
                    // Then one set has as many numbers as it can have, and the other one number less.
                    feed_numbers(filter, source, spread(6 * capacity - 1));
                }
            },
        );
    }
}

/// No numbers and no order take more than the bound.
#[test]
fn a_roaring_pair_takes_no_more_than_its_bound() {
    type Numbers = fn(u64) -> u64;
    let shapes: [(&str, Numbers); 7] = [
        ("random", |number| {
            number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        }),
        ("backwards", |number| u64::MAX - (number << 32)),
        ("a container each, in one bitmap", |number| number << 16),
        ("five containers a bitmap", |number| {
            ((number / 5) << 32) | ((number % 5) << 16)
        }),
        ("4,097 numbers a container", |number| {
            ((number / 4097) << 16) | (number % 4097)
        }),
        ("a gap after each number", |number| number * 3),
        ("consecutive", |number| number),
    ];
    for (name, numbers) in shapes {
        for capacity in [1, 2, 7, 100, 4096, 5000, 30_000] {
            let sources = if capacity < 1000 { 30 } else { 1 };
            check(
                named(name, 0, f64::MAX),
                || RoaringPair::new(capacity, sources).expect("valid bounds"),
                |filter| {
                    for source in 0..sources as u64 + 10 {
                        feed_numbers(filter, source, (0..3 * capacity).map(numbers));
                    }
                },
            );
        }
    }
}

/// Many sources of one number each.
#[test]
fn the_table_of_the_sources_is_in_the_bound() {
    check(
        named("Roaring pair, one number per source", 0, 3.0),
        || RoaringPair::new(1, 10_000).expect("valid bounds"),
        |filter| {
            for source in 0..30_000 {
                feed_numbers(filter, source, [source << 40].into_iter());
            }
        },
    );
}

/// Numbers that follow each other take what the filter says for them, from any first number.
#[test]
fn consecutive_numbers_take_what_the_filter_says_for_them() {
    for (capacity, ratio_max) in [
        (10, f64::MAX),
        (5000, f64::MAX),
        (100_000, 2.0),
        (1_000_000, 1.3),
    ] {
        for first in [0, 65_535, (1 << 32) - 777] {
            let (mut filter, empty, _) =
                counted(|| RoaringPair::new(capacity, 1).expect("valid bounds"));
            let said = filter.bytes_if_consecutive() as i64;
            let ((), _, fed) =
                counted(|| feed_numbers(&mut filter, 7, first..first + 4 * capacity));
            let peak = empty + fed;
            println!("{capacity} consecutive numbers: said {said}, took {peak}");
            assert!(peak <= said, "{capacity} from {first}: {peak} of {said}");
            // A filter of one source says the room of two.
            let ratio = said as f64 / 2.0 / peak as f64;
            assert!(
                ratio <= ratio_max,
                "{capacity} from {first}: said {said}, took {peak}"
            );
            assert!(said <= filter.bytes_max() as i64);
        }
    }
}
