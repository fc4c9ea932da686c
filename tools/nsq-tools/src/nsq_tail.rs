//! `nsq_tail`: prints the messages of topics, one on each line.
//!
//! ```text
//!   consumers of all topics ─► tail: one stream ─► printer: lines ─► one write ─► finish
//! ```
//!
//! A message is finished when its line has left for stdout. So a run with `-n` finishes exactly the
//! messages that it printed, and the others go back to nsqd.

mod config;
mod printer;
mod tail;

use std::ffi::OsString;
use std::process::ExitCode;

use program::log::Level;
use program::{log, log_fatal};
use tokio::runtime::Runtime;

use self::config::Config;
pub use self::config::NSQ_TAIL;

/// Runs the program with this command line, without the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let config = match Config::from_args(args) {
        Ok(config) => config,
        Err(exit) => return exit.print(),
    };
    if let Err(error) = log::init_tool(Level::Info, config.log_style.clone()) {
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
    let end = runtime.block_on(tail::run(&config));
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
