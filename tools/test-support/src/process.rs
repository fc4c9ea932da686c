//! Processes under test: their output and their end.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::{TIMEOUT, assert_like, wait_until};

/// The most log lines that are kept for the report of a failure.
pub const LOG_LINES_MAX: usize = 20_000;

/// The number of log lines that are printed when a test fails.
const LOG_LINES_PRINTED: usize = 200;

/// A running process, whose standard error is its log. A drop kills the process. If the test is failing, the drop prints the
/// log first.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: Arc<Log>,
    drain: Option<JoinHandle<()>>,
    name: String,
}

impl Process {
    /// Starts a command, whose input and output are those of the command.
    pub fn start(command: &mut Command) -> Process {
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
        let program = Path::new(command.get_program()).file_name();
        Process {
            child,
            log,
            drain: Some(drain),
            name: program.unwrap_or_default().display().to_string(),
        }
    }

    /// Returns the standard input. A drop closes it.
    pub fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("it is taken once")
    }

    /// Returns the lines of the standard output, as they come.
    pub fn lines(&mut self) -> impl Iterator<Item = String> + use<> {
        let stdout: ChildStdout = self.child.stdout.take().expect("it is taken once");
        let lines = BufReader::new(stdout).lines();
        lines.map(|line| line.expect("the output is text"))
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
        let line = self.line_with(text);
        line.unwrap_or_else(|| panic!("no log line with {text:?}:\n{}", self.log()))
    }

    /// Waits for a log line that contains `text` and returns it. `None`: the process has ended before.
    pub fn line_with(&self, text: &str) -> Option<String> {
        self.log.wait_for(text, TIMEOUT)
    }

    /// Waits for a log line that contains `text`, and returns the address at its end. `None`: the process has ended before.
    pub fn wait_for_address(&self, text: &str) -> Option<SocketAddr> {
        self.line_with(text).and_then(|line| address_in(&line))
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
    pub fn end(&mut self, signal: &str) -> (Option<i32>, String) {
        self.signal(signal);
        (self.wait().code(), self.log())
    }

    /// Ends the process by SIGTERM. Panics if the exit code is not 0.
    pub fn stop(&mut self) {
        let (code, log) = self.end("TERM");
        assert_eq!(code, Some(0), "{log}");
    }

    /// Kills the process, and waits for its end.
    pub fn kill(&mut self) {
        // Both calls fail only if the process has been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log.text(LOG_LINES_PRINTED);
            eprintln!("--- log of {} ---\n{log}---", self.name);
        }
        self.kill();
    }
}

/// Sends a signal by name, such as `TERM`, to a process. After `STOP`, waits until no thread of the process runs. Panics if
/// there is no such process.
pub fn send_signal(pid: u32, name: &str) {
    // The standard library sends only SIGKILL, so the shell's builtin sends the signal.
    let status = Command::new("sh")
        .args(["-c", "kill -s \"$0\" \"$1\"", name, &pid.to_string()])
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "SIG{name} could not be sent to {pid}: has the process ended already?"
    );
    if name == "STOP" {
        // One thread takes the signal, and stops the others when it runs.
        assert!(wait_until(TIMEOUT, || is_stopped(pid)), "{pid} runs on");
    }
}

/// Returns whether all threads of a process are stopped. Source: proc_pid_stat(5).
fn is_stopped(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process is there");
    threads.flatten().all(|thread| {
        // A thread that has ended is not there any more.
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").map(|(_, rest)| &rest[..1]);
        state.is_none_or(|state| state == "T")
    })
}

/// Waits for the end of a process. Panics if the process still runs after [`TIMEOUT`].
pub fn wait_for_end(child: &mut Child) -> ExitStatus {
    let mut status = None;
    wait_until(TIMEOUT, || {
        status = child.try_wait().expect("a child can be waited for");
        status.is_some()
    });
    status.expect("the process has ended")
}

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
    /// Checks the exit code, and that the standard error is like this pattern of [`assert_like`].
    #[track_caller]
    pub fn expect(&self, code: i32, stderr: &str) {
        assert_eq!(self.code(), code, "{self}");
        assert_like(&self.stderr, stderr);
    }

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
