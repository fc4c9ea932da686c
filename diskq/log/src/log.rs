//! [`Log`]: the state machine behind one topic. It does no I/O and never blocks.
//!
//! ```text
//!   life of a segment
//!
//!   Prepare -> spare -> tail -> sealed -> no holder, no pin, no checkpoint names it
//!                 ^               |                      |
//!                 |         Spill |                      v
//!                 |               +---- memory ------> pool -> Discard
//!                 |               | file                 |
//!                 |               v                      |
//!                 |    Load <-> cold -> Discard          |
//!                 +--------------------------------------+
//! ```
//!
//! A backlog beyond what is kept in memory goes through the same few mapped files: each is copied to
//! a file of its own and used again.
//!
//! Each part of the state has a file, and the code that acts on this part has others:
//!
//! ```text
//!   segments.rs      append.rs, read.rs, looking.rs; holders.rs: who needs a segment; residency.rs: spill, load, peek
//!   supply.rs        room.rs: where the next segment comes from
//!   sync.rs          syncing.rs: when a sync starts, and what its result means
//!   checkpoints.rs   progress.rs: when a checkpoint is due, how it is put together, what it keeps
//!   topic_file.rs: the file that the topic keeps beside the log
//!   states.rs        saving.rs: what the topic saves of messages that the log need not have any more
//! ```
//!
//! An append only touches the memory of the tail and a few numbers. All other work happens once per segment, per sync
//! or per checkpoint, and leaves as a [`Request`].

mod append;
mod checkpoints;
mod found;
mod holders;
#[cfg(feature = "sim")]
mod inspect;
mod look;
mod looking;
mod options;
mod progress;
mod read;
mod residency;
mod room;
mod saving;
mod segments;
mod states;
mod supply;
mod sync;
mod syncing;
mod timer;
mod topic_file;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use wire::id::Seq;

use crate::error::Damage;
use crate::file_name::SegmentNumber;
use crate::memory::Memory;
use crate::range::SeqRange;
use crate::request::{CheckpointNumber, Reply, Request};

use segments::Segments;
use supply::Supply;
use sync::Sync;
use timer::Timer;

pub use checkpoints::{Checkpoints, Durable};
pub use found::FoundLog;
pub use look::{ColdMessage, Look};
pub use options::LogOptions;
pub use segments::{Residency, Segment};
pub use states::States;
pub use supply::next_generation;

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

/// The result of [`Log::take_run`].
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

/// Facts for /stats and /ping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Bytes of all segment files, the spare and the pool included.
    pub bytes_on_disk: u64,
    /// Bytes of all segments in memory, the spare and the pool included.
    pub resident_bytes: u64,
    /// Segments that hold messages.
    pub segments: u32,
    /// Segments that hold messages and are not in memory.
    pub cold_segments: u32,
    /// Mappings held, the spare and the pool included.
    pub mappings: u32,
    /// Messages lost to damage that start-up or this run has found.
    pub damaged_count: u64,
    /// Syncs that have ended well.
    pub sync_count: u64,
    /// The time from request to answer of these syncs, all together.
    pub sync_time: Duration,
    /// The answer of [`Log::health`].
    pub health: Option<String>,
}

/// The log of one topic.
///
/// Invariants ([`Log::check`] asserts all but the last one):
/// - sealed segments and the tail are in the order of their seqs and do not overlap;
/// - the tail is resident, and what is pinned is resident;
/// - no sealed segment stays that nobody holds, pins or names;
/// - `synced <= next`, and a sync under way covers no more than was appended;
/// - a spare or pooled segment holds no message anyone may ask for.
#[derive(Debug)]
pub struct Log {
    options: LogOptions,
    segments: Segments,
    /// The seq of the next append; 0 until the first append of a new log asks the clock.
    next: Seq,
    supply: Supply,
    sync: Sync,
    checkpoints: Checkpoints,
    states: States,
    requests: VecDeque<Request>,
    /// Memory for the next loads.
    buffers: Vec<Memory>,
    /// Loads that failed for want of something that may come back, and when to try again.
    load_retries: Vec<(SegmentNumber, Duration)>,
    /// Counts the reads, so that the least recently read segment is known.
    reads: u64,
    /// The newest time any call has brought.
    mono: Duration,
    /// The time at which the last append came, successful or not: a log without appends gives memory back.
    last_append: Duration,
    /// The time at which the last load was asked for.
    last_load: Duration,
    damaged_count: u64,
    /// Damage that was found and is to be told with the next answer of the keeper.
    damage: Vec<Damage>,
    /// Unfinished files of the topic that this log has named.
    topic_files: u64,
}

