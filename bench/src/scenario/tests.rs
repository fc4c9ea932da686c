use std::time::Duration;

use super::*;
use crate::scenario::size::Sizes;
use crate::scenario::work::Work;

#[test]
fn a_patch_changes_what_it_states_and_nothing_else() {
    let text = "name = 'x'\nproducers = 3\nper-day = 8.64e6\nsize = 'uniform:100-200'\n\
                work = 'exp:1ms'\nconsume = 'after-publish'\nwarm-up = '0s'\n";
    let scenario = Patch::from_toml(text).unwrap().apply(Scenario::default());
    let expected = Scenario {
        name: "x".into(),
        producers: 3,
        rate: Rate::PerSecond(100.0),
        size: Sizes::Uniform(100, 200),
        work: Work::Exponential(Span::from_millis(1)),
        consume: Consume::AfterPublish,
        warm_up: Span::default(),
        ..Scenario::default()
    };
    assert_eq!(scenario, expected);
    assert_eq!(scenario.check(), Ok(()));
}

#[test]
fn what_a_scenario_lets_rest_is_known() {
    let check = |text: &str, expected_s: u64| {
        let scenario = Patch::from_toml(text).unwrap().apply(Scenario::default());
        let rest = scenario.rest_max(Some(Duration::from_secs(60)));
        assert_eq!(rest, Span::from_secs(expected_s), "{text}");
    };
    check("", 0);
    check("defer = '90s'", 0);
    check("via = 'dpub'\ndefer = '90s'", 90);
    check("requeue = 0.1\nrequeue-delay = '7s'", 7);
    check("time-out = 0.1", 60);
    check("time-out = 0.1\nmsg-timeout = '5s'", 5);
    check("storm-every = '1s'", 60);
    check("storm-every = '1s'\nstorm = 0.0", 0);
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let check = |text: &str, expected: &str| {
        let scenario = Patch::from_toml(text).map(|patch| patch.apply(Scenario::default()));
        let error = scenario.and_then(|scenario| scenario.check()).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    };
    check("produsers = 3", "produsers");
    check("size = '9'", "too few");
    check("requeue = 1.5", "share");
    check("requeue = 0.6\ntime-out = 0.6", "more than 1");
    check("batch = 0", "batch");
    check("producers = 0\nconsumers = 0", "nothing to run");
    check("producers = 100000", "producers");
    check("channels = 0", "channel");
    check("duration = '0s'", "duration");
    check("peak = 3.0", "rate");
    check("rate = '5'\npeak = 0.5", "peak");
    check("snappy = true\ndeflate = 6", "exclude each other");
    check("deflate = 10", "1 to 9");
    check("tls = true", "either tls-ca");
    check("tls = true\ntls-ca = 'a'\ntls-insecure = true", "either");
    check("tls-insecure = true", "need tls");
    check("tls-ca = 'a'", "need tls");
    check("tls = true\ntls-ca = 'a'\ntls-key = 'k'", "belong together");
    check("via = 'http-pub'\nsnappy = true", "HTTP");
    check("producers = 0\nconsume = 'after-publish'", "producers");
    check("pause = '1s'", "needs consume after-publish");
    check("client = 'blocking'\nrate = '5'", "leave the rate out");
    check(
        "client = 'blocking'\nproducers = 5000",
        "more threads than 256",
    );
}
