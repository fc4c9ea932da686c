//! [`RunningDaemon`]: a daemon that this program starts from a command line, on ports and a data
//! directory of its own, and stops again.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::target::Target;

/// Longest wait for a daemon to listen.
const START_MAX: Duration = Duration::from_secs(20);
/// Longest wait for a daemon to end after SIGTERM, before SIGKILL.
const STOP_MAX: Duration = Duration::from_secs(20);
/// Time between two looks at the daemon.
const LOOK: Duration = Duration::from_millis(20);
/// Lines of a dead daemon's log that are shown.
const LOG_LINES: usize = 5;

/// A command line with `{tcp}`, `{http}` and `{data}` in it, for addresses and a directory.
#[derive(Clone, Debug)]
pub struct DaemonCommand {
    /// The command line as the user wrote it.
    pub text: String,
    words: Vec<String>,
}

impl DaemonCommand {
    /// Splits a command line as a shell does, without running one.
    /// Fails when a quote is open, nothing is there, or `{tcp}` is missing; in words for the user.
    pub fn new(text: &str) -> Result<DaemonCommand, String> {
        let words = shlex::split(text).ok_or_else(|| format!("`{text}`: a quote is not closed"))?;
        if words.is_empty() {
            return Err("the daemon's command is empty".into());
        }
        if !text.contains("{tcp}") {
            return Err(format!(
                "`{text}` has no {{tcp}}: write for instance nsqd --tcp-address={{tcp}} \
                 --http-address={{http}} --data-path={{data}}"
            ));
        }
        Ok(DaemonCommand {
            text: text.into(),
            words,
        })
    }
}

/// A daemon that runs. It is killed when dropped.
#[derive(Debug)]
pub struct RunningDaemon {
    child: Child,
    directory: TempDir,
}

impl RunningDaemon {
    /// Starts the command with a fresh data directory below `base` and waits until it answers. Returns the daemon, and
    /// the daemon as the generator sees it.
    /// Fails when it does not come up; in words for the user, with the end of its log.
    pub fn start(command: &DaemonCommand, base: &Path) -> Result<(RunningDaemon, Target), String> {
        let text = |error: std::io::Error| format!("cannot start `{}`: {error}", command.text);
        let directory = tempfile::Builder::new()
            .prefix("nsq-bench-")
            .tempdir_in(base)
            .map_err(text)?;
        let data = directory.path().join("data");
        fs::create_dir(&data).map_err(text)?;
        let (tcp, http) = free_addresses().map_err(text)?;
        let fill = |word: &String| {
            word.replace("{tcp}", &tcp.to_string())
                .replace("{http}", &http.to_string())
                .replace("{data}", &data.to_string_lossy())
        };
        let words: Vec<String> = command.words.iter().map(fill).collect();
        let log = File::create(directory.path().join("log")).map_err(text)?;
        let child = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(text)?)
            .stderr(log)
            .spawn()
            .map_err(text)?;
        let http = command.text.contains("{http}").then_some(http);
        let mut daemon = RunningDaemon { child, directory };
        let deadline = Instant::now() + START_MAX;
        loop {
            let error = match Target::inspect(tcp, http, Some(daemon.child.id())) {
                Ok(mut target) => {
                    target.daemon.command = Some(command.text.clone());
                    return Ok((daemon, target));
                }
                Err(error) => error,
            };
            let problem = match daemon.child.try_wait().map_err(text)? {
                Some(status) => format!("ended with {status}:"),
                None if Instant::now() > deadline => format!("does not come up: {error}"),
                None => {
                    std::thread::sleep(LOOK);
                    continue;
                }
            };
            return Err(format!("`{}` {problem}\n{}", command.text, daemon.log()));
        }
    }

    /// Returns the last lines of the daemon's log.
    fn log(&self) -> String {
        let log = fs::read(self.directory.path().join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    /// Ends the daemon with SIGTERM, as an operator would, and kills the daemon if that takes too long.
    /// Fails when the daemon had to be killed, or had ended before; in words for the user.
    pub fn stop(mut self) -> Result<(), String> {
        if let Ok(Some(status)) = self.child.try_wait() {
            let log = self.log();
            return Err(format!(
                "the daemon had ended by itself, with {status}:\n{log}"
            ));
        }
        kill_process(Pid::from_child(&self.child), Signal::TERM)
            .map_err(|error| format!("cannot stop: {error}"))?;
        let deadline = Instant::now() + STOP_MAX;
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        // Dropping kills it.
        let seconds = STOP_MAX.as_secs();
        Err(format!(
            "the daemon did not end within {seconds} s of SIGTERM"
        ))
    }
}

impl Drop for RunningDaemon {
    fn drop(&mut self) {
        // The daemon may have ended already, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Finds two addresses of loopback that were free a moment ago.
fn free_addresses() -> std::io::Result<(SocketAddr, SocketAddr)> {
    let bind = || TcpListener::bind("127.0.0.1:0");
    let (one, other) = (bind()?, bind()?);
    Ok((one.local_addr()?, other.local_addr()?))
}

#[cfg(test)]
mod tests;
