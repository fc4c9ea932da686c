//! `diskq-log`: the log of a topic as a state machine, and the bytes that it keeps on disk.
//!
//! The crate makes no system call. The log reads and writes bytes that were lent to it ([`Memory`]), and cannot unmap
//! them: what has to be done to files comes out as a [`Request`], and each memory goes back in one. The crate `diskq`
//! does these jobs, and recovers logs.
//!
//! ```text
//!   topic ── append ─► Log ─── Request ──► diskq: Keeper ──► Files
//!   topic ◄─ runs ──── Log ◄── Reply ───── diskq: Keeper
//!                       ▲
//!                       └── Recovered ──── diskq: open_log
//! ```
//!
//! # Promises
//!
//! - **A reactor never waits.** No call of [`Log`] blocks; all that may block is a [`Request`].
//! - **Never a wrong message.** A slot's CRC covers the frame, its place, its seq and the generation of the segment.
//! - **A seq is used once**, over crashes too.
//! - **A full disk refuses appends at once** ([`AppendError::Full`]); reading, releasing and checkpoints need no room.
//! - **A failed sync is final** ([`AppendError::Poisoned`]); a sync that could not start for want of a descriptor is not
//!   a failed one, and is tried again.
//!
//! Start with `log.rs`, then docs/explain/log.md. A new job for the disk is a variant of [`Request`] and of [`Reply`],
//! and its work in the keeper of the crate `diskq`. The bytes are drawn in `docs/reference/format.md`. The only unsafe
//! code is one call of the processor's CRC instruction (`crc.rs`).
#![deny(unsafe_code)]

#[macro_use]
pub mod planted;

pub mod checkpoint;
mod crc;
mod error;
mod file_name;
mod log;
mod memory;
mod now;
pub mod policy;
mod random;
pub mod range;
mod recovered;
mod request;
pub mod segment;
pub mod slot;
mod state;

pub use checkpoint::{
    ChannelCheckpoint, ChannelDraft, Checkpoint, CheckpointDraft, CheckpointRun, GraceCheckpoint,
    GraceDraft, PauseTerms, Runs, UndoCheckpoint, UndoDraft,
};
pub use crc::crc32c;
pub use error::{AppendError, Damage, DamageKind};
pub use file_name::{
    SegmentNumber, file_number, is_partial_file, partial_file, segment_file, segment_number,
};
pub use log::{
    Checkpoints, ColdMessage, Durable, FoundLog, Log, LogOptions, LogStats, Look, Notice,
    Residency, Run, Segment, States, Taken,
};
pub use memory::{Memory, Pages, Written};
pub use now::Now;
pub use random::{Random, splitmix64};
pub use range::SeqRange;
pub use recovered::{ChannelFacts, FoundDeferral, NewestMessages, Recovered, TopicFacts};
pub use request::{
    CheckpointJob, CheckpointNumber, Failure, Piece, Reply, Request, StateJob, SyncFailure, SyncJob,
};
pub use segment::{SPILLED_BYTES, next_generation};
pub use slot::SlotKind;
pub use state::{
    STATE_FILES, STATE_HEAD_BYTES, SavedState, StateContent, TOPIC_FILE, TopicFile, UnfinishedFile,
    decode_state, encode_state_head, is_unfinished_file,
};
pub use wire::id::Seq;
