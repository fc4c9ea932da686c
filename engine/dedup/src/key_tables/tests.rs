use super::*;
use crate::plan::{KeyWindow, MEMORY_DEFAULT, MEMORY_MAX, MEMORY_MIN};
use diskq_log::Random;
use std::collections::HashMap;
use std::ops::Range;

fn hasher() -> KeyHasher {
    KeyHasher::new([3; 16])
}

fn key(number: u64) -> Fingerprint {
    hasher().fingerprint(&[&number.to_le_bytes()])
}

fn tables(window: KeyWindow, memory: Option<u64>) -> KeyTables {
    let plan = Plan::new(window, memory).expect("the memory is enough");
    KeyTables::new(plan, hasher(), clock_ms(Duration::ZERO))
}

/// Stores the message if its key is fresh. Returns whether the key is.
fn publish(keys: &mut KeyTables, at_ms: u64, number: u64, next: &mut Seq) -> bool {
    let at_ms = clock_ms(Duration::from_millis(at_ms));
    keys.begin(at_ms, *next);
    if keys.find(key(number)).is_some() {
        return false;
    }
    assert!(keys.insert(at_ms, key(number), *next));
    keys.confirm();
    *next = next.offset(1);
    true
}

/// Stores messages, whose keys are all fresh.
#[track_caller]
fn publish_all(keys: &mut KeyTables, numbers: Range<u64>, next: &mut Seq) {
    for number in numbers {
        assert!(publish(keys, 0, number, next));
    }
}

fn has(keys: &KeyTables, number: u64) -> bool {
    keys.find(key(number)).is_some()
}

/// Ends a batch.
fn end(keys: &mut KeyTables, is_refused: bool) {
    if is_refused {
        keys.take_back();
    } else {
        keys.confirm();
    }
    keys.check();
}

#[test]
fn plans() {
    let plan = Plan::new(KeyWindow::Count(1_000_000), None).expect("below the limit");
    assert_eq!(plan.memory(), 22_857_344);
    assert!(plan.keys() >= 1_000_000 && plan.keys() <= 1_142_867);
    let refused = Plan::new(KeyWindow::Count(1_000_000), Some(1 << 20));
    assert_eq!(refused, Err(22_857_344));
    let plan = Plan::new(KeyWindow::Count(1_000_000), Some(1 << 30)).expect("more than enough");
    assert_eq!(plan.memory(), 22_857_344);
    let second = KeyWindow::Time(Duration::from_secs(1));
    assert_eq!(Plan::new(second, Some(9)), Err(MEMORY_MIN));
    assert_eq!(Plan::new(second, Some(u64::MAX)), Err(MEMORY_MAX));
    let plan = Plan::new(KeyWindow::Time(Duration::ZERO), None).expect("the default");
    assert_eq!(plan.memory(), MEMORY_DEFAULT);
    assert_eq!(plan.keys(), 838_856);
    assert!(Plan::new(KeyWindow::Count(u64::MAX), None).is_err());
    assert!(Plan::new(KeyWindow::Count(0), None).is_ok());
}

/// A window of n messages remembers the last n messages, and at most a seventh more, rounded up.
#[test]
fn a_window_of_messages() {
    for window in [1, 7, 50, 1000, 3_210] {
        let mut keys = tables(KeyWindow::Count(window), None);
        let mut next = Seq(1 << 40);
        let most = keys.plan.keys();
        for number in 0..5 * window {
            assert!(publish(&mut keys, 0, number, &mut next));
            if number % 97 == 0 || number < 100 {
                keys.check();
                let oldest = number.saturating_sub(window - 1);
                let forgotten = (number + 1).saturating_sub(most);
                let has_window = (oldest..=number).all(|it| has(&keys, it));
                let has_more = (0..forgotten).any(|it| has(&keys, it));
                assert!(has_window && !has_more, "{window}");
            }
        }
        assert!(most <= (window.div_ceil(7)) * 8);
    }
}

#[test]
fn a_window_of_time() {
    let mut keys = tables(KeyWindow::Time(Duration::from_secs(70)), None);
    let mut next = Seq(1000);
    for second in 0..500 {
        let at_ms = second * 1000;
        assert!(publish(&mut keys, at_ms, second, &mut next));
        for number in second.saturating_sub(69)..=second {
            let is_fresh = publish(&mut keys, at_ms, number, &mut next);
            assert!(!is_fresh, "{number} at {second}");
        }
        assert!(keys.reach_ms(clock_ms(Duration::from_millis(at_ms))) <= 80_000);
        let forgotten = second.saturating_sub(81);
        assert!((0..forgotten).all(|it| !has(&keys, it)), "at {second}");
        keys.check();
    }
    // After a silence, nothing is remembered.
    assert!(publish(&mut keys, 570_000 + 70_000, 499, &mut next));
    assert_eq!(keys.count(), 1);
}

