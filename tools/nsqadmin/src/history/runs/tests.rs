use super::*;

const SECOND: u64 = 1000;

fn point(depth: u64, rate: f64, oldest_ms: u64) -> Point {
    Point {
        depth,
        rate: Some(rate),
        oldest_ms,
    }
}

/// Returns runs of these points, which are one second apart.
fn runs_of(points: &[Option<Point>]) -> Runs {
    let mut runs = Runs::default();
    for point in points {
        runs.push(*point, SECOND);
    }
    runs
}

#[test]
fn numbers_are_kept_exactly() {
    for number in [0, 1, 127, 128, 1 << 53, (1 << 53) + 1, u64::MAX] {
        let one = Some(point(number, 0.0, number));
        let two = Some(point(number, 1.0, number));
        let runs = runs_of(&[one, two, None]);
        assert_eq!(runs.points(SECOND), [one, two, None]);
    }
    let rates = [0.001, 1234.567, 1e15];
    let points = rates.map(|rate| Some(point(1, rate, 0)));
    assert_eq!(runs_of(&points).points(SECOND), points);
    // No server has such a rate.
    for (rate, kept) in [(f64::NAN, 0.0), (-1.0, 0.0)] {
        let runs = runs_of(&[Some(point(1, rate, 0))]);
        assert_eq!(runs.points(SECOND), [Some(point(1, kept, 0))]);
    }
}

/// A rate of 0 stood for one that nobody knew.
#[test]
fn a_rate_that_is_not_known_stays_unknown() {
    let unknown = Some(Point {
        rate: None,
        ..point(5, 0.0, 7)
    });
    let points = [unknown, unknown, Some(point(5, 0.0, 7)), None, unknown];
    let runs = runs_of(&points);
    assert_eq!(runs.points(SECOND), points);
    let mut saved = Vec::new();
    runs.save(points[0].unwrap(), SECOND, &mut saved);
    let (restored, open) = Runs::restore(&saved, 10, SECOND).expect("the bytes are whole");
    assert_eq!(
        (restored.points(SECOND), Some(open)),
        (points.into(), unknown)
    );
    // The largest rate is no unknown one.
    let largest = runs_of(&[Some(point(1, f64::MAX, 0))]);
    assert!(largest.points(SECOND)[0].unwrap().rate.is_some());
}

#[test]
fn equal_neighbours_take_no_memory() {
    for same in [None, Some(point(7, 0.5, 0)), Some(point(u64::MAX, 1e9, 3))] {
        let runs = runs_of(&[same; 5_000]);
        assert_eq!((runs.len(), runs.heap_bytes()), (5_000, 0));
        assert_eq!(runs.points(SECOND), [same; 5_000]);
    }
}

/// The age of a channel from which nobody takes messages differs in each sample.
#[test]
fn an_age_that_grows_with_the_clock_takes_some_bytes() {
    let mut points = Vec::new();
    for second in 0..10_000_u64 {
        let jitter = second * 7919 % 40;
        points.push(Some(point(3, 0.0, 20_000 + second * SECOND + jitter)));
    }
    let runs = runs_of(&points);
    assert!(runs.heap_bytes() < 400, "{}", runs.heap_bytes());
    for (shown, given) in runs.points(SECOND).iter().zip(&points) {
        let (shown, given) = (shown.unwrap(), given.unwrap());
        assert!(shown.oldest_ms.abs_diff(given.oldest_ms) <= given.oldest_ms / 100);
        assert_eq!((shown.depth, shown.rate), (3, Some(0.0)));
    }
    // A young age is exact, and so is one that does not grow.
    let points =
        [5, 1_100, 1_900, 3_100, 50, 60_000, 60_000, 3_600_000].map(|age| Some(point(1, 0.0, age)));
    assert_eq!(runs_of(&points).points(SECOND), points);
}

