//! [`Window`]: the messages of one channel that are in flight, each with its consumer and its deadline.
//!
//! FIN carries an id, the id is a function of the seq, and in-flight seqs are dense, so an entry is
//! found by subtraction: `ring[seq - base]`. Measured before the project began: 2.8 ns for insert
//! and remove, a hash map on the id 36-56 ns.
//!
//! ```text
//!   stragglers: BTreeMap           ring: LongQueue, the place of an entry is its seq
//!   seqs below base                base ............... base + ring.len()
//!   (redelivered, left behind)     [entry][free][entry][entry]
//! ```
//!
//! One message that nobody finishes would pin the ring's front while the tail runs on. When the
//! ring would grow beyond [`RING_ENTRIES_MIN`] and four times what is in flight, its oldest entries
//! move to the tree, so memory stays proportional to what is in flight.
//!
//! Timeouts are not per message: each delivered run appends one [`Batch`] to a list of its timeout
//! value. Deadlines are rounded up to [`TICK`], consecutive batches with the same deadline merge,
//! and a batch whose messages were all finished is dropped without looking at them one by one.
//!
//! Millions of messages may be in flight, and no call goes through all of them. The ring and the lists consist of
//! pieces. The turn's [`Work`] bounds how many messages time out in a turn. In one call, free places leave the ring up
//! to the end of a piece, and at most [`MOVES_MAX`] old entries move to the tree.

use crate::ids::ClientId;
use crate::long_queue::{LongQueue, PIECE};
use crate::work::Work;
use diskq_log::{SeqRange, plant};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::id::Seq;

/// The ring may always span this many seqs.
pub(crate) const RING_ENTRIES_MIN: u64 = 65_536;

/// At most this many free places are added to the ring to reach a new message. A message farther away is a straggler.
const GAP_MAX: u64 = 16_384;

/// At most this many places at the front leave the ring in one call of [`Window::make_room`].
const MOVES_MAX: usize = 1024;

/// One call of [`Window::drop_finished`] goes through this many pieces of the ring at most.
const PIECES_DROPPED_MAX: usize = 16;

/// One call of [`Window::forget_finished_batches`] checks this many batches.
const SWEPT_BATCHES: usize = 16;

/// Deadlines are rounded up to multiples of this, so that batches merge. A timeout is never early.
pub const TICK: Duration = Duration::from_millis(16);

/// The reason why FIN, REQ or TOUCH found nothing to act on; the texts are nsqd's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotYours {
    /// Never delivered, already finished, timed out or emptied.
    NotInFlight,
    /// Delivered to another connection.
    OtherOwner,
}

impl NotYours {
    /// The cause as it stands in the error frame.
    pub(crate) fn cause(self) -> &'static str {
        match self {
            NotYours::NotInFlight => "ID not in flight",
            NotYours::OtherOwner => "client does not own message",
        }
    }
}

/// One message in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The connection that must finish it.
    pub owner: ClientId,
    /// Deliveries so far, this one included; saturates at 65,535.
    pub attempts: u16,
    /// The time at which it goes back to the queue.
    pub deadline: Duration,
    /// The time at which it was handed to the owner: TOUCH may not go beyond this plus --max-msg-timeout.
    pub delivered: Duration,
}

/// All messages of a channel that are in flight.
///
/// Invariants: a seq is in the ring or among the stragglers, never both (a straggler may lie within
/// the ring's span: then its place in the ring is free); for every message in flight there is a batch or an
/// irregular deadline that is not later than the message's own deadline.
#[derive(Debug, Default)]
pub(crate) struct Window {
    ring: LongQueue<Option<Entry>>,
    ring_count: u64,
    stragglers: BTreeMap<Seq, Entry>,
    lists: Vec<Batches>,
    batches_count: usize,
    irregular: BTreeSet<(Duration, Seq)>,
}

