use program::log::capture;

use super::*;

fn destinations(mode: Mode, count: usize, every: usize) -> Destinations {
    let names: Vec<String> = (0..count).map(|n| format!("h{n}:1")).collect();
    Destinations::new(&names, mode, every, 1)
}

#[test]
fn round_robin_begins_with_the_second() {
    let mut all = destinations(Mode::RoundRobin, 3, 0);
    let places = (0..5).map(|_| {
        let pick = all.pool.pick(Duration::ZERO);
        let place = pick.index;
        all.pool.report(pick, None, Duration::ZERO);
        place
    });
    assert_eq!(places.collect::<Vec<_>>(), [1, 2, 0, 1, 2]);
}

#[test]
fn the_pool_leaves_failures_out() {
    for mode in [Mode::HostPool, Mode::EpsilonGreedy] {
        let mut all = destinations(mode, 2, 0);
        let mut counts = [0; 2];
        for _ in 0..100 {
            let pick = all.pool.pick(Duration::ZERO);
            counts[pick.index] += 1;
            let outcome = match pick.index {
                0 => None,
                _ => Some(Duration::from_millis(3)),
            };
            all.pool.report(pick, outcome, Duration::ZERO);
        }
        assert_eq!(counts, [1, 99], "{mode:?}");
    }
}

#[test]
fn a_ranking_without_a_pool_has_no_fail_over() {
    let mut all = destinations(Mode::RoundRobin, 2, 0);
    for _ in 0..2 {
        let pick = all.pool.pick_ranked(&[1, 0], Duration::ZERO);
        assert_eq!(pick.index, 1);
        all.pool.report(pick, None, Duration::ZERO);
    }
}

#[test]
fn one_destination_has_only_the_aggregate_line() {
    let time = Duration::from_millis(2);
    capture::start();
    let mut one = destinations(Mode::HostPool, 1, 1);
    for _ in 0..2 {
        one.time_one(0, time);
        one.time_all(time);
    }
    let [warning, line] = &capture::stop()[..] else {
        panic!("the aggregate alone has a line");
    };
    assert!(warning.starts_with("INFO: Warning: use more than 100 status values"));
    assert_eq!(
        line,
        "INFO: [aggregate]: finished 1 - 99th: 2.00ms - 95th: 2.00ms - avg: 2.00ms"
    );
}

#[test]
fn several_destinations_have_lines_of_their_own() {
    let time = Duration::from_millis(2);
    let mut two = destinations(Mode::HostPool, 2, 1);
    capture::start();
    for place in [1, 1, 0] {
        two.time_one(place, time);
    }
    let line = "INFO: [h1:1]: finished 1 - 99th: 2.00ms - 95th: 2.00ms - avg: 2.00ms";
    assert_eq!(capture::stop(), [line]);
}

#[test]
fn modes_have_names() {
    assert_eq!(Mode::parse("round-robin"), Some(Mode::RoundRobin));
    assert_eq!(Mode::parse("hostpool"), Some(Mode::HostPool));
    assert_eq!(Mode::parse("epsilon-greedy"), Some(Mode::EpsilonGreedy));
    assert_eq!(Mode::parse("bogus"), None);
    assert_eq!(Mode::parse(""), None);
}

const SECOND: Duration = Duration::from_secs(1);

fn in_turn(count: usize) -> HostPool {
    HostPool::new(count, Mode::HostPool, 1)
}

/// Picks and reports one request.
fn request(pool: &mut HostPool, now: Duration, succeeds: impl Fn(usize) -> bool) -> usize {
    let pick = pool.pick(now);
    let index = pick.index;
    let outcome = if succeeds(index) {
        Some(Duration::from_millis(1))
    } else {
        None
    };
    pool.report(pick, outcome, now);
    index
}

fn requests(
    pool: &mut HostPool,
    now: Duration,
    count: usize,
    succeeds: impl Fn(usize) -> bool,
) -> Vec<usize> {
    (0..count).map(|_| request(pool, now, &succeeds)).collect()
}

#[test]
fn destinations_take_turns_from_the_first() {
    let mut pool = in_turn(3);
    assert_eq!(
        requests(&mut pool, Duration::ZERO, 5, |_| true),
        [0, 1, 2, 0, 1]
    );
}

#[test]
fn a_dead_destination_is_left_out_for_30_seconds() {
    let mut pool = in_turn(2);
    let works = |index| index != 0;
    assert_eq!(requests(&mut pool, Duration::ZERO, 4, works), [0, 1, 1, 1]);
    assert_eq!(requests(&mut pool, 30 * SECOND, 2, works), [1, 1]);
    // The retry time has passed: one probe, and then none for 60 s.
    let probe = 30 * SECOND + Duration::from_nanos(1);
    assert_eq!(requests(&mut pool, probe, 3, works), [0, 1, 1]);
    assert_eq!(requests(&mut pool, probe + 60 * SECOND, 2, works), [1, 1]);
    assert_eq!(requests(&mut pool, 91 * SECOND, 2, works), [0, 1]);
}

