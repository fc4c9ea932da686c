//! [`Gate`]: decides which messages of a publish a topic stores, and saves what it needs for that.
//!
//! ```text
//!   publish ──► judge ──► Fates: fresh | duplicate ──► the topic appends the fresh ones ──► confirm
//!                                                                   └── refused ──────────► take_back
//! ```
//!
//! A message counts as stored only when its append has succeeded. A message that was refused, or has to wait for room,
//! is fresh when it comes again.

use crate::key_tables::clock_ms;
use crate::keys::Keys;
use crate::publication::{Fates, Publication};
use crate::publisher_numbers::PublisherNumbers;
use crate::restored_keys::RestoredKeys;
use crate::rules::{DedupRule, DedupRules};
use crate::stats::{KeyStats, NumberStats};
use diskq_log::{AppendError, Log, LogOptions, Notice, Now, SavedState, Seq, SeqRange};
use std::sync::Arc;
use std::time::Duration;
use wire::name::TopicName;
use wire::origin::Origin;

/// The duplicates of a publish for which the memory is kept, 16 KiB. A large batch takes more memory, and gives it back.
const DUPLICATES_KEPT: usize = 4096;

/// What a topic with a rule of `--dedup` remembers of the messages that it has stored.
#[derive(Debug)]
pub struct Gate {
    memory: Memory,
    /// The list of [`Fates`], kept so that a publish with duplicates allocates nothing.
    spare: Vec<u32>,
}

#[derive(Debug)]
enum Memory {
    Keys(Keys),
    Numbers(PublisherNumbers),
}

impl Gate {
    /// Makes the gate of a topic, which remembers nothing yet. `None`: the topic has no rule, and stores every message.
    #[must_use]
    pub fn new(rules: &DedupRules, topic: TopicName<'_>, options: &LogOptions) -> Option<Gate> {
        let memory = match rules.of(topic.as_str())? {
            DedupRule::Content(rule) => {
                let now_ms = clock_ms(Duration::ZERO);
                Memory::Keys(Keys::new(rule, topic, options.process_seed, now_ms))
            }
            DedupRule::Publisher(rule) => {
                Memory::Numbers(PublisherNumbers::new(rule, topic, options))
            }
        };
        Some(Gate {
            memory,
            spare: Vec::new(),
        })
    }

