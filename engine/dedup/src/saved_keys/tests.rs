mod stored;

use super::*;
use crate::fingerprint::Fingerprint;
use crate::plan::KeyWindow;
use diskq_log::Random;
use diskq_log::SeqRange;
use std::time::Duration;

const RULE: &str = "json:/id";

fn at(seconds: u64) -> Now {
    Now {
        mono: Duration::from_secs(seconds),
        wall_ns: (1_700_000_000 + seconds) * 1_000_000_000,
    }
}

fn plan(window: u64) -> Plan {
    Plan::new(KeyWindow::Count(window), None).expect("below the limit")
}

fn key(number: u64) -> Fingerprint {
    KeyHasher::new([9; 16]).fingerprint(&[&number.to_le_bytes()])
}

/// Keys of the messages `from..boundary`, at seqs 1000 higher, one per second.
fn keys(window: u64, numbers: std::ops::Range<u64>) -> KeyTables {
    let mut keys = KeyTables::new(plan(window), KeyHasher::new([9; 16]), clock_ms(at(0).mono));
    for number in numbers {
        let now_ms = clock_ms(at(number).mono);
        keys.begin(now_ms, Seq(1000 + number));
        assert!(keys.insert(now_ms, key(number), Seq(1000 + number)));
        keys.confirm();
    }
    keys
}

fn encode(snapshot: &KeysSnapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut out = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    snapshot.write(&mut out).expect("memory takes all");
    bytes
}

fn save(keys: &KeyTables, now: Now, boundary: u64) -> Vec<u8> {
    let snapshot = KeysSnapshot::new(keys, now, RULE.to_owned(), Seq(boundary));
    let mut snapshot = snapshot.expect("some memory");
    while snapshot.add_newest(keys, 7) > 0 {}
    encode(&snapshot)
}

/// The numbers whose keys are there.
fn there(keys: &KeyTables, numbers: std::ops::Range<u64>) -> Vec<u64> {
    let is_there = |number: &u64| {
        let seq = keys.find(key(*number));
        assert!(seq.is_none_or(|seq| seq == Seq(1000 + number)));
        seq.is_some()
    };
    numbers.filter(is_there).collect()
}

#[test]
fn a_state_has_no_key_of_a_lost_message() {
    let mut before = keys(70, 0..25);
    assert!(before.lose(SeqRange::new(Seq(1018), Seq(1022))));
    let bytes = save(&before, at(25), 1000 + 25);
    let saved = SavedKeys::decode(&bytes).expect("just written");
    let after = saved.restore(at(25), plan(70));
    after.check();
    let expected: Vec<u64> = (0..18).chain(22..25).collect();
    assert_eq!(there(&after, 0..25), expected);
    assert_eq!(after.count(), 21);
}

#[test]
fn a_state_comes_back() {
    let before = keys(700, 0..1234);
    let bytes = save(&before, at(1234), 1000 + 1234);
    let saved = SavedKeys::decode(&bytes).expect("just written");
    assert_eq!((saved.rule(), saved.boundary()), (RULE, Seq(2234)));
    // The next process began an hour later.
    let now = Now {
        mono: Duration::ZERO,
        wall_ns: at(1234 + 3600).wall_ns,
    };
    let after = saved.restore(now, plan(700));
    after.check();
    assert_eq!(there(&after, 0..2000), there(&before, 0..2000));
    assert_eq!(after.count(), before.count());
    assert_eq!(after.hasher.secret(), [9; 16]);
    let reach_ms = before.reach_ms(clock_ms(at(1234).mono));
    assert_eq!(after.reach_ms(clock_ms(now.mono)), reach_ms + 3_600_000);
    // A smaller window keeps the newest keys, and a larger one all.
    let less = saved.restore(now, plan(100));
    less.check();
    let kept = there(&less, 0..2000);
    assert!(kept.len() >= 100 && kept.contains(&1134), "{}", kept.len());
    let more = saved.restore(now, plan(5000));
    assert_eq!(there(&more, 0..2000), there(&before, 0..2000));
    assert_eq!(save(&after, now, 2234).len(), bytes.len());
}

#[test]
fn an_empty_state_comes_back() {
    let bytes = save(&keys(10, 0..0), at(0), 0);
    let saved = SavedKeys::decode(&bytes).expect("just written");
    assert_eq!(saved.restore(at(0), plan(10)).count(), 0);
}

#[test]
fn a_state_names_no_message_from_the_boundary_on() {
    for boundary in [0, 900, 1000, 1001, 1500, 1799, 1800, 5000] {
        let before = keys(700, 0..800);
        let bytes = save(&before, at(800), boundary);
        let saved = SavedKeys::decode(&bytes).expect("just written");
        let after = saved.restore(at(800), plan(700));
        let safe = |number: &u64| 1000 + number < boundary;
        let expected: Vec<u64> = there(&before, 0..800).into_iter().filter(safe).collect();
        assert_eq!(there(&after, 0..800), expected, "{boundary}");
    }
}

