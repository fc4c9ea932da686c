//! What a log asks of the keeper, and what it is answered.

use std::io;
use std::ops::Range;
use std::path::Path;

use wire::id::Seq;

use crate::checkpoint::{CheckpointDraft, TooLong};
use crate::error::Damage;
use crate::file_name::SegmentNumber;
use crate::memory::{Memory, Pages, Written};
use crate::range::SeqRange;
use wire::go_error::system_text;

/// Names a checkpoint within its log; newer ones are higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CheckpointNumber(pub u64);

/// A job for the keeper. The keeper does the jobs of one log in the order in which the log gave them, with two
/// exceptions: reads ([`Request::is_read`]) and urgent jobs ([`Request::is_urgent`]) may overtake other jobs.
#[derive(Debug)]
pub enum Request {
    /// Allocate, map and populate a new segment file.
    Prepare {
        /// The new file.
        segment: SegmentNumber,
        /// Its size.
        bytes: u32,
        /// What its memory is made of.
        pages: Pages,
    },
    /// Copy a sealed segment to a file of its own, so that the memory and the file it belongs to are
    /// free for new messages.
    Spill {
        /// The file that is mapped.
        segment: SegmentNumber,
        /// Its memory.
        memory: Memory,
        /// The new file.
        copy: SegmentNumber,
        /// Whether it must be durable before the reply.
        sync: bool,
    },
    /// Read a few messages of a cold segment, from the one that a reader waits for, and check them. A [`Request::Load`]
    /// of the whole segment follows.
    Peek {
        /// The file.
        segment: SegmentNumber,
        /// Its size.
        bytes: u32,
        /// The generation it must hold.
        generation: u64,
        /// The seq of its first message.
        base: Seq,
        /// The indices of the messages to read; the message at `base` has index 0.
        indices: Range<u32>,
    },
    /// Read a segment back and check every message in it.
    Load {
        /// The file.
        segment: SegmentNumber,
        /// Its size.
        bytes: u32,
        /// The generation it must hold.
        generation: u64,
        /// The seq of its first message.
        base: Seq,
        /// How many messages it holds.
        count: u32,
        /// True if the page cache may hold newer bytes than the disk: see `again` of [`Request::Sync`].
        cached: bool,
        /// Memory to read it into.
        reuse: Option<Memory>,
    },
    /// Make the segments durable.
    Sync {
        /// The files with unsynced messages.
        segments: Vec<SegmentNumber>,
        /// More files with unsynced messages: the copies of earlier [`Request::Spill`]s. A copy that does not exist is
        /// no error: its spill has failed, and the log does not rely on this sync.
        copies: Vec<SegmentNumber>,
        /// Their pages that are mapped.
        written: Vec<Written>,
        /// Pieces of files to be written again, with the contents of the page cache. A sync that failed in an earlier
        /// process may have left pages that the kernel counts as clean although the disk does not have them.
        again: Vec<(SegmentNumber, [Range<u32>; 2])>,
        /// Files to be removed for good; `names` is set if there are any.
        gone: Vec<SegmentNumber>,
        /// Whether names changed since the last sync: the directories are synced too.
        names: bool,
        /// Everything below is synced when this succeeds.
        upto: Seq,
    },
    /// Write a checkpoint into one of its slots.
    WriteCheckpoint {
        /// Its number.
        number: CheckpointNumber,
        /// Which of the slots.
        slot: u8,
        /// The contents of the checkpoint.
        draft: CheckpointDraft,
        /// Whether it must be durable before the reply.
        sync: bool,
        /// Whether names changed since the last sync: the directories are synced too.
        names: bool,
    },
    /// Take back the mapping of a segment that stays on disk.
    Unmap {
        /// The file.
        segment: SegmentNumber,
        /// Its memory.
        memory: Memory,
    },
    /// Take back memory that is no file's.
    Free(Memory),
    /// Keep a segment that the device cannot read wholly, under another name.
    SetAside(SegmentNumber),
    /// Unmap and remove a segment.
    Discard {
        /// The file.
        segment: SegmentNumber,
        /// Its memory, if it is mapped.
        memory: Option<Memory>,
    },
}

impl Request {
    /// Returns whether the request ends with a sync that other requests may share.
    #[must_use]
    pub fn is_sync(&self) -> bool {
        match self {
            Request::Sync {
                segments,
                copies,
                names,
                ..
            } => *names || !segments.is_empty() || !copies.is_empty(),
            Request::WriteCheckpoint { sync, .. } => *sync,
            _ => false,
        }
    }

