use std::collections::VecDeque;

use super::*;

/// Room for everything that a test adds.
const ROOMY: usize = 100 << 20;

const WEEK: i64 = 7 * 24 * 3_600;

fn point(depth: u64) -> Point {
    #[allow(clippy::cast_precision_loss)]
    let rate = depth as f64 / 10.0;
    Point {
        depth,
        rate: Some(rate),
        oldest_ms: depth * 500,
    }
}

fn topic() -> Key {
    Key::Topic("t".to_owned())
}

fn node(name: &str) -> Key {
    Key::Node(name.to_owned())
}

fn depths_of(history: &History, key: &Key, tier: usize, now: i64) -> (i64, Vec<Option<u64>>) {
    let (start, points) = history.points(key, tier, now).expect("there is a series");
    let depths = points.iter().map(|point| point.map(|point| point.depth));
    (start, depths.collect())
}

fn depths(history: &History, tier: usize, now: i64) -> (i64, Vec<Option<u64>>) {
    depths_of(history, &topic(), tier, now)
}

#[test]
fn each_tier_has_its_step() {
    let mut history = History::new(ROOMY);
    for second in 1_000..1_025_u32 {
        let depth = u64::from(second) - 1_000;
        assert_eq!(history.add(second.into(), [(topic(), point(depth))]), 0);
    }
    let (start, fine) = depths(&history, 0, 1_024);
    assert_eq!((start, fine.len(), fine[24]), (1_000, 25, Some(24)));
    assert_eq!(
        depths(&history, 1, 1_024),
        (1_000, vec![Some(9), Some(19), Some(24)]),
        "the highest of each step"
    );
    let (_, points) = history.points(&topic(), 1, 1_024).unwrap();
    let first = points[0].expect("there are samples");
    assert!(
        (first.rate.unwrap() - 0.45).abs() < 1e-9,
        "the mean: {first:?}"
    );
    assert_eq!(first.oldest_ms, 4_500);
    assert_eq!(depths(&history, 2, 1_024).1.len(), 2);
    assert_eq!(
        history.points(&Key::Topic("nope".to_owned()), 0, 1_024),
        None
    );
    assert_eq!(history.points(&topic(), 3, 1_024), None);
}

/// Depths above 2^24 were rounded.
#[test]
fn depths_are_exact() {
    let mut history = History::new(ROOMY);
    let depths_given = [(1 << 24) + 1, (1 << 53) - 1, (1 << 53) + 1, u64::MAX];
    for (second, depth) in (0..).zip(depths_given) {
        let sample = Point {
            depth,
            ..Point::default()
        };
        history.add(second, [(topic(), sample)]);
    }
    assert_eq!(depths(&history, 0, 3), (0, depths_given.map(Some).to_vec()));
    let read = History::from_bytes(&history.to_bytes(), ROOMY).expect("the bytes are whole");
    assert_eq!(depths(&read, 0, 3), (0, depths_given.map(Some).to_vec()));
}

#[test]
fn a_ring_is_bounded_and_gaps_are_kept() {
    let mut history = History::new(ROOMY);
    for second in 0..2_000 {
        history.add(second, [(topic(), point(1))]);
    }
    let (start, fine) = depths(&history, 0, 1_999);
    assert_eq!((start, fine.len()), (1_400, 600));
    history.add(2_003, [(topic(), point(2))]);
    let (start, fine) = depths(&history, 0, 2_003);
    assert_eq!((start, fine.len(), fine[599]), (1_404, 600, Some(2)));
    assert_eq!(fine[595..599], [Some(1), None, None, None]);
    // A reader after a pause sees only what is recent.
    let (start, fine) = depths(&history, 0, 2_300);
    assert_eq!((start, fine.len()), (1_701, 303));
    assert_eq!(depths(&history, 0, 5_000).1, []);
    history.add(50_000, [(topic(), point(3))]);
    assert_eq!(
        depths(&history, 0, 50_000),
        (50_000, vec![Some(3)]),
        "the old points are too old"
    );
}