#[test]
fn memory_bounds_a_window_of_time() {
    let mut keys = tables(KeyWindow::Time(Duration::from_secs(3600)), Some(MEMORY_MIN));
    let mut next = Seq(1);
    let most = keys.plan.keys();
    for number in 0..10_000 {
        assert!(publish(&mut keys, number, number, &mut next));
        assert!(keys.bytes() <= MEMORY_MIN);
    }
    assert!(keys.count() <= most);
    assert!(keys.count() >= most / 8 * 7);
    assert!(keys.reach_ms(clock_ms(Duration::from_millis(10_000))) <= most + 1);
}

/// Random publishes, batches and failed appends beside a simple model. A key of the last stored messages is found, and
/// a key that is found has the seq of its message.
#[test]
fn beside_a_model() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let window = 1 + random.below(300);
        let mut keys = tables(KeyWindow::Count(window), None);
        let mut next = Seq(1 + random.below(1 << 50));
        let mut stored: Vec<u64> = Vec::new();
        let mut model: HashMap<u64, Seq> = HashMap::new();
        // The stored messages from this index on are in the window.
        let mut in_window = 0;
        let at_ms = clock_ms(Duration::ZERO);
        for _ in 0..300 {
            let before = keys.count();
            keys.begin(at_ms, next);
            let mut inserted = Vec::new();
            let most = 1 + random.below(60);
            for _ in 0..1 + random.below(most) {
                let number = random.below(600);
                let found = keys.find(key(number));
                if let Some(seq) = found {
                    let known = inserted.iter().find(|(it, _)| *it == number);
                    let known = known.map(|(_, seq)| seq).or(model.get(&number));
                    assert_eq!(known, Some(&seq), "seed {seed}");
                    continue;
                }
                let count = stored.len() + inserted.len();
                in_window = in_window.max(count.saturating_sub(window as usize));
                let newest = stored.get(in_window..).unwrap_or_default();
                let is_forgotten = newest.contains(&number);
                assert!(!is_forgotten, "seed {seed}: forgotten in the window");
                let seq = next.offset(inserted.len() as u64);
                if !keys.insert(at_ms, key(number), seq) {
                    assert!(inserted.len() as u64 >= window, "seed {seed}");
                    break;
                }
                inserted.push((number, seq));
                in_window = in_window.max((count + 1).saturating_sub(window as usize));
            }
            if random.below(4) == 0 {
                keys.take_back();
                assert!(keys.count() <= before, "seed {seed}");
            } else {
                keys.confirm();
                next = next.offset(inserted.len() as u64 + random.below(3));
                stored.extend(inserted.iter().map(|(number, _)| number));
                model.extend(inserted);
            }
            keys.check();
        }
    }
}

#[test]
fn a_batch_that_is_refused_again_and_again_forgets_no_more_than_once() {
    let mut keys = tables(KeyWindow::Count(700), None);
    let mut next = Seq(1);
    publish_all(&mut keys, 0..890, &mut next);
    let at_ms = clock_ms(Duration::ZERO);
    for _ in 0..20 {
        keys.begin(at_ms, next);
        for number in 0..150 {
            assert!(keys.insert(at_ms, key(10_000 + number), next.offset(number)));
        }
        keys.take_back();
        keys.check();
        assert!((340..890).all(|it| has(&keys, it)));
        assert!((0..150).all(|it| !has(&keys, 10_000 + it)));
    }
}

#[test]
fn keys_beyond_all_tables_are_not_remembered() {
    let mut keys = tables(KeyWindow::Count(70), None);
    let at_ms = clock_ms(Duration::ZERO);
    for is_refused in [true, false] {
        keys.begin(at_ms, Seq(1));
        let inserted = (0..1000).filter(|it| keys.insert(at_ms, key(*it), Seq(1 + it)));
        assert_eq!(inserted.count(), 80);
        if is_refused {
            keys.take_back();
            assert_eq!(keys.count(), 0);
        }
    }
    keys.confirm();
    keys.check();
}

