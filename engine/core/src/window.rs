//! The in-flight window of one channel: who holds which message until when.
//!
//! FIN carries an id, the id is a function of the seq, and in-flight seqs are dense, so an entry is
//! found by subtraction: `ring[seq - base]`. Measured before the project began: 2.8 ns for insert
//! and remove, a hash map on the id 36-56 ns.
//!
//! ```text
//!   stragglers: BTreeMap           ring: VecDeque
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

use crate::ClientId;
use diskq::SeqRange;
use diskq::planted::{Bug, is_planted};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;
use wire::id::Seq;

/// The ring may always span this many seqs.
pub(crate) const RING_ENTRIES_MIN: u64 = 65_536;

/// Deadlines are rounded up to multiples of this, so that batches merge. A timeout is never early.
pub const TICK: Duration = Duration::from_millis(16);

/// One message in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The connection that must finish it.
    pub owner: ClientId,
    /// Deliveries so far, this one included; saturates at 65,535.
    pub attempts: u16,
    /// When it goes back to the queue.
    pub deadline: Duration,
    /// When it was handed to the owner: TOUCH may not go beyond this plus --max-msg-timeout.
    pub delivered: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Batch {
    deadline: Duration,
    seqs: SeqRange,
}

/// Why FIN, REQ or TOUCH found nothing to act on; the texts are nsqd's.
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

/// All messages of a channel that are in flight.
///
/// Invariants: a seq is in the ring or among the stragglers, never both (a straggler may lie within
/// the ring's span: then its place in the ring is free); the ring's first entry is in use; every
/// entry in use is covered by a batch, or an irregular deadline, not later than its own deadline.
#[derive(Debug, Default)]
pub(crate) struct Window {
    base: Seq,
    ring: VecDeque<Option<Entry>>,
    ring_count: u64,
    stragglers: BTreeMap<Seq, Entry>,
    lists: Vec<(Duration, VecDeque<Batch>)>,
    batches_count: usize,
    irregular: BinaryHeap<Reverse<(Duration, Seq)>>,
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
        if self.ring.is_empty() {
            self.base = seqs.start;
        }
        if seqs.start < self.base {
            for seq in seqs.start.0..seqs.end.0 {
                let before = self.stragglers.insert(Seq(seq), entry);
                assert!(before.is_none(), "a message has one owner per channel");
            }
        } else {
            self.make_room(seqs);
            let at = seqs.start.since(self.base) as usize;
            let end = at + seqs.len() as usize;
            if at == self.ring.len() {
                self.ring
                    .extend(std::iter::repeat_n(Some(entry), seqs.len() as usize));
            } else {
                if end > self.ring.len() {
                    self.ring.resize(end, None);
                }
                for slot in self.ring.range_mut(at..end) {
                    assert!(slot.is_none(), "a message has one owner per channel");
                    *slot = Some(entry);
                }
            }
            self.ring_count += seqs.len();
        }
        self.push_batch(timeout, Batch { deadline, seqs });
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
        if seq >= self.base {
            let at = seq.since(self.base) as usize;
            if let Some(slot) = self.ring.get_mut(at)
                && let Some(entry) = *slot
            {
                if entry.owner != owner && !is_planted(Bug::FinOfAnother) {
                    return Err(NotYours::OtherOwner);
                }
                *slot = None;
                self.ring_count -= 1;
                if at == 0 {
                    self.drop_free_front();
                }
                return Ok(entry);
            }
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
        let kept = timeout / (1 + u32::from(is_planted(Bug::TouchShortens)));
        let wanted = round_up(now.saturating_add(kept));
        let cap = round_up(entry.delivered.saturating_add(timeout_max));
        let deadline = wanted.min(cap);
        if deadline == entry.deadline {
            return Ok(());
        }
        let slot = self.get_mut(seq).expect("owned() found it");
        slot.deadline = deadline;
        if deadline == wanted {
            let seqs = SeqRange {
                start: seq,
                end: seq.offset(1),
            };
            self.push_batch(timeout, Batch { deadline, seqs });
        } else {
            // Out of its list's order: a capped deadline is earlier than what the list ends with.
            self.irregular.push(Reverse((deadline, seq)));
        }
        Ok(())
    }

