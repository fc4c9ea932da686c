//! NSQ's tools: programs that consume, publish, copy and count messages. Each is a module with the
//! tool's name, and a `main` in `src/bin`.
//!
//! ```text
//!   src/bin/<tool>.rs ──► <tool>: table of flags, checks, work
//!                            ├──► flags         rows that several tools have, and their checks
//!                            ├──► process       log, threads, signals, exit code, and the line at a terminal
//!                            ├──► consuming     from those flags to consumers
//!                            ├──► destinations  a choice among addresses, and how long requests take
//!                            └──► cluster       the nsqds and their figures, over HTTP
//! ```
//!
//! The crate ringq-client publishes and consumes for the tools. A change of one tool touches its own module, and its rows
//! in docs/reference/flags-tools.md. Start with a short one, such as `nsq_tail.rs`.

#![forbid(unsafe_code)]

pub mod cluster;
pub mod consuming;
pub mod destinations;
pub mod flags;
pub mod nsq_forget;
pub mod nsq_pubsub;
pub mod nsq_stat;
pub mod nsq_tail;
pub mod nsq_to_file;
pub mod nsq_to_http;
pub mod nsq_to_nsq;
pub mod nsqtop;
pub mod process;
pub mod to_nsq;
