//! A channel: which messages of its topic's log are still owed to its consumers.
//!
//! A channel holds no message. It knows the state of each message that it owes:
//!
//! ```text
//!   waiting (ranges) ──deliver──► window (in flight) ──FIN──► gone
//!        ▲                           │    │
//!   deferred (tree) ◄──REQ n─────────┤    └─timeout─┐
//!        └────due────► requeued ◄────REQ 0──────────┘
//! ```
//!
//! An emptied channel may keep its messages for a while, so that an operator can bring them back (`undo.rs`).
//!
//! If the channel has a rule for dead letters, a message that has reached its attempts goes to another topic instead of
//! the requeued messages (`channel/dead_letters.rs`).
//!
//! A first delivery is a run straight out of the log; a redelivery goes frame by frame, with the
//! attempts patched in a copy of its header.

mod consumers;
pub(crate) mod dead_letters;
pub(crate) mod delivery;
pub(crate) mod discarded;
pub(crate) mod scan;
mod seq_set;
pub(crate) mod single_messages;

use crate::channel::dead_letters::DeadLetters;
use crate::channel::discarded::Discarded;
use crate::channel::seq_set::SeqSet;
use crate::channel::single_messages::SingleMessage;
use crate::channel::single_messages::{Deferred, DeferredEntry};
use crate::client::Clients;
use crate::dirty_set::Listed;
use crate::ids::ClientId;
use crate::latency::Latency;
use crate::long_queue::LongQueue;
use crate::pause::PauseUnderWay;
use crate::ranges::Ranges;
use crate::stats::ChannelCounters;
use crate::undo::{Undo, is_range};
use crate::window::{NotYours, Window};
use crate::work::Work;
use consumers::Consumers;
use diskq_log::{CheckpointNumber, CheckpointRun, Log, Now, SeqRange, plant};
use std::time::Duration;
use wire::id::Seq;

/// Most requeued and most deferred messages that are looked at for the attempts of the oldest message: statistics are taken every
/// second, and this takes some microseconds.
const LOOKED_AT_MAX: usize = 1024;

/// One channel of a topic.
///
/// Invariants: each seq the channel owes is in exactly one of waiting, requeued, deferred, dead letters and
/// window, and is held in the log once for it; `out_of_order` has the seqs of requeued, deferred and dead letters.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    pub(crate) name: Box<str>,
    pub(crate) ephemeral: bool,
    /// `None`: the channel is not paused.
    pub(crate) pause: Option<Box<PauseUnderWay>>,
    pub(crate) consumers: Consumers,
    pub(crate) counters: ChannelCounters,
    /// The place in the list `to_pump` of the topic's `Channels`.
    pub(crate) in_to_pump: Listed,
    /// The checkpoint that will record the channel. `None` once that checkpoint is written. A channel of an earlier run
    /// gets such a checkpoint if it is unsure.
    pub(crate) unrecorded: Option<CheckpointNumber>,
    /// True if an earlier run left the channel, and no sufficiently durable checkpoint names it. Either only nsqd.dat
    /// lists the channel, or the earlier run may have ended before its checkpoint was synced.
    pub(crate) is_unsure: bool,
    /// The latency from publish to FIN, if it is measured.
    pub(crate) latency: Option<Box<Latency>>,
    /// The messages that the channel was emptied of, while they can be brought back.
    pub(crate) undo: Option<Box<Undo>>,
    waiting: Ranges,
    requeued: LongQueue<SingleMessage>,
    deferred: Deferred,
    /// `None` if the channel has no rule for dead letters.
    pub(crate) dead_letters: Option<Box<DeadLetters>>,
    /// The seqs of requeued and deferred messages and of dead letters. The lists of these messages are not in the order
    /// of the seqs, so this set tells the oldest one.
    out_of_order: SeqSet,
    window: Window,
    /// The moves that a checkpoint's scan would miss; noted while a scan is under way.
    moved: Option<Vec<Moved>>,
    /// True if the last delivery was the turn of the requeued messages. Deliveries alternate between requeued and
    /// waiting messages, so that neither starves.
    requeued_turn: bool,
}

/// The manner in which a consumer gives a message back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requeue {
    /// The delay before the next delivery.
    pub(crate) timeout: Duration,
    /// False if the delivery does not count as an attempt.
    pub(crate) is_counted: bool,
}