    /// Returns true if the request only reads a cold segment. Such a job may overtake every other job.
    #[must_use]
    pub fn is_read(&self) -> bool {
        matches!(self, Request::Peek { .. } | Request::Load { .. })
    }

    /// Returns whether a client may wait for the request, and the request may overtake other jobs of its log. It must
    /// not overtake a [`Request::Spill`], which gives back memory, so that fewer new segments are needed.
    ///
    /// A new segment concerns no other file of the log. A checkpoint that need not be durable may be written early,
    /// because the log gives nothing up before a later checkpoint is durable. It overtakes no other checkpoint, because
    /// a log has one at a time. A long checkpoint is not urgent: the urgent jobs of other logs would wait for it.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        match self {
            Request::Prepare { .. } => true,
            Request::WriteCheckpoint { sync, draft, .. } => !sync && draft.is_short(),
            _ => false,
        }
    }

    /// Refuses a job for the reason `why`. Returns the reply to the job, and the job's memory if the reply does not
    /// return that memory.
    #[must_use]
    pub fn refused(self, why: &Failure) -> (Option<Reply>, Option<Memory>) {
        let (reply, memory) = match self {
            Request::Prepare { segment, .. } => {
                let result = Err(why.clone());
                (Reply::Prepared { segment, result }, None)
            }
            Request::Spill {
                segment,
                memory,
                copy,
                ..
            } => {
                let reply = Reply::Spilled {
                    segment,
                    memory,
                    copy,
                    result: Err(why.clone()),
                };
                (reply, None)
            }
            Request::Peek { segment, .. } => {
                let piece = None;
                (Reply::Peeked { segment, piece }, None)
            }
            Request::Load { segment, reuse, .. } => {
                let result = Err(why.clone());
                (Reply::Loaded { segment, result }, reuse)
            }
            Request::Unmap { memory, .. } | Request::Free(memory) => return (None, Some(memory)),
            Request::Discard { memory, .. } => return (None, memory),
            other => return (other.refused_sync(why), None),
        };
        (Some(reply), memory)
    }

    /// The reply to a job that ends with a sync and is not done.
    #[must_use]
    pub fn refused_sync(&self, why: &Failure) -> Option<Reply> {
        let failure = why.clone();
        match self {
            Request::Sync { upto, .. } => Some(Reply::Synced {
                upto: *upto,
                result: Err(SyncFailure::Open(failure)),
            }),
            Request::WriteCheckpoint { number, .. } => Some(Reply::CheckpointWritten {
                number: *number,
                result: Err(CheckpointFailure::Write(failure)),
            }),
            _ => None,
        }
    }

    /// The mapped bytes that it takes along, for a simulated file system.
    #[must_use]
    pub fn segment_image(&self) -> Option<(SegmentNumber, &[u8])> {
        match self {
            Request::Spill {
                segment, memory, ..
            }
            | Request::Unmap { segment, memory } => Some((*segment, memory.as_ref())),
            _ => None,
        }
    }
}

/// Some messages of a segment. Each of their bytes has the same offset in this memory as in the segment.
#[derive(Debug)]
pub struct Piece {
    /// Memory of the segment's size. Bytes outside of these messages are zeros, or unchecked.
    pub memory: Memory,
    /// The messages, all of them checked and whole.
    pub seqs: SeqRange,
}

/// Why a job failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The kind of the system's answer.
    pub kind: io::ErrorKind,
    /// What was attempted, on what, and the answer.
    pub text: String,
}

impl Failure {
    /// Makes the failure of `attempt` on `path`.
    #[must_use]
    pub fn of(attempt: &str, path: &Path, error: &io::Error) -> Failure {
        let text = format!(
            "cannot {attempt} {}: {}",
            path.display(),
            system_text(error)
        );
        Failure {
            kind: error.kind(),
            text,
        }
    }

    /// Returns whether the disk was full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        full.contains(&self.kind)
    }

    /// Makes the failure of a checkpoint that is too long for its file.
    #[must_use]
    pub fn too_long(path: &Path, too_long: &TooLong) -> Failure {
        let text = format!(
            "cannot write {}: the checkpoint needs {} bytes, and may have {}",
            path.display(),
            too_long.bytes,
            u32::MAX
        );
        Failure {
            kind: io::ErrorKind::FileTooLarge,
            text,
        }
    }
}

