//! nsqd: the shell around the rules in `engine-core`.
//!
//! This crate owns everything that touches the outside: flags, log lines, sockets, the reactor, the
//! keeper's threads, HTTP, nsqd.dat. It decides nothing about messages.
//!
//! ```text
//!   main ──► config ──► daemon ──► lock, preflight, takeover, recovery ──► one shard per core
//!                                                                 │
//!   net/ (TCP) ─┐                                                 ▼
//!   http/ ──────┴──────────────────────────────────► shard: engine_core::Broker
//!                                                       │  └──► shard/mail ──► other shards
//!                                                       └─────► shard/storage ──► diskq::Keeper
//! ```

#![deny(unsafe_code)]

mod auth;
pub mod config;
pub mod daemon;
pub mod http;
mod http_client;
pub mod log;
mod lookup;
mod metadata_writer;
pub mod net;
pub mod preflight;
mod reactor;
mod shard;
mod slice;
mod statsd;
mod takeover;
mod tls;
mod workers;
