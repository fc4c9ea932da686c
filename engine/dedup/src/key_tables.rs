//! [`KeyTables`]: a window of keys, in tables that are forgotten one by one.
//!
//! ```text
//!   newest            older, at most seven
//!   [ keys ... room ] [ keys ] [ keys ] ... [ keys ]  ──► forgotten as a whole, and its slots are used again
//! ```
//!
//! The window has a length in messages or in time. Seven tables cover the window, so the topic remembers the
//! window and at most a seventh more. A table that is full ends early: then the memory bounds the window. If the
//! system refuses the memory of a further table, the oldest one is forgotten early, and gives its slots.

use crate::fingerprint::{Fingerprint, KeyHasher};
use crate::key_table::{InsertedSlot, KeyTable, Lost, Overwritten};
use crate::plan::{COVERING, Plan, TABLES};
use crate::stats::KeyStats;
use diskq_log::{Seq, SeqRange};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The entries of a publish for which the memory is kept, 64 KiB. A large batch takes more memory, and gives it back.
const STEPS_KEPT: usize = 4096;

/// The time from the zero of the clock of keys to the start of the process: 139 years. So keys of earlier processes
/// have times above zero.
const CLOCK_OFFSET_MS: u64 = 1 << 42;

/// Returns the time of the clock of keys, in milliseconds, for a monotonic time of the process.
pub(crate) fn clock_ms(mono: Duration) -> u64 {
    CLOCK_OFFSET_MS + mono.as_millis() as u64
}

/// The keys of the last messages of a topic.
///
/// Invariants: the seqs of a table lie before those of each newer one. Keys that were inserted and not confirmed
/// are the last ones of their tables.
#[derive(Debug)]
pub(crate) struct KeyTables {
    pub(crate) plan: Plan,
    pub(crate) hasher: KeyHasher,
    pub(crate) newest: KeyTable,
    /// The newest of them is in front.
    older: VecDeque<Arc<KeyTable>>,
    /// Tables of forgotten tables. The first one is to be used again, and the others are to be freed.
    spare: Vec<KeyTable>,
    /// The entries of the publish that is under way, which can still be taken back.
    unconfirmed: Vec<PublishStep>,
    /// The number of [`PublishStep::Begin`] among them.
    begun: usize,
    /// Messages that are lost. Their keys are in the tables, and are not found.
    pub(crate) lost: Lost,
    /// The number of times that the system refused memory for a table, or for a snapshot of one.
    refused: u64,
    /// True after a refusal, until the next table is made.
    is_short: bool,
    /// True if `is_short` has become true, and [`KeyTables::take_shortage`] was not called.
    is_shortage_new: bool,
}

/// A step of a publish that is under way.
#[derive(Debug)]
enum PublishStep {
    /// The publish has inserted a key into the newest table.
    Insert(InsertedSlot),
    /// The publish has the newest table's key of a lost message name a new message. In a box, because a large
    /// batch takes the memory of a step for each of its messages.
    Overwrite(Box<Overwritten>),
    /// The publish has filled the newest table, and begun another one.
    Begin,
}

impl KeyTables {
    /// Makes tables without a key and without slots.
    pub(crate) fn new(plan: Plan, hasher: KeyHasher, now_ms: u64) -> KeyTables {
        KeyTables {
            plan,
            hasher,
            newest: KeyTable::without_slots(Seq(0), now_ms),
            older: VecDeque::with_capacity(TABLES),
            spare: Vec::new(),
            unconfirmed: Vec::new(),
            begun: 0,
            lost: Lost::default(),
            refused: 0,
            is_short: false,
            is_shortage_new: false,
        }
    }

    /// Makes ready for keys of messages from `next` on: forgets keys that are too old, and begins a new table if
    /// the newest one is full or has lasted long enough. Does nothing when called again.
    #[inline]
    pub(crate) fn begin(&mut self, now_ms: u64, next: Seq) {
        debug_assert!(self.unconfirmed.is_empty(), "a publish is under way");
        let ends_at = |window_ms: u64| self.newest.began_ms + window_ms.div_ceil(COVERING);
        let is_young = self.plan.window_ms.is_none_or(|it| now_ms < ends_at(it));
        let can_take = self.newest.has_slots() && self.newest.can_take(next);
        if !is_young || self.is_full() || !can_take {
            self.begin_table(now_ms, next);
        }
    }

    /// Returns whether `count` keys fit the newest table, so that they have no other key forgotten.
    #[inline]
    pub(crate) fn has_room_for(&self, count: u32) -> bool {
        self.newest.count() + count as usize <= self.plan.keys
    }

    fn is_full(&self) -> bool {
        self.newest.count() >= self.plan.keys
    }

    #[cold]
    fn begin_table(&mut self, now_ms: u64, next: Seq) {
        self.forget_expired(now_ms);
        let is_empty = self.newest.count() == 0;
        let new = if is_empty && self.newest.has_slots() {
            None
        } else {
            self.empty_table(0, next, now_ms)
        };
        match new {
            Some(new) if is_empty => self.newest = new,
            Some(new) => self.push(new),
            // Without memory for one more, the newest table goes on, and forgets its keys.
            None => self.newest.begin_anew(next, now_ms),
        }
    }

