//! A tool under test: a process with its log.

#![allow(unreachable_pub)]

pub mod consumed;
pub mod cutting_proxy;
pub mod files;
pub mod pty;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use test_support::TIMEOUT;
use test_support::daemon::{send_signal, wait_for_end};
use test_support::process::{LOG_LINES_MAX, Log, address_in, run};

/// Flags for short delays after a failure.
pub const QUICK: &str =
    "-consumer-opt=default_requeue_delay,10ms -consumer-opt=backoff_multiplier,10ms";

/// Returns a command that runs a tool with these arguments. `·` stands for a space within an argument.
pub fn command(tool: &str, args: impl AsRef<str>) -> Command {
    let mut command = Command::new(path(tool));
    command.args(words(args.as_ref()));
    command
}

/// Returns a command that runs a tool through a script for `sh`, in which `"$0" "$@"` stand for the tool and its arguments.
pub fn script(script: &str, tool: &str, args: &str) -> Command {
    let mut command = Command::new("sh");
    let tool = path(tool);
    command.args(["-c", script, &tool]).args(words(args));
    command
}

fn path(tool: &str) -> String {
    let path = Path::new(env!("CARGO_BIN_EXE_nsq_tail")).with_file_name(tool);
    path.display().to_string()
}

fn words(args: &str) -> impl Iterator<Item = String> {
    let words = args.split(' ').filter(|word| !word.is_empty());
    words.map(|word| word.replace('·', " "))
}

/// Returns the number of lines about times for each name, in the form of the original, for `--status-every=3`.
pub fn status_lines(log: &str) -> BTreeMap<String, usize> {
    let line = regex::Regex::new(
        r"(?m)^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[(\S+)\]: finished 3 - 99th: \d+\.\d\dms - 95th: \d+\.\d\dms - avg: \d+\.\d\dms$",
    );
    let mut counts = BTreeMap::new();
    for found in line.expect("a pattern").captures_iter(log) {
        *counts.entry(found[1].to_owned()).or_insert(0) += 1;
    }
    counts
}

/// Runs a tool until its end, and expects this exit code, and the text in its output.
#[track_caller]
pub fn expect_exit(tool: &str, args: &str, code: i32, text: &str) {
    let exit = run(&mut command(tool, args), TIMEOUT);
    // The help text goes to standard error, as that of Go's programs does.
    let (said, other) = if args.contains("-version") {
        (&exit.stdout, &exit.stderr)
    } else {
        (&exit.stderr, &exit.stdout)
    };
    assert!(
        exit.code() == code && said.contains(text) && other.is_empty(),
        "{args}: {exit}"
    );
}

/// A running tool. A drop kills the process, and prints the log if the test is failing.
pub struct Tool {
    child: Child,
    log: Arc<Log>,
    drain: Option<JoinHandle<()>>,
}

impl Tool {
    /// Starts a tool with these arguments, as [`command`] says, and an open standard input.
    pub fn start(tool: &str, args: impl AsRef<str>) -> Tool {
        Tool::quiet(&mut command(tool, args))
    }

    /// Starts a command with an open standard input.
    pub fn quiet(command: &mut Command) -> Tool {
        Tool::of_command(command.stdin(Stdio::piped()).stdout(Stdio::null()))
    }

    /// Starts a command, whose input and output are those of the command.
    pub fn of_command(command: &mut Command) -> Tool {
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
        let stderr = child.stderr.take().expect("stderr is piped");
        let log = Arc::new(Log::default());
        let drain = std::thread::spawn({
            let log = Arc::clone(&log);
            move || log.drain(stderr)
        });
        Tool {
            child,
            log,
            drain: Some(drain),
        }
    }

    /// Returns the standard input. A drop closes it.
    pub fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("it is taken once")
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        self.log.text(LOG_LINES_MAX)
    }

    /// Waits for a log line that contains `text` and returns it.
    pub fn wait_for_log(&self, text: &str) -> String {
        let line = self.log.wait_for(text, TIMEOUT);
        line.unwrap_or_else(|| panic!("no log line with {text:?}:\n{}", self.log()))
    }

    /// Waits until the tool serves HTTP clients, and returns its address.
    pub fn wait_for_http(&self) -> SocketAddr {
        let line = self.wait_for_log("listening on ");
        address_in(&line).expect("the line ends with an address")
    }

    /// Sends a signal by name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        send_signal(self.pid(), name);
    }

    /// Returns true if the process has ended.
    pub fn has_ended(&mut self) -> bool {
        let ended = self.child.try_wait();
        ended.expect("a child can be waited for").is_some()
    }

    /// Waits for the end of the process and of its log.
    pub fn wait(&mut self) -> ExitStatus {
        let status = wait_for_end(&mut self.child);
        if let Some(drain) = self.drain.take() {
            drain.join().expect("the log reader does not panic");
        }
        status
    }

    /// Sends a signal, and returns the exit code and the log.
    pub fn end(mut self, signal: &str) -> (Option<i32>, String) {
        self.signal(signal);
        (self.wait().code(), self.log())
    }

    /// Ends the process by SIGTERM. Panics if the exit code is not 0.
    pub fn stop(&mut self) {
        self.signal("TERM");
        let status = self.wait();
        assert_eq!(status.code(), Some(0), "{}", self.log());
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of the tool ---\n{}---", self.log());
        }
        // Both calls fail only if the process has been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
