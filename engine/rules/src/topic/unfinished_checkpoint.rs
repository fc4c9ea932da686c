//! [`UnfinishedCheckpoint`]: a checkpoint that a topic puts together, a slice per turn.
//!
//! The topic's undo comes first. Then come the channels, one after another, each with its undo before its scan.
//! `channel/scan.rs` explains how a scan misses no message that moves. If the topic gives messages to channels
//! meanwhile, they are added for the channels that were already scanned. The messages of the topic's grace, and those
//! that the topic has not given to any channel, come last, and the topic gives nothing until they are added. Nothing is
//! emptied with an undo, and no undo is used, while a checkpoint is put together: see `topic/undo.rs`.

use crate::channel::scan::Scan;
use crate::ids::ChannelId;
use crate::long_queue::LongQueue;
use crate::ranges::Ranges;
use crate::work::Work;

use diskq_log::{CheckpointDraft, CheckpointRun, Log, Runs, SeqRange};
use wire::id::Seq;

/// The progress of the checkpoint.
#[derive(Debug)]
pub(super) struct UnfinishedCheckpoint {
    pub(super) draft: CheckpointDraft,
    /// The channels of the draft, in its order.
    pub(super) channels: Vec<ChannelId>,
    /// The number of runs of the topic's undo that the draft has.
    pub(super) topic_undo: usize,
    /// The channel that is being scanned. Channels before it were scanned.
    pub(super) index: usize,
    /// The number of runs of this channel's undo that the draft has.
    pub(super) channel_undo: usize,
    pub(super) scan: Scan,
    pub(super) undistributed: Progress,
    pub(super) grace: Progress,
}

/// The progress of the scan of a list of ranges, some of whose messages are deferred.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Progress {
    /// The place of the next range.
    place: u64,
    /// One past the last seq that was seen.
    seen: Seq,
    /// The place of the next deferred message.
    deferred_place: u64,
}

impl Progress {
    /// The progress of a scan that ignores deferred messages before a place.
    pub(super) fn from_deferred(deferred_place: u64) -> Progress {
        Progress {
            deferred_place,
            ..Progress::default()
        }
    }

    /// Continues the scan. Returns whether all messages were seen. Meanwhile messages are removed only from the front.
    pub(super) fn scan<T: Copy>(
        &mut self,
        ranges: &Ranges,
        deferred: &LongQueue<(Seq, T)>,
        due_ns: impl Fn(T) -> u64,
        work: &mut Work,
        mut out: impl FnMut(CheckpointRun),
    ) -> bool {
        let next_place = |place: u64| place.max(deferred.first_place()) + 1;
        self.place = self.place.max(ranges.first_place());
        while let Some(range) = ranges.iter_from(self.place).next() {
            if !work.is_left() {
                return false;
            }
            work.spend(1);
            let start = range.start.max(self.seen);
            let next = deferred.iter_from(self.deferred_place).next();
            match next.copied() {
                Some((seq, _)) if seq < start => {
                    self.deferred_place = next_place(self.deferred_place);
                }
                Some((seq, due)) if seq < range.end => {
                    out(owed_run(SeqRange::new(start, seq), 0));
                    out(owed_run(SeqRange::one(seq), due_ns(due)));
                    self.seen = seq.offset(1);
                    self.deferred_place = next_place(self.deferred_place);
                }
                _ => {
                    out(owed_run(SeqRange::new(start, range.end), 0));
                    self.place += 1;
                }
            }
        }
        true
    }
}

impl UnfinishedCheckpoint {
    /// Adds messages that every channel is given: otherwise the scanned channels would lack them.
    pub(super) fn add_given(&mut self, log: &mut Log, run: CheckpointRun) {
        for channel in self.draft.channels.iter_mut().take(self.index + 1) {
            log.name_run(&mut channel.runs, run);
        }
    }

    /// Returns whether all channels were scanned. Messages given to channels after that would be named twice.
    pub(super) fn is_past_channels(&self) -> bool {
        self.index == self.channels.len()
    }

    /// Begins with the channel at `index`.
    pub(super) fn begin_channel(&mut self) {
        self.channel_undo = 0;
        self.scan = Scan::Begin;
    }

    /// Leaves a channel out that is deleted. Returns what was found of it so far.
    pub(super) fn remove_channel(&mut self, id: ChannelId) -> Option<Runs> {
        let index = self.channels.iter().position(|other| *other == id)?;
        self.channels.remove(index);
        if index < self.index {
            self.index -= 1;
        } else if index == self.index {
            self.begin_channel();
        }
        Some(self.draft.channels.remove(index).runs)
    }

    /// Leaves the undo of a channel out, which has ended.
    pub(super) fn drop_channel_undo(&mut self, id: ChannelId) {
        let index = self.channels.iter().position(|other| *other == id);
        if let Some(index) = index {
            self.draft.channels[index].undo = None;
        }
    }

    /// Ends the checkpoint of a deleted topic. Returns what was found so far.
    pub(super) fn into_runs(self) -> Vec<Runs> {
        let channels = self.draft.channels.into_iter();
        let mut runs: Vec<Runs> = channels.map(|channel| channel.runs).collect();
        runs.push(self.draft.undistributed);
        runs.extend(self.draft.grace.map(|grace| grace.runs));
        runs
    }
}

/// Describes messages that were never delivered.
pub(super) fn owed_run(range: SeqRange, due_ns: u64) -> CheckpointRun {
    CheckpointRun {
        start: range.start,
        count: range.len(),
        attempts: 0,
        due_ns,
    }
}
