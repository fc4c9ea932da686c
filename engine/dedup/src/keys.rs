//! [`Keys`]: recognises messages by their content, and saves what it needs for that.
//!
//! ```text
//!   body ──key──► bytes of the key ──fingerprint──► KeyTables: fingerprint -> seq ──► fresh | duplicate
//!
//!   new keys ──► due ──► a snapshot, put together in slices ──► the keeper writes it ──► renamed
//!                 ▲                                                                        │
//!                 └──────────────── an interval later, if there are new keys ◄─────────────┘
//! ```
//!
//! A snapshot names only messages that a power failure cannot take back: those below the log's synced mark at its
//! beginning. If it named another message, a power failure could take the message and leave its key. The producer's
//! next try would be answered with OK, and the message would be lost.

use crate::content_key::ContentKey;
use crate::fingerprint::{Fingerprint, KeyHasher, seed_of};
use crate::key_tables::{KeyTables, clock_ms};
use crate::publication::{Fates, Publication};
use crate::rules::ContentRule;
use crate::saved_keys::KeysSnapshot;
use crate::stats::KeyStats;
use diskq_log::{AppendError, Log, Now, Run, Seq, SeqRange, plant};
use std::sync::Arc;
use std::time::Duration;
use wire::frame::{DATA_AT, Message};
use wire::name::TopicName;

/// The least time between the end of a write and the next snapshot.
const INTERVAL_MIN: Duration = Duration::from_secs(10);
/// Bytes that are written per second, at most, on average: 4 MiB. A file of 16 MiB is written every 14 s.
const BYTES_PER_SECOND: u64 = 4 << 20;
/// Slots of the table that count as one entry of a turn's work. Copying 64 slots takes some 50 ns.
const SLOTS_PER_ENTRY: usize = 64;

/// The keys of the messages that a topic has stored not long ago.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) key: ContentKey,
    pub(crate) tables: KeyTables,
    /// The counts of messages. The other figures are 0.
    counts: KeyStats,
    is_ephemeral: bool,
    step: KeysSaveStep,
    /// When the next snapshot is due. `None`: there are no new keys.
    due: Option<Duration>,
    /// The boundary of the last snapshot: all messages below have their keys in it.
    saved_boundary: Seq,
    /// A graceful stop has asked for the last file.
    is_last: bool,
}

/// The progress of the save of the keys.
#[derive(Debug)]
enum KeysSaveStep {
    /// No save is under way.
    Idle,
    /// The snapshot is being put together.
    Snapshot(Box<KeysSnapshot>),
    /// The keeper has the snapshot.
    Writing,
}

impl Keys {
    /// Makes the keys of a topic, none yet. `process_seed` is a random number of this process.
    pub(crate) fn new(
        rule: &ContentRule,
        topic: TopicName<'_>,
        process_seed: u64,
        now_ms: u64,
    ) -> Keys {
        let hasher = KeyHasher::seeded(seed_of(topic.as_str(), process_seed));
        Keys {
            key: rule.key().clone(),
            tables: KeyTables::new(rule.plan(), hasher, now_ms),
            counts: KeyStats::default(),
            is_ephemeral: topic.is_ephemeral(),
            step: KeysSaveStep::Idle,
            due: None,
            saved_boundary: Seq(0),
            is_last: false,
        }
    }