impl Log {
    /// An empty log. It has no file and no memory until the first append.
    #[must_use]
    pub fn new(options: LogOptions) -> Log {
        Log {
            segments: Segments::default(),
            next: Seq(0),
            supply: Supply::new(&options, SegmentNumber(1)),
            sync: Sync::new(Seq(0)),
            checkpoints: Checkpoints::default(),
            states: States::default(),
            requests: VecDeque::new(),
            buffers: Vec::new(),
            load_retries: Vec::new(),
            reads: 0,
            mono: Duration::ZERO,
            last_append: Duration::ZERO,
            last_load: Duration::ZERO,
            damaged_count: 0,
            damage: Vec::new(),
            topic_files: 0,
            options,
        }
    }

    /// A log as start-up found it. Takes no appends into what was found.
    #[must_use]
    pub fn from_found(options: LogOptions, found: FoundLog) -> Log {
        let mut log = Log::new(options);
        log.supply = Supply::new(&log.options, found.next_number);
        log.next = found.next;
        log.damaged_count = found.damaged_count;
        log.checkpoints = found.checkpoints;
        log.states = found.states;
        log.segments = Segments::from_found(found.segments);
        // Messages that are in the files but perhaps only in the page cache are unsynced.
        let is_synced = log
            .segments
            .iter()
            .all(|segment| segment.end_seq() <= found.synced);
        log.sync = Sync::new(if is_synced { found.next } else { found.synced });
        if !is_synced {
            log.sync.due = Some(Duration::ZERO);
        }
        for copy in found.voided {
            log.sync.voided.push(copy);
        }
        log
    }

    /// The numbers that the next segment file and the next checkpoint get.
    #[must_use]
    pub fn next_numbers(&self) -> (SegmentNumber, u64) {
        (self.supply.next_number, self.checkpoints.last_number() + 1)
    }