    fn push(&mut self, new: KeyTable) {
        let ended = std::mem::replace(&mut self.newest, new);
        self.older.push_front(Arc::new(ended));
    }

    /// Returns an empty table, which takes the slots of a forgotten one if there are all tables, or if the system
    /// refuses the memory of a further one. The newest `kept` of the older tables are not forgotten for it.
    /// `None`: there is no table.
    fn empty_table(&mut self, kept: usize, next: Seq, now_ms: u64) -> Option<KeyTable> {
        if self.older.len() == TABLES - 1 {
            if kept == self.older.len() {
                return None;
            }
            self.forget_oldest();
        }
        if self.spare.is_empty() {
            let new = KeyTable::new(self.plan.slots, next, now_ms);
            if new.is_some() {
                self.is_short = false;
                return new;
            }
            self.count_refusal();
            while self.spare.is_empty() && self.older.len() > kept {
                self.forget_oldest();
            }
        }
        let mut spare = self.spare.pop()?;
        spare.begin_anew(next, now_ms);
        Some(spare)
    }

    fn forget_expired(&mut self, now_ms: u64) {
        let Some(window_ms) = self.plan.window_ms else {
            return;
        };
        while self
            .older
            .back()
            .is_some_and(|oldest| oldest.last_key_ms + window_ms <= now_ms)
        {
            self.forget_oldest();
        }
        if self.newest.last_key_ms + window_ms <= now_ms {
            self.newest.begin_anew(self.newest.end, now_ms);
        }
    }

    /// Forgets the oldest table. Its slots are used again or are to be freed, unless the keeper is still writing the
    /// table to a file.
    fn forget_oldest(&mut self) {
        let oldest = self.older.pop_back();
        if let Some(Ok(table)) = oldest.map(Arc::try_unwrap) {
            self.spare.push(table);
        }
        self.lost.forget_below(self.oldest().base);
    }

    fn oldest(&self) -> &KeyTable {
        self.older.back().map_or(&self.newest, |it| it)
    }

    /// Forgets the keys of messages that the log has lost. Returns false if there is none in the window.
    pub(crate) fn lose(&mut self, seqs: SeqRange) -> bool {
        let is_in_window = !seqs.is_empty() && seqs.end > self.oldest().base;
        if is_in_window {
            self.lost.add(seqs);
        }
        is_in_window
    }

    /// Returns whether a key names one of these messages. Looks at all slots.
    pub(crate) fn names_any(&self, lost: &Lost) -> bool {
        let older = self.older.iter().map(Arc::as_ref);
        !lost.is_empty() && older.chain([&self.newest]).any(|it| it.names_any(lost))
    }

    /// Takes the tables that are to be freed. `None`: there are none.
    #[inline]
    pub(crate) fn take_unneeded(&mut self) -> Option<Vec<KeyTable>> {
        (self.spare.len() > 1).then(|| self.spare.split_off(1))
    }

    /// Returns the seq of the message with this key, if a table has the key and the message is not lost.
    #[inline]
    pub(crate) fn find(&self, fingerprint: Fingerprint) -> Option<Seq> {
        let older = || self.older.iter().find_map(|it| it.find(fingerprint));
        let found = self.newest.find(fingerprint).or_else(older);
        found.filter(|seq| !self.lost.contains(*seq))
    }

    /// Adds the key of message `seq`, which [`KeyTables::find`] does not find. Confirm the key, or take it back.
    /// False: the key is not remembered, because the publish has filled all tables.
    #[inline]
    pub(crate) fn insert(&mut self, now_ms: u64, fingerprint: Fingerprint, seq: Seq) -> bool {
        if self.is_full() && !self.begin_in_publish(now_ms, seq) {
            return false;
        }
        if !self.lost.is_empty()
            && let Some(overwritten) = self.newest.overwrite(fingerprint, seq)
        {
            self.newest.last_key_ms = self.newest.last_key_ms.max(now_ms);
            self.unconfirmed
                .push(PublishStep::Overwrite(Box::new(overwritten)));
            return true;
        }
        let inserted = self.newest.insert(fingerprint, seq);
        // At a start, the messages have the times of a clock that may have been set back.
        self.newest.last_key_ms = self.newest.last_key_ms.max(now_ms);
        self.unconfirmed.extend(inserted.map(PublishStep::Insert));
        inserted.is_some()
    }

    /// Begins a table in the middle of a publish. False: a table with keys of this publish would be
    /// forgotten.
    #[cold]
    fn begin_in_publish(&mut self, now_ms: u64, next: Seq) -> bool {
        self.forget_expired(now_ms);
        let Some(new) = self.empty_table(self.begun, next, now_ms) else {
            return false;
        };
        self.push(new);
        self.unconfirmed.push(PublishStep::Begin);
        self.begun += 1;
        true
    }

