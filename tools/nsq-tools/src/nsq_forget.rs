//! `nsq_forget`: keeps the recent distribution of a field's values in the messages of a topic, and
//! answers over HTTP.
//!
//! ```text
//!   nsqd ─► consumer ─► Field: values ─► ForgetTable ◄─► http ◄─► clients
//!                                             │
//!                                         state file
//! ```
//!
//! Counts fade away: `decay.rs` has the formula. The table is a state machine; its time and its random
//! numbers are arguments.

mod config;
mod counting;
mod decay;
mod distribution;
mod field;
mod http;
mod state_file;
mod table;

use std::ffi::OsString;
use std::process::ExitCode;

use program::log::Level;

use crate::process;
use config::Config;
pub use config::NSQ_FORGET;

/// Runs the tool with these arguments, without the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    program::stop::abort_on_panic();
    let config = Config::from_args(args);
    process::run_tool(
        config,
        |config| (Level::Info, &config.log_style),
        async |config, signals| {
            let end = counting::run(&config, signals).await;
            end.map_err(|why| format!("FATAL: {why}"))
        },
    )
}
