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
//! A log consists of parts. Each part has its fields and verbs in one file:
//!
//! ```text
//!   segments.rs      Segments: the messages by seq, and who holds them
//!   supply.rs        Supply: where the next segment comes from
//!   loads.rs         Loads: the memory of loads, and the loads to be tried again
//!   sync.rs          Sync: when a sync starts, and what its result means
//!   checkpoints.rs   Checkpoints: when a checkpoint is due, how it is put together, what it keeps
//!   states.rs        States: what the topic saves beside the log
//! ```
//!
//! The parts share a Context (context.rs), and answers.rs has what a log tells its topic. This file has the life of a
//! log, and the appends. read.rs has the reads, and residency.rs the ways of segments out of memory, back into it, and
//! away. An append only touches the memory of the tail and a few numbers. All other work happens once per segment, per
//! sync or per checkpoint, and leaves as a [`Request`].

mod answers;
mod checkpoints;
mod context;
#[cfg(feature = "sim")]
mod inspect;
mod loads;
mod read;
mod residency;
mod segments;
mod states;
mod supply;
mod sync;

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use wire::id::{MessageId, Seq};
use wire::origin::Origin;

use crate::checkpoint::{CheckpointDraft, CheckpointRun, Runs};
use crate::error::AppendError;
use crate::file_name::SegmentNumber;
use crate::policy::{self, RETRY_AFTER, TAIL_IDLE_AFTER};
use crate::range::SeqRange;
use crate::request::{CheckpointNumber, Reply, Request};
use crate::segment::{
    FRAMES_AT, Head, NewFrame, SEGMENT_BYTES_LIMIT, Seal, bytes_needed, write_frame, write_head,
    write_numbered, write_seal,
};
use crate::slot::SlotKind;
use crate::state::TopicFile;

use context::Context;
use loads::Loads;
use segments::Segments;
use supply::{Stocked, Supply};
use sync::Sync;

pub use answers::{ColdMessage, LogStats, Look, Notice, Run, Taken};
pub use checkpoints::{Checkpoints, Durable};
pub use context::LogOptions;
pub use segments::{Residency, Segment};
pub use states::States;

/// The facts from which start-up makes a [`Log`].
#[derive(Debug, Default)]
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
    context: Context,
    segments: Segments,
    supply: Supply,
    loads: Loads,
    sync: Sync,
    checkpoints: Checkpoints,
    states: States,
}

impl Default for Log {
    fn default() -> Log {
        Log::new(LogOptions::default())
    }
}

impl Log {
    /// An empty log. It has no file and no memory until the first append.
    #[must_use]
    pub fn new(options: LogOptions) -> Log {
        let first = SegmentNumber(1);
        Log {
            segments: Segments::default(),
            supply: Supply::new(&options, first),
            loads: Loads::default(),
            sync: Sync::new(Seq(0)),
            checkpoints: Checkpoints::default(),
            states: States::default(),
            context: Context::new(options),
        }
    }

    /// A log as start-up found it. Takes no appends into what was found.
    #[must_use]
    pub fn from_found(options: LogOptions, found: FoundLog) -> Log {
        let mut log = Log::new(options);
        log.supply.next_number = found.next_number;
        log.context.prepared_upto = SegmentNumber(found.next_number.0 - 1);
        log.checkpoints = found.checkpoints;
        log.states = found.states;
        // Messages that are in the files but perhaps only in the page cache are unsynced.
        let mut segments = found.segments.iter();
        let is_synced = segments.all(|segment| segment.end_seq() <= found.synced);
        log.segments = Segments::from_found(found.segments, found.next, found.damaged_count);
        log.sync = Sync::new(if is_synced { found.next } else { found.synced });
        if !is_synced {
            log.sync.due = Some(Duration::ZERO);
        }
        log.sync.voided = found.voided;
        log
    }

    /// The numbers that the next segment file and the next checkpoint get.
    #[must_use]
    pub fn next_numbers(&self) -> (SegmentNumber, u64) {
        (self.supply.next_number, self.next_checkpoint().0)
    }

