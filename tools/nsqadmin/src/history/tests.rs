use super::*;

fn point(depth: f32) -> Point {
    Point {
        depth,
        rate: depth / 10.0,
        oldest_seconds: depth / 2.0,
    }
}

fn topic() -> Key {
    Key::Topic("t".to_owned())
}

fn depths(history: &History, tier: usize, now: i64) -> (i64, Vec<f32>) {
    let (start, points) = history
        .points(&topic(), tier, now)
        .expect("there is a series");
    (start, points.iter().map(|point| point.depth).collect())
}

#[test]
fn each_tier_has_its_step() {
    let mut history = History::new(10);
    for second in 1_000..1_025 {
        #[allow(clippy::cast_precision_loss)]
        let depth = (second - 1_000) as f32;
        assert_eq!(history.add(second, [(topic(), point(depth))]), 0);
    }
    let (start, fine) = depths(&history, 0, 1_024);
    assert_eq!((start, fine.len(), fine[24]), (1_000, 25, 24.0));
    let (start, middle) = depths(&history, 1, 1_024);
    assert_eq!(
        (start, middle),
        (1_000, vec![9.0, 19.0, 24.0]),
        "the highest of each step"
    );
    let (_, points) = history.points(&topic(), 1, 1_024).unwrap();
    assert!(
        (points[0].rate - 0.45).abs() < 1e-5,
        "the mean: {:?}",
        points[0]
    );
    assert!((points[0].oldest_seconds - 4.5).abs() < 1e-5);
    assert_eq!(depths(&history, 2, 1_024).1.len(), 2);
    assert_eq!(
        history.points(&Key::Topic("nope".to_owned()), 0, 1_024),
        None
    );
    assert_eq!(history.points(&topic(), 3, 1_024), None);
}

#[test]
fn memory_is_bounded_and_gaps_are_kept() {
    let mut history = History::new(10);
    for second in 0..2_000 {
        history.add(second, [(topic(), point(1.0))]);
    }
    let (start, fine) = depths(&history, 0, 1_999);
    assert_eq!((start, fine.len()), (1_400, 600));
    history.add(2_003, [(topic(), point(2.0))]);
    let (start, fine) = depths(&history, 0, 2_003);
    assert_eq!((start, fine.len(), fine[599]), (1_404, 600, 2.0));
    assert!(
        fine[596..599].iter().all(|depth| depth.is_nan()),
        "{:?}",
        &fine[590..]
    );
    // A reader after a pause sees only what is recent.
    let (start, fine) = depths(&history, 0, 2_300);
    assert_eq!((start, fine.len()), (1_701, 303));
    assert_eq!(depths(&history, 0, 5_000).1, Vec::<f32>::new());
    history.add(50_000, [(topic(), point(3.0))]);
    assert_eq!(
        depths(&history, 0, 50_000),
        (50_000, vec![3.0]),
        "the old points are too old"
    );
}

#[test]
fn a_clock_that_goes_back_does_no_harm() {
    let mut history = History::new(10);
    history.add(1_000, [(topic(), point(1.0))]);
    history.add(995, [(topic(), point(9.0))]);
    assert_eq!(depths(&history, 0, 995), (1_000, vec![1.0]));
    history.add(10, [(topic(), point(2.0))]);
    assert_eq!(
        depths(&history, 0, 10),
        (10, vec![2.0]),
        "a clock that was set anew"
    );
    history.add(i64::MAX, [(topic(), point(2.0))]);
    history.add(i64::MIN, [(topic(), point(2.0))]);
}

#[test]
fn a_clock_that_has_moved_far_is_reported() {
    let week = 7 * 24 * 3_600;
    let saved = {
        let mut history = History::new(10);
        history.add(week, [(topic(), point(1.0))]);
        assert!(!history.take_loss(), "there was no past");
        history.to_bytes()
    };
    for (now, is_lost) in [
        (week + 1, false),
        (2 * week - 1, false),
        (2 * week, true),
        (week - 599, false),
        (week - 600, true),
        (0, true),
    ] {
        let mut history = History::from_bytes(&saved, 10).expect("the bytes are whole");
        history.add(now, [(topic(), point(1.0))]);
        assert_eq!(history.take_loss(), is_lost, "{now}");
        history.add(now + 1, [(topic(), point(1.0))]);
        assert!(!history.take_loss(), "{now}");
    }
}

#[test]
fn a_full_history_replaces_only_idle_series() {
    let mut history = History::new(2);
    let key = |name: &str| Key::Node(name.to_owned());
    history.add(0, [(key("a"), point(1.0)), (key("b"), point(1.0))]);
    assert_eq!(
        history.add(1, [(key("a"), point(1.0)), (key("c"), point(1.0))]),
        1
    );
    assert_eq!(
        history.add(600, [(key("a"), point(1.0)), (key("c"), point(1.0))]),
        0
    );
    assert_eq!(history.len(), 2, "b had no sample for ten minutes");
    assert_eq!(history.points(&key("b"), 0, 600), None);
}

