//! [`Recording`]: a checkpoint that a topic puts together, a slice per turn.
//!
//! The channels come first, one after the other; how their messages are not missed while they move is told
//! in `channel/scan.rs`. What the topic gives them meanwhile is noted for those that were scanned. What the
//! topic has not given to any channel comes last, and nothing is given until that is done.

use super::Topic;
use crate::channel::scan::Scan;
use crate::work::Work;
use crate::{ChannelId, Now};
use diskq::{
    ChannelDraft, CheckpointDraft, CheckpointNumber, CheckpointRun, Durable, Log, Runs, SeqRange,
};
use std::time::Duration;

/// How far the checkpoint has come.
#[derive(Debug)]
pub(super) struct Recording {
    draft: CheckpointDraft,
    /// The channels of the draft, in its order.
    channels: Vec<ChannelId>,
    /// The channel that is being scanned; those before it were.
    index: usize,
    scan: Scan,
    undistributed: Undistributed,
}

/// How far the scan of what was not distributed has come.
#[derive(Debug, Default, Clone, Copy)]
struct Undistributed {
    /// The place of the next range, and how many of its seqs were seen.
    place: u64,
    seen: u64,
    /// The place of the next deferred message.
    deferred_place: u64,
}

impl Recording {
    /// Notes what all channels are given: those that were scanned already would be recorded without.
    pub(super) fn note_given(&mut self, log: &mut Log, run: CheckpointRun) {
        for channel in self.draft.channels.iter_mut().take(self.index + 1) {
            log.record(&mut channel.runs, run);
        }
    }

    /// Whether all channels were scanned: what they are given now would be recorded twice.
    pub(super) fn is_past_channels(&self) -> bool {
        self.index == self.channels.len()
    }

    /// Leaves a channel out that is deleted. Returns what was found of it so far.
    pub(super) fn remove_channel(&mut self, id: ChannelId) -> Option<Runs> {
        let index = self.channels.iter().position(|other| *other == id)?;
        self.channels.remove(index);
        if index < self.index {
            self.index -= 1;
        } else if index == self.index {
            self.scan = Scan::Begin;
        }
        Some(self.draft.channels.remove(index).runs)
    }

    /// What was found so far, of a topic that is deleted.
    pub(super) fn into_runs(self) -> Vec<Runs> {
        let channels = self.draft.channels.into_iter();
        let mut runs: Vec<Runs> = channels.map(|channel| channel.runs).collect();
        runs.push(self.draft.undistributed);
        runs
    }
}

impl Topic {
    /// Has a checkpoint made as soon as the one that is under way is done. Returns its number.
    pub(crate) fn want_checkpoint(&mut self, durable: Durable) -> CheckpointNumber {
        self.wanted = self.wanted.max(Some(durable));
        self.log.next_checkpoint()
    }

    /// Whether it is still to be told what becomes of a checkpoint.
    pub(super) fn expects_checkpoint(&self, number: CheckpointNumber) -> bool {
        let is_wanted = self.wanted.is_some() && number == self.log.next_checkpoint();
        is_wanted || self.log.expects_checkpoint(number)
    }

    /// Goes on with the checkpoint that is wanted or under way.
    ///
    /// Comes before anything else of a turn that may let go of messages: what is recorded is held.
    pub(super) fn record(&mut self, now: Now, work: &mut Work) {
        if let Some(durable) = self.wanted
            && !self.log.is_recording()
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
            let out = |run| log.record(runs, run);
            if !channel.scan(&mut recording.scan, work, unix_time_of, out) {
                return false;
            }
            recording.index += 1;
            recording.scan = Scan::Begin;
        }
        true
    }

    /// Returns whether all was seen that was not distributed. Nothing of it goes meanwhile, unless all of
    /// it does.
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
                    self.log.record(list, owed_run(before, 0));
                    let due = now.mono + Duration::from_millis(u64::from(ms));
                    let run = owed_run(SeqRange::one(seq), unix_time_of(now, due));
                    self.log.record(list, run);
                    *seen = seq.offset(1).since(range.start);
                    *deferred_place = self.next_place(*deferred_place);
                }
                _ => {
                    let rest = SeqRange::new(start, range.end);
                    self.log.record(list, owed_run(rest, 0));
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

/// What the record says of messages that were never delivered.
pub(super) fn owed_run(range: SeqRange, due_ns: u64) -> CheckpointRun {
    CheckpointRun {
        start: range.start,
        count: range.len(),
        attempts: 0,
        due_ns,
    }
}

/// The Unix time, in nanoseconds, of a moment that has not passed; now, of one that has.
pub(super) fn unix_time_of(now: Now, at: Duration) -> u64 {
    let wait = at.saturating_sub(now.mono).as_nanos() as u64;
    now.wall_ns.saturating_add(wait)
}
