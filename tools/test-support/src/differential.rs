//! Differential tests: the same bytes go to an original and to ours. Each difference is either a bug
//! or listed in docs/reference/differences.md.
//!
//! Cases are text files (`*.case`) with the sent bytes and the recorded answers of the original. The
//! answers of ours are compared with the recording. If the original is available, the variable
//! [`Suite::original`] names its program:
//!
//! ```text
//! NSQD_ORIGINAL=/path/to/nsqd cargo test -p nsqd --test nsqd differential::
//! ```
//!
//! also checks the recording, and with `RINGQ_RECORD=1` writes a new one. `RINGQ_CASE=name` plays
//! one case, `RINGQ_CASE='pub_*'` the cases whose names have this beginning. docs/explain/testing.md says
//! how to add a case.

mod case;
mod differences;
mod play;
mod report;
mod sent_bytes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use case::{Action, Case, CaseFile};
use differences::Known;
use play::{is_vain, play};
use report::Report;

pub use play::{Addresses, Client, Frame, FrameKind, Words};
pub use sent_bytes::{Names, show};

/// The number of cases that are played at the same time. Cases mostly wait.
const PLAYERS: usize = 8;

/// The answers to each step of a case. An error says why there are no answers.
type Answers = Result<Vec<Vec<String>>, String>;

/// A daemon that runs until it is dropped.
pub trait Daemon {
    /// Returns the addresses of the daemon.
    fn addresses(&self) -> Addresses;
}

/// Starts a daemon with flags: ours, or the program at the path. The error is its standard error.
pub type Start<'a> = dyn Fn(&[String], Option<&Path>) -> Result<Box<dyn Daemon>, String> + 'a;

/// The cases of one program.
pub struct Suite<'a> {
    /// The package with the test, named in reports.
    pub package: &'static str,
    /// The directory of the cases, which `{cases}` in a flag stands for.
    pub cases: &'a str,
    /// The variable that names the original.
    pub original: &'a str,
    /// Replaces each value of an answer that differs from run to run.
    pub normal: fn(&str) -> String,
    /// Starts a daemon.
    pub start: &'a Start<'a>,
}

/// Plays all cases, with clients of type `C`.
///
/// # Panics
/// Ours answers otherwise than the original. The text describes each difference.
pub fn run<C: Client>(suite: &Suite<'_>) {
    let files = read_cases(Path::new(suite.cases));
    let all: Vec<&Case> = files.iter().flat_map(|file| &file.cases).collect();
    check_names(&all);
    let cases = wanted(&all);
    let original = std::env::var_os(suite.original).map(PathBuf::from);
    let is_recording = std::env::var("RINGQ_RECORD").is_ok_and(|value| value == "1");
    let mut report = Report::new(suite.package);
    match (&original, is_recording) {
        (None, false) => {}
        (None, true) => panic!("RINGQ_RECORD needs the original: set {}", suite.original),
        (Some(program), true) => return record::<C>(suite, &files, &cases, program),
        (Some(program), false) => {
            let answers = play_all::<C>(suite, &cases, Some(program));
            for case in &cases {
                report.original(case, &answers[&case.name]);
            }
        }
    }

    let answers = play_all::<C>(suite, &cases, None);
    let known = Known::read(Path::new(suite.cases));
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
fn record<C: Client>(suite: &Suite, files: &[CaseFile], cases: &[&Case], original: &Path) {
    let answers = play_all::<C>(suite, cases, Some(original));
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

/// Plays every case against `program`, or against ours.
fn play_all<C: Client>(
    suite: &Suite,
    cases: &[&Case],
    program: Option<&Path>,
) -> BTreeMap<String, Answers> {
    let mut groups: BTreeMap<(&[String], &str), Vec<&Case>> = BTreeMap::new();
    for case in cases {
        let alone = if case.is_alone { &case.name } else { "" };
        groups.entry((&case.flags, alone)).or_default().push(case);
    }
    let mut all = BTreeMap::new();
    for ((flags, _), group) in groups {
        let flags: Vec<String> = flags
            .iter()
            .map(|flag| flag.replace("{cases}", suite.cases))
            .collect();
        match (suite.start)(&flags, program) {
            Ok(daemon) => {
                all.extend(play_group::<C>(&group, daemon.addresses(), suite.normal));
            }
            Err(stderr) => all.extend(group.iter().map(|case| {
                let why = stderr.lines().take(2).collect::<Vec<_>>().join(" / ");
                (case.name.clone(), Err(format!("no start: {why}")))
            })),
        }
    }
    all
}

fn play_group<C: Client>(
    cases: &[&Case],
    addresses: Addresses,
    normal: fn(&str) -> String,
) -> Vec<(String, Answers)> {
    let next = AtomicUsize::new(0);
    let played = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..PLAYERS.min(cases.len()) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let answers = play::<C>(case, addresses, normal);
                    let mut played = played.lock();
                    played.push((case.name.clone(), Ok(answers)));
                }
            });
        }
    });
    played.into_inner()
}

/// Removes the key of `/info` that the originals do not have. docs/reference/differences.md lists it.
#[must_use]
pub fn without_ringq_version(text: &str) -> String {
    let added = format!(",\"ringq_version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    text.replace(&added, "")
}

/// Replaces the characters of the value behind each `marker` by `name`.
pub fn replace_behind(text: &str, marker: &str, name: &str, belongs: fn(char) -> bool) -> String {
    let mut parts = text.split(marker);
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        replaced.push_str(marker);
        let rest = part.trim_start_matches(belongs);
        if rest.len() < part.len() {
            replaced.push_str(name);
        }
        replaced.push_str(rest);
    }
    replaced
}