#[test]
fn a_table_that_is_being_written_is_not_used_again() {
    let mut keys = tables(KeyWindow::Count(70), None);
    let mut next = Seq(1);
    let mut held = Vec::new();
    for number in 0..1000 {
        assert!(publish(&mut keys, 0, number, &mut next));
        if number % 40 == 9 {
            held.extend(keys.older().next().cloned());
            keys.check();
        }
    }
    for table in held {
        assert_eq!(table.count(), 10);
        table.check();
    }
}

#[test]
fn restored_keys_count_as_those_of_this_process() {
    let mut keys = tables(KeyWindow::Time(Duration::from_secs(70)), None);
    let now_ms = clock_ms(Duration::ZERO);
    for age in (0..8).rev() {
        let began_ms = now_ms - age * 10_000;
        let base = Seq(1000 - age * 10);
        let restored = (0..5).map(|it| (key(age * 10 + it), base.offset(it)));
        keys.restore_table((base, began_ms, began_ms + 9_000), 5, restored);
        keys.check();
    }
    assert_eq!(keys.count(), 40);
    // The same key again, as a frame that was also in the saved state.
    keys.restore_key(now_ms, key(3), Seq(2000));
    assert_eq!(keys.find(key(3)), Some(Seq(1003)));
    let mut next = Seq(3000);
    assert!(!publish(&mut keys, 1, 73, &mut next));
    assert!(publish(&mut keys, 40_000, 73, &mut next), "too old by now");
    assert!(!publish(&mut keys, 40_000, 23, &mut next));
    keys.check();
}

/// Regression: the clock was set back between two messages. A start put both into a table that ended before it
/// began, and the next start refused the file of such keys.
#[test]
fn a_table_ends_at_its_newest_message() {
    let mut keys = tables(KeyWindow::Time(Duration::from_secs(70)), None);
    let now_ms = clock_ms(Duration::ZERO);
    keys.restore_key(now_ms - 1000, key(1), Seq(1 << 50));
    keys.restore_key(now_ms - 5000, key(2), Seq((1 << 50) + 1));
    assert_eq!(keys.newest.began_ms, now_ms - 1000);
    assert_eq!(keys.newest.last_key_ms, now_ms - 1000);
}

/// Regression: the first publish after a long silence freed all tables of the window at once.
#[test]
fn tables_of_a_window_that_has_passed_are_handed_over() {
    let window = KeyWindow::Time(Duration::from_secs(7));
    let mut keys = tables(window, Some(MEMORY_MIN));
    let mut next = Seq(1);
    for number in 0..8 {
        assert!(publish(&mut keys, number * 1000, number, &mut next));
    }
    let before = keys.bytes();
    assert!(keys.take_unneeded().is_none());
    assert!(publish(&mut keys, 3_600_000, 8, &mut next));
    assert_eq!(keys.count(), 1);
    let unneeded = keys.take_unneeded().expect("all but one");
    let bytes = unneeded.iter().map(|table| table.bytes() as u64);
    assert_eq!(keys.bytes() + bytes.sum::<u64>(), before);
    assert!(unneeded.len() > 3, "{}", unneeded.len());
    assert!(keys.take_unneeded().is_none());
}

/// Regression: a table ended behind the keys of a batch that was refused, so it overlapped the next one. A start
/// refused the file of such keys.
#[test]
fn a_refused_batch_moves_no_end() {
    let window = KeyWindow::Time(Duration::from_secs(7));
    let mut keys = tables(window, None);
    let at_ms = clock_ms(Duration::ZERO);
    let mut next = Seq(1);
    assert!(publish(&mut keys, 0, 100, &mut next));
    for number in 0..30 {
        assert!(keys.insert(at_ms, key(number), Seq(2 + number)));
    }
    keys.take_back();
    assert!(publish(&mut keys, 1500, 101, &mut next));
    keys.check();
    assert_eq!(keys.count(), 2);
}

/// Regression: a batch of a million messages left 16 MB to its topic for ever.
#[test]
fn a_large_batch_keeps_no_memory() {
    let mut keys = tables(KeyWindow::Count(100_000), None);
    let at_ms = clock_ms(Duration::ZERO);
    keys.begin(at_ms, Seq(1));
    for number in 0..50_000 {
        assert!(keys.insert(at_ms, key(number), Seq(1 + number)));
    }
    keys.confirm();
    assert!(keys.unconfirmed.capacity() <= STEPS_KEPT);
    assert_eq!(keys.count(), 50_000);
    keys.check();
}

