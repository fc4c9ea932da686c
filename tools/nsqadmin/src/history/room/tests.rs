use super::*;

const WEEK: i64 = 7 * 24 * 3_600;

fn node(number: usize) -> Key {
    Key::Node(format!("n{number}:4151"))
}

/// Returns a sample that differs from all others in the same ring.
fn busy(second: i64) -> Point {
    let depth = second.unsigned_abs();
    Point {
        depth,
        rate: Some(0.0),
        oldest_ms: depth % 7,
    }
}

/// Adds a busy sample of each node in each step of a minute.
fn add_minutes(history: &mut History, nodes: usize, seconds: std::ops::Range<i64>) {
    for second in seconds.step_by(60) {
        let samples = (0..nodes).map(|number| (node(number), busy(second)));
        assert_eq!(history.add(second, samples), 0, "{second} s");
        assert!(history.bytes() <= history.bytes_max, "{second} s");
    }
}

fn depths(history: &History, key: &Key, tier: usize, now: i64) -> Option<(i64, usize)> {
    let (start, points) = history.points(key, tier, now)?;
    for (index, point) in points.iter().enumerate() {
        let second = start + TIERS[tier].step * i64::try_from(index).unwrap();
        let depth = point.map(|point| point.depth);
        let expected = busy(second).depth;
        assert!(
            depth.is_none_or(|depth| depth == expected),
            "{depth:?} at {second} s"
        );
    }
    Some((start, points.len()))
}

/// 1,000 series had a past, and the others had none.
#[test]
fn idle_series_take_little_of_the_default() {
    let idle = Point {
        rate: Some(0.0),
        ..Point::default()
    };
    let mut history = History::new(256 << 20);
    for second in (0..WEEK).step_by(10) {
        let samples = (0..10).map(|number| (node(number), idle));
        assert_eq!(history.add(second, samples), 0);
    }
    let per_series = history.bytes() / 10;
    assert!(per_series < 1_000, "{per_series} bytes");
    let (start, points) = history.points(&node(9), 2, WEEK - 10).unwrap();
    assert_eq!((start, points), (0, vec![Some(idle); 10_080]));
}

/// Names alone filled the room, and each series kept one point.
#[test]
fn more_names_than_fit_leave_a_past_to_the_others() {
    let mut history = History::new(200_000);
    let mut left_out = 0;
    for second in (0..4 * 3_600).step_by(10) {
        let nodes = (0..1_000).map(|number| (node(number), busy(second)));
        left_out = history.add(second, nodes.chain([(Key::All, busy(second))]));
        assert!(history.bytes() <= history.bytes_max, "{second} s");
    }
    assert!((500..1_000).contains(&left_out), "{left_out}");
    let now = 4 * 3_600 - 10;
    for key in [Key::All, node(0)] {
        let (_, tens) = depths(&history, &key, 1, now).unwrap();
        assert!(tens >= 30, "{tens} points of {key:?}");
    }
}

/// Room was made for all names, although they get a half of it at most. The past of those that were there was ten minutes then.
#[test]
fn names_that_find_no_room_take_no_past_from_the_others() {
    let mut history = History::new(200_000);
    add_minutes(&mut history, 10, 0..86_400);
    let flood = (0..10_000).map(|number| (node(number), busy(86_400)));
    assert!(history.add(86_400, flood) > 9_000);
    let room = history.room_seconds(86_400);
    assert!(room > 6 * 3_600, "{room}");
    depths(&history, &node(0), 2, 86_400).unwrap();
}

#[test]
fn all_series_lose_their_oldest_points_and_get_them_back_later() {
    let mut history = History::new(200_000);
    add_minutes(&mut history, 10, 0..WEEK);
    let now = WEEK - 60;
    let since = history.kept_since(now).expect("there is not room for all");
    let room = history.room_seconds(now);
    assert!((86_400..6 * 86_400).contains(&room), "{room}");
    assert_eq!(room, now - since);
    for number in 0..10 {
        let (start, minutes) = depths(&history, &node(number), 2, now).unwrap();
        // The points after the last shortening are there, too.
        assert!((since..since + 120).contains(&start), "{start} {since}");
        assert_eq!(start + 60 * i64::try_from(minutes).unwrap(), WEEK);
        let (_, tens) = depths(&history, &node(number), 1, now).unwrap();
        assert_eq!(tens, 2_160, "six hours of steps of ten seconds");
    }
    // A shortening is rare: it frees a sixteenth.
    let mut shortened = 0;
    let mut last = history.kept_since(now);
    for second in (WEEK..WEEK + 86_400).step_by(60) {
        add_minutes(&mut history, 10, second..second + 60);
        let since = history.kept_since(second);
        shortened += usize::from(since != last);
        last = since;
    }
    assert!((1..12).contains(&shortened), "{shortened}");
    // The others are idle now, and their points go with the time.
    add_minutes(&mut history, 1, WEEK + 86_400..3 * WEEK + 86_400);
    let now = 3 * WEEK + 86_340;
    assert_eq!((history.len(), history.kept_since(now)), (1, None));
    assert_eq!(history.room_seconds(now), WEEK);
    let (start, minutes) = depths(&history, &node(0), 2, now).unwrap();
    assert_eq!((start, minutes), (2 * WEEK + 86_400, 10_080));
}