impl Requeue {
    /// Returns the number of `attempts` that count. Beyond 65,535 the number of attempts is not known, so the highest
    /// number stays.
    fn attempts_left(self, attempts: u16) -> u16 {
        plant!(UncountedCounts, return attempts);
        attempts - u16::from(!self.is_counted && attempts != u16::MAX)
    }
}

/// A message that left the window for a place that the scan may have passed.
#[derive(Debug, Clone, Copy)]
struct Moved {
    seq: Seq,
    attempts: u16,
    due: Option<Duration>,
}

impl Channel {
    pub(crate) fn new(name: &str, ephemeral: bool, latency: Option<Latency>) -> Channel {
        Channel {
            name: name.into(),
            ephemeral,
            latency: latency.map(Box::new),
            ..Channel::default()
        }
    }

    /// Returns the number of messages that wait, including dead letters. Messages in flight and deferred messages do
    /// not count.
    pub(crate) fn depth(&self) -> u64 {
        let dead = self.dead_letters.as_ref();
        self.deliverable_count() + dead.map_or(0, |dead| dead.count())
    }

    /// Messages that wait for a consumer.
    fn deliverable_count(&self) -> u64 {
        self.waiting.count() + self.requeued.len() as u64
    }

    pub(crate) fn in_flight_count(&self) -> u64 {
        self.window.count()
    }

    pub(crate) fn deferred_count(&self) -> u64 {
        self.deferred.count()
    }

    /// The time at which the last deferred message is due.
    pub(crate) fn last_due(&self) -> Option<Duration> {
        let (due, _) = self.deferred.last_key()?;
        Some(Duration::from_nanos(due))
    }

    /// All messages that the channel owes.
    pub(crate) fn owed_count(&self) -> u64 {
        self.depth() + self.in_flight_count() + self.deferred_count()
    }

    /// True when a pump could deliver something.
    pub(crate) fn wants_pump(&self) -> bool {
        let dead = self.dead_letters.as_ref();
        let can_deliver = !self.consumers.ready.is_empty() && self.deliverable_count() > 0;
        self.pause.is_none() && (can_deliver || dead.is_some_and(|dead| dead.may_send()))
    }

    /// Makes [`Channel::oldest`] exact, unless hundreds of thousands of messages were finished behind older ones.
    pub(crate) fn drop_finished(&mut self) {
        self.window.drop_finished();
    }

    /// The oldest message that the channel owes: waiting, in flight, requeued, deferred or a dead letter. The cost does
    /// not depend on the number of messages. Call [`Channel::drop_finished`] before.
    pub(crate) fn oldest(&self) -> Option<Seq> {
        let waiting = self.waiting.front().map(|range| range.start);
        let out_of_order = self.out_of_order.first();
        let oldest = waiting.into_iter().chain(out_of_order);
        oldest.chain(self.window.oldest()).min()
    }

    /// Returns the deliveries of a message that the channel owes after which it was not finished. The present delivery of a
    /// message in flight does not count. 0 also for a message that is not among the first [`LOOKED_AT_MAX`] of its list:
    /// requeued and deferred messages are not in the order of their seqs.
    pub(crate) fn failed_attempts(&self, seq: Seq) -> u16 {
        let in_flight = self.window.get(seq);
        if let Some(entry) = in_flight {
            return entry.attempts.saturating_sub(1);
        }
        if !self.out_of_order.has(seq) {
            return 0;
        }
        let requeued = self.requeued.iter().take(LOOKED_AT_MAX);
        let requeued = requeued.map(|message| (message.seq, message.attempts));
        let deferred = self.deferred.iter_behind(None).take(LOOKED_AT_MAX);
        let deferred = deferred.map(|entry| (entry.seq, entry.attempts));
        let mut all = requeued.chain(deferred);
        all.find(|(found, _)| *found == seq)
            .map_or(0, |(_, attempts)| attempts)
    }

    /// Returns whether the channel owes a message of the range: waiting, in flight, requeued, deferred or a dead letter.
    pub(crate) fn owes_any(&self, range: SeqRange) -> bool {
        self.waiting.overlaps(range)
            || self.out_of_order.overlaps(range)
            || self.window.overlaps(range)
    }

    /// Takes a range over from the topic. An ephemeral channel keeps `depth_max` messages and lets
    /// go of the rest.
    pub(crate) fn accept(
        &mut self,
        range: SeqRange,
        depth_max: u64,
        clients: &Clients,
        log: &mut Log,
    ) {
        self.counters.message_count += range.len();
        let mut kept = range;
        if self.ephemeral {
            let room = self.ephemeral_room(depth_max, clients).min(range.len());
            kept.end = range.start.offset(room);
            log.release_range(SeqRange::new(kept.end, range.end));
        }
        self.waiting.push(kept);
    }

