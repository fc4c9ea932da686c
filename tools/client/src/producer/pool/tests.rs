use super::*;

fn address(number: usize) -> Address {
    Address::Tcp(format!("nsqd-{number}:4150"))
}

fn pool(spread: Spread, count: usize) -> Pool<usize> {
    let mut pool = Pool::new(spread);
    for number in 0..count {
        pool.add(&address(number), || number);
    }
    pool
}

fn picks(pool: &mut Pool<usize>, now: Instant, count: usize) -> Vec<usize> {
    (0..count).map(|_| pool.pick(now, &[]).unwrap()).collect()
}

#[test]
fn publishes_are_spread() {
    let now = Instant::now();
    assert_eq!(
        picks(&mut pool(Spread::RoundRobin, 3), now, 6),
        [0, 1, 2, 0, 1, 2]
    );
    assert_eq!(
        picks(&mut pool(Spread::FirstThatWorks, 3), now, 3),
        [0, 0, 0]
    );
}

#[test]
fn a_node_that_failed_is_avoided_for_longer_and_longer() {
    let mut now = Instant::now();
    for spread in [Spread::RoundRobin, Spread::FirstThatWorks] {
        let mut pool = pool(spread, 2);
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            let avoid = pool.failed(&address(0), now);
            assert!(avoid <= AVOID_MAX.mul_f64(1.25), "{avoid:?}");
            longest = longest.max(avoid);
            assert_eq!(picks(&mut pool, now, 3), [1, 1, 1]);
            // A second failure at the same time changes nothing.
            assert_eq!(pool.failed(&address(0), now), avoid);
            now += avoid;
            assert!(picks(&mut pool, now, 2).contains(&0));
        }
        assert!(longest >= AVOID_MAX.mul_f64(0.75), "{longest:?}");
        pool.succeeded(&address(0));
        assert!(pool.failed(&address(0), now) <= AVOID_MIN.mul_f64(1.25));
    }
}

#[test]
fn if_all_nodes_are_avoided_the_first_to_come_back_is_tried() {
    let now = Instant::now();
    let mut pool = pool(Spread::RoundRobin, 2);
    pool.failed(&address(0), now);
    pool.failed(&address(1), now + Duration::from_secs(10));
    assert_eq!(pool.pick(now + Duration::from_millis(1), &[]), Some(0));
    assert_eq!(pool.pick(now, &[address(0)]), Some(1));
    assert_eq!(pool.pick(now, &[address(0), address(1)]), None);
}

#[test]
fn nodes_come_and_go() {
    let now = Instant::now();
    let mut pool = pool(Spread::RoundRobin, 3);
    pool.add(&address(1), || panic!("the pool has it"));
    assert_eq!(pool.retain(|node| *node != 1), [1]);
    assert_eq!(pool.len(), 2);
    assert_eq!(picks(&mut pool, now, 3), [0, 2, 0]);
    assert_eq!(
        (pool.get(&address(1)), pool.get(&address(2))),
        (None, Some(2))
    );
}
