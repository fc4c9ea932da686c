//! `nsq_tail`: prints the messages of topics, one on each line, or makes a file of each.
//!
//! ```text
//!   consumers of all topics ─► tail: one stream ─► printer: a group ─► output: one write ─► finish
//!                                                                        ├─► lines on stdout
//!                                                                        └─► message_file
//! ```
//!
//! A message is finished when its line has left for stdout, or when its file survives a power failure. So a run with `-n` finishes exactly the
//! messages that it printed, and the others go back to nsqd.

mod config;
mod message_file;
mod output;
mod printer;
mod tail;

use std::ffi::OsString;
use std::process::ExitCode;

use program::log::Level;

use self::config::Config;
pub use self::config::NSQ_TAIL;

use crate::process;

/// Runs the program with this command line, without the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    process::run_tool(
        Config::from_args(args),
        |config| (Level::Info, &config.log_style),
        tail::run,
    )
}
