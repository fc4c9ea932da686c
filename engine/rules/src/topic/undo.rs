//! The undo of empty: [`Topic::empty_channel_for`] and [`Topic::unempty_channel`], [`Topic::empty_for`] and
//! [`Topic::unempty`].
//!
//! A checkpoint of several turns must not name a message both in its channel and in the undo. So these actions wait
//! until no checkpoint is put together. Everything else that ends an undo takes the undo out of that checkpoint, too.

use super::Topic;
use super::kept::Progress;
use super::restore::deferral_ms;
use crate::channel::discarded::Discarded;
use crate::client::Clients;
use crate::ids::ChannelId;
use crate::pause::{Pause, PauseUnderWay};
use crate::ranges::Ranges;
use crate::undo::{NoUndo, UNDO_ENTRIES_MAX, Undo};
use crate::work::Work;
use diskq_log::{CheckpointRun, Now};
use std::time::Duration;
use wire::id::Seq;

impl Topic {
    /// Returns whether a checkpoint is being put together.
    pub(crate) fn is_drafting(&self) -> bool {
        self.checkpoints.unfinished.is_some()
    }

    /// Returns whether the topic or one of its channels has an undo.
    pub(crate) fn has_undo(&self) -> bool {
        let mut channels = self.channels.values();
        self.undo.is_some() || channels.any(|channel| channel.undo.is_some())
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
        self.check_room()?;
        let undo = self.channels[id].undo.as_ref();
        if undo.is_some_and(|undo| undo.is_over(now)) {
            self.drop_channel_undo(id);
        }
        let channel = &mut self.channels[id];
        let before = channel.undo.as_ref().map_or(0, |undo| undo.entries());
        if channel.entries() + before > UNDO_ENTRIES_MAX {
            return Err(NoUndo::TooLarge);
        }
        let before = channel.undo.take();
        let clock = Undo::clock(before.as_deref(), now);
        let emptied = channel.empty(clients);
        let mut runs = Vec::new();
        emptied.describe(|due| clock.unix_time_of(due), |run| runs.push(run));
        channel.undo = Undo::extended(before, now, time, runs);
        self.set_ends();
        self.make_checkpoint_due();
        Ok(())
    }

    /// Drops the messages that the topic keeps because it is not open, so that [`Topic::unempty`] can bring them back
    /// within `time`. An undo that is there already gets the messages, too, and the later end of the two.
    ///
    /// # Errors
    /// An undo is not possible. Nothing was changed.
    ///
    /// # Panics
    /// If [`Topic::is_drafting`].
    pub(crate) fn empty_for(&mut self, now: Now, time: Duration) -> Result<(), NoUndo> {
        assert!(!self.is_drafting(), "a checkpoint is put together");
        if self.grace.is_some() {
            return Err(NoUndo::InGrace);
        }
        self.check_room()?;
        if self.undo.as_ref().is_some_and(|undo| undo.is_over(now)) {
            self.drop_topic_undo();
        }
        // An open topic keeps no messages of its own: those on their way belong to the channels.
        let keeps_messages = !self.is_open();
        let runs = if keeps_messages {
            self.kept_runs(now).ok_or(NoUndo::TooLarge)?
        } else {
            Vec::new()
        };
        let undo = Undo::extended(self.undo.clone(), now, time, runs);
        if keeps_messages {
            let entries = undo.as_ref().map_or(0, |undo| undo.entries());
            if entries * self.channels.len().max(1) > UNDO_ENTRIES_MAX {
                return Err(NoUndo::TooLarge);
            }
            let kept = std::mem::take(&mut self.undistributed);
            // There may be many that are left over.
            self.discarded.push(Discarded {
                undistributed_deferred: kept.deferred,
                ..Discarded::default()
            });
            self.recount_unclaimed();
        }
        self.undo = undo;
        self.set_ends();
        self.make_checkpoint_due();
        Ok(())
    }

    /// Describes the messages that the topic keeps, for its undo. `None`: there are too many for an undo.
    fn kept_runs(&self, now: Now) -> Option<Vec<CheckpointRun>> {
        let clock = Undo::clock(self.undo.as_deref(), now);
        let due_ns = |ms| clock.unix_time_of(now.mono + Duration::from_millis(u64::from(ms)));
        // 0 means that the message is not deferred.
        let due_ns = |ms| due_ns(ms).max(1);
        let first = self.undistributed.messages.front().map(|range| range.start);
        let is_left_over = |(seq, _): &(Seq, u32)| Some(*seq) < first;
        let deferred = &self.undistributed.deferred;
        let mut progress = Progress::from_deferred(deferred.place_behind(is_left_over));
        // Each step ends a range, or finds a deferred message.
        let mut work = Work::new(2 * UNDO_ENTRIES_MAX);
        let mut runs = Vec::new();
        let out = |run: CheckpointRun| runs.extend((run.count > 0).then_some(run));
        let is_whole = progress.scan(&self.undistributed, due_ns, &mut work, out);
        is_whole.then_some(runs)
    }

