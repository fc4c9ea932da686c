use super::*;
use crate::ids::client_id;
use std::collections::BTreeMap;

const MINUTE: Duration = Duration::from_secs(60);

fn owner() -> ClientId {
    client_id(1)
}

fn other() -> ClientId {
    client_id(2)
}

fn seqs(start: u64, end: u64) -> SeqRange {
    SeqRange::new(Seq(start), Seq(end))
}

/// A window with these messages in flight, for a minute.
fn with(start: u64, end: u64) -> Window {
    let mut window = Window::default();
    fly(&mut window, start, end);
    window
}

/// Delivers messages.
fn fly(window: &mut Window, start: u64, end: u64) {
    window.insert(seqs(start, end), owner(), 1, Duration::ZERO, MINUTE);
}

fn take_all(window: &mut Window, seqs: impl IntoIterator<Item = u64>) {
    for seq in seqs {
        window.take(Seq(seq), owner()).unwrap();
    }
    window.check();
}

fn expire(window: &mut Window, now: Duration) -> Vec<u64> {
    let mut expired = Vec::new();
    window.expire(now, &mut Work::unbounded(), |seq, _| expired.push(seq.0));
    window.check();
    expired
}

/// Expires messages in slices, and asserts that no slice has more messages than its budget. Returns the expired seqs.
fn expire_in_slices(window: &mut Window, now: Duration, entries: usize) -> Vec<u64> {
    let mut expired = Vec::new();
    for _ in 0..1_000_000 {
        let (mut work, before) = (Work::new(entries), expired.len());
        window.expire(now, &mut work, |seq, _| expired.push(seq.0));
        assert!(expired.len() - before <= entries);
        if work.is_left() {
            window.check();
            return expired;
        }
        assert!(work.spent() >= entries);
    }
    panic!("there is no end to it");
}

#[test]
fn only_the_owner_takes_and_only_once() {
    let mut window = with(10, 13);
    assert_eq!(window.take(Seq(11), other()), Err(NotYours::OtherOwner));
    assert_eq!(window.take(Seq(11), owner()).map(|e| e.attempts), Ok(1));
    assert_eq!(window.take(Seq(11), owner()), Err(NotYours::NotInFlight));
    assert_eq!(window.take(Seq(9), owner()), Err(NotYours::NotInFlight));
    assert_eq!(window.take(Seq(13), owner()), Err(NotYours::NotInFlight));
    assert_eq!(window.count(), 2);
    window.check();
}

#[test]
fn touch_moves_the_deadline_up_to_the_cap() {
    let mut window = Window::default();
    let second = Duration::from_secs(1);
    window.insert(seqs(1, 3), owner(), 1, Duration::ZERO, 2 * second);
    let touch = |window: &mut Window, now: u32| {
        window.touch(Seq(1), owner(), now * second, 2 * second, 5 * second)
    };
    assert_eq!(touch(&mut window, 1), Ok(()));
    assert_eq!(expire(&mut window, second * 2 + TICK), [2]);
    assert_eq!(touch(&mut window, 2), Ok(()));
    assert_eq!(touch(&mut window, 4), Ok(()));
    assert!(expire(&mut window, second * 5 - TICK).is_empty());
    assert_eq!(expire(&mut window, second * 5 + TICK), [1]);
    assert_eq!(touch(&mut window, 1), Err(NotYours::NotInFlight));
}

#[test]
fn one_straggler_does_not_pin_the_ring() {
    let mut window = Window::default();
    window.insert(seqs(0, 1), other(), 1, Duration::ZERO, MINUTE);
    for start in (1..1_000_000).step_by(64) {
        fly(&mut window, start, start + 64);
        for seq in start..start + 64 {
            window.take(Seq(seq), owner()).unwrap();
        }
    }
    window.check();
    let places = window.ring.len() as u64;
    assert!(places <= RING_ENTRIES_MIN, "the ring stays small");
    assert_eq!((window.count(), window.stragglers.len()), (1, 1));
    assert!(window.batches_count < 2000, "{}", window.batches_count);
    assert_eq!(expire(&mut window, 2 * MINUTE), [0]);
    assert_eq!(window.next_timeout(), None);
}

#[test]
fn a_gap_of_any_width_costs_nothing() {
    let mut window = with(5, 6);
    fly(&mut window, 1 << 53, (1 << 53) + 2);
    window.insert(seqs(7, 8), owner(), 2, Duration::ZERO, MINUTE);
    window.check();
    assert_eq!(window.count(), 4);
    for seq in [5, 1 << 53, (1 << 53) + 1, 7] {
        window.take(Seq(seq), owner()).unwrap();
        window.check();
    }
}

