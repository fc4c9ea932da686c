//! [`Recording`]: a checkpoint that a topic puts together, a slice per turn.
//!
//! The channels come first, one after another. `channel/scan.rs` explains how a scan misses no message that
//! moves. If the topic gives messages to channels meanwhile, the recording notes them for the channels that
//! were already scanned. Messages that the topic has not given to any channel come last, and the topic gives
//! nothing until they are recorded.

use super::Topic;
use crate::channel::scan::Scan;
use crate::work::Work;
use crate::{ChannelId, Now};
use std::time::Duration;

use diskq::{
    ChannelDraft, CheckpointDraft, CheckpointNumber, CheckpointRun, Durable, Log, Runs, SeqRange,
};

/// The progress of the checkpoint.
#[derive(Debug)]
pub(super) struct Recording {
    draft: CheckpointDraft,
    /// The channels of the draft, in its order.
    channels: Vec<ChannelId>,
    /// The channel that is being scanned. Channels before it were scanned.
    index: usize,
    scan: Scan,
    undistributed: Undistributed,
}

/// The progress of the scan of the undistributed messages.
#[derive(Debug, Default, Clone, Copy)]
struct Undistributed {
    /// The place of the next range, and how many of its seqs were seen.
    place: u64,
    seen: u64,
    /// The place of the next deferred message.
    deferred_place: u64,
}

impl Recording {
    /// Notes messages that every channel is given: otherwise the record of the scanned channels would lack
    /// them.
    pub(super) fn note_given(&mut self, log: &mut Log, run: CheckpointRun) {
        for channel in self.draft.channels.iter_mut().take(self.index + 1) {
            log.record(&mut channel.runs, run);
        }
    }

    /// Returns whether all channels were scanned. Messages given to channels after that would be recorded
    /// twice.
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

    /// Ends the recording of a deleted topic. Returns what was found so far.
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

/// The recorded state of messages that were never delivered.
pub(super) fn owed_run(range: SeqRange, due_ns: u64) -> CheckpointRun {
    CheckpointRun {
        start: range.start,
        count: range.len(),
        attempts: 0,
        due_ns,
    }
}

/// The Unix time of a moment in nanoseconds, or the current time if the moment has passed.
pub(super) fn unix_time_of(now: Now, at: Duration) -> u64 {
    let wait = at.saturating_sub(now.mono).as_nanos() as u64;
    now.wall_ns.saturating_add(wait)
}
