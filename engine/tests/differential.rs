//! The same bytes to the original and to ours: what differs is a bug, or stands in
//! docs/compatibility.md.
//!
//! Cases are text files (`differential/*.case`): what is sent, and behind it what the original
//! answered. Ours is compared with that recording. With the original at hand
//!
//! ```text
//! NSQD_ORIGINAL=/path/to/nsqd cargo test -p engine --test differential
//! ```
//!
//! checks the recording, too, and with `RINGQ_RECORD=1` writes it anew. `RINGQ_CASE=name` plays one
//! case, `RINGQ_CASE='pub_*'` those whose names begin so. docs/testing.md says how to add one.

#[path = "differential/auth_server.rs"]
mod auth_server;
#[path = "differential/case.rs"]
mod case;
#[path = "differential/differences.rs"]
mod differences;
#[path = "differential/normal.rs"]
mod normal;
#[path = "differential/payload.rs"]
mod payload;
#[path = "differential/play.rs"]
mod play;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use auth_server::AuthServer;
use case::{Action, Case, CaseFile};
use differences::Difference;
use play::{Addresses, is_vain, play};
use support::Launch;

/// Where the cases are.
const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/differential");
const SHARDS: usize = 2;
/// Cases that are played at a time. They wait more than they work.
const PLAYERS: usize = 8;
/// Differences printed in full.
const PRINTED_MAX: usize = 500;

/// Answers per step of a case; the error says why there are none.
type Answers = Result<Vec<Vec<String>>, String>;