    /// Checks that the log has room for an undo.
    fn check_room(&self) -> Result<(), NoUndo> {
        match self.log.health() {
            Some(_) => Err(NoUndo::NoRoom),
            None => Ok(()),
        }
    }

    /// Gives the messages of a channel's undo back to the channel. They come before later messages.
    ///
    /// # Errors
    /// There is no undo.
    ///
    /// # Panics
    /// If [`Topic::is_drafting`].
    pub(crate) fn unempty_channel(&mut self, now: Now, id: ChannelId) -> Result<(), NoUndo> {
        assert!(!self.is_drafting(), "a checkpoint is put together");
        let channel = &mut self.channels[id];
        let undo = channel.undo.take_if(|undo| !undo.is_over(now));
        let undo = undo.ok_or(NoUndo::NotFound)?;
        channel.take_back(undo.runs(), |due_ns| undo.time_to_come(now, due_ns));
        self.channels
            .lower_deadline(self.channels[id].next_timeout());
        self.channels.pump_later(id);
        self.make_checkpoint_due();
        Ok(())
    }

    /// Brings the messages of the topic's undo back. A topic that is not open keeps them again. An open topic gives
    /// them to the channels that it has now.
    ///
    /// # Errors
    /// The undo cannot be used. Nothing was changed.
    ///
    /// # Panics
    /// If [`Topic::is_drafting`], or the topic is not caught up.
    pub(crate) fn unempty(&mut self, now: Now, clients: &Clients) -> Result<(), NoUndo> {
        assert!(!self.is_drafting(), "a checkpoint is put together");
        assert!(self.is_caught_up(), "newer messages are on their way");
        let undo = self.undo.as_ref().filter(|undo| !undo.is_over(now));
        let undo = undo.ok_or(NoUndo::NotFound)?;
        let first = undo.first();
        let mut channels = self.channels.values();
        if self.is_open() {
            if channels.clone().all(|channel| channel.ephemeral) {
                return Err(NoUndo::OnlyEphemeral);
            }
            // All messages of a channel are newer than those of its undo.
            let mut undos = channels.filter_map(|it| it.undo.as_ref());
            if undos.any(|undo| undo.end() > first) {
                return Err(NoUndo::ChannelFirst);
            }
            if !self.can_give_back(undo) {
                return Err(NoUndo::NeedsPause);
            }
        } else if channels.any(|channel| channel.end() > Some(first)) {
            // Channels get the messages that a topic keeps in the order of the seqs.
            return Err(if self.can_give_back(undo) {
                NoUndo::OfPaused
            } else {
                NoUndo::NeedsPause
            });
        }
        let undo = self.undo.take().expect("the undo is there");
        if self.is_open() {
            self.give_back(now, &undo, clients)
        } else {
            self.keep_again(now, &undo)
        }
        self.make_checkpoint_due();
        Ok(())
    }

    /// Returns whether one turn can give messages of an undo to all channels.
    fn can_give_back(&self, undo: &Undo) -> bool {
        let (entries, end) = (undo.entries(), undo.end());
        let mut channels = self.channels.values();
        let left = channels.try_fold(UNDO_ENTRIES_MAX, |left, channel| {
            left.checked_sub(entries + channel.ranges_below(end, left + 1))
        });
        left.is_some()
    }

    /// Gives messages of an undo to the channels.
    fn give_back(&mut self, now: Now, undo: &Undo, clients: &Clients) {
        // The hold of the undo passes to the first channel.
        let others = self.channels.len() as u64 - 1;
        for run in undo.runs().iter().filter(|_| others > 0) {
            self.log.retain(run.range(), others);
        }
        let (depth_max, log) = (self.options.mem_queue_size, &mut self.log);
        let due = |due_ns| undo.time_to_come(now, due_ns);
        for channel in self.channels.values_mut() {
            channel.accept_back(undo.runs(), depth_max, clients, log, due);
        }
        self.channels.deadline = self.channels_deadline();
        self.channels.pump_all_later();
    }

    /// Keeps messages of an undo until the topic is open.
    fn keep_again(&mut self, now: Now, undo: &Undo) {
        for run in undo.runs().iter().rev() {
            self.undistributed.messages.push_front(run.range());
            if let Some(due) = undo.time_to_come(now, run.due_ns) {
                let ms = deferral_ms(due - now.mono);
                let seqs = (run.range().start.0..run.range().end.0).rev();
                seqs.for_each(|seq| self.undistributed.deferred.push_front((Seq(seq), ms)));
            }
        }
        self.recount_unclaimed();
    }

    /// Drops the messages of a channel's undo, if there is one.
    pub(crate) fn drop_channel_undo(&mut self, id: ChannelId) {
        if let Some(undo) = self.channels[id].undo.take() {
            if let Some(unfinished) = &mut self.checkpoints.unfinished {
                unfinished.drop_channel_undo(id);
            }
            self.discard_undo(*undo);
            self.make_checkpoint_due();
        }
    }

    /// Drops the messages of the topic's own undo, if there is one.
    pub(crate) fn drop_topic_undo(&mut self) {
        if let Some(undo) = self.undo.take() {
            if let Some(unfinished) = &mut self.checkpoints.unfinished {
                unfinished.draft.undo = None;
            }
            self.discard_undo(*undo);
            self.make_checkpoint_due();
        }
    }