    /// Hands out every message whose deadline is reached, oldest deadline first per list.
    pub(crate) fn expire(&mut self, now: Duration, mut expired: impl FnMut(Seq, Entry)) {
        for list in 0..self.lists.len() {
            while let Some(batch) = self.lists[list].1.front().copied() {
                let done = batch.seqs.end <= self.base && self.stragglers.is_empty();
                if !done {
                    if batch.deadline > now {
                        break;
                    }
                    for seq in self.in_flight_of(batch.seqs) {
                        self.expire_one(seq, now, &mut expired);
                    }
                }
                self.lists[list].1.pop_front();
                self.batches_count -= 1;
            }
        }
        while let Some(&Reverse((deadline, seq))) = self.irregular.peek() {
            if deadline > now {
                break;
            }
            self.irregular.pop();
            self.expire_one(seq, now, &mut expired);
        }
        self.lists.retain(|(_, batches)| !batches.is_empty());
    }

    /// The earliest moment at which [`Window::expire`] may have something to do. May be early, when
    /// the messages of the first batch were finished or touched meanwhile; never late.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        if self.count() == 0 {
            return None;
        }
        let regular = self
            .lists
            .iter()
            .filter_map(|(_, list)| list.front())
            .map(|b| b.deadline);
        let irregular = self
            .irregular
            .peek()
            .map(|Reverse((deadline, _))| *deadline);
        regular.chain(irregular).min()
    }

    /// Takes any message out of flight; used when all messages are dropped.
    pub(crate) fn pop(&mut self) -> Option<(Seq, Entry)> {
        if let Some(straggler) = self.stragglers.pop_first() {
            return Some(straggler);
        }
        let entry = self.ring.pop_front()?.expect("the ring's front is in use");
        let seq = self.base;
        self.base = seq.offset(1);
        self.ring_count -= 1;
        self.drop_free_front();
        Some((seq, entry))
    }

    /// The places of the ring from `seq` on, in order, free ones included. Messages leave the ring for the
    /// stragglers, and never come back from there.
    pub(crate) fn ring_from(&self, seq: Seq) -> impl Iterator<Item = (Seq, Option<Entry>)> + '_ {
        let first = seq.max(self.base);
        let at = (first.since(self.base) as usize).min(self.ring.len());
        let places = self.ring.range(at..).enumerate();
        places.map(move |(i, place)| (first.offset(i as u64), *place))
    }

    /// All seqs up to the last one in flight.
    pub(crate) fn span(&self) -> SeqRange {
        let ring_end = self.base.offset(self.ring.len() as u64);
        let last = self.stragglers.last_key_value();
        let end = last.map_or(ring_end, |(seq, _)| ring_end.max(seq.offset(1)));
        SeqRange::new(Seq(0), end)
    }

    /// The stragglers from `seq` on, in order.
    pub(crate) fn stragglers_from(&self, seq: Seq) -> impl Iterator<Item = (Seq, Entry)> + '_ {
        let stragglers = self.stragglers.range(seq..);
        stragglers.map(|(seq, entry)| (*seq, *entry))
    }

    /// Every message in flight, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Seq, Entry)> + '_ {
        let ring = self.ring.iter().enumerate();
        let ring = ring.filter_map(|(i, e)| e.map(|e| (self.base.offset(i as u64), e)));
        ring.chain(self.stragglers.iter().map(|(seq, entry)| (*seq, *entry)))
    }

    /// Asserts the invariants written on the type.
    pub(crate) fn check(&self) {
        let used = self.ring.iter().filter(|slot| slot.is_some()).count() as u64;
        assert_eq!(used, self.ring_count, "ring_count counts the ring");
        assert!(
            self.ring.front().is_none_or(|slot| slot.is_some()),
            "the ring's front is in use"
        );
        for seq in self.stragglers.keys() {
            let in_ring = *seq >= self.base
                && matches!(self.ring.get(seq.since(self.base) as usize), Some(Some(_)));
            assert!(!in_ring, "a seq is in one place");
        }
        let batches: usize = self.lists.iter().map(|(_, list)| list.len()).sum();
        assert_eq!(batches, self.batches_count);
        for (_, list) in &self.lists {
            assert!(
                list.iter()
                    .zip(list.iter().skip(1))
                    .all(|(a, b)| a.deadline <= b.deadline)
            );
        }
        if self.count() < 1000 {
            for (seq, entry) in self.iter() {
                let covers = |b: &Batch| b.seqs.contains(seq) && b.deadline <= entry.deadline;
                let regular = self.lists.iter().any(|(_, list)| list.iter().any(covers));
                let irregular = self.irregular.iter().any(|r| r.0 == (entry.deadline, seq));
                assert!(
                    regular || irregular,
                    "every message in flight has a timeout: {seq:?}"
                );
            }
        }
    }

    fn get(&self, seq: Seq) -> Option<Entry> {
        if seq >= self.base
            && let Some(Some(entry)) = self.ring.get(seq.since(self.base) as usize)
        {
            return Some(*entry);
        }
        self.stragglers.get(&seq).copied()
    }

    fn get_mut(&mut self, seq: Seq) -> Option<&mut Entry> {
        if seq >= self.base
            && let Some(Some(entry)) = self.ring.get_mut(seq.since(self.base) as usize)
        {
            return Some(entry);
        }
        self.stragglers.get_mut(&seq)
    }

    /// The seqs of `seqs` that are in flight, in order. Costs what the ring and the stragglers hold
    /// of the range, not what the range spans.
    fn in_flight_of(&self, seqs: SeqRange) -> Vec<Seq> {
        let stragglers = self.stragglers.range(seqs.start..seqs.end);
        let mut found: Vec<Seq> = stragglers.map(|(seq, _)| *seq).collect();
        let ring_end = self.base.offset(self.ring.len() as u64);
        let (start, end) = (seqs.start.max(self.base), seqs.end.min(ring_end));
        if start < end {
            let slots = start.since(self.base) as usize..end.since(self.base) as usize;
            let used = self
                .ring
                .range(slots)
                .enumerate()
                .filter(|(_, slot)| slot.is_some());
            found.extend(used.map(|(i, _)| start.offset(i as u64)));
        }
        found.sort_unstable();
        found
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

    fn drop_free_front(&mut self) {
        while let Some(None) = self.ring.front() {
            self.ring.pop_front();
            self.base = self.base.offset(1);
        }
    }

    /// Moves old entries out of the ring when `seqs` would stretch it too far.
    fn make_room(&mut self, seqs: SeqRange) {
        let limit = RING_ENTRIES_MIN.max(4 * (self.ring_count + seqs.len()));
        if seqs.end.since(self.base) <= limit {
            return;
        }
        let keep_from = Seq(seqs.end.0 - limit.min(seqs.end.0)).min(seqs.start);
        while self.base < keep_from {
            match self.ring.pop_front() {
                Some(Some(entry)) => {
                    self.stragglers.insert(self.base, entry);
                    self.ring_count -= 1;
                    self.base = self.base.offset(1);
                }
                Some(None) => self.base = self.base.offset(1),
                None => self.base = seqs.start,
            }
        }
        self.drop_free_front();
        if self.ring.is_empty() {
            self.base = seqs.start;
        }
    }

    fn push_batch(&mut self, timeout: Duration, batch: Batch) {
        let at = match self.lists.iter().position(|(value, _)| *value == timeout) {
            Some(at) => at,
            None => {
                self.lists.push((timeout, VecDeque::new()));
                self.lists.len() - 1
            }
        };
        let list = &mut self.lists[at].1;
        if let Some(last) = list.back_mut()
            && last.deadline == batch.deadline
            && last.seqs.end == batch.seqs.start
        {
            last.seqs.end = batch.seqs.end;
            return;
        }
        list.push_back(batch);
        self.batches_count += 1;
        // Batches of single messages, redelivered or touched, do not merge: forget those that nobody
        // needs before they outnumber what is in flight. Amortised: each message in flight needs one
        // at most, so that half of the threshold goes.
        if self.batches_count > 2 * (self.count() as usize + 512) {
            self.forget_finished_batches();
        }
    }

    fn forget_finished_batches(&mut self) {
        let mut lists = std::mem::take(&mut self.lists);
        for (_, list) in &mut lists {
            list.retain(|batch| {
                // One that was touched has a later batch of its own.
                let needs =
                    |seq: &Seq| self.get(*seq).is_some_and(|e| e.deadline == batch.deadline);
                self.in_flight_of(batch.seqs).iter().any(needs)
            });
        }
        lists.retain(|(_, list)| !list.is_empty());
        self.batches_count = lists.iter().map(|(_, list)| list.len()).sum();
        self.lists = lists;
    }
}

fn round_up(at: Duration) -> Duration {
    let tick = TICK.as_nanos() as u64;
    let nanos = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX - tick);
    Duration::from_nanos(nanos.div_ceil(tick) * tick)
}

#[cfg(test)]
mod tests;
