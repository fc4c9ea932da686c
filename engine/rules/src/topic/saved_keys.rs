//! Saves the keys of a topic: begins a snapshot, goes on with it, and takes the keeper's result.
//! [`KeysSave`](super::keys_save::KeysSave) is the state of the save.

use super::Topic;
use super::keys_save::{KeysSaveStep, SLOTS_PER_ENTRY, interval};
use crate::content::saved::KeysSnapshot;
use crate::now::Now;
use crate::work::Work;
use diskq_log::SeqRange;
use diskq_log::plant;
use std::sync::Arc;
use wire::id::Seq;

impl Topic {
    /// Begins a snapshot if one is due.
    pub(super) fn save_keys_in_time(&mut self, now: Now) {
        let due = self.keys.as_ref().and_then(|keys| keys.save.next_timeout());
        if due.is_some_and(|due| due <= now.mono) {
            self.begin_snapshot(now);
        }
    }

    fn begin_snapshot(&mut self, now: Now) {
        let boundary = self.log.synced();
        plant!(KeysAheadOfSync, let boundary = self.log.next_seq());
        let is_over = self.ephemeral || self.log.has_failed_sync();
        let is_all = self.log.is_synced();
        let Some(keys) = &mut self.keys else {
            return;
        };
        let save = &mut keys.save;
        save.due = None;
        if is_over {
            return;
        }
        let mut is_refused = false;
        if boundary > save.saved_boundary {
            match KeysSnapshot::new(&keys.generations, now, keys.key.to_string(), boundary) {
                Ok(snapshot) => {
                    save.step = KeysSaveStep::Snapshot(Box::new(snapshot));
                    save.saved_boundary = boundary;
                }
                Err(_) => {
                    is_refused = true;
                    keys.generations.count_refusal();
                }
            }
        }
        if (!is_all || is_refused) && !save.is_last {
            // The keys of the unsynced messages follow.
            save.due = Some(now.mono + interval(&keys.generations));
        }
    }

    /// Goes on with a snapshot, and gives it to the keeper when it is complete.
    pub(super) fn continue_snapshot(&mut self, work: &mut Work) {
        let Some(keys) = &mut self.keys else {
            return;
        };
        let KeysSaveStep::Snapshot(snapshot) = &mut keys.save.step else {
            return;
        };
        while work.is_left() {
            let slots = work.left().min(1 << 10) * SLOTS_PER_ENTRY;
            let copied = snapshot.add_newest(&keys.generations, slots);
            work.spend(copied.div_ceil(SLOTS_PER_ENTRY));
            if copied < slots {
                let KeysSaveStep::Snapshot(snapshot) =
                    std::mem::replace(&mut keys.save.step, KeysSaveStep::Writing)
                else {
                    unreachable!("it was a snapshot")
                };
                self.log.write_topic_file(snapshot);
                return;
            }
        }
    }

    /// Returns whether a snapshot is unfinished.
    pub(super) fn has_snapshot(&self) -> bool {
        let keys = self.keys.as_ref();
        keys.is_some_and(|keys| matches!(keys.save.step, KeysSaveStep::Snapshot(_)))
    }

    /// Takes the result of the keeper. A file that could not be written is tried again with the next snapshot.
    pub(crate) fn keys_written(&mut self, result: &Result<(), Arc<str>>, now: Now) {
        let Some(keys) = &mut self.keys else {
            return;
        };
        let save = &mut keys.save;
        save.step = KeysSaveStep::Idle;
        if result.is_err() {
            save.saved_boundary = Seq(0);
            save.due = (!save.is_last).then(|| now.mono + interval(&keys.generations));
        }
        self.channels
            .lower_deadline(self.keys.as_ref().and_then(|keys| keys.save.next_timeout()));
    }

    /// Forgets the keys of messages that the log has lost, so that their next copies are stored. The file of keys
    /// follows.
    pub(crate) fn forget_lost_keys(&mut self, seqs: SeqRange, now: Now) {
        if let Some(keys) = &mut self.keys
            && keys.generations.lose(seqs)
        {
            self.write_keys_again(now);
        }
    }

    /// Has the keys written again some time later, because their file did not get its name, or has keys that are wrong
    /// by now.
    pub(crate) fn write_keys_again(&mut self, now: Now) {
        let Some(keys) = &mut self.keys else {
            return;
        };
        let save = &mut keys.save;
        save.saved_boundary = Seq(0);
        let at = if save.is_last {
            None
        } else {
            save.make_snapshot_due(now.mono, &keys.generations)
        };
        self.channels.lower_deadline(at);
    }

    /// Does the next step of the last file of a graceful stop. All messages are synced. Returns true while the file is
    /// not written. If it cannot be written, the stop goes on without it.
    pub(super) fn drive_last_keys(&mut self, now: Now) -> bool {
        if let Some(keys) = &mut self.keys
            && !keys.save.is_last
            && matches!(keys.save.step, KeysSaveStep::Idle)
        {
            keys.save.is_last = true;
            self.begin_snapshot(now);
        }
        self.continue_snapshot(&mut Work::unbounded());
        let keys = self.keys.as_ref();
        keys.is_some_and(|keys| !matches!(keys.save.step, KeysSaveStep::Idle))
    }
}