    /// Releases the messages of an undo that no channel has any more.
    pub(super) fn discard_undo(&mut self, undo: Undo) {
        let mut waiting = Ranges::default();
        for run in undo.runs() {
            waiting.push(run.range());
        }
        self.discard(waiting);
    }

    /// Drops the messages of all undos, because the disk has no room. Returns the log lines.
    pub(crate) fn drop_undos(&mut self) -> Vec<String> {
        let channels = self.channels.iter();
        let with_undo = channels.filter(|(_, channel)| channel.undo.is_some());
        let with_undo: Vec<ChannelId> = with_undo.map(|(id, _)| id).collect();
        let mut lines = Vec::new();
        if let Some(undo) = &self.undo {
            lines.push(format!(
                "TOPIC({}): the disk has no room, so the {} messages that the topic was emptied of are dropped and cannot \
                 be brought back",
                self.name,
                undo.count()
            ));
            self.drop_topic_undo();
        }
        for id in with_undo {
            let channel = &mut self.channels[id];
            let count = channel.undo.as_ref().map_or(0, |undo| undo.count());
            lines.push(format!(
                "TOPIC({}): the disk has no room, so the {count} messages that channel {} was emptied of are dropped \
                 and cannot be brought back",
                self.name, channel.name
            ));
            self.drop_channel_undo(id);
        }
        self.set_ends();
        if !lines.is_empty() {
            self.log.make_checkpoint_due_at_once();
        }
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
}

/// The pauses of a topic and its channels, and what ends by itself: pauses and undos whose time is over.
impl Topic {
    /// Pauses the topic, or unpauses the topic if `pause` is `None`. The caller has the topic catch up first.
    pub(crate) fn set_pause(&mut self, now: Now, pause: Option<&Pause>) {
        self.pause = pause.map(|pause| PauseUnderWay::begin(now, pause));
        self.set_ends();
    }

    /// Pauses a channel, or unpauses the channel if `pause` is `None`.
    pub(crate) fn set_channel_pause(&mut self, id: ChannelId, now: Now, pause: Option<&Pause>) {
        self.channels[id].pause = pause.map(|pause| PauseUnderWay::begin(now, pause));
        self.set_ends();
        self.channels.pump_later(id);
    }

    /// Ends the pauses and undos whose time is over. Returns a log line for each of them.
    pub(crate) fn end_in_time(&mut self, now: Now) -> Vec<String> {
        let mut lines = Vec::new();
        let is_over = |end: Option<Duration>| end.is_some_and(|end| end <= now.mono);
        if !is_over(self.channels.ends_at) {
            return lines;
        }
        let name = self.name.clone();
        if is_over(pause_end(&self.pause)) {
            lines.push(format!(
                "TOPIC({name}): unpaused, the time of the pause is over"
            ));
            self.set_pause(now, None);
        }
        if is_over(undo_end(&self.undo)) {
            lines.push(format!(
                "TOPIC({name}): the messages that the topic was emptied of are dropped, the time of the undo is over"
            ));
            self.drop_topic_undo();
        }
        let channels = self.channels.iter();
        let over = channels.filter(|(_, channel)| {
            is_over(pause_end(&channel.pause)) || is_over(undo_end(&channel.undo))
        });
        let over: Vec<ChannelId> = over.map(|(id, _)| id).collect();
        for id in over {
            let channel = self.channels[id].name.clone();
            if is_over(pause_end(&self.channels[id].pause)) {
                lines.push(format!(
                    "TOPIC({name}): channel {channel} is unpaused, the time of the pause is over"
                ));
                self.set_channel_pause(id, now, None);
            }
            if is_over(undo_end(&self.channels[id].undo)) {
                lines.push(format!(
                    "TOPIC({name}): the messages that channel {channel} was emptied of are dropped, the time of the undo \
                     is over"
                ));
                self.drop_channel_undo(id);
            }
        }
        self.set_ends();
        if !lines.is_empty() {
            self.make_checkpoint_due();
        }
        lines
    }

    /// Notes when the next pause or undo ends.
    pub(super) fn set_ends(&mut self) {
        self.channels.ends_at = self.first_end();
        self.channels.lower_deadline(self.channels.ends_at);
    }

    /// The time at which the first pause or undo ends.
    pub(super) fn first_end(&self) -> Option<Duration> {
        let pauses = self.channels.values().map(|channel| &channel.pause);
        let undos = self.channels.values().map(|channel| &channel.undo);
        let pauses = pauses.chain([&self.pause]).filter_map(pause_end);
        let undos = undos.chain([&self.undo]).filter_map(undo_end);
        pauses.chain(undos).min()
    }
}

fn pause_end(pause: &Option<Box<PauseUnderWay>>) -> Option<Duration> {
    pause.as_ref()?.until
}

fn undo_end(undo: &Option<Box<Undo>>) -> Option<Duration> {
    Some(undo.as_ref()?.until)
}