    /// The segments that hold messages, in the order of their seqs.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter()
    }

    /// Returns the next job for the keeper. The caller takes all jobs, in order, after every call that changes the log.
    ///
    /// This call also fires the timer of the syncs, and starts a sync that is wanted.
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
        self.sync_in_time();
        self.sync.start_if_wanted(&mut self.context, &self.segments);
        self.context.requests.pop_front()
    }

    /// Takes an answer of the keeper. `notices` is added to.
    pub fn handle_reply(&mut self, mono: Duration, reply: Reply, notices: &mut Vec<Notice>) {
        let context = &mut self.context;
        context.see(mono);
        match reply {
            Reply::Prepared { segment, result } => self.supply.prepared(context, segment, result),
            Reply::Spilled {
                segment,
                memory,
                copy,
                result,
            } => {
                self.spilled(segment, memory, copy, result);
                self.supply.end_spill(&mut self.context);
            }
            Reply::Peeked { segment, piece } => self.peeked(segment, piece),
            Reply::Loaded { segment, result } => self.loaded(segment, result),
            Reply::Synced { upto, result } => {
                if self.sync.ended(context, &self.segments, upto, result) {
                    let synced = self.sync.synced;
                    self.checkpoints
                        .make_due_above_mark(context, &self.segments, synced);
                    context.tell(Notice::Synced(synced));
                }
            }
            Reply::StateWritten { boundary, result } => {
                self.states
                    .written(context, &mut self.sync, boundary, result);
            }
            Reply::CheckpointWritten { number, result } => {
                if self
                    .checkpoints
                    .ended(context, &mut self.sync, number, result)
                {
                    self.drop_unneeded();
                }
            }
            Reply::TopicFileWritten { file, result } => {
                if result.is_ok() {
                    context.ask(Request::RenameTopicFile(file));
                    self.sync.is_file_renamed = true;
                    // The topic may get no new message that makes a sync due.
                    self.sync.schedule(context, self.segments.next);
                }
                let result = result.map_err(|failure| Arc::from(failure.text));
                context.tell(Notice::TopicFileWritten(result));
            }
            Reply::TopicFileNotRenamed(failure) => {
                context.tell(Notice::TopicFileNotRenamed(failure.text.into()));
            }
        }
        notices.append(&mut self.context.notices);
    }

    /// Does what is due by now: syncs, tries again what failed, gives back what lies idle.
    /// Harmless when nothing is due.
    pub fn handle_timeout(&mut self, mono: Duration) {
        self.context.see(mono);
        self.sync_in_time();
        self.retry_room_in_time();
        if self.is_due(self.loads.retry_at()) {
            self.retry_loads();
        }
        if self.is_due(self.trim_at()) {
            self.trim();
        }
        if self.is_due(self.loads.trim_at()) {
            self.loads.trim(&mut self.context);
        }
    }

    /// Returns when [`Log::handle_timeout`], or a checkpoint, is due next. May lie in the past.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Duration> {
        let due = [
            self.sync.due_at(),
            self.room_at(),
            self.loads.retry_at(),
            self.trim_at(),
            self.loads.trim_at(),
            self.checkpoint_at(),
        ];
        due.into_iter().flatten().min()
    }

    #[inline]
    fn is_due(&self, at: Option<Duration>) -> bool {
        at.is_some_and(|at| at <= self.context.mono)
    }

    #[inline]
    fn sync_in_time(&mut self) {
        if self.is_due(self.sync.due_at()) {
            self.sync.start(&mut self.context, &self.segments);
        }
    }

    /// Returns when the log asks again for a segment that the keeper could not make. A poisoned log needs no room.
    fn room_at(&self) -> Option<Duration> {
        self.supply.retry_at().filter(|_| !self.has_failed_sync())
    }

    fn retry_room_in_time(&mut self) {
        if self.is_due(self.room_at()) {
            self.supply.retry(&mut self.context);
        }
    }

    /// Returns when an idle log has something to give back.
    fn trim_at(&self) -> Option<Duration> {
        let tail = self.segments.tail.as_ref();
        let stock_at = self.supply.trim_at(tail.is_some());
        let has_idle_tail = tail.is_some_and(|tail| !tail.is_held());
        let tail_at = has_idle_tail.then_some(self.supply.last_append + TAIL_IDLE_AFTER);
        [stock_at, tail_at].into_iter().flatten().min()
    }

    /// Gives back the pool, later a tail whose messages are all finished, and then the spare: an idle
    /// topic costs no memory.
    fn trim(&mut self) {
        let tail = self.segments.tail.as_ref();
        if self.supply.last_append + TAIL_IDLE_AFTER <= self.context.mono
            && tail.is_some_and(|tail| !tail.is_held())
        {
            self.seal();
        }
        let has_tail = self.segments.tail.is_some();
        self.supply.trim(&mut self.context, has_tail);
        self.follow_backlog();
    }

    /// Facts for /stats and /ping. Walks the list of segments.
    #[must_use]
    pub fn stats(&self) -> LogStats {
        let mut stats = LogStats {
            damaged_count: self.segments.damaged_count,
            sync_count: self.sync.ended_count,
            sync_time: self.sync.ended_time,
            ..LogStats::default()
        };
        let mut add_mapping = |bytes: usize| {
            stats.memory_bytes += bytes as u64;
            stats.mappings += 1;
        };
        for segment in self.segments.iter() {
            stats.segment_count += 1;
            stats.disk_bytes += u64::from(segment.head.bytes);
            match segment.residency {
                Residency::Mapped(_) | Residency::Spilling { .. } | Residency::Loaded(_) => {
                    add_mapping(segment.head.bytes as usize);
                }
                Residency::Cold | Residency::Loading(_) | Residency::Lost => {
                    stats.cold_segment_count += 1
                }
            }
        }
        for buffer in &self.loads.buffers {
            add_mapping(buffer.as_ref().len());
        }
        for stocked in self.supply.stock() {
            stats.disk_bytes += stocked.bytes() as u64;
            add_mapping(stocked.bytes());
        }
        stats
    }

    /// Returns why publishes are refused, if they are, or if a publish was refused and still would be. Changes only with a
    /// reply, or in [`Log::handle_timeout`].
    #[must_use]
    pub fn health(&self) -> Option<&Arc<str>> {
        self.poisoned().or(self.supply.shortage_text())
    }

    /// Returns whether the file system had no room for the last segment that was asked for: not even for the smallest one,
    /// or for one that an append needed. Other failures, such as too many open files, do not count.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        let shortage = self.supply.shortage.as_ref();
        shortage.is_some_and(|shortage| shortage.is_full)
    }

    /// Changes how many bytes may stay resident whatever [`LogOptions::resident_messages`] says.
    #[inline]
    pub fn limit_resident(&mut self, bytes: u64) {
        self.context.options.resident_bytes_min = bytes;
    }

    /// Has something large dropped by the keeper.
    pub fn drop_later(&mut self, garbage: impl Send + 'static) {
        self.context.ask(Request::Drop(Box::new(garbage)));
    }

    /// Ends the log, for a graceful stop or a deletion. Returns the remaining jobs for the keeper: the jobs that were
    /// not fetched, then one job per memory. If a reply comes later, its memory ([`Reply::into_memory`]) goes to the
    /// keeper, too.
    #[must_use = "memory that does not come back stays mapped"]
    pub fn close(self) -> Vec<Request> {
        let mut jobs: Vec<Request> = self.context.requests.into();
        let stock = self.supply.into_stock();
        jobs.extend(stock.map(|stocked| Request::Unmap {
            segment: stocked.number,
            memory: stocked.memory,
        }));
        jobs.extend(self.segments.into_requests());
        jobs.extend(self.loads.buffers.into_iter().map(Request::Free));
        jobs
    }

    /// The invariants, as assertions.
    pub fn check(&self) {
        let next = self.segments.next;
        self.segments.check();
        self.supply.check(&self.context.options);
        assert!(self.sync.synced <= next, "more is synced than exists");
        let upto = self.sync.upto();
        assert!(upto.is_none_or(|upto| upto <= next), "a sync of the future");
        for segment in &self.segments.sealed {
            let is_kept = segment.is_held() || self.checkpoints.may_name(segment.named_by);
            assert!(
                is_kept || segment.is_just_recovered,
                "a segment stays that nobody needs"
            );
        }
    }
}

