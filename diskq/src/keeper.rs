//! The keeper: does for a log what may block.
//!
//! ```text
//!   reactor                                  keeper's thread
//!   Log::next_request  ------ Request ---->  Keeper::handle
//!   Log::handle_reply  <----- Reply -------
//! ```
//!
//! The keeper remembers nothing between jobs but the deletions that failed; what a job needs is in the request. The
//! jobs of one log must be done in the order the log gave them (a sync before the discard that follows it);
//! different logs may have different keepers. [`Request::is_urgent`] says which may overtake.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use crate::files::Files;
use crate::mapping::Written;
use crate::segment::Head;

mod deletion;
mod directory;
mod request;
mod shared_sync;

pub(crate) use deletion::{LOG_SUFFIX, deleted_topic};
pub use deletion::{Logs, Tombstone};
pub(crate) use directory::{
    LogDirectory, file_number, is_media_error, is_partial_file, log_path, segment_file,
    segment_number, seqs_at,
};
pub use request::{
    CheckpointFailure, CheckpointNumber, Failure, Reply, Request, SegmentNumber, SyncFailure,
};
pub use shared_sync::SharedSync;

/// Does the jobs of all logs below one data path. Clones share what is remembered.
#[derive(Clone, Debug)]
pub struct Keeper<F: Files> {
    files: F,
    data_path: PathBuf,
    /// The topics whose logs could not be deleted, and why.
    undeleted: Arc<Mutex<BTreeMap<String, Failure>>>,
}

impl<F: Files> Keeper<F> {
    /// A keeper for the logs below `data_path`.
    pub fn new(files: F, data_path: impl Into<PathBuf>) -> Keeper<F> {
        Keeper {
            files,
            data_path: data_path.into(),
            undeleted: Arc::default(),
        }
    }

    /// The file system it works on.
    pub fn files(&self) -> &F {
        &self.files
    }

    /// Does one job of the log of `topic`. Blocks.
    pub fn handle(&self, topic: &str, request: Request) -> Option<Reply> {
        let request = match self.refuse(topic, request) {
            Ok(request) => request,
            Err(refusal) => return refusal,
        };
        let log = LogDirectory::new(&self.files, &self.data_path, topic);
        match request {
            Request::Prepare {
                segment,
                bytes,
                pages,
            } => Some(Reply::Prepared {
                segment,
                result: log.prepare(segment, bytes, pages),
            }),
            Request::Spill {
                segment,
                memory,
                copy,
                sync,
            } => {
                let result = log.spill(segment, &memory, copy, sync);
                Some(Reply::Spilled {
                    segment,
                    memory,
                    copy,
                    result,
                })
            }
            Request::Load {
                segment,
                bytes,
                generation,
                base,
                count,
                cached,
                reuse,
            } => {
                let wanted = Head {
                    generation,
                    base,
                    bytes,
                    node: 0,
                };
                Some(Reply::Loaded {
                    segment,
                    result: log.load(segment, &wanted, count, cached, reuse),
                })
            }
            Request::Sync {
                segments,
                copies,
                written,
                again,
                gone,
                names,
                upto,
            } => {
                written.iter().for_each(Written::let_go);
                let prepared = log.prepare_sync(&again, &gone);
                let result = prepared.and_then(|()| log.sync(&segments, &copies, names));
                Some(Reply::Synced { upto, result })
            }
            Request::WriteCheckpoint {
                number,
                slot,
                draft,
                sync,
                names,
            } => {
                let result = log.write_checkpoint(slot, &draft, sync, names);
                Some(Reply::CheckpointWritten { number, result })
            }
            Request::Unmap { segment, memory } => {
                self.files.unmap(&log.segment_path(segment), memory);
                None
            }
            Request::Free(memory) => {
                drop(memory);
                None
            }
            Request::SetAside(segment) => {
                // If the file stays, the next start finds that nobody holds it.
                let (_aside, _renamed) = log.rename_aside(&segment_file(segment));
                None
            }
            Request::Discard { segment, memory } => {
                log.discard(segment, memory);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