    /// Takes the messages of the topic's undo. An ephemeral channel takes no more of them than [`Channel::accept`] takes.
    /// See [`Channel::take_back`] for the order and for `due`.
    pub(crate) fn accept_back(
        &mut self,
        runs: &[CheckpointRun],
        depth_max: u64,
        clients: &Clients,
        log: &mut Log,
        due: impl Fn(u64) -> Option<Duration>,
    ) {
        let mut room = if self.ephemeral {
            self.ephemeral_room(depth_max, clients)
        } else {
            u64::MAX
        };
        let mut kept = Vec::new();
        for run in runs {
            self.counters.message_count += run.count;
            let count = run.count.min(room);
            room -= count;
            log.release_range(SeqRange::new(run.start.offset(count), run.range().end));
            if count > 0 {
                kept.push(CheckpointRun { count, ..*run });
            }
        }
        self.take_back(&kept, due);
    }

    /// The number of messages that an ephemeral channel can still take.
    fn ephemeral_room(&self, depth_max: u64, clients: &Clients) -> u64 {
        // With no memory queue at all, a message needs a client that waits for it.
        let limit = match depth_max {
            0 => self.consumers.ready_credit(clients),
            _ => depth_max,
        };
        limit.saturating_sub(self.depth())
    }

    /// Takes earlier messages over from the topic's grace.
    pub(crate) fn take_over(&mut self, range: SeqRange) {
        self.counters.message_count += range.len();
        self.waiting.push(range);
    }

    /// Takes a deferred message over from the topic.
    pub(crate) fn defer(&mut self, seq: Seq, due: Duration) {
        self.counters.message_count += 1;
        self.out_of_order.insert(seq);
        self.deferred.push(DeferredEntry {
            due,
            seq,
            attempts: 0,
        });
    }

    /// Restores messages that the checkpoint names without a due time.
    pub(crate) fn restore(&mut self, range: SeqRange, attempts: u16) {
        // `waiting` must stay in the order of the seqs. A message that was deferred may be out of this order, although
        // it was never delivered. It goes to the requeued messages.
        if attempts == 0 && self.waiting.end().is_none_or(|end| end <= range.start) {
            self.waiting.push(range);
            return;
        }
        for seq in range.start.0..range.end.0 {
            let seq = Seq(seq);
            self.out_of_order.insert(seq);
            let message = SingleMessage { seq, attempts };
            DeadLetters::sort(&mut self.dead_letters, &mut self.requeued, message);
        }
    }

    /// Number of ranges that wait, and of all messages that are in no range.
    pub(crate) fn entries(&self) -> usize {
        let ranges = self.waiting.places();
        let singles = self.out_of_order.count() + self.window.count();
        (ranges.end - ranges.start + singles) as usize
    }

    /// The number of ranges that wait and begin below `end`, up to `most`.
    pub(crate) fn ranges_below(&self, end: Seq, most: usize) -> usize {
        let ranges = self.waiting.iter().take(most);
        ranges.take_while(|range| range.start < end).count()
    }

    /// One past the newest message of the channel or of its undo. May be too high while messages are in flight.
    pub(crate) fn end(&self) -> Option<Seq> {
        let ends = [
            self.waiting.end(),
            self.out_of_order.last().map(|seq| seq.offset(1)),
            (self.window.count() > 0).then(|| self.window.span().end),
            self.undo.as_ref().map(|undo| undo.end()),
        ];
        ends.into_iter().flatten().max()
    }

    /// Takes back messages that the channel was emptied of, or those of the topic's undo. `due` returns the time of a
    /// message that is not due yet. The cost grows with the ranges that wait and are older, see
    /// [`Channel::ranges_below`].
    ///
    /// No scan of the channel may be under way, because the messages come from a place that no scan sees.
    pub(crate) fn take_back(
        &mut self,
        runs: &[CheckpointRun],
        due: impl Fn(u64) -> Option<Duration>,
    ) {
        debug_assert!(self.moved.is_none(), "a scan is under way");
        let mut entries = Vec::new();
        let ranges = runs.iter().filter(|run| is_range(run));
        self.waiting.insert(ranges.map(CheckpointRun::range));
        for run in runs.iter().filter(|run| !is_range(run)) {
            let (range, attempts) = (run.range(), run.attempts);
            for seq in (range.start.0..range.end.0).map(Seq) {
                self.out_of_order.insert(seq);
                match due(run.due_ns) {
                    Some(due) => entries.push(DeferredEntry { due, seq, attempts }),
                    None => {
                        let message = SingleMessage { seq, attempts };
                        DeadLetters::sort(&mut self.dead_letters, &mut self.requeued, message);
                    }
                }
            }
        }
        self.deferred.extend(entries);
    }

