use super::*;

fn saved(outcome: Outcome) -> SavedResult {
    SavedResult {
        schema: SCHEMA,
        tool: "nsq-bench 0.1.0".into(),
        command: vec!["nsq-bench".into(), "run".into()],
        started_unix_ms: 1,
        machine: Machine::default(),
        outcome,
    }
}

fn run() -> RunResult {
    RunResult {
        daemon: Daemon::default(),
        scenario: Scenario::default(),
        loop_kind: LoopKind::Open,
        ended: Ended::Failed {
            reason: "it died".into(),
        },
        totals: Totals::default(),
        ledger: Ledger::default(),
        resources: Some(Resources::default()),
        self_check: SelfCheck::default(),
        histograms: Vec::new(),
        series: vec![Interval::default()],
    }
}

#[test]
fn results_read_back_as_written() {
    let sweep = SweepResult {
        steps: vec![run()],
        knee_per_s: None,
    };
    for outcome in [Outcome::Run(Box::new(run())), Outcome::Sweep(sweep)] {
        let saved = saved(outcome);
        assert_eq!(SavedResult::from_json(&saved.to_json()), Ok(saved));
    }
}

#[test]
fn what_is_no_result_is_refused_in_words() {
    let check = |text: &str, expected: &str| {
        let error = SavedResult::from_json(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    };
    check("", "not a result");
    check("{}", "not a result");
    check(r#"{"schema": 99}"#, "layout 99");
    check(r#"{"schema": 1}"#, "damaged");
}