#[test]
fn the_delay_doubles_up_to_900_seconds() {
    let mut pool = in_turn(2);
    let works = |index| index != 0;
    let mut probes = Vec::new();
    for second in 0..5000 {
        if requests(&mut pool, second * SECOND, 2, works).contains(&0) {
            probes.push(second);
        }
    }
    let gaps: Vec<u32> = probes.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // Each gap is one second longer than the delay, because requests come once a second and the
    // retry time must lie before the request.
    assert_eq!(gaps, [31, 61, 121, 241, 481, 901, 901, 901, 901]);
}

#[test]
fn a_success_makes_a_destination_alive() {
    let mut pool = in_turn(2);
    requests(&mut pool, Duration::ZERO, 2, |index| index != 0);
    let later = 31 * SECOND;
    assert_eq!(requests(&mut pool, later, 4, |_| true), [0, 1, 0, 1]);
    // The delay starts again at 30 s after a new failure.
    assert_eq!(requests(&mut pool, later, 2, |_| false), [0, 1]);
    assert_eq!(requests(&mut pool, later + 31 * SECOND, 1, |_| true), [0]);
}

#[test]
fn if_all_are_dead_the_first_gets_the_request_and_all_are_alive() {
    let mut pool = in_turn(3);
    let fails = |_| false;
    assert_eq!(requests(&mut pool, Duration::ZERO, 3, fails), [0, 1, 2]);
    // The next scan starts at the first destination, which was the choice already.
    assert_eq!(
        requests(&mut pool, Duration::ZERO, 5, fails),
        [0, 1, 2, 0, 1]
    );
}

#[test]
fn a_further_failure_of_a_dead_destination_changes_nothing() {
    let mut pool = in_turn(2);
    let first = pool.pick(Duration::ZERO);
    let second = pool.pick(Duration::ZERO);
    let third = pool.pick(Duration::ZERO);
    assert_eq!((first.index, third.index), (0, 0));
    pool.report(first, None, Duration::ZERO);
    pool.report(third, None, 20 * SECOND);
    pool.report(second, Some(SECOND), 20 * SECOND);
    // The retry time is still that of the first failure.
    assert_eq!(requests(&mut pool, 31 * SECOND, 2, |_| true), [1, 0]);
}

#[test]
fn a_late_success_makes_a_dead_destination_alive() {
    let mut pool = in_turn(1);
    let first = pool.pick(Duration::ZERO);
    let second = pool.pick(Duration::ZERO);
    pool.report(first, None, Duration::ZERO);
    pool.report(second, Some(SECOND), SECOND);
    assert!(pool.hosts[0].dead.is_none());
}

#[test]
fn a_ranking_falls_back_to_the_next_destination() {
    let mut pool = in_turn(3);
    let now = Duration::ZERO;
    let pick = pool.pick_ranked(&[2, 0, 1], now);
    assert_eq!(pick.index, 2);
    pool.report(pick, None, now);
    let pick = pool.pick_ranked(&[2, 0, 1], now);
    assert_eq!(pick.index, 0);
    pool.report(pick, None, now);
    let pick = pool.pick_ranked(&[2, 0, 1], now);
    assert_eq!(pick.index, 1);
    pool.report(pick, None, now);
    // All are dead, so the first choice gets the request.
    assert_eq!(pool.pick_ranked(&[2, 0, 1], now).index, 2);
    // A probe of the first choice after its retry time.
    let mut pool = in_turn(3);
    let pick = pool.pick_ranked(&[2, 0, 1], now);
    pool.report(pick, None, now);
    assert_eq!(pool.pick_ranked(&[2, 0, 1], 31 * SECOND).index, 2);
    assert_eq!(pool.pick_ranked(&[2, 0, 1], 31 * SECOND).index, 0);
}

#[test]
fn epsilon_greedy_prefers_fast_destinations() {
    for seed in 0..20 {
        let mut pool = HostPool::new(2, Mode::EpsilonGreedy, seed);
        let mut counts = [0_u32; 2];
        for step in 0..20_000_u32 {
            let now = Duration::from_millis(u64::from(step));
            let pick = pool.pick(now);
            counts[pick.index] += 1;
            let time = [Duration::from_millis(10), Duration::from_millis(90)][pick.index];
            pool.report(pick, Some(time), now);
        }
        // Weights 9:1, and few explorations in turn: close to 90 % for the fast destination.
        let share = f64::from(counts[0]) / 20_000.0;
        assert!((0.86..0.93).contains(&share), "seed {seed}: {share}");
    }
}

#[test]
fn exploration_falls_to_one_percent() {
    let mut pool = HostPool::new(2, Mode::EpsilonGreedy, 7);
    assert_eq!(pool.exploration, 0.30);
    for _ in 0..10_000 {
        request(&mut pool, Duration::ZERO, |_| true);
    }
    assert_eq!(pool.exploration, EXPLORATION_MIN);
}

#[test]
fn epsilon_greedy_takes_turns_without_response_times() {
    let mut pool = HostPool::new(3, Mode::EpsilonGreedy, 3);
    for expected in [0, 1, 2, 0, 1, 2] {
        let pick = pool.pick(Duration::ZERO);
        assert_eq!(pick.index, expected);
        // A time below a millisecond has no weight.
        pool.report(pick, Some(Duration::from_micros(900)), Duration::ZERO);
    }
}

