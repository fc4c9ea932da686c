//! `nsq-bench plan` as a program: its output, and its error when there is no profile to plan with.

use crate::fixtures;
use crate::support::{self, text};
use std::fs;
use std::path::Path;

use nsq_bench::result::{Ended, FindMaxResult, Outcome};
use nsq_bench::sink::Faults;

const DEMAND: &str =
    "--per-day 5e9 --size 400 --channels 3 --peak 4 --retention 12h --utilisation 0.6";

/// Runs `plan`; returns the exit code, standard output and standard error.
fn plan(profile: Option<&Path>, flags: &str) -> (Option<i32>, String, String) {
    let mut command = support::program(&["plan"]);
    command.args(flags.split_whitespace());
    if let Some(profile) = profile {
        command.arg("--profile").arg(profile);
    }
    text(&command.output().unwrap())
}

fn save(directory: &Path, outcome: Outcome) -> std::path::PathBuf {
    let path = directory.join("profile.json");
    let saved = fixtures::saved(&["nsq-bench", "find-max"], outcome);
    fs::write(&path, saved.to_json()).unwrap();
    path
}

#[test]
fn a_demand_becomes_a_plan() {
    let directory = tempfile::tempdir().unwrap();
    let profile = save(
        directory.path(),
        Outcome::FindMax(fixtures::find_max().into()),
    );

    let (code, printed, stderr) = plan(Some(&profile), DEMAND);
    assert_eq!(code, Some(0), "{stderr}");
    // 231,481/s / (212,000/s x 0.6) is 1.82; 2.25 TB / 0.8.
    for expected in [
        "= 1.82 nodes",
        "= 3 nodes",
        "2.81 TB",
        "231,481/s x (400 + 25 + 3 x 21 bytes)",
    ] {
        assert!(printed.contains(expected), "no `{expected}` in\n{printed}");
    }

    let (_, printed, _) = plan(Some(&profile), &format!("{DEMAND} --json"));
    let json: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(json["needs"]["nodes"], 3.0);
    assert_eq!(json["needs"]["backlog_messages"], 5e9);
    assert_eq!(json["sensitivities"][0]["input"], "per-day");
}

#[test]
fn without_a_profile_to_rely_on_it_says_what_to_measure() {
    let directory = tempfile::tempdir().unwrap();
    let check = |profile: Option<&Path>, expected: &str| {
        let (code, printed, said) = plan(profile, DEMAND);
        assert_eq!((code, printed.as_str()), (Some(1), ""));
        assert!(said.contains(expected), "no `{expected}` in\n{said}");
        let command = "nsq-bench find-max --slo 'p99<5ms,lost=0' --size 400 --channels 3 \
                       --out profile.json";
        assert!(said.contains(command), "{said}");
    };
    check(None, "--profile names none");
    let nowhere = Path::new("/nowhere/profile.json");
    check(
        Some(nowhere),
        "cannot read the profile /nowhere/profile.json",
    );
    let garbage = directory.path().join("garbage.json");
    fs::write(&garbage, "{}").unwrap();
    check(Some(&garbage), "is not a result of nsq-bench");
    let run = Outcome::Run(fixtures::run(fixtures::CALM).into());
    let run = save(directory.path(), run);
    check(Some(&run), "is the result of `nsq-bench run`");
    let check_found = |change: fn(&mut FindMaxResult), expected: &str| {
        let mut found = fixtures::find_max();
        change(&mut found);
        let path = save(directory.path(), Outcome::FindMax(found.into()));
        check(Some(&path), expected);
    };
    let no_rate = "no rate met the objective p99<5ms,lost=0";
    check_found(|found| found.profile = None, no_rate);
    let lost = "7 messages were lost and 0 corrupted";
    check_found(|found| found.held.as_mut().unwrap().ledger.lost = 7, lost);
    check_found(
        |found| found.held.as_mut().unwrap().ended = Ended::Interrupted,
        "its confirming run was interrupted",
    );
    check_found(
        |found| found.profile.as_mut().unwrap().messages_per_s = 0.0,
        "its messages_per_s is 0",
    );
}

/// One channel often costs so little that two runs do not tell its CPU time from that of publishing. Such a profile was
/// refused, with the advice to measure in the way that it was measured.
#[test]
fn a_cost_that_was_not_told_apart_is_planned_with_the_sum() {
    let directory = tempfile::tempdir().unwrap();
    for delivered in [None, Some(0.0)] {
        let mut found = fixtures::find_max();
        let profile = found.profile.as_mut().unwrap();
        profile.cpu_s_per_delivered = delivered;
        profile.reached_most = true;
        let profile = save(directory.path(), Outcome::FindMax(found.into()));
        let (code, printed, stderr) = plan(Some(&profile), DEMAND);
        assert_eq!(code, Some(0), "{stderr}");
        let said: String = printed.split_whitespace().collect::<Vec<_>>().join(" ");
        for expected in [
            "could not be told apart: `plan` uses their sum",
            "a delivery costs as much as a publish (the profile does not tell them apart)",
            "the search for the profile ended at its --most",
        ] {
            assert!(said.contains(expected), "no `{expected}` in\n{printed}");
        }
        assert!(!said.contains("cores not measured"), "{printed}");
    }
}