#[test]
fn a_clock_of_any_time_does_no_harm() {
    let mut history = History::new(ROOMY);
    for (second, depth) in [(1_000, 1), (10, 2), (i64::MAX, 3), (i64::MIN + 1_000, 4)] {
        history.add(second, [(topic(), point(depth))]);
        let (_, points) = depths(&history, 0, second);
        assert_eq!(points, [Some(depth)], "{second}");
    }
}

#[test]
fn a_step_back_of_ten_minutes_keeps_the_past_and_a_larger_one_begins_it_anew() {
    for (second, is_kept) in [(1_699, true), (1_100, true), (1_099, false)] {
        let mut history = History::new(ROOMY);
        history.add(1_690, [(topic(), point(5)), (node("n"), point(5))]);
        history.add(1_700, [(topic(), point(7))]);
        history.add(second, [(topic(), point(9))]);
        let (until, expected) = if is_kept {
            (1_700, (1_690, 11))
        } else {
            (second, (second, 1))
        };
        let (start, points) = depths(&history, 0, until);
        assert_eq!((start, points.len()), expected, "{second}");
        assert_eq!(points.last(), Some(&Some(9)), "{second}");
        let has_other = history.points(&node("n"), 0, until).is_some();
        assert_eq!(has_other, is_kept, "{second}");
    }
}

#[test]
fn a_step_ahead_leaves_a_gap() {
    let mut history = History::new(ROOMY);
    for second in 0..100 {
        history.add(second, [(topic(), point(1))]);
    }
    for second in 3_600..3_605 {
        history.add(second, [(topic(), point(2))]);
    }
    let (begin, points) = depths(&history, 1, 3_604);
    assert_eq!((begin, points.len(), points[10]), (0, 361, None));
}

/// A file of a wrong clock, whose series are all in the future.
#[test]
fn a_saved_past_of_the_future_goes_with_the_first_samples() {
    let mut history = History::new(ROOMY);
    history.add(WEEK, [(topic(), point(1)), (node("n"), point(1))]);
    let mut read = History::from_bytes(&history.to_bytes(), ROOMY).expect("the bytes are whole");
    read.add(1_000, [(topic(), point(2))]);
    assert_eq!(depths(&read, 2, 1_000), (960, vec![Some(2)]));
    assert_eq!(read.points(&node("n"), 2, 1_000), None);
}

/// A name of 65,535 bytes was cut off in the middle of a character, and the saved form was then taken for damaged.
#[test]
fn only_valid_names_have_a_past() {
    let long = "é".repeat(40_000);
    let invalid = [
        node(&format!("a{long}:4151")),
        Key::Topic(format!("a{long}")),
        Key::Topic("two words".to_owned()),
        Key::Channel("t".to_owned(), long),
        Key::Channel("a/b".to_owned(), "c".to_owned()),
    ];
    let mut history = History::new(ROOMY);
    let samples = invalid.map(|key| (key, point(1)));
    let samples = samples.into_iter().chain([(topic(), point(2))]);
    assert_eq!(history.add(1, samples), 0, "room is not the reason");
    assert_eq!(history.len(), 1);
    let read = History::from_bytes(&history.to_bytes(), ROOMY).expect("the bytes are whole");
    assert_eq!(depths(&read, 0, 1), (1, vec![Some(2)]));
}

/// A ring without runs: what [`History`] must show.
struct Plain {
    tier: Tier,
    last: i64,
    /// Each point has the number of its samples with a rate.
    points: VecDeque<Option<(Point, u32)>>,
}

impl Plain {
    fn new(tier: Tier) -> Plain {
        Plain {
            tier,
            last: 0,
            points: VecDeque::new(),
        }
    }

    fn add(&mut self, second: i64, sample: Point) {
        let slot = second.div_euclid(self.tier.step);
        let length = i64::try_from(self.tier.points).unwrap();
        let passed = slot - self.last;
        if passed == 0
            && let Some(Some((point, count))) = self.points.back_mut()
        {
            *count += u32::from(sample.rate.is_some());
            point.depth = point.depth.max(sample.depth);
            point.oldest_ms = point.oldest_ms.max(sample.oldest_ms);
            if let Some(rate) = sample.rate {
                let mean = point.rate.unwrap_or(0.0);
                point.rate = Some(mean + (rate - mean) / f64::from(*count));
            }
            return;
        }
        if passed > length {
            self.points.clear();
        } else if !self.points.is_empty() {
            self.points.extend((1..passed).map(|_| None));
        }
        let count = u32::from(sample.rate.is_some());
        self.points.push_back(Some((sample, count)));
        let excess = self.points.len().saturating_sub(self.tier.points);
        self.points.drain(..excess);
        self.last = slot;
    }
}

