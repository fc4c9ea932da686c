//! The messages of a topic for which a drain waits.

use super::Topic;
use crate::channel::Channel;
use crate::now::Now;
use crate::owed::Owed;

impl Topic {
    /// Adds the messages that this topic and its channels owe, and the causes that keep them from leaving.
    pub(crate) fn add_owed(&self, now: Now, owed: &mut Owed) {
        let name = &self.name;
        let undistributed = self.undistributed.count();
        if self.is_open() {
            // These messages are on their way to the channels.
            owed.waiting += undistributed;
        } else if undistributed > 0 {
            owed.undistributed += undistributed;
            let cause = match (self.started, self.paused) {
                (false, _) => "waits for the answers of nsqlookupd",
                (true, true) => "is paused",
                (true, false) => "has no channel",
            };
            owed.add_cause(format_args!("{name} {cause}"));
        }
        if let Some(grace) = &self.grace
            && !grace.messages.is_empty()
        {
            owed.in_grace += grace.messages.count();
            let left = grace.until.saturating_sub(now.mono).as_secs() + 1;
            owed.add_cause(format_args!("{name} has a grace that ends in {left} s"));
        }
        for channel in self.channels.values() {
            channel.add_owed(now, name, owed);
        }
    }
}

impl Channel {
    fn add_owed(&self, now: Now, topic: &str, owed: &mut Owed) {
        owed.waiting += self.depth();
        owed.in_flight += self.in_flight_count();
        owed.deferred += self.deferred_count();
        if let Some(due) = self.last_due() {
            owed.last_due_in = owed.last_due_in.max(Some(due.saturating_sub(now.mono)));
        }
        let name = &self.name;
        if self.owed_count() == 0 {
        } else if self.paused {
            owed.add_cause(format_args!("{topic}/{name} is paused"));
        } else if self.consumers.is_empty() {
            owed.add_cause(format_args!("{topic}/{name} has no consumer"));
        }
    }
}
