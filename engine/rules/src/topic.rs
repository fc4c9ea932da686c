//! A topic: one log, and the ranges of the log that the topic has not yet distributed to its channels.
//!
//! ```text
//!   publish ──append──► log  ... |---------- undistributed ----------|  tail
//!                                ^ mark                              ^ next seq
//!   distribute (once a turn): the same range goes to every channel; nothing is copied
//! ```
//!
//! Each undistributed message is held in the log once, by the topic; on distribution that hold
//! passes to the first channel and the others add one each.

mod channels;
mod checkpoint;
mod grace;
mod inspect;
mod kept;
pub(crate) mod restore;
pub(crate) mod unclaimed;
mod undo;
mod unfinished_checkpoint;
mod waits;

use crate::channel::Channel;
use crate::channel::dead_letters::{DeadLetter, DeadLetterRules, MovedLetters};
use crate::channel::delivery::Delivery;
use crate::channel::discarded::Discarded;
use crate::client::Clients;
use crate::dirty_set::Listed;
use crate::ids::{ChannelId, ClientId};
use crate::latency::{Latency, LatencyOptions};
use crate::pause::PauseUnderWay;
use crate::ranges::Ranges;
use crate::undo::Undo;
use crate::work::Work;
use channels::Channels;
use diskq_log::{
    AppendError, CheckpointRun, Durable, Log, LogOptions, Now, SeqRange, SlotKind, plant,
};
use engine_dedup::{DedupRule, DedupRules, Gate, Publication};
pub use grace::GraceOptions;
use grace::{DEFERRED_MAX, Grace};
use kept::{Kept, Pieces, Totals};
use std::sync::Arc;
use std::time::Duration;
use unclaimed::{Unclaimed, UnclaimedRules};
use unfinished_checkpoint::{Checkpoints, Stopping};
use waits::Waits;
pub(crate) use waits::{Retrier, Waiter};
use wire::id::{MessageId, Seq};
use wire::name::{ChannelName, TopicName};

/// The result of a publish that was not refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Published {
    /// The messages are in the log. Answer at once.
    Done,
    /// The messages are in the log. Answer when the log is synced up to this seq (`--sync-every=1`).
    AfterSync(Seq),
}

/// Settings that all topics share.
#[derive(Debug, Clone)]
pub struct TopicOptions {
    /// The settings of every log.
    pub log: LogOptions,
    /// --mem-queue-size: what an ephemeral topic or channel keeps.
    pub mem_queue_size: u64,
    /// OK only after a sync (`--sync-every=1`).
    pub group_commit: bool,
    /// End-to-end latency, if it is measured.
    pub latency: Option<LatencyOptions>,
    /// The grace of new topics.
    pub grace: GraceOptions,
    /// The rules for messages that have reached their attempts.
    pub dead_letters: Arc<DeadLetterRules>,
    /// The bounds of the messages of topics without channels. Ephemeral topics have no such bounds.
    pub unclaimed: Arc<UnclaimedRules>,
    /// The rules by which topics recognise messages that they have stored before.
    pub dedup: Arc<DedupRules>,
}

/// No rules, for tests and measurements. nsqd sets every field.
impl Default for TopicOptions {
    fn default() -> TopicOptions {
        TopicOptions {
            log: LogOptions::default(),
            mem_queue_size: 10_000,
            group_commit: false,
            latency: None,
            grace: GraceOptions::default(),
            dead_letters: Arc::default(),
            unclaimed: Arc::default(),
            dedup: Arc::default(),
        }
    }
}

impl TopicOptions {
    /// Returns the settings of the log of a topic. A topic with a rule keeps the origins of its messages in the log.
    #[must_use]
    pub fn log_options(&self, topic: TopicName<'_>) -> LogOptions {
        let mut options = self.log.clone();
        if topic.is_ephemeral() {
            // Nothing of it is read after a restart: no sync is worth its time, and no checkpoint is written.
            options.sync_every = 0;
            options.sync_timeout = Duration::from_secs(u64::from(u32::MAX));
        } else if let Some(DedupRule::Publisher(_)) = self.dedup.of(topic.as_str()) {
            options.slots = SlotKind::WithOrigin;
        }
        options
    }
}