/// Syncs.
impl Log {
    /// Returns the seq of the next append. 0 for a new log, whose first append takes a seq from the clock.
    #[inline]
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        self.segments.next
    }

    /// Returns the seq that the next append gives if it comes at `wall_ns`.
    #[inline]
    #[must_use]
    pub fn next_append_seq(&self, wall_ns: u64) -> Seq {
        match self.segments.next {
            Seq(0) => Seq::from_clock(wall_ns),
            next => next,
        }
    }

    /// Returns the seq below which every message is synced, or has no holder any more.
    #[inline]
    #[must_use]
    pub fn synced(&self) -> Seq {
        self.sync.synced
    }

    /// Returns the seq up to which a sync under way covers the messages. `None`: no sync is under way.
    #[inline]
    #[must_use]
    pub fn sync_upto(&self) -> Option<Seq> {
        self.sync.upto()
    }

    /// Returns why the log takes no messages any more: a sync has failed.
    #[inline]
    #[must_use]
    pub fn poisoned(&self) -> Option<&Arc<str>> {
        self.sync.poisoned.as_ref()
    }

    /// Returns whether a sync has failed. From then on mapped bytes may change under a run: see [`Log::copy_run`].
    #[inline]
    #[must_use]
    pub fn has_failed_sync(&self) -> bool {
        self.sync.poisoned.is_some()
    }

    /// Returns whether everything appended is synced.
    #[inline]
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.sync.synced >= self.segments.next
    }

    /// Returns how many syncs in a row could not open their files: none of them lost anything.
    #[must_use]
    pub fn delayed_syncs(&self) -> u32 {
        self.sync.delayed
    }

    /// Asks for a sync of everything appended so far; [`Notice::Synced`] tells when. At most one is
    /// under way: the next starts soon after it ends, and covers all that was appended meanwhile.
    pub fn sync_now(&mut self) {
        self.sync.start_now(&mut self.context, &self.segments);
    }

    /// Asks for a sync of everything appended so far, for which publishes wait. The sync starts when the requests are
    /// drained, or a little later if more such publishes are expected. [`Notice::Synced`] tells when it is done.
    #[inline]
    pub fn want_sync(&mut self) {
        self.sync.is_wanted = true;
    }
}

