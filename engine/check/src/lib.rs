//! What `nsqd --check` asks and a start does not: the disk, the files of the original nsqd, and the node that is to be
//! replaced.
//!
//! ```text
//!   file_system   keeps what it has reserved and synced
//!   disk          room, files that can be mapped, the time of a sync
//!   takeover      the queues of the original nsqd: messages, time, room, and what cannot be read
//!   old_node      the nsqd that runs now, over HTTP: its clients, the features in use, its backlog
//! ```
//!
//! Each check is a question to the system or to the node, and a pure judgement of the answer. The tests give the judgements
//! answers of systems that we do not have. The crate knows no flags and changes nothing: it leaves no file behind. Start
//! with `old_node.rs`. A client library that is tried has a row there, in `TRIED`.

#![forbid(unsafe_code)]

pub mod disk;
pub mod file_system;
pub mod old_node;
pub mod takeover;