/// Random histories against a map that does it the slow way.
#[test]
fn agrees_with_a_simple_model() {
    for seed in 0..300u64 {
        let mut random = crate::Random::new(seed);
        let mut window = Window::default();
        let mut model: BTreeMap<u64, (ClientId, Duration, Duration)> = BTreeMap::new();
        let mut returned: Vec<u64> = Vec::new();
        let (mut next, mut now) = (random.below(1000), Duration::ZERO);
        for _ in 0..400 {
            let owner = [owner(), other()][random.below(2) as usize];
            let timeout = Duration::from_millis([1000, 1500, 60_000][random.below(3) as usize]);
            match random.below(10) {
                0..=2 => {
                    let run = seqs(next, next + 1 + random.below(80));
                    let has_gap = random.below(20) == 0;
                    next = run.end.0 + if has_gap { random.below(200_000) } else { 0 };
                    window.insert(run, owner, 1, now, timeout);
                    for seq in run.start.0..run.end.0 {
                        model.insert(seq, (owner, round_up(now + timeout), now));
                    }
                }
                3 => {
                    if let Some(seq) = returned.pop() {
                        window.insert(seqs(seq, seq + 1), owner, 2, now, timeout);
                        model.insert(seq, (owner, round_up(now + timeout), now));
                    }
                }
                4..=6 => {
                    for _ in 0..random.below(60) {
                        // A seq that is in flight, as a rule.
                        let seq = random.below(next + 2);
                        let in_flight = model.range(seq..).next().filter(|_| random.below(20) > 0);
                        let seq = in_flight.map_or(seq, |(seq, _)| *seq);
                        let expected = match model.get(&seq) {
                            None => Err(NotYours::NotInFlight),
                            Some(entry) if entry.0 != owner => Err(NotYours::OtherOwner),
                            Some(_) => Ok(()),
                        };
                        let taken = window.take(Seq(seq), owner).map(drop);
                        assert_eq!(taken, expected, "seed {seed}");
                        if expected.is_ok() {
                            model.remove(&seq);
                            returned.push(seq);
                        }
                    }
                }
                7 => {
                    let max = Duration::from_millis(2500);
                    if let Some((seq, entry)) = model.iter_mut().next() {
                        let owner = entry.0;
                        window.touch(Seq(*seq), owner, now, timeout, max).unwrap();
                        entry.1 = round_up(now + timeout).min(round_up(entry.2 + max));
                    }
                }
                _ => {
                    now += Duration::from_millis(random.below(700));
                    let mut expired = match random.below(2) {
                        0 => expire(&mut window, now),
                        _ => expire_in_slices(&mut window, now, 1 + random.below(50) as usize),
                    };
                    expired.sort_unstable();
                    let due = model.iter().filter(|(_, entry)| entry.1 <= now);
                    let due: Vec<u64> = due.map(|(seq, _)| *seq).collect();
                    assert_eq!(expired, due, "seed {seed}");
                    for seq in due {
                        model.remove(&seq);
                        returned.push(seq);
                    }
                }
            }
            window.check();
            assert_eq!(window.count(), model.len() as u64, "seed {seed}");
            let first_due = model.values().map(|e| e.1).min();
            let is_late = window.next_timeout() > first_due && first_due.is_some();
            assert!(!is_late);
        }
    }
}

/// Each TOUCH left a batch behind until its deadline, and every insert beyond a thousand of them
/// looked at all: a consumer that touches one message in a loop stalled its shard.
#[test]
fn touching_one_message_in_a_loop_leaves_nothing_behind() {
    let mut window = with(1, 2);
    let timeout_max = Duration::from_secs(900);
    let touch = |window: &mut Window, now| {
        let touched = window.touch(Seq(1), owner(), now, MINUTE, timeout_max);
        touched.expect("it is in flight");
    };
    for step in 0..100_000 {
        touch(&mut window, Duration::from_millis(step / 2));
    }
    let batches = window.batches_count;
    assert!(batches <= 2 * 513 + 100, "{batches} batches");
    for _ in 0..100 {
        touch(&mut window, Duration::from_secs(890));
    }
    assert_eq!(window.irregular.len(), 1);
    window.check();
}

/// Regression: if the first message of a long run was finished last, its FIN dropped all free places of the run in one
/// call. A message far ahead moved all other entries in one call.
#[test]
fn free_places_and_old_entries_leave_a_long_ring_in_parts() {
    const LONG: u64 = 200_000;
    let far = 100 * LONG;
    let mut window = with(0, LONG);
    take_all(&mut window, (1..LONG - 1).chain([0]));
    let places = LONG as usize - window.ring.len();
    // The place of the last message, and a piece of free places.
    assert!(places <= PIECE + 1, "{places} places left the ring");
    let mut next = LONG;
    while window.ring.len() > 2 * RING_ENTRIES_MIN as usize {
        let before = window.ring.len();
        fly(&mut window, next, next + 1);
        next += 1;
        assert!(before - window.ring.len() <= PIECE + MOVES_MAX);
    }
    fly(&mut window, next, next + LONG);
    for seq in [far, far + 1, 2 * far] {
        let (before, stragglers) = (window.ring.len(), window.stragglers.len());
        fly(&mut window, seq, seq + 1);
        window.check();
        assert!(before - window.ring.len() <= PIECE + MOVES_MAX);
        assert!(window.stragglers.len() - stragglers <= MOVES_MAX + 1);
    }
    take_all(&mut window, [far, far + 1, 2 * far, next, next + LONG - 1]);
}

/// Regression: when messages were touched one by one, one call went through all their batches.
#[test]
fn finished_batches_are_forgotten_a_few_at_a_time() {
    const MESSAGES: u64 = 5_000;
    let mut window = with(0, MESSAGES);
    let mut most = 0;
    for round in 1..10 {
        let now = Duration::from_secs(round);
        for seq in (0..MESSAGES).step_by(2) {
            let before = window.batches_count;
            let done = window.touch(Seq(seq), owner(), now, MINUTE, 2 * MINUTE);
            done.unwrap();
            assert!(before <= window.batches_count + SWEPT_BATCHES);
            most = most.max(window.batches_count);
        }
        window.check();
    }
    assert!(most < 3 * MESSAGES as usize, "{most}");
    let mut expired = expire_in_slices(&mut window, 3 * MINUTE, 100);
    expired.sort_unstable();
    assert!(expired.into_iter().eq(0..MESSAGES));
}
