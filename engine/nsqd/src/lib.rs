//! nsqd: the shell around the rules in `engine-rules`.
//!
//! This crate owns everything that touches the outside: nsqd's flags, sockets, the reactor, the
//! keeper's threads, HTTP, nsqd.dat. It decides nothing about messages. What nsqd has in common with NSQ's other
//! programs is in the crate `program`.
//!
//! ```text
//!   main ──► config ──► daemon ──► lock, preflight, recovery ──► one shard per core
//!                                                                       │
//!   shard/connection (TCP) ───┐                                         ▼
//!   http_server ──► http ─────┴───────────────────────► shard: engine_rules::Broker
//!                                                        │  └──► shard/mail ──► other shards
//!                                                        └─────► shard/storage ──► diskq::Keeper
//! ```
//!
//! Start with `main.rs` and `daemon.rs`. A new flag touches `config`, and an HTTP endpoint `http`.
//! docs/explain/architecture.md has the order in which the modules depend on each other, docs/explain/engine.md
//! explains each part, and CONTRIBUTING.md says where to add a flag, a command or an HTTP endpoint.

#![deny(unsafe_code)]

mod auth;
pub mod config;
pub mod daemon;
mod drain;
pub mod http;
mod http_server;
mod lookup;
pub mod net;
pub mod preflight;
pub mod process;
pub mod reactor;
mod shard;
mod statsd;
mod thread_pool;
mod tls;
