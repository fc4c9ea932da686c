//! [`Channels`]: the channels of a topic, by their ids and by their names, and which of them have something to do.

use crate::channel::Channel;
use crate::dirty_set::DirtySet;
use crate::ids::ChannelId;
use slotmap::SlotMap;
use slotmap::basic::Values;
use std::collections::BTreeMap;
use std::ops::{Bound, Index, IndexMut};
use std::time::Duration;

/// The channels of a topic.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    all: SlotMap<ChannelId, Channel>,
    by_name: BTreeMap<Box<str>, ChannelId>,
    to_pump: DirtySet<ChannelId>,
    /// The earliest timeout of a channel, or end of a pause or an undo. May be early, never late. Kept so that a turn
    /// need not ask every channel.
    pub(super) deadline: Option<Duration>,
    /// The end of the first pause or undo of the topic or of a channel. May be early, never late.
    pub(super) ends_at: Option<Duration>,
}

impl Index<ChannelId> for Channels {
    type Output = Channel;

    fn index(&self, id: ChannelId) -> &Channel {
        &self.all[id]
    }
}

impl IndexMut<ChannelId> for Channels {
    fn index_mut(&mut self, id: ChannelId) -> &mut Channel {
        &mut self.all[id]
    }
}

impl Channels {
    pub(crate) fn find(&self, name: &str) -> Option<ChannelId> {
        self.by_name.get(name).copied()
    }

    /// The channel, if it is still there.
    pub(crate) fn get_mut(&mut self, id: ChannelId) -> Option<&mut Channel> {
        self.all.get_mut(id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Channels in the order of their names.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (ChannelId, &Channel)> {
        self.by_name.values().map(|id| (*id, &self.all[*id]))
    }

    /// Channels in no order.
    pub(super) fn values(&self) -> Values<'_, ChannelId, Channel> {
        self.all.values()
    }

    /// Channels in no order.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Channel> {
        self.all.values_mut()
    }

    /// Returns the first channels behind a name, or the first of all, in the order of their names.
    pub(crate) fn after(&self, name: Option<&str>, count: usize) -> Vec<ChannelId> {
        let start = name.map_or(Bound::Unbounded, Bound::Excluded);
        let channels = self.by_name.range::<str, _>((start, Bound::Unbounded));
        channels.map(|(_, id)| *id).take(count).collect()
    }

    pub(super) fn insert(&mut self, channel: Channel) -> ChannelId {
        self.lower_deadline(channel.next_timeout());
        let name = channel.name.clone();
        let id = self.all.insert(channel);
        self.by_name.insert(name, id);
        id
    }

    pub(super) fn remove(&mut self, id: ChannelId) -> Option<Channel> {
        let mut channel = self.all.remove(id)?;
        self.by_name.remove(&channel.name);
        self.to_pump.remove(id, &mut channel.in_to_pump);
        Some(channel)
    }

    /// Brings the deadline forward to `at`, when a channel has something to do.
    pub(super) fn lower_deadline(&mut self, at: Option<Duration>) {
        self.deadline = self.deadline.into_iter().chain(at).min();
    }

    /// The earliest timeout of a channel.
    pub(super) fn next_timeout(&self) -> Option<Duration> {
        self.values().filter_map(Channel::next_timeout).min()
    }

    /// Names a channel for the next pump, if it has something for someone.
    pub(crate) fn pump_later(&mut self, id: ChannelId) {
        let channel = &mut self.all[id];
        if channel.wants_pump() {
            self.to_pump.insert(id, &mut channel.in_to_pump);
        }
    }

    /// Lets `act` change every channel. Names those for the next pump for which `act` returns true, and which have
    /// something for someone.
    pub(super) fn change_all(&mut self, mut act: impl FnMut(&mut Channel) -> bool) {
        for (id, channel) in &mut self.all {
            if act(channel) && channel.wants_pump() {
                self.to_pump.insert(id, &mut channel.in_to_pump);
            }
        }
    }

    /// Names every channel for the next pump that has something for someone.
    pub(crate) fn pump_all_later(&mut self) {
        self.change_all(|_| true);
    }

    /// Takes the channel that was named last for the pump.
    pub(super) fn next_to_pump(&mut self) -> Option<ChannelId> {
        let all = &mut self.all;
        self.to_pump
            .pop_last(|id| Some(&mut all.get_mut(id)?.in_to_pump))
    }

    /// True when a pump could deliver something.
    pub(super) fn want_pump(&self) -> bool {
        !self.to_pump.is_empty()
    }

    /// The channels that are named for the next pump.
    #[cfg(test)]
    pub(super) fn to_pump(&self) -> Vec<ChannelId> {
        self.to_pump.iter().collect()
    }

    /// Asserts that the lists agree.
    pub(super) fn check(&self) {
        assert_eq!(self.all.len(), self.by_name.len());
        for (id, channel) in &self.all {
            self.to_pump.check(id, &channel.in_to_pump);
        }
        let mut to_pump = self.to_pump.iter();
        assert!(to_pump.all(|id| self.all.contains_key(id)));
        let deadline = self.next_timeout();
        assert!(
            deadline.is_none() || self.deadline.is_some_and(|at| Some(at) <= deadline),
            "a channel's timeout is forgotten"
        );
    }
}