/// The way of the page with small numbers: the command that `plan` advises and those of the page lead to a plan.
#[test]
fn the_way_from_no_profile_to_a_plan_has_no_gap() {
    let directory = tempfile::tempdir().unwrap();
    let demand = "--per-day 5e9 --size 500";
    let (_, _, advice) = plan(None, demand);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let page = fs::read_to_string(docs.join("operate/capacity-planning.md")).unwrap();
    let page = page.replace("\\\n", " ");
    let command = |text: &str, name: &str| {
        let begin = format!("    nsq-bench {name} ");
        let line = text.lines().find(|line| line.starts_with(&begin));
        let line = line.unwrap_or_else(|| panic!("no `{begin}` in\n{text}"));
        let mut words = shlex::split(line).unwrap();
        words.remove(0);
        words
    };
    let planned = shlex::split(&format!("plan {demand}")).unwrap();
    let ways = [
        (command(&advice, "find-max"), planned),
        (command(&page, "find-max"), command(&page, "plan")),
    ];
    for (number, (search, mut plan)) in ways.into_iter().enumerate() {
        let profile = directory.path().join(format!("{number}.json"));
        let profile = profile.to_string_lossy().into_owned();
        let search = search.into_iter().map(|word| match word.as_str() {
            // A busy machine misses the objective of the page.
            "p99<5ms,lost=0" => "p99<60s,lost=0".to_owned(),
            "profile.json" => profile.clone(),
            _ => word,
        });
        measure(search.collect());
        match plan.iter_mut().find(|word| *word == "profile.json") {
            Some(word) => *word = profile,
            None => plan.extend(["--profile".to_owned(), profile]),
        }
        let mut command = support::program(&[]);
        let (code, printed, stderr) = text(&command.args(&plan).output().unwrap());
        assert_eq!(code, Some(0), "{plan:?}: {stderr}");
        assert!(printed.contains("to carry the peak"), "{printed}");
        assert!(printed.contains("ended at its --most"), "{printed}");
    }
}

/// Runs a search of small rates against a sink, until it has found a rate: an overloaded machine may miss all of them.
fn measure(search: Vec<String>) {
    let sink = support::echo(Faults::default());
    let address = sink.address.to_string();
    let small = "--start 200 --most 400 --via pub --warm-up 0s --precision 0.5";
    let mut said = String::new();
    for attempt in 1..=10 {
        // Messages on their way at the end of a step count as not carried. A longer step forgives more of them.
        let (step, hold) = (400 * attempt, 600 * attempt);
        let flags = format!("{small} --step {step}ms --duration {hold}ms");
        let mut command = support::program(&[]);
        command.args(&search).args(flags.split(' '));
        command.args(["--tcp-address", &address, "--http-address", &address]);
        let (code, stdout, stderr) = text(&command.output().unwrap());
        said = stdout + &stderr;
        if code == Some(0) && said.contains("no rate above --most") {
            drop(sink.stop());
            return;
        }
    }
    panic!("{said}");
}

#[test]
fn a_demand_that_makes_no_sense_is_refused() {
    let check = |flags: &str, expected: &str| {
        let (code, _, said) = plan(None, &format!("--per-day 5e9 --size 400 {flags}"));
        assert_eq!(code, Some(2), "{flags}");
        assert!(said.contains(expected), "{said}");
    };
    check("--peak 0.5", "never below the mean");
    check("--utilisation 1.5", "no share above 0 and up to 1");
    check("--retention 12", "no length of time");
    check("--replicas 0", "0 is not in 1");
    check("--node-disk-gb 0", "no positive number");
}

/// docs/explain/scaling.md shows commands, each with the answer part of its output.
#[test]
fn the_page_about_scaling_shows_what_the_program_prints() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let page = fs::read_to_string(docs.join("explain/scaling.md")).unwrap();
    let lines = page.lines();
    let commands = lines.filter_map(|line| line.strip_prefix("    nsq-bench plan "));
    let commands: Vec<&str> = commands.collect();
    assert_eq!(commands.len(), 2);
    for command in commands {
        let flags = command.replace("docs/", &format!("{}/", docs.display()));
        let (code, printed, stderr) = plan(None, &flags);
        assert_eq!(code, Some(0), "{stderr}");
        let answer = printed.split("\n\n").nth(1).unwrap();
        assert!(answer.starts_with("What it takes"), "{answer}");
        for line in answer.lines() {
            assert!(
                page.contains(line),
                "{command}: the page has no line `{line}`"
            );
        }
    }
}
