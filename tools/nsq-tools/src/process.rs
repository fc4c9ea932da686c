//! The process of a tool: its command line, its log, its threads, its signals, and its exit code.

use std::process::ExitCode;

use crate::stopping::StopSignals;
use program::log::{Level, Style};
use program::{Exit, log, log_fatal, thread_refused};
use tokio::runtime::Runtime;

/// Runs a tool with a valid command line, and otherwise prints why the tool ends. `logging` returns the lowest level that is
/// logged and the form of the log's lines, and `work` does the tool's work until a signal comes. An error of the work is
/// the reason for the user: it becomes the last log line, with exit code 1.
pub fn run_tool<C, W>(
    config: Result<C, Exit>,
    logging: impl FnOnce(&C) -> (Level, &Style),
    work: impl FnOnce(C, StopSignals) -> W,
) -> ExitCode
where
    W: Future<Output = Result<(), String>>,
{
    let config = match config {
        Ok(config) => config,
        Err(exit) => return exit.print(),
    };
    let (level, style) = logging(&config);
    if let Err(error) = log::init_tool(level, style.clone()) {
        log_fatal!("{}", thread_refused("the log's thread", &error));
        return ExitCode::from(1);
    }
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            log_fatal!("cannot start threads: {error}");
            return ExitCode::from(1);
        }
    };
    let end = runtime.block_on(async {
        let signals = StopSignals::catch();
        let signals = signals.map_err(|error| format!("cannot receive signals: {error}"))?;
        work(config, signals).await
    });
    // The process ends now, whatever its threads do. A runtime that shuts down panics in those that still use it, and a
    // thread that still works could log a line behind the reason.
    std::mem::forget(runtime);
    log::set_level(Level::Fatal);
    log::flush();
    match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            log_fatal!("{why}");
            ExitCode::from(1)
        }
    }
}
