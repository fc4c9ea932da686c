//! [`FoundLog`]: a log as start-up found it.

use wire::id::Seq;

use crate::file_name::SegmentNumber;

use super::checkpoints::Checkpoints;
use super::segments::Segment;
use super::states::States;

/// The facts from which start-up makes a [`Log`](super::Log).
#[derive(Debug)]
pub struct FoundLog {
    /// The segments with messages: sorted by seq, not overlapping, none resident.
    pub segments: Vec<Segment>,
    /// The seq of the next append.
    pub next: Seq,
    /// Everything below is synced.
    pub synced: Seq,
    /// The number of the next segment file.
    pub next_number: SegmentNumber,
    /// The checkpoints that were found.
    pub checkpoints: Checkpoints,
    /// The saved states that were found.
    pub states: States,
    /// The number of messages that are lost.
    pub damaged_count: u64,
    /// Files whose names have to be gone for good before anything is synced.
    pub voided: Vec<SegmentNumber>,
}