/// The answers of the keeper. Unmap, Free, SetAside and Discard have no answer.
#[derive(Debug)]
pub enum Reply {
    /// To [`Request::Prepare`].
    Prepared {
        /// The file.
        segment: SegmentNumber,
        /// Its memory, all zeros, or why there is none.
        result: Result<Memory, Failure>,
    },
    /// To [`Request::Spill`].
    Spilled {
        /// The file that is mapped.
        segment: SegmentNumber,
        /// Its memory, unchanged.
        memory: Memory,
        /// The new file, there as a whole if it worked, and not there if not.
        copy: SegmentNumber,
        /// Whether it worked.
        result: Result<(), Failure>,
    },
    /// To [`Request::Peek`].
    Peeked {
        /// The file.
        segment: SegmentNumber,
        /// The messages that were read. `None`: the first message could not be read or is not whole. The load reports
        /// the reason.
        piece: Option<Piece>,
    },
    /// To [`Request::Load`].
    Loaded {
        /// The file.
        segment: SegmentNumber,
        /// Its memory and what was found damaged in it, or why it cannot be had.
        result: Result<(Memory, Vec<Damage>), Failure>,
    },
    /// To [`Request::Sync`].
    Synced {
        /// The request's `upto`.
        upto: Seq,
        /// Whether it worked.
        result: Result<(), SyncFailure>,
    },
    /// To [`Request::WriteCheckpoint`].
    CheckpointWritten {
        /// The request's `number`.
        number: CheckpointNumber,
        /// Whether it worked.
        result: Result<(), CheckpointFailure>,
    },
}

impl Reply {
    /// Returns the memory that the reply brings. It belongs to the keeper ([`Request::Free`]) if there is no log any
    /// more to take the reply.
    #[must_use]
    pub fn into_memory(self) -> Option<Memory> {
        match self {
            Reply::Prepared { result, .. } => result.ok(),
            Reply::Spilled { memory, .. } => Some(memory),
            Reply::Peeked { piece, .. } => piece.map(|piece| piece.memory),
            Reply::Loaded { result, .. } => result.ok().map(|(memory, _)| memory),
            Reply::Synced { .. } | Reply::CheckpointWritten { .. } => None,
        }
    }

    /// Returns false if a job that ends with a sync has failed. The shared sync of such a job may still be to come.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        match self {
            Reply::Synced { result, .. } => result.is_ok(),
            Reply::CheckpointWritten { result, .. } => result.is_ok(),
            Reply::Prepared { .. }
            | Reply::Spilled { .. }
            | Reply::Peeked { .. }
            | Reply::Loaded { .. } => true,
        }
    }

    /// The reply to a job whose sync was done elsewhere, with `synced` as its result. A failed sync replaces any
    /// other result.
    #[must_use]
    pub fn with_sync_result(self, synced: Result<(), SyncFailure>) -> Reply {
        match (self, synced) {
            (Reply::Synced { upto, result }, synced) => Reply::Synced {
                upto,
                result: synced.and(result),
            },
            (Reply::CheckpointWritten { number, result }, synced) => Reply::CheckpointWritten {
                number,
                result: synced.map_err(CheckpointFailure::from).and(result),
            },
            (other, _) => other,
        }
    }
}

/// Why something was not synced.
#[derive(Clone, Debug)]
pub enum SyncFailure {
    /// A file could not be opened for want of descriptors or memory: some are synced, none is lost. Worth
    /// trying again.
    Open(Failure),
    /// A sync failed, or what is to be synced is gone. Final.
    Sync(Failure),
}

/// Why a checkpoint was not written.
#[derive(Debug)]
pub enum CheckpointFailure {
    /// It could not be written for want of room, descriptors or memory: an older one stands. Worth trying
    /// again.
    Write(Failure),
    /// The checkpoint could not be made durable, or its file refused a write for which it had room. This failure is
    /// final, like every failed sync: nothing of this log becomes durable any more.
    Sync(Failure),
}

impl From<SyncFailure> for CheckpointFailure {
    fn from(failure: SyncFailure) -> CheckpointFailure {
        match failure {
            SyncFailure::Open(failure) => CheckpointFailure::Write(failure),
            SyncFailure::Sync(failure) => CheckpointFailure::Sync(failure),
        }
    }
}