#[test]
fn ours_answers_what_the_original_answered() {
    let directory = Path::new(CASES);
    let files = read_cases(directory);
    let only = std::env::var("RINGQ_CASE").ok();
    let is_wanted = |case: &&Case| match only.as_deref() {
        None => true,
        Some(name) => match name.strip_suffix('*') {
            Some(start) => case.name.starts_with(start),
            None => case.name == name,
        },
    };
    let cases: Vec<&Case> = files.iter().flat_map(|file| &file.cases).collect();
    check_names(&cases);
    let cases: Vec<&Case> = cases.into_iter().filter(is_wanted).collect();
    assert!(!cases.is_empty(), "no case is named {only:?}");

    let original = std::env::var_os("NSQD_ORIGINAL").map(PathBuf::from);
    let is_recording = std::env::var("RINGQ_RECORD").is_ok_and(|value| value == "1");
    let mut report = String::new();
    match (&original, is_recording) {
        (None, false) => {}
        (None, true) => panic!("RINGQ_RECORD needs the original: set NSQD_ORIGINAL"),
        (Some(program), true) => {
            let answers = play_all(&cases, Some(program));
            check_recording(&cases, &answers);
            for file in &files {
                file.record(|case| answers.get(&case.name)?.clone().ok());
            }
            println!("recorded {} cases", cases.len());
            return;
        }
        (Some(program), false) => {
            let answers = play_all(&cases, Some(program));
            let found = cases.iter().filter_map(|case| {
                let differing = differing_steps(case, &answers[&case.name]);
                (!differing.is_empty()).then(|| describe(case, &differing))
            });
            add(
                &mut report,
                "the recording is not what the original answers now",
                found.collect(),
            );
        }
    }

    let answers = play_all(&cases, None);
    let accepted = differences::read(&directory.join("accepted.differences"));
    let pending = differences::read(&directory.join("pending.differences"));
    if only.is_none() {
        check_differences(&accepted, &pending, &cases);
    }
    let mut found = Vec::new();
    let mut gone = Vec::new();
    for case in &cases {
        let differing = differing_steps(case, &answers[&case.name]);
        if let Some(difference) = accepted.iter().find(|known| known.is_of(&case.name)) {
            if differing.is_empty() {
                let text = format!("{} no longer differs: {}", case.name, difference.place);
                gone.push(text);
            } else if !is_as_accepted(&differing, difference) {
                let place = &difference.place;
                let what = describe(case, &differing);
                found.push(format!("{what}    (not as accepted at {place})\n"));
            }
        } else if let Some(known) = pending.iter().find(|known| known.is_of(&case.name)) {
            let state = if differing.is_empty() {
                "no longer differs: take it out"
            } else {
                "differs"
            };
            println!("pending: {} {state} ({})", case.name, known.why);
        } else if !differing.is_empty() {
            found.push(describe(case, &differing));
        }
    }
    add(&mut report, "ours does not answer as the original", found);
    add(&mut report, "accepted, but the same now", gone);
    println!("{} cases", cases.len());
    assert!(report.is_empty(), "\n{report}");
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

/// A case's name is its topic's: unique, and valid with something behind it.
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

/// What is listed exists, has a reason, and is documented.
fn check_differences(accepted: &[Difference], pending: &[Difference], cases: &[&Case]) {
    let compatibility = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/compatibility.md");
    let documented = std::fs::read_to_string(compatibility).expect("the document is there");
    for difference in accepted.iter().chain(pending) {
        let place = &difference.place;
        assert!(!difference.why.is_empty(), "{place}: the reason is missing");
        let is_known = cases.iter().any(|case| difference.is_of(&case.name));
        assert!(is_known, "{place}: there is no case {}", difference.case);
    }
    for Difference { place, doc, .. } in accepted {
        assert!(
            !doc.is_empty() && documented.contains(doc),
            "{place}: docs/compatibility.md does not say {doc:?}"
        );
    }
}

/// An answer that was waited for in vain is the machine's fault or the case's: a case that expects
/// silence says so.
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

/// Plays every case: against the program, or against ours.
fn play_all(cases: &[&Case], program: Option<&Path>) -> BTreeMap<String, Answers> {
    let mut groups: BTreeMap<(&[String], &str), Vec<&Case>> = BTreeMap::new();
    for case in cases {
        let alone = if case.is_alone { &case.name } else { "" };
        groups.entry((&case.flags, alone)).or_default().push(case);
    }
    let auth = AuthServer::start();
    let mut all = BTreeMap::new();
    for ((flags, _), group) in groups {
        let flags: Vec<String> = flags
            .iter()
            .map(|flag| {
                let flag = flag.replace("{auth}", &auth.address.to_string());
                flag.replace("{cases}", CASES)
            })
            .collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let launch = Launch {
            standin: program.map(Path::to_path_buf),
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

/// One step of a case that was answered otherwise.
struct Differing<'a> {
    step: &'a str,
    expected: &'a [String],
    got: &'a [String],
}

fn differing_steps<'a>(case: &'a Case, answers: &'a Answers) -> Vec<Differing<'a>> {
    let answers = match answers {
        Ok(answers) => answers,
        Err(why) => {
            return vec![Differing {
                step: "start",
                expected: &[],
                got: std::slice::from_ref(why),
            }];
        }
    };
    let steps = case.steps.iter().zip(answers);
    steps
        .filter(|(step, got)| step.answers != **got)
        .map(|(step, got)| Differing {
            step: &step.text,
            expected: &step.answers,
            got,
        })
        .collect()
}

fn is_as_accepted(differing: &[Differing<'_>], accepted: &Difference) -> bool {
    differing.len() == accepted.steps.len()
        && differing
            .iter()
            .zip(&accepted.steps)
            .all(|(differing, (step, got))| differing.step == step && differing.got == got)
}

fn describe(case: &Case, differing: &[Differing<'_>]) -> String {
    let mut text = format!("case {} ({})\n", case.name, case.place);
    for Differing {
        step,
        expected,
        got,
    } in differing
    {
        let _ = writeln!(text, "    {step}");
        let lines = |answers: &[String]| match answers {
            [] => "no answer".to_owned(),
            answers => answers.join("\n"),
        };
        let (expected, got) = (lines(expected), lines(got));
        let equal = expected.bytes().zip(got.bytes());
        let equal = equal.take_while(|(one, other)| one == other).count();
        for (title, answers) in [("expected", &expected), ("got     ", &got)] {
            let _ = writeln!(text, "      {title} {}", around(answers, equal));
        }
    }
    let _ = writeln!(
        text,
        "    again: RINGQ_CASE={} cargo test -p engine --test differential",
        case.name
    );
    text
}

/// The text from shortly before `position` on; whole if it is short.
fn around(text: &str, position: usize) -> String {
    const BEFORE: usize = 80;
    const CHARS_MAX: usize = 600;
    let text = text.replace('\n', " / ");
    if text.chars().count() <= CHARS_MAX {
        return text;
    }
    let shown = text.chars().skip(position.saturating_sub(BEFORE));
    format!("... {} ...", shown.take(CHARS_MAX).collect::<String>())
}

fn add(report: &mut String, title: &str, found: Vec<String>) {
    if found.is_empty() {
        return;
    }
    let _ = writeln!(report, "{title}: {}\n", found.len());
    for text in found.iter().take(PRINTED_MAX) {
        let _ = writeln!(report, "{text}");
    }
    if found.len() > PRINTED_MAX {
        let _ = writeln!(report, "... and {} more\n", found.len() - PRINTED_MAX);
    }
}
