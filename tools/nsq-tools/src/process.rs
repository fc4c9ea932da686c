//! The process of a tool: its log, its threads, and its exit code.

use std::process::ExitCode;

use program::log::{Level, Style};
use program::{log, log_fatal};
use tokio::runtime::Runtime;

/// Runs a tool until its work ends. Starts the log and the threads before, and writes all log lines behind it. `level` is
/// the lowest level that is logged. An error of the work becomes the last log line, and exit code 1.
pub fn run(level: Level, style: Style, work: impl Future<Output = Result<(), String>>) -> ExitCode {
    if let Err(error) = log::init_tool(level, style) {
        log_fatal!("cannot start the log's thread: {error}");
        return ExitCode::from(1);
    }
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            log_fatal!("cannot start threads: {error}");
            return ExitCode::from(1);
        }
    };
    let end = runtime.block_on(work);
    runtime.shutdown_background();
    log::flush();
    match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            log_fatal!("{why}");
            ExitCode::from(1)
        }
    }
}