    /// Restores messages that the checkpoint names with a due time.
    pub(crate) fn restore_deferred(&mut self, entries: Vec<DeferredEntry>) {
        for entry in &entries {
            self.out_of_order.insert(entry.seq);
        }
        self.deferred.extend(entries);
    }

    /// FIN.
    pub(crate) fn finish(
        &mut self,
        now: Now,
        seq: Seq,
        owner: ClientId,
        log: &mut Log,
    ) -> Result<(), NotYours> {
        self.window.take(seq, owner)?;
        log.release(seq);
        self.add_samples(now, SeqRange::one(seq));
        Ok(())
    }

    /// Finishes messages up to the first seq that the owner does not have in flight. Returns how many were finished.
    pub(crate) fn finish_run(
        &mut self,
        now: Now,
        seqs: impl Iterator<Item = Seq>,
        owner: ClientId,
        log: &mut Log,
    ) -> u32 {
        let mut count = 0;
        // FINs usually come in the order of delivery. So consecutive seqs are released from the log as one range.
        let mut run = SeqRange::new(Seq(0), Seq(0));
        for seq in seqs {
            if self.window.take(seq, owner).is_err() {
                break;
            }
            count += 1;
            if seq != run.end {
                log.release_range(run);
                self.add_samples(now, run);
                run.start = seq;
            }
            run.end = seq.offset(1);
        }
        log.release_range(run);
        self.add_samples(now, run);
        count
    }

    #[inline]
    fn add_samples(&mut self, now: Now, seqs: SeqRange) {
        if let Some(latency) = &mut self.latency {
            latency.add_samples(now, seqs);
        }
    }

    /// REQ: back to the queue, at once or deferred.
    pub(crate) fn requeue(
        &mut self,
        seq: Seq,
        owner: ClientId,
        now: Duration,
        how: Requeue,
    ) -> Result<(), NotYours> {
        let attempts = self.window.take(seq, owner)?.attempts;
        plant!(
            RequeueKeepsFlight,
            self.window
                .insert(SeqRange::one(seq), owner, attempts, now, Duration::MAX)
        );
        let attempts = how.attempts_left(attempts);
        if let Some(latency) = &mut self.latency {
            latency.forget(seq);
        }
        self.counters.requeue_count += 1;
        self.out_of_order.insert(seq);
        if how.timeout.is_zero() {
            let message = SingleMessage { seq, attempts };
            DeadLetters::sort(&mut self.dead_letters, &mut self.requeued, message);
            self.tell_scan(seq, attempts, None);
        } else {
            let due = now + how.timeout;
            self.deferred.push(DeferredEntry { due, seq, attempts });
            self.tell_scan(seq, attempts, Some(due));
        }
        Ok(())
    }

    /// TOUCH: `timeout` from now, at most `timeout_max` from the delivery.
    pub(crate) fn touch(
        &mut self,
        seq: Seq,
        owner: ClientId,
        now: Duration,
        timeout: Duration,
        timeout_max: Duration,
    ) -> Result<(), NotYours> {
        self.window.touch(seq, owner, now, timeout, timeout_max)
    }

