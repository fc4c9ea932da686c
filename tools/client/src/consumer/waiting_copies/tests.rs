use std::cell::Cell;
use std::rc::Rc;

use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;
const CHECKS: CheckInterval = CheckInterval {
    first: MS_50,
    max: Duration::from_millis(200),
};
const MS_50: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
struct Copy {
    connection: u64,
    limits: Limits,
    touched: Rc<Cell<u32>>,
    is_gone: Rc<Cell<bool>>,
    may_go_back: bool,
}

impl Held for Copy {
    fn touch(&self) {
        self.touched.set(self.touched.get() + 1);
    }

    fn is_gone(&self) -> bool {
        self.is_gone.get()
    }

    fn may_go_back(&self) -> bool {
        self.may_go_back
    }

    fn connection(&self) -> ConnectionId {
        ConnectionId(self.connection)
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}

fn copy(now: Instant, connection: u64, timeout: u64, timeout_max: u64) -> Copy {
    Copy {
        connection,
        limits: Limits {
            delivered_at: now,
            timeout: MS(timeout),
            timeout_max: MS(timeout_max),
        },
        touched: Rc::default(),
        is_gone: Rc::default(),
        may_go_back: true,
    }
}

fn put(copies: &mut WaitingCopies<Copy>, now: Instant, key: u128, copy: &Copy) {
    copies.put(WaitingCopy::new(now, FilterKey(key), copy.clone(), CHECKS));
    copies.check();
}

/// Carries out all timeouts up to `end`. Returns the times at which a copy asked, and at which it was requeued.
fn run(copies: &mut WaitingCopies<Copy>, start: Instant, end: Duration) -> (Vec<u128>, Vec<u128>) {
    let (mut asked, mut requeued) = (Vec::new(), Vec::new());
    while let Some(now) = copies.next_timeout().filter(|at| *at <= start + end) {
        let due = copies.handle_timeout(now, CHECKS);
        let ms = now.duration_since(start).as_millis();
        asked.extend(due.check.iter().map(|_| ms));
        requeued.extend(due.requeue.iter().map(|_| ms));
        due.check
            .into_iter()
            .for_each(|waiting| copies.put(waiting));
        copies.check();
    }
    (asked, requeued)
}

#[test]
fn a_copy_is_touched_and_leaves_before_the_limit() {
    let now = Instant::now();
    let mut copies = WaitingCopies::new();
    let held = copy(now, 1, 1000, 3000);
    put(&mut copies, now, 7, &held);
    let (asked, requeued) = run(&mut copies, now, MS(10_000));
    assert_eq!(asked[..4], [50, 150, 350, 550]);
    // 500, 1000, ... 2500: half of the timeout each. The limit is at 3000, and a quarter of the timeout before it the
    // copy leaves.
    assert_eq!(held.touched.get(), 5);
    assert_eq!(requeued, [2750]);
    assert_eq!((copies.len(), copies.next_timeout()), (0, None));
}

#[test]
fn a_limit_below_the_timeout_counts_for_nothing() {
    let now = Instant::now();
    let mut copies = WaitingCopies::new();
    put(&mut copies, now, 7, &copy(now, 1, 1000, 0));
    assert_eq!(run(&mut copies, now, MS(10_000)).1, [750]);
}

#[test]
fn copies_are_taken_by_their_key_and_oldest_first() {
    let now = Instant::now();
    let mut copies = WaitingCopies::new();
    for (key, connection) in [(1, 1), (2, 2), (1, 3)] {
        put(&mut copies, now, key, &copy(now, connection, 1000, 3000));
    }
    let taken = copies.take(FilterKey(1));
    let connections: Vec<u64> = taken
        .iter()
        .map(|waiting| waiting.copy.connection)
        .collect();
    assert_eq!(connections, [1, 3]);
    assert!(copies.take(FilterKey(1)).is_empty());
    copies.check();
    let all: Vec<u64> = copies
        .take_all()
        .iter()
        .map(|copy| copy.connection)
        .collect();
    assert_eq!(all, [2]);
    copies.check();
}

#[test]
fn copies_of_lost_connections_leave() {
    let now = Instant::now();
    let mut copies = WaitingCopies::new();
    let (lost, present) = (copy(now, 1, 1000, 3000), copy(now, 2, 1000, 3000));
    put(&mut copies, now, 1, &lost);
    put(&mut copies, now, 2, &present);
    lost.is_gone.set(true);
    let due = copies.handle_timeout(now, CHECKS);
    copies.check();
    let gone: Vec<u64> = due.gone.iter().map(|copy| copy.connection).collect();
    assert_eq!((gone, due.check.len(), copies.len()), (vec![1], 0, 1));
}

#[test]
fn copies_of_a_stalled_connection_go_back() {
    let now = Instant::now();
    let mut copies = WaitingCopies::new();
    for (key, connection) in [(1, 1), (2, 1), (3, 1), (4, 2)] {
        put(
            &mut copies,
            now,
            key,
            &copy(now, connection, 60_000, 900_000),
        );
    }
    let connection = |id, in_flight, ready| (ConnectionId(id), in_flight, ready);
    let mut relieve = |at, connections: &[_]| copies.relieve(at, connections.iter().copied()).len();
    let later = now + STALL;
    // Too early; RDY allows more; one message is with the application; a connection without RDY.
    assert_eq!(relieve(later - MS(1), &[connection(1, 3, 3)]), 0);
    assert_eq!(
        relieve(
            later,
            &[
                connection(1, 3, 4),
                connection(2, 2, 2),
                connection(3, 1, 1)
            ]
        ),
        0
    );
    assert_eq!(relieve(later, &[connection(1, 3, 0)]), 0);
    assert_eq!(
        relieve(later, &[connection(1, 3, 3), connection(2, 1, 1)]),
        3
    );
    copies.check();
    assert_eq!(copies.len(), 1);
    // The youngest one has waited long enough, too.
    assert_eq!(copies.relieve(later, [connection(1, 1, 1)]).len(), 1);
    // A copy that is near the end of its attempts stays.
    let mut last = copy(now, 1, 60_000, 900_000);
    last.may_go_back = false;
    put(&mut copies, now, 5, &last);
    assert_eq!(copies.relieve(later, [connection(1, 1, 1)]).len(), 0);
    assert_eq!(copies.len_of(ConnectionId(1)), 1);
}

/// Random copies: each is taken out exactly once, and is touched in time until then.
#[test]
fn random_copies_are_never_lost() {
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let start = Instant::now();
        let mut now = start;
        let mut copies = WaitingCopies::new();
        let (mut added, mut left) = (0, 0);
        for _ in 0..300 {
            now += MS(rng.u64(0..80));
            match rng.u8(0..4) {
                0 => {
                    let held = copy(now, rng.u64(0..3), rng.u64(100..2000), rng.u64(0..5000));
                    put(&mut copies, now, u128::from(rng.u64(0..8)), &held);
                    added += 1;
                }
                1 => {
                    left += copies.take(FilterKey(u128::from(rng.u64(0..8)))).len();
                }
                2 => {
                    let connections =
                        (0..3).map(|id| (ConnectionId(id), rng.u64(0..5), rng.u32(0..4)));
                    left += copies.relieve(now, connections.collect::<Vec<_>>()).len();
                }
                _ => {
                    let due = copies.handle_timeout(now, CHECKS);
                    left += due.requeue.len() + due.gone.len();
                    for waiting in due.check {
                        if rng.bool() {
                            copies.put(waiting)
                        } else {
                            left += 1
                        }
                    }
                    assert!(
                        copies.next_timeout().is_none_or(|next| next > now),
                        "{seed}"
                    );
                }
            }
            copies.check();
        }
        assert_eq!(added, left + copies.take_all().len(), "seed {seed}");
    }
}

impl<T: Held> WaitingCopies<T> {
    /// Checks the invariants.
    pub(super) fn check(&self) {
        let by_key: usize = self.by_key.values().map(BTreeSet::len).sum();
        assert_eq!(by_key, self.waiting.len());
        assert_eq!(
            self.by_connection.values().sum::<usize>(),
            self.waiting.len()
        );
        for (connection, count) in &self.by_connection {
            let copies = self.waiting.values();
            let copies = copies.filter(|waiting| waiting.copy.connection() == *connection);
            assert_eq!(copies.count(), *count);
        }
        for (key, numbers) in &self.by_key {
            assert!(!numbers.is_empty());
            for number in numbers {
                assert_eq!(self.waiting[number].key, *key);
            }
        }
    }
}
