//! Stores the fresh messages of a topic that recognises them by their content.

use super::inspected::boxed;
use super::keys::{KeyCounters, Keys, NextMessage};
use super::{Published, Topic};
use crate::channel::discarded::Discarded;
use crate::content::generations::clock_ms;
use crate::content::restored::RestoredKeys;
use crate::now::Now;
use crate::publication::Publication;
use crate::stats::KeyStats;
use diskq_log::AppendError;
use diskq_log::plant;
use wire::id::Seq;

/// The messages of a publish for which the memory is kept.
const FATES_KEPT: usize = 64 << 10;

impl Topic {
    /// Appends those messages to the log whose keys the topic does not remember. A key is remembered when the append
    /// has succeeded: a message that was refused, or has to wait for room, is fresh when it comes again.
    pub(super) fn store_fresh_keys<'b>(
        &mut self,
        now: Now,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
        keys: &mut Keys,
    ) -> Result<Published, AppendError> {
        let mut next = NextMessage {
            now_ms: clock_ms(now.mono),
            seq: self.log.next_append_seq(now.wall_ns),
        };
        keys.generations.begin(next.now_ms, next.seq);
        self.free_tables(keys.generations.take_unneeded());
        if keys.generations.take_shortage() {
            self.report_shortage();
        }
        self.reserve_before_forgetting(now, publication, keys)?;
        let mut counters = KeyCounters::default();
        let mut fates = std::mem::take(&mut keys.fates);
        fates.clear();
        let mut batch = FreshBodies::new(publication.bodies.clone(), next.seq);
        let (mut fresh_count, mut fresh_bytes) = (0, 0);
        for body in publication.bodies.clone() {
            let of_batch = |first| batch.find(first, &fates);
            let is_fresh = keys.judge(&self.log, &mut counters, &next, body, of_batch);
            fates.push(is_fresh);
            if is_fresh {
                fresh_count += 1;
                fresh_bytes += body.len() as u64;
                next.seq = next.seq.offset(1);
            }
        }
        let fresh = publication.bodies.clone().zip(&fates);
        let fresh = Publication {
            bodies: fresh
                .filter(|(_, is_fresh)| **is_fresh)
                .map(|(body, _)| body),
            count: fresh_count,
            body_bytes: fresh_bytes,
            defer_ms: publication.defer_ms,
            origin: None,
        };
        plant!(KeyBeforeStore, keys.generations.confirm());
        let published = match fresh_count {
            0 => self.answer_duplicates(),
            count if count == publication.count => self.store(now, publication),
            _ => self.store(now, &fresh),
        };
        if fates.capacity() <= FATES_KEPT {
            keys.fates = fates;
        }
        if published.is_err() {
            keys.generations.take_back();
            return published;
        }
        debug_assert!(
            fresh_count == 0 || self.log.next_seq() == next.seq,
            "a seq was foreseen wrongly"
        );
        keys.generations.confirm();
        keys.counters.add(&counters);
        if fresh_count > 0 {
            self.channels
                .lower_deadline(keys.save.make_snapshot_due(now.mono, &keys.generations));
        }
        published
    }

    #[cold]
    fn report_shortage(&mut self) {
        let name = &self.name;
        self.output.news.push(format!(
            "TOPIC({name}): the system refuses memory for the keys of --dedup, so the topic forgets keys early; \
             dedup_memory_refused_count in /stats says how often. Raise the limit of the address space (ulimit -v, LimitAS), \
             set vm.overcommit_memory to 0, or give the rule a smaller memory="
        ));
    }

    /// Makes room for a publish that may have the oldest keys forgotten. If such a publish were refused later, keys of
    /// the window would be gone. Copies need no room.
    #[inline]
    fn reserve_before_forgetting<'b>(
        &mut self,
        now: Now,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
        keys: &Keys,
    ) -> Result<(), AppendError> {
        if keys.generations.has_room_for(publication.count) {
            return Ok(());
        }
        let (mut count, mut bytes) = (0, 0);
        for body in publication.bodies.clone() {
            if !keys.knows(body) {
                count += 1;
                bytes += body.len() as u64;
            }
        }
        match count {
            0 => Ok(()),
            _ => self.log.reserve(now.mono, now.wall_ns, count, bytes),
        }
    }

    /// Has tables freed in slices.
    #[inline]
    fn free_tables(&mut self, tables: Vec<Vec<u128>>) {
        if !tables.is_empty() {
            self.discarded.push(Discarded {
                tables: tables.into_iter().map(boxed).collect(),
                ..Discarded::default()
            });
        }
    }

    /// Returns the facts about the topic's keys. `None`: the topic has no rule that compares contents.
    pub(crate) fn key_stats(&self, now: Now) -> Option<KeyStats> {
        let keys = self.keys.as_ref();
        keys.map(|keys| keys.stats(clock_ms(now.mono)))
    }

    /// Takes the keys of an earlier process. Those that are in no file yet are saved, even if no new message comes: the
    /// log may give up their messages.
    pub(crate) fn restore_keys(&mut self, restored: RestoredKeys) {
        let unsaved_since = restored.unsaved_since();
        if let Some(keys) = &mut self.keys {
            keys.generations = restored.generations;
            if let Some(mono) = unsaved_since {
                keys.save.make_snapshot_due(mono, &keys.generations);
            }
        }
    }

    /// Asserts the invariants of the keys.
    pub(super) fn check_keys(&self) {
        if let Some(keys) = &self.keys {
            keys.generations.check();
        }
    }
}

/// The bodies of the messages of a publish that are to be stored. The list is made as far as it is needed, so a publish
/// without copies of its own messages has none.
struct FreshBodies<'b, B> {
    /// The bodies of the publish that are not in the list yet.
    rest: B,
    /// The number of bodies that were taken from the publish.
    taken: usize,
    fresh: Vec<&'b [u8]>,
    /// The seq of the first message that is stored.
    start: Seq,
}

impl<'b, B: Iterator<Item = &'b [u8]>> FreshBodies<'b, B> {
    fn new(bodies: B, start: Seq) -> FreshBodies<'b, B> {
        FreshBodies {
            rest: bodies,
            taken: 0,
            fresh: Vec::new(),
            start,
        }
    }

    /// Returns the body of the message that is to be stored with this seq. `fates` says for each message so far if it is
    /// to be stored. `None`: this publish has no such message.
    fn find(&mut self, seq: Seq, fates: &[bool]) -> Option<&'b [u8]> {
        let index = usize::try_from(seq.0.checked_sub(self.start.0)?).ok()?;
        while self.fresh.len() <= index {
            let is_fresh = fates.get(self.taken)?;
            let body = self.rest.next()?;
            self.taken += 1;
            if *is_fresh {
                self.fresh.push(body);
            }
        }
        self.fresh.get(index).copied()
    }
}
