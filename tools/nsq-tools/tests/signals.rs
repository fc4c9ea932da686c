//! Signals: each tool that consumes or publishes ends on SIGINT and SIGTERM with the exit code 0, also if the signal comes
//! twice, or while the disk hangs at the start. SIGHUP kills the tools that have no use for it, as it killed the
//! original's.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ChildStdin;

use crate::tool::{Tool, command, script};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use test_support::daemon::Daemon;
use test_support::{TIMEOUT, wait_until};

const SIGHUP: i32 = 1;

/// Returns all tools that run until a signal, each with its arguments for one nsqd. `output` is a directory.
fn programs(nsqd: &Daemon, output: &str) -> [(&'static str, String); 7] {
    let address = nsqd.tcp;
    [
        ("nsq_tail", "-topic=t -channel=c"),
        (
            "nsq_to_file",
            &format!("-topic=t -channel=c -output-dir={output}"),
        ),
        (
            "nsq_to_http",
            "-topic=t -channel=c -post=http://127.0.0.1:1/",
        ),
        (
            "nsq_to_nsq",
            &format!(
                "-topic=t -channel=c -destination-topic=u -destination-nsqd-tcp-address={address}"
            ),
        ),
        (
            "nsq_forget",
            "-topic=t -channel=c -field=f -http-address=127.0.0.1:0",
        ),
        ("nsq_pubsub", "-http-address=127.0.0.1:0"),
        ("to_nsq", "-topic=t"),
    ]
    .map(|(tool, args)| (tool, format!("-nsqd-tcp-address={address} {args}")))
}

/// Starts a tool, and waits until it has its connection or serves its clients.
/// Returns the standard input, which stays open as long as it is kept.
fn start(program: &str, args: &str, nsqd: &Daemon) -> (Tool, ChildStdin) {
    // Under nohup, SIGHUP is ignored, and children inherit this.
    let hangup = "exec env --default-signal=HUP \"$0\" \"$@\"";
    let mut tool = Tool::quiet(&mut script(hangup, program, args));
    let mut stdin = tool.stdin();
    if program == "to_nsq" {
        stdin.write_all(b"record\n").expect("the tool reads");
        let published = || {
            nsqd.get("/stats?format=json")
                .text()
                .contains("\"topic_name\":\"t\"")
        };
        assert!(wait_until(TIMEOUT, published), "{}", tool.log());
    } else if program == "nsq_pubsub" {
        tool.wait_for_http();
    } else {
        nsqd.wait_for_figure("t", "c", "client_count", 1);
    }
    (tool, stdin)
}

/// Runs `check` with each tool, each on an nsqd of its own.
fn with_each(check: impl Fn(&str, Tool)) {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let output = directory.path().display().to_string();
    for index in 0..7 {
        let nsqd = Daemon::nsqd(&[]);
        let (program, args) = &programs(&nsqd, &output)[index];
        let (tool, _stdin) = start(program, args, &nsqd);
        check(program, tool);
    }
}

#[test]
fn both_signals_end_each_tool_and_a_second_one_changes_nothing() {
    for signals in [["TERM", "TERM"], ["INT", "TERM"]] {
        with_each(|program, mut tool| {
            // Both may be there before the tool looks.
            signals.iter().for_each(|signal| tool.signal(signal));
            let status = tool.wait();
            assert_eq!(status.code(), Some(0), "{program}: {}", tool.log());
        });
    }
}

#[test]
fn a_hangup_kills_the_tools_that_have_no_use_for_it() {
    with_each(|program, mut tool| {
        // It closes its files.
        if program == "nsq_to_file" {
            return;
        }
        tool.signal("HUP");
        let status = tool.wait();
        assert_eq!(status.signal(), Some(SIGHUP), "{program}: {}", tool.log());
    });
}

/// A disk that hangs, in the place of the file: a pipe that stays open, and has nothing. Returns when it is being read.
fn hang(path: &Path) -> File {
    let mut writer = None;
    let opened = wait_until(TIMEOUT, || {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let mut open = OpenOptions::new();
        writer = open.write(true).custom_flags(flags).open(path).ok();
        writer.is_some()
    });
    assert!(opened, "nobody reads {}", path.display());
    writer.expect("it is open")
}

/// The tools took no signal while they read a file at their start.
#[test]
fn a_signal_ends_a_tool_whose_disk_hangs_at_the_start() {
    let nsqd = Daemon::nsqd(&[]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let filter = format!("--dedup-state={}", path.display());
    let counts = format!("--state-file={}", path.display());
    let check = |program: &str, args: &str| {
        let mut tool = Tool::of_command(&mut command(program, args));
        let _hanging = hang(&path);
        tool.stop();
    };
    for (program, args) in programs(&nsqd, directory.path().to_str().unwrap()) {
        if program != "to_nsq" {
            check(program, &format!("{args} --dedup=body {filter}"));
        }
        if program == "nsq_forget" {
            check(program, &format!("{args} {counts}"));
        }
    }
}