/// Checkpoints, and what the topic saves beside the log.
impl Log {
    /// Makes a checkpoint due, because something that it would record has changed.
    #[inline]
    pub fn make_checkpoint_due(&mut self) {
        self.checkpoints.make_due(self.context.mono);
    }

    /// Makes a checkpoint due that waits for no company: segments may go with it, and their room is wanted.
    pub fn make_checkpoint_due_at_once(&mut self) {
        self.make_checkpoint_due();
        self.checkpoints.is_due_at_once = true;
    }

    /// Returns whether [`Notice::Checkpointed`] or [`Notice::CheckpointFailed`] of a checkpoint is still to come.
    #[must_use]
    pub fn expects_checkpoint(&self, number: CheckpointNumber) -> bool {
        self.is_checkpoint_under_way() && number.0 <= self.checkpoints.last_number()
    }

    /// Returns whether it is time for [`Log::begin_checkpoint`].
    #[must_use]
    pub fn checkpoint_due(&self, mono: Duration) -> bool {
        self.checkpoint_at().is_some_and(|at| at <= mono)
    }

    /// Returns when a checkpoint is due. While the disk is full it does not wait for company: segments that
    /// nobody holds may go with it, and their room is wanted.
    fn checkpoint_at(&self) -> Option<Duration> {
        let timeout = self.context.options.sync_timeout;
        self.checkpoints.due_at(match self.supply.shortage {
            Some(_) => timeout.min(RETRY_AFTER),
            None => timeout,
        })
    }

    /// Returns whether a checkpoint is being put together or written. There is one at a time.
    #[must_use]
    pub fn is_checkpoint_under_way(&self) -> bool {
        self.checkpoints.is_under_way()
    }

    /// The number that the next checkpoint gets.
    #[must_use]
    pub fn next_checkpoint(&self) -> CheckpointNumber {
        CheckpointNumber(self.checkpoints.last_number() + 1)
    }

    /// Begins a checkpoint. Before [`Log::finish_checkpoint`], the caller names all owed messages below the log's next
    /// seq with [`Log::name_run`]. Messages that are finished meanwhile may be named. Messages that are still owed at
    /// the end must be named.
    ///
    /// A checkpoint that is not durable survives the end of the process, but not a power failure. It never overwrites
    /// the last durable checkpoint. After a checkpoint with [`Durable::No`], another checkpoint is due, at most
    /// --sync-timeout after the first one began, to make its content durable. Once that checkpoint is due,
    /// [`Durable::No`] counts as [`Durable::IfNeeded`]: otherwise a steady flow of changes would put the durable
    /// checkpoint off for ever.
    ///
    /// # Panics
    /// If [`Log::is_checkpoint_under_way`].
    pub fn begin_checkpoint(&mut self, mono: Duration, durable: Durable) {
        self.context.see(mono);
        let is_due = self.checkpoint_due(self.context.mono);
        let (mono, next) = (self.context.mono, self.segments.next);
        self.checkpoints
            .begin(mono, durable, is_due, &self.sync, next);
    }

