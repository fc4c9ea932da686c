//! [`Request`] and [`Reply`]: a log's jobs for the keeper, and the keeper's answers.

use std::any::Any;
use std::io;
use std::ops::Range;
use std::path::Path;

use wire::id::Seq;

use crate::checkpoint::CheckpointDraft;
use crate::error::Damage;
use crate::file_name::SegmentNumber;
use crate::memory::{Memory, Pages, Written};
use crate::range::SeqRange;
use crate::segment::Head;
use crate::state::{TopicFile, UnfinishedFile};
use wire::go_error::system_text;

/// Names a checkpoint within its log; newer ones are higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CheckpointNumber(pub u64);

/// A job for the keeper. The keeper does the jobs of one log in the order in which the log gave them, with two
/// exceptions: independent jobs ([`Request::is_independent`]) and urgent jobs ([`Request::is_urgent`]) may overtake other jobs.
#[derive(Debug)]
pub enum Request {
    /// Allocate, map and populate a new segment file.
    Prepare {
        /// The new file.
        segment: SegmentNumber,
        /// Its size.
        bytes: u32,
        /// The pages of its memory.
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
        /// True if it must be durable before the reply.
        sync: bool,
    },
    /// Read a few messages of a cold segment, from the one that a reader waits for, and check them. A [`Request::Load`]
    /// of the whole segment follows.
    Peek {
        /// The file.
        segment: SegmentNumber,
        /// The segment's head, which the messages must agree with.
        head: Head,
        /// The indices of the messages to read; the first message of the segment has index 0.
        indices: Range<u32>,
    },
    /// Read a segment back and check every message in it.
    Load {
        /// The file.
        segment: SegmentNumber,
        /// The segment's head, which the messages must agree with.
        head: Head,
        /// The number of its messages.
        count: u32,
        /// True if the page cache may hold newer bytes than the disk: see [`SyncJob::again`].
        cached: bool,
        /// Memory to read it into.
        reuse: Option<Memory>,
    },
    /// Make segments durable.
    Sync(SyncJob),
    /// Write a checkpoint into one of its places.
    WriteCheckpoint(CheckpointJob),
    /// Write what the topic saves of its messages, and make it durable.
    WriteState(StateJob),
    /// Take back the mapping of a segment that stays on disk.
    Unmap {
        /// The file.
        segment: SegmentNumber,
        /// Its memory.
        memory: Memory,
    },
    /// Take back memory that is no file's.
    Free(Memory),
    /// Drop what nobody needs any more. It is so large that a reactor would take too long.
    Drop(Box<dyn Any + Send>),
    /// Keep a segment that the device cannot read wholly, under another name.
    SetAside(SegmentNumber),
    /// Unmap and remove a segment.
    Discard {
        /// The file.
        segment: SegmentNumber,
        /// Its memory, if it is mapped.
        memory: Option<Memory>,
    },
    /// Write the topic's file under a name of its own, and sync it.
    WriteTopicFile {
        /// The name.
        file: UnfinishedFile,
        /// The contents.
        contents: Box<dyn TopicFile>,
    },
    /// Rename a file that was written to [`TOPIC_FILE`](crate::TOPIC_FILE). Until the next sync of the names, a power
    /// failure may bring back the file that was there before.
    RenameTopicFile(UnfinishedFile),
}

/// The job of a [`Request::Sync`].
#[derive(Debug, Default)]
pub struct SyncJob {
    /// The files with unsynced messages.
    pub segments: Vec<SegmentNumber>,
    /// More files with unsynced messages: the copies of earlier [`Request::Spill`]s. A copy that does not exist is no
    /// error: its spill has failed, and the log does not rely on this sync.
    pub copies: Vec<SegmentNumber>,
    /// Their pages that are mapped.
    pub written: Vec<Written>,
    /// Pieces of files to be written again, with the contents of the page cache. A sync that failed in an earlier
    /// process may have left pages that the kernel counts as clean although the disk does not have them.
    pub again: Vec<(SegmentNumber, [Range<u32>; 2])>,
    /// Files to be removed for good; `names` is set if there are any.
    pub gone: Vec<SegmentNumber>,
    /// True if names changed since the last sync: the directories are synced too.
    pub names: bool,
    /// Everything below is synced when this succeeds.
    pub upto: Seq,
}

