use super::InverseBloom;
use crate::arithmetic::forgotten;
use crate::saved::{Restored, restore, save};
use crate::{Filter, Fingerprint, KeyHasher, UnixTime};

const NOW: UnixTime = UnixTime::ZERO;

fn filter(slots: u64) -> InverseBloom {
    InverseBloom::with_hasher(slots, KeyHasher::new([9; 16])).expect("a valid size")
}

fn key(filter: &InverseBloom, number: u64) -> Fingerprint {
    filter.hasher().fingerprint(&number.to_le_bytes())
}

#[test]
fn a_size_beyond_the_memory_is_an_error() {
    for slots in [u64::MAX, 1 << 59, 1 << 44] {
        let error = InverseBloom::new(slots).expect_err("no machine has this memory");
        assert!(error.to_string().contains("memory"), "{error}");
    }
}

#[test]
fn a_fresh_key_is_never_known() {
    let mut filter = filter(1000);
    for number in 0..100_000 {
        let key = key(&filter, number);
        assert!(!filter.remembers(key, NOW), "{number}");
        filter.remember(key, NOW);
        assert!(filter.remembers(key, NOW), "{number}");
    }
}

#[test]
fn the_fingerprint_zero_is_not_known_in_an_empty_filter() {
    let mut filter = filter(4);
    assert!(!filter.remembers(Fingerprint(0), NOW));
    filter.remember(Fingerprint(0), NOW);
    assert!(filter.remembers(Fingerprint(0), NOW));
}

/// The part p of keys that are forgotten after x further keys is that of the formula. Of `KEYS` keys, the part has a
/// standard deviation of √(p (1 − p) / KEYS). The test permits 6 of them.
#[test]
fn keys_are_forgotten_as_the_formula_says() {
    const SLOTS: u64 = 5_000;
    const KEYS: u64 = 400_000;
    let furthest = 4 * SLOTS;
    for further in [
        1,
        SLOTS / 100,
        SLOTS / 10,
        SLOTS / 2,
        SLOTS,
        2 * SLOTS,
        furthest,
    ] {
        let mut filter = filter(SLOTS);
        let mut lost = 0;
        for number in 0..KEYS + further {
            let new = key(&filter, number);
            filter.remember(new, NOW);
            if number >= further {
                let old = key(&filter, number - further);
                lost += u64::from(!filter.remembers(old, NOW));
            }
        }
        let measured = lost as f64 / KEYS as f64;
        let expected = forgotten(SLOTS, further as f64);
        let deviation = (expected * (1.0 - expected) / KEYS as f64).sqrt();
        assert!(
            (measured - expected).abs() < 6.0 * deviation,
            "{further} further keys: {measured}, and {expected} expected"
        );
    }
}

#[test]
fn a_restored_filter_knows_the_same_keys() {
    let mut filter = filter(100);
    for number in 0..50 {
        let key = key(&filter, number);
        filter.remember(key, NOW);
    }
    let mut bytes = Vec::new();
    save(&filter, "body", &mut bytes).expect("memory takes everything");
    assert_eq!(bytes.len() as u64, filter.bytes() + 56);
    let restored: Restored<InverseBloom> = restore(&mut bytes.as_slice()).expect("what was saved");
    assert_eq!(restored.key_name.as_deref(), Some("body"));
    assert_eq!(restored.filter, filter);
}

#[test]
fn a_filter_without_slots_is_refused() {
    let error = InverseBloom::new(0).expect_err("it could remember nothing");
    assert_eq!(
        error.to_string(),
        "slots is 0, and must be a positive number"
    );
}
