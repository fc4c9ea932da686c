//! The topic log.
#![deny(unsafe_code)]

mod checkpoint;
mod error;
mod files;
mod keeper;
mod lock;
mod log;
mod os_files;
mod mapping;
mod range;
mod recovery;
mod segment;
#[cfg(any(test, feature = "sim"))]
mod sim_files;
mod slot;

pub use checkpoint::{ChannelCheckpoint, Checkpoint, CheckpointRun};
pub use error::{AppendError, Damage, DamageKind, DiskError};
pub use files::{Entry, Files, Memory, Populate};
pub use keeper::{
    CheckpointFailure, CheckpointNumber, Failure, Keeper, Reply, Request, SegmentNumber,
};
pub use lock::{DataPathLock, check_writable};
pub use log::{Event, Log, LogOptions, LogStats, Run, Taken};
pub use mapping::install_sigbus_reporter;
pub use os_files::OsFiles;
pub use range::SeqRange;
pub use recovery::{Recovered, list_logs, open_log};
#[cfg(any(test, feature = "sim"))]
pub use sim_files::{Call, Crash, SimFiles};
pub use wire::id::Seq;
