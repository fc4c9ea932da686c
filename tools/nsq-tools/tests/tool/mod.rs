//! A tool under test: a process with its log.

#![allow(unreachable_pub)]

pub mod consumed;
pub mod files;
pub mod pty;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::{Command, Stdio};

use test_support::TIMEOUT;
use test_support::process::{Process, run};

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

/// Writes a certificate for 127.0.0.1 and its key into a directory, and returns their paths.
pub fn certificate(directory: &Path) -> [String; 2] {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let files = [
        ("cert.pem", made.cert.pem()),
        ("key.pem", made.signing_key.serialize_pem()),
    ];
    files.map(|(name, pem)| {
        let path = directory.join(name);
        std::fs::write(&path, pem).expect("the directory is writable");
        path.display().to_string()
    })
}

/// A running tool.
pub struct Tool(Process);

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
        Tool(Process::start(command))
    }

    /// Waits until the tool serves HTTP clients, and returns its address.
    pub fn wait_for_http(&self) -> SocketAddr {
        let address = self.wait_for_address("listening on ");
        address.unwrap_or_else(|| panic!("the tool does not listen: {}", self.log()))
    }
}

impl Deref for Tool {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.0
    }
}

impl DerefMut for Tool {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.0
    }
}
