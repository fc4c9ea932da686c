//! Replays what was recorded with the original nsq_to_file 1.3.0: the same messages, signals and
//! files of other programs must lead to the same files, the same log lines and the same exit codes.
//!
//! The lines `syncing N records to disk` are not recorded, because the original groups messages in another way
//! (docs/reference/differences-tools.md). The lines about the age of a file are left out, because their moment depends
//! on the time that a sync takes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::tool::{Tool, command, files};
use serde::Deserialize;
use test_support::daemon::Daemon;
use test_support::{TIMEOUT, wait_until};

const RECORDED: &str = include_str!("nsq_to_file/recorded.json");

#[derive(Deserialize)]
struct Recorded {
    name: String,
    flags: Vec<String>,
    steps: Vec<Step>,
    files: BTreeMap<String, String>,
    log: Vec<String>,
    codes: Vec<i32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    /// Publishes these messages.
    Publish(Vec<String>),
    /// Starts the tool.
    Start,
    /// Waits until this many messages are in flight and none waits.
    InFlight(i64),
    /// Writes a file: path and text.
    Write(String, String),
    Rename(String, String),
    /// Sends SIGHUP, and waits until no file is open.
    Hangup,
    /// Sends SIGTERM, and waits for the end.
    Stop,
}

/// Returns true if the process has a file below `directory` open.
fn has_open_file(pid: u32, directory: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs");
    let mut targets = open
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.any(|target| target.starts_with(directory))
}

/// Returns the tool's own lines, without prefix and time, and without those about syncs, a file's age and the client.
fn own_lines(log: &str) -> Vec<String> {
    let lines = log
        .lines()
        .filter_map(|line| line.strip_prefix("[nsq_to_file] "));
    // The time has 27 characters: `2026/11/21 09:12:50.018344 `.
    let lines = lines.filter_map(|line| line.get(27..));
    let is_own = |line: &&str| {
        line.contains(": [t/c] ")
            && !line.contains("] syncing ")
            && !line.ends_with(" since last open, rotating...")
    };
    lines.filter(is_own).map(str::to_owned).collect()
}

fn replay(recorded: &Recorded) {
    let name = &recorded.name;
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let directory = directory
        .path()
        .canonicalize()
        .expect("the directory is there");
    let path = |relative: &str| directory.join(relative);
    let args = format!("-topic=t -channel=c -nsqd-tcp-address={}", nsqd.tcp);
    let mut command = command("nsq_to_file", args);
    command.args(&recorded.flags).env("TZ", "UTC");
    // The recorded paths are relative.
    command.current_dir(&directory);
    let (mut tool, mut log, mut codes) = (None, Vec::new(), Vec::new());
    for step in &recorded.steps {
        let running = || tool.as_ref().expect("the tool runs");
        match step {
            Step::Publish(bodies) => {
                nsqd.publish("t", &bodies.iter().map(String::as_str).collect::<Vec<_>>());
            }
            Step::Start => tool = Some(Tool::quiet(&mut command)),
            Step::InFlight(count) => {
                nsqd.wait_for_figure("t", "c", "depth", 0);
                nsqd.wait_for_figure("t", "c", "in_flight_count", *count);
            }
            Step::Write(file, text) => fs::write(path(file), text).expect("it can be written"),
            Step::Rename(from, to) => fs::rename(path(from), path(to)).expect("it is there"),
            Step::Hangup => {
                running().signal("HUP");
                let pid = running().pid();
                let is_closed = || !has_open_file(pid, &directory);
                assert!(
                    wait_until(TIMEOUT, is_closed),
                    "{name}: {}",
                    running().log()
                );
            }
            Step::Stop => {
                let mut tool: Tool = tool.take().expect("the tool runs");
                tool.signal("TERM");
                codes.push(tool.wait().code().unwrap_or(-1));
                log.extend(own_lines(&tool.log()));
            }
        }
    }
    for path in files::paths(&directory) {
        assert!(files::read(&path).is_whole, "{}", path.display());
    }
    let files = files::texts(&directory);
    assert_eq!(files, recorded.files, "{name}: {log:#?}");
    assert_eq!(log, recorded.log, "{name}");
    assert_eq!(codes, recorded.codes, "{name}");
}

/// The case with a file in the work directory that no process writes. The original leaves the file there, and this tool
/// moves it to the output directory.
const TAKEN_UP: &str = "the name of a working file is taken";

#[test]
fn a_file_that_nobody_writes_moves_unlike_in_the_original() {
    let mut recorded: Vec<Recorded> = serde_json::from_str(RECORDED).expect("the file is JSON");
    let case = recorded
        .iter_mut()
        .find(|case| case.name == TAKEN_UP)
        .expect("the case is there");
    let [work, out] = ["work", "out"].map(|directory| format!("{directory}/t.h-000000.d.log.gz"));
    let text = case
        .files
        .remove(&work)
        .expect("the original left the file");
    case.files.insert(out.clone(), text);
    let line = case
        .log
        .iter()
        .position(|line| line.contains("working file already exists"))
        .expect("the original saw the file");
    case.log.splice(
        line..=line,
        [
            format!("INFO: [t/c] moved {work}, which an earlier run left, to {out}"),
            format!("WARNING: [t/c] output file already exists: {out}"),
        ],
    );
    replay(case);
}

#[test]
fn the_same_events_lead_to_the_same_files_as_in_the_original() {
    let recorded: Vec<Recorded> = serde_json::from_str(RECORDED).expect("the file is JSON");
    assert!(recorded.len() > 10);
    for recorded in recorded.iter().filter(|case| case.name != TAKEN_UP) {
        replay(recorded);
    }
}