impl Window {
    /// Messages in flight.
    pub(crate) fn count(&self) -> u64 {
        self.ring_count + self.stragglers.len() as u64
    }

    /// Puts a run in flight: `seqs` to `owner`, due back at `now + timeout`.
    ///
    /// # Panics
    /// If one of the seqs is in flight already: a message has one owner per channel.
    pub(crate) fn insert(
        &mut self,
        seqs: SeqRange,
        owner: ClientId,
        attempts: u16,
        now: Duration,
        timeout: Duration,
    ) {
        let deadline = round_up(now.saturating_add(timeout));
        let entry = Entry {
            owner,
            attempts,
            deadline,
            delivered: now,
        };
        if let Some(None) = self.ring.front() {
            self.drop_free_front();
        }
        if self.ring.is_empty() {
            self.ring.begin_at(seqs.start.0);
        }
        if seqs.start < self.base() || !self.make_room(seqs) {
            for seq in seqs.start.0..seqs.end.0 {
                let before = self.stragglers.insert(Seq(seq), entry);
                assert!(before.is_none(), "a message has one owner per channel");
            }
        } else {
            let ring_end = self.ring.places().end;
            if seqs.start.0 > ring_end {
                let gap = seqs.start.0 - ring_end;
                self.ring.extend(None, gap as usize);
            }
            for seq in seqs.start.0..seqs.end.0.min(ring_end) {
                let slot = self.ring.get_mut(seq).expect("the ring goes on");
                assert!(slot.is_none(), "a message has one owner per channel");
                *slot = Some(entry);
            }
            let added = seqs.end.0.saturating_sub(seqs.start.0.max(ring_end));
            self.ring.extend(Some(entry), added as usize);
            self.ring_count += seqs.len();
        }
        self.push_batch(timeout, Batch { deadline, seqs });
    }

    /// True if a message is in flight.
    pub(crate) fn has(&self, seq: Seq) -> bool {
        self.get(seq).is_some()
    }

    /// The entry of a message that `owner` may act on.
    ///
    /// # Errors
    /// [`NotYours`] when it is not in flight or belongs to another connection.
    pub(crate) fn owned(&self, seq: Seq, owner: ClientId) -> Result<Entry, NotYours> {
        let entry = self.get(seq).ok_or(NotYours::NotInFlight)?;
        if entry.owner == owner {
            Ok(entry)
        } else {
            Err(NotYours::OtherOwner)
        }
    }

    /// Takes a message out of flight, for FIN and REQ.
    ///
    /// # Errors
    /// As [`Window::owned`]; nothing changes then.
    pub(crate) fn take(&mut self, seq: Seq, owner: ClientId) -> Result<Entry, NotYours> {
        let is_first = seq == self.base();
        if let Some(slot) = self.ring.get_mut(seq.0)
            && let Some(entry) = *slot
        {
            plant!(FinOfAnother, let owner = entry.owner);
            if entry.owner != owner {
                return Err(NotYours::OtherOwner);
            }
            self.ring_count -= 1;
            if is_first {
                self.ring.pop_front();
                if let Some(None) = self.ring.front() {
                    self.drop_free_front();
                }
            } else {
                *slot = None;
            }
            return Ok(entry);
        }
        let entry = *self.stragglers.get(&seq).ok_or(NotYours::NotInFlight)?;
        if entry.owner != owner {
            return Err(NotYours::OtherOwner);
        }
        self.stragglers.remove(&seq);
        Ok(entry)
    }

