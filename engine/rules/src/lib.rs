//! The rules of NSQ, without I/O.
//!
//! This crate owns what a broker decides: who gets which message, what is answered to which command,
//! when something times out. It refuses to read a clock, open a socket or a file, start a thread,
//! draw an unseeded random number or log a line. Time and input come in as arguments, effects come
//! out as [`Output`]s, so a seeded simulation can drive the real thing through millions of steps
//! (`tests/simulation.rs`).
//!
//! ```text
//!   bytes of a connection ──► Broker::receive ──► Topic::publish ──► diskq_log::Log (mapped memory)
//!                                   │                    │ distribute, once a turn
//!                              FIN, REQ, ...             ▼
//!                                   └──────────────► Channel: ranges, window, requeued, deferred
//!                                                        │ deliver
//!   bytes for a connection ◄── Broker::output ◄── Outbound: own bytes and runs of the log
//! ```
//!
//! Start with `broker/receive.rs`, and follow a message as docs/explain/architecture.md does. A new rule is a change of
//! `topic` or
//! `channel`, a figure in `stats.rs`, and an action or a check of the simulation.
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
mod dirty_set;
mod drain;
mod forward;
mod ids;
mod latency;
mod long_queue;
mod output;
mod pause;
mod peek;
mod ranges;
pub mod stats;
mod topic;
mod undo;
mod window;
mod work;

pub use auth::{AuthQuery, Authorization, Grants, TlsSession};
pub use broker::admin::{Act, AdminError, Outcome};
pub use broker::options::{BrokerOptions, Required};
pub use broker::publish::REMOTE_STREAK_MAX;

pub use broker::{Broker, Sent, shard_of};
pub use channel::dead_letters::{
    DEAD_LETTER_BYTES, DeadLetterError, DeadLetterRule, DeadLetterRules,
};
pub use client::Client;
pub use client::consumer::Topology;
pub use client::output::Piece;
pub use diskq_log::{ColdMessage, Now, Random, Seq};
pub use drain::{Drain, DrainStep, Owed};
pub use engine_dedup::{
    ContentKey, ContentRule, DedupRule, DedupRules, JsonPointer, KeyWindow, Publication,
    PublisherRule, RestoredKeys, RuleMemory, SavedKeys, has_publishers, rule_memory,
};
pub use forward::{ForwardBatch, ForwardId, ForwardReply};
pub use ids::{ClientId, ShardId, TaskId, TopicKey};
pub use latency::{LATENCY_BOUNDS_NS, LatencyHistogram, LatencyOptions};
pub use output::{Change, DeletedLog, Level, Output, Refusal, Wakeup};
pub use pause::{PAUSE_TIME_MAX, Pause};
pub use peek::{
    LogEnd, PeekBudget, PeekFrom, PeekPlace, PeekQuestion, PeekSlice, PeekState, PeekedFrame,
    PeekedMessage,
};
pub use topic::unclaimed::{UnclaimedBounds, UnclaimedRules};
pub use topic::{GraceOptions, TopicOptions};
pub use undo::{NoUndo, UNDO_TIME_MAX};
pub use window::TICK;
pub use work::TURN_ENTRIES;
