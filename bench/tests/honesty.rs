//! The generator tells the truth: a stall of the daemon shows in the tail of the latencies, and
//! lost, duplicated and altered messages are counted exactly. The tests use real sockets and the
//! built-in sink.

use crate::support::{echo, options, scenario, target};
use nsq_bench::result::{Ended, HistogramKind, LoopKind};
use nsq_bench::run::{Options, run};
use nsq_bench::scenario::span::Span;
use nsq_bench::sink::Faults;

#[test]
fn a_stall_of_200_ms_a_second_is_seen_in_the_tail() {
    let faults = Faults {
        stall: Some((Span::from_millis(200), Span::from_secs(1))),
        ..Faults::default()
    };
    let sink = echo(faults);
    let scenario =
        scenario("rate = '1000'\nvia = 'pub'\nwarm-up = '0s'\nduration = '3s'\ndrain = '30s'");
    let finished = run(&target(&sink), &scenario, &options()).unwrap();
    let counts = sink.stop().unwrap();
    assert!(counts.stalls >= 2, "the sink did not stall: {counts:?}");
    let result = finished.result;
    assert_eq!(result.ended, Ended::Complete);
    assert_eq!(result.loop_kind, LoopKind::Open);
    for kind in [HistogramKind::Publish, HistogramKind::Delivery] {
        let record = result.histogram(kind).unwrap();
        assert_eq!(record.count, 3000, "{kind:?}");
        // The value is about 200 ms: no machine makes it less, and an overloaded one makes it more.
        let p999_ms = record.p999_us / 1000.0;
        assert!(p999_ms >= 190.0, "{kind:?}: p99.9 is {p999_ms} ms");
        // A fifth of all messages waited, half a stall on average: the mean shows the stall too.
        assert!(
            record.mean_us > 8_000.0,
            "{kind:?}: mean {} us",
            record.mean_us
        );
    }
    assert!(result.ledger.is_clean());
}

/// The time of a rate ended with the last message, although nothing was due before the end of the run.
#[test]
fn no_rate_is_more_than_was_offered() {
    for toml in [
        "rate = '100'\nduration = '2s'",
        "rate = '1'\nvia = 'pub'\nduration = '1500ms'",
        "rate = '100'\nmessages = 200\nduration = '20s'",
        "rate = '500'\nduration = '2300ms'\nchannels = 2",
    ] {
        let sink = echo(Faults::default());
        let scenario = scenario(&format!("{toml}\nwarm-up = '0s'"));
        let finished = run(&target(&sink), &scenario, &options()).unwrap();
        drop(sink.stop());
        let totals = finished.result.totals;
        let offered = totals.offered_per_s.unwrap() * 1.000_001;
        let delivered = totals.delivered_per_s / f64::from(scenario.channels);
        assert!(totals.acknowledged_per_s <= offered, "{toml}: {totals:?}");
        assert!(delivered <= offered, "{toml}: {totals:?}");
        assert!(totals.acknowledged > 0, "{toml}: {totals:?}");
    }
}

/// Each producer has a thread, which sleeps in its reads. The consumers have a thread of their own.
#[test]
fn blocking_clients_get_an_answer_to_each_command() {
    for (toml, messages) in [
        ("via = 'pub'\nproducers = 3\nmessages = 300", 300),
        ("via = 'mpub'\nbatch = 7\nproducers = 2\nmessages = 70", 70),
        ("via = 'http-pub'\nproducers = 2\nmessages = 20", 20),
    ] {
        let sink = echo(Faults::default());
        let scenario = scenario(&format!("{toml}\nclient = 'blocking'\nwarm-up = '0s'"));
        let finished = run(&target(&sink), &scenario, &options()).unwrap();
        drop(sink.stop());
        let result = finished.result;
        assert_eq!(result.ended, Ended::Complete, "{toml}");
        assert_eq!(result.totals.acknowledged, messages, "{toml}");
        assert!(result.ledger.is_clean(), "{toml}: {:?}", result.ledger);
    }
}

