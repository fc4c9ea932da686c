//! [`Database`]: who produces what. A state machine: time and input come as arguments, what is to
//! be logged goes out as [`Event`]s.
//!
//! ```text
//!   topics by name ─► Topic ─► its channels by name ─► Channel
//!                      │  producers                     │  producers
//!                      ▼                                ▼
//!                    Client ◄───────────────────────────┘
//!                      └─► its topics and channels
//! ```
//!
//! Both directions are kept, so that no command and no `/lookup` goes through more than its answer.
//! The end of a client removes its registrations in slices ([`Database::leave`]).
//!
//! A topic is *listed* while its key exists. Channels can outlive the key of their topic: an
//! UNREGISTER deletes the key of an ephemeral topic and leaves its channels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

mod debug;
mod figures;

pub use debug::DebugProgress;
pub use figures::{NodeFigures, TopicFigures, Totals};

use program::flag;
use slab::Slab;
use wire::go_json::push;
use wire::json_object;
use wire::name::is_ephemeral;

use crate::event::Event;
use crate::peer::Peer;

/// The present time on two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Time since some fixed moment, for every comparison.
    pub monotonic: Duration,
    /// Nanoseconds since 1970, only shown.
    pub unix_nanos: i64,
}

program::flags! {
    /// The durations after which producers are hidden and shown again. A producer that was silent for longer than the first
    /// one is hidden. A tombstone hides a producer for less than the second one.
    #[derive(Clone, Copy, Debug)]
    pub struct Lifetimes {
        inactive: Duration = flag::new("inactive-producer-timeout", "5m0s", "duration of time a producer will remain in the active list since its last ping");
        tombstone: Duration = flag::new("tombstone-lifetime", "45s", "duration of time a producer will remain tombstoned if registration remains");
    }
}

/// Identifies a client while it is in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientKey(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TopicKey(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ChannelKey(u32);

/// The topics, channels and producers that are known.
#[derive(Debug)]
pub struct Database {
    lifetimes: Lifetimes,
    clients: Slab<Client>,
    topics: Slab<Topic>,
    channels: Slab<Channel>,
    topics_by_name: BTreeMap<Arc<str>, TopicKey>,
}

#[derive(Debug)]
struct Client {
    peer: Arc<Peer>,
    last_update: Now,
    topics: BTreeSet<TopicKey>,
    /// The channels by their topics, so that an UNREGISTER of a topic finds those of the client.
    channels: BTreeSet<(TopicKey, ChannelKey)>,
    /// True once the client's connection has ended. Its registrations may still be here.
    is_leaving: bool,
}

#[derive(Debug)]
struct Topic {
    name: Arc<str>,
    is_listed: bool,
    producers: BTreeSet<ClientKey>,
    /// The tombstones of producers, also expired ones.
    tombstones: BTreeMap<ClientKey, Now>,
    channels: BTreeMap<Arc<str>, ChannelKey>,
}

#[derive(Debug)]
struct Channel {
    name: Arc<str>,
    topic: TopicKey,
    producers: BTreeSet<ClientKey>,
}

fn key(index: usize) -> u32 {
    u32::try_from(index).expect("memory ends long before 2^32 entries")
}

impl Database {
    /// Returns an empty database.
    pub fn new(lifetimes: Lifetimes) -> Database {
        Database {
            lifetimes,
            clients: Slab::new(),
            topics: Slab::new(),
            channels: Slab::new(),
            topics_by_name: BTreeMap::new(),
        }
    }

    /// Adds a client that has identified itself.
    pub fn join(&mut self, peer: Arc<Peer>, now: Now, events: &mut Vec<Event>) -> ClientKey {
        events.push(Event::registered(&peer, None));
        ClientKey(key(self.clients.insert(Client {
            peer,
            last_update: now,
            topics: BTreeSet::new(),
            channels: BTreeSet::new(),
            is_leaving: false,
        })))
    }

    /// Notes that a client is alive.
    pub fn ping(&mut self, client: ClientKey, now: Now, events: &mut Vec<Event>) {
        let client = self.client_mut(client);
        events.push(Event::Pinged {
            client: client.peer.address.clone(),
            last: elapsed(client.last_update, now),
        });
        client.last_update = now;
    }

    /// Adds a client to the producers of a topic and, if given, of a channel. The names are valid.
    pub fn register(
        &mut self,
        client: ClientKey,
        topic: &str,
        channel: Option<&str>,
        events: &mut Vec<Event>,
    ) {
        let topic = self.topic_of(topic);
        if let Some(channel) = channel {
            let channel = self.channel_of(topic, channel);
            if self.channels[channel.0 as usize].producers.insert(client) {
                self.client_mut(client).channels.insert((topic, channel));
                let names = Some(self.names(channel));
                events.push(Event::registered(self.peer(client), names));
            }
        }
        let entry = &mut self.topics[topic.0 as usize];
        entry.is_listed = true;
        if entry.producers.insert(client) {
            let names = (entry.name.clone(), None);
            self.client_mut(client).topics.insert(topic);
            events.push(Event::registered(self.peer(client), Some(names)));
        }
    }

