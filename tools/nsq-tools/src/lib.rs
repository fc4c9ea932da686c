//! NSQ's tools: programs that consume, publish, copy and count messages. Each is a module with the
//! tool's name, and a `main` in `src/bin`.
//!
//! ```text
//!   src/bin/<tool>.rs ──► <tool>: table of flags, checks, work
//!                            ├──► flags       rows that several tools have
//!                            └──► consuming   from those flags to consumers; signals
//! ```

#![forbid(unsafe_code)]

pub mod flags;
