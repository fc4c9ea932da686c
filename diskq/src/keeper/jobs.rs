//! [`Keeper`]: does one job after another.

use std::collections::BTreeMap;
use std::sync::Arc;

use diskq_log::plant;
use diskq_log::{Failure, Memory, Reply, Request, SyncFailure, segment_file};
use parking_lot::Mutex;

use super::directory::LogDirectory;
use crate::data_path::DataPath;
use crate::files::Files;

/// Does the jobs of all logs below one data path. Clones share what is remembered.
#[derive(Clone, Debug)]
pub struct Keeper<F: Files> {
    pub(super) files: F,
    pub(super) data_path: DataPath,
    /// The topics whose logs could not be deleted, and why.
    pub(super) undeleted: Arc<Mutex<BTreeMap<String, Failure>>>,
}

/// Returns whether the files of an earlier process must be synced before this job writes.
pub(super) fn has_sync_first(request: &Request) -> bool {
    plant!(FoundCheckpointBelieved, return false);
    matches!(request, Request::WriteCheckpoint(job) if job.sync_first)
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

    /// Takes memory back: what a [`Request::Free`] brings, or the memory of a reply to a log that is closed. Blocks.
    pub fn free(&self, memory: Memory) {
        self.files.free(memory);
    }

    /// Does one job of the log of `topic`. Blocks.
    pub fn handle(&self, topic: &str, request: Request) -> Option<Reply> {
        let log = self.log(topic);
        match request {
            Request::Prepare {
                segment,
                bytes,
                pages,
            } => {
                let result = log.and_then(|log| log.prepare(segment, bytes, pages));
                Some(Reply::Prepared { segment, result })
            }
            Request::Spill {
                segment,
                memory,
                copy,
                sync,
            } => {
                let log = log.map_err(SyncFailure::Retryable);
                let result = log.and_then(|log| log.spill(segment, &memory, copy, sync));
                Some(Reply::Spilled {
                    segment,
                    memory,
                    copy,
                    result,
                })
            }
            Request::Peek {
                segment,
                head,
                indices,
            } => {
                let piece = log.ok().and_then(|log| log.peek(segment, &head, indices));
                Some(Reply::Peeked { segment, piece })
            }
            Request::Load {
                segment,
                head,
                count,
                cached,
                reuse,
            } => {
                let result = match log {
                    Ok(log) => log.load(segment, &head, count, cached, reuse),
                    Err(why) => {
                        reuse.into_iter().for_each(|memory| self.free(memory));
                        Err(why)
                    }
                };
                Some(Reply::Loaded { segment, result })
            }
            Request::Sync(_) | Request::WriteCheckpoint(_) => {
                request.durable_reply(self.do_with_sync(topic, &request))
            }
            Request::WriteState(job) => {
                let boundary = job.boundary;
                let result = log.map_err(SyncFailure::Retryable);
                let result = result.and_then(|log| log.save_state(&job, &self.data_path));
                Some(Reply::StateWritten { boundary, result })
            }
            Request::WriteTopicFile { file, contents } => {
                let result = log.and_then(|log| log.write_topic_file(file, &*contents));
                Some(Reply::TopicFileWritten { file, result })
            }
            Request::RenameTopicFile(file) => {
                let renamed = log.and_then(|log| log.rename_topic_file(file));
                renamed.err().map(Reply::TopicFileNotRenamed)
            }
            Request::Unmap { .. }
            | Request::Free(_)
            | Request::Drop(_)
            | Request::SetAside(_)
            | Request::Discard { .. } => {
                self.clear_away(log.ok(), request);
                None
            }
        }
    }

    /// Does a job that takes something back from a log, and has no answer. Without the directory of the log, only memory
    /// is freed.
    fn clear_away(&self, log: Option<LogDirectory<'_, F>>, request: Request) {
        match (request, log) {
            (Request::Unmap { segment, memory }, Some(log)) => {
                self.files.unmap(&log.segment_path(segment), memory);
            }
            (Request::SetAside(segment), Some(log)) => {
                // If the file stays, the next start finds that nobody holds it.
                let _ = log.rename_aside(&segment_file(segment));
            }
            (Request::Discard { segment, memory }, Some(log)) => log.discard(segment, memory),
            (Request::Unmap { memory, .. } | Request::Free(memory), _) => self.free(memory),
            (Request::Discard { memory, .. }, None) => {
                memory.into_iter().for_each(|memory| self.free(memory));
            }
            // What the job brings is dropped with it.
            _ => {}
        }
    }

    /// Returns the directory of a topic's log. Fails if an earlier topic of this name could not be deleted: the
    /// directory holds that topic's messages.
    fn log(&self, topic: &str) -> Result<LogDirectory<'_, F>, Failure> {
        match self.undeleted.lock().get(topic) {
            Some(failure) => Err(failure.clone()),
            None => Ok(LogDirectory::new(&self.files, &self.data_path, topic)),
        }
    }

    /// Does the part of a job that comes before its sync.
    pub(super) fn do_up_to_sync(&self, topic: &str, request: &Request) -> Result<(), SyncFailure> {
        let log = self.log(topic).map_err(SyncFailure::Retryable)?;
        match request {
            Request::Sync(job) => log.prepare_sync(job),
            Request::WriteCheckpoint(job) => log.write_checkpoint(job),
            _ => Ok(()),
        }
    }

    /// Does a job that ends with a sync: of files, and of names if some have changed. The name of the log's directory may
    /// be new, too, so the data path is synced with the names.
    fn do_with_sync(&self, topic: &str, request: &Request) -> Result<(), SyncFailure> {
        let log = self.log(topic).map_err(SyncFailure::Retryable)?;
        if has_sync_first(request) {
            // An earlier process has written the checkpoint file. The names may be as new.
            log.sync_file(&log.checkpoint_path())?;
            log.sync_names(&self.data_path)?;
        }
        self.do_up_to_sync(topic, request)?;
        let have_names_changed = match request {
            Request::Sync(job) => {
                log.sync(job)?;
                job.names
            }
            Request::WriteCheckpoint(job) => {
                if job.sync {
                    log.sync_file(&log.checkpoint_path())?;
                }
                job.names
            }
            _ => false,
        };
        if have_names_changed {
            log.sync_names(&self.data_path)?;
        }
        Ok(())
    }
}