/// What the broker's lists know of a topic.
#[derive(Debug, Default)]
pub(crate) struct TopicListed {
    /// In the broker's `topics_to_pump`.
    pub(crate) to_pump: Listed,
    /// The broker's timer for the topic, if one is set.
    pub(crate) timer_at: Option<Duration>,
}

/// What the broker takes from a topic at the end of a turn.
#[derive(Debug, Default)]
pub(crate) struct TopicOutput {
    /// WARNING lines for the log.
    pub(crate) news: Vec<String>,
    /// Messages on their way to dead-letter topics.
    pub(crate) dead_letters: Vec<(ChannelId, DeadLetter)>,
}

/// Counters since the start of the process, as in /stats.
#[derive(Debug)]
pub(crate) struct TopicCounters {
    /// The next seq of the log at the start of the process, or when the topic was made.
    pub(crate) first_seq: Seq,
    /// The messages that the topic has taken.
    pub(crate) totals: Totals,
    /// Messages of refused publishes.
    pub(crate) refused_count: u64,
}

/// One topic.
///
/// Invariants: after `distribute`, no message is undistributed unless the topic is not open ([`Topic::is_open`]) or
/// [`Topic::has_work_left`]. The log counts the holders of each message: each channel that owes it, each undo and each
/// list of discarded messages that has it, the topic if it is undistributed, the grace if it keeps it, and the numbers if
/// its number is not saved. When a channel is deleted, the subscriptions and lists that have its id lose the id.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) name: Arc<str>,
    pub(crate) ephemeral: bool,
    options: TopicOptions,
    pub(crate) log: Log,
    pub(crate) channels: Channels,
    /// `None`: the topic is not paused.
    pub(crate) pause: Option<Box<PauseUnderWay>>,
    /// False until the channels that the nsqlookupds know of are created. Until then the topic keeps what is published.
    pub(crate) started: bool,
    /// A drain has withdrawn the topic from the nsqlookupds.
    pub(crate) is_withdrawn: bool,
    pub(crate) counters: TopicCounters,
    pub(crate) listed: TopicListed,
    pub(crate) output: TopicOutput,
    pub(crate) waits: Waits,
    pub(crate) checkpoints: Checkpoints,
    /// The messages that no channel has got.
    undistributed: Kept<u32>,
    /// The number of deferred messages that were published since the last call of [`Topic::distribute`].
    new_deferred: usize,
    /// The messages that the topic was emptied of, while they can be brought back. They lie below those that are
    /// undistributed.
    pub(crate) undo: Option<Box<Undo>>,
    discarded: Vec<Discarded>,
    pub(crate) grace: Option<Box<Grace>>,
    /// `None`: a topic without channels keeps all messages.
    unclaimed: Option<Box<Unclaimed>>,
    /// `None`: the topic does not recognise messages that come again.
    pub(crate) gate: Option<Box<Gate>>,
}

impl Topic {
    /// An empty topic; its log takes neither memory nor disk before the first message.
    pub(crate) fn new(name: TopicName<'_>, options: TopicOptions) -> Topic {
        let log = Log::new(options.log_options(name));
        Topic::with_log(name, options, log)
    }

    fn with_log(name: TopicName<'_>, options: TopicOptions, log: Log) -> Topic {
        let bounds = options.unclaimed.bounds(name.as_str());
        // A dead letter must not be lost, not even before somebody makes a channel for it.
        let is_exempt = options.dead_letters.is_dead_letter_topic(name.as_str());
        let bounds = bounds.filter(|_| !name.is_ephemeral() && !is_exempt);
        let gate = Gate::new(&options.dedup, name, &options.log);
        Topic {
            name: name.as_str().into(),
            ephemeral: name.is_ephemeral(),
            options,
            channels: Channels::default(),
            pause: None,
            started: true,
            is_withdrawn: false,
            counters: TopicCounters {
                first_seq: log.next_seq(),
                totals: Totals::default(),
                refused_count: 0,
            },
            log,
            listed: TopicListed::default(),
            output: TopicOutput::default(),
            waits: Waits::default(),
            checkpoints: Checkpoints::default(),
            undistributed: Kept::default(),
            new_deferred: 0,
            undo: None,
            discarded: Vec::new(),
            grace: None,
            unclaimed: bounds.map(Unclaimed::new).map(Box::new),
            gate: gate.map(Box::new),
        }
    }

