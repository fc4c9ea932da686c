//! The file with the keys of a topic: when a draft begins, how it goes on, and what its result means. See
//! [`Saving`](super::saving::Saving).

use super::Topic;
use super::saving::{SLOTS_PER_ENTRY, Step, interval};
use crate::dedup::saved::KeysDraft;
use crate::now::Now;
use crate::work::Work;
use diskq_log::SeqRange;
use diskq_log::planted::{Bug, is_planted};
use std::sync::Arc;
use wire::id::Seq;

impl Topic {
    /// Begins a draft if one is due.
    pub(super) fn save_keys_in_time(&mut self, now: Now) {
        let due = self
            .keys
            .as_ref()
            .and_then(|keys| keys.saving.next_timeout());
        if due.is_some_and(|due| due <= now.mono) {
            self.begin_draft(now);
        }
    }

    fn begin_draft(&mut self, now: Now) {
        let upto = match is_planted(Bug::KeysAheadOfSync) {
            true => self.log.next_seq(),
            false => self.log.synced(),
        };
        let is_over = self.ephemeral || self.sync_failed;
        let is_all = self.log.is_synced();
        let Some(keys) = &mut self.keys else {
            return;
        };
        let saving = &mut keys.saving;
        saving.due = None;
        if is_over {
            return;
        }
        let mut is_refused = false;
        if upto > saving.saved_upto {
            match KeysDraft::new(&keys.generations, now, keys.key.to_string(), upto) {
                Ok(draft) => {
                    saving.step = Step::Draft(Box::new(draft));
                    saving.saved_upto = upto;
                }
                Err(_) => {
                    is_refused = true;
                    keys.generations.count_refusal();
                }
            }
        }
        if (!is_all || is_refused) && !saving.is_last {
            // The keys of the unsynced messages follow.
            saving.due = Some(now.mono + interval(&keys.generations));
        }
    }

    /// Goes on with a draft, and gives it to the keeper when it is complete.
    pub(super) fn continue_draft(&mut self, work: &mut Work) {
        let Some(keys) = &mut self.keys else {
            return;
        };
        let Step::Draft(draft) = &mut keys.saving.step else {
            return;
        };
        while work.is_left() {
            let slots = work.left().min(1 << 10) * SLOTS_PER_ENTRY;
            let copied = draft.add_newest(&keys.generations, slots);
            work.spend(copied.div_ceil(SLOTS_PER_ENTRY));
            if copied < slots {
                let Step::Draft(draft) = std::mem::replace(&mut keys.saving.step, Step::Writing)
                else {
                    unreachable!("it was a draft")
                };
                self.log.write_topic_file(draft);
                return;
            }
        }
    }

    /// Returns whether a draft is unfinished.
    pub(super) fn has_draft(&self) -> bool {
        let keys = self.keys.as_ref();
        keys.is_some_and(|keys| matches!(keys.saving.step, Step::Draft(_)))
    }

    /// Takes the result of the keeper. A file that could not be written is tried again with the next draft.
    pub(crate) fn keys_written(&mut self, result: &Result<(), Arc<str>>, now: Now) {
        let Some(keys) = &mut self.keys else {
            return;
        };
        let saving = &mut keys.saving;
        saving.step = Step::Idle;
        if result.is_err() {
            saving.saved_upto = Seq(0);
            saving.due = (!saving.is_last).then(|| now.mono + interval(&keys.generations));
        }
        self.lower_deadline(
            self.keys
                .as_ref()
                .and_then(|keys| keys.saving.next_timeout()),
        );
    }

    /// Forgets the keys of messages that the log has lost, so that their next copies are stored. The file of keys follows.
    pub(crate) fn forget_lost_keys(&mut self, seqs: SeqRange, now: Now) {
        if let Some(keys) = &mut self.keys
            && keys.generations.lose(seqs)
        {
            self.write_keys_again(now);
        }
    }

    /// Has the keys written again some time later, because their file did not get its name, or has keys that are wrong by
    /// now.
    pub(crate) fn write_keys_again(&mut self, now: Now) {
        let Some(keys) = &mut self.keys else {
            return;
        };
        let saving = &mut keys.saving;
        saving.saved_upto = Seq(0);
        let at = match saving.is_last {
            true => None,
            false => saving.make_draft_due(now.mono, &keys.generations),
        };
        self.lower_deadline(at);
    }

    /// Does the next step of the last file of a graceful stop. All messages are synced. Returns true while the file is not
    /// written. If it cannot be written, the stop goes on without it.
    pub(super) fn drive_last_keys(&mut self, now: Now) -> bool {
        if let Some(keys) = &mut self.keys
            && !keys.saving.is_last
            && matches!(keys.saving.step, Step::Idle)
        {
            keys.saving.is_last = true;
            self.begin_draft(now);
        }
        self.continue_draft(&mut Work::unbounded());
        let keys = self.keys.as_ref();
        keys.is_some_and(|keys| !matches!(keys.saving.step, Step::Idle))
    }
}
