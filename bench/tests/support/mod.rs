//! Sinks and targets for the tests of the generator.

use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use clap::Parser;
use nsq_bench::run::Options;
use nsq_bench::scenario::{Patch, Scenario};
use nsq_bench::sink::{Faults, Mode, Sink, SinkOptions};
use nsq_bench::target::Target;
use upgrade::ServerConfig;

/// Starts a sink that delivers the published messages, with these faults, on a port of the system's
/// choice.
pub(crate) fn echo(faults: Faults) -> Sink {
    start(faults, None)
}

/// Starts a sink as [`echo`] does, which grants TLS with this configuration.
pub(crate) fn start(faults: Faults, tls: Option<Arc<ServerConfig>>) -> Sink {
    let options = SinkOptions {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        mode: Mode::Echo,
        faults,
        size: 200,
    };
    Sink::start(options, tls).unwrap()
}

/// Returns the sink as a target, with HTTP.
pub(crate) fn target(sink: &Sink) -> Target {
    Target::inspect(sink.address, Some(sink.address), None).unwrap()
}

/// Parses a scenario in the notation of the files.
pub(crate) fn scenario(toml: &str) -> Scenario {
    let scenario = Patch::from_toml(toml).unwrap().apply(Scenario::default());
    scenario.check().unwrap();
    scenario
}

/// Returns the options of a run without flags.
pub(crate) fn options() -> Options {
    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        options: Options,
    }
    Flags::parse_from(["run"]).options
}

/// Returns a command that runs the program with these arguments and captures its output.
pub(crate) fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nsq-bench"));
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs the program with the words of `line` to its end. The program must fail with this code and these words on
/// standard error, and without figures.
pub(crate) fn check_refused(line: &str, code: i32, words: &str) {
    let args = shlex::split(line).unwrap();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (found, stdout, stderr) = text(&program(&args).output().unwrap());
    assert_eq!(found, Some(code), "{line}: {stdout}{stderr}");
    assert!(stderr.contains(words), "{line}: {stderr}");
    assert!(!stdout.contains("ledger"), "{line}: {stdout}");
}

/// Returns the exit code, standard output and standard error of a program.
pub(crate) fn text(output: &Output) -> (Option<i32>, String, String) {
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}