    /// Appends messages to the log, unless the topic recognises them as messages that it has stored before.
    ///
    /// # Errors
    /// `WouldBlock` when the keeper has yet to make room (nothing was appended: try again when
    /// woken); any other error refuses the publish.
    pub(crate) fn publish<'b>(
        &mut self,
        now: Now,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
    ) -> Result<Published, AppendError> {
        if self.gate.is_none() {
            self.store(now, publication)
        } else {
            self.store_fresh(now, publication)
        }
    }

    /// Appends messages to the log.
    #[inline(always)]
    pub(crate) fn store<'b>(
        &mut self,
        now: Now,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
    ) -> Result<Published, AppendError> {
        let (mut bodies, count) = (publication.bodies.clone(), publication.count);
        let (bytes, defer_ms) = (publication.body_bytes, publication.defer_ms);
        let (mono, wall_ns) = (now.mono, now.wall_ns);
        let range = if count == 1 {
            let body = bodies.next().expect("count says there is one");
            let seq = self.log.append(mono, wall_ns, body, defer_ms)?;
            if defer_ms > 0 {
                self.new_deferred += 1;
                self.undistributed.deferred.push_back((seq, defer_ms));
            }
            SeqRange::one(seq)
        } else {
            self.log.append_batch(mono, wall_ns, bodies, count, bytes)?
        };
        Ok(self.keep(range, bytes))
    }

    /// Appends those messages to the log that the gate lets pass.
    #[inline(never)]
    fn store_fresh<'b>(
        &mut self,
        now: Now,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
    ) -> Result<Published, AppendError> {
        let (gate, log) = (&mut self.gate, &mut self.log);
        let gate = gate.as_mut().expect("the caller has looked");
        let fates = gate.judge(now, log, publication)?;
        let (count, bytes, defer_ms) = (fates.count, fates.bytes, publication.defer_ms);
        let fresh = fates.fresh(publication);
        let appended = log.append_numbered(now.mono, now.wall_ns, fresh, count, bytes, defer_ms);
        let range = appended.inspect_err(|_| gate.take_back())?;
        gate.confirm(now, log, fates, range);
        if range.is_empty() {
            return Ok(self.answer_duplicates());
        }
        if defer_ms > 0 {
            self.new_deferred += 1;
            self.undistributed
                .deferred
                .push_back((range.start, defer_ms));
        }
        Ok(self.keep(range, bytes))
    }

    /// Answers a publish whose messages were all stored before. With `--sync-every=1`, the answer waits until they are
    /// synced, as the answer to the first copy does.
    fn answer_duplicates(&mut self) -> Published {
        plant!(DuplicateBeforeSync, return Published::Done);
        if self.options.group_commit && !self.ephemeral && !self.log.is_synced() {
            self.log.want_sync();
            return Published::AfterSync(self.log.next_seq());
        }
        Published::Done
    }

    /// Does what follows an append: the topic holds the messages until it gives them to its channels.
    #[inline(always)]
    fn keep(&mut self, range: SeqRange, bytes: u64) -> Published {
        self.log.retain(range, 1);
        self.undistributed.messages.push(range);
        self.counters.totals.messages += range.len();
        self.counters.totals.body_bytes += bytes;
        if self.ephemeral && !self.can_distribute() {
            self.drop_beyond_memory();
        }
        plant!(OkBeforeSync, return Published::Done);
        if self.options.group_commit && !self.ephemeral {
            self.log.want_sync();
            return Published::AfterSync(range.end);
        }
        Published::Done
    }

    /// Limits the sealed segments in memory to `bytes` bytes, but to no less than 4 MiB and to no more than the log's
    /// own limit.
    pub(crate) fn limit_resident(&mut self, bytes: u64) {
        const LEAST: u64 = 4 << 20;
        let most = self.options.log.resident_bytes_min;
        self.log.limit_resident(bytes.max(LEAST).min(most));
    }

    /// Makes a checkpoint due, because something that it records has changed. An ephemeral topic has no checkpoints,
    /// and one that never comes would be due for ever.
    pub(crate) fn make_checkpoint_due(&mut self) {
        if !self.ephemeral {
            self.log.make_checkpoint_due();
        }
    }

    // --- channels

    /// The channel and the log it reads, together.
    pub(crate) fn channel_and_log(&mut self, id: ChannelId) -> (&mut Channel, &mut Log) {
        (&mut self.channels[id], &mut self.log)
    }

    /// Finds or creates a channel. `Broker::channel_id` has the topic catch up first, so a new channel gets earlier
    /// messages only if the topic kept them because it was not open, or is in grace. A start restores channels with this
    /// function, too (`topic/restore.rs`).
    pub(crate) fn create_channel(&mut self, name: ChannelName<'_>) -> ChannelId {
        if let Some(id) = self.channels.find(name.as_str()) {
            return id;
        }
        let latency = self.options.latency.as_ref().map(Latency::new);
        let mut channel = Channel::new(name.as_str(), name.is_ephemeral(), latency);
        let rules = &self.options.dead_letters;
        channel.set_dead_letters(rules.of(&self.name, name.as_str()));
        if let Some(grace) = &self.grace {
            grace.fill(&mut channel, &mut self.log);
        }
        self.recount_unclaimed();
        self.make_checkpoint_due();
        self.channels.insert(channel)
    }

    /// Removes a channel and drops its messages. If it was the last channel, this includes the messages on their way to
    /// it, unless the topic is in grace. Returns the channel's consumers.
    pub(crate) fn delete_channel(&mut self, id: ChannelId, clients: &mut Clients) -> Vec<ClientId> {
        let was_open = self.is_open();
        let Some(mut channel) = self.channels.remove(id) else {
            return Vec::new();
        };
        if was_open && !self.is_open() && self.grace.is_none() {
            self.empty();
        }
        if let Some(grace) = &mut self.grace {
            grace.delete(&channel);
        }
        if let Some(undo) = channel.undo.take() {
            self.discard_undo(*undo);
        }
        self.discarded.push(channel.empty(clients));
        let unfinished = self.checkpoints.unfinished.as_mut();
        if let Some(runs) = unfinished.and_then(|it| it.remove_channel(id)) {
            self.log.drop_later(runs);
        }
        self.make_checkpoint_due();
        channel.consumers.all
    }

    /// Drops what a channel owes, and what an undo could bring back.
    pub(crate) fn empty_channel(&mut self, id: ChannelId, clients: &mut Clients) {
        self.drop_channel_undo(id);
        let discarded = self.channels[id].empty(clients);
        self.discarded.push(discarded);
        self.make_checkpoint_due();
    }

    /// Drops what no channel has been given yet.
    pub(crate) fn empty(&mut self) {
        let kept = std::mem::take(&mut self.undistributed);
        self.discarded.push(Discarded {
            waiting: kept.messages,
            undistributed_deferred: kept.deferred,
            ..Discarded::default()
        });
        self.recount_unclaimed();
        self.make_checkpoint_due();
    }

    /// Messages that no channel has been given yet.
    pub(crate) fn depth(&self) -> u64 {
        self.undistributed.messages.count()
    }

    // --- the age of messages

    /// The oldest message that no channel has been given yet.
    pub(crate) fn oldest(&self) -> Option<Seq> {
        self.undistributed.messages.front().map(|range| range.start)
    }

    /// The age of a message in milliseconds since its publish, without a read of the disk. 0 if the clock says that the
    /// message is of the future. If the message is not in memory, the age may be too high by the time in which its
    /// segment was filled.
    pub(crate) fn age_ms(&self, now: Now, seq: Option<Seq>) -> u64 {
        let published_ns = seq.and_then(|seq| self.log.published_ns(seq));
        let age_ns = published_ns.map_or(0, |at| now.wall_ns.saturating_sub(at));
        age_ns / 1_000_000
    }

    // --- the keeper's answers

    /// Replaces the runs of the log that are queued for consumers by copies: after a failed sync, the log's bytes may
    /// change. Returns the consumers for which a frame was damaged. The connections of these consumers end.
    pub(crate) fn copy_runs(&mut self, clients: &mut Clients) -> Vec<ClientId> {
        let channels = self.channels.values();
        let consumers = channels.flat_map(|channel| channel.consumers.all.iter().copied());
        let log = &mut self.log;
        consumers
            .filter(|id| !clients[*id].copy_runs(log))
            .collect()
    }

    // --- time and checkpoints

    /// Timeouts, deferrals, syncs and checkpoints that are due.
    pub(crate) fn handle_timeout(&mut self, now: Now, clients: &mut Clients, work: &mut Work) {
        let mut has_changed = false;
        let (name, node) = (&self.name, self.options.log.node);
        let news = &mut self.output.news;
        self.channels.change_all(|channel| {
            work.begin_share();
            let dead = channel.dead_letters.as_mut();
            if let Some(moved) = dead.and_then(|dead| dead.take_moved(now.mono)) {
                news.push(dead_letter_line(name, channel, &moved, node));
            }
            let is_due = channel.next_timeout().is_some_and(|at| at <= now.mono);
            let has_moved = is_due && channel.handle_timeout(now.mono, clients, work);
            has_changed |= has_moved;
            has_moved
        });
        if has_changed {
            self.make_checkpoint_due();
        }
        self.channels.deadline = self.channels_deadline();
        self.end_grace_in_time(now);
        self.log.handle_timeout(now.mono);
        if let Some(gate) = &mut self.gate {
            gate.handle_timeout(now, &mut self.log);
        }
        if !self.ephemeral && self.log.checkpoint_due(now.mono) {
            self.want_checkpoint(Durable::IfNeeded);
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        let log = self.log.next_timeout();
        let grace = self.grace.as_ref().map(|grace| grace.timeout());
        let unclaimed = self.unclaimed.as_ref();
        let unclaimed = unclaimed.filter(|_| !self.undistributed.messages.is_empty());
        let unclaimed = unclaimed.and_then(|unclaimed| unclaimed.timeout());
        let gate = self.gate.as_ref();
        let save = gate.and_then(|gate| gate.next_timeout(&self.log));
        let deadlines = self.channels.deadline.into_iter().chain(log).chain(grace);
        deadlines.chain(unclaimed).chain(save).min()
    }

    fn channels_deadline(&self) -> Option<Duration> {
        let timeout = self.channels.next_timeout();
        timeout.into_iter().chain(self.channels.ends_at).min()
    }

    /// Asserts the invariants written on the type.
    pub(crate) fn check(&self, clients: &Clients) {
        let undistributed = self.undistributed.check();
        self.log.check();
        self.channels.check();
        let numbered = self.gate.as_ref().map_or(0, |gate| gate.check());
        let in_grace = self.grace.as_ref().map_or(0, |grace| grace.kept.check());
        let first_end = self.first_end();
        assert!(
            first_end.is_none()
                || self
                    .channels
                    .deadline
                    .is_some_and(|at| Some(at) <= first_end),
            "the end of a pause or an undo is forgotten"
        );
        let mut run_count = 0;
        for channel in self.channels.values() {
            channel.check(clients);
            let mut consumers = channel
                .consumers
                .all
                .iter()
                .filter_map(|id| clients.get(*id));
            assert!(
                !self.log.has_failed_sync() || consumers.all(|it| !it.output.queue.holds_runs()),
                "pages that may change are lent"
            );
            let consumers = channel
                .consumers
                .all
                .iter()
                .filter_map(|id| clients.get(*id));
            run_count += consumers
                .map(|it| it.output.queue.run_count())
                .sum::<usize>();
        }
        assert_eq!(self.log.pins(), run_count, "a write pins its segment");
        let owed = self.channels.values().map(Channel::owed_count);
        if let Some(undo) = &self.undo {
            undo.check();
            let kept = self.undistributed.messages.front();
            assert!(
                kept.is_none_or(|kept| undo.end() <= kept.start),
                "a message of the undo is not older than those of the topic"
            );
        }
        let undos = self.channels.values().filter_map(|it| it.undo.as_ref());
        let undos = undos.chain(&self.undo);
        let undos: u64 = undos.map(|undo| undo.count()).sum();
        let discarded = self.discarded.iter().map(Discarded::count);
        assert_eq!(
            self.log.holders(),
            undistributed + in_grace + numbered + undos + owed.chain(discarded).sum::<u64>(),
            "a message is held as often as it is owed"
        );
    }
}