    /// Decides about the messages of a publish, and inserts the keys of those that are fresh.
    pub(crate) fn judge<'b>(
        &mut self,
        now: Now,
        log: &mut Log,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
        fates: &mut Fates,
    ) -> Result<(), AppendError> {
        let (now_ms, start) = (clock_ms(now.mono), fates.start);
        self.tables.begin(now_ms, start);
        self.reserve_before_forgetting(now, log, publication)?;
        // A message may be a copy of an earlier one of its batch, which is not in the log yet.
        let is_batch = publication.count > 1;
        let mut batch: Vec<&[u8]> = Vec::new();
        for (place, body) in (0..).zip(publication.bodies.clone()) {
            let is_fresh = self.is_fresh(now_ms, fates, body, |first| {
                let index = first.0.checked_sub(start.0);
                let of_batch = index.and_then(|index| batch.get(index as usize).copied());
                of_batch.or_else(|| stored_body(log, first))
            });
            fates.add(place, body, is_fresh);
            if is_fresh && is_batch {
                batch.push(body);
            }
        }
        plant!(KeyBeforeStore, self.tables.confirm());
        Ok(())
    }

    /// Returns the fingerprint of a message's key. `None`: the message has no key.
    #[inline]
    pub(crate) fn fingerprint(&self, body: &[u8]) -> Option<Fingerprint> {
        self.key.fingerprint(&self.tables.hasher, body)
    }

    /// Decides about one message, and inserts its key if the message is fresh. `stored_body` returns the body of an
    /// earlier message, if it is in memory.
    #[inline]
    fn is_fresh<'b>(
        &mut self,
        now_ms: u64,
        fates: &mut Fates,
        body: &[u8],
        stored_body: impl FnOnce(Seq) -> Option<&'b [u8]>,
    ) -> bool {
        let Some(fingerprint) = self.fingerprint(body) else {
            fates.keyless += 1;
            return true;
        };
        let first = self.tables.find(fingerprint);
        plant!(BatchCopiesNotSeen, let first = first.filter(|first| *first < fates.start));
        let Some(first) = first else {
            let seq = fates.next_seq();
            let is_remembered = self.tables.insert(now_ms, fingerprint, seq);
            fates.unremembered += u64::from(!is_remembered);
            return true;
        };
        match stored_body(first).and_then(|stored| self.key.is_same(stored, body)) {
            Some(true) => {}
            // Another key has the same fingerprint.
            Some(false) => {
                fates.unremembered += 1;
                return true;
            }
            None => fates.unverified += 1,
        }
        false
    }

    /// Makes room for a publish that may have the oldest keys forgotten. If such a publish were refused later, keys of
    /// the window would be gone. Copies need no room.
    #[inline]
    fn reserve_before_forgetting<'b>(
        &self,
        now: Now,
        log: &mut Log,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
    ) -> Result<(), AppendError> {
        if self.tables.has_room_for(publication.count) {
            return Ok(());
        }
        let (mut count, mut bytes) = (0, 0);
        for body in publication.bodies.clone() {
            let fingerprint = self.fingerprint(body);
            if fingerprint.and_then(|it| self.tables.find(it)).is_none() {
                count += 1;
                bytes += body.len() as u64;
            }
        }
        match count {
            0 => Ok(()),
            _ => log.reserve(now.mono, now.wall_ns, count, bytes),
        }
    }

    /// Remembers the keys of a publish.
    pub(crate) fn confirm(&mut self, now: Now, fates: &Fates) {
        self.tables.confirm();
        self.counts.duplicate_count += fates.duplicates.len() as u64;
        self.counts.unverified_count += fates.unverified;
        self.counts.keyless_count += fates.keyless;
        self.counts.unremembered_count += fates.unremembered;
        if fates.count > 0 {
            self.save_later(now.mono);
        }
    }

    /// Forgets the keys of a publish.
    pub(crate) fn take_back(&mut self) {
        self.tables.take_back();
    }

    /// Forgets the keys of messages that the log has lost, so that their next copies are stored. The file of keys
    /// follows.
    pub(crate) fn lose(&mut self, now: Now, seqs: SeqRange) {
        if self.tables.lose(seqs) {
            self.save_again(now);
        }
    }

    pub(crate) fn stats(&self, now: Now) -> KeyStats {
        let mut stats = self.counts.clone();
        self.tables.fill_stats(clock_ms(now.mono), &mut stats);
        stats
    }

    pub(crate) fn take_news(&mut self) -> Option<&'static str> {
        self.tables.take_shortage().then_some(
            "the system refuses memory for the keys of --dedup, so the topic forgets keys early; \
             dedup_memory_refused_count in /stats says how often. Raise the limit of the address space (ulimit -v, LimitAS), \
             set vm.overcommit_memory to 0, or give the rule a smaller memory=",
        )
    }

    // --- the save

    /// Makes a snapshot due in some time, unless one is due.
    pub(crate) fn save_later(&mut self, mono: Duration) {
        if self.due.is_none() && !self.is_last {
            let time = Duration::from_millis(self.tables.bytes() * 1000 / BYTES_PER_SECOND);
            self.due = Some(mono + INTERVAL_MIN + time);
        }
    }

    /// Returns when the next snapshot is due.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.due.filter(|_| matches!(self.step, KeysSaveStep::Idle))
    }

    /// Begins a snapshot if one is due.
    pub(crate) fn save_in_time(&mut self, now: Now, log: &Log) {
        if self.next_timeout().is_some_and(|due| due <= now.mono) {
            self.begin_snapshot(now, log);
        }
    }

    fn begin_snapshot(&mut self, now: Now, log: &Log) {
        let boundary = log.synced();
        plant!(KeysAheadOfSync, let boundary = log.next_seq());
        self.due = None;
        if self.is_ephemeral || log.has_failed_sync() {
            return;
        }
        let mut is_refused = false;
        if boundary > self.saved_boundary {
            match KeysSnapshot::new(&self.tables, now, self.key.to_string(), boundary) {
                Ok(snapshot) => {
                    self.step = KeysSaveStep::Snapshot(Box::new(snapshot));
                    self.saved_boundary = boundary;
                }
                Err(_) => {
                    is_refused = true;
                    self.tables.count_refusal();
                }
            }
        }
        if !log.is_synced() || is_refused {
            // The keys of the unsynced messages follow.
            self.save_later(now.mono);
        }
    }

    /// Goes on with a snapshot, and gives it to the keeper when it is complete. Returns the entries of a turn's work that
    /// this took.
    pub(crate) fn continue_save(&mut self, log: &mut Log, entries: usize) -> usize {
        let mut spent = 0;
        while spent < entries
            && let KeysSaveStep::Snapshot(snapshot) = &mut self.step
        {
            let slots = (entries - spent).min(1 << 10) * SLOTS_PER_ENTRY;
            let copied = snapshot.add_newest(&self.tables, slots);
            spent += copied.div_ceil(SLOTS_PER_ENTRY);
            if copied < slots
                && let KeysSaveStep::Snapshot(snapshot) =
                    std::mem::replace(&mut self.step, KeysSaveStep::Writing)
            {
                log.write_topic_file(snapshot);
            }
        }
        spent
    }

    /// Returns whether a snapshot is unfinished.
    pub(crate) fn has_slices_left(&self) -> bool {
        matches!(self.step, KeysSaveStep::Snapshot(_))
    }

    /// Takes the result of the keeper. A file that could not be written is tried again with the next snapshot.
    pub(crate) fn end_save(&mut self, now: Now, result: &Result<(), Arc<str>>) {
        self.step = KeysSaveStep::Idle;
        if result.is_err() {
            self.due = None;
            self.save_again(now);
        }
    }

    /// Has the keys written again some time later, because their file is not there, or has keys that are wrong by now.
    pub(crate) fn save_again(&mut self, now: Now) {
        self.saved_boundary = Seq(0);
        self.save_later(now.mono);
    }

    /// Does the next step of the last file of a graceful stop. Returns true while the file is not written. If it cannot be
    /// written, the stop goes on without it.
    pub(crate) fn save_last(&mut self, now: Now, log: &mut Log) -> bool {
        if !self.is_last && matches!(self.step, KeysSaveStep::Idle) {
            self.is_last = true;
            self.begin_snapshot(now, log);
        }
        self.continue_save(log, usize::MAX);
        !matches!(self.step, KeysSaveStep::Idle)
    }
}

/// Returns the body of a stored message. `None`: the message is not in memory.
fn stored_body(log: &Log, first: Seq) -> Option<&[u8]> {
    let (start, end) = log.frame_bounds(first)?;
    let run = Run {
        first,
        count: 1,
        start,
        end,
    };
    let stored = Message::parse(log.bytes(&run).get(DATA_AT..)?)?;
    Some(stored.body)
}