    /// Adds `run` to a list of the checkpoint, without seqs that were appended after the checkpoint began. The segments
    /// of the run stay until a durable checkpoint does not name them.
    ///
    /// # Panics
    /// If no checkpoint was begun.
    pub fn name_run(&mut self, list: &mut Runs, run: CheckpointRun) {
        let (number, next) = self.checkpoints.drafted();
        let known = next.0.saturating_sub(run.start.0);
        let run = CheckpointRun {
            count: run.count.min(known),
            ..run
        };
        if run.count > 0 {
            self.segments.mark_named(run.range(), number);
            list.push(run);
        }
    }

    /// Writes the checkpoint that was begun.
    ///
    /// # Panics
    /// If none was begun.
    pub fn finish_checkpoint(&mut self, draft: CheckpointDraft) {
        self.checkpoints
            .finish(&mut self.context, &mut self.sync, draft);
    }

    /// Has a state written and made durable. [`Notice::StateSaved`] or [`Notice::StateFailed`] tells the end.
    ///
    /// The state must know all messages below `boundary`, and no other message. All of these must be synced: a power
    /// failure must not take a message that the state knows.
    ///
    /// # Panics
    /// If another state is being written.
    pub fn save_state(&mut self, boundary: Seq, body: Vec<u8>) {
        self.states.save(&mut self.context, boundary, body);
    }

    /// Has the topic's file written. [`Notice::TopicFileWritten`] says how that went.
    ///
    /// The file counts when it is renamed. The keeper does that before every job that the log gives after the notice.
    pub fn write_topic_file(&mut self, contents: Box<dyn TopicFile>) {
        self.states
            .write_topic_file(&mut self.context, self.segments.next, contents);
    }
}

/// Appends: the part of the log that runs once per message.
impl Log {
    /// Appends one message, deferred by `defer_ms` milliseconds (0: not).
    ///
    /// The message is not held yet: [`Log::retain`] it before the next call. On an error nothing
    /// was appended.
    #[inline]
    pub fn append(
        &mut self,
        mono: Duration,
        wall_ns: u64,
        body: &[u8],
        defer_ms: u32,
    ) -> Result<Seq, AppendError> {
        let body_bytes = body.len() as u64;
        if self.context.options.slots == SlotKind::WithOrigin {
            let message = iter::once((body, None));
            let range = self.append_numbered(mono, wall_ns, message, 1, body_bytes, defer_ms)?;
            return Ok(range.start);
        }
        self.make_room(mono, wall_ns, bytes_needed(SlotKind::Plain, 1, body_bytes))?;
        let seq = self.segments.next;
        self.write(wall_ns, body, defer_ms);
        self.appended(mono);
        Ok(seq)
    }