/// The log line about messages that went to a dead-letter topic.
fn dead_letter_line(topic: &str, channel: &Channel, moved: &MovedLetters, node: u16) -> String {
    let to = channel.dead_letters.as_ref().map(|dead| dead.to().clone());
    let (from, stored) = moved.last;
    format!(
        "TOPIC({topic}) CHANNEL({}): {} messages reached {} attempts and went to topic {}; the last one was {} and is {}",
        channel.name,
        moved.count,
        moved.attempts_max,
        to.as_deref().unwrap_or_default(),
        MessageId::new(from, node),
        MessageId::new(stored, node),
    )
}

/// The way of published messages to the channels.
impl Topic {
    /// Gives published messages to the channels. The cost is that of the range ends and of the deferred messages,
    /// whatever the number of the others. Messages beyond the turn's budget stay. But the budget always covers
    /// as many deferred messages as were published since the last call: otherwise a flood of deferred messages would
    /// leave more of them behind each turn.
    pub(crate) fn distribute(&mut self, now: Now, clients: &Clients, work: &mut Work) {
        let new_deferred = std::mem::take(&mut self.new_deferred);
        if self.undistributed.messages.is_empty() {
            return;
        }
        if !self.can_distribute() {
            return self.bound_unclaimed(now, work);
        }
        let channels = self.channels.len();
        work.ensure((new_deferred + 1) * channels);
        while let Some(range) = self.undistributed.messages.front()
            && work.is_left()
        {
            work.spend(channels);
            match self.undistributed.deferred.front().copied() {
                // The message was found in a file that start-up did not read: no channel has it.
                Some((seq, _)) if seq < range.start => {
                    self.undistributed.deferred.pop_front();
                }
                Some((seq, ms)) if seq < range.end => {
                    self.undistributed.deferred.pop_front();
                    self.give(seq.since(range.start), clients);
                    let due = now.mono + Duration::from_millis(u64::from(ms));
                    self.give_deferred(now, due);
                }
                _ => self.give(range.len(), clients),
            }
        }
        self.bound_grace(now, work);
        self.make_checkpoint_due();
    }