    /// Moves messages that timed out or became due back to the queue, as far as the turn's budget allows. Puts the
    /// consumers of `refills` on the ready list when their time has come. Returns true if a message or a consumer
    /// moved.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Duration,
        clients: &mut Clients,
        work: &mut Work,
    ) -> bool {
        let mut moved = false;
        let mut owners = Vec::new();
        let (requeued, counters) = (&mut self.requeued, &mut self.counters);
        let (noted, out_of_order) = (&mut self.moved, &mut self.out_of_order);
        let dead_letters = &mut self.dead_letters;
        self.window.expire(now, work, |seq, entry| {
            moved = true;
            if let Some(latency) = &mut self.latency {
                latency.forget(seq);
            }
            counters.timeout_count += 1;
            plant!(TimeoutForgets, return);
            let attempts = entry.attempts;
            out_of_order.insert(seq);
            DeadLetters::sort(dead_letters, requeued, SingleMessage { seq, attempts });
            if let Some(noted) = noted {
                let due = None;
                noted.push(Moved { seq, attempts, due });
            }
            owners.push(entry.owner);
        });
        for id in owners {
            if let Some(owner) = clients.get_mut(id) {
                owner.consumer.in_flight -= 1;
                self.consumers.make_ready(id, owner);
            }
        }
        moved |= self.consumers.end_refills(now, clients);
        while work.is_left()
            && let Some(entry) = self.deferred.pop_due(now)
        {
            moved = true;
            work.spend(1);
            let DeferredEntry { seq, attempts, .. } = entry;
            let message = SingleMessage { seq, attempts };
            DeadLetters::sort(&mut self.dead_letters, &mut self.requeued, message);
        }
        let dead = self.dead_letters.as_mut();
        moved | dead.is_some_and(|dead| dead.end_delay(now))
    }

    /// Returns when [`Channel::handle_timeout`] has something to do; may be early.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        let dead = self.dead_letters.as_ref();
        let timeouts = [
            self.window.next_timeout(),
            self.deferred.next_due(),
            self.consumers.refill_at,
            dead.and_then(|dead| dead.next_timeout()),
        ];
        timeouts.into_iter().flatten().min()
    }

    /// Gives up every message: waiting, requeued, deferred and in flight. The caller lets go of them.
    #[must_use]
    pub(crate) fn empty(&mut self, clients: &mut Clients) -> Discarded {
        let discarded = Discarded {
            waiting: std::mem::take(&mut self.waiting),
            requeued: std::mem::take(&mut self.requeued),
            deferred: std::mem::take(&mut self.deferred),
            dead_letters: self
                .dead_letters
                .as_mut()
                .map_or_else(LongQueue::default, |dead| dead.take_all()),
            out_of_order: std::mem::take(&mut self.out_of_order),
            window: std::mem::take(&mut self.window),
            ..Discarded::default()
        };
        if let Some(latency) = &mut self.latency {
            latency.forget_all();
        }
        for index in 0..self.consumers.all.len() {
            let id = self.consumers.all[index];
            if let Some(client) = clients.get_mut(id) {
                client.consumer.in_flight = 0;
                self.consumers.make_ready(id, client);
            }
        }
        discarded
    }

    /// Every seq the channel owes, for invariant checks.
    pub(crate) fn owed(&self) -> Vec<Seq> {
        let ranges = self
            .waiting
            .iter()
            .flat_map(|r| (r.start.0..r.end.0).map(Seq));
        ranges
            .chain(self.requeued.iter().map(|r| r.seq))
            .chain(self.deferred.iter_behind(None).map(|entry| entry.seq))
            .chain(self.dead_letters.iter().flat_map(|dead| dead.seqs()))
            .chain(self.window.iter().map(|(seq, _)| seq))
            .collect()
    }

    /// Asserts the invariants written on the type.
    pub(crate) fn check(&self, clients: &Clients) {
        self.waiting.check();
        self.requeued.check();
        self.window.check();
        self.out_of_order.check();
        if let Some(dead) = &self.dead_letters {
            dead.check();
        }
        let ordered = self.waiting.count() + self.window.count();
        assert_eq!(self.out_of_order.count(), self.owed_count() - ordered);
        self.consumers.check(clients);
        if let Some(undo) = &self.undo {
            undo.check();
            assert!(
                self.owed().iter().all(|seq| undo.end() <= *seq),
                "a message of the undo is not older than those of the channel"
            );
        }
        if let Some(latency) = &self.latency {
            assert_eq!(latency.in_flight_count(), self.window.count());
        }
        let mut owed = self.owed();
        owed.sort_unstable();
        let before = owed.len();
        owed.dedup();
        assert_eq!(before, owed.len(), "a message is in one place");
        assert_eq!(self.oldest().is_some(), !owed.is_empty());
        let newest = owed.last().map(|seq| seq.offset(1));
        assert!(newest <= self.end(), "the newest is missed");
        assert!(
            self.oldest() <= owed.first().copied(),
            "the oldest is missed"
        );
        for id in &self.consumers.all {
            let client = &clients[*id];
            let held = self
                .window
                .iter()
                .filter(|(_, entry)| entry.owner == *id)
                .count();
            assert_eq!(
                held, client.consumer.in_flight as usize,
                "in_flight counts the window"
            );
        }
    }
}

#[cfg(test)]
mod tests;