/// After ten minutes without samples, every series is idle.
#[test]
fn a_full_history_keeps_its_series_over_a_pause() {
    let mut history = History::new(2);
    let key = |name: &str| Key::Node(name.to_owned());
    let all = |depth: f32| [Key::All, key("a"), key("b")].map(|key| (key, point(depth)));
    assert_eq!(history.add(0, all(1.0)), 0);
    assert_eq!(history.add(700, all(2.0)), 0);
    for key in [Key::All, key("a"), key("b")] {
        let (start, points) = history.points(&key, 2, 700).expect("the series is there");
        assert_eq!((start, points[0]), (0, point(1.0)), "{key:?}");
    }
    // Only as many idle series go as new ones come, the one that is idle for the longest time first.
    assert_eq!(history.add(800, [(key("a"), point(3.0))]), 0);
    assert_eq!(history.add(1_500, [(key("c"), point(3.0))]), 0);
    assert_eq!(history.points(&key("b"), 2, 1_500), None);
    for key in [Key::All, key("a")] {
        let (start, _) = history.points(&key, 2, 1_500).expect("the series is there");
        assert_eq!(start, 0, "{key:?}");
    }
}

/// A name of 65,535 bytes was cut off in the middle of a character, and the saved form was then taken for damaged.
#[test]
fn only_valid_names_have_a_past() {
    let long = "é".repeat(40_000);
    let invalid = [
        Key::Node(format!("a{long}:4151")),
        Key::Topic(format!("a{long}")),
        Key::Topic("two words".to_owned()),
        Key::Channel("t".to_owned(), long),
        Key::Channel("a/b".to_owned(), "c".to_owned()),
    ];
    let mut history = History::new(10);
    let samples = invalid.map(|key| (key, point(1.0)));
    let samples = samples.into_iter().chain([(topic(), point(2.0))]);
    assert_eq!(history.add(1, samples), 0, "room is not the reason");
    assert_eq!(history.len(), 1);
    let read = History::from_bytes(&history.to_bytes(), 10).expect("the bytes are whole");
    assert_eq!(read.points(&topic(), 0, 1), Some((1, vec![point(2.0)])));
}

#[test]
fn all_topics_together_always_have_room() {
    let node = |name: &str| (Key::Node(name.to_owned()), point(1.0));
    let mut history = History::new(1);
    assert_eq!(history.add(0, [node("a")]), 0);
    assert_eq!(history.add(1, [(Key::All, point(5.0)), node("b")]), 1);
    assert_eq!(history.len(), 1, "without the one of all topics together");
    let bytes = history.to_bytes();
    for series_max in [1, 1_000] {
        let read = History::from_bytes(&bytes, series_max).expect("the bytes are whole");
        assert_eq!(read.points(&Key::All, 0, 1), Some((1, vec![point(5.0)])));
        assert_eq!(read.len(), 1);
    }
    let mut nothing = History::new(0);
    assert_eq!(
        nothing.add(0, [(Key::All, point(5.0))]),
        1,
        "the past is off"
    );
}

/// A history of the first form: depth 1.5, 2.5 and a gap of the topic `t`, as nsqadmin saved it.
#[test]
fn the_first_form_is_read() {
    let mut bytes = b"nsqadmin history 1\n\x01\x01\0t\0\0".to_vec();
    for tier in TIERS {
        bytes.extend_from_slice(&(600 / tier.step).to_le_bytes());
        bytes.extend_from_slice(&3_u32.to_le_bytes());
        for depth in [1.5, 2.5, f32::NAN] {
            for value in [depth, depth / 10.0, depth / 2.0] {
                bytes.extend_from_slice(&value.to_le_bytes());
            }
        }
    }
    let history = History::from_bytes(&bytes, 10).expect("the bytes are whole");
    let (start, points) = depths(&history, 1, 600);
    assert_eq!((start, &points[..2]), (580, &[1.5, 2.5][..]));
    assert!(points[2].is_nan());
}

#[test]
fn a_saved_history_is_the_same_and_damage_is_an_error() {
    let mut history = History::new(10);
    let channel = Key::Channel("t".to_owned(), "c#ephemeral".to_owned());
    for second in 0..700 {
        let node = Key::Node("[::1]:4151".to_owned());
        history.add(
            second,
            [
                (topic(), point(1.5)),
                (channel.clone(), point(2.0)),
                (node, point(0.0)),
            ],
        );
    }
    let bytes = history.to_bytes();
    let mut read = History::from_bytes(&bytes, 10).expect("the bytes are whole");
    // The number of samples in the last point is not saved.
    let (before, after) = (
        history.points(&channel, 2, 700),
        read.points(&channel, 2, 700),
    );
    assert_eq!(before, after);
    assert_eq!(read.len(), 3);
    read.add(701, [(topic(), point(3.0))]);
    assert_eq!(History::from_bytes(&bytes, 2).map(|read| read.len()), Ok(2));
    assert!(History::from_bytes(b"", 10).is_err());
    for length in 20..bytes.len().min(400) {
        assert!(
            History::from_bytes(&bytes[..length], 10).is_err(),
            "{length}"
        );
    }
    let mut damaged = bytes.clone();
    damaged[19] = 9;
    assert!(History::from_bytes(&damaged, 10).is_err());
}
