//! A topic that recognises messages by their content stores only those that are fresh.

use super::keys::{Judged, KeyCounters, Keys};
use super::{Published, Topic};
use crate::dedup::generations::clock_ms;
use crate::dedup::meter::MeterReport;
use crate::dedup::restored::RestoredKeys;
use crate::discarded::Discarded;
use crate::freed_table::FreedTable;
use crate::now::Now;
use crate::publication::Publication;
use crate::stats::KeyStats;
use diskq_log::AppendError;
use diskq_log::planted::{Bug, is_planted};

/// The messages of a publish for which the memory is kept.
const FATES_KEPT: usize = 64 << 10;

impl Topic {
    /// Does a publish of a topic with keys, or with a meter.
    #[inline(never)]
    pub(super) fn publish_inspected<'b>(
        &mut self,
        now: Now,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
    ) -> Result<Published, AppendError> {
        let published = match (self.keys.take(), &self.dedup) {
            (Some(mut keys), _) => {
                let published = self.store_fresh_keys(now, publication, &mut keys);
                self.keys = Some(keys);
                published?
            }
            (None, Some(_)) => self.store_fresh(now, publication)?,
            (None, None) => self.store(now, publication)?,
        };
        if let Some(meter) = &mut self.meter {
            let bodies = publication.bodies.clone();
            bodies.for_each(|body| meter.see(now.mono, body));
        }
        Ok(published)
    }

    /// Appends those messages to the log whose keys the topic does not remember. A key is remembered when the append has
    /// succeeded: a message that was refused, or has to wait for room, is fresh when it comes again.
    fn store_fresh_keys<'b>(
        &mut self,
        now: Now,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
        keys: &mut Keys,
    ) -> Result<Published, AppendError> {
        let mut at = Judged {
            now_ms: clock_ms(now.mono),
            seq: self.log.next_append_seq(now.wall_ns),
        };
        keys.generations.begin(at.now_ms, at.seq);
        self.free_tables(keys.generations.take_unneeded());
        if keys.generations.take_shortage() {
            self.report_shortage();
        }
        self.reserve_before_forgetting(now, publication, keys)?;
        let mut counters = KeyCounters::default();
        let mut fates = std::mem::take(&mut keys.fates);
        fates.clear();
        let (mut fresh_count, mut fresh_bytes) = (0, 0);
        for body in publication.bodies.clone() {
            let is_fresh = keys.judge(&self.log, &mut counters, &at, body);
            fates.push(is_fresh);
            if is_fresh {
                fresh_count += 1;
                fresh_bytes += body.len() as u64;
                at.seq = at.seq.offset(1);
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
        if is_planted(Bug::KeyBeforeStore) {
            keys.generations.confirm();
        }
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
            fresh_count == 0 || self.log.next_seq() == at.seq,
            "a seq was foreseen wrongly"
        );
        keys.generations.confirm();
        keys.counters.add(&counters);
        if fresh_count > 0 {
            self.lower_deadline(keys.saving.make_draft_due(now.mono, &keys.generations));
        }
        published
    }

    #[cold]
    fn report_shortage(&mut self) {
        let name = &self.name;
        self.news.push(format!(
            "TOPIC({name}): the system refuses memory for the keys of --dedup, so the topic forgets keys early; \
             dedup_memory_refused_count in /stats says how often. Raise the limit of the address space (ulimit -v, LimitAS), \
             set vm.overcommit_memory to 0, or give the rule a smaller memory="
        ));
    }

    /// Makes room for a publish that may have the oldest keys forgotten. If such a publish were refused later, keys of the
    /// window would be gone. Copies need no room.
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

    /// Takes what recognises messages apart, at the deletion of the topic. Returns the tables that are to be freed.
    pub(super) fn take_tables(&mut self) -> Vec<Box<dyn FreedTable>> {
        let keys = self
            .keys
            .take()
            .map_or(Vec::new(), |keys| keys.into_tables());
        let numbers = self.dedup.take().map(|dedup| dedup.into_tables());
        let tables = keys.into_iter().map(boxed);
        tables.chain(numbers.into_iter().flatten()).collect()
    }

    /// Returns the facts about the topic's keys. `None`: the topic has no rule that compares contents.
    pub(crate) fn key_stats(&self, now: Now) -> Option<KeyStats> {
        let keys = self.keys.as_ref();
        keys.map(|keys| keys.stats(clock_ms(now.mono)))
    }

    /// Returns the result of the topic's meter. `None`: the topic has none.
    pub(crate) fn meter_report(&self) -> Option<MeterReport> {
        self.meter.as_ref().map(|meter| meter.report())
    }

    /// Takes the keys of an earlier process. Those that are in no file yet are saved, even if no new message comes: the log
    /// may give up their messages.
    pub(crate) fn restore_keys(&mut self, restored: RestoredKeys) {
        let unsaved_since = restored.unsaved_since();
        if let Some(keys) = &mut self.keys {
            keys.generations = restored.generations;
            if let Some(mono) = unsaved_since {
                keys.saving.make_draft_due(mono, &keys.generations);
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

fn boxed(table: Vec<u128>) -> Box<dyn FreedTable> {
    Box::new(table)
}