    /// The segments that hold messages, in the order of their seqs.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter()
    }

    /// The next job for the keeper. Drain it after every call that changes the log, in order.
    pub fn next_request(&mut self) -> Option<Request> {
        plant!(
            HeadAtTurnEnd,
            if let Some(tail) = &mut self.segments.tail
                && let Residency::Mapped(memory) = &mut tail.residency
            {
                crate::segment::write_head(memory.as_mut(), &tail.head);
            }
        );
        // A sync leaves out segments that nobody holds. The topic retains a message only after its append, so a sync
        // must not start during an append.
        self.fire_if_due(Timer::Sync);
        self.sync_if_wanted();
        self.requests.pop_front()
    }

    /// Takes an answer of the keeper. `notices` is added to.
    pub fn handle_reply(&mut self, mono: Duration, reply: Reply, notices: &mut Vec<Notice>) {
        self.mono = self.mono.max(mono);
        notices.extend(self.damage.drain(..).map(Notice::Damage));
        match reply {
            Reply::Prepared { segment, result } => self.prepared(segment, result, notices),
            Reply::Spilled {
                segment,
                memory,
                copy,
                result,
            } => {
                self.spilled(segment, memory, copy, result, notices);
                self.end_spill(notices);
            }
            Reply::Peeked { segment, piece } => self.peeked(segment, piece, notices),
            Reply::Loaded { segment, result } => self.loaded(segment, result, notices),
            Reply::Synced { upto, result } => self.sync_ended(upto, result, notices),
            Reply::StateWritten { boundary, result } => {
                self.state_written(boundary, result, notices)
            }
            Reply::CheckpointWritten { number, result } => {
                self.checkpoint_ended(number, result, notices);
            }
            Reply::TopicFileWritten { file, result } => {
                self.topic_file_written(file, result, notices)
            }
            Reply::TopicFileNotRenamed(failure) => {
                notices.push(Notice::TopicFileNotRenamed(failure.text.into()));
            }
        }
    }

    /// Does what is due by now: syncs, tries again what failed, gives back what lies idle.
    /// Harmless when nothing is due.
    pub fn handle_timeout(&mut self, mono: Duration) {
        self.mono = self.mono.max(mono);
        for timer in Timer::ALL {
            self.fire_if_due(timer);
        }
    }

    /// Returns when [`Log::handle_timeout`], or a checkpoint, is due next. May lie in the past.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Duration> {
        let due = Timer::ALL
            .into_iter()
            .filter_map(|timer| self.due_at(timer));
        due.min()
    }

    /// Returns when a timer is due. `None`: it is not set.
    #[inline]
    fn due_at(&self, timer: Timer) -> Option<Duration> {
        match timer {
            Timer::Sync => self.sync.due_at(),
            Timer::Room => self.prepare_retry_at(),
            Timer::Load => self.load_retries.iter().map(|&(_, at)| at).min(),
            Timer::IdleStock => self.trim_at(),
            Timer::IdleBuffers => self.trim_buffers_at(),
            Timer::Checkpoint => self.checkpoint_at(),
        }
    }

    #[inline]
    fn fire_if_due(&mut self, timer: Timer) {
        if self.due_at(timer).is_some_and(|at| at <= self.mono) {
            self.fire(timer);
        }
    }

    fn fire(&mut self, timer: Timer) {
        match timer {
            Timer::Sync => self.start_sync(),
            Timer::Room => self.retry_prepare(),
            Timer::Load => self.retry_loads(),
            Timer::IdleStock => self.trim(),
            Timer::IdleBuffers => self.trim_buffers(),
            Timer::Checkpoint => {}
        }
    }

    /// Facts for /stats and /ping. Walks the list of segments.
    #[must_use]
    pub fn stats(&self) -> LogStats {
        let mut stats = LogStats {
            damaged_count: self.damaged_count,
            sync_count: self.sync.ended_count,
            sync_time: self.sync.ended_time,
            ..LogStats::default()
        };
        for segment in self.segments.iter() {
            stats.segments += 1;
            stats.bytes_on_disk += u64::from(segment.head.bytes);
            match segment.residency {
                Residency::Mapped(_) | Residency::Spilling { .. } | Residency::Loaded(_) => {
                    stats.resident_bytes += u64::from(segment.head.bytes);
                    stats.mappings += 1;
                }
                Residency::Cold | Residency::Loading(_) | Residency::Lost => {
                    stats.cold_segments += 1
                }
            }
        }
        for buffer in &self.buffers {
            stats.resident_bytes += buffer.as_ref().len() as u64;
            stats.mappings += 1;
        }
        for stocked in self.supply.stock() {
            stats.bytes_on_disk += stocked.bytes() as u64;
            stats.resident_bytes += stocked.bytes() as u64;
            stats.mappings += 1;
        }
        stats.health = self.health().map(ToString::to_string);
        stats
    }

    /// Returns why publishes are refused, if they are, or if a publish was refused and still would be. Changes only with a
    /// reply, or in [`Log::handle_timeout`].
    #[must_use]
    pub fn health(&self) -> Option<&Arc<str>> {
        self.sync.poisoned.as_ref().or(self.supply.shortage_text())
    }

    /// Returns whether the file system had no room for the last segment that was asked for: not even for the smallest one,
    /// or for one that an append needed. Other failures, such as too many open files, do not count.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        let shortage = self.supply.shortage.as_ref();
        shortage.is_some_and(|shortage| shortage.is_full)
    }

    /// Ends the log, for a graceful stop or a deletion. Returns the remaining jobs for the keeper: the jobs that were
    /// not fetched, then one job per memory. If a reply comes later, its memory ([`Reply::into_memory`]) goes to the
    /// keeper, too.
    #[must_use = "memory that does not come back stays mapped"]
    pub fn close(mut self) -> Vec<Request> {
        let mut jobs: Vec<Request> = self.requests.drain(..).collect();
        let stock = self.supply.into_stock();
        jobs.extend(stock.map(|stocked| Request::Unmap {
            segment: stocked.number,
            memory: stocked.memory,
        }));
        jobs.extend(self.segments.into_requests());
        jobs.extend(self.buffers.into_iter().map(Request::Free));
        jobs
    }

    /// The invariants, as assertions.
    pub fn check(&self) {
        self.segments.check();
        self.supply.check(&self.options);
        assert!(self.sync.synced <= self.next, "more is synced than exists");
        assert!(
            self.sync.upto().is_none_or(|upto| upto <= self.next),
            "a sync of the future"
        );
        if let Some(tail) = &self.segments.tail {
            assert_eq!(
                tail.end_seq(),
                self.next,
                "the tail ends where the next append starts"
            );
        }
        for segment in &self.segments.sealed {
            let is_kept = segment.is_held() || self.checkpoints.may_name(segment.named_by);
            assert!(
                is_kept || segment.is_unjudged,
                "a segment stays that nobody needs"
            );
        }
    }
}
