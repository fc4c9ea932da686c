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

mod checkpoint;
mod fresh_keys;
mod fresh_numbers;
mod grace;
mod in_bounds;
mod in_grace;
mod inspected;
mod keys;
mod keys_save;
mod pieces;
mod publisher_numbers;
mod report;
pub(crate) mod restore;
mod saved_keys;
mod saved_numbers;
mod stop;
mod unclaimed;
mod undo;
mod unfinished_checkpoint;
mod waiters;

use crate::channel::Channel;
use crate::channel::dead_letters::DeadLetterRules;
use crate::channel::dead_letters::LettersEnd;
use crate::channel::dead_letters::{DeadLetter, MovedLetters};
use crate::channel::delivery::Delivery;
use crate::channel::discarded::Discarded;
use crate::client::Clients;
use crate::content::fingerprint::seed_of;
use crate::content::generations::clock_ms;
use crate::dedup_rules::DedupRules;
use crate::dirty_set::{DirtySet, Listed};
use crate::forward::WaitingPublish;
use crate::ids::{ChannelId, ClientId, TaskId};
use crate::latency::{Latency, LatencyOptions};
use crate::long_queue::LongQueue;
use crate::now::Now;
use crate::pause::PauseUnderWay;
use crate::publication::Publication;
use crate::ranges::Ranges;
use crate::unclaimed::UnclaimedRules;
use crate::undo::Undo;
use crate::work::Work;
use diskq_log::{
    AppendError, CheckpointNumber, Durable, Log, LogOptions, SeqRange, SlotKind, plant,
};
use grace::Grace;
use keys::Keys;
use publisher_numbers::PublisherNumbers;
use slotmap::SlotMap;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use unclaimed::Unclaimed;
use unfinished_checkpoint::UnfinishedCheckpoint;
use unfinished_checkpoint::owed_run;
use waiters::Waiters;
use wire::id::{MessageId, Seq};
use wire::name::{ChannelName, TopicName};
use wire::origin::Origin;

pub use grace::GraceOptions;
pub(crate) use waiters::Waiter;

/// A connection or task whose command is tried again once the topic has started (only the topic's creator waits for
/// that), or has caught up ([`Topic::catch_up`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retrier {
    /// A connection.
    Client(ClientId),
    /// A task of the shell.
    Task(TaskId),
}

/// The result of a publish that was not refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Published {
    /// The messages are in the log. Answer at once.
    Done,
    /// The messages are in the log. Answer when the log is synced up to this seq (`--sync-every=1`).
    AfterSync(Seq),
}

/// The progress of a graceful stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopping {
    No,
    Checkpoint(CheckpointNumber),
    Done,
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

impl TopicOptions {
    /// Returns the settings of the log of a topic. A topic with a rule keeps the origins of its messages in the log.
    #[must_use]
    pub fn log_options(&self, topic: TopicName<'_>) -> LogOptions {
        let mut options = self.log.clone();
        if topic.is_ephemeral() {
            // Nothing of it is read after a restart: no sync is worth its time, and no checkpoint is written.
            options.sync_every = 0;
            options.sync_timeout = Duration::from_secs(u64::from(u32::MAX));
        } else if self.dedup.publisher_of(topic.as_str()).is_some() {
            options.slots = SlotKind::WithOrigin;
        }
        options
    }
}

