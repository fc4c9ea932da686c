//! A tool under test: a process with its log.

#![allow(unreachable_pub)]

pub mod consumed;
pub mod cutting_proxy;
pub mod files;
pub mod pty;

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use test_support::TIMEOUT;
use test_support::daemon::{send_signal, wait_for_end};
use test_support::process::{LOG_LINES_MAX, Log, address_in};

/// A running tool. A drop kills the process, and prints the log if the test is failing.
pub struct Tool {
    child: Child,
    log: Arc<Log>,
    drain: Option<JoinHandle<()>>,
}

impl Tool {
    /// Starts a program with these arguments and variables, and an open standard input.
    pub fn start(program: &str, args: &[impl AsRef<OsStr>], variables: &[(&str, &str)]) -> Tool {
        let mut command = Command::new(program);
        command.args(args).envs(variables.iter().copied());
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
