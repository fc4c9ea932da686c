//! The checkpoints of a topic: when one begins, and its next slice.

use super::Topic;
use super::recording::{Recording, Undistributed, owed_run, unix_time_of};
use crate::channel::scan::Scan;
use crate::now::Now;
use crate::work::Work;
use diskq_log::{ChannelDraft, CheckpointDraft, CheckpointNumber, Durable, Runs, SeqRange};
use std::time::Duration;

impl Topic {
    /// Has a checkpoint made as soon as the one that is under way is done. Returns its number.
    pub(crate) fn want_checkpoint(&mut self, durable: Durable) -> CheckpointNumber {
        self.wanted = self.wanted.max(Some(durable));
        self.log.next_checkpoint()
    }

    /// Returns whether the outcome of a checkpoint is still to be reported.
    pub(super) fn expects_checkpoint(&self, number: CheckpointNumber) -> bool {
        let is_wanted = self.wanted.is_some() && number == self.log.next_checkpoint();
        is_wanted || self.log.expects_checkpoint(number)
    }

    /// Goes on with the checkpoint that is wanted or under way.
    ///
    /// Call this before any other step of the turn that may release messages: a recorded message must be held.
    pub(super) fn record(&mut self, now: Now, work: &mut Work) {
        if let Some(durable) = self.wanted
            && !self.log.is_checkpoint_under_way()
        {
            self.wanted = None;
            self.log.begin_checkpoint(now.mono, durable);
            self.recording = Some(self.begin_recording());
        }
        let Some(mut recording) = self.recording.take() else {
            return;
        };
        if self.record_channels(&mut recording, now, work)
            && self.record_undistributed(&mut recording, now, work)
        {
            self.log.finish_checkpoint(recording.draft);
        } else {
            self.recording = Some(recording);
        }
    }

    fn begin_recording(&self) -> Box<Recording> {
        let kept = self.channels().filter(|(_, channel)| !channel.ephemeral);
        let drafts = kept.map(|(id, channel)| {
            let draft = ChannelDraft {
                name: channel.name.to_string(),
                paused: channel.paused,
                runs: Runs::default(),
            };
            (id, draft)
        });
        let (channels, drafts) = drafts.unzip();
        Box::new(Recording {
            draft: CheckpointDraft::new(self.paused, drafts),
            channels,
            index: 0,
            scan: Scan::Begin,
            undistributed: Undistributed::default(),
        })
    }

    /// Returns whether all channels were scanned.
    fn record_channels(&mut self, recording: &mut Recording, now: Now, work: &mut Work) -> bool {
        while let Some(id) = recording.channels.get(recording.index) {
            if !work.is_left() {
                return false;
            }
            work.spend(1);
            let channel = self.channels[id.0 as usize].as_mut();
            let channel = channel.expect("a channel that is deleted leaves the recording");
            let runs = &mut recording.draft.channels[recording.index].runs;
            let log = &mut self.log;
            let unix_time_of = |at| unix_time_of(now, at);
            let out = |run| log.name_run(runs, run);
            if !channel.scan(&mut recording.scan, work, unix_time_of, out) {
                return false;
            }
            recording.index += 1;
            recording.scan = Scan::Begin;
        }
        true
    }

    /// Returns whether all undistributed messages were seen. Meanwhile none of them is removed, unless all are.
    fn record_undistributed(
        &mut self,
        recording: &mut Recording,
        now: Now,
        work: &mut Work,
    ) -> bool {
        let Undistributed {
            place,
            seen,
            deferred_place,
        } = &mut recording.undistributed;
        *place = (*place).max(self.undistributed.first_place());
        let list = &mut recording.draft.undistributed;
        while let Some(range) = self.undistributed.iter_from(*place).next() {
            if !work.is_left() {
                return false;
            }
            work.spend(1);
            let start = range.start.offset(*seen);
            let mut deferred = self.undistributed_deferred.iter_from(*deferred_place);
            match deferred.next().copied() {
                Some((seq, _)) if seq < start => *deferred_place = self.next_place(*deferred_place),
                Some((seq, ms)) if seq < range.end => {
                    let before = SeqRange::new(start, seq);
                    self.log.name_run(list, owed_run(before, 0));
                    let due = now.mono + Duration::from_millis(u64::from(ms));
                    let run = owed_run(SeqRange::one(seq), unix_time_of(now, due));
                    self.log.name_run(list, run);
                    *seen = seq.offset(1).since(range.start);
                    *deferred_place = self.next_place(*deferred_place);
                }
                _ => {
                    let rest = SeqRange::new(start, range.end);
                    self.log.name_run(list, owed_run(rest, 0));
                    *place += 1;
                    *seen = 0;
                }
            }
        }
        true
    }

    fn next_place(&self, place: u64) -> u64 {
        place.max(self.undistributed_deferred.first_place()) + 1
    }
}
