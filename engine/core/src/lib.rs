//! The rules of NSQ, without I/O.
//!
//! This crate owns what a broker decides: who gets which message, what is answered to which command,
//! when something times out. It refuses to read a clock, open a socket or a file, start a thread,
//! draw an unseeded random number or log a line. Time and input come in as arguments, effects come
//! out as [`Output`]s, so a seeded simulation can drive the real thing through millions of steps
//! (`tests/simulation.rs`).
//!
//! ```text
//!   bytes of a connection ──► Broker::receive ──► Topic::publish ──► diskq::Log (mapped memory)
//!                                   │                    │ distribute, once a turn
//!                              FIN, REQ, ...             ▼
//!                                   └──────────────► Channel: ranges, window, requeued, deferred
//!                                                        │ deliver
//!   bytes for a connection ◄── Broker::output ◄── Outbound: own bytes and runs of the log
//! ```
//!
//! One [`Broker`] is one shard. The shell calls, in any order: [`Broker::connect`],
//! [`Broker::receive`], [`Broker::disconnect`], [`Broker::handle_reply`], [`Broker::handle_timeout`]
//! and the administrative calls; at the end of each turn it calls [`Broker::end_turn`], performs the
//! outputs and writes what [`Broker::take_clients_to_flush`] names.

#![forbid(unsafe_code)]

mod auth;
mod broker;
mod channel;
mod client;
mod deferred;
mod discarded;
mod latency;
mod long_queue;
mod outbound;
mod patience;
mod ranges;
mod slab;
pub mod stats;
mod topic;
mod topology;
mod window;
mod work;

pub use auth::{AuthQuery, Authorization, Grants};
pub use broker::publish::REMOTE_STREAK_MAX;
pub use broker::{
    AdminError, Broker, BrokerOptions, Change, DeletedLog, ForwardBatch, ForwardId, ForwardReply,
    Level, Outcome, Output, Sent, Wakeup, place,
};
pub use client::{Client, ClientId, TlsSession};
pub use latency::LatencyOptions;
pub use outbound::Piece;
pub use slab::{Key, Slab};
pub use topic::{Publication, TopicKey, TopicOptions};
pub use topology::Topology;
pub use window::TICK;
pub use work::TURN_ENTRIES;

use std::time::Duration;

/// Both clocks, read once by the shell for a batch of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Monotonic time since the start of the process: for every deadline.
    pub mono: Duration,
    /// Unix time in nanoseconds: for timestamps of messages and what must survive a restart.
    pub wall_ns: u64,
}

/// A shard of this process, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u32);

/// A channel of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u32);

/// A task of the shell that waits for the broker, for example an HTTP request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// A small seeded generator (splitmix64): sampling needs no better one, and the simulation needs
/// the same draws for the same seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator that repeats itself for the same seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; the bias is below 2^-32 for the bounds used here.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }
}
