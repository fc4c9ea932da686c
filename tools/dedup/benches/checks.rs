//! Checks per second of one core, bytes per remembered message, and the longest check of the forgetful filter:
//! `cargo bench -p ringq-dedup --features memcached`. Without the feature, memcached is left out.
//!
//! A check is what a consumer does for each message: `begin`, and `commit` if the message is fresh. One in ten messages
//! is a duplicate of a recent one. Keys are bodies of 200 bytes.

use std::time::{Duration, Instant};

use divan::Bencher;
use divan::counter::ItemsCount;
use ringq_dedup::{
    Begin, Deduplicator, Filter, Fingerprint, ForgetfulBloom, ForgetfulOptions, InverseBloom,
    KeyHasher, MessageNumber, RoaringPair, UnixTime, arithmetic,
};

/// Messages that a filter is to remember: those of 100 s at 10,000 a second.
const RATE: f64 = 10_000.0;
const WINDOW: Duration = Duration::from_secs(100);
const MESSAGES: u64 = 1_000_000;
/// Messages of one run.
const CHECKS: u64 = 100_000;
const START: UnixTime = UnixTime::from_secs(1_000_000);

#[cfg(feature = "memcached")]
#[path = "checks/memcached.rs"]
mod memcached;

fn main() {
    println!("bytes per remembered message, for {MESSAGES} messages:");
    let bytes =
        |name: &str, bytes: u64| println!("  {name}: {:.2}", bytes as f64 / MESSAGES as f64);
    bytes("inverse Bloom", inverse().bytes());
    bytes("forgetful Bloom", forgetful().bytes());
    let mut roaring = roaring();
    for number in 0..2 * MESSAGES - 1 {
        roaring.remember(MessageNumber { source: 1, number }, START);
    }
    bytes(
        "Roaring pair, at most, numbers that follow each other",
        roaring.bytes(),
    );
    #[cfg(feature = "memcached")]
    if let Some(memcached) = memcached::bytes() {
        bytes("memcached, in its own process", memcached);
    }
    let mut refreshes = refreshes();
    refreshes.sort_unstable();
    let (median, longest) = (
        refreshes[refreshes.len() / 2],
        refreshes[refreshes.len() - 1],
    );
    println!("a refresh of the forgetful Bloom filter: median {median:?}, longest {longest:?}");
    divan::main();
}

/// Returns the times of checks of a forgetful filter that each wait for a refresh.
fn refreshes() -> Vec<Duration> {
    let mut filter = forgetful();
    let period = WINDOW / 3;
    for number in 0..MESSAGES {
        filter.remember(
            of_body(number),
            START + WINDOW.mul_f64(number as f64 / MESSAGES as f64),
        );
    }
    filter.remembers(of_body(0), START + WINDOW);
    let refresh = |count| {
        let key = of_body(u64::from(count));
        let began = Instant::now();
        filter.remembers(key, START + WINDOW + period * count);
        began.elapsed()
    };
    (1..=1000).map(refresh).collect()
}

fn hasher() -> KeyHasher {
    KeyHasher::new([5; 16])
}

fn inverse() -> InverseBloom {
    let slots = arithmetic::slots_for(RATE, WINDOW, 0.5).expect("valid options");
    InverseBloom::with_hasher(slots, hasher()).expect("a valid size")
}

fn forgetful() -> ForgetfulBloom {
    let options = ForgetfulOptions {
        filters: 5,
        window: WINDOW,
        rate: RATE,
        false_positives_max: 0.001,
        hasher: hasher(),
    };
    ForgetfulBloom::new(options, START).expect("valid options")
}

fn roaring() -> RoaringPair {
    RoaringPair::new(MESSAGES, 10).expect("valid bounds")
}

/// Measures checks on a filter that is as full as in service. `key` makes the key of a message from its number.
fn measure<F: Filter>(bencher: Bencher<'_, '_>, mut filter: F, key: impl Fn(u64) -> F::Key + Sync) {
    let at = |number: u64| START + Duration::from_secs_f64(number as f64 / RATE);
    for number in 0..MESSAGES {
        filter.remember(key(number), at(number));
    }
    let all = Deduplicator::new(filter);
    let mut next = MESSAGES;
    bencher.counter(ItemsCount::new(CHECKS)).bench_local(|| {
        for _ in 0..CHECKS {
            next += 1;
            let number = if next.is_multiple_of(10) {
                next - 5
            } else {
                next
            };
            if let Begin::Fresh(guard) = all.begin(key(number), at(next)) {
                guard.commit(at(next));
            }
        }
    });
}

/// Returns the fingerprint of a body of 200 bytes.
fn of_body(number: u64) -> Fingerprint {
    let mut body = [b'x'; 200];
    body[..8].copy_from_slice(&number.to_le_bytes());
    hasher().fingerprint(&body)
}

#[divan::bench]
fn inverse_bloom(bencher: Bencher<'_, '_>) {
    measure(bencher, inverse(), of_body);
}

#[divan::bench]
fn forgetful_bloom(bencher: Bencher<'_, '_>) {
    measure(bencher, forgetful(), of_body);
}

#[divan::bench]
fn roaring_pair(bencher: Bencher<'_, '_>) {
    measure(bencher, roaring(), |number| MessageNumber {
        source: 1,
        number,
    });
}
