//! `to_nsq --number-messages` with an nsqd that goes away and comes back.

use std::io::Write;
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::tool::Tool;
use crate::tool::consumed::texts;
use test_support::daemon::Daemon;
use test_support::{TIMEOUT, wait_until};

/// Starts an nsqd that recognises numbered records of the topic `t`, and a tool with numbers.
fn start() -> (Daemon, Tool) {
    let nsqd = Daemon::nsqd(&["--dedup=t=publisher"]);
    nsqd.create_channel("t", "c");
    let address = format!("-nsqd-tcp-address={}", nsqd.tcp);
    let args = format!("-topic=t -number-messages {address}");
    let tool = Tool::start("to_nsq", &args);
    (nsqd, tool)
}

fn depth(nsqd: &Daemon) -> usize {
    let depth = nsqd.figure("t", "c", "depth");
    usize::try_from(depth).expect("a depth is not negative")
}

fn wait_for_depth(nsqd: &Daemon, tool: &Tool, at_least: usize) {
    let reached = wait_until(TIMEOUT, || depth(nsqd) >= at_least);
    assert!(reached, "depth {}\n{}", depth(nsqd), tool.log());
}

/// Checks the end of the tool after its input, and that nsqd has each of the records 0, 1, 2 ... once.
fn check_end(nsqd: &Daemon, mut tool: Tool, count: usize) {
    assert_eq!(tool.wait().code(), Some(0), "{}", tool.log());
    assert_eq!(depth(nsqd), count, "{}", tool.log());
    let mut found: Vec<usize> = texts(nsqd, "t", count)
        .iter()
        .map(|text| text.parse().expect("a record is a number"))
        .collect();
    found.sort_unstable();
    assert!(found.into_iter().eq(0..count));
}

/// A thread that writes 0, 1, 2 ... until it is ended.
struct Writer {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl Writer {
    fn start(mut stdin: ChildStdin) -> Writer {
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || {
                let mut count = 0_usize;
                // The pipe breaks if the tool ends, and the test sees the exit code then.
                while !is_over.load(Ordering::Relaxed) && writeln!(stdin, "{count}").is_ok() {
                    count += 1;
                    if count.is_multiple_of(500) {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
                count
            }
        });
        Writer { is_over, thread }
    }

    /// Ends the input, and returns the number of records.
    fn end(self) -> usize {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("the writer does not panic")
    }
}

/// Restarts nsqd in the middle of the input.
fn check_restart(take_away: impl FnOnce(&mut Daemon)) {
    let (mut nsqd, mut tool) = start();
    let writer = Writer::start(tool.stdin());
    wait_for_depth(&nsqd, &tool, 3000);
    take_away(&mut nsqd);
    // Connections are refused meanwhile.
    tool.wait_for_log("onnection refused");
    nsqd.restart();
    let before = depth(&nsqd);
    wait_for_depth(&nsqd, &tool, before + 5000);
    check_end(&nsqd, tool, writer.end());
}

/// The tool ended with code 1 when it connected while nsqd was away.
#[test]
fn a_killed_nsqd_comes_back_in_the_middle_of_the_input() {
    check_restart(Daemon::kill);
}

/// The tool ended with code 1 at nsqd's answer `E_PUB_FAILED PUB failed exiting`.
#[test]
fn a_planned_restart_comes_in_the_middle_of_the_input() {
    check_restart(|nsqd| {
        nsqd.signal("TERM");
        assert!(nsqd.wait().success(), "{}", nsqd.log());
    });
}

/// The tool ended with code 1 if nsqd was away when a record came.
#[test]
fn nsqd_restarts_while_the_input_is_idle() {
    let (mut nsqd, mut tool) = start();
    let mut stdin = tool.stdin();
    writeln!(stdin, "0").expect("the tool reads");
    wait_for_depth(&nsqd, &tool, 1);
    nsqd.kill();
    writeln!(stdin, "1\n2\n3").expect("the tool reads");
    tool.wait_for_log("onnection refused");
    nsqd.restart();
    drop(stdin);
    check_end(&nsqd, tool, 4);
}

/// While one record waited to be sent again, the next ones met the nsqd that was away, and ended the tool.
#[test]
fn further_records_wait_behind_one_record_without_an_answer() {
    let (mut nsqd, mut tool) = start();
    let mut stdin = tool.stdin();
    writeln!(stdin, "0").expect("the tool reads");
    wait_for_depth(&nsqd, &tool, 1);
    // nsqd has the connection, and answers nothing.
    nsqd.signal("STOP");
    writeln!(stdin, "1").expect("the tool reads");
    nsqd.kill();
    tool.wait_for_log("onnection refused");
    let rest: String = (2..100).map(|number| format!("{number}\n")).collect();
    stdin.write_all(rest.as_bytes()).expect("the tool reads");
    nsqd.restart();
    drop(stdin);
    check_end(&nsqd, tool, 100);
}

/// An nsqd that takes no numbers could store a record twice, so the first failure ends the tool.
#[test]
fn without_numbers_nothing_is_tried_again() {
    let mut nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    let address = format!("-nsqd-tcp-address={}", nsqd.tcp);
    let args = format!("-topic=t -number-messages {address}");
    let mut tool = Tool::start("to_nsq", &args);
    let mut stdin = tool.stdin();
    writeln!(stdin, "0").expect("the tool reads");
    wait_for_depth(&nsqd, &tool, 1);
    nsqd.kill();
    writeln!(stdin, "1").expect("the tool reads");
    assert_eq!(tool.wait().code(), Some(1), "{}", tool.log());
    assert!(!tool.log().contains("trying again"), "{}", tool.log());
}