/// A generator of numbers by a seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }

    /// Returns a number of at most `bits` bits, which is often a small one.
    fn number(&mut self, bits: u64) -> u64 {
        let bits = self.below(bits);
        self.below(1 << bits)
    }
}

/// Adds random samples to a history and to plain rings: idle times, bursts, ages that grow, gaps and clocks that go back.
fn check_against_plain(seed: u64) {
    let random = &mut Random(seed);
    let mut history = History::new(ROOMY);
    let mut plain = TIERS.map(Plain::new);
    let mut now = 1_700_000_000_i64;
    let mut last = now;
    let mut sample = Point::default();
    for _ in 0..6_000 {
        now += match random.below(400) {
            0 => i64::try_from(random.below(2_000)).unwrap(),
            1 => -i64::try_from(random.below(1_200)).unwrap(),
            2 => i64::try_from(random.below(900_000)).unwrap() - 450_000,
            3..10 => 0,
            10..50 => 10,
            _ => 1,
        };
        match random.below(30) {
            0 => sample = Point::default(),
            1 => sample.depth = random.number(60),
            #[allow(clippy::cast_precision_loss)]
            2 => sample.rate = Some(random.number(30) as f64 / 1000.0),
            12 => sample.rate = None,
            3 => sample.oldest_ms = random.number(40),
            4..12 => sample.oldest_ms += 1000,
            _ => {}
        }
        history.add(now, [(topic(), sample)]);
        if now < last - STEP_BACK_MAX {
            plain = TIERS.map(Plain::new);
            last = now;
        }
        last = last.max(now);
        for ring in &mut plain {
            ring.add(last, sample);
        }
        if random.below(1_000) == 0 {
            let bytes = history.to_bytes();
            history = History::from_bytes(&bytes, ROOMY).expect("the bytes are whole");
            assert_eq!(history.to_bytes(), bytes, "seed {seed}");
            // The number of samples in the last point is not saved.
            let last = plain.each_mut().map(|ring| ring.points.back_mut());
            for (point, count) in last.into_iter().flatten().flatten() {
                *count = u32::from(point.rate.is_some());
            }
        }
    }
    let bytes = history.bytes();
    history.retain(|_| true);
    assert_eq!(history.bytes(), bytes, "seed {seed}: counted anew");
    for (tier, plain) in plain.iter().enumerate() {
        let newest = plain.last * plain.tier.step;
        let (start, points) = history.points(&topic(), tier, newest).unwrap();
        let held = i64::try_from(points.len()).unwrap();
        assert_eq!(start, (plain.last - held + 1) * plain.tier.step);
        assert_eq!(points.len(), plain.points.len(), "seed {seed}");
        for (shown, given) in points.iter().zip(&plain.points) {
            let (Some(shown), Some((given, _))) = (shown, given) else {
                assert!(shown.is_none() && given.is_none(), "seed {seed}");
                continue;
            };
            assert_eq!(shown.depth, given.depth, "seed {seed}");
            // A saved point has lost less than a thousandth.
            assert_eq!(shown.rate.is_some(), given.rate.is_some(), "seed {seed}");
            let difference = shown.rate.unwrap_or(0.0) - given.rate.unwrap_or(0.0);
            assert!(difference.abs() < 0.002, "seed {seed}");
            let most = given.oldest_ms / 100;
            let difference = shown.oldest_ms.abs_diff(given.oldest_ms);
            assert!(difference <= most, "seed {seed}: {shown:?} {given:?}");
        }
    }
}

#[test]
fn runs_show_what_plain_rings_show() {
    for seed in 0..30 {
        check_against_plain(seed);
    }
}
