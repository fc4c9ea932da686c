//! `nsq_to_file`: archives topics to files. A message is finished only when it is synced to the disk.
//!
//! ```text
//!   config ─► archiver ─► topics       which topics there are
//!                │
//!                └─► topic_thread      one thread for each topic: its consumer, and
//!                      └─► archive     the rules for its files: names, rotation, syncs
//!                            ├─► file_name, date_format
//!                            ├─► compression
//!                            └─► disk  the file system
//! ```
//!
//! A sync blocks for milliseconds. So each topic has a thread of its own, which waits for the disk
//! while the runtime's threads receive the next messages.

mod archive;
mod archiver;
mod compression;
mod config;
mod date_format;
mod disk;
mod file_name;
mod topic_thread;
mod topics;

use std::ffi::OsString;
use std::process::ExitCode;

use program::{log, log_fatal};
use tokio::runtime::Runtime;

use self::config::Config;
pub use self::config::NSQ_TO_FILE;

/// Runs the program with this command line, without the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let config = match Config::from_args(args) {
        Ok(config) => config,
        Err(exit) => return exit.print(),
    };
    if let Err(error) = log::init_tool(config.log_level, config.log_style.clone()) {
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
    let end = runtime.block_on(archiver::run(config));
    // A topic whose nsqd does not answer may still wait for it.
    runtime.shutdown_background();
    log::show_status(String::new());
    log::flush();
    match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            log_fatal!("{why}");
            ExitCode::from(1)
        }
    }
}