    /// Gives published messages to the channels, before a change of which channels get messages. Returns false if the
    /// turn's budget is too small for all of them. Then the change has to wait: the remaining messages are owed to the
    /// channels as they are before the change.
    #[must_use]
    pub(crate) fn catch_up(&mut self, now: Now, clients: &Clients, work: &mut Work) -> bool {
        work.begin_share();
        self.distribute(now, clients, work);
        self.is_caught_up()
    }

    /// True when no message is on its way to the channels. The messages that a topic keeps because it is not open are
    /// not on their way.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.undistributed.messages.is_empty() || !self.is_open()
    }

    /// True when published messages belong to the channels. A topic that is not open keeps them.
    pub(crate) fn is_open(&self) -> bool {
        self.started && self.pause.is_none() && !self.channels.is_empty()
    }

    /// True when messages may pass to the channels in this turn.
    pub(super) fn can_distribute(&self) -> bool {
        let unfinished = self.checkpoints.unfinished.as_ref();
        self.is_open() && !unfinished.is_some_and(|checkpoint| checkpoint.is_past_channels())
    }

    /// Gives the first `count` of the undistributed to every channel.
    fn give(&mut self, count: u64, clients: &Clients) {
        if count == 0 {
            return;
        }
        let range = self.take_undistributed(count, None, 0);
        let (depth_max, log) = (self.options.mem_queue_size, &mut self.log);
        self.channels.change_all(|channel| {
            channel.accept(range, depth_max, clients, log);
            true
        });
    }

    /// Gives the first of the undistributed to every channel, to be delivered when it is due.
    fn give_deferred(&mut self, now: Now, due: Duration) {
        let range = self.take_undistributed(1, Some(due), now.unix_time_of(due));
        for channel in self.channels.values_mut() {
            channel.defer(range.start, due);
        }
        self.channels.lower_deadline(Some(due));
    }

    /// Takes messages that every channel, and the grace, holds from now on.
    fn take_undistributed(&mut self, count: u64, due: Option<Duration>, due_ns: u64) -> SeqRange {
        let range = self.undistributed.messages.take_front(count);
        let holders = self.channels.len() + usize::from(self.grace.is_some());
        if holders > 1 {
            self.log.retain(range, holders as u64 - 1);
        }
        if let Some(unfinished) = &mut self.checkpoints.unfinished {
            unfinished.add_given(&mut self.log, CheckpointRun::fresh(range, due_ns));
        }
        if let Some(grace) = &mut self.grace {
            grace.keep(range, due);
        }
        range
    }

    /// An ephemeral topic that cannot pass messages on keeps --mem-queue-size of them.
    pub(super) fn drop_beyond_memory(&mut self) {
        while self.undistributed.messages.count() > self.options.mem_queue_size {
            let Some(seq) = self.undistributed.messages.pop_newest() else {
                return;
            };
            let newest = self.undistributed.deferred.back();
            if newest.is_some_and(|(deferred, _)| *deferred == seq) {
                self.undistributed.deferred.pop_back();
            }
            self.log.release(seq);
        }
    }
}

