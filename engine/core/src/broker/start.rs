//! How a new topic starts: with the channels that nsqlookupd knows of, so that none of them misses the
//! first messages because its consumers have not found this node yet.
//!
//! ```text
//!   created ──Output::AskForChannels──► the shell asks ──► start_topic: channels, then messages
//!      └─ keeps what is published meanwhile; only who created it waits
//! ```

use super::{Broker, Flow, Output, Wakeup};
use crate::Now;
use crate::client::{Blocked, ClientId};
use crate::topic::{Creator, TopicKey};
use wire::name::ChannelName;

impl Broker {
    /// Whether topics that are created from now on ask for channels before they start: as long as there
    /// is somebody to ask.
    pub fn set_asks_for_channels(&mut self, asks: bool) {
        self.options.asks_for_channels = asks;
    }

    /// Starts a topic that asked for `channels`; makes those that are not there. A topic that was deleted
    /// meanwhile has told those who waited.
    pub fn start_topic(
        &mut self,
        now: Now,
        key: TopicKey,
        channels: &[ChannelName<'_>],
        out: &mut Vec<Output>,
    ) {
        for name in channels {
            if self.topics.get(key).is_some() {
                self.channel_id(now, key, *name, out);
            }
        }
        let Some(topic) = self.topics.get_mut(key) else {
            return;
        };
        topic.started = true;
        self.wake_creator(key, out);
        self.retry_held(now, key);
        self.note_topic(key);
    }

    /// Has a client wait for the start of the topic that its command created.
    pub(super) fn wait_for_start(&mut self, id: ClientId, key: TopicKey) -> Flow {
        if let (Some(topic), Some(client)) = (self.topics.get_mut(key), self.clients.get_mut(id)) {
            client.blocked = Some(Blocked::Starting(key));
            topic.creator = Some(Creator::Client(id));
        }
        Flow::Retry
    }

    /// Lets the creator of a topic try again after the topic has started or was deleted.
    pub(super) fn wake_creator(&mut self, key: TopicKey, out: &mut Vec<Output>) {
        let topic = self.topics.get_mut(key);
        match topic.and_then(|topic| topic.creator.take()) {
            Some(Creator::Client(id)) => {
                if let Some(client) = self.clients.get_mut(id) {
                    client.blocked = None;
                    out.push(Output::Resume(id));
                }
            }
            Some(Creator::Task(task)) => out.push(Output::Wake(task, Wakeup::Retry)),
            None => {}
        }
    }
}
