//! What a log tells its topic: [`Notice`], [`Taken`], [`Look`] and [`LogStats`].

use std::sync::Arc;
use std::time::Duration;

use wire::id::Seq;

use crate::error::Damage;
use crate::file_name::SegmentNumber;
use crate::range::SeqRange;
use crate::request::{CheckpointNumber, Request};
use crate::segment::Head;

/// A message of a log to its topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Appends that would have blocked or were refused may be tried again.
    Room,
    /// No room could be made: refuse the publishes that wait for it.
    RoomRefused {
        /// The failed attempt, its file, and the system's answer.
        cause: Arc<str>,
        /// True if the log had room before, or lacked it for another kind of reason.
        is_new: bool,
    },
    /// These seqs are resident now: a whole segment, or the part of it that a peek has read.
    Loaded(SeqRange),
    /// These seqs could not be made resident. If the file is gone they are damaged from now on;
    /// otherwise the log tries again by itself.
    LoadFailed(SeqRange, Arc<str>),
    /// Everything below is synced, or nobody holds it any more.
    Synced(Seq),
    /// A sync could not open its files. Nothing is lost, and the log tries again by itself. If several syncs in a row
    /// fail in this way, the log tells of the first, and then of one every 10 s.
    SyncDelayed(Arc<str>),
    /// A segment could not be copied to a file of its own. Nothing is lost: it stays in memory, and
    /// is tried again.
    SpillFailed(Arc<str>),
    /// A sync failed: the log takes no more messages. Told once.
    SyncFailed(Arc<str>),
    /// This checkpoint, and with it every one of a lower number, is written.
    Checkpointed {
        /// The checkpoint.
        number: CheckpointNumber,
        /// True if it is durable; never after a failed sync.
        synced: bool,
    },
    /// This checkpoint could not be written; an older one stands. It is due again.
    CheckpointFailed {
        /// The checkpoint.
        number: CheckpointNumber,
        /// The failed attempt, its file, and the system's answer.
        cause: Arc<str>,
    },
    /// The topic's file was written, or could not be. An older file stands then.
    TopicFileWritten(Result<(), Arc<str>>),
    /// The topic's file was written, and could not be given its name. An older file stands.
    TopicFileNotRenamed(Arc<str>),
    /// The topic's state of all messages below this seq is durable.
    StateSaved(Seq),
    /// The topic's state of all messages below this seq could not be saved; an older one stands.
    StateFailed(Seq, Arc<str>),
    /// Something on disk is not what was written there.
    Damage(Damage),
}

/// The result of [`Log::take_run`](super::Log::take_run).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Frames to send.
    Run(Run),
    /// The segment is not resident; the keeper was asked. Try again after [`Notice::Loaded`].
    Loading,
    /// These messages are lost, and are counted already. Release them and continue behind them.
    Damaged(SeqRange),
}

/// One contiguous piece of one segment: whole frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The seq of the first frame.
    pub first: Seq,
    /// The number of frames.
    pub count: u32,
    /// The offset in the segment at which the run starts.
    pub start: u32,
    /// The offset in the segment at which the run ends.
    pub end: u32,
}

/// The place of a message on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColdMessage {
    /// The file.
    pub segment: SegmentNumber,
    /// The content of the file's head. If the file is used again in the meantime, its head is another one.
    pub head: Head,
    /// The number of the message in the segment.
    pub index: u32,
}

impl ColdMessage {
    /// Returns the job that reads the message, and changes nothing.
    #[must_use]
    pub fn read_request(&self) -> Request {
        Request::Peek {
            segment: self.segment,
            head: self.head,
            indices: self.index..self.index.saturating_add(1),
        }
    }
}

/// The result of [`Log::look`](super::Log::look).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look<'a> {
    /// The message is in memory: its whole frame.
    Frame(&'a [u8]),
    /// The message is not in memory, or its memory is on its way.
    Cold(ColdMessage),
    /// The message is damaged.
    Damaged,
    /// The log does not have the message.
    Gone,
}

/// Facts for /stats and /ping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Bytes of all segment files, the spare and the pool included.
    pub disk_bytes: u64,
    /// Bytes of all segments in memory, the spare and the pool included.
    pub memory_bytes: u64,
    /// Segments that hold messages.
    pub segment_count: u64,
    /// Segments that hold messages and are not in memory.
    pub cold_segment_count: u64,
    /// Mappings held, the spare and the pool included.
    pub mappings: u64,
    /// Messages lost to damage that start-up or this run has found.
    pub damaged_count: u64,
    /// Syncs that have ended well.
    pub sync_count: u64,
    /// The time from request to answer of these syncs, all together.
    pub sync_time: Duration,
}
