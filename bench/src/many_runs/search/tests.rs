use super::*;

/// Runs a search against a daemon that can do `limit`, and `held` when it is asked for longer.
fn check(start: f64, limit: f64, held: f64, expected: Option<(f64, f64)>) {
    let mut search = Search::new(start, 1e7, 0.05);
    let mut tries = 0;
    let mut found = None;
    while let Some((stage, rate)) = search.next() {
        tries += 1;
        assert!(tries < 60, "it does not end");
        let able = if stage == Stage::Hold { held } else { limit };
        search.tried(rate <= able);
        found = (stage == Stage::Hold && rate <= able).then_some(rate);
    }
    match (found, expected) {
        (Some(rate), Some((low, high))) => {
            assert!((low..=high).contains(&rate), "{start} {limit}: {rate}");
        }
        (found, expected) => assert_eq!(found, expected.map(|e| e.0)),
    }
}

#[test]
fn the_highest_rate_is_found_and_held() {
    check(1000.0, 123_456.0, 123_456.0, Some((117_000.0, 123_456.0)));
    check(1_000_000.0, 50_000.0, 50_000.0, Some((47_500.0, 50_000.0)));
    check(1000.0, 100_000.0, 90_000.0, Some((80_000.0, 90_000.0)));
    check(1000.0, 1e9, 1e9, Some((1e7, 1e7)));
    check(1000.0, 0.0, 0.0, None);
    check(1000.0, 100_000.0, 1000.0, None);
}