/// Runs against a sink with faults. The ledger must count exactly the sink's faults.
fn check_faults(toml: &str, threads: usize, channels: u64) {
    let faults = Faults {
        drop_one_in: Some(10_000),
        duplicate_one_in: Some(10_000),
        alter_one_in: Some(10_000),
        ..Faults::default()
    };
    let sink = echo(faults);
    let options = Options {
        threads,
        ..options()
    };
    let finished = run(&target(&sink), &scenario(toml), &options).unwrap();
    let counts = sink.stop().unwrap();
    let ledger = finished.result.ledger;
    assert_eq!(
        (counts.dropped, counts.duplicated, counts.altered),
        (10, 10, 10),
        "{toml}"
    );
    assert_eq!(counts.published, 100_000);
    assert_eq!((ledger.sent, ledger.acknowledged), (100_000, 100_000));
    assert_eq!(ledger.lost, 10 * channels, "{toml}: {ledger:?}");
    assert_eq!(ledger.duplicated, 10 * channels, "{toml}: {ledger:?}");
    assert_eq!(ledger.corrupted, 10 * channels, "{toml}: {ledger:?}");
    assert_eq!(ledger.received, (100_000 - 20) * channels);
    assert!(!ledger.is_clean());
    assert_eq!(finished.result.ended, Ended::NotDrained);
}

#[test]
fn faults_are_counted_exactly() {
    let base = "messages = 100000\nwarm-up = '0s'\nduration = '100s'\ndrain = '6s'\n";
    check_faults(&format!("{base}via = 'mpub'\nbatch = 50"), 1, 1);
    check_faults(
        &format!(
            "{base}via = 'mpub'\nproducers = 3\nconsumers = 2\nchannels = 2\nconsume = 'after-publish'"
        ),
        2,
        2,
    );
    check_faults(
        &format!("{base}via = 'http-mpub'\nsize = 'uniform:28-900'\ntopics = 3"),
        1,
        1,
    );
}

#[test]
fn without_faults_the_ledger_is_clean() {
    let check = |toml: &str, channels: u64| {
        let sink = echo(Faults::default());
        let scenario = scenario(&format!(
            "messages = 5000\nwarm-up = '0s'\nduration = '100s'\n{toml}"
        ));
        let finished = run(&target(&sink), &scenario, &options()).unwrap();
        let counts = sink.stop().unwrap();
        let result = finished.result;
        assert_eq!(result.ended, Ended::Complete, "{toml}");
        assert!(result.ledger.is_clean(), "{toml}: {:?}", result.ledger);
        assert_eq!(result.ledger.received, 5000 * channels, "{toml}");
        assert_eq!(counts.published, 5000, "{toml}");
        result
    };
    check("via = 'pub'", 1);
    check("via = 'dpub'\ntopics = 7\nproducers = 2", 1);
    check("via = 'http-pub'\nproducers = 4", 1);
    check(
        "via = 'mpub'\nbatch = 7\nchannels = 3\nconsumers = 2\nrate = '50k'\narrivals = 'poisson'",
        3,
    );
    check("size = 'list:28*5,300000*1'\nbatch = 3\nwindow = 9", 1);
    let started = std::time::Instant::now();
    let phases = check(
        "via = 'mpub'\nproducers = 2\nconsume = 'after-publish'\npause = '700ms'",
        1,
    );
    assert!(started.elapsed() > std::time::Duration::from_millis(700));
    assert!(
        phases.totals.delivered_per_s > 5000.0 / 0.7,
        "the pause counts for neither"
    );
    let given_back = check(
        "via = 'pub'\nrequeue = 0.2\ntouch = 0.2\nwork = 'exp:100us'\nrdy = 20",
        1,
    );
    assert!(given_back.totals.answers.requeued > 500 && given_back.totals.answers.touched > 300);
    assert_eq!(
        given_back.ledger.redelivered,
        given_back.totals.answers.requeued
    );
    let storms = check(
        "rate = '5k'\nconsumers = 4\nstorm-every = '100ms'\nstorm = 0.5\nwork = '5ms'\nrdy = 20",
        1,
    );
    assert!(storms.totals.answers.reconnected > 0);
    let readers = check(
        "rate = '5k'\nconsumers = 4\nslow = 0.25\nstalled = 0.5\nrdy = 5\nbatch = 5",
        1,
    );
    assert!(readers.ledger.received > 0);
}
