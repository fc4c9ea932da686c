//! `nsq_pubsub`: the messages of a channel as an endless HTTP answer, one message on each line, and
//! publishing over HTTP.
//!
//! ```text
//!   HTTP client ─► server ─┬─ /sub ──► stream ◄─ Consumer ◄─ nsqd
//!                          └─ other ─► pages (axum)
//! ```
//!
//! A message is finished when the client's socket has taken its line. All other messages go back to
//! nsqd when the client leaves.

mod config;
mod lines;
mod pages;
mod reach;
mod request;
mod server;
mod shared;
mod stream;
mod streams;

use std::ffi::OsString;
use std::process::ExitCode;

use program::log::Level;

use crate::process;
use config::Config;
pub use config::NSQ_PUBSUB;

/// Runs the tool with these arguments, without the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    program::stop::abort_on_panic();
    let config = Config::from_args(args);
    process::run_tool(
        config,
        |config| (Level::Info, &config.log_style),
        async |config, signals| {
            let end = server::run(&config, signals).await;
            end.map_err(|why| format!("FATAL: {why}"))
        },
    )
}
