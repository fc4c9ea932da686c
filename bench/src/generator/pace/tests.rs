use super::*;

const SECOND: u64 = 1_000_000_000;

fn times(pace: Pace, seconds: u64) -> Vec<u64> {
    let mut pacer = Pacer::new(pace, SECOND, SECOND..SECOND + seconds * SECOND);
    let mut times = Vec::new();
    while let Some(at) = pacer.peek() {
        times.push(at - SECOND);
        pacer.advance();
    }
    assert!(times.is_sorted());
    times
}

fn pace(commands_per_s: f64) -> Pace {
    Pace {
        commands_per_s,
        arrivals: Arrivals::Even,
        offset: 0.0,
        curve: None,
        seed: 5,
    }
}

#[test]
fn even_times_do_not_drift() {
    let thirds = times(pace(3.0), 1000);
    assert_eq!(thirds.len(), 3000);
    assert_eq!(thirds[2997], 999 * SECOND);
    let offset = times(
        Pace {
            offset: 0.5,
            ..pace(10.0)
        },
        1,
    );
    assert_eq!(offset[..2], [SECOND / 20, 3 * SECOND / 20]);
    assert_eq!(offset.len(), 10);
}

#[test]
fn random_times_keep_the_rate() {
    let arrivals = Arrivals::Poisson;
    let times = times(
        Pace {
            arrivals,
            ..pace(1000.0)
        },
        20,
    );
    assert!((19_000..21_000).contains(&times.len()), "{}", times.len());
    let short = times
        .windows(2)
        .filter(|pair| pair[1] - pair[0] < SECOND / 1000);
    let share = short.count() as f64 / times.len() as f64;
    assert!((share - 0.632).abs() < 0.02, "{share}");
}

#[test]
fn a_day_has_its_mean_and_its_peak() {
    for peak in [1.0, 1.5, 2.0, 4.0, 10.0] {
        let curve = Curve::new(peak);
        let mean = (0..1000)
            .map(|n| curve.at(f64::from(n) / 1000.0))
            .sum::<f64>()
            / 1000.0;
        assert!((mean - 1.0).abs() < 0.01, "peak {peak}: mean {mean}");
        assert!(
            (curve.at(0.5) - peak).abs() < 0.01,
            "peak {peak}: {}",
            curve.at(0.5)
        );
        assert!(curve.at(0.0) <= 1.0);
    }
    let curve = Some(Curve::new(4.0));
    let times = times(
        Pace {
            curve,
            ..pace(1000.0)
        },
        20,
    );
    assert!((19_500..20_500).contains(&times.len()), "{}", times.len());
    let noon = times
        .iter()
        .filter(|at| (9 * SECOND..11 * SECOND).contains(*at));
    let noon = noon.count() as f64 / 2000.0;
    assert!((3.3..=4.0).contains(&noon), "{noon}");
}