#[test]
fn the_oldest_points_can_be_dropped_at_any_place() {
    let mut points = Vec::new();
    for (count, point) in [
        (3, Some(point(1, 0.0, 0))),
        (4, None),
        (1, Some(point(2, 0.0, 0))),
        (1, Some(point(3, 0.0, 0))),
        (5, Some(point(4, 9.0, 7))),
    ] {
        points.extend(std::iter::repeat_n(point, count));
    }
    for age in 0..4_u64 {
        points.push(Some(point(9, 0.0, 60_000 + age * SECOND)));
    }
    for first in 0..=points.len() {
        for second in 0..=points.len() - first + 1 {
            let mut runs = runs_of(&points);
            runs.drop_first(first, SECOND);
            runs.drop_first(second, SECOND);
            let left = &points[(first + second).min(points.len())..];
            assert_eq!(runs.points(SECOND), left, "{first} and {second}");
            runs.push(points[0], SECOND);
            assert_eq!(runs.len(), left.len() + 1);
            assert_eq!(runs.points(SECOND).last(), Some(&points[0]));
        }
    }
}

#[test]
fn memory_comes_back_when_points_are_dropped() {
    let points: Vec<_> = (0..10_000)
        .map(|depth| Some(point(depth, 1.0, 0)))
        .collect();
    let mut runs = runs_of(&points);
    let full = runs.heap_bytes();
    assert!((50_000..90_000).contains(&full), "{full}");
    for _ in 0..9_000 {
        runs.drop_first(1, SECOND);
    }
    assert!(runs.heap_bytes() < full / 4, "{}", runs.heap_bytes());
    assert_eq!(runs.points(SECOND), points[9_000..]);
    runs.drop_first(usize::MAX, SECOND);
    assert_eq!((runs.len(), runs.points(SECOND).len()), (0, 0));
    assert!(runs.heap_bytes() <= SHRINKABLE_BYTES);
}

/// The reader of a saved form must not take more memory than the form has bytes, or more points than a ring.
#[test]
fn bytes_of_anything_else_are_no_runs() {
    let open = point(5, 0.0, 0);
    let mut saved = Vec::new();
    runs_of(&[Some(point(300, 2.0, 9)); 10]).save(open, SECOND, &mut saved);
    let (runs, read) = Runs::restore(&saved, 11, SECOND).expect("they are whole");
    assert_eq!((runs.len(), read), (10, open));
    assert!(Runs::restore(&saved, 10, SECOND).is_none(), "too many");
    for length in 0..saved.len() {
        let cut = &saved[..length];
        // The first run alone is that of an open point only if it has one point.
        assert!(Runs::restore(cut, 11, SECOND).is_none(), "{length}");
    }
    let last = [1 << 2 | 1, 5, 0, 0];
    let with = |head: &[u8]| Runs::restore(&[head, &last].concat(), 10_000, SECOND);
    assert!(with(&[]).is_some());
    assert!(with(&[4 << 2]).is_some(), "a gap of four");
    for head in [
        &[0_u8][..],                                                   // a gap of none
        &[1],                                                          // a run of no points
        &[1 << 2 | 3, 0, 0, 0],                                        // an unknown kind
        &[0x80; 10],                                                   // a number without an end
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],    // 65 bits
        &[0xfc, 0xff, 0xff, 0xff, 0x3f],                               // 2^32 - 1 points
        &[0xfc, 0xff, 0xff, 0xff, 0x7f],                               // 2^33 - 1 points
        &[0xfc, 0xff, 0xff, 0xff, 0x3f, 0xfc, 0xff, 0xff, 0xff, 0x3f], // the sum overflows
    ] {
        assert!(with(head).is_none(), "{head:?}");
    }
    assert!(Runs::restore(&[2 << 2 | 1, 5, 0, 0], 9, SECOND).is_none());
    assert!(Runs::restore(&[1 << 2], 9, SECOND).is_none(), "an open gap");
    // The largest numbers show as what they are.
    let most = [u64::MAX; 2].map(|number| Some(point(number, 0.0, number)));
    let mut saved = Vec::new();
    runs_of(&most).save(open, SECOND, &mut saved);
    saved[0] = saved[0] & !3 | Kind::Growing as u8;
    let (runs, _) = Runs::restore(&saved, 9, SECOND).expect("ages that grow");
    assert_eq!(runs.points(SECOND), most);
}
