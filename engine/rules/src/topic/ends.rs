//! The pauses of a topic and its channels, and what ends by itself: pauses and undos whose time is over.

use super::Topic;
use crate::ids::ChannelId;
use crate::now::Now;
use crate::pause::{Pause, PauseUnderWay};
use std::time::Duration;

impl Topic {
    /// Pauses the topic, or unpauses the topic if `pause` is `None`. The caller has the topic catch up first.
    pub(crate) fn set_pause(&mut self, now: Now, pause: Option<&Pause>) {
        self.paused = pause.is_some();
        self.pause = pause.and_then(|pause| PauseUnderWay::begin(now, pause));
        self.set_ends();
    }

    /// Pauses a channel, or unpauses the channel if `pause` is `None`.
    pub(crate) fn set_channel_pause(&mut self, id: ChannelId, now: Now, pause: Option<&Pause>) {
        let channel = self.channel_mut(id);
        channel.paused = pause.is_some();
        channel.pause = pause.and_then(|pause| PauseUnderWay::begin(now, pause));
        self.set_ends();
        self.pump_channel_later(id);
    }

    /// Ends the pauses and undos whose time is over. Returns a log line for each of them.
    pub(crate) fn end_in_time(&mut self, now: Now) -> Vec<String> {
        let mut lines = Vec::new();
        if self.ends_at.is_none_or(|at| at > now.mono) {
            return lines;
        }
        let name = self.name.clone();
        if self.pause.as_ref().is_some_and(|pause| pause.is_over(now)) {
            lines.push(format!(
                "TOPIC({name}): unpaused, the time of the pause is over"
            ));
            self.set_pause(now, None);
        }
        let channels = self.channels();
        let over = channels.filter(|(_, channel)| {
            let pause = channel.pause.as_ref();
            pause.is_some_and(|pause| pause.is_over(now))
        });
        let over: Vec<ChannelId> = over.map(|(id, _)| id).collect();
        for id in over {
            let channel = &self.channel(id).name;
            lines.push(format!(
                "TOPIC({name}): channel {channel} is unpaused, the time of the pause is over"
            ));
            self.set_channel_pause(id, now, None);
        }
        if self.undo.as_ref().is_some_and(|undo| undo.is_over(now)) {
            lines.push(format!(
                "TOPIC({name}): the messages that the topic was emptied of are dropped, the time of the undo is over"
            ));
            self.drop_topic_undo();
        }
        let channels = self.channels();
        let over = channels.filter(|(_, channel)| {
            let undo = channel.undo.as_ref();
            undo.is_some_and(|undo| undo.is_over(now))
        });
        let over: Vec<ChannelId> = over.map(|(id, _)| id).collect();
        for id in over {
            let channel = &self.channel(id).name;
            lines.push(format!(
                "TOPIC({name}): the messages that channel {channel} was emptied of are dropped, the time of the undo \
                 is over"
            ));
            self.drop_channel_undo(id);
        }
        self.set_ends();
        if !lines.is_empty() {
            self.make_checkpoint_due();
        }
        lines
    }

    /// Sets the time at which the next pause or undo ends.
    pub(super) fn set_ends(&mut self) {
        self.ends_at = self.first_end();
        self.lower_deadline(self.ends_at);
    }

    /// The time at which the first pause or undo ends.
    pub(super) fn first_end(&self) -> Option<Duration> {
        let channels = self.channels.values();
        let pauses = channels.filter_map(|channel| channel.pause.as_ref());
        let ends = pauses.chain(&self.pause).filter_map(|pause| pause.until);
        let undos = self.channels.values().filter_map(|it| it.undo.as_ref());
        let undos = undos.chain(&self.undo);
        ends.chain(undos.map(|undo| undo.until)).min()
    }
}