    /// Appends the `count` messages of `bodies`, `body_bytes` bytes in all, or none of them.
    ///
    /// A batch goes into one segment: after a crash it is there in one piece, or torn at one place.
    /// The caller retains the messages before the next call, as with [`Log::append`].
    ///
    /// # Panics
    /// If `bodies` is not what `count` and `body_bytes` say: the caller's bug.
    pub fn append_batch<'b>(
        &mut self,
        mono: Duration,
        wall_ns: u64,
        bodies: impl Iterator<Item = &'b [u8]>,
        count: u32,
        body_bytes: u64,
    ) -> Result<SeqRange, AppendError> {
        if self.context.options.slots == SlotKind::WithOrigin {
            let messages = bodies.map(|body| (body, None));
            return self.append_numbered(mono, wall_ns, messages, count, body_bytes, 0);
        }
        if count == 0 {
            return Ok(SeqRange::new(self.segments.next, self.segments.next));
        }
        let needed = bytes_needed(SlotKind::Plain, u64::from(count), body_bytes);
        self.make_room(mono, wall_ns, needed)?;
        let start = self.segments.next;
        for body in bodies {
            self.write(wall_ns, body, 0);
        }
        Ok(self.appended_batch(mono, start, count))
    }

    /// Appends messages with their origins, as [`Log::append_batch`] does. All are deferred by `defer_ms` milliseconds
    /// (0: not). A log whose [`LogOptions::slots`] are plain does not keep the origins.
    ///
    /// # Panics
    /// If `messages` is not what `count` and `body_bytes` say: the caller's bug.
    #[inline(never)]
    pub fn append_numbered<'b>(
        &mut self,
        mono: Duration,
        wall_ns: u64,
        messages: impl Iterator<Item = (&'b [u8], Option<Origin>)>,
        count: u32,
        body_bytes: u64,
        defer_ms: u32,
    ) -> Result<SeqRange, AppendError> {
        if count == 0 {
            return Ok(SeqRange::new(self.segments.next, self.segments.next));
        }
        let needed = bytes_needed(self.context.options.slots, u64::from(count), body_bytes);
        self.make_room(mono, wall_ns, needed)?;
        let start = self.segments.next;
        for (body, origin) in messages {
            self.write_into_tail(wall_ns, body, defer_ms, |bytes, head, index, start, new| {
                write_numbered(bytes, head, index, start, new, origin)
            });
        }
        Ok(self.appended_batch(mono, start, count))
    }

    /// Makes room for a batch of `count` messages with `body_bytes` bytes in all, and appends nothing. An append of the
    /// batch or of a part of it that follows at once is not refused.
    ///
    /// # Errors
    /// The errors are those of an append.
    #[cold]
    pub fn reserve(
        &mut self,
        mono: Duration,
        wall_ns: u64,
        count: u32,
        body_bytes: u64,
    ) -> Result<(), AppendError> {
        let needed = bytes_needed(self.context.options.slots, u64::from(count), body_bytes);
        self.make_room(mono, wall_ns, needed)
    }

    /// Ends the append of a batch that began at `start`. Returns its messages.
    #[inline(always)]
    fn appended_batch(&mut self, mono: Duration, start: Seq, count: u32) -> SeqRange {
        let range = SeqRange::new(start, self.segments.next);
        let count = u64::from(count);
        assert_eq!(
            range.len(),
            count,
            "a batch of another count than announced"
        );
        self.appended(mono);
        range
    }

    #[inline]
    fn make_room(&mut self, mono: Duration, wall_ns: u64, needed: u64) -> Result<(), AppendError> {
        let poisoned = self.poisoned();
        plant!(PoisonIgnored, let poisoned = None);
        if let Some(text) = poisoned {
            return Err(AppendError::Poisoned(Arc::clone(text)));
        }
        match &self.segments.tail {
            Some(tail) if needed <= tail.room() && !self.is_spent(tail) => Ok(()),
            _ => self.roll(mono, wall_ns, needed),
        }
    }

    /// Returns whether nobody needs any message of a tail, and the tail is full enough to be begun anew.
    #[inline]
    fn is_spent(&self, tail: &Segment) -> bool {
        !tail.is_held()
            && policy::is_begun_anew(tail.end, tail.head.bytes)
            && !self.checkpoints.may_name(tail.named_by)
    }

    /// Writes a message to a tail with plain slots. Not inlined: two copies of this function would cost more than its
    /// calls.
    #[inline(never)]
    fn write(&mut self, wall_ns: u64, body: &[u8], defer_ms: u32) {
        self.write_into_tail(wall_ns, body, defer_ms, |bytes, head, index, start, new| {
            write_frame(bytes, head, index, start, new)
        });
    }

    #[inline(always)]
    fn write_into_tail(
        &mut self,
        wall_ns: u64,
        body: &[u8],
        defer_ms: u32,
        write: impl FnOnce(&mut [u8], &Head, u32, u32, &NewFrame<'_>) -> u32,
    ) {
        let tail = self
            .segments
            .tail
            .as_mut()
            .expect("room was made in the tail");
        let Residency::Mapped(memory) = &mut tail.residency else {
            unreachable!("the tail is mapped")
        };
        let id = MessageId::new(self.segments.next, self.context.options.node);
        let new = NewFrame {
            timestamp_ns: wall_ns as i64,
            id,
            defer_ms,
            body,
        };
        tail.end = write(memory.as_mut(), &tail.head, tail.count, tail.end, &new);
        tail.count += 1;
        self.segments.next = Seq(self.segments.next.0 + 1);
    }

    #[inline]
    fn appended(&mut self, mono: Duration) {
        self.context.see(mono);
        self.supply.last_append = self.context.mono;
        if self.sync.wants_to_know(self.segments.next) {
            self.sync.schedule(&self.context, self.segments.next);
        }
        let is_half_full = |tail: &Segment| tail.used() * 2 >= u64::from(tail.head.bytes);
        if self.segments.tail.as_ref().is_some_and(is_half_full) && !self.supply.has_next() {
            self.supply.prepare_ahead(&mut self.context);
        }
    }

    /// Makes room when the tail is spent, too full, or missing. A spent tail is begun anew at its start. Otherwise
    /// appends continue in the next segment, if it is ready.
    #[cold]
    fn roll(&mut self, mono: Duration, wall_ns: u64, needed: u64) -> Result<(), AppendError> {
        self.context.see(mono);
        self.supply.last_append = self.context.mono;
        let bytes = u64::from(FRAMES_AT) + needed;
        if bytes > u64::from(SEGMENT_BYTES_LIMIT) {
            let text = format!("{bytes} bytes never fit a segment");
            return Err(AppendError::Io(text.into()));
        }
        let bytes = bytes as u32;
        if self.begin_anew(bytes, wall_ns) {
            return Ok(());
        }
        let Some(stocked) = self.supply.take(bytes) else {
            let error = self.supply.ask_for(&mut self.context, bytes);
            if error != AppendError::WouldBlock {
                self.retry_room_in_time();
            }
            return Err(error);
        };
        self.supply.follow_flow(&self.context);
        self.end_tail();
        self.start_tail(stocked, wall_ns);
        self.follow_backlog();
        self.evict();
        Ok(())
    }

    /// Begins a spent tail anew, if it has room for `bytes` bytes. Returns whether it did. A large tail that an earlier
    /// backlog has left is not begun anew if the supply has another segment.
    fn begin_anew(&mut self, bytes: u32, wall_ns: u64) -> bool {
        let tail = self.segments.tail.as_ref();
        let Some(tail) = tail.filter(|tail| tail.head.bytes >= bytes && self.is_spent(tail)) else {
            return false;
        };
        let size = tail.head.bytes;
        self.follow_backlog();
        if policy::is_oversized(size, self.supply.steady) {
            if self.supply.can_give(bytes) {
                return false;
            }
            if !self.supply.has_next() {
                self.supply.prepare_ahead(&mut self.context);
            }
        }
        let spent = self.segments.tail.take();
        let Some((number, Residency::Mapped(memory))) = spent.map(|it| (it.number, it.residency))
        else {
            unreachable!("the tail is mapped")
        };
        self.start_tail(Stocked { number, memory }, wall_ns);
        true
    }

    /// Ends the last segment: writes its seal. The segment becomes the last of the sealed ones, or goes at once. A later
    /// append begins a new one. Call this before a stop: a start does not read a sealed segment whose messages are
    /// synced.
    pub fn seal(&mut self) {
        self.end_tail();
        self.supply.tail_since = None;
    }

    fn end_tail(&mut self) {
        let Some(mut tail) = self.segments.tail.take() else {
            return;
        };
        if let Residency::Mapped(memory) = &mut tail.residency {
            let seal = Seal {
                count: tail.count,
                end: tail.end,
            };
            write_seal(memory.as_mut(), &tail.head, &seal);
        }
        self.segments.sealed.push_back(tail);
        let index = self.segments.sealed.len() - 1;
        self.segments.note_read(index);
        self.drop_if_unneeded(index);
    }

    /// Adapts the size of new segments to the backlog.
    fn follow_backlog(&mut self) {
        let live = self.segments.live_bytes();
        self.supply.follow_backlog(&self.context.options, live);
    }

    fn start_tail(&mut self, stocked: Stocked, wall_ns: u64) {
        if self.segments.next == Seq(0) {
            // The clock keeps a topic that is deleted and made again from repeating an id.
            self.segments.next = Seq::from_clock(wall_ns);
            self.sync.synced = self.segments.next;
        }
        let Stocked { number, mut memory } = stocked;
        let head = Head {
            generation: self.supply.next_generation(),
            base: self.segments.next,
            bytes: memory.as_ref().len() as u32,
            node: self.context.options.node,
            slots: self.context.options.slots,
        };
        write_head(memory.as_mut(), &head);
        plant!(HeadAtTurnEnd, memory.as_mut()[..FRAMES_AT as usize].fill(0));
        let mut tail = Segment::new(number, head, Residency::Mapped(memory));
        // The append that begins the segment follows at once.
        tail.began_ns = wall_ns;
        self.segments.tail = Some(tail);
    }
}