    /// Moves a message's deadline to `now + timeout`, but not beyond `delivered + timeout_max`.
    ///
    /// # Errors
    /// As [`Window::owned`].
    pub(crate) fn touch(
        &mut self,
        seq: Seq,
        owner: ClientId,
        now: Duration,
        timeout: Duration,
        timeout_max: Duration,
    ) -> Result<(), NotYours> {
        let entry = self.owned(seq, owner)?;
        let wanted = round_up(now.saturating_add(timeout));
        plant!(TouchShortens, let wanted = round_up(now.saturating_add(timeout / 2)));
        let cap = round_up(entry.delivered.saturating_add(timeout_max));
        let deadline = wanted.min(cap);
        if deadline == entry.deadline {
            return Ok(());
        }
        let slot = self.get_mut(seq).expect("owned() found it");
        slot.deadline = deadline;
        if deadline == wanted {
            let seqs = SeqRange::one(seq);
            self.push_batch(timeout, Batch { deadline, seqs });
        } else {
            // Out of its list's order: a capped deadline is earlier than what the list ends with.
            self.irregular.insert((deadline, seq));
        }
        Ok(())
    }

    /// Hands out messages whose deadline is reached, as far as the turn's budget allows: per list, those with the
    /// oldest deadline first.
    pub(crate) fn expire(
        &mut self,
        now: Duration,
        work: &mut Work,
        mut expired: impl FnMut(Seq, Entry),
    ) {
        for list in 0..self.lists.len() {
            while work.is_left()
                && let Some(batch) = self.lists[list].front().copied()
            {
                let mut rest = batch.seqs;
                if rest.end <= self.base() && self.stragglers.is_empty() {
                    rest.start = rest.end;
                    work.spend(1);
                } else if batch.deadline <= now {
                    let (slice, count) = self.slice_of(rest, work.left());
                    for seq in self.in_flight_of(slice) {
                        self.expire_one(seq, now, &mut expired);
                    }
                    rest.start = slice.end;
                    work.spend(count);
                } else {
                    break;
                }
                if rest.is_empty() {
                    self.lists[list].pop_front();
                    self.batches_count -= 1;
                } else if let Some(batch) = self.lists[list].front_mut() {
                    batch.seqs = rest;
                }
            }
        }
        while work.is_left()
            && let Some((deadline, seq)) = self.irregular.first().copied()
            && deadline <= now
        {
            work.spend(1);
            self.irregular.pop_first();
            self.expire_one(seq, now, &mut expired);
        }
        self.lists.retain(|batches| batches.len() > 0);
    }

