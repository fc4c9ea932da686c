//! Processes under test: their output and their end.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::wait_until;

/// The most log lines that are kept for the report of a failure.
pub const LOG_LINES_MAX: usize = 20_000;

/// Returns the address in a log line, or `None` for the path of a unix socket.
pub fn address_in(line: &str) -> Option<SocketAddr> {
    line.rsplit(' ').next()?.trim().parse().ok()
}

/// The lines of one process's stderr, newest last.
#[derive(Debug, Default)]
pub struct Log {
    state: Mutex<LogState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LogState {
    lines: VecDeque<String>,
    /// The number of lines that were dropped at the front to stay below the limit.
    dropped: usize,
    closed: bool,
}

impl Log {
    /// Reads lines until the pipe is closed.
    pub fn drain(&self, stderr: impl Read) {
        let mut reader = BufReader::new(stderr);
        let mut line = Vec::new();
        loop {
            line.clear();
            let got = reader.read_until(b'\n', &mut line);
            let mut state = self.state.lock();
            match got {
                Ok(0) | Err(_) => {
                    state.closed = true;
                    self.changed.notify_all();
                    return;
                }
                Ok(_) => state
                    .lines
                    .push_back(String::from_utf8_lossy(&line).into_owned()),
            }
            if state.lines.len() > LOG_LINES_MAX {
                state.lines.pop_front();
                state.dropped += 1;
            }
            self.changed.notify_all();
        }
    }

    /// Returns the first line with `text`, or None if the log or `timeout` ends before.
    pub fn wait_for(&self, text: &str, timeout: Duration) -> Option<String> {
        let deadline = Instant::now() + timeout;
        let mut state = self.state.lock();
        loop {
            if let Some(line) = state.lines.iter().find(|line| line.contains(text)) {
                return Some(line.trim_end().to_owned());
            }
            if state.closed || Instant::now() >= deadline {
                return None;
            }
            self.changed.wait_until(&mut state, deadline);
        }
    }

    /// Returns the last lines.
    pub fn text(&self, lines_max: usize) -> String {
        let state = self.state.lock();
        let skip = state.lines.len().saturating_sub(lines_max);
        let mut text = String::new();
        if state.dropped + skip > 0 {
            text.push_str(&format!("... {} earlier lines ...\n", state.dropped + skip));
        }
        state
            .lines
            .iter()
            .skip(skip)
            .for_each(|line| text.push_str(line));
        text
    }
}

/// The end of a process and its output.
#[derive(Debug)]
pub struct Exit {
    /// The exit status.
    pub status: ExitStatus,
    /// The standard output.
    pub stdout: String,
    /// The standard error.
    pub stderr: String,
}

impl Exit {
    /// Returns the exit code. Panics if a signal ended the process.
    pub fn code(&self) -> i32 {
        match self.status.code() {
            Some(code) => code,
            None => panic!("ended by signal {:?}: {self}", self.status.signal()),
        }
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Exit {
            status,
            stdout,
            stderr,
        } = self;
        write!(
            f,
            "{status}\n--- stdout ---\n{stdout}--- stderr ---\n{stderr}---"
        )
    }
}

/// Runs any program and waits for its end. If it still runs after `timeout`, it is killed and the
/// test fails with its output.
pub fn run(command: &mut Command, timeout: Duration) -> Exit {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
    let stdout = read_in_background(child.stdout.take().expect("stdout is piped"));
    let stderr = read_in_background(child.stderr.take().expect("stderr is piped"));
    let ended = wait_until(timeout, || matches!(child.try_wait(), Ok(Some(_))));
    let _ = child.kill(); // It may have ended already.
    let status = child.wait().expect("a child can be waited for");
    let exit = Exit {
        status,
        stdout: stdout.join().expect("the reader does not panic"),
        stderr: stderr.join().expect("the reader does not panic"),
    };
    assert!(ended, "{command:?} still ran after {timeout:?}: {exit}");
    exit
}

fn read_in_background(mut source: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // The part that was read before an error still helps the reader of the report.
        let _ = source.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