/// One topic.
///
/// Invariants: after `distribute`, `undistributed` is empty unless the topic is not open ([`Topic::is_open`]) or
/// [`Topic::has_work_left`]. The log holds each seq once for each channel that owes it, once if it is undistributed,
/// once if the grace keeps it, once if its number is not saved, once for each undo that has it, and once for each list
/// of discarded messages that has it. The subscriptions and lists that have the id of a channel lose the id when the
/// channel is deleted.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) name: Arc<str>,
    pub(crate) ephemeral: bool,
    pub(crate) paused: bool,
    /// The terms of the pause. `None`: the topic is not paused, or its pause has no terms.
    pub(crate) pause: Option<Box<PauseUnderWay>>,
    /// False until the channels that the nsqlookupds know of are created. Until then the topic keeps what is published.
    pub(crate) started: bool,
    pub(crate) message_count: u64,
    /// The next seq of the log at the start of the process, or when the topic was made.
    pub(crate) first_seq: Seq,
    pub(crate) message_bytes: u64,
    /// Messages of refused publishes.
    pub(crate) refused_count: u64,
    /// In the broker's `topics_to_pump`.
    pub(crate) in_to_pump: Listed,
    /// The channels whose dead letters are held, until letters of the shard have arrived.
    pub(crate) held_letters: Vec<ChannelId>,
    /// In the broker's `topics_to_release`.
    pub(crate) in_to_release: Listed,
    /// The earliest timeout of a channel; may be early, never late. Kept so that a turn need not
    /// ask every channel.
    deadline: Option<Duration>,
    /// The time at which the first pause or undo of the topic or of a channel ends; may be early, never late.
    ends_at: Option<Duration>,
    /// The broker's timer for this topic, if one is set.
    pub(crate) timer_at: Option<Duration>,
    /// Connections whose publish found no room.
    pub(crate) blocked_clients: Vec<ClientId>,
    /// Tasks whose publish found no room.
    pub(crate) blocked_tasks: Vec<TaskId>,
    /// The connections and tasks that wait until the topic has started, or has caught up.
    pub(crate) retriers: Vec<Retrier>,
    /// Publishes of other shards that found no room, or the topic not started, in order.
    pub(crate) waiting_publishes: VecDeque<WaitingPublish>,
    pub(crate) log: Log,
    /// A checkpoint that is as durable as promised says that the topic and its channels exist: they survive a crash,
    /// with or without messages.
    pub(crate) is_recorded: bool,
    /// True after a failed sync. The log is poisoned, and messages that are not synced never will be.
    pub(crate) sync_failed: bool,
    /// A drain has withdrawn the topic from the nsqlookupds.
    pub(crate) is_withdrawn: bool,
    stopping: Stopping,
    pub(crate) waiters: Waiters,
    options: TopicOptions,
    undistributed: Ranges,
    /// The number of deferred messages that were published since the last call of [`Topic::distribute`].
    new_deferred: usize,
    /// The undistributed messages that are deferred, each with its deferral in milliseconds.
    undistributed_deferred: LongQueue<(Seq, u32)>,
    /// The checkpoint that is to follow the one under way.
    wanted: Option<Durable>,
    unfinished: Option<Box<UnfinishedCheckpoint>>,
    /// The messages that the topic was emptied of, while they can be brought back. They lie below `undistributed`.
    pub(crate) undo: Option<Box<Undo>>,
    discarded: Vec<Discarded>,
    grace: Option<Box<Grace>>,
    /// `None`: a topic without channels keeps all messages.
    unclaimed: Option<Box<Unclaimed>>,
    /// True if a publish has to look at `numbers` and `keys`.
    is_inspected: bool,
    /// `None`: the topic does not recognise messages by their publishers.
    numbers: Option<Box<PublisherNumbers>>,
    /// `None`: the topic does not recognise messages by their content.
    keys: Option<Box<Keys>>,
    /// WARNING lines for the log.
    pub(crate) news: Vec<String>,
    /// Messages on their way to dead-letter topics, to be taken by the broker.
    pub(crate) dead_letters: Vec<(ChannelId, DeadLetter)>,
    channels: SlotMap<ChannelId, Channel>,
    by_name: BTreeMap<Box<str>, ChannelId>,
    channels_to_pump: DirtySet<ChannelId>,
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
        let rule = options.dedup.publisher_of(name.as_str());
        let process_seed = options.log.process_seed;
        let numbers = rule.map(|rule| Box::new(PublisherNumbers::new(rule, process_seed)));
        let seed = seed_of(name.as_str(), process_seed);
        let rule = options.dedup.content_of(name.as_str());
        let keys = rule.map(|rule| Box::new(Keys::new(rule, clock_ms(Duration::ZERO), seed)));
        Topic {
            name: name.as_str().into(),
            ephemeral: name.is_ephemeral(),
            paused: false,
            pause: None,
            started: true,
            message_count: 0,
            first_seq: log.next_seq(),
            message_bytes: 0,
            refused_count: 0,
            in_to_pump: Listed::default(),
            held_letters: Vec::new(),
            in_to_release: Listed::default(),
            deadline: None,
            ends_at: None,
            timer_at: None,
            blocked_clients: Vec::new(),
            blocked_tasks: Vec::new(),
            retriers: Vec::new(),
            waiting_publishes: VecDeque::new(),
            log,
            is_recorded: false,
            sync_failed: false,
            is_withdrawn: false,
            stopping: Stopping::No,
            waiters: Waiters::default(),
            options,
            undistributed: Ranges::default(),
            new_deferred: 0,
            undistributed_deferred: LongQueue::default(),
            wanted: None,
            unfinished: None,
            undo: None,
            discarded: Vec::new(),
            grace: None,
            unclaimed: bounds.map(Unclaimed::new).map(Box::new),
            is_inspected: numbers.is_some() || keys.is_some(),
            numbers,
            keys,
            news: Vec::new(),
            dead_letters: Vec::new(),
            channels: SlotMap::default(),
            by_name: BTreeMap::new(),
            channels_to_pump: DirtySet::default(),
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
        if self.is_inspected {
            self.publish_inspected(now, publication)
        } else {
            self.store(now, publication)
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
                self.undistributed_deferred.push_back((seq, defer_ms));
            }
            SeqRange::one(seq)
        } else {
            self.log.append_batch(mono, wall_ns, bodies, count, bytes)?
        };
        Ok(self.keep(range, bytes))
    }

    /// Appends messages with their origins. `sizes` has their number and their bytes.
    fn append_from<'b, B>(
        &mut self,
        now: Now,
        sizes: &Publication<B>,
        messages: impl Iterator<Item = (&'b [u8], Option<Origin>)>,
    ) -> Result<SeqRange, AppendError> {
        let Publication {
            count,
            body_bytes,
            defer_ms,
            ..
        } = *sizes;
        let (mono, wall_ns) = (now.mono, now.wall_ns);
        let range = self
            .log
            .append_numbered(mono, wall_ns, messages, count, body_bytes, defer_ms)?;
        if defer_ms > 0 {
            self.new_deferred += 1;
            self.undistributed_deferred
                .push_back((range.start, defer_ms));
        }
        Ok(range)
    }

    /// Does what follows an append: the topic holds the messages until it gives them to its channels.
    #[inline(always)]
    fn keep(&mut self, range: SeqRange, bytes: u64) -> Published {
        self.log.retain(range, 1);
        self.undistributed.push(range);
        self.message_count += range.len();
        self.message_bytes += bytes;
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

    /// Brings the deadline forward to `at`, when a channel has something to do.
    fn lower_deadline(&mut self, at: Option<Duration>) {
        self.deadline = self.deadline.into_iter().chain(at).min();
    }

    fn channels_deadline(&self) -> Option<Duration> {
        let channels = self.channels.values();
        let timeouts = channels.filter_map(Channel::next_timeout);
        timeouts.chain(self.ends_at).min()
    }

    // --- channels

    pub(crate) fn find_channel(&self, name: &str) -> Option<ChannelId> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn channel(&self, id: ChannelId) -> &Channel {
        &self.channels[id]
    }

    pub(crate) fn channel_mut(&mut self, id: ChannelId) -> &mut Channel {
        &mut self.channels[id]
    }

    /// The channel and the log it reads, together.
    pub(crate) fn channel_and_log(&mut self, id: ChannelId) -> (&mut Channel, &mut Log) {
        (&mut self.channels[id], &mut self.log)
    }

    /// The channel and the log, if the channel is still there.
    pub(crate) fn find_channel_and_log(
        &mut self,
        id: ChannelId,
    ) -> Option<(&mut Channel, &mut Log)> {
        Some((self.channels.get_mut(id)?, &mut self.log))
    }

    /// Channels in the order of their names.
    pub(crate) fn channels(&self) -> impl Iterator<Item = (ChannelId, &Channel)> {
        self.by_name.values().map(|id| (*id, self.channel(*id)))
    }

    /// Returns the first channels behind a name, or the first of all, in the order of their names.
    pub(crate) fn channels_after(&self, name: Option<&str>, count: usize) -> Vec<ChannelId> {
        let start = name.map_or(Bound::Unbounded, Bound::Excluded);
        let channels = self.by_name.range::<str, _>((start, Bound::Unbounded));
        channels.map(|(_, id)| *id).take(count).collect()
    }

    /// Finds or creates a channel. The caller has the topic catch up first, so a new channel gets earlier messages only
    /// if the topic kept them because it was not open, or is in grace.
    pub(crate) fn create_channel(&mut self, name: ChannelName<'_>) -> ChannelId {
        if let Some(id) = self.find_channel(name.as_str()) {
            return id;
        }
        let latency = self.options.latency.as_ref().map(Latency::new);
        let mut channel = Channel::new(name.as_str(), name.is_ephemeral(), latency);
        let rules = &self.options.dead_letters;
        channel.set_dead_letters(rules.of(&self.name, name.as_str()));
        self.fill_from_grace(&mut channel);
        self.recount_unclaimed();
        self.lower_deadline(channel.next_timeout());
        let id = self.channels.insert(channel);
        self.by_name.insert(name.as_str().into(), id);
        self.make_checkpoint_due();
        id
    }

    /// Removes a channel and drops its messages. If it was the last channel, this includes the messages on their way to
    /// it, unless the topic is in grace. Returns the channel's consumers.
    pub(crate) fn delete_channel(&mut self, id: ChannelId, clients: &mut Clients) -> Vec<ClientId> {
        let Some(mut channel) = self.channels.remove(id) else {
            return Vec::new();
        };
        let was_open = self.is_open();
        self.by_name.remove(&channel.name);
        if was_open && !self.is_open() && self.grace.is_none() {
            self.empty();
        }
        self.delete_from_grace(&channel);
        self.channels_to_pump.remove(id, &mut channel.in_to_pump);
        if let Some(undo) = channel.undo.take() {
            self.discard_undo(*undo);
        }
        let mut discarded = channel.empty(clients);
        if let Some(unfinished) = &mut self.unfinished {
            discarded.runs.extend(unfinished.remove_channel(id));
        }
        self.discarded.push(discarded);
        self.make_checkpoint_due();
        channel.consumers
    }

    /// Drops what a channel owes, and what an undo could bring back.
    pub(crate) fn empty_channel(&mut self, id: ChannelId, clients: &mut Clients) {
        self.drop_channel_undo(id);
        let discarded = self.channel_mut(id).empty(clients);
        self.discarded.push(discarded);
        self.make_checkpoint_due();
    }

    /// Takes the topic apart at its deletion. Returns its log, and the lists that have to be dropped in slices, one per
    /// turn.
    pub(crate) fn close(mut self) -> (Log, Vec<Discarded>) {
        if let Some(undo) = self.undo.take() {
            self.discard_undo(*undo);
        }
        let tables = self.take_tables();
        let mut discarded = self.discarded;
        discarded.extend(self.grace.map(|grace| Discarded {
            waiting: grace.messages,
            ..Discarded::default()
        }));
        discarded.push(Discarded {
            waiting: self.undistributed,
            undistributed_deferred: self.undistributed_deferred,
            runs: self.unfinished.map_or(Vec::new(), |it| it.into_runs()),
            tables,
            ..Discarded::default()
        });
        (self.log, discarded)
    }

    /// Drops what no channel has been given yet.
    pub(crate) fn empty(&mut self) {
        self.discarded.push(Discarded {
            waiting: std::mem::take(&mut self.undistributed),
            undistributed_deferred: std::mem::take(&mut self.undistributed_deferred),
            ..Discarded::default()
        });
        self.recount_unclaimed();
        self.make_checkpoint_due();
    }

    /// Messages that no channel has been given yet.
    pub(crate) fn depth(&self) -> u64 {
        self.undistributed.count()
    }

    // --- the age of messages

    /// The oldest message that no channel has been given yet.
    pub(crate) fn oldest(&self) -> Option<Seq> {
        self.undistributed.front().map(|range| range.start)
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
        let consumers = channels.flat_map(|channel| channel.consumers.iter().copied());
        let log = &mut self.log;
        consumers
            .filter(|id| !clients[*id].copy_runs(log))
            .collect()
    }

    // --- time and checkpoints

    /// Timeouts, deferrals, syncs and checkpoints that are due.
    pub(crate) fn handle_timeout(&mut self, now: Now, clients: &mut Clients, work: &mut Work) {
        let mut has_changed = false;
        for (id, channel) in &mut self.channels {
            work.begin_share();
            let dead = channel.dead_letters.as_mut();
            if let Some(moved) = dead.and_then(|dead| dead.take_moved(now.mono)) {
                let line = dead_letter_line(&self.name, channel, &moved, self.options.log.node);
                self.news.push(line);
            }
            if channel.next_timeout().is_some_and(|at| at <= now.mono)
                && channel.handle_timeout(now.mono, clients, work)
            {
                has_changed = true;
                if channel.wants_pump() {
                    self.channels_to_pump.insert(id, &mut channel.in_to_pump);
                }
            }
        }
        if has_changed {
            self.make_checkpoint_due();
        }
        self.deadline = self.channels_deadline();
        self.end_grace_in_time(now);
        self.log.handle_timeout(now.mono);
        self.save_keys_in_time(now);
        self.save_numbers_if_synced(now);
        if !self.ephemeral && self.log.checkpoint_due(now.mono) {
            self.want_checkpoint(Durable::IfNeeded);
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        let log = self.log.next_timeout();
        let grace = self.grace_timeout();
        let unclaimed = self.unclaimed_timeout();
        let keys = self.keys.as_ref().and_then(|keys| keys.save.next_timeout());
        let deadlines = self.deadline.into_iter().chain(log).chain(grace);
        let save = self.save_timeout();
        deadlines.chain(unclaimed).chain(keys).chain(save).min()
    }

    /// Asserts the invariants written on the type.
    pub(crate) fn check(&self, clients: &Clients) {
        self.undistributed.check();
        self.log.check();
        let numbered = self.check_numbers();
        self.check_keys();
        self.undistributed_deferred.check();
        let mut kept = 0;
        if let Some(grace) = &self.grace {
            grace.messages.check();
            grace.deferred.check();
            assert!(grace.deferred.iter().is_sorted_by_key(|(seq, _)| *seq));
            kept = grace.messages.count();
        }
        assert!(self.undistributed_deferred.iter().is_sorted());
        let deadline = self.channels_deadline();
        assert!(
            deadline.is_none() || self.deadline.is_some_and(|at| Some(at) <= deadline),
            "a channel's timeout is forgotten"
        );
        let first_end = self.first_end();
        assert!(
            first_end.is_none() || self.ends_at.is_some_and(|at| Some(at) <= first_end),
            "the end of a pause or an undo is forgotten"
        );
        assert!(self.pause.is_none() || self.paused);
        assert_eq!(self.channels.len(), self.by_name.len());
        let mut run_count = 0;
        for (id, channel) in &self.channels {
            channel.check(clients);
            self.channels_to_pump.check(id, &channel.in_to_pump);
            let mut consumers = channel.consumers.iter().filter_map(|id| clients.get(*id));
            assert!(
                !self.log.has_failed_sync() || consumers.all(|it| !it.output.queue.holds_runs()),
                "pages that may change are lent"
            );
            let consumers = channel.consumers.iter().filter_map(|id| clients.get(*id));
            run_count += consumers
                .map(|it| it.output.queue.run_count())
                .sum::<usize>();
        }
        assert_eq!(self.log.pins(), run_count, "a write pins its segment");
        let owed = self.channels.values().map(Channel::owed_count);
        if let Some(undo) = &self.undo {
            undo.check();
            let kept = self.undistributed.front();
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
            self.undistributed.count()
                + kept
                + numbered
                + undos
                + owed.chain(discarded).sum::<u64>(),
            "a message is held as often as it is owed"
        );
        let mut to_pump = self.channels_to_pump.iter();
        assert!(to_pump.all(|id| self.channels.contains_key(id)));
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
        if self.undistributed.is_empty() {
            return;
        }
        if !self.can_distribute() {
            return self.bound_unclaimed(now, work);
        }
        let channels = self.by_name.len();
        work.ensure((new_deferred + 1) * channels);
        while let Some(range) = self.undistributed.front()
            && work.is_left()
        {
            work.spend(channels);
            match self.undistributed_deferred.front().copied() {
                // The message was found in a file that start-up did not read: no channel has it.
                Some((seq, _)) if seq < range.start => {
                    self.undistributed_deferred.pop_front();
                }
                Some((seq, ms)) if seq < range.end => {
                    self.undistributed_deferred.pop_front();
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
        self.undistributed.is_empty() || !self.is_open()
    }

    /// True when published messages belong to the channels. A topic that is not open keeps them.
    pub(crate) fn is_open(&self) -> bool {
        self.started && !self.paused && !self.by_name.is_empty()
    }

    /// True when messages may pass to the channels in this turn.
    pub(super) fn can_distribute(&self) -> bool {
        let unfinished = self.unfinished.as_ref();
        self.is_open() && !unfinished.is_some_and(|checkpoint| checkpoint.is_past_channels())
    }

    /// Gives the first `count` of the undistributed to every channel.
    fn give(&mut self, count: u64, clients: &Clients) {
        if count == 0 {
            return;
        }
        let range = self.take_undistributed(count, 0);
        self.keep_in_grace(range, None);
        let depth_max = self.options.mem_queue_size;
        for (id, channel) in &mut self.channels {
            channel.accept(range, depth_max, clients, &mut self.log);
            if channel.wants_pump() {
                self.channels_to_pump.insert(id, &mut channel.in_to_pump);
            }
        }
    }

    /// Gives the first of the undistributed to every channel, to be delivered when it is due.
    fn give_deferred(&mut self, now: Now, due: Duration) {
        let due_ns = now.unix_time_of(due);
        let range = self.take_undistributed(1, due_ns);
        self.keep_in_grace(range, Some(due));
        let seq = range.start;
        for channel in self.channels.values_mut() {
            channel.defer(seq, due);
        }
        self.lower_deadline(Some(due));
    }

    /// Takes messages that every channel, and the grace, holds from now on.
    fn take_undistributed(&mut self, count: u64, due_ns: u64) -> SeqRange {
        let range = self.undistributed.take_front(count);
        let holders = self.by_name.len() + usize::from(self.grace.is_some());
        if holders > 1 {
            self.log.retain(range, holders as u64 - 1);
        }
        if let Some(unfinished) = &mut self.unfinished {
            unfinished.add_given(&mut self.log, owed_run(range, due_ns));
        }
        range
    }

    /// An ephemeral topic that cannot pass messages on keeps --mem-queue-size of them.
    pub(super) fn drop_beyond_memory(&mut self) {
        while self.undistributed.count() > self.options.mem_queue_size {
            let Some(seq) = self.undistributed.pop_newest() else {
                return;
            };
            let newest = self.undistributed_deferred.back();
            if newest.is_some_and(|(deferred, _)| *deferred == seq) {
                self.undistributed_deferred.pop_back();
            }
            self.log.release(seq);
        }
    }
}

/// The pump: what a topic does at the end of a turn, and which of its channels the next turn has to serve.
///
/// ```text
///   publish, FIN, REQ, RDY, timeout ──pump_channel_later──► channels to pump ──pump──► deliveries, dead letters
/// ```
impl Topic {
    /// Does the topic's part of the end of a turn: gives published messages to the channels, delivers from the channels
    /// that have a message for a consumer, and continues work that takes more than one turn.
    pub(crate) fn pump(&mut self, now: Now, work: &mut Work, delivery: &mut Delivery<'_>) {
        work.begin_share();
        self.distribute(now, delivery.clients, work);
        work.begin_long_share();
        self.continue_checkpoint(now, work);
        self.continue_snapshot(work);
        self.continue_save(work);
        let (mut again, mut unserved) = (Vec::new(), Vec::new());
        loop {
            let channels = &mut self.channels;
            let id = self
                .channels_to_pump
                .pop_last(|id| Some(&mut channels.get_mut(id)?.in_to_pump));
            let Some(id) = id else {
                break;
            };
            let channel = &mut self.channels[id];
            channel.deliver(&mut self.log, delivery);
            let (letters, budget) = (&mut self.dead_letters, &mut *delivery.letters);
            let is_served = budget.is_left();
            let take = |letter| letters.push((id, letter));
            let end = match self.stopping {
                Stopping::No => channel.take_dead_letters(&mut self.log, budget, take),
                _ => LettersEnd::Nothing,
            };
            match end {
                LettersEnd::Nothing => {}
                LettersEnd::Turn if is_served => again.push(id),
                LettersEnd::Turn => unserved.push(id),
                LettersEnd::Held => self.held_letters.push(id),
            }
            let at = channel.next_timeout();
            plant!(TimerLost, let at = None);
            self.lower_deadline(at);
        }
        // The last one is the first of the next turn.
        for id in again.into_iter().chain(unserved.into_iter().rev()) {
            self.pump_channel_later(id);
        }
        while let Some(discarded) = self.discarded.last_mut()
            && discarded.release_slice(Some(&mut self.log), work)
        {
            self.discarded.pop();
        }
    }

    /// Lets the dead letters leave that were held: see [`LettersEnd::Held`].
    pub(crate) fn release_letters(&mut self) {
        for id in std::mem::take(&mut self.held_letters) {
            // A channel that was deleted has no letters.
            if let Some(channel) = self.channels.get_mut(id) {
                channel.release_dead_letters();
                self.pump_channel_later(id);
            }
        }
    }

    /// Returns true when the next turn has to continue unfinished work.
    pub(crate) fn has_work_left(&self) -> bool {
        let is_saving = self.unfinished.is_some() || self.has_snapshot() || self.is_encoding();
        is_saving || !self.discarded.is_empty() || self.wants_pump()
    }

    /// Names a channel for the next pump, if it has something for someone.
    pub(crate) fn pump_channel_later(&mut self, id: ChannelId) {
        let channel = &mut self.channels[id];
        if channel.wants_pump() {
            self.channels_to_pump.insert(id, &mut channel.in_to_pump);
        }
    }

    /// Does what follows when a message of a channel was finished, requeued or touched: a checkpoint is due, and there
    /// may be deliveries or an earlier timeout.
    pub(crate) fn after_answer(&mut self, id: ChannelId) {
        self.make_checkpoint_due();
        self.lower_deadline(self.channel(id).next_timeout());
        self.pump_channel_later(id);
    }

    /// Names every channel for the next pump that has something for someone.
    pub(crate) fn pump_channels_later(&mut self) {
        for (id, channel) in &mut self.channels {
            if channel.wants_pump() {
                self.channels_to_pump.insert(id, &mut channel.in_to_pump);
            }
        }
    }

    /// True when a pump would do something.
    pub(crate) fn wants_pump(&self) -> bool {
        !self.channels_to_pump.is_empty()
            || (!self.undistributed.is_empty() && self.can_distribute())
    }
}

#[cfg(test)]
mod tests;
