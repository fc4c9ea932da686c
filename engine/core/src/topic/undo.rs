//! The undo of empty: [`Topic::empty_channel_for`] and [`Topic::unempty_channel`].
//!
//! A checkpoint of several turns must not name a message both in its channel and in the undo. So both actions wait until no
//! checkpoint is put together. Everything else that ends an undo takes the undo out of that checkpoint, too.

use super::Topic;
use super::restore::due_time;
use super::unfinished_checkpoint::{UnfinishedCheckpoint, unix_time_of};
use crate::client::Clients;
use crate::discarded::Discarded;
use crate::ids::ChannelId;
use crate::now::Now;
use crate::ranges::Ranges;
use crate::undo::{NoUndo, UNDO_ENTRIES_MAX, Undo};
use diskq_log::{CheckpointRun, UndoDraft};
use std::time::Duration;

impl Topic {
    /// Returns whether a checkpoint is being put together.
    pub(crate) fn is_drafting(&self) -> bool {
        self.unfinished.is_some()
    }

    /// Drops what a channel owes, so that [`Topic::unempty_channel`] can bring the messages back within `time`. An undo
    /// that is there already gets the messages, too, and the later end of the two.
    ///
    /// # Errors
    /// An undo is not possible. Nothing was changed.
    ///
    /// # Panics
    /// If [`Topic::is_drafting`].
    pub(crate) fn empty_channel_for(
        &mut self,
        now: Now,
        id: ChannelId,
        time: Duration,
        clients: &mut Clients,
    ) -> Result<(), NoUndo> {
        assert!(!self.is_drafting(), "a checkpoint is put together");
        let channel = self.channel_mut(id);
        let before = channel.undo.as_ref();
        let entries = channel.entries() + before.map_or(0, |undo| undo.entries());
        if entries > UNDO_ENTRIES_MAX {
            return Err(NoUndo::TooLarge);
        }
        if self.log.health().is_some() {
            return Err(NoUndo::NoRoom);
        }
        let channel = self.channel_mut(id);
        let mut until = now.mono + time;
        let mut runs = Vec::new();
        if let Some(before) = channel.undo.take() {
            until = until.max(before.until);
            runs = before.into_runs();
        }
        let until_ns = unix_time_of(now, until);
        let emptied = channel.empty(clients);
        emptied.describe(|due| unix_time_of(now, due), |run| runs.push(run));
        channel.undo = Undo::new(until, until_ns, runs);
        self.set_ends();
        self.make_checkpoint_due();
        Ok(())
    }

    /// Makes the messages of a channel's undo pending again. They come before later messages. Returns false if there is
    /// no undo.
    ///
    /// # Panics
    /// If [`Topic::is_drafting`].
    pub(crate) fn unempty_channel(&mut self, now: Now, id: ChannelId) -> bool {
        assert!(!self.is_drafting(), "a checkpoint is put together");
        let channel = self.channel_mut(id);
        let Some(undo) = channel.undo.take_if(|undo| undo.until > now.mono) else {
            return false;
        };
        let due = |due_ns| due_time(now, due_ns).filter(|due| *due > now.mono);
        channel.take_back(undo.into_runs(), due);
        self.lower_deadline(self.channel(id).next_timeout());
        self.pump_channel_later(id);
        self.make_checkpoint_due();
        true
    }

    /// Drops the messages of a channel's undo. Returns whether there was one.
    pub(crate) fn drop_undo(&mut self, id: ChannelId) -> bool {
        let undo = self.channel_mut(id).undo.take();
        let Some(undo) = undo else {
            return false;
        };
        if let Some(unfinished) = &mut self.unfinished {
            unfinished.drop_undo(id);
        }
        self.discard_undo(*undo);
        self.make_checkpoint_due();
        true
    }

    /// Releases the messages of an undo that no channel has any more.
    pub(super) fn discard_undo(&mut self, undo: Undo) {
        let mut waiting = Ranges::default();
        for run in undo.runs() {
            waiting.push(run.range());
        }
        self.discarded.push(Discarded {
            waiting,
            ..Discarded::default()
        });
    }

    /// Drops the messages of all undos, because the disk has no room. Returns the log lines.
    pub(crate) fn drop_undos(&mut self) -> Vec<String> {
        let channels = self.channels();
        let with_undo = channels.filter(|(_, channel)| channel.undo.is_some());
        let with_undo: Vec<ChannelId> = with_undo.map(|(id, _)| id).collect();
        let mut lines = Vec::new();
        for id in with_undo {
            let channel = self.channel(id);
            let count = channel.undo.as_ref().map_or(0, |undo| undo.count());
            lines.push(format!(
                "TOPIC({}): the disk has no room, so the {count} messages that channel {} was emptied of are dropped \
                 and cannot be restored",
                self.name, channel.name
            ));
            self.drop_undo(id);
        }
        self.set_ends();
        lines
    }

    /// Returns the bytes of the segments that have messages of an undo.
    pub(crate) fn undo_bytes(&self, undo: &Undo) -> u64 {
        let mut runs = undo.runs().iter().map(CheckpointRun::range).peekable();
        let mut total = 0;
        for (segment, bytes) in self.log.segment_sizes() {
            while runs.next_if(|run| run.end <= segment.start).is_some() {}
            if runs.peek().is_some_and(|run| run.start < segment.end) {
                total += bytes;
            }
        }
        total
    }

    /// Adds the undo of a channel to the checkpoint, before the channel's scan begins. Returns how many runs were added.
    pub(super) fn add_undo(&mut self, unfinished: &mut UnfinishedCheckpoint) -> usize {
        let id = unfinished.channels[unfinished.index];
        let draft = &mut unfinished.draft.channels[unfinished.index];
        let (channel, log) = self.channel_and_log(id);
        let Some(undo) = channel.undo.as_ref().filter(|_| draft.undo.is_none()) else {
            return 0;
        };
        let list = draft.undo.insert(UndoDraft {
            until_ns: undo.until_ns,
            ..UndoDraft::default()
        });
        for run in undo.runs() {
            log.name_run(&mut list.runs, *run);
        }
        undo.runs().len()
    }
}