/// A plan of tables that no system gives.
const REFUSED: usize = 1 << 56;

/// Regression: the process ended when the system gave no memory for a further table.
#[test]
fn without_memory_for_a_further_table_the_oldest_keys_are_forgotten() {
    let mut keys = tables(KeyWindow::Count(70), None);
    let mut next = Seq(1);
    publish_all(&mut keys, 0..25, &mut next);
    let slots = std::mem::replace(&mut keys.plan.slots, REFUSED);
    let bytes = keys.bytes();
    assert!(!keys.take_shortage());
    for number in 25..100 {
        assert!(publish(&mut keys, 0, number, &mut next));
        assert_eq!(keys.bytes(), bytes);
        assert!(keys.count() > 20 && keys.count() <= 30);
        assert!((number - 20..=number).all(|it| has(&keys, it)));
    }
    // Seven more tables were begun, and each used the slots of the oldest one.
    assert_eq!(keys.refused, 7);
    assert!(keys.take_shortage() && !keys.take_shortage());
    // There is memory again.
    keys.plan.slots = slots;
    publish_all(&mut keys, 100..300, &mut next);
    assert!((230..300).all(|it| has(&keys, it)));
    assert_eq!((keys.refused, keys.take_shortage()), (7, false));
}

#[test]
fn without_memory_for_any_table_no_key_is_remembered() {
    let mut keys = tables(KeyWindow::Count(70), None);
    let slots = std::mem::replace(&mut keys.plan.slots, REFUSED);
    let at_ms = clock_ms(Duration::ZERO);
    for number in 1..=3 {
        keys.begin(at_ms, Seq(number));
        assert!(!keys.insert(at_ms, key(number), Seq(number)));
        keys.confirm();
        keys.check();
        assert_eq!((keys.count(), keys.bytes()), (0, 0));
        assert_eq!((keys.refused, keys.take_shortage()), (number, number == 1));
    }
    keys.plan.slots = slots;
    let mut next = Seq(4);
    assert!(publish(&mut keys, 0, 3, &mut next));
    assert!(!publish(&mut keys, 0, 3, &mut next));
}

/// The tables of the keys of a publish are not given away, because the publish may be taken back.
#[test]
fn without_memory_a_large_batch_is_remembered_in_part() {
    let mut keys = tables(KeyWindow::Count(70), None);
    let mut next = Seq(1);
    publish_all(&mut keys, 0..15, &mut next);
    keys.plan.slots = REFUSED;
    let at_ms = clock_ms(Duration::ZERO);
    for is_refused in [true, false] {
        keys.begin(at_ms, next);
        let inserted = (100..200).filter(|it| {
            let seq = next.offset(it - 100);
            keys.insert(at_ms, key(*it), seq)
        });
        // The rest of the newest table, and the slots of the oldest table.
        assert_eq!(inserted.count(), 15);
        end(&mut keys, is_refused);
    }
    assert!((100..115).all(|it| has(&keys, it)));
}

/// The key of a lost message is not found, and then names the next copy, whichever table has the key.
#[test]
fn a_lost_message_is_fresh_when_it_comes_again() {
    let mut keys = tables(KeyWindow::Count(70), None);
    let mut next = Seq(1000);
    publish_all(&mut keys, 0..25, &mut next);
    // The numbers before 20 are in older tables.
    let lost = SeqRange::new(Seq(1018), Seq(1022));
    assert!(keys.lose(lost));
    assert!((0..25).all(|it| has(&keys, it) != (18..22).contains(&it)));
    let at_ms = clock_ms(Duration::ZERO);
    for is_refused in [true, false] {
        keys.begin(at_ms, next);
        for number in 18..22 {
            assert_eq!(keys.find(key(number)), None);
            let seq = next.offset(number - 18);
            assert!(keys.insert(at_ms, key(number), seq));
            assert_eq!(keys.find(key(number)), Some(seq));
        }
        end(&mut keys, is_refused);
    }
    next = next.offset(4);
    assert!((18..22).all(|it| !publish(&mut keys, 0, it, &mut next)));
    assert!((0..25).all(|it| has(&keys, it)));
    publish_all(&mut keys, 100..200, &mut next);
    assert!(keys.lost.is_empty(), "it is behind the window");
    assert!(!keys.lose(lost));
}