    /// Decides which messages of a publish are to be stored. Append these to the log, and call [`Gate::confirm`] or
    /// [`Gate::take_back`] before the next call.
    ///
    /// # Errors
    /// The errors are those of an append. Nothing has changed.
    pub fn judge<'b>(
        &mut self,
        now: Now,
        log: &mut Log,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
    ) -> Result<Fates, AppendError> {
        let mut fates = Fates {
            start: log.next_append_seq(now.wall_ns),
            origin: publication.origin,
            duplicates: std::mem::take(&mut self.spare),
            ..Fates::default()
        };
        match &mut self.memory {
            Memory::Keys(keys) => keys.judge(now, log, publication, &mut fates)?,
            Memory::Numbers(numbers) => numbers.judge(now, log, publication, &mut fates),
        }
        match log.poisoned() {
            // The first copies may have been refused because of the failed sync.
            Some(text) if fates.count == 0 => Err(AppendError::Poisoned(Arc::clone(text))),
            _ => Ok(fates),
        }
    }

    /// Remembers the messages of a publish. `stored` are the fresh ones, which are in the log.
    pub fn confirm(&mut self, now: Now, log: &mut Log, fates: Fates, stored: SeqRange) {
        debug_assert!(
            stored.is_empty() || stored.start == fates.start,
            "a seq was foreseen wrongly"
        );
        match &mut self.memory {
            Memory::Keys(keys) => keys.confirm(now, &fates),
            Memory::Numbers(numbers) => numbers.confirm(log, &fates, stored),
        }
        if fates.duplicates.capacity() <= DUPLICATES_KEPT {
            self.spare = fates.duplicates;
            self.spare.clear();
        }
    }

    /// Forgets the messages of a publish, of which none is in the log.
    pub fn take_back(&mut self) {
        if let Memory::Keys(keys) = &mut self.memory {
            keys.take_back();
        }
    }

    // --- saves

    /// Returns when the next save is due. `None`: nothing is to be saved, or no time leads to it.
    #[must_use]
    pub fn next_timeout(&self, log: &Log) -> Option<Duration> {
        match &self.memory {
            Memory::Keys(keys) => keys.next_timeout(),
            Memory::Numbers(numbers) => numbers.next_timeout(log),
        }
    }

    /// Begins a save if one is due. Harmless if none is.
    pub fn handle_timeout(&mut self, now: Now, log: &mut Log) {
        match &mut self.memory {
            Memory::Keys(keys) => keys.save_in_time(now, log),
            Memory::Numbers(numbers) => numbers.save_if_synced(now, log),
        }
    }

    /// Takes what the log tells of its syncs, its damage, and the saves.
    pub fn handle_notice(&mut self, now: Now, log: &mut Log, notice: &Notice) {
        match (&mut self.memory, notice) {
            (Memory::Keys(keys), Notice::TopicFileWritten(result)) => keys.end_save(now, result),
            (Memory::Keys(keys), Notice::TopicFileNotRenamed(_)) => keys.save_again(now),
            (Memory::Keys(keys), Notice::Damage(damage)) => keys.lose(now, damage.seqs),
            (Memory::Numbers(numbers), Notice::Synced(_)) => numbers.save_if_synced(now, log),
            (
                Memory::Numbers(numbers),
                Notice::StateSaved(boundary) | Notice::StateFailed(boundary, _),
            ) => numbers.end_save(log, *boundary),
            _ => {}
        }
    }

    /// Puts the next slice of a save together, of about `entries` entries of a turn's work. Returns how many it took. Gives
    /// tables that are no longer needed to the log's keeper.
    pub fn continue_save(&mut self, log: &mut Log, entries: usize) -> usize {
        match &mut self.memory {
            Memory::Keys(keys) => {
                if let Some(tables) = keys.tables.take_unneeded() {
                    log.drop_later(tables);
                }
                keys.continue_save(log, entries)
            }
            Memory::Numbers(numbers) => numbers.continue_save(log, entries),
        }
    }

    /// Returns whether a save has a slice left for the next turn.
    #[must_use]
    pub fn has_slices_left(&self) -> bool {
        match &self.memory {
            Memory::Keys(keys) => keys.has_slices_left(),
            Memory::Numbers(numbers) => numbers.has_slices_left(),
        }
    }

    /// Does the next step of the last save, before a stop. All messages are synced, or a sync has failed. Returns true
    /// while the save has not ended.
    pub fn save_last(&mut self, now: Now, log: &mut Log) -> bool {
        match &mut self.memory {
            Memory::Keys(keys) => keys.save_last(now, log),
            Memory::Numbers(numbers) => numbers.save_last(log),
        }
    }

    // --- the start and the end

    /// Takes the keys of an earlier process.
    pub fn restore_keys(&mut self, restored: RestoredKeys) {
        if let Memory::Keys(keys) = &mut self.memory {
            *keys = restored.into();
        }
    }

    /// Takes the numbers of an earlier process: those of its last save, and the origins of the later messages. The save
    /// comes with the seq from which messages may be in no durable save. `found` are the messages in the log.
    pub fn restore_numbers(
        &mut self,
        log: &mut Log,
        saved: Option<(SavedState, Seq)>,
        origins: &[(Seq, Origin)],
        found: &[SeqRange],
    ) {
        if let Memory::Numbers(numbers) = &mut self.memory {
            numbers.restore(log, saved, origins, found);
        }
    }

    // --- what others see

    /// Takes the text of a WARNING line about the topic.
    pub fn take_news(&mut self) -> Option<&'static str> {
        match &mut self.memory {
            Memory::Keys(keys) => keys.take_news(),
            Memory::Numbers(numbers) => numbers.news.take(),
        }
    }

    /// Returns the figures of the rule: about publishers, or about keys.
    #[must_use]
    pub fn stats(&self, now: Now) -> (Option<NumberStats>, Option<KeyStats>) {
        match &self.memory {
            Memory::Keys(keys) => (None, Some(keys.stats(now))),
            Memory::Numbers(numbers) => (Some(numbers.stats()), None),
        }
    }

    /// Asserts the invariants. Returns the number of messages that are held in the log for the gate.
    pub fn check(&self) -> u64 {
        match &self.memory {
            Memory::Keys(keys) => {
                keys.tables.check();
                0
            }
            Memory::Numbers(numbers) => numbers.check(),
        }
    }
}

#[cfg(test)]
mod tests;
