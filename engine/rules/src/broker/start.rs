//! The start of a new topic. The topic gets the channels that nsqlookupd knows of. So a channel gets the first
//! messages, too, although its consumers have not found this node yet.
//!
//! ```text
//!   created ──Output::AskForChannels──► the shell asks ──► handle_channels: channels, then messages
//!      └─ keeps what is published meanwhile; only the client or task that created it waits
//! ```
//!
//! If an nsqlookupd gave no answer, the topic begins its grace (`topic/grace.rs`), and asks again from time to time.

use super::output::{Output, Wakeup};
use super::{Broker, Flow, place};
use crate::client::Blocked;
use crate::ids::{ClientId, TopicKey};
use crate::now::Now;
use crate::topic::Retrier;
use wire::name::{ChannelName, TopicName};

impl Broker {
    /// Makes the required topics and channels of this shard that are not there. Call before any connection.
    pub fn make_all_required(&mut self, now: Now, out: &mut Vec<Output>) {
        self.call(now, out, |broker| {
            let required = broker.options.required.clone();
            for topic in required.topics() {
                if place(topic.as_bytes(), broker.options.shards) == broker.options.shard {
                    broker.make_required(topic);
                }
            }
        })
    }

    /// Makes a topic and its channels if they are required and not there.
    pub(super) fn make_required(&mut self, topic: TopicName<'_>) {
        let required = self.options.required.clone();
        let Some(channels) = required.channels(topic.as_str()) else {
            return;
        };
        let before = self.out.len();
        // A topic that is set aside has its line in the log.
        let Ok(found) = self.topic_key(topic) else {
            return;
        };
        for channel in channels {
            let made = self.channel_id(found.key(), channel);
            debug_assert!(made.is_some(), "the topic is new, or has caught up");
        }
        if self.out.len() > before {
            let line = format!("TOPIC({}): made what --create lists", topic.as_str());
            self.out.push(Output::info(line));
        }
    }

    /// Decides whether later topics ask for channels before they start. They ask if there is an nsqlookupd on the list.
    pub fn set_asks_for_channels(&mut self, asks: bool) {
        self.options.asks_for_channels = asks;
    }

    /// Takes the channels that a topic has elsewhere, and makes those that are not there. A new topic starts. If not
    /// every nsqlookupd has answered (`is_complete` is false), the new topic begins its grace. Does nothing for a topic
    /// that was deleted meanwhile: its deletion has answered the clients and tasks that waited.
    pub fn handle_channels(
        &mut self,
        now: Now,
        key: TopicKey,
        channels: &[ChannelName<'_>],
        is_complete: bool,
        out: &mut Vec<Output>,
    ) {
        self.call(now, out, |broker| {
            for name in channels {
                let Some(topic) = broker.topics.get(key) else {
                    return;
                };
                let is_deleted = topic.is_deleted_in_grace(name.as_str());
                if !is_deleted && broker.channel_id(key, *name).is_none() {
                    debug_assert!(
                        broker.topics[key].started,
                        "a topic that has not started keeps its messages"
                    );
                    broker.topics[key].ask_soon(now);
                }
            }
            let Some(topic) = broker.topics.get_mut(key).filter(|topic| !topic.started) else {
                return;
            };
            topic.started = true;
            if !is_complete && topic.begin_grace(now) {
                let line = format!(
                    "TOPIC({}): not every nsqlookupd has answered, so a channel that is made \
                     within --new-topic-grace gets all messages",
                    topic.name
                );
                broker.out.push(Output::info(line));
            }
            broker.wake_retriers(key);
            broker.retry_forwarded(key);
            broker.pump_later(key);
        })
    }

    /// Lets a client wait until a topic has started, or has caught up. Then the client's command is tried again.
    pub(super) fn wait_for_topic(&mut self, id: ClientId, key: TopicKey) -> Flow {
        self.clients[id].block(Blocked::Topic(key));
        self.topics[key].retriers.push(Retrier::Client(id));
        Flow::Retry
    }

    /// Lets the clients and tasks that wait for a topic try again. Call this when the topic has started, has caught up,
    /// or was deleted.
    pub(super) fn wake_retriers(&mut self, key: TopicKey) {
        for retrier in std::mem::take(&mut self.topics[key].retriers) {
            match retrier {
                Retrier::Client(id) => self.resume(id, Blocked::Topic(key)),
                Retrier::Task(task) => self.out.push(Output::Wake(task, Wakeup::Retry)),
            }
        }
    }
}