/// Keys are added between the pieces. All keys below `boundary` are saved, and no key from `boundary` on, whether or
/// not the topic begins new tables in the meantime.
#[test]
fn keys_are_added_while_the_newest_table_is_copied() {
    for added in [1, 30, 90, 500, 2000] {
        let mut before = keys(700, 0..750);
        let snapshot = KeysSnapshot::new(&before, at(750), RULE.to_owned(), Seq(1750));
        let mut snapshot = snapshot.expect("some memory");
        assert_eq!(snapshot.add_newest(&before, 10), 10);
        for number in 750..750 + added {
            before.begin(clock_ms(at(number).mono), Seq(1000 + number));
            assert!(before.insert(clock_ms(at(number).mono), key(number), Seq(1000 + number)));
            before.confirm();
            if number % 5 == 0 && added < 2000 {
                snapshot.add_newest(&before, 1);
            }
        }
        while snapshot.add_newest(&before, 10) > 0 {}
        let bytes = encode(&snapshot);
        let saved = SavedKeys::decode(&bytes).expect("just written");
        let after = saved.restore(at(0), plan(700));
        after.check();
        let found = there(&after, 0..3000);
        match added {
            // The newest table was forgotten before it was copied.
            2000 => {
                assert!(found.starts_with(&(0..700).collect::<Vec<u64>>()) && found.len() < 750)
            }
            _ => assert_eq!(found, (0..750).collect::<Vec<u64>>(), "{added}"),
        }
    }
}

/// A snapshot copied all slots of the newest table. A node with many topics of few keys needed several times
/// its memory at a stop, which makes all snapshots at once.
#[test]
fn a_snapshot_takes_memory_for_its_keys_and_not_for_the_table() {
    let mut before = keys(700_000, 0..50);
    let snapshot = KeysSnapshot::new(&before, at(50), RULE.to_owned(), Seq(1050));
    let mut snapshot = snapshot.expect("some memory");
    // Keys of messages that come in the meantime are none of the snapshot's.
    for number in 50..150 {
        before.begin(clock_ms(at(number).mono), Seq(1000 + number));
        assert!(before.insert(clock_ms(at(number).mono), key(number), Seq(1000 + number)));
        before.confirm();
    }
    while snapshot.add_newest(&before, 1000) > 0 {}
    assert_eq!(
        there(&restored(&snapshot), 0..150),
        (0..50).collect::<Vec<_>>()
    );
    let Some(Slots::Copied { slots, .. }) = snapshot.tables.last().map(|it| &it.slots) else {
        panic!("the newest table is copied");
    };
    assert!(
        (50..100).contains(&slots.capacity()),
        "{}",
        slots.capacity()
    );
}

fn restored(snapshot: &KeysSnapshot) -> KeyTables {
    let bytes = encode(snapshot);
    let saved = SavedKeys::decode(&bytes).expect("just written");
    saved.restore(at(50), plan(700_000))
}

/// Regression: a start left the table that the saved state had in part as it was, and the keys of the log began
/// another one. So up to a seventh of the window was forgotten too early.
#[test]
fn keys_of_the_log_fill_the_table_that_a_state_has_in_part() {
    let bytes = save(&keys(70, 0..25), at(25), 1015);
    let saved = SavedKeys::decode(&bytes).expect("just written");
    let mut after = saved.restore(at(25), plan(70));
    assert_eq!(there(&after, 0..25), (0..15).collect::<Vec<_>>());
    let from_log = |keys: &mut KeyTables, number| {
        keys.restore_key(clock_ms(at(number).mono), key(number), Seq(1000 + number));
    };
    (15..25).for_each(|number| from_log(&mut after, number));
    for number in 25..200 {
        let now_ms = clock_ms(at(number).mono);
        after.begin(now_ms, Seq(1000 + number));
        assert!(after.insert(now_ms, key(number), Seq(1000 + number)));
        after.confirm();
        let window = (number + 1).saturating_sub(70)..number + 1;
        assert_eq!(there(&after, window.clone()), window.collect::<Vec<_>>());
    }
    after.check();
}

#[test]
fn damaged_states() {
    let bytes = save(&keys(70, 0..100), at(100), 1100);
    let decode = |bytes: &[u8]| SavedKeys::decode(bytes).map(|_| ());
    assert_eq!(decode(&bytes), Ok(()));
    for length in 0..bytes.len() {
        assert!(decode(&bytes[..length]).is_err(), "{length}");
    }
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        let error = decode(&bytes).expect_err("a bit is wrong");
        let expected = match at {
            0..8 => SavedKeysError::Magic,
            8..12 => error,
            _ => SavedKeysError::Crc,
        };
        assert_eq!(error, expected, "{at}");
    }
    assert_eq!(decode(b""), Err(SavedKeysError::Length));
    assert_eq!(decode(b"no state at all"), Err(SavedKeysError::Magic));
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(decode(&longer), Err(SavedKeysError::Crc));
}

/// Any bytes with a right CRC, as from a file that another program has written: no panic, no large allocation, and what
/// is accepted can be restored.
#[test]
fn hostile_states_with_a_right_crc() {
    let bytes = save(&keys(70, 0..100), at(100), 1100);
    let mut accepted = 0;
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let mut bytes = bytes[..bytes.len() - CRC_BYTES].to_vec();
        for _ in 0..1 + random.below(3) {
            let at = 12 + random.below(bytes.len() as u64 - 12) as usize;
            bytes[at] = match random.below(3) {
                0 => 0xFF,
                1 => 0,
                _ => random.draw() as u8,
            };
        }
        if random.below(5) == 0 {
            bytes.truncate(12 + random.below(bytes.len() as u64 - 12) as usize);
        }
        let crc = crc32c(0, &bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        if let Ok(saved) = SavedKeys::decode(&bytes) {
            accepted += 1;
            saved.restore(at(100), plan(70)).check();
        }
    }
    assert!(accepted > 1000, "{accepted}");
}

#[test]
fn a_newer_version_is_named() {
    let mut bytes = save(&keys(70, 0..1), at(100), 1100);
    bytes[8] = 2;
    let error = SavedKeys::decode(&bytes).expect_err("unknown");
    assert_eq!(error.to_string(), "is of unknown version 2");
}
