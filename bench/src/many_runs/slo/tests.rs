use super::*;
use crate::result::{Daemon, HistogramRecord, Ledger, LoopKind, SelfCheck, Totals};
use crate::scenario::Scenario;

fn run(p99_us: f64, lost: u64, acknowledged_per_s: f64) -> RunResult {
    let record = HistogramRecord {
        kind: HistogramKind::Delivery,
        count: 100,
        min_us: 1.0,
        mean_us: 10.0,
        p50_us: 10.0,
        p90_us: 20.0,
        p99_us,
        p999_us: p99_us * 2.0,
        p9999_us: p99_us * 3.0,
        max_us: p99_us * 4.0,
        hdr_base64: String::new(),
        hdr_log: None,
    };
    RunResult {
        daemon: Daemon::default(),
        scenario: Scenario::default(),
        loop_kind: LoopKind::Open,
        ended: Ended::Complete,
        totals: Totals {
            offered_per_s: Some(1000.0),
            acknowledged_per_s,
            delivered_per_s: acknowledged_per_s,
            ..Totals::default()
        },
        ledger: Ledger {
            lost,
            channels: 1,
            ..Ledger::default()
        },
        resources: None,
        self_check: SelfCheck::default(),
        histograms: vec![record],
        series: Vec::new(),
    }
}

#[test]
fn an_objective_is_met_or_says_what_was_missed() {
    let check = |slo: &str, run: &RunResult, missed: usize| {
        let slo: Slo = slo.parse().unwrap();
        assert_eq!(
            slo.missed(run).len(),
            missed,
            "{slo}: {:?}",
            slo.missed(run)
        );
    };
    let good = run(4000.0, 0, 1000.0);
    check("p99<5ms,lost=0", &good, 0);
    check("p99<4ms", &good, 1);
    check("p99<=4ms", &good, 0);
    check("p99.9<5ms,p50<10us", &good, 2);
    check("p95<5ms", &good, 0);
    check("publish-p99<5ms", &good, 1);
    check("p99<5ms,lost=0", &run(4000.0, 1, 1000.0), 1);
    // Neither acknowledged nor delivered at the rate.
    check("lost=0", &run(4000.0, 0, 900.0), 2);
    let headroom = "p99<5ms,lost=0".parse::<Slo>().unwrap().headroom(&good);
    assert!((headroom[0].left_share.unwrap() - 0.2).abs() < 1e-9);
    assert_eq!(headroom[1].left_share, None);
}

#[test]
fn what_is_no_objective_is_refused() {
    for text in [
        "", "p99", "p99<5", "p0<5ms", "p101<5ms", "late<5ms", "lost<x", "p99>5ms",
    ] {
        assert!(text.parse::<Slo>().is_err(), "{text}");
    }
}