/// The job of a [`Request::WriteCheckpoint`].
#[derive(Debug)]
pub struct CheckpointJob {
    /// The number of the checkpoint.
    pub number: CheckpointNumber,
    /// The index of the place in the checkpoint file.
    pub place: u8,
    /// The contents of the checkpoint.
    pub draft: CheckpointDraft,
    /// True if the file must be durable before the checkpoint is written: see `Checkpoints::is_newest_doubtful`.
    pub sync_first: bool,
    /// True if it must be durable before the reply.
    pub sync: bool,
    /// True if names changed since the last sync: the directories are synced too.
    pub names: bool,
}

/// The job of a [`Request::WriteState`].
#[derive(Debug)]
pub struct StateJob {
    /// The number of the state.
    pub number: u64,
    /// The index of the file.
    pub file: u8,
    /// The state knows all messages below this seq.
    pub boundary: Seq,
    /// The bytes of the topic.
    pub body: Vec<u8>,
    /// True if the other file must be durable before this one is written.
    pub sync_other: bool,
    /// True if the names of the files may be new: the directories are synced too.
    pub names: bool,
}

impl Request {
    /// Returns whether the request ends with a sync that other requests may share.
    #[must_use]
    pub fn is_sync(&self) -> bool {
        match self {
            Request::Sync(job) => job.names || !job.segments.is_empty() || !job.copies.is_empty(),
            Request::WriteCheckpoint(job) => job.sync,
            _ => false,
        }
    }

    /// Returns true if the request touches no file that another job changes: it reads a cold segment, writes the topic's
    /// file under a name of its own, or only drops something. Such a job may overtake every other job.
    #[must_use]
    pub fn is_independent(&self) -> bool {
        matches!(
            self,
            Request::Peek { .. }
                | Request::Load { .. }
                | Request::WriteTopicFile { .. }
                | Request::Drop(_)
        )
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
            Request::WriteCheckpoint(job) => !job.sync && job.draft.is_short(),
            _ => false,
        }
    }

    /// Makes the reply to a [`Request::Sync`] or [`Request::WriteCheckpoint`] with this result. `None`: the job is
    /// another one.
    #[must_use]
    pub fn durable_reply(&self, result: Result<(), SyncFailure>) -> Option<Reply> {
        match self {
            Request::Sync(SyncJob { upto, .. }) => Some(Reply::Synced {
                upto: *upto,
                result,
            }),
            Request::WriteCheckpoint(CheckpointJob { number, .. }) => {
                let number = *number;
                Some(Reply::CheckpointWritten { number, result })
            }
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

/// The reason why a job failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The kind of the system's answer.
    pub kind: io::ErrorKind,
    /// The failed attempt, its file, and the system's answer.
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
}

/// The answers of the keeper. Unmap, Free, Drop, SetAside and Discard have no answer.
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
        /// `Ok` if the job worked. Otherwise the segment is where it was, and only a failed sync of the directory is
        /// final.
        result: Result<(), SyncFailure>,
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
        /// `Ok` if the job worked.
        result: Result<(), SyncFailure>,
    },
    /// To [`Request::WriteState`].
    StateWritten {
        /// The request's `boundary`.
        boundary: Seq,
        /// `Ok` if the job worked. [`SyncFailure::Final`] means that names of the log may be lost.
        result: Result<(), SyncFailure>,
    },
    /// To [`Request::WriteCheckpoint`].
    CheckpointWritten {
        /// The request's `number`.
        number: CheckpointNumber,
        /// `Ok` if the job worked.
        result: Result<(), SyncFailure>,
    },
    /// To [`Request::WriteTopicFile`].
    TopicFileWritten {
        /// The request's `file`.
        file: UnfinishedFile,
        /// `Ok` if the job worked. Otherwise there is no file.
        result: Result<(), Failure>,
    },
    /// To [`Request::RenameTopicFile`], if the job failed. Otherwise there is no answer.
    TopicFileNotRenamed(Failure),
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
            Reply::Synced { .. }
            | Reply::StateWritten { .. }
            | Reply::CheckpointWritten { .. }
            | Reply::TopicFileWritten { .. }
            | Reply::TopicFileNotRenamed(_) => None,
        }
    }
}

/// The reason why something was not synced, or a checkpoint not written.
#[derive(Clone, Debug)]
pub enum SyncFailure {
    /// Descriptors or memory were short, or there was no room for the checkpoint. Nothing is lost, and an older
    /// checkpoint stands. Worth trying again.
    Retryable(Failure),
    /// A sync failed, what is to be synced is gone, or the checkpoint's file refused a write for which it had room.
    /// Nothing of this log becomes durable any more.
    Final(Failure),
}
