//! Runs the programs in `examples/` with real daemons. `cargo test` builds them, unless it is told to build certain tests
//! only: then `cargo build -p ringq-client --examples` builds them.

use std::io::Write;
use std::process::{Command, Stdio};

use test_support::TIMEOUT;
use test_support::daemon::{Daemon, binary_directory};
use test_support::process::{Exit, Process, run};

fn example(name: &str, args: &[&str]) -> Command {
    let path = binary_directory().join("examples").join(name);
    assert!(
        path.exists(),
        "{path:?} is missing: run `cargo build -p ringq-client --examples`"
    );
    let mut command = Command::new(path);
    command.args(args);
    command
}

/// Starts a consuming example with a channel of `t`. It prints each message on a line.
fn consuming(name: &str, lookupd: &Daemon) -> Process {
    let args = [&*lookupd.http.to_string(), "t", "c"];
    Process::start(example(name, &args).stdout(Stdio::piped()))
}

/// Starts an nsqlookupd, and an nsqd with two messages that the nsqlookupd knows.
fn discovered() -> (Daemon, Daemon) {
    let lookupd = Daemon::nsqlookupd(&[]);
    let nsqd = Daemon::nsqd_at(&[&lookupd], &[]).with_messages("t", "c", &["one", "two"]);
    lookupd.wait_for_producers("t", 1);
    (lookupd, nsqd)
}

#[test]
fn publish_stores_each_line() {
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    let address = nsqd.tcp.to_string();
    let mut child = example("publish", &[&address, "t"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example can be run");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(b"one\n\ntwo\n").expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let expected = format!("one: stored at {address}\ntwo: stored at {address}\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    nsqd.wait_for_figure("t", "c", "depth", 2);
}

#[test]
fn consume_finishes_each_message() {
    let (lookupd, nsqd) = discovered();
    let mut consuming = consuming("consume", &lookupd);
    let found: Vec<String> = consuming.lines().take(2).collect();
    assert_eq!(found, ["one", "two"]);
    nsqd.wait_for_answers("t", "c");
}

#[test]
fn handlers_end_in_order_at_a_signal() {
    let (lookupd, nsqd) = discovered();
    let mut consuming = consuming("handlers", &lookupd);
    let mut found: Vec<String> = consuming.lines().take(2).collect();
    found.sort();
    assert_eq!(found, ["one", "two"]);
    nsqd.wait_for_answers("t", "c");
    assert_eq!(consuming.end("INT").0, Some(0));
    nsqd.wait_for_figure("t", "c", "client_count", 0);
}

/// A handler that never ended kept the program for ever.
#[test]
fn handlers_end_at_a_signal_although_a_handler_does_not() {
    let lookupd = Daemon::nsqlookupd(&[]);
    // More than a pipe holds.
    let body = "x".repeat(1 << 20);
    let nsqd = Daemon::nsqd_at(&[&lookupd], &[]).with_messages("t", "c", &[body]);
    lookupd.wait_for_producers("t", 1);
    // Nobody reads the output.
    let mut consuming = consuming("handlers", &lookupd);
    nsqd.wait_for_figure("t", "c", "in_flight_count", 1);
    assert_eq!(consuming.end("INT").0, Some(0));
    nsqd.wait_for_figure("t", "c", "client_count", 0);
}

/// A program without a callback for events did not say what was wrong.
#[test]
fn warnings_of_a_program_without_events_go_to_standard_error() {
    // Nothing listens on port 1.
    let mut command = example("throughput", &["127.0.0.1:1"]);
    let program = Process::start(command.stdout(Stdio::null()));
    // The publish fails after the event.
    program.wait_for_log("panicked");
    let log = program.log();
    let is_warned = |line: &str| {
        line.starts_with("ERR ") && line.contains("(127.0.0.1:1) error connecting to nsqd - ")
    };
    assert!(log.lines().any(is_warned), "{log}");
    assert!(!log.lines().any(|line| line.starts_with("INF ")), "{log}");
}

#[test]
fn throughput_publishes_and_consumes_all_messages() {
    let nsqd = Daemon::nsqd(&[]);
    let args = [&*nsqd.tcp.to_string(), "10000", "100", "50"];
    let exit = run(&mut example("throughput", &args), TIMEOUT);
    assert_eq!(exit.code(), 0, "{exit}");
    let line = &exit.stdout;
    assert!(
        line.starts_with("10000 messages of 100 bytes, batches of 50: "),
        "{exit}"
    );
    assert!(line.ends_with(" ns of CPU per message\n"), "{exit}");
    nsqd.wait_for_answers("throughput", "c");
}

#[test]
fn a_wrong_command_line_ends_each_example() {
    for name in ["publish", "consume", "handlers", "throughput"] {
        let exit: Exit = run(&mut example(name, &[]), TIMEOUT);
        assert_eq!((exit.code(), &*exit.stdout), (1, ""), "{exit}");
        assert!(exit.stderr.contains("usage: "), "{name}: {exit}");
    }
}