/// What a topic keeps for channels that it does not have yet: its grace, and its unclaimed messages.
impl Topic {
    /// Begins the grace, at the start of the topic. Returns false if the topic gets none.
    pub(crate) fn begin_grace(&mut self, now: Now) -> bool {
        let period = self.options.grace.period;
        if self.ephemeral || period.is_zero() {
            return false;
        }
        self.set_grace(now, now.mono + period, Kept::default());
        // A crash must not end the grace.
        self.request_promised_checkpoint();
        true
    }

    /// Begins the grace, or goes on with it after a start. It ends at `until` at the latest. The log holds the messages
    /// of `kept` for the grace. The grace gets the undistributed messages later, so their bytes count already.
    fn set_grace(&mut self, now: Now, until: Duration, kept: Kept<Duration>) {
        let pieces = self.grace_pieces(&kept.messages, now);
        let grace = Grace::new(now, until, self.options.grace, kept, pieces);
        self.grace = Some(Box::new(grace));
    }

    /// The sizes of the messages of a grace and of those that it gets later.
    fn grace_pieces(&self, messages: &Ranges, now: Now) -> Pieces {
        // The log may have newer messages that only channels own: a takeover of nsqd's files appends them.
        let kept = messages.iter().chain(self.undistributed.messages.iter());
        Pieces::of_log(&self.log, kept, self.counters.totals, now)
    }

