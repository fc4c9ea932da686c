use std::fs;
use std::time::Duration;

use test_support::tmpfs::Tmpfs;

use super::{Restored, Saved, restore, restore_file, save, save_file};
use crate::{
    Filter, Fingerprint, ForgetfulBloom, ForgetfulOptions, InverseBloom, KeyHasher, MessageNumber,
    RoaringPair, StateError, UnixTime,
};

const NOW: UnixTime = UnixTime::from_secs(1000);

fn inverse() -> InverseBloom {
    let mut filter = InverseBloom::new(40).expect("a valid size");
    for key in 0..100 {
        filter.remember(Fingerprint(key << 40), NOW);
    }
    filter
}

fn roaring() -> RoaringPair {
    let mut filter = RoaringPair::new(10, 3).expect("valid bounds");
    for number in 0..35 {
        filter.remember(
            MessageNumber {
                source: number % 3,
                number,
            },
            NOW,
        );
    }
    filter
}

fn forgetful() -> ForgetfulBloom {
    let options = ForgetfulOptions {
        filters: 3,
        window: Duration::from_secs(1),
        rate: 20.0,
        false_positives_max: 0.1,
        hasher: KeyHasher::new([1; 16]),
    };
    let mut filter = ForgetfulBloom::new(options, NOW).expect("valid options");
    (0..30).for_each(|key| filter.remember(Fingerprint(key << 70), NOW));
    filter
}

/// A state that was cut at any place, or in which any bit was changed, is an error. It is no panic, and no filter.
fn check_damage<S: Saved>(filter: &S) {
    let mut bytes = Vec::new();
    save(filter, "json:/id", &mut bytes).expect("memory takes everything");
    for end in 0..bytes.len() {
        let cut = restore::<S>(&mut &bytes[..end]);
        assert!(cut.is_err(), "{} cut at {end}", S::NAME);
    }
    for at in 0..bytes.len() {
        for bit in [0, 3, 7] {
            bytes[at] ^= 1 << bit;
            let changed = restore::<S>(&mut bytes.as_slice());
            assert!(changed.is_err(), "{} with bit {bit} of byte {at}", S::NAME);
            bytes[at] ^= 1 << bit;
        }
    }
    bytes.push(0);
    let longer = restore::<S>(&mut bytes.as_slice());
    assert!(longer.is_err(), "{} with a byte more", S::NAME);
}

#[test]
fn damage_is_an_error() {
    check_damage(&inverse());
    check_damage(&roaring());
    check_damage(&forgetful());
}

#[test]
fn the_state_of_another_filter_is_refused() {
    let mut bytes = Vec::new();
    save(&inverse(), "body", &mut bytes).expect("memory takes everything");
    let error = restore::<RoaringPair>(&mut bytes.as_slice()).expect_err("it is another");
    assert_eq!(
        error.to_string(),
        "the saved state is that of the filter inverse-bloom, and roaring-pair is wanted; choose another file"
    );
    bytes[4] = 9;
    let error = restore::<InverseBloom>(&mut bytes.as_slice()).expect_err("it is newer");
    assert!(matches!(error, StateError::Version(9)), "{error}");
}

#[test]
fn a_file_is_replaced_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("filter");
    assert!(
        restore_file::<InverseBloom>(&path)
            .expect("no error")
            .is_none()
    );
    save_file(&inverse(), "body", &path).expect("the directory can be written");
    let restored: Restored<InverseBloom> = restore_file(&path).expect("readable").expect("there");
    assert_eq!(restored.filter, inverse());
    // A file of a user, which was overwritten and removed.
    let other = directory.path().join("filter.new");
    fs::write(&other, b"other").expect("writable");
    save_file(&roaring(), "body", &path).expect("the directory can be written");
    assert_eq!(fs::read(other).expect("readable"), b"other");
    let names = fs::read_dir(directory.path()).expect("readable").count();
    assert_eq!(names, 2);
    let error = restore_file::<InverseBloom>(&path).expect_err("another filter");
    assert!(matches!(error, StateError::OtherFilter { .. }), "{error}");
}

#[test]
fn a_file_that_cannot_be_written_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("missing").join("filter");
    assert!(save_file(&inverse(), "body", &path).is_err());
    assert!(restore_file::<InverseBloom>(directory.path()).is_err());
}

/// The part that was written stayed, so the disk stayed full.
#[test]
fn a_failed_save_leaves_no_part_of_a_state() {
    let Some(disk) = Tmpfs::mount("64k") else {
        return;
    };
    let path = disk.path().join("filter");
    save_file(&inverse(), "body", &path).expect("the directory can be written");
    let filler = disk.fill("filler");
    let large = InverseBloom::new(10_000).expect("a valid size");
    let error = save_file(&large, "body", &path).expect_err("the disk is full");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
    fs::remove_file(filler).expect("it is there");
    let names = fs::read_dir(disk.path()).expect("readable").count();
    assert_eq!(names, 1);
    let restored: Restored<InverseBloom> = restore_file(&path).expect("readable").expect("there");
    assert_eq!(restored.filter, inverse());
}

#[test]
fn a_state_names_its_keys() {
    for keys in ["json:/id", "", "json:/größe", &"x".repeat(70_000)] {
        let mut bytes = Vec::new();
        save(&inverse(), keys, &mut bytes).expect("memory takes everything");
        let restored: Restored<InverseBloom> = restore(&mut bytes.as_slice()).expect("saved");
        assert_eq!(restored.key_name.as_deref(), Some(keys));
    }
}

/// States of version 1, which had no size of the forgetful Bloom filter, and of version 2, which had no name of the
/// keys, are read. A filter keeps its size from then, and is saved as version 3.
#[test]
fn states_of_older_versions_are_read() {
    fn check<S: Saved + Filter + PartialEq + std::fmt::Debug>(
        version: u8,
        old: &[u8],
        now: &S,
    ) -> S {
        assert_eq!(old[4..6], [version, 0]);
        let restored: Restored<S> = restore(&mut &*old).expect("an older version");
        assert_eq!(restored.key_name, None);
        let restored = restored.filter;
        let mut bytes = Vec::new();
        save(&restored, "body", &mut bytes).expect("memory takes everything");
        assert_eq!(bytes[4..6], [3, 0]);
        let again: Restored<S> = restore(&mut bytes.as_slice()).expect("version 3");
        assert_eq!(again.filter, restored);
        assert!(restored.bytes() <= now.bytes());
        restored
    }
    let old = include_bytes!("tests/inverse-bloom.v1");
    assert_eq!(check(1, old, &inverse()), inverse());
    let old = include_bytes!("tests/inverse-bloom.v2");
    assert_eq!(check(2, old, &inverse()), inverse());
    let old = include_bytes!("tests/roaring-pair.v1");
    assert_eq!(check(1, old, &roaring()), roaring());
    let mut old = check(1, include_bytes!("tests/forgetful-bloom.v1"), &forgetful());
    assert_eq!(old.options(), forgetful().options());
    assert!((20..30).all(|key| old.remembers(Fingerprint(key << 70), NOW)));
}
