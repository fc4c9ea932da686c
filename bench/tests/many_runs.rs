//! `sweep`, `find-max` and `compare` on the command line, against sinks. No test depends on the
//! speed of the sinks.

use std::process::Command;

use crate::support::{echo, program, text};
use nsq_bench::result::{Ended, Outcome, SavedResult, SearchStep};
use nsq_bench::sink::Faults;

const PROGRAM: &str = env!("CARGO_BIN_EXE_nsq-bench");

/// Runs the program with the words of `line`. Returns the exit code, the saved result and the
/// output.
fn run(line: &str, out: &std::path::Path) -> (Option<i32>, Outcome, String) {
    let mut command = Command::new(PROGRAM);
    command.args(shlex::split(line).unwrap());
    let (code, stdout, stderr) = text(&command.arg("--out").arg(out).output().unwrap());
    let said = stdout + &stderr;
    let saved = std::fs::read_to_string(out).unwrap_or_else(|error| panic!("{error}: {said}"));
    (code, SavedResult::from_json(&saved).unwrap().outcome, said)
}

/// Repeats short runs until one has its figures, and returns the last one: a busy machine takes the samples of a short run
/// too late for a figure.
fn until_measured<T>(run: impl Fn() -> T, is_measured: impl Fn(&T) -> bool) -> T {
    let mut result = run();
    for _ in 0..4 {
        if is_measured(&result) {
            break;
        }
        result = run();
    }
    result
}

#[test]
fn a_sweep_runs_its_staircase() {
    let directory = tempfile::tempdir().unwrap();
    let sink = echo(Faults::default());
    let line = format!(
        "sweep --tcp-address {0} --http-address {0} --from 500 --to 2000 --steps 3 --via pub --warm-up 0s \
         --duration 300ms",
        sink.address
    );
    let (code, outcome, said) = run(&line, &directory.path().join("sweep.json"));
    drop(sink.stop());
    assert_eq!(code, Some(0), "{said}");
    let Outcome::Sweep(result) = outcome else {
        panic!("{said}");
    };
    let offered: Vec<f64> = result
        .steps
        .iter()
        .filter_map(|run| run.totals.offered_per_s)
        .collect();
    assert_eq!(
        offered.iter().map(|rate| rate.round()).collect::<Vec<_>>(),
        [500.0, 1000.0, 2000.0]
    );
    for run in &result.steps {
        assert_eq!(run.ended, Ended::Complete);
        assert!(run.ledger.is_clean() && run.ledger.sent > 0);
    }
}

#[test]
fn find_max_ends_with_a_rate_a_profile_and_its_steps() {
    let directory = tempfile::tempdir().unwrap();
    let sink = echo(Faults::default());
    // Any machine meets this objective. The search ends at --most.
    let line = format!(
        "find-max --tcp-address {0} --http-address {0} --slo p99<60s,lost=0 --start 400 --most 1600 \
         --via pub --warm-up 0s --duration 1s --step 1s --precision 0.5",
        sink.address
    );
    let has_cpu = |outcome: &Outcome| match outcome {
        Outcome::FindMax(result) => {
            (result.profile.as_ref()).is_none_or(|profile| profile.cpu_s_per_published.is_some())
        }
        _ => true,
    };
    let search = || run(&line, &directory.path().join("max.json"));
    let (code, outcome, said) = until_measured(search, |(_, outcome, _)| has_cpu(outcome));
    drop(sink.stop());
    let Outcome::FindMax(result) = outcome else {
        panic!("{said}");
    };
    assert!(!result.steps.is_empty());
    // An overloaded machine may not even reach this rate, and then the search finds none.
    if let Some(rate) = result.found_per_s {
        let profile = result.profile.unwrap();
        assert_eq!(profile.messages_per_s, rate);
        assert!(
            profile.cpu_s_per_published.is_some_and(|cpu| cpu > 0.0),
            "{said}"
        );
        assert!(result.held.is_some_and(|held| held.ledger.is_clean()));
        assert_eq!(result.headroom.len(), 2);
        // A search that tried all that it was to try has reached its goal.
        assert_eq!(result.reached_most, rate == 1600.0);
        assert_eq!(
            said.contains("no rate above --most"),
            rate == 1600.0,
            "{said}"
        );
        let expected = if result.generator_limited { 3 } else { 0 };
        assert_eq!(code, Some(expected), "{said}");
        assert!(!(result.reached_most && result.generator_limited), "{said}");
    } else {
        assert_eq!(code, Some(1), "{said}");
    }
}

