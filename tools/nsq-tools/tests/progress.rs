//! The line with the progress, in a pseudo-terminal and without one.

use std::process::Command;

use crate::tool::pty::Pty;
use crate::tool::{Tool, command, script};
use test_support::daemon::{Daemon, send_signal};
use test_support::http_server::{Answer, HttpServer};

/// Starts an nsqd with three messages in the channel `t/c`.
fn nsqd() -> Daemon {
    Daemon::nsqd(&[]).with_messages("t", "c", &["a", "b", "c"])
}

/// Runs a tool in a terminal until the line has the text. Afterwards the log has its lines, and the line is gone.
fn check(command: &mut Command, texts: &[&str]) {
    let terminal = Pty::start(command);
    terminal.wait_for(texts);
    // The line is the last one, below the lines of the log.
    let text = terminal.text();
    let last = text
        .trim_end()
        .lines()
        .last()
        .expect("the screen has lines");
    assert!(last.contains(texts[0]), "{text}");
    send_signal(terminal.child.id(), "TERM");
    let (status, text) = terminal.wait();
    assert_eq!(status.code(), Some(0), "{text}");
    assert!(!text.contains("/s), "), "{text}");
    assert!(text.contains("stopping"), "{text}");
}

fn source(tool: &str, nsqd: &Daemon, args: &str) -> Command {
    let address = nsqd.tcp;
    command(
        tool,
        format!("-topic=t -channel=c -nsqd-tcp-address={address} {args}"),
    )
}

#[test]
fn nsq_to_file_shows_the_synced_messages() {
    let nsqd = nsqd();
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let args = format!(
        "-sync-interval=100ms -output-dir={}",
        directory.path().display()
    );
    let mut command = source("nsq_to_file", &nsqd, &args);
    check(
        &mut command,
        &["3 messages synced (", "INFO: [t/c] opening "],
    );
}

#[test]
fn nsq_to_http_shows_messages_and_failures() {
    let nsqd = nsqd();
    let server = HttpServer::start(|request, _| match request.text().as_str() {
        "b" => Answer::status(500),
        _ => Answer::status(200),
    });
    let options = "-consumer-opt=max_attempts,0 -consumer-opt=default_requeue_delay,1h";
    let args = format!("-post={} {options}", server.url("/"));
    let mut command = source("nsq_to_http", &nsqd, &args);
    check(&mut command, &["2 messages (", "0 in flight, 1 errors"]);
}

#[test]
fn nsq_to_nsq_shows_messages_and_failures() {
    let (source_nsqd, destination) = (nsqd(), Daemon::nsqd(&[]));
    let to = format!("-destination-nsqd-tcp-address={}", destination.tcp);
    let mut command = source("nsq_to_nsq", &source_nsqd, &to);
    check(&mut command, &["3 messages (", "0 in flight, 0 errors"]);
}

#[test]
fn to_nsq_shows_records_unless_somebody_types_them() {
    let nsqd = nsqd();
    let records = |stdin: &str| {
        // The shell's input is the terminal, and the tool's input is a pipe that stays open.
        let args = format!("-topic=u -nsqd-tcp-address={}", nsqd.tcp);
        script(&format!("{stdin} \"$0\" \"$@\""), "to_nsq", &args)
    };
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let end = directory.path().join("end");
    let stdin = format!(
        "(printf 'a\\nb\\nc\\n'; until [ -e '{}' ]; do sleep 0.1; done) |",
        end.display()
    );
    let terminal = Pty::start(&mut records(&stdin));
    terminal.wait_for(&["3 messages (", "0 in flight, 0 errors"]);
    std::fs::write(end, "").expect("the directory is writable");
    let (status, text) = terminal.wait();
    assert_eq!(status.code(), Some(0), "{text}");
    assert!(!text.contains("messages ("), "{text}");

    let mut terminal = Pty::start(&mut records("exec"));
    terminal.press("one\ntwo\n");
    nsqd.create_channel("u", "c");
    nsqd.wait_for_figure("u", "c", "depth", 5);
    // A line would come within a second.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(
        !terminal.text().contains("messages ("),
        "{}",
        terminal.text()
    );
    send_signal(terminal.child.id(), "TERM");
    assert_eq!(terminal.wait().0.code(), Some(0));
}

#[test]
fn nothing_is_shown_without_a_terminal() {
    let (source_nsqd, destination) = (nsqd(), Daemon::nsqd(&[]));
    let address = format!("-nsqd-tcp-address={}", source_nsqd.tcp);
    let to = format!("-destination-nsqd-tcp-address={}", destination.tcp);
    let args = format!("-topic=t -channel=c {address} {to}");
    let mut tool = Tool::start("nsq_to_nsq", &args);
    source_nsqd.wait_for_figure("t", "c", "depth", 0);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    tool.stop();
    let log = tool.log();
    assert!(!log.contains("in flight") && !log.contains('\x1b'), "{log}");
}
