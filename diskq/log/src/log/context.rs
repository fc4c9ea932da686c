//! [`LogOptions`]: the settings that the owner of a log chooses. [`Context`]: what the parts of a log share.

use std::collections::VecDeque;
use std::time::Duration;

use crate::file_name::SegmentNumber;
use crate::memory::Memory;
use crate::request::Request;
use crate::segment::SPILLED_BYTES;
use crate::slot::SlotKind;

use super::answers::Notice;

/// The settings of a log. The rules that nobody chooses are in `policy.rs`.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The node id inside every message id.
    pub node: u16,
    /// The size of a log's first segment.
    pub segment_bytes_min: u32,
    /// The size up to which segments grow with the flow.
    pub segment_bytes_steady: u32,
    /// The size up to which segments grow with the live backlog: `--max-bytes-per-file`, at most 64 MiB. A larger batch
    /// gets a segment of its size.
    pub segment_bytes_max: u32,
    /// Messages kept in memory (`--mem-queue-size`); beyond that sealed segments are only on disk.
    pub resident_messages: u64,
    /// Bytes that may stay resident whatever `resident_messages` says.
    pub resident_bytes_min: u64,
    /// Unsynced messages that start a sync (`--sync-every`).
    pub sync_every: u64,
    /// The longest time a message stays unsynced, and between checkpoints (`--sync-timeout`).
    pub sync_timeout: Duration,
    /// Recycled segments kept for the next appends; more of them up to `resident_bytes_min`.
    pub pool_segments_min: usize,
    /// The kind of the slots of new segments: with the origins of the messages, or without.
    pub slots: SlotKind,
    /// The random number of the process, which seeds the generations. Fixed in simulation.
    pub process_seed: u64,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            node: 0,
            segment_bytes_min: 32 << 10,
            segment_bytes_steady: 1 << 20,
            segment_bytes_max: SPILLED_BYTES,
            resident_messages: 10_000,
            resident_bytes_min: 8 << 20,
            sync_every: 2_500,
            sync_timeout: Duration::from_secs(2),
            pool_segments_min: 4,
            slots: SlotKind::Plain,
            process_seed: 0,
        }
    }
}

/// What the parts of a log share.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) options: LogOptions,
    /// The newest time any call has brought.
    pub(super) mono: Duration,
    /// The jobs for the keeper.
    pub(super) requests: VecDeque<Request>,
    /// The topic is told of this with the next answer of the keeper.
    pub(super) notices: Vec<Notice>,
    /// Every file up to this number existed when the last reply came.
    pub(super) prepared_upto: SegmentNumber,
    /// The time at which the last sync began.
    pub(super) sync_began: Option<Duration>,
}

impl Context {
    pub(super) fn new(options: LogOptions) -> Context {
        Context {
            options,
            mono: Duration::ZERO,
            requests: VecDeque::new(),
            notices: Vec::new(),
            prepared_upto: SegmentNumber(0),
            sync_began: None,
        }
    }

    #[inline]
    pub(super) fn see(&mut self, mono: Duration) {
        self.mono = self.mono.max(mono);
    }

    pub(super) fn ask(&mut self, request: Request) {
        self.requests.push_back(request);
    }

    pub(super) fn tell(&mut self, notice: Notice) {
        self.notices.push(notice);
    }

    /// Has a file removed, and its memory unmapped.
    pub(super) fn discard(&mut self, segment: SegmentNumber, memory: Option<Memory>) {
        self.ask(Request::Discard { segment, memory });
    }

    /// Gives memory back that is no file's.
    pub(super) fn free(&mut self, memory: impl IntoIterator<Item = Memory>) {
        let memory = memory.into_iter();
        self.requests.extend(memory.map(Request::Free));
    }
}
