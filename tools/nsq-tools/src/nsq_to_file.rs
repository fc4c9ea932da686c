//! `nsq_to_file`: archives topics to files. A message is finished only when it is synced to the disk.
//!
//! ```text
//!   config ─► archiver ─► topics       which topics there are
//!                │
//!                ├─► start_check         can files be made here?
//!                └─► topic_thread        one thread for each topic: its consumer, and
//!                      ├─► leftovers     the files of a run that was killed
//!                      │     └─► torn_end
//!                      ├─► archive       the rules for its files: names, rotation, syncs
//!                      │     ├─► file_name, date_format
//!                      │     └─► compression
//!                      └─► output_move   the way of both to --output-dir
//!                            └─► disk    the file system
//! ```
//!
//! A sync blocks for milliseconds. So each topic has a thread of its own, which waits for the disk
//! while the runtime's threads receive the next messages. A sync of many bytes has a thread, too, so
//! that the topic's thread writes the next messages meanwhile.

mod archive;
mod archiver;
mod compression;
mod config;
mod date_format;
mod disk;
mod file_name;
mod leftovers;
mod output_move;
mod settings;
mod shared;
mod start_check;
mod stop;
mod topic_thread;
mod topics;
mod torn_end;
mod unknown_tokens;

use std::ffi::OsString;
use std::process::ExitCode;

use self::config::Config;
pub use self::config::NSQ_TO_FILE;
use crate::process;

/// Runs the program with this command line, without the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    process::run_tool(
        Config::from_args(args),
        |config| (config.log_level, &config.log_style),
        archiver::run,
    )
}
