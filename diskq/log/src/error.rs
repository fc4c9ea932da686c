//! The failures of a log. An [`AppendError`] refuses a publish. [`Damage`] is no error: the log counts and reports the
//! damage, and skips the damaged messages.

use std::fmt;
use std::sync::Arc;

use crate::range::SeqRange;

/// The reason why an append took nothing. The log is unchanged in every case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// The keeper has been asked for room and is late. Try again after [`Notice::Room`].
    ///
    /// [`Notice::Room`]: crate::Notice::Room
    WouldBlock,
    /// The disk is full. Refuse the publish; the log keeps asking for room by itself.
    Full(Arc<str>),
    /// A sync failed earlier in the life of this log. Refuse every publish from now on.
    Poisoned(Arc<str>),
    /// Room could not be made for another reason, or the message can never fit a segment.
    Io(Arc<str>),
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AppendError::WouldBlock => f.write_str("no segment is ready yet"),
            AppendError::Full(text) => write!(f, "disk full: {text}"),
            AppendError::Poisoned(text) => {
                write!(f, "log is read-only since a failed sync: {text}")
            }
            AppendError::Io(text) => write!(f, "cannot make room: {text}"),
        }
    }
}

impl std::error::Error for AppendError {}

/// The kind of a damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// Slots or frames of messages that were synced do not agree with their CRC.
    Messages,
    /// A segment file that should hold the named messages is not there, or is another's.
    Segment,
    /// A file with a segment's name and no readable header. It is kept under another name.
    Header,
    /// A checkpoint that does not agree with its CRC. Power lost during its write leaves the same picture; the checkpoints
    /// in the other places stand in for it.
    Checkpoint,
    /// The checkpoint file is missing, or its end is: a checkpoint is missing, maybe without a trace.
    CheckpointFile,
    /// A saved state that does not agree with its CRC. Power lost during its write leaves the same picture; the
    /// other file stands in for it.
    State,
    /// Every checkpoint is unreadable: everything found is delivered (again).
    CheckpointLost,
    /// A file could not be read or is not one of ours. It is left alone.
    Foreign,
}

/// Something on disk that is not what was written there. Counted, reported, never fatal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The kind of the damage.
    pub kind: DamageKind,
    /// The file, below the data path.
    pub file: String,
    /// The first byte concerned.
    pub offset: u64,
    /// The messages lost by it; empty if none or unknown.
    pub seqs: SeqRange,
    /// One sentence for the log line, the system's answer included if there was one.
    pub detail: String,
}

impl Damage {
    /// Damage without a place in its file.
    #[must_use]
    pub fn new(kind: DamageKind, file: String, seqs: SeqRange, detail: String) -> Damage {
        Damage {
            kind,
            file,
            offset: 0,
            seqs,
            detail,
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        // Damage of a checkpoint or a missing file has no place.
        if matches!(self.kind, DamageKind::Messages) {
            write!(f, " at byte {}", self.offset)?;
        }
        write!(f, ": {}", self.detail)?;
        let (count, first) = (self.seqs.len(), self.seqs.start.0);
        if count > 0 {
            write!(f, " ({count} messages from seq {first})")?;
        }
        Ok(())
    }
}
