//! [`Keeper`]: does one job after another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use diskq_log::segment::Head;
use diskq_log::{Failure, Memory, Reply, Request, segment_file};

use crate::data_path::DataPath;
use crate::files::Files;
use crate::mapping;

use super::directory::LogDirectory;

/// Does the jobs of all logs below one data path. Clones share what is remembered.
#[derive(Clone, Debug)]
pub struct Keeper<F: Files> {
    pub(super) files: F,
    pub(super) data_path: DataPath,
    /// The topics whose logs could not be deleted, and why.
    pub(super) undeleted: Arc<Mutex<BTreeMap<String, Failure>>>,
}

impl<F: Files> Keeper<F> {
    /// Makes a keeper for the logs below `data_path`. All keepers of a process need clones of one [`DataPath`]: a plain
    /// path makes a new `DataPath`, which does not know of the failed syncs of other keepers.
    pub fn new(files: F, data_path: impl Into<DataPath>) -> Keeper<F> {
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

    /// Returns the data path, which has to be synced as well, if file names in a log's directory have changed: the name
    /// of the log's directory may be new, too.
    fn names(&self, have_changed: bool) -> Option<&DataPath> {
        have_changed.then_some(&self.data_path)
    }

    /// Takes memory back: what a [`Request::Free`] brings, or the memory of a reply to a log that is closed. Blocks.
    pub fn free(&self, memory: Memory) {
        self.files.free(memory);
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
            Request::Peek {
                segment,
                bytes,
                generation,
                base,
                indices,
            } => {
                let wanted = Head {
                    generation,
                    base,
                    bytes,
                    node: 0,
                };
                Some(Reply::Peeked {
                    segment,
                    piece: log.peek(segment, &wanted, indices),
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
                written.iter().for_each(mapping::let_go);
                let prepared = log.prepare_sync(&again, &gone);
                let result =
                    prepared.and_then(|()| log.sync(&segments, &copies, self.names(names)));
                Some(Reply::Synced { upto, result })
            }
            Request::WriteCheckpoint {
                number,
                slot,
                draft,
                sync,
                names,
            } => {
                let result = log.write_checkpoint(slot, &draft, sync, self.names(names));
                Some(Reply::CheckpointWritten { number, result })
            }
            Request::Unmap { segment, memory } => {
                self.files.unmap(&log.segment_path(segment), memory);
                None
            }
            Request::Free(memory) => {
                self.free(memory);
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
