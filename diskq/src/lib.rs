//! `diskq`: the disk below the logs of topics.
//!
//! The crate does what a log asks for ([`Request`]): it maps, writes, syncs and removes files, and recovers logs from
//! them at start. The log itself, and the bytes of segments and checkpoints, are in the crate `diskq-log`, whose names
//! are re-exported here. Neither crate knows of clients, channels' rules or sockets.
//!
//! ```text
//!   topic ── append ─► Log ─── Request ──► Keeper ──► Files ──► OsFiles
//!   topic ◄─ runs ──── Log ◄── Reply ───── Keeper
//!                       ▲
//!                       └── open_log: checkpoint, heads, slots a crash may have torn
//!
//!   <data-path>/<topic>.log/000000000001.segment    frames forward, slots backward
//!                           checkpoint              what is still owed to whom, in three places
//!                           keys                    the topic's own file, if it has one
//!                           dedup.a, dedup.b        what the topic saves of its messages, in turns
//! ```
//!
//! # Promises
//!
//! This crate keeps the promises of the crate `diskq-log`, and these:
//!
//! - **What was appended survives the process.** A message is in the page cache when
//!   [`Log::append`] returns; after a kill, [`open_log`] finds every one of them.
//! - **What is synced survives a power loss** ([`Log::synced`]), until it is released by all its
//!   holders, and a durable checkpoint no longer names it.
//! - **Whatever comes from the disk is checked** before it is handed out. Nothing of a recycled file's earlier life is
//!   valid.
//! - **Damage stays small and loud.** A flipped bit costs one message at most. What the checkpoint owes and the disk
//!   lost is counted and reported as [`Damage`], and its bytes are set aside. Damage never stops a start or another
//!   log.
//!
//! Not promised: the kernel may evict pages under memory pressure and read them back, and such pages are checked only
//! if the log itself had let go of them. Two devices that fail at once are not covered, nor is a data path that another
//! program writes to ([`DataPathLock`] keeps nsqd out).
//!
//! Start with `keeper.rs` for the work, and with `recovery.rs` for the start. Each new call of the system goes into
//! `files.rs`, and into the simulated disk of `diskq-sim`. The bytes are drawn in `docs/reference/format.md`.
#![deny(unsafe_code)]

mod data_path;
mod error;
mod files;
mod keeper;
mod lock;
mod log_reader;
mod log_writer;
mod mapping;
mod os_files;
mod platform;
mod recovery;
mod trial;

pub use data_path::DataPath;
pub use diskq_log::segment;
pub use diskq_log::{
    AppendError, ChannelCheckpoint, ChannelDraft, ChannelFacts, Checkpoint, CheckpointDraft,
    CheckpointJob, CheckpointNumber, CheckpointRun, Damage, DamageKind, Durable, Failure,
    GraceCheckpoint, Log, LogOptions, LogStats, Memory, Notice, Pages, PauseTerms, Piece,
    Recovered, Reply, Request, Run, Runs, SPILLED_BYTES, STATE_FILES, SegmentNumber, Seq, SeqRange,
    SlotKind, StateJob, SyncFailure, SyncJob, Taken, TopicFacts, Written,
};
pub use error::{Attempt, DiskError};
pub use files::{Entry, Files, SyncError};
pub use keeper::{
    Keeper, LOG_SUFFIX, Logs, SetAsideFile, SharedSync, Tombstone, deleted_topic, is_media_error,
    log_path, read_topic_file, set_topic_file_aside,
};
pub use lock::{DataPathLock, check_writable};
pub use log_reader::{LogReader, existing, read_newest, undistributed};
pub use log_writer::LogWriter;
pub use mapping::{Buffer, install_sigbus_reporter};
pub use os_files::OsFiles;
pub use recovery::{open_log, read_log};
pub use trial::TrialFile;