#[test]
fn one_bad_step_does_not_end_the_ramp() {
    let directory = tempfile::tempdir().unwrap();
    // The sink loses a message in one step of several.
    let sink = echo(Faults {
        drop_one_in: Some(1_300),
        ..Faults::default()
    });
    let line = format!(
        "find-max --tcp-address {0} --http-address {0} --slo p99<60s,lost=0 --start 400 --most 1600 \
         --via pub --warm-up 0s --duration 400ms --step 400ms --precision 0.5",
        sink.address
    );
    let (_, outcome, said) = run(&line, &directory.path().join("max.json"));
    drop(sink.stop());
    let Outcome::FindMax(result) = outcome else {
        panic!("{said}");
    };
    let rates: Vec<f64> = result.steps.iter().map(|step| step.offered_per_s).collect();
    let is_searched = |step: &SearchStep| step.stage != "hold";
    let searched = result.steps.iter().take_while(|step| is_searched(step));
    let failed: Vec<usize> = searched
        .enumerate()
        .filter(|(_, step)| !step.passed)
        .map(|(index, _)| index)
        .collect();
    assert!(!failed.is_empty(), "{said}");
    for index in failed {
        let is_same = |other: Option<&f64>| other == Some(&rates[index]);
        let tries = [
            index.checked_sub(1).and_then(|index| rates.get(index)),
            rates.get(index + 1),
        ];
        assert!(tries.into_iter().any(is_same), "{said}");
    }
}

#[test]
fn a_comparison_takes_turns_and_judges() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("compare.json");
    let compare = |requirement: &str| {
        let good = format!("{PROGRAM} sink --mode echo --address {{tcp}}");
        let line = format!(
            "compare --a '{good}' --b '{good}' --name-a one --name-b two --rounds 2 --rate 1000 --via pub \
             --warm-up 0s --duration 300ms --require {requirement}"
        );
        let (code, outcome, said) = run(&line, &out);
        let Outcome::Compare(result) = outcome else {
            panic!("{said}");
        };
        (code, result, said)
    };
    let is_measured = |said: &str| !said.contains("could not be measured");
    let (code, result, said) = until_measured(
        || compare("rss_max_bytes>=0"),
        |(_, _, said)| is_measured(said),
    );
    assert_eq!(code, Some(0), "{said}");
    assert!(result.passed && result.failures.is_empty());
    assert_eq!(
        (result.a.runs.len(), result.b.runs.len(), result.rounds),
        (2, 2, 2)
    );
    let mut metrics = result.ratios.iter().map(|ratio| &ratio.metric[..]);
    assert!(metrics.any(|metric| metric == "rss_max_bytes"));
    assert!(said.contains("two / one"), "{said}");
    // No ratio of two runs is this small.
    let (code, result, said) = compare("rss_max_bytes<=0.0001");
    assert_eq!(code, Some(1), "{said}");
    assert!(!result.passed && said.contains("FAILED"));
}

#[test]
fn a_comparison_measures_publishing_and_delivering_apart() {
    let directory = tempfile::tempdir().unwrap();
    let sink = format!("{PROGRAM} sink --mode echo --address {{tcp}}");
    let metrics = |number: u32, flags: &str| {
        let out = directory.path().join(format!("{number}.json"));
        let line = format!(
            "compare --a '{sink}' --b '{sink}' --rounds 1 --messages 20000 --warm-up 0s --duration 60s --via mpub {flags}"
        );
        let (_, outcome, said) = run(&line, &out);
        let Outcome::Compare(result) = outcome else {
            panic!("{said}");
        };
        let metrics = result.b.metrics.into_iter();
        metrics.map(|metric| metric.name).collect::<Vec<String>>()
    };
    let halves = ["cpu_us_per_published", "cpu_us_per_delivered"].map(String::from);
    let are_there = |apart: &Vec<String>| halves.iter().all(|half| apart.contains(half));
    let measure = || metrics(1, "--consume after-publish --pause 200ms");
    let apart = until_measured(measure, are_there);
    assert!(are_there(&apart), "{apart:?}");
    let at_once = metrics(2, "");
    assert!(
        halves.iter().all(|half| !at_once.contains(half)),
        "{at_once:?}"
    );
}

#[test]
fn a_daemon_that_does_not_come_up_shows_its_log() {
    let compare = |command: &str| {
        let mut program = program(&["compare", "--a", command, "--b", "true {tcp}"]);
        text(&program.output().unwrap())
    };
    let (code, ..) = compare("sh -c 'echo cannot open {data}; exit 3'");
    assert_eq!(code, Some(2));
    let (code, said, _) = compare("sh -c 'echo no room at {tcp}; exit 3'");
    assert_eq!(code, Some(1));
    assert!(said.contains("no room at 127.0.0.1:"), "{said}");
}
