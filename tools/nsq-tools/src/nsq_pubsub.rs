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
use program::{log, log_fatal};
use tokio::runtime::Runtime;

use config::Config;
pub use config::NSQ_PUBSUB;

/// Runs the tool with these arguments, without the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    program::stop::abort_on_panic();
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
    let end = runtime.block_on(server::run(&config));
    runtime.shutdown_background();
    log::flush();
    match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            log_fatal!("FATAL: {why}");
            ExitCode::from(1)
        }
    }
}
