//! Sends the same bytes to the original nsqd and to ours. Each difference is either a bug of ours
//! or listed in docs/compatibility.md.
//!
//! Cases are text files (`differential/*.case`) with the sent bytes and the recorded answers of the
//! original. The test compares our answers with the recorded ones. If the original is available,
//!
//! ```text
//! NSQD_ORIGINAL=/path/to/nsqd cargo test -p engine --test differential
//! ```
//!
//! also checks the recorded answers, and with `RINGQ_RECORD=1` writes new ones. docs/testing.md
//! says how to choose and add cases.

#[path = "differential/auth_server.rs"]
mod auth_server;
#[path = "differential/case.rs"]
mod case;
#[path = "differential/differences.rs"]
mod differences;
#[path = "differential/normal.rs"]
mod normal;
#[path = "differential/play.rs"]
mod play;
#[path = "differential/report.rs"]
mod report;
#[path = "differential/sent_bytes.rs"]
mod sent_bytes;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use case::{Action, Case, CaseFile};
use differences::Known;
use play::{Addresses, is_vain, play};
use report::Report;
use support::Launch;

/// The directory of the cases.
const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/differential");
const SHARDS: usize = 2;
/// The number of cases that are played at the same time. Cases mostly wait.
const PLAYERS: usize = 8;

/// The answers to each step of a case. An error says why there are no answers.
type Answers = Result<Vec<Vec<String>>, String>;

#[test]
fn ours_answers_what_the_original_answered() {
    let files = read_cases(Path::new(CASES));
    let all: Vec<&Case> = files.iter().flat_map(|file| &file.cases).collect();
    check_names(&all);
    let cases = wanted(&all);
    let original = std::env::var_os("NSQD_ORIGINAL").map(PathBuf::from);
    let is_recording = std::env::var("RINGQ_RECORD").is_ok_and(|value| value == "1");
    let mut report = Report::default();
    match (&original, is_recording) {
        (None, false) => {}
        (None, true) => panic!("RINGQ_RECORD needs the original: set NSQD_ORIGINAL"),
        (Some(program), true) => return record(&files, &cases, program),
        (Some(program), false) => {
            let answers = play_all(&cases, Some(program));
            for case in &cases {
                report.original(case, &answers[&case.name]);
            }
        }
    }

    let answers = play_all(&cases, None);
    let known = Known::read(Path::new(CASES));
    known.check(&all);
    for case in &cases {
        report.ours(case, &answers[&case.name], &known);
    }
    println!("{} cases", cases.len());
    report.end();
}

/// Returns the cases that `RINGQ_CASE` names, or all without it.
fn wanted<'a>(all: &[&'a Case]) -> Vec<&'a Case> {
    let Ok(name) = std::env::var("RINGQ_CASE") else {
        return all.to_vec();
    };
    let cases = all.iter().copied();
    let cases: Vec<&Case> = cases
        .filter(|case| match name.strip_suffix('*') {
            Some(start) => case.name.starts_with(start),
            None => case.name == name,
        })
        .collect();
    assert!(!cases.is_empty(), "no case is named {name}");
    cases
}

/// Writes the answers of the original into the files.
fn record(files: &[CaseFile], cases: &[&Case], original: &Path) {
    let answers = play_all(cases, Some(original));
    check_recording(cases, &answers);
    for file in files {
        file.record(|case| answers.get(&case.name)?.clone().ok());
    }
    println!("recorded {} cases", cases.len());
}

fn read_cases(directory: &Path) -> Vec<CaseFile> {
    let entries = std::fs::read_dir(directory).expect("the cases are there");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a directory can be listed").path())
        .filter(|path| path.extension().is_some_and(|end| end == "case"))
        .collect();
    paths.sort();
    paths.iter().map(|path| CaseFile::read(path)).collect()
}

/// Checks the names of the cases. The name is also that of the case's topic. So it must be unique,
/// and valid with a suffix.
fn check_names(cases: &[&Case]) {
    let mut names = BTreeSet::new();
    for case in cases {
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        assert!(
            (1..=48).contains(&case.name.len()) && case.name.bytes().all(is_plain),
            "{}: a case is named by up to 48 of a-z, 0-9 and _",
            case.place
        );
        assert!(
            names.insert(&case.name),
            "{}: the name is taken",
            case.place
        );
    }
}

/// Fails if a recorded answer is missing. The cause is the machine or the case, because a case that
/// expects silence says so.
fn check_recording(cases: &[&Case], answers: &BTreeMap<String, Answers>) {
    for case in cases {
        let answers = match &answers[&case.name] {
            Ok(answers) => answers,
            Err(why) => panic!("{}: {why}", case.place),
        };
        for (step, answers) in case.steps.iter().zip(answers) {
            let is_silent = matches!(step.action, Action::Quiet(_));
            if let (false, Some(vain)) = (is_silent, answers.iter().find(|text| is_vain(text))) {
                panic!("{}: {}: not recorded: {vain}", case.place, step.text);
            }
        }
    }
}

/// Plays every case against `program`, or against our nsqd.
fn play_all(cases: &[&Case], program: Option<&Path>) -> BTreeMap<String, Answers> {
    let mut groups: BTreeMap<(&[String], &str), Vec<&Case>> = BTreeMap::new();
    for case in cases {
        let alone = if case.is_alone { &case.name } else { "" };
        groups.entry((&case.flags, alone)).or_default().push(case);
    }
    let auth = auth_server::serve();
    let mut all = BTreeMap::new();
    for ((flags, _), group) in groups {
        let flags: Vec<String> = flags
            .iter()
            .map(|flag| {
                let flag = flag.replace("{auth}", &auth.to_string());
                flag.replace("{cases}", CASES)
            })
            .collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let launch = Launch {
            program: program.map(Path::to_path_buf),
            ..Launch::new(SHARDS, &flags)
        };
        match launch.try_start() {
            Ok(broker) => {
                let addresses = Addresses {
                    tcp: broker.tcp_addr(),
                    http: broker.http_addr(),
                };
                all.extend(play_group(&group, addresses));
            }
            Err(exit) => all.extend(group.iter().map(|case| {
                let why = exit.stderr.lines().take(2).collect::<Vec<_>>().join(" / ");
                (case.name.clone(), Err(format!("no start: {why}")))
            })),
        }
    }
    all
}

fn play_group(cases: &[&Case], addresses: Addresses) -> Vec<(String, Answers)> {
    let next = AtomicUsize::new(0);
    let played = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..PLAYERS.min(cases.len()) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let answers = play(case, addresses);
                    let mut played = played.lock().expect("no player panics with the lock");
                    played.push((case.name.clone(), Ok(answers)));
                }
            });
        }
    });
    played.into_inner().expect("no player panics with the lock")
}
