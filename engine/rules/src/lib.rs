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
//! Start with `broker/receive.rs`, and follow a message as docs/architecture.md does. A new rule is a change of `topic` or
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
mod coalescing;
mod dead_letter_rules;
mod dead_letters;
mod deferred;
mod dirty_set;
mod discarded;
mod drain;
mod due_times;
mod forward;
mod ids;
mod latency;
mod latency_histogram;
mod long_queue;
mod now;
mod outbound;
mod owed;
mod pause;
mod peek;
mod random;
mod ranges;
mod refusal;
mod required;
mod seq_set;
mod single_message;
pub mod stats;
mod tls;
mod topic;
mod topology;
mod unclaimed;
mod undo;
mod window;
mod window_histogram;
mod work;

pub use auth::{AuthQuery, Authorization, Grants};
pub use broker::admin::{AdminError, Outcome};
pub use broker::output::{Change, DeletedLog, Level, Output, Wakeup};
pub use broker::publish::REMOTE_STREAK_MAX;
pub use broker::turn::Sent;
pub use broker::{Broker, BrokerOptions, place};
pub use channel::dead_letters::DEAD_LETTER_BYTES;
pub use client::Client;
pub use dead_letter_rules::{DeadLetterError, DeadLetterRule, DeadLetterRules};
pub use diskq_log::{ColdMessage, Seq};
pub use drain::{Drain, DrainStep};
pub use engine_dedup::{
    ContentKey, ContentRule, DedupRule, DedupRules, JsonPointer, KeyWindow, Publication,
    PublisherRule, RestoredKeys, RuleMemory, SavedKeys, has_publishers, rule_memory,
};
pub use forward::{ForwardBatch, ForwardId, ForwardReply};
pub use ids::{ClientId, ShardId, TaskId, TopicKey};
pub use latency::LatencyOptions;
pub use latency_histogram::{LATENCY_BOUNDS_NS, LatencyHistogram};
pub use now::Now;
pub use outbound::Piece;
pub use owed::Owed;
pub use pause::{PAUSE_TIME_MAX, Pause};
pub use peek::{
    LogEnd, PeekBudget, PeekFrom, PeekPlace, PeekQuestion, PeekSlice, PeekState, PeekedFrame,
    PeekedMessage,
};
pub use random::Random;
pub use refusal::Refusal;
pub use required::Required;
pub use tls::TlsSession;
pub use topic::{GraceOptions, TopicOptions};
pub use topology::Topology;
pub use unclaimed::{UnclaimedBounds, UnclaimedRules};
pub use undo::{NoUndo, UNDO_TIME_MAX};
pub use window::TICK;
pub use work::TURN_ENTRIES;
