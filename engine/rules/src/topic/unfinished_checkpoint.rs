//! [`Checkpoints`]: which checkpoint a topic wants. [`UnfinishedCheckpoint`]: the one that it puts together, a slice per
//! turn.
//!
//! The topic's undo comes first. Then come the channels, one after another, each with its undo before its scan.
//! `channel/scan.rs` explains how a scan misses no message that moves. If the topic gives messages to channels
//! meanwhile, they are added for the channels that were already scanned. The messages of the topic's grace, and those
//! that the topic has not given to any channel, come last, and the topic gives nothing until they are added. Nothing is
//! emptied with an undo, and no undo is used, while a checkpoint is put together: see `topic/undo.rs`.

use super::kept::Progress;
use crate::channel::scan::Scan;
use crate::ids::ChannelId;
use diskq_log::{CheckpointDraft, CheckpointNumber, CheckpointRun, Durable, Log, Runs};

/// The checkpoints of a topic.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    /// The checkpoint that is to follow the one under way.
    pub(super) wanted: Option<Durable>,
    pub(super) unfinished: Option<Box<UnfinishedCheckpoint>>,
    /// A checkpoint that is as durable as promised says that the topic and its channels exist: they survive a crash,
    /// with or without messages.
    pub(crate) is_recorded: bool,
    pub(super) stopping: Stopping,
}

/// The progress of a graceful stop.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopping {
    #[default]
    No,
    Checkpoint(CheckpointNumber),
    Done,
}

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
}