/// Even ten minutes of all series take too much.
#[test]
fn a_full_history_takes_no_new_series_and_stays_in_its_bounds() {
    let series_bytes = node(0).series_bytes();
    let mut history = History::new(20 * series_bytes + 20_000);
    let samples = |count: usize, second: i64| {
        let nodes = (0..count).map(move |number| (node(number), busy(second)));
        std::iter::once((Key::All, busy(second))).chain(nodes)
    };
    for second in 0..3_000 {
        assert_eq!(history.add(second, samples(10, second)), 0, "{second} s");
        assert!(history.bytes() <= history.bytes_max, "{second} s");
    }
    let room = history.room_seconds(3_000);
    assert!((60..600).contains(&room), "{room}");
    assert!(!history.has_left_out);
    let left_out = history.add(3_000, samples(15, 3_000));
    assert_eq!((left_out, history.has_left_out), (5, true));
    for second in 3_001..3_600 {
        history.add(second, samples(15, second));
        assert!(history.bytes() <= history.bytes_max, "{second} s");
    }
    assert_eq!((history.len(), history.has_left_out), (10, true));
    // There is room again when others have gone.
    for second in 3_600..6_000 {
        history.add(second, samples(15, second).skip(13));
    }
    assert!(!history.has_left_out);
    assert!(depths(&history, &node(14), 0, 5_999).is_some());
}

#[test]
fn a_new_series_makes_the_past_of_the_others_shorter() {
    let mut history = History::new(200_000);
    add_minutes(&mut history, 10, 0..WEEK);
    let before = history.room_seconds(WEEK);
    let new = (0..100).map(|number| (node(1_000 + number), busy(WEEK)));
    assert_eq!(history.add(WEEK, new), 0);
    let after = history.room_seconds(WEEK);
    assert!((600..before).contains(&after), "{before} s, then {after} s");
    assert_eq!(history.len(), 110);
}

/// More new series than the history can hold get room as far as there is some.
#[test]
fn all_topics_together_always_have_room() {
    // Half of it is for names.
    let mut history = History::new(6 * node(0).series_bytes());
    let samples = (0..10).map(|number| (node(number), busy(0)));
    let samples = samples.chain([(Key::All, busy(0))]);
    assert_eq!(history.add(0, samples), 8);
    assert_eq!(history.len(), 2);
    assert!(depths(&history, &Key::All, 0, 0).is_some());
    let mut nothing = History::new(0);
    assert_eq!(nothing.add(0, [(Key::All, busy(0))]), 1, "the past is off");
}

/// After ten minutes without samples, every series is idle.
#[test]
fn a_full_history_keeps_its_series_over_a_pause() {
    let mut history = History::new(200_000);
    add_minutes(&mut history, 10, 0..WEEK);
    add_minutes(&mut history, 10, WEEK + 7_200..WEEK + 90_000);
    let now = WEEK + 89_940;
    for number in 0..10 {
        let (start, _) = depths(&history, &node(number), 2, now).unwrap();
        assert!(start < WEEK, "{start}");
    }
}

/// A clock that jumps must not keep what it leaves behind in memory, or take more than the limit.
#[test]
fn the_bound_holds_while_the_clock_jumps() {
    for (name, jump) in [
        ("back", -3 * 86_400),
        ("ahead", 3 * 86_400),
        ("far", -20 * WEEK),
    ] {
        let mut history = History::new(30_000);
        let mut now = 2 * WEEK;
        for round in 0..20_000 {
            now += if round % 700 == 699 { jump } else { 1 };
            let nodes = if round < 3_000 { 0..12 } else { 4..9 };
            history.add(now, nodes.map(|number| (node(number), busy(now))));
            assert!(
                history.bytes() <= history.bytes_max,
                "{name}, round {round}: {}",
                history.bytes()
            );
        }
        assert!(!history.has_left_out, "{name}");
        assert!(depths_exist(&history, 4..9, now), "{name}");
    }
}

fn depths_exist(history: &History, mut nodes: std::ops::Range<usize>, now: i64) -> bool {
    nodes.all(|number| {
        let found = history.points(&node(number), 0, now);
        found.is_some_and(|(_, points)| points.len() > 10)
    })
}

#[test]
fn a_smaller_limit_makes_a_saved_past_shorter() {
    let mut history = History::new(20 << 20);
    add_minutes(&mut history, 20, 0..WEEK);
    let saved = history.to_bytes();
    let read = |bytes_max| History::from_bytes(&saved, bytes_max).expect("the bytes are whole");
    let whole = read(20 << 20);
    assert_eq!(whole.room_seconds(WEEK), WEEK);
    let shorter = read(300_000);
    assert_eq!(shorter.len(), 20);
    let room = shorter.room_seconds(WEEK);
    assert!((86_400..WEEK).contains(&room), "{room}");
    assert!(shorter.bytes() <= 300_000);
    for number in 0..20 {
        let found = depths(&shorter, &node(number), 2, WEEK - 60).unwrap();
        assert_eq!(found, depths(&shorter, &node(0), 2, WEEK - 60).unwrap());
    }
    // A restart does not forget that points were dropped.
    let again = History::from_bytes(&shorter.to_bytes(), 300_000).expect("they are whole");
    assert_eq!(again.room_seconds(WEEK), room);
    let few = read(10 * node(0).series_bytes());
    assert!((1..10).contains(&few.len()), "{}", few.len());
    assert!(few.bytes() <= few.bytes_max);
    assert!(read(0).is_empty());
}
