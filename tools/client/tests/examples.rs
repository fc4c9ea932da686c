//! Runs the programs in `examples/` with real daemons. `cargo test` builds them, unless it is told to build certain tests
//! only: then `cargo build -p ringq-client --examples` builds them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use test_support::daemon::{Daemon, binary_directory, send_signal, wait_for_end};
use test_support::process::{Exit, run};
use test_support::{TIMEOUT, wait_until};

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

/// A consuming example with its output. A drop kills it.
struct Consuming(Child);

impl Consuming {
    /// Starts the example with a channel of `t`. It prints each message on a line.
    fn start(name: &str, lookupd: &Daemon) -> (Consuming, impl Iterator<Item = String>) {
        let mut command = example(name, &[&lookupd.http.to_string(), "t", "c"]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the example can be run");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        (
            Consuming(child),
            output.lines().map(|line| line.expect("text")),
        )
    }
}

impl Drop for Consuming {
    fn drop(&mut self) {
        // Both calls fail only if the process has been waited for already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts an nsqlookupd, and an nsqd with two messages that the nsqlookupd knows.
fn discovered() -> (Daemon, Daemon) {
    let lookupd = Daemon::nsqlookupd(&[]);
    let nsqd = Daemon::nsqd_at(&[&lookupd], &[]).with_messages("t", "c", &["one", "two"]);
    let is_known = || lookupd.get("/lookup?topic=t").text().contains("127.0.0.1");
    assert!(wait_until(TIMEOUT, is_known), "{}", lookupd.log());
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
    let (_child, mut lines) = Consuming::start("consume", &lookupd);
    assert_eq!(
        [lines.next(), lines.next()],
        ["one", "two"].map(|line| Some(line.to_owned()))
    );
    nsqd.wait_for_answers("t", "c");
}

#[test]
fn handlers_end_in_order_at_a_signal() {
    let (lookupd, nsqd) = discovered();
    let (mut child, lines) = Consuming::start("handlers", &lookupd);
    let mut found: Vec<String> = lines.take(2).collect();
    found.sort();
    assert_eq!(found, ["one", "two"]);
    nsqd.wait_for_answers("t", "c");
    send_signal(child.0.id(), "INT");
    assert_eq!(wait_for_end(&mut child.0).code(), Some(0));
    nsqd.wait_for_figure("t", "c", "client_count", 0);
}

/// A handler that never ended kept the program for ever.
#[test]
fn handlers_end_at_a_signal_although_a_handler_does_not() {
    let lookupd = Daemon::nsqlookupd(&[]);
    // More than a pipe holds.
    let body = "x".repeat(1 << 20);
    let nsqd = Daemon::nsqd_at(&[&lookupd], &[]).with_messages("t", "c", &[body]);
    let is_known = || lookupd.get("/lookup?topic=t").text().contains("127.0.0.1");
    assert!(wait_until(TIMEOUT, is_known), "{}", lookupd.log());
    // Nobody reads the output.
    let (mut child, _lines) = Consuming::start("handlers", &lookupd);
    nsqd.wait_for_figure("t", "c", "in_flight_count", 1);
    send_signal(child.0.id(), "INT");
    assert_eq!(wait_for_end(&mut child.0).code(), Some(0));
    nsqd.wait_for_figure("t", "c", "client_count", 0);
}

/// A program without a callback for events did not say what was wrong.
#[test]
fn warnings_of_a_program_without_events_go_to_standard_error() {
    // Nothing listens on port 1.
    let mut child = example("throughput", &["127.0.0.1:1"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the example can be run");
    let output = BufReader::new(child.stderr.take().expect("it is piped"));
    let _child = Consuming(child);
    // The publish fails after the event.
    let lines = output.lines().map(|line| line.expect("text"));
    let lines: Vec<String> = lines
        .take_while(|line| !line.contains("panicked"))
        .collect();
    let is_warned = |line: &String| {
        line.starts_with("ERR ") && line.contains("(127.0.0.1:1) error connecting to nsqd - ")
    };
    assert!(lines.iter().any(is_warned), "{lines:?}");
    assert!(
        !lines.iter().any(|line| line.starts_with("INF ")),
        "{lines:?}"
    );
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
