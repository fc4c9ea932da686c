//! nsqlookupd: knows which nsqd has which topics and channels.
//!
//! ```text
//!   nsqd ──TCP──► Session ──► Database ◄── http ◄──HTTP── consumers, nsqadmin, nsqd
//!                     └── events ──┴── events ──► log
//! ```
//!
//! [`Database`](database::Database), [`Decoder`](decoder::Decoder), [`Session`](session::Session)
//! and the answers in [`http`] are state machines and functions without sockets and clocks.
//! [`server`] is the shell around them, on tokio. Start with `session.rs`. The contract is nsqlookupd 1.3.0, byte for byte,
//! but for its crashes.

#![forbid(unsafe_code)]

pub mod config;
pub mod database;
pub mod decoder;
pub mod event;
pub mod http;
pub mod peer;
pub mod server;
pub mod session;
mod stream;