    /// Removes a client from the producers of a channel or, without a channel, of a topic and all
    /// of its channels. Unknown names mean nothing.
    pub fn unregister(
        &mut self,
        client: ClientKey,
        topic: &str,
        channel: Option<&str>,
        events: &mut Vec<Event>,
    ) {
        let Some(&topic) = self.topics_by_name.get(topic) else {
            return;
        };
        match channel {
            Some(channel) => self.unregister_channel(client, topic, channel, events),
            None => self.unregister_topic(client, topic, events),
        }
        self.drop_unused(topic);
    }

    fn unregister_channel(
        &mut self,
        client: ClientKey,
        topic: TopicKey,
        name: &str,
        events: &mut Vec<Event>,
    ) {
        let Some(&channel) = self.topics[topic.0 as usize].channels.get(name) else {
            return;
        };
        if self.leave_channel(client, channel) {
            let names = Some(self.names(channel));
            events.push(Event::unregistered(self.peer(client), names));
        }
        let is_unused = self.channels[channel.0 as usize].producers.is_empty();
        if is_unused && is_ephemeral(name.as_bytes()) {
            self.remove_channel(channel);
        }
    }

    fn unregister_topic(&mut self, client: ClientKey, topic: TopicKey, events: &mut Vec<Event>) {
        let all = (topic, ChannelKey(0))..=(topic, ChannelKey(u32::MAX));
        let channels: Vec<_> = self
            .client_mut(client)
            .channels
            .range(all)
            .copied()
            .collect();
        for (_, channel) in channels {
            self.leave_channel(client, channel);
            let (topic, channel) = self.names(channel);
            events.push(Event::UnexpectedUnregister {
                client: self.peer(client).address.clone(),
                topic,
                channel: channel.expect("these are the names of a channel"),
            });
        }
        if self.leave_topic(client, topic) {
            let names = Some((self.topics[topic.0 as usize].name.clone(), None));
            events.push(Event::unregistered(self.peer(client), names));
        }
        let entry = &mut self.topics[topic.0 as usize];
        if entry.producers.is_empty() && is_ephemeral(entry.name.as_bytes()) {
            entry.is_listed = false;
        }
    }

    /// Removes at most `limit` registrations of a client whose connection has ended. The first call
    /// hides the client from `/nodes`. Returns true when nothing is left; the key is then invalid.
    pub fn leave(&mut self, client: ClientKey, limit: usize, events: &mut Vec<Event>) -> bool {
        let entry = self.client_mut(client);
        if !std::mem::replace(&mut entry.is_leaving, true) {
            events.push(Event::unregistered(&entry.peer, None));
        }
        for _ in 0..limit {
            let entry = self.client_mut(client);
            if let Some(&(_, channel)) = entry.channels.first() {
                self.leave_channel(client, channel);
                let names = Some(self.names(channel));
                events.push(Event::unregistered(self.peer(client), names));
            } else if let Some(&topic) = entry.topics.first() {
                self.leave_topic(client, topic);
                let names = Some((self.topics[topic.0 as usize].name.clone(), None));
                events.push(Event::unregistered(self.peer(client), names));
            } else {
                self.clients.remove(client.0 as usize);
                return true;
            }
        }
        false
    }

    /// Adds a topic.
    pub fn create_topic(&mut self, topic: &str) {
        let topic = self.topic_of(topic);
        self.topics[topic.0 as usize].is_listed = true;
    }

    /// Adds a channel and its topic.
    pub fn create_channel(&mut self, topic: &str, channel: &str) {
        let topic = self.topic_of(topic);
        self.topics[topic.0 as usize].is_listed = true;
        self.channel_of(topic, channel);
    }

    /// Removes a topic and its channels with all registrations.
    pub fn delete_topic(&mut self, topic: &str, events: &mut Vec<Event>) {
        let Some(&topic) = self.topics_by_name.get(topic) else {
            return;
        };
        let entry = &self.topics[topic.0 as usize];
        let (name, is_listed) = (entry.name.clone(), entry.is_listed);
        let channels: Vec<ChannelKey> = entry.channels.values().copied().collect();
        for channel in channels {
            events.push(Event::RemovingChannel {
                topic: name.clone(),
                channel: self.channels[channel.0 as usize].name.clone(),
            });
            self.remove_channel(channel);
        }
        if is_listed {
            events.push(Event::RemovingTopic(name));
        }
        let entry = &mut self.topics[topic.0 as usize];
        entry.is_listed = false;
        entry.tombstones.clear();
        for client in std::mem::take(&mut entry.producers) {
            self.client_mut(client).topics.remove(&topic);
        }
        self.drop_unused(topic);
    }

