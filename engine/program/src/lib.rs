//! The parts that NSQ's programs share: command line, configuration file, log, version, HTTP in
//! both directions, the text of metrics, TLS of listeners.
//!
//! A program is a declaration of its flags and a `main`:
//!
//! ```
//! use program::{Program, flag, log, log_info, version};
//! use std::process::ExitCode;
//! use std::time::Duration;
//!
//! program::flags! {
//!     /// The values of the flags.
//!     struct Config {
//!         = flag::VERSION;
//!         = flag::CONFIG;
//!         log_level: log::Level = flag::LOG_LEVEL;
//!         = flag::log_prefix("[nsqlookupd] ");
//!         tcp_address: String = flag::new("tcp-address", "0.0.0.0:4160", "address to listen on");
//!         lifetime: Duration = flag::new("tombstone-lifetime", "45s", "...").at_least(0);
//!     }
//!     own {
//!         = flag::LOG_FORMAT;
//!     }
//! }
//!
//! static NSQLOOKUPD: Program = Program::of::<Config>("nsqlookupd", version::of_daemon);
//!
//! fn main() -> ExitCode {
//!     # let args = vec!["--log-level=fatal".into()];
//!     # /*
//!     let args = std::env::args_os().skip(1);
//!     # */
//!     let options = match NSQLOOKUPD.options(args, &program::hostname()) {
//!         Ok(options) => options,
//!         Err(exit) => return exit.print(),
//!     };
//!     let checked = options.check_bounds("tombstone-lifetime");
//!     let config: Config = match checked.and_then(|()| options.read()) {
//!         Ok(config) => config,
//!         Err(why) => return NSQLOOKUPD.fatal(&why).print(),
//!     };
//!     log::init(config.log_level, options.log_style()).expect("the system has a thread");
//!     log_info!("{}", version::of_daemon("nsqlookupd"));
//!     log_info!("TCP: listening on {}, {:?}", config.tcp_address, config.lifetime);
//!     log::flush();
//!     ExitCode::SUCCESS
//! }
//! ```
//!
//! ```text
//!   arguments --Go's syntax--> values of flags ─┐
//!   (command_line)                              ├─► Options ─► the struct of flags! ─► checks
//!   --config=<file> --TOML--> values of keys ───┘
//!   (config_file)
//! ```
//!
//! Syntax, error texts and exit codes are those of Go's `flag` package and of NSQ's programs,
//! because scripts depend on them. The crate knows no topics, no channels, and no flags of a single
//! program.

#![forbid(unsafe_code)]

pub mod check;
mod command_line;
mod config_file;
pub mod flag;
mod flag_set;
pub mod http;
pub mod http_client;
pub mod inherited;
pub mod local_time;
pub mod log;
pub mod metrics;
mod options;
mod program;
pub mod stop;
pub mod tcp_address;
pub mod tcp_socket;
pub mod tls;
mod value;
pub mod version;

pub use flag_set::{FlagSet, count_flags, join_flags};
pub use options::Options;
pub use program::{Exit, Program};
pub use value::{FlagValue, Value};
use wire::go_error::system_text;
/// Values in Go's syntax, which flags, files and answers share.
pub use wire::go_value;

/// Returns the system's name for this machine.
pub fn hostname() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Returns the reason for which a program ends whose thread the system refuses, and what to do. `thread` is, for example, "the log's thread".
pub fn thread_refused(thread: &str, error: &std::io::Error) -> String {
    format!(
        "cannot start {thread}: {} - raise the limit on processes and threads (ulimit -u; systemd: TasksMax=; docker: \
         --pids-limit)",
        system_text(error)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// The text ended with an error of the system in the words of a library.
    #[test]
    fn the_text_says_what_to_do() {
        let error = io::Error::from_raw_os_error(11);
        let text = thread_refused("the log's thread", &error);
        let begin = "cannot start the log's thread: resource temporarily unavailable - raise the limit on processes";
        assert!(text.starts_with(begin), "{text}");
    }
}
