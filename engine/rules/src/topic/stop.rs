//! The last checkpoint of a graceful stop.

use super::{Stopping, Topic};
use crate::now::Now;
use diskq_log::{CheckpointNumber, Durable, plant};

/// A stop waits for descriptors while this many syncs in a row could not open their files: 10 s.
const DELAYED_SYNCS_MAX: u32 = 40;

impl Topic {
    /// Does the next step of a graceful stop: syncs all messages, saves what the gate remembers of them, then writes one
    /// last checkpoint. Returns true while the last checkpoint has not ended. Call this again after the keeper's next answer.
    pub(crate) fn drive_stop(&mut self, now: Now) -> bool {
        plant!(StopSyncsNothing, return false);
        match self.stopping {
            _ if self.ephemeral => false,
            Stopping::Done => false,
            Stopping::Checkpoint(_) => true,
            Stopping::No
                if !self.log.is_synced()
                    && !self.sync_failed
                    && self.log.delayed_syncs() < DELAYED_SYNCS_MAX =>
            {
                self.log.sync_now();
                true
            }
            Stopping::No => {
                if let Some(gate) = &mut self.gate
                    && gate.save_last(now, &mut self.log)
                {
                    return true;
                }
                let durable = if self.sync_failed {
                    Durable::No
                } else {
                    Durable::Yes
                };
                self.log.seal();
                let number = self.want_checkpoint(durable);
                self.stopping = Stopping::Checkpoint(number);
                true
            }
        }
    }

    /// Ends a stop if checkpoint `number`, which was written or could not be, is its last one.
    pub(crate) fn advance_stop(&mut self, number: CheckpointNumber) {
        if let Stopping::Checkpoint(wanted) = self.stopping
            && number >= wanted
        {
            self.stopping = Stopping::Done;
        }
    }
}