    /// Ends the grace if its time is over.
    pub(crate) fn end_grace_in_time(&mut self, now: Now) {
        if let Some(grace) = self.grace.take_if(|it| it.until <= now.mono) {
            self.discard(grace.kept.messages);
            if let Some(unfinished) = &mut self.checkpoints.unfinished {
                unfinished.draft.grace = None;
            }
            self.make_checkpoint_due();
        }
    }

    /// Drops the messages of the grace, which goes on. It gets those that are on their way to the channels.
    pub(crate) fn empty_grace(&mut self, now: Now) {
        let pieces = self.grace_pieces(&Ranges::default(), now);
        if let Some(grace) = &mut self.grace {
            let messages = grace.take_messages(pieces);
            self.discard(messages);
        }
    }

    /// Has messages released that the topic or an undo has kept.
    fn discard(&mut self, waiting: Ranges) {
        self.discarded.push(Discarded {
            waiting,
            ..Discarded::default()
        });
    }

    /// Drops the oldest messages of the grace, if there are too many.
    fn bound_grace(&mut self, now: Now, work: &mut Work) {
        let (end, totals) = (self.undistributed.messages.end(), self.counters.totals);
        if let Some(grace) = &mut self.grace
            && grace.bound(now, end, totals, &mut self.log, work)
        {
            let (name, bytes) = (&self.name, self.options.grace.bytes_max);
            self.output.news.push(format!(
                "TOPIC({name}): a channel that is made now gets only the newest messages: a new topic keeps \
                 {bytes} bytes (--new-topic-grace-bytes) and {DEFERRED_MAX} deferred messages"
            ));
        }
    }

    /// Drops the oldest messages that no channel owns, if there are too many. Call this when the topic cannot
    /// distribute messages, at the end of a turn and when the oldest message is too old.
    fn bound_unclaimed(&mut self, now: Now, work: &mut Work) {
        let has_channels = !self.channels.is_empty();
        plant!(BoundsBehindPause, let has_channels = false);
        let is_in_grace = self.grace.is_some();
        plant!(BoundsInGrace, let is_in_grace = false);
        if !self.started || has_channels || is_in_grace {
            return self.recount_unclaimed();
        }
        let Some(unclaimed) = &mut self.unclaimed else {
            return;
        };
        let is_first = unclaimed.dropped_count == 0;
        let (kept, log) = (&mut self.undistributed, &mut self.log);
        if unclaimed.bound(now, kept, self.counters.totals, log, work) == 0 {
            return;
        }
        if is_first {
            let name = &self.name;
            self.output.news.push(format!(
                "TOPIC({name}): messages that no channel owns are dropped (--unclaimed-messages); unclaimed_dropped_count \
                 in /stats says how many"
            ));
        }
        self.make_checkpoint_due();
    }