    /// The earliest moment at which [`Window::expire`] may have something to do. May be early, when
    /// the messages of the first batch were finished or touched meanwhile; never late.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        if self.count() == 0 {
            return None;
        }
        let regular = self.lists.iter().filter_map(Batches::front);
        let regular = regular.map(|batch| batch.deadline);
        let irregular = self.irregular.first().map(|(deadline, _)| *deadline);
        regular.chain(irregular).min()
    }

    /// Drops a part of the window, of bounded size. Returns the messages that were in flight in this part, perhaps an
    /// empty range, or `None` when the window is empty. Only for a window that is dropped as a whole: the timeouts
    /// of the remaining messages are not kept right.
    pub(crate) fn drop_part(&mut self) -> Option<SeqRange> {
        if let Some((seq, _)) = self.stragglers.pop_first() {
            return Some(SeqRange::one(seq));
        }
        self.drop_free_front();
        let seq = self.base();
        if let Some(place) = self.ring.front() {
            let count = u64::from(place.is_some());
            self.ring_count -= count;
            self.ring.pop_front();
            return Some(SeqRange::new(seq, seq.offset(count)));
        }
        let list = self.lists.last_mut();
        let is_left = self.irregular.pop_first().is_some()
            || list.is_some_and(|list| list.pop_front().is_some())
            || self.lists.pop().is_some();
        is_left.then(|| SeqRange::new(seq, seq))
    }

    /// Drops free places at the ring's front, up to the end of a few pieces.
    pub(crate) fn drop_finished(&mut self) {
        for _ in 0..PIECES_DROPPED_MAX {
            if let Some(None) = self.ring.front() {
                self.drop_free_front();
            }
        }
    }

    /// The oldest message in flight. After more than [`Window::drop_finished`] could drop, an older message that is
    /// finished.
    pub(crate) fn oldest(&self) -> Option<Seq> {
        let straggler = self.stragglers.first_key_value().map(|(seq, _)| *seq);
        let dense = (self.ring_count > 0).then_some(self.base());
        straggler.into_iter().chain(dense).min()
    }

    /// The places of the ring from `seq` on, in order, free ones included. Messages leave the ring for the
    /// stragglers, and never come back from there.
    pub(crate) fn ring_from(&self, seq: Seq) -> impl Iterator<Item = (Seq, Option<Entry>)> + '_ {
        let first = seq.max(self.base());
        let places = self.ring.iter_from(first.0).enumerate();
        places.map(move |(i, place)| (first.offset(i as u64), *place))
    }

    /// All seqs up to the last one in flight.
    pub(crate) fn span(&self) -> SeqRange {
        let ring_end = self.ring_end();
        let last = self.stragglers.last_key_value();
        let end = last.map_or(ring_end, |(seq, _)| ring_end.max(seq.offset(1)));
        SeqRange::new(Seq(0), end)
    }

    /// The stragglers from `seq` on, in order.
    pub(crate) fn stragglers_from(&self, seq: Seq) -> impl Iterator<Item = (Seq, Entry)> + '_ {
        let stragglers = self.stragglers.range(seq..);
        stragglers.map(|(seq, entry)| (*seq, *entry))
    }

    /// Returns whether a message of the range is in flight. The cost grows with the free places of the ring in the range.
    pub(crate) fn overlaps(&self, range: SeqRange) -> bool {
        let mut stragglers = self.stragglers_from(range.start);
        if stragglers.next().is_some_and(|(seq, _)| seq < range.end) {
            return true;
        }
        let ring = self.ring_from(range.start);
        let mut ring = ring.take_while(|(seq, _)| *seq < range.end);
        ring.any(|(_, entry)| entry.is_some())
    }

    /// Every message in flight, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Seq, Entry)> + '_ {
        let ring = self.ring_from(Seq(0));
        let ring = ring.filter_map(|(seq, entry)| Some((seq, entry?)));
        ring.chain(self.stragglers.iter().map(|(seq, entry)| (*seq, *entry)))
    }

    /// Asserts the invariants written on the type.
    pub(crate) fn check(&self) {
        self.ring.check();
        let used = self.ring.iter().flatten().count();
        assert_eq!(used as u64, self.ring_count, "ring_count counts the ring");
        for seq in self.stragglers.keys() {
            let in_ring = matches!(self.ring.get(seq.0), Some(Some(_)));
            assert!(!in_ring, "a seq is in one place");
        }
        let batches: usize = self.lists.iter().map(Batches::len).sum();
        assert_eq!(batches, self.batches_count);
        for list in &self.lists {
            assert!(
                list.iter()
                    .zip(list.iter().skip(1))
                    .all(|(a, b)| a.deadline <= b.deadline)
            );
        }
        if self.count() < 1000 {
            for (seq, entry) in self.iter() {
                let covers = |b: &Batch| b.seqs.contains(seq) && b.deadline <= entry.deadline;
                let regular = self.lists.iter().any(|list| list.iter().any(covers));
                let irregular = self.irregular.contains(&(entry.deadline, seq));
                assert!(
                    regular || irregular,
                    "every message in flight has a timeout: {seq:?}"
                );
            }
        }
    }

    /// The entry of a message in flight.
    pub(crate) fn get(&self, seq: Seq) -> Option<Entry> {
        let of_ring = self.ring.get(seq.0).copied().flatten();
        of_ring.or_else(|| self.stragglers.get(&seq).copied())
    }

    fn get_mut(&mut self, seq: Seq) -> Option<&mut Entry> {
        let of_ring = self.ring.get_mut(seq.0).and_then(Option::as_mut);
        of_ring.or_else(|| self.stragglers.get_mut(&seq))
    }

    /// The seqs of `seqs` that are in flight, in order. Costs what the ring and the stragglers hold
    /// of the range, not what the range spans.
    fn in_flight_of(&self, seqs: SeqRange) -> Vec<Seq> {
        let stragglers = self.stragglers.range(seqs.start..seqs.end);
        let mut found: Vec<Seq> = stragglers.map(|(seq, _)| *seq).collect();
        let ring = self.ring_from(seqs.start);
        let ring = ring.take_while(|(seq, _)| *seq < seqs.end);
        found.extend(ring.filter_map(|(seq, place)| place.map(|_| seq)));
        found.sort_unstable();
        found
    }

    /// Returns the first part of `seqs` that has at most `most` places of the ring or stragglers, and their number (at
    /// least 1).
    fn slice_of(&self, seqs: SeqRange, most: usize) -> (SeqRange, usize) {
        let ring_end = self.ring_end();
        let is_in_ring = seqs.start >= self.base() && seqs.start < ring_end;
        if is_in_ring {
            let in_ring = SeqRange::new(seqs.start, seqs.end.min(ring_end));
            let count = in_ring.len().min(most as u64);
            let slice = SeqRange::new(seqs.start, seqs.start.offset(count));
            return (slice, count as usize);
        }
        // Seqs between stragglers cost no work, and are not counted.
        let end = if seqs.start < self.base() {
            self.base().min(seqs.end)
        } else {
            seqs.end
        };
        let mut stragglers = self.stragglers.range(seqs.start..end);
        let count = stragglers.by_ref().take(most).count();
        let end = stragglers.next().map_or(end, |(seq, _)| *seq);
        (SeqRange::new(seqs.start, end), count.max(1))
    }

    fn expire_one(&mut self, seq: Seq, now: Duration, expired: &mut impl FnMut(Seq, Entry)) {
        // A touched or redelivered message has a later deadline and a later batch of its own.
        if let Some(entry) = self.get(seq)
            && entry.deadline <= now
        {
            self.take(seq, entry.owner).expect("get() found it");
            expired(seq, entry);
        }
    }

    /// The first seq of the ring.
    #[inline]
    fn base(&self) -> Seq {
        Seq(self.ring.first_place())
    }

    fn ring_end(&self) -> Seq {
        Seq(self.ring.places().end)
    }

    /// Drops free places at the ring's front, a piece at most. Later calls drop the rest.
    fn drop_free_front(&mut self) {
        for _ in 0..PIECE {
            let Some(None) = self.ring.front() else {
                return;
            };
            self.ring.pop_front();
        }
    }

    /// Moves old entries from the ring to the stragglers if the ring would become too long with `seqs`. Returns false
    /// if the gap between the ring and `seqs` is too wide, and one call cannot move enough entries to close it.
    fn make_room(&mut self, seqs: SeqRange) -> bool {
        let ring_end = self.ring_end();
        let is_far = seqs.start > ring_end.offset(GAP_MAX);
        let limit = RING_ENTRIES_MIN.max(4 * (self.ring_count + seqs.len()));
        if !is_far && seqs.end.since(self.base()) <= limit {
            return true;
        }
        let keep_from = if is_far {
            seqs.start
        } else {
            Seq(seqs.end.0 - limit.min(seqs.end.0)).min(seqs.start)
        };
        for _ in 0..MOVES_MAX {
            if self.base() >= keep_from {
                return true;
            }
            if let Some(place) = self.ring.front() {
                if let Some(entry) = *place {
                    self.stragglers.insert(Seq(self.ring.first_place()), entry);
                    self.ring_count -= 1;
                }
                self.ring.pop_front();
            } else {
                self.ring.begin_at(seqs.start.0);
            }
        }
        !is_far
    }

    fn push_batch(&mut self, timeout: Duration, batch: Batch) {
        let known = self.lists.iter().position(|list| list.timeout == timeout);
        let at = known.unwrap_or_else(|| {
            self.lists.push(Batches::new(timeout));
            self.lists.len() - 1
        });
        if !self.lists[at].push(batch) {
            return;
        }
        self.batches_count += 1;
        // Batches of single messages (redelivered or touched) do not merge. So batches that no message needs are
        // dropped before they outnumber the messages in flight. Each message in flight needs at most one batch, so a
        // full sweep drops at least half of the batches.
        if self.batches_count > 2 * (self.count() as usize + 512) {
            self.forget_finished_batches();
        }
    }

    /// Checks a few batches of the longest list, and drops those that no message needs.
    #[cold]
    fn forget_finished_batches(&mut self) {
        let mut lists = std::mem::take(&mut self.lists);
        if let Some(list) = lists.iter_mut().max_by_key(|list| list.len()) {
            self.batches_count -= list.sweep(SWEPT_BATCHES, |batch| {
                // One that was touched has a later batch of its own.
                let needs =
                    |seq: &Seq| self.get(*seq).is_some_and(|e| e.deadline == batch.deadline);
                self.in_flight_of(batch.seqs).iter().any(needs)
            });
        }
        lists.retain(|list| list.len() > 0);
        self.lists = lists;
    }
}

