//! NSQ's tools: programs that consume, publish, copy and count messages. Each is a module with the
//! tool's name, and a `main` in `src/bin`.
//!
//! ```text
//!   src/bin/<tool>.rs ──► <tool>: table of flags, checks, work
//!                            ├──► flags       rows that several tools have
//!                            ├──► consuming   from those flags to consumers; signals
//!                            ├──► doctor      what limits a channel
//!                            └──► cluster     the nsqds and their figures, over HTTP
//! ```

#![forbid(unsafe_code)]

pub mod cluster;
pub mod doctor;
pub mod flags;
pub mod nsq_stat;