    /// Discards the count of the messages that no channel owns. Call this when the topic was emptied or gets a channel.
    fn recount_unclaimed(&mut self) {
        if let Some(unclaimed) = &mut self.unclaimed {
            unclaimed.pieces = None;
        }
    }

    /// Returns the number of messages that were dropped since the process started, because no channel owned them.
    pub(crate) fn unclaimed_dropped_count(&self) -> u64 {
        let unclaimed = self.unclaimed.as_ref();
        unclaimed.map_or(0, |unclaimed| unclaimed.dropped_count)
    }
}

/// The pump: what a topic does at the end of a turn, and which of its channels the next turn has to serve.
///
/// ```text
///   publish, FIN, REQ, RDY, timeout ──pump_later──► channels to pump ──pump──► deliveries, dead letters
/// ```
impl Topic {
    /// Does the topic's part of the end of a turn: gives published messages to the channels, delivers from the channels
    /// that have a message for a consumer, and continues work that takes more than one turn.
    pub(crate) fn pump(&mut self, now: Now, work: &mut Work, delivery: &mut Delivery<'_>) {
        work.begin_share();
        self.distribute(now, delivery.clients, work);
        work.begin_long_share();
        self.continue_checkpoint(now, work);
        self.pump_gate(work);
        let (mut again, mut unserved) = (Vec::new(), Vec::new());
        while let Some(id) = self.channels.next_to_pump() {
            let channel = &mut self.channels[id];
            channel.deliver(&mut self.log, delivery);
            let (letters, budget) = (&mut self.output.dead_letters, &mut *delivery.letters);
            let is_served = budget.is_left();
            let take = |letter| letters.push((id, letter));
            if self.checkpoints.stopping == Stopping::No
                && channel.take_dead_letters(delivery.now, &mut self.log, budget, take)
            {
                let next = if is_served { &mut again } else { &mut unserved };
                next.push(id);
            }
            let at = channel.next_timeout();
            plant!(TimerLost, let at = None);
            self.channels.lower_deadline(at);
        }
        // The last one is the first of the next turn.
        for id in again.into_iter().chain(unserved.into_iter().rev()) {
            self.channels.pump_later(id);
        }
        while let Some(discarded) = self.discarded.last_mut()
            && discarded.release_slice(&mut self.log, work)
        {
            self.discarded.pop();
        }
    }

    /// Goes on with the save of what the gate remembers, and takes its lines for the log.
    fn pump_gate(&mut self, work: &mut Work) {
        let Some(gate) = &mut self.gate else {
            return;
        };
        work.spend(gate.continue_save(&mut self.log, work.left()));
        let (name, news) = (&self.name, gate.take_news());
        let lines = news.map(|text| format!("TOPIC({name}): {text}"));
        self.output.news.extend(lines);
    }

    /// Returns true when the next turn has to continue unfinished work.
    pub(crate) fn has_work_left(&self) -> bool {
        let gate = self.gate.as_ref();
        let is_saving = self.checkpoints.unfinished.is_some()
            || gate.is_some_and(|gate| gate.has_slices_left());
        is_saving || !self.discarded.is_empty() || self.wants_pump()
    }

    /// Does what follows when a message of a channel was finished, requeued or touched: a checkpoint is due, and there
    /// may be deliveries or an earlier timeout.
    pub(crate) fn after_answer(&mut self, id: ChannelId) {
        self.make_checkpoint_due();
        self.channels
            .lower_deadline(self.channels[id].next_timeout());
        self.channels.pump_later(id);
    }

    /// True when a pump would do something.
    pub(crate) fn wants_pump(&self) -> bool {
        self.channels.want_pump()
            || (!self.undistributed.messages.is_empty() && self.can_distribute())
    }
}

#[cfg(test)]
mod tests;