fn round_up(at: Duration) -> Duration {
    let tick = TICK.as_nanos() as u64;
    let nanos = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX - tick);
    Duration::from_nanos(nanos.div_ceil(tick) * tick)
}

/// Messages with the same deadline: they were delivered, or touched, at about the same time.
#[derive(Debug, Clone, Copy)]
struct Batch {
    deadline: Duration,
    seqs: SeqRange,
}

/// The batches of one timeout value, the earliest deadline first.
///
/// A sweep drops the batches that no message needs any more. Each call of [`Batches::sweep`] goes a few batches
/// further: `kept` has the batches that the sweep has checked and kept, `batches` those that it has not reached.
#[derive(Debug)]
struct Batches {
    timeout: Duration,
    kept: LongQueue<Batch>,
    batches: LongQueue<Batch>,
}

impl Batches {
    fn new(timeout: Duration) -> Batches {
        Batches {
            timeout,
            kept: LongQueue::default(),
            batches: LongQueue::default(),
        }
    }

    fn len(&self) -> usize {
        self.kept.len() + self.batches.len()
    }

    #[inline]
    fn front(&self) -> Option<&Batch> {
        self.kept.front().or_else(|| self.batches.front())
    }

    fn front_mut(&mut self) -> Option<&mut Batch> {
        self.kept.front_mut().or_else(|| self.batches.front_mut())
    }

    fn pop_front(&mut self) -> Option<Batch> {
        self.kept.pop_front().or_else(|| self.batches.pop_front())
    }

    /// Adds a batch, or extends the last batch. Returns true if the batch was added.
    #[inline]
    fn push(&mut self, batch: Batch) -> bool {
        if let Some(last) = self.batches.back_mut()
            && last.deadline == batch.deadline
            && last.seqs.end == batch.seqs.start
        {
            last.seqs.end = batch.seqs.end;
            return false;
        }
        self.batches.push_back(batch);
        true
    }

    /// Goes on with the sweep, for at most `most` batches. Returns how many batches were dropped.
    fn sweep(&mut self, most: usize, is_needed: impl Fn(&Batch) -> bool) -> usize {
        let mut dropped = 0;
        for _ in 0..most {
            let Some(batch) = self.batches.pop_front() else {
                std::mem::swap(&mut self.kept, &mut self.batches);
                break;
            };
            if is_needed(&batch) {
                self.kept.push_back(batch);
            } else {
                dropped += 1;
            }
        }
        dropped
    }

    fn iter(&self) -> impl Iterator<Item = &Batch> {
        self.kept.iter().chain(self.batches.iter())
    }
}

#[cfg(test)]
mod tests;
