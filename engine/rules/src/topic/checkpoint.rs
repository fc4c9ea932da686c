//! The checkpoints of a topic: when one begins, its next slice, and what is answered when one is written.

use super::Topic;
use super::kept::Progress;
use super::unfinished_checkpoint::{Stopping, UnfinishedCheckpoint};
use crate::channel::scan::Scan;
use crate::ids::ChannelId;
use crate::output::Refusal;
use crate::pause::PauseUnderWay;
use crate::undo::Undo;
use crate::work::Work;
use diskq_log::{
    ChannelDraft, CheckpointDraft, CheckpointNumber, Durable, Log, Now, PauseTerms, Runs,
    UndoDraft, plant,
};
use std::time::Duration;

/// A stop waits for descriptors while this many syncs in a row could not open their files: 10 s.
const DELAYED_SYNCS_MAX: u32 = 40;

impl Topic {
    /// Has a checkpoint made as soon as the one that is under way is done. Returns its number.
    pub(crate) fn want_checkpoint(&mut self, durable: Durable) -> CheckpointNumber {
        self.checkpoints.wanted = self.checkpoints.wanted.max(Some(durable));
        self.log.next_checkpoint()
    }

    /// Returns whether the outcome of a checkpoint is still to be reported.
    pub(super) fn expects_checkpoint(&self, number: CheckpointNumber) -> bool {
        let is_wanted = self.checkpoints.wanted.is_some() && number == self.log.next_checkpoint();
        is_wanted || self.log.expects_checkpoint(number)
    }

    /// Goes on with the checkpoint that is wanted or under way.
    ///
    /// Call this before any other step of the turn that may release messages: a recorded message must be held.
    pub(super) fn continue_checkpoint(&mut self, now: Now, work: &mut Work) {
        if let Some(durable) = self.checkpoints.wanted
            && !self.log.is_checkpoint_under_way()
        {
            self.checkpoints.wanted = None;
            self.log.begin_checkpoint(now.mono, durable);
            self.checkpoints.unfinished = Some(self.unfinished_checkpoint());
        }
        let Some(mut unfinished) = self.checkpoints.unfinished.take() else {
            return;
        };
        let undo = self.undo.as_deref();
        plant!(TopicUndoNotRecorded, let undo = None);
        let undo = UndoToAdd {
            undo,
            draft: &mut unfinished.draft.undo,
            added: &mut unfinished.topic_undo,
        };
        if undo.add(now, work, &mut self.log)
            && self.add_channels(&mut unfinished, now, work)
            && self.add_undistributed(&mut unfinished, now, work)
        {
            self.log.finish_checkpoint(unfinished.draft);
        } else {
            self.checkpoints.unfinished = Some(unfinished);
        }
    }

    fn unfinished_checkpoint(&self) -> Box<UnfinishedCheckpoint> {
        let kept = self
            .channels
            .iter()
            .filter(|(_, channel)| !channel.ephemeral);
        let drafts = kept.map(|(id, channel)| {
            let draft = ChannelDraft {
                name: channel.name.to_string(),
                paused: channel.pause.is_some(),
                terms: terms_of(&channel.pause),
                runs: Runs::default(),
                undo: None,
            };
            (id, draft)
        });
        let (channels, drafts) = drafts.unzip();
        Box::new(UnfinishedCheckpoint {
            draft: CheckpointDraft {
                grace: self.grace.as_ref().and_then(|grace| grace.draft()),
                terms: terms_of(&self.pause),
                ..CheckpointDraft::new(self.pause.is_some(), drafts)
            },
            channels,
            topic_undo: 0,
            index: 0,
            channel_undo: 0,
            scan: Scan::Begin,
            undistributed: Progress::default(),
            grace: Progress::default(),
        })
    }

    /// Returns whether all channels were scanned.
    fn add_channels(
        &mut self,
        unfinished: &mut UnfinishedCheckpoint,
        now: Now,
        work: &mut Work,
    ) -> bool {
        while let Some(id) = unfinished.channels.get(unfinished.index).copied() {
            if !work.is_left() {
                return false;
            }
            work.spend(1);
            let (channel, log) = self.channel_and_log(id);
            let draft = &mut unfinished.draft.channels[unfinished.index];
            let undo = UndoToAdd {
                undo: channel.undo.as_deref(),
                draft: &mut draft.undo,
                added: &mut unfinished.channel_undo,
            };
            if !undo.add(now, work, log) {
                return false;
            }
            let runs = &mut draft.runs;
            let unix_time_of = |at| now.unix_time_of(at);
            let out = |run| log.name_run(runs, run);
            if !channel.scan(&mut unfinished.scan, work, unix_time_of, out) {
                return false;
            }
            unfinished.index += 1;
            unfinished.begin_channel();
        }
        true
    }

    /// Returns whether all messages of the grace and all undistributed messages were seen.
    fn add_undistributed(
        &mut self,
        unfinished: &mut UnfinishedCheckpoint,
        now: Now,
        work: &mut Work,
    ) -> bool {
        let UnfinishedCheckpoint { draft, .. } = unfinished;
        let log = &mut self.log;
        if let (Some(grace), Some(list)) = (&self.grace, &mut draft.grace) {
            let due_ns = |due| now.unix_time_of(due);
            let out = |run| log.name_run(&mut list.runs, run);
            if !unfinished.grace.scan(&grace.kept, due_ns, work, out) {
                return false;
            }
        }
        let due_ns = |ms| now.unix_time_of(now.mono + Duration::from_millis(u64::from(ms)));
        let out = |run| log.name_run(&mut draft.undistributed, run);
        let progress = &mut unfinished.undistributed;
        progress.scan(&self.undistributed, due_ns, work, out)
    }

