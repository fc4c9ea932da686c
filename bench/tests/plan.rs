//! `nsq-bench plan` as a program: its output, and its error when there is no profile to plan with.

use crate::fixtures;
use crate::support;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use nsq_bench::result::{Ended, FindMaxResult, Outcome};
use nsq_bench::sink::Faults;

const DEMAND: [&str; 12] = [
    "--per-day",
    "5e9",
    "--size",
    "400",
    "--channels",
    "3",
    "--peak",
    "4",
    "--retention",
    "12h",
    "--utilisation",
    "0.6",
];

fn plan(profile: Option<&Path>, flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nsq-bench"));
    command.arg("plan").args(flags);
    if let Some(profile) = profile {
        command.arg("--profile").arg(profile);
    }
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn save(directory: &Path, outcome: Outcome) -> std::path::PathBuf {
    let path = directory.join("profile.json");
    fs::write(
        &path,
        fixtures::saved(&["nsq-bench", "find-max"], outcome).to_json(),
    )
    .unwrap();
    path
}

#[test]
fn a_demand_becomes_a_plan() {
    let directory = tempfile::tempdir().unwrap();
    let profile = save(
        directory.path(),
        Outcome::FindMax(fixtures::find_max().into()),
    );

    let output = plan(Some(&profile), &DEMAND);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    // 231,481/s / (212,000/s x 0.6) is 1.82; 2.25 TB / 0.8.
    for expected in [
        "= 1.82 nodes",
        "= 3 nodes",
        "2.81 TB",
        "231,481/s x (400 + 25 + 3 x 21 bytes)",
    ] {
        assert!(printed.contains(expected), "no `{expected}` in\n{printed}");
    }

    let mut flags = DEMAND.to_vec();
    flags.push("--json");
    let output = plan(Some(&profile), &flags);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["needs"]["nodes"], 3.0);
    assert_eq!(json["needs"]["backlog_messages"], 5e9);
    assert_eq!(json["sensitivities"][0]["input"], "per-day");
}

#[test]
fn without_a_profile_to_rely_on_it_says_what_to_measure() {
    let directory = tempfile::tempdir().unwrap();
    let check = |profile: Option<&Path>, expected: &str| {
        let output = plan(profile, &DEMAND);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(text(&output.stdout), "");
        let said = text(&output.stderr);
        assert!(said.contains(expected), "no `{expected}` in\n{said}");
        let command = "nsq-bench find-max --slo 'p99<5ms,lost=0' --size 400 --channels 3 \
                       --out profile.json";
        assert!(said.contains(command), "{said}");
    };
    let found = |change: fn(&mut FindMaxResult)| {
        let mut found = fixtures::find_max();
        change(&mut found);
        save(directory.path(), Outcome::FindMax(found.into()))
    };
    check(None, "--profile names none");
    check(
        Some(Path::new("/nowhere/profile.json")),
        "cannot read the profile /nowhere/profile.json",
    );
    let garbage = directory.path().join("garbage.json");
    fs::write(&garbage, "{}").unwrap();
    check(Some(&garbage), "is not a result of nsq-bench");
    let run = Outcome::Run(fixtures::run(fixtures::CALM).into());
    check(
        Some(&save(directory.path(), run)),
        "is the result of `nsq-bench run`",
    );
    check(
        Some(&found(|found| found.profile = None)),
        "no rate met the objective p99<5ms,lost=0",
    );
    check(
        Some(&found(|found| found.held.as_mut().unwrap().ledger.lost = 7)),
        "7 messages were lost and 0 corrupted",
    );
    check(
        Some(&found(|found| {
            found.held.as_mut().unwrap().ended = Ended::Interrupted
        })),
        "its confirming run was interrupted",
    );
    check(
        Some(&found(|found| {
            found.profile.as_mut().unwrap().messages_per_s = 0.0
        })),
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
        let output = plan(Some(&profile), &DEMAND);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let printed = text(&output.stdout);
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
    let demand = ["--per-day", "5e9", "--size", "500"];
    let advice = text(&plan(None, &demand).stderr);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let page = fs::read_to_string(docs.join("capacity-planning.md")).unwrap();
    let page = page.replace("\\\n", " ");
    let command = |text: &str, name: &str| {
        let begin = format!("    nsq-bench {name} ");
        let line = text.lines().find(|line| line.starts_with(&begin));
        let line = line.unwrap_or_else(|| panic!("no `{begin}` in\n{text}"));
        let mut words = shlex::split(line).unwrap();
        words.remove(0);
        words
    };
    let planned = demand.map(str::to_owned).to_vec();
    let planned = [vec!["plan".to_owned()], planned].concat();
    for (number, (search, mut plan)) in [
        (command(&advice, "find-max"), planned),
        (command(&page, "find-max"), command(&page, "plan")),
    ]
    .into_iter()
    .enumerate()
    {
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
        let output = Command::new(env!("CARGO_BIN_EXE_nsq-bench"))
            .args(&plan)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{plan:?}: {}",
            text(&output.stderr)
        );
        let printed = text(&output.stdout);
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
        let output = Command::new(env!("CARGO_BIN_EXE_nsq-bench"))
            .args(&search)
            .args(["--tcp-address", &address, "--http-address", &address])
            .args(small.split(' '))
            .args(["--step", &format!("{step}ms")])
            .args(["--duration", &format!("{hold}ms")])
            .output()
            .unwrap();
        said = text(&output.stdout) + &text(&output.stderr);
        if output.status.success() && said.contains("no rate above --most") {
            drop(sink.stop());
            return;
        }
    }
    panic!("{said}");
}

#[test]
fn a_demand_that_makes_no_sense_is_refused() {
    let check = |flags: [&str; 2], expected: &str| {
        let mut all = vec!["--per-day", "5e9", "--size", "400"];
        all.extend(flags);
        let output = plan(None, &all);
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        let said = text(&output.stderr);
        assert!(said.contains(expected), "{said}");
    };
    check(["--peak", "0.5"], "never below the mean");
    check(["--utilisation", "1.5"], "no share above 0 and up to 1");
    check(["--retention", "12"], "no length of time");
    check(["--replicas", "0"], "0 is not in 1");
    check(["--node-disk-gb", "0"], "no positive number");
}

/// docs/scaling.md shows commands, each with the answer part of its output.
#[test]
fn the_page_about_scaling_shows_what_the_program_prints() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let page = fs::read_to_string(docs.join("scaling.md")).unwrap();
    let commands: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("    nsq-bench plan "))
        .collect();
    assert_eq!(commands.len(), 3);
    for command in commands {
        let flags = command.replace("docs/", &format!("{}/", docs.display()));
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let output = plan(None, &flags);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let printed = text(&output.stdout);
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