#[test]
fn epsilon_greedy_leaves_dead_destinations_out() {
    let mut pool = HostPool::new(2, Mode::EpsilonGreedy, 5);
    let works = |index| index != 0;
    let picks = requests(&mut pool, Duration::ZERO, 1000, works);
    assert_eq!(picks.iter().filter(|index| **index == 0).count(), 1);
    let picks = requests(&mut pool, 31 * SECOND, 1000, works);
    assert_eq!(picks.iter().filter(|index| **index == 0).count(), 1);
}

#[test]
fn the_seed_decides_the_picks() {
    let picks = |seed| {
        let mut pool = HostPool::new(4, Mode::EpsilonGreedy, seed);
        requests(&mut pool, Duration::ZERO, 200, |_| true)
    };
    assert_eq!(picks(1), picks(1));
    assert_ne!(picks(1), picks(2));
}

fn check(times: &mut ResponseTimes, now: Duration, expected: f64) {
    let average = times.average(now);
    assert!(
        (average - expected).abs() < 1e-9,
        "{average}, not {expected}"
    );
}

#[test]
fn the_newest_bucket_has_the_whole_weight() {
    let mut times = ResponseTimes::default();
    check(&mut times, Duration::ZERO, 0.0);
    times.record(Duration::from_millis(10), Duration::ZERO);
    times.record(Duration::from_millis(20), Duration::ZERO);
    check(&mut times, Duration::ZERO, 15.0);
}

#[test]
fn an_empty_bucket_repeats_the_value_before_it() {
    let mut times = ResponseTimes::default();
    times.record(Duration::from_millis(12), Duration::ZERO);
    // The bucket is now the second newest, and the newest is empty: weights 119/120 and 120/120.
    check(&mut times, BUCKET_TIME, 12.0 * (119.0 + 120.0) / 120.0);
    times.record(Duration::from_millis(24), BUCKET_TIME);
    check(
        &mut times,
        BUCKET_TIME,
        (12.0 * 119.0 + 24.0 * 120.0) / 120.0,
    );
}

#[test]
fn times_are_forgotten_after_five_minutes() {
    let mut times = ResponseTimes::default();
    times.record(Duration::from_millis(12), Duration::ZERO);
    let last = BUCKET_TIME * 119;
    // All 120 buckets repeat the value of the oldest one: the sum of 1 to 120, by 120.
    check(&mut times, last, 12.0 * 60.5);
    check(&mut times, BUCKET_TIME * 120, 0.0);
    check(&mut times, BUCKET_TIME * 100_000, 0.0);
}

#[test]
fn times_below_a_millisecond_count_as_zero() {
    let mut times = ResponseTimes::default();
    times.record(Duration::from_micros(999), Duration::ZERO);
    check(&mut times, Duration::ZERO, 0.0);
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

#[test]
fn a_line_comes_with_the_first_duration_after_each_round() {
    let mut lines = TimingLines::new("[x]:", 3);
    let printed: Vec<bool> = (0..10).map(|_| lines.record(ms(1)).is_some()).collect();
    let expected = [
        false, false, false, true, false, false, true, false, false, true,
    ];
    assert_eq!(printed, expected);
}

#[test]
fn the_line_is_over_the_contents_of_the_ring() {
    let mut lines = TimingLines::new("[aggregate]:", 4);
    for milliseconds in [1000, 2, 3, 4] {
        assert_eq!(lines.record(ms(milliseconds)), None);
    }
    // The fifth duration replaces the first.
    assert_eq!(
        lines.record(ms(5)).expect("a line is due"),
        "[aggregate]: finished 4 - 99th: 5.00ms - 95th: 5.00ms - avg: 3.50ms"
    );
}

#[test]
fn percentiles_round_up() {
    let sorted: Vec<Duration> = (0..200).map(ms).collect();
    // ceil(198 + 0.5) and ceil(190 + 0.5).
    assert_eq!(percentile_ms(&sorted, 99.0), 199.0);
    assert_eq!(percentile_ms(&sorted, 95.0), 191.0);
    let sorted: Vec<Duration> = (0..1000).map(ms).collect();
    assert_eq!(percentile_ms(&sorted, 99.0), 991.0);
    assert_eq!(percentile_ms(&[ms(7)], 95.0), 7.0);
}

#[test]
fn a_ring_of_none_records_nothing() {
    let mut lines = TimingLines::new("[x]:", 0);
    assert!((0..1000).all(|_| lines.record(ms(1)).is_none()));
    assert_eq!(lines.warning(), None);
}

#[test]
fn a_small_ring_has_a_warning() {
    let warning = |every| TimingLines::new("[x]:", every).warning();
    assert_eq!(
        warning(50).as_deref(),
        Some(
            "Warning: use more than 100 status values for accurate percentiles (configured with 50)"
        )
    );
    assert!(warning(99).is_some());
    assert_eq!(warning(100), None);
}
