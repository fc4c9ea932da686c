use super::*;

fn percentiles(p99_us: f64) -> Option<Percentiles> {
    Some(Percentiles {
        p99_us,
        ..Percentiles::default()
    })
}

#[test]
fn the_bottleneck_is_named() {
    let check = |observed: Observed, expected: Option<&str>| {
        let check = judge(&observed);
        match expected {
            None => assert_eq!((check.verdict, check.reasons.len()), (Verdict::Trusted, 0)),
            Some(reason) => {
                assert_eq!(check.verdict, Verdict::GeneratorLimited, "{observed:?}");
                assert!(check.reasons[0].contains(reason), "{:?}", check.reasons);
            }
        }
    };
    let calm = Observed {
        threads: vec![(60.0, 5.0)],
        lateness: percentiles(80.0),
        publish: percentiles(300.0),
        delivery: percentiles(400.0),
        sent_and_unsent: Some((1000, 0)),
        stolen_percent: Some(0.3),
        samples_late_ns: None,
        from_future: (0, 0),
    };
    let changed = |change: &dyn Fn(&mut Observed)| {
        let mut observed = calm.clone();
        change(&mut observed);
        observed
    };
    check(Observed::default(), None);
    check(calm.clone(), None);
    // Late, but the daemon's own latency is much larger.
    let slow = changed(&|of| {
        of.lateness = percentiles(5_000.0);
        of.publish = percentiles(60_000.0);
        of.delivery = percentiles(90_000.0);
    });
    check(slow, None);
    let late = changed(&|of| of.lateness = percentiles(5_000.0));
    check(late, Some("late (p99)"));
    let busy = changed(&|of| of.threads = vec![(50.0, 0.0), (99.0, 0.5)]);
    check(busy, Some("thread 1 used 99 %"));
    // Waiting for a core is worth a note, but was not the limit.
    let found = judge(&changed(&|of| of.threads = vec![(30.0, 30.0)]));
    assert_eq!((found.verdict, found.reasons.len()), (Verdict::Trusted, 1));
    // A host that took processor time is told of, too.
    let found = judge(&changed(&|of| of.stolen_percent = Some(3.21)));
    assert_eq!(found.verdict, Verdict::Trusted);
    let reason = "the host took 3.2 %";
    assert!(found.reasons[0].starts_with(reason), "{:?}", found.reasons);
    assert_eq!(found.stolen_percent, Some(3.21));
    let waiting = changed(&|of| of.threads = vec![(55.0, 44.0)]);
    check(waiting, Some("compete"));
    let sampled_late = changed(&|of| of.samples_late_ns = Some(700_000_000));
    check(sampled_late, Some("700 ms late, so it is left out"));
    // Unsent because the daemon took nothing more is not the generator's fault.
    let unsent = changed(&|of| of.sent_and_unsent = Some((500, 500)));
    check(unsent, None);
}

/// 32 threads that compete for two cores had 32 lines.
#[test]
fn threads_of_which_the_same_is_true_have_one_line() {
    let threads = (0..32).map(|thread| (3.0 + f64::from(thread % 2), 26.4));
    let reasons = |threads: Vec<(f64, f64)>| {
        let observed = Observed {
            threads,
            ..Observed::default()
        };
        judge(&observed).reasons
    };
    assert_eq!(
        reasons(threads.collect()),
        [
            "all 32 generator threads used 3 to 4 % of a core and waited 26 % of the time for one: \
          generator and daemon (or others) compete for this machine's cores"
        ]
    );
    let found = reasons(vec![(99.0, 0.0), (97.0, 1.0), (1.0, 0.0), (50.0, 49.0)]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("generator thread 3 used 50 %"),
        "{found:?}"
    );
    assert!(
        found[1].starts_with("2 of 4 generator threads used 97 to 99 %"),
        "{found:?}"
    );
}

/// The latencies of such a run were 0, and the verdict was good.
#[test]
fn messages_from_the_future_say_that_the_clocks_differ() {
    for threads in [vec![], vec![(99.0, 0.0)]] {
        let check = judge(&Observed {
            threads,
            from_future: (3, 2_500_000),
            ..Observed::default()
        });
        assert_eq!(check.verdict, Verdict::ClocksDiffer);
        let reason = "3 messages came up to 2.500 ms before they were to be sent: ";
        assert!(check.reasons[0].starts_with(reason), "{:?}", check.reasons);
    }
    // Clocks of one machine.
    let check = judge(&Observed {
        from_future: (3, 900_000),
        ..Observed::default()
    });
    assert_eq!(check.verdict, Verdict::Trusted);
}