    /// Confirms the inserted keys: their messages are stored.
    #[inline]
    pub(crate) fn confirm(&mut self) {
        self.unconfirmed.clear();
        self.begun = 0;
        if self.unconfirmed.capacity() > STEPS_KEPT {
            self.unconfirmed = Vec::new();
        }
    }

    /// Takes the inserted keys back: their messages are not stored. A table that was forgotten for them stays
    /// forgotten. So the log makes room before such a publish, which is not refused after that.
    pub(crate) fn take_back(&mut self) {
        while let Some(step) = self.unconfirmed.pop() {
            match step {
                PublishStep::Insert(inserted) => self.newest.take_back(inserted),
                PublishStep::Overwrite(overwritten) => self.newest.put_back(*overwritten),
                PublishStep::Begin => self.end_newest(),
            }
        }
        self.begun = 0;
    }

    /// Goes back to the table before the newest one, which is empty.
    fn end_newest(&mut self) {
        let before = self.older.pop_front().map(Arc::try_unwrap);
        let Some(Ok(before)) = before else {
            unreachable!("the keeper gets no table during a publish")
        };
        let empty = std::mem::replace(&mut self.newest, before);
        self.spare.push(empty);
    }

    /// Returns true, once, if the system has begun to refuse memory.
    #[inline]
    pub(crate) fn take_shortage(&mut self) -> bool {
        std::mem::take(&mut self.is_shortage_new)
    }

    /// Counts memory that the system refused, for a table or for a snapshot of one.
    pub(crate) fn count_refusal(&mut self) {
        self.refused += 1;
        self.is_shortage_new |= !self.is_short;
        self.is_short = true;
    }

    /// The number of keys.
    pub(crate) fn count(&self) -> u64 {
        let older = self.older.iter().map(|it| it.count() as u64);
        self.newest.count() as u64 + older.sum::<u64>()
    }

    /// Bytes of the tables that exist.
    pub(crate) fn bytes(&self) -> u64 {
        let older = self.older.iter().map(|it| it.bytes() as u64);
        let others = self.spare.iter().chain([&self.newest]);
        older.sum::<u64>() + others.map(|it| it.bytes() as u64).sum::<u64>()
    }

    /// The time back to which keys are remembered, in milliseconds.
    pub(crate) fn reach_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.oldest().began_ms)
    }

    /// Fills in the figures of the keys that are remembered.
    pub(crate) fn fill_stats(&self, now_ms: u64, stats: &mut KeyStats) {
        stats.key_count = self.count();
        stats.key_count_max = self.plan.keys();
        stats.memory_bytes = self.bytes();
        stats.memory_bytes_max = self.plan.memory();
        stats.memory_refused_count = self.refused;
        stats.reach_ms = self.reach_ms(now_ms);
    }

    /// The older tables. The newest of them comes first.
    pub(crate) fn older(&self) -> impl DoubleEndedIterator<Item = &Arc<KeyTable>> {
        self.older.iter()
    }

    /// Adds a table of a saved state, which has `count` keys in any order. Restore the tables in their order.
    pub(crate) fn restore_table(
        &mut self,
        (base, began_ms, last_key_ms): (Seq, u64, u64),
        count: usize,
        keys: impl Iterator<Item = (Fingerprint, Seq)>,
    ) {
        if count == 0 {
            // The keys of its messages come from the log. They may have to fill the table before.
            return;
        }
        self.begin_table(began_ms, base);
        if count <= self.plan.keys {
            keys.for_each(|(fingerprint, seq)| self.restore_one(began_ms, fingerprint, seq));
        } else {
            // The memory was larger. The keys go into several tables, which need them in order.
            let mut keys: Vec<(Fingerprint, Seq)> = keys.collect();
            keys.sort_unstable_by_key(|(_, seq)| *seq);
            for (fingerprint, seq) in keys {
                self.restore_one(began_ms, fingerprint, seq);
            }
        }
        self.newest.last_key_ms = self.newest.last_key_ms.max(last_key_ms);
    }

    fn restore_one(&mut self, at_ms: u64, fingerprint: Fingerprint, seq: Seq) {
        if self.find(fingerprint).is_none() {
            if self.is_full() {
                self.begin_table(at_ms, seq);
            }
            self.insert(at_ms, fingerprint, seq);
            self.confirm();
        }
    }

    /// Adds the key of a stored message of an earlier process. Add the messages in their order, behind those of the
    /// saved state. A key that is there already keeps its first seq.
    pub(crate) fn restore_key(&mut self, at_ms: u64, fingerprint: Fingerprint, seq: Seq) {
        self.begin(at_ms, seq);
        self.restore_one(at_ms, fingerprint, seq);
    }

    /// Asserts the invariants.
    pub(crate) fn check(&self) {
        assert!(self.older.len() < TABLES);
        assert!(self.unconfirmed.is_empty(), "a publish is under way");
        let mut from = self.newest.base;
        self.newest.check();
        for table in &self.older {
            assert!(table.end <= from, "tables overlap");
            from = table.base;
        }
        assert!(self.bytes() <= self.plan.memory() + self.newest.bytes() as u64);
        assert!(self.count() <= self.plan.keys());
    }
}

#[cfg(test)]
mod tests;