    /// Removes a channel with its registrations. Returns false if there is no such channel.
    pub fn delete_channel(&mut self, topic: &str, channel: &str, events: &mut Vec<Event>) -> bool {
        let found = self.topics_by_name.get(topic).and_then(|&topic| {
            let channel = self.topics[topic.0 as usize].channels.get(channel)?;
            Some((topic, *channel))
        });
        let Some((topic, channel)) = found else {
            return false;
        };
        let (topic_name, name) = self.names(channel);
        events.push(Event::RemovingChannel {
            topic: topic_name,
            channel: name.expect("these are the names of a channel"),
        });
        self.remove_channel(channel);
        self.drop_unused(topic);
        true
    }

    /// Sets a tombstone for each producer of a topic whose `<broadcast address>:<HTTP port>` is
    /// `node`.
    pub fn tombstone(&mut self, topic: &str, node: &str, now: Now) {
        let Some(&topic) = self.topics_by_name.get(topic) else {
            return;
        };
        let Topic {
            producers,
            tombstones,
            ..
        } = &mut self.topics[topic.0 as usize];
        for producer in producers.iter() {
            if self.clients[producer.0 as usize].peer.is_node(node) {
                tombstones.insert(*producer, now);
            }
        }
    }

    /// Returns the names of all listed topics, sorted.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        let listed = self.topics_by_name.iter();
        listed
            .filter(|(_, topic)| self.topics[topic.0 as usize].is_listed)
            .map(|(name, _)| &**name)
    }

    /// Returns the names of the channels of a topic, sorted. An unknown topic has none.
    pub fn channels(&self, topic: &str) -> impl Iterator<Item = &str> {
        let topic = self.topics_by_name.get(topic);
        let channels = topic.map(|topic| self.topics[topic.0 as usize].channels.keys());
        channels.into_iter().flatten().map(|name| &**name)
    }

    /// Returns the producers of a listed topic that are active and without tombstone, or `None` for
    /// another topic.
    pub fn producers(&self, topic: &str, now: Now) -> Option<impl Iterator<Item = &Peer>> {
        let topic = &self.topics[self.topics_by_name.get(topic)?.0 as usize];
        topic.is_listed.then(|| {
            let shown = topic.producers.iter().filter(move |producer| {
                self.is_active(**producer, now) && !self.has_tombstone(topic, **producer, now)
            });
            shown.map(|producer| &**self.peer(*producer))
        })
    }

    /// Returns the clients, also those that are not active.
    pub fn clients(&self) -> Vec<ClientKey> {
        let keys = self.clients.iter().map(|(index, _)| ClientKey(key(index)));
        keys.collect()
    }

    /// Appends a client as `/nodes` shows it. Returns false without a change if the client has gone
    /// or is not active.
    pub fn append_node(&self, client: ClientKey, now: Now, json: &mut String) -> bool {
        let Some(entry) = self.clients.get(client.0 as usize) else {
            return false;
        };
        if entry.is_leaving || !self.is_active(client, now) {
            return false;
        }
        let topics = || entry.topics.iter().map(|key| &self.topics[key.0 as usize]);
        let tombstones = topics().map(|topic| self.has_tombstone(topic, client, now));
        let node = json_object! {
            #[serde(flatten)]
            peer: entry.peer.fields(),
            tombstones: tombstones.collect::<Vec<bool>>(),
            topics: topics().map(|topic| &*topic.name).collect::<Vec<&str>>(),
        };
        push(json, &node);
        true
    }

    /// Returns the address of a client.
    pub fn address(&self, client: ClientKey) -> &Arc<str> {
        &self.peer(client).address
    }

    fn peer(&self, client: ClientKey) -> &Arc<Peer> {
        &self.clients[client.0 as usize].peer
    }

    fn client_mut(&mut self, client: ClientKey) -> &mut Client {
        &mut self.clients[client.0 as usize]
    }

    fn is_active(&self, client: ClientKey, now: Now) -> bool {
        let last_update = self.clients[client.0 as usize].last_update;
        elapsed(last_update, now) <= self.lifetimes.inactive
    }

    fn has_tombstone(&self, topic: &Topic, client: ClientKey, now: Now) -> bool {
        let set = topic.tombstones.get(&client);
        set.is_some_and(|set| elapsed(*set, now) < self.lifetimes.tombstone)
    }

    /// Returns the key of a topic. Adds a topic that does not exist, without listing it.
    fn topic_of(&mut self, name: &str) -> TopicKey {
        if let Some(topic) = self.topics_by_name.get(name) {
            return *topic;
        }
        let name: Arc<str> = name.into();
        let topic = TopicKey(key(self.topics.insert(Topic {
            name: name.clone(),
            is_listed: false,
            producers: BTreeSet::new(),
            tombstones: BTreeMap::new(),
            channels: BTreeMap::new(),
        })));
        self.topics_by_name.insert(name, topic);
        topic
    }

    /// Returns the key of a channel. Adds a channel that does not exist.
    fn channel_of(&mut self, topic: TopicKey, name: &str) -> ChannelKey {
        let channels = &mut self.topics[topic.0 as usize].channels;
        if let Some(channel) = channels.get(name) {
            return *channel;
        }
        let name: Arc<str> = name.into();
        let channel = ChannelKey(key(self.channels.insert(Channel {
            name: name.clone(),
            topic,
            producers: BTreeSet::new(),
        })));
        channels.insert(name, channel);
        channel
    }

    /// Returns the names of a channel's topic and of the channel.
    fn names(&self, channel: ChannelKey) -> (Arc<str>, Option<Arc<str>>) {
        let channel = &self.channels[channel.0 as usize];
        let topic = &self.topics[channel.topic.0 as usize];
        (topic.name.clone(), Some(channel.name.clone()))
    }

    /// Returns true if the client was a producer of the channel.
    fn leave_channel(&mut self, client: ClientKey, channel: ChannelKey) -> bool {
        let topic = self.channels[channel.0 as usize].topic;
        self.client_mut(client).channels.remove(&(topic, channel));
        self.channels[channel.0 as usize].producers.remove(&client)
    }

    /// Returns true if the client was a producer of the topic.
    fn leave_topic(&mut self, client: ClientKey, topic: TopicKey) -> bool {
        self.client_mut(client).topics.remove(&topic);
        let topic = &mut self.topics[topic.0 as usize];
        topic.tombstones.remove(&client);
        topic.producers.remove(&client)
    }

    fn remove_channel(&mut self, key: ChannelKey) {
        let channel = self.channels.remove(key.0 as usize);
        for client in channel.producers {
            self.client_mut(client)
                .channels
                .remove(&(channel.topic, key));
        }
        let topic = &mut self.topics[channel.topic.0 as usize];
        topic.channels.remove(&channel.name);
    }

    /// Removes a topic that is neither listed nor has channels.
    fn drop_unused(&mut self, topic: TopicKey) {
        let entry = &self.topics[topic.0 as usize];
        if !entry.is_listed && entry.channels.is_empty() {
            let entry = self.topics.remove(topic.0 as usize);
            self.topics_by_name.remove(&entry.name);
        }
    }

    /// Panics if the two directions of the registrations disagree, or if something is left that
    /// should have been removed.
    pub fn check(&self) {
        assert_eq!(self.topics.len(), self.topics_by_name.len());
        let mut channel_count = 0;
        for (index, topic) in &self.topics {
            let topic_key = TopicKey(key(index));
            assert_eq!(self.topics_by_name.get(&topic.name), Some(&topic_key));
            assert!(topic.is_listed || !topic.channels.is_empty());
            assert!(topic.is_listed || topic.producers.is_empty());
            for producer in &topic.producers {
                assert!(
                    self.clients[producer.0 as usize]
                        .topics
                        .contains(&topic_key)
                );
            }
            for producer in topic.tombstones.keys() {
                assert!(topic.producers.contains(producer));
            }
            for (name, channel) in &topic.channels {
                let channel = &self.channels[channel.0 as usize];
                assert_eq!((&channel.name, channel.topic), (name, topic_key));
                channel_count += 1;
            }
        }
        assert_eq!(self.channels.len(), channel_count);
        for (index, channel) in &self.channels {
            let channel_key = ChannelKey(key(index));
            for producer in &channel.producers {
                let client = &self.clients[producer.0 as usize];
                assert!(client.channels.contains(&(channel.topic, channel_key)));
            }
        }
        for (index, client) in &self.clients {
            let client_key = ClientKey(key(index));
            for topic in &client.topics {
                assert!(
                    self.topics[topic.0 as usize]
                        .producers
                        .contains(&client_key)
                );
            }
            for (topic, channel) in &client.channels {
                let channel = &self.channels[channel.0 as usize];
                assert_eq!(channel.topic, *topic);
                assert!(channel.producers.contains(&client_key));
            }
        }
    }
}

fn elapsed(since: Now, now: Now) -> Duration {
    now.monotonic.saturating_sub(since.monotonic)
}

#[cfg(test)]
mod tests;