    // --- what waits for a checkpoint

    /// Requests a checkpoint for a change whose answer waits until the change is recorded. An answered change is as
    /// durable as an acknowledged message: with `--sync-every=1` it survives a power failure. The change must not
    /// depend on nsqd.dat, which is written later.
    pub(crate) fn request_promised_checkpoint(&mut self) -> CheckpointNumber {
        let durable = if self.options.group_commit {
            Durable::Yes
        } else {
            Durable::No
        };
        self.want_checkpoint(durable)
    }

    /// Requests a checkpoint that records a channel. A client that wants the channel waits for that checkpoint.
    pub(crate) fn request_record_of(&mut self, id: ChannelId) -> CheckpointNumber {
        let number = self.request_promised_checkpoint();
        self.channels[id].unrecorded = Some(number);
        number
    }

    /// The number of the checkpoint that will record a channel; `None` once the channel is recorded. If that
    /// checkpoint could not be written, a later one takes its place, and the clients that wait are answered.
    pub(crate) fn unrecorded(&mut self, id: ChannelId) -> Option<CheckpointNumber> {
        match self.channels[id].unrecorded {
            Some(number) if self.expects_checkpoint(number) => Some(number),
            Some(_) => Some(self.request_record_of(id)),
            None => self.is_unsure(id).then(|| self.request_record_of(id)),
        }
    }

    /// Returns whether the channel must be recorded before a SUB to it is answered, because an earlier run left it and
    /// no sufficiently durable checkpoint names it. False after a failed sync: then nothing can be recorded any more,
    /// but consumers still get the stored messages.
    fn is_unsure(&self, id: ChannelId) -> bool {
        !self.log.has_failed_sync() && self.channels[id].is_unsure
    }

    /// Marks the topic, and the channels that wait for checkpoint `number`, as recorded
    /// ([`Topic::request_promised_checkpoint`]). The checkpoint is written.
    ///
    /// # Errors
    /// `--sync-every=1` needs a synced checkpoint, and checkpoint `number` is not synced.
    pub(crate) fn mark_recorded(
        &mut self,
        number: CheckpointNumber,
        synced: bool,
    ) -> Result<(), Refusal> {
        if self.options.group_commit && !synced {
            return Err(Refusal::NothingDurable);
        }
        self.checkpoints.is_recorded = true;
        for channel in self.channels.values_mut() {
            // Every checkpoint of this run of the process names the channels that an earlier run left.
            let is_named = channel.unrecorded.is_some_and(|wanted| wanted <= number);
            if std::mem::take(&mut channel.is_unsure) || is_named {
                channel.unrecorded = None;
            }
        }
        Ok(())
    }

    /// Marks the topic as one of which nothing becomes durable any more. A SUB to a channel of an earlier run no longer
    /// waits for a checkpoint.
    pub(crate) fn mark_sync_failed(&mut self) {
        let channels = self.channels.values_mut();
        for channel in channels.filter(|channel| channel.is_unsure) {
            channel.unrecorded = None;
        }
    }

    // --- the last checkpoint of a graceful stop

    /// Does the next step of a graceful stop: syncs all messages, saves what the gate remembers of them, then writes one
    /// last checkpoint. Returns true while the last checkpoint has not ended. Call this again after the keeper's next
    /// answer.
    pub(crate) fn drive_stop(&mut self, now: Now) -> bool {
        plant!(StopSyncsNothing, return false);
        match self.checkpoints.stopping {
            _ if self.ephemeral => false,
            Stopping::Done => false,
            Stopping::Checkpoint(_) => true,
            Stopping::No
                if !self.log.is_synced()
                    && !self.log.has_failed_sync()
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
                let durable = if self.log.has_failed_sync() {
                    Durable::No
                } else {
                    Durable::Yes
                };
                self.log.seal();
                let number = self.want_checkpoint(durable);
                self.checkpoints.stopping = Stopping::Checkpoint(number);
                true
            }
        }
    }

    /// Ends a stop if checkpoint `number`, which was written or could not be, is its last one.
    pub(crate) fn advance_stop(&mut self, number: CheckpointNumber) {
        if let Stopping::Checkpoint(wanted) = self.checkpoints.stopping
            && number >= wanted
        {
            self.checkpoints.stopping = Stopping::Done;
        }
    }
}

/// The terms of a pause as a checkpoint records them.
fn terms_of(pause: &Option<Box<PauseUnderWay>>) -> PauseTerms {
    let terms = pause.as_ref().map(|pause| pause.terms.clone());
    terms.unwrap_or_default()
}

/// An undo that a draft gets.
struct UndoToAdd<'a> {
    undo: Option<&'a Undo>,
    draft: &'a mut Option<UndoDraft>,
    /// The number of runs that the draft has.
    added: &'a mut usize,
}

impl UndoToAdd<'_> {
    /// Adds the next runs, as far as the budget allows. Returns whether the draft has all of them.
    fn add(self, now: Now, work: &mut Work, log: &mut Log) -> bool {
        let Some(undo) = self.undo else {
            return true;
        };
        let list = self.draft.get_or_insert_with(|| UndoDraft {
            until_ns: undo.until_ns,
            ..UndoDraft::default()
        });
        for run in &undo.runs()[*self.added..] {
            if !work.is_left() {
                return false;
            }
            work.spend(1);
            *self.added += 1;
            log.name_run(&mut list.runs, undo.recorded(now, run));
        }
        true
    }
}
