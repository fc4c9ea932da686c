//! `diskq-import`: converts the files of the original nsqd to logs of ours and back.
//!
//! ```text
//!   nsqd.dat ◄──────── Metadata ────────► kept in place, byte for byte as nsqd writes it
//!   *.diskqueue.*.dat ── take_over ─────► logs of ours
//!   *.diskqueue.*.dat ◄──── export ────── logs of ours
//! ```
//!
//! The crate owns the formats of nsqd, import and export. It knows no clients
//! and no sockets. The crates below it store the logs. Everything here blocks. Start with `import.rs`. A change of what is
//! taken over has a test with files that the original has written.
#![forbid(unsafe_code)]

mod export;
mod import;
mod metadata;
mod nsqd_files;
mod permissions;

pub use export::{ExportOptions, Exported, export};
pub use import::{
    DONE as COMMITTED_TAKEOVER, DueContent, DueTakeover, Takeover, TakeoverOptions, TopicTakeover,
    due_takeover, read_due, take_over,
};
pub use metadata::{FILE_NAME, Metadata};
pub use permissions::Exposed;
