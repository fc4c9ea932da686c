//! NSQ's tools: programs that consume, publish, copy and count messages. Each is a module with the
//! tool's name, and a `main` in `src/bin`.
//!
//! ```text
//!   src/bin/<tool>.rs ──► <tool>: table of flags, checks, work
//!                            ├──► process       command line, log, threads, signals and exit code
//!                            ├──► progress      the line below the log, at a terminal
//!                            ├──► flags         rows that several tools have
//!                            ├──► listening     the listener of a tool that serves HTTP
//!                            ├──► consuming     from those flags to consumers
//!                            ├──► stopping      signals, and the end of consumers and producers
//!                            ├──► advice        what helps after the failure of a file
//!                            ├──► destinations  a choice among addresses, and how long requests take
//!                            ├──► host_pool     a choice among destinations, without those that fail
//!                            ├──► timing_lines  how long the last requests took
//!                            └──► cluster       the nsqds and their figures, over HTTP
//! ```
//!
//! The crate ringq-client publishes and consumes for the tools. A change of one tool touches its own module, and its rows
//! in docs/tools.md. Start with a short one, such as `nsq_tail.rs`.

#![forbid(unsafe_code)]

pub mod advice;
pub mod cluster;
pub mod consuming;
pub mod destinations;
pub mod flags;
pub mod host_pool;
pub mod listening;
pub mod nsq_forget;
pub mod nsq_pubsub;
pub mod nsq_stat;
pub mod nsq_tail;
pub mod nsq_to_file;
pub mod nsq_to_http;
pub mod nsq_to_nsq;
pub mod nsqtop;
pub mod process;
pub mod progress;
pub mod stopping;
pub mod timing_lines;
pub mod to_nsq;
