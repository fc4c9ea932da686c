//! `/debug`: everything that has producers, in pieces. With a million registrations the answer takes hundreds of
//! megabytes, so neither the answer nor the time under the lock may grow with it.

use std::ops::Bound;
use std::sync::Arc;

use serde::Serialize;
use wire::go_json::{push, push_list};
use wire::json_object;

use super::{ClientKey, Database, Now, Topic, key};

/// The time that `/debug` shows for a tombstone that was never set: Go's zero time.
const NEVER_NANOS: i64 = -6_795_364_578_871_345_152;

/// The part of an answer that is written already. The database may change between two pieces.
#[derive(Debug)]
pub struct DebugProgress {
    /// The topics in the order in which their groups come.
    topics: Vec<Arc<str>>,
    next: Next,
    is_first: bool,
}

/// The group that comes next. Go sorts the groups by their names.
#[derive(Debug)]
enum Next {
    Start,
    /// The channels of a topic behind a channel.
    Channels(usize, Option<Arc<str>>),
    Clients,
    Topic(usize),
    Nothing,
}

impl Database {
    /// Returns the beginning of an answer to `/debug`.
    pub fn debug_start(&self) -> DebugProgress {
        let mut topics: Vec<Arc<str>> = self.topics_by_name.keys().cloned().collect();
        // A colon follows the topic in the name of a group.
        topics.sort_by(|a, b| a.bytes().chain([b':']).cmp(b.bytes().chain([b':'])));
        DebugProgress {
            topics,
            next: Next::Start,
            is_first: true,
        }
    }

    /// Appends further groups, until `out` has at least `bytes` bytes or the answer ends. Returns true at the end.
    pub fn debug_piece(
        &self,
        progress: &mut DebugProgress,
        bytes: usize,
        out: &mut String,
    ) -> bool {
        if let Next::Start = progress.next {
            out.push('{');
            progress.next = Next::Channels(0, None);
        }
        while out.len() < bytes {
            match progress.next {
                Next::Channels(index, ref behind) => {
                    let behind = behind.clone();
                    progress.next = self.channel_group(progress, index, behind, out);
                }
                Next::Clients => {
                    let clients = self.clients.iter().filter(|(_, client)| !client.is_leaving);
                    let clients = clients.map(|(index, _)| ClientKey(key(index)));
                    self.group("client::", None, clients, progress, out);
                    progress.next = Next::Topic(0);
                }
                Next::Topic(index) => {
                    let Some(name) = progress.topics.get(index).cloned() else {
                        out.push('}');
                        progress.next = Next::Nothing;
                        return true;
                    };
                    if let Some(topic) = self.topic_named(&name) {
                        let producers = topic.producers.iter().copied();
                        let group = format!("topic:{name}:");
                        self.group(&group, Some(topic), producers, progress, out);
                    }
                    progress.next = Next::Topic(index + 1);
                }
                // The start was written above.
                Next::Start | Next::Nothing => return true,
            }
        }
        false
    }

    /// Returns the whole answer.
    pub fn debug(&self) -> String {
        let mut json = String::new();
        let is_whole = self.debug_piece(&mut self.debug_start(), usize::MAX, &mut json);
        assert!(is_whole, "a string has less than usize::MAX bytes");
        json
    }

    /// Appends the group of the first channel behind `behind`. Returns what comes next.
    fn channel_group(
        &self,
        progress: &mut DebugProgress,
        index: usize,
        behind: Option<Arc<str>>,
        out: &mut String,
    ) -> Next {
        let Some(name) = progress.topics.get(index).cloned() else {
            return Next::Clients;
        };
        let start = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let channels = self.topic_named(&name).map(|topic| &topic.channels);
        let found = channels.and_then(|all| all.range((start, Bound::Unbounded)).next());
        let Some((channel_name, channel)) = found else {
            return Next::Channels(index + 1, None);
        };
        let producers = self.channels[channel.0 as usize].producers.iter().copied();
        let group = format!("channel:{name}:{channel_name}");
        self.group(&group, None, producers, progress, out);
        Next::Channels(index, Some(channel_name.clone()))
    }

    /// Appends a group, unless it has no producers.
    fn group(
        &self,
        name: &str,
        topic: Option<&Topic>,
        producers: impl Iterator<Item = ClientKey>,
        progress: &mut DebugProgress,
        out: &mut String,
    ) {
        let mut producers = producers.peekable();
        if producers.peek().is_none() {
            return;
        }
        if !std::mem::replace(&mut progress.is_first, false) {
            out.push(',');
        }
        let producers = producers.map(|producer| {
            let tombstone = topic.and_then(|topic| topic.tombstones.get(&producer));
            self.debug_producer(producer, tombstone)
        });
        push(out, name);
        out.push(':');
        push_list(out, producers);
    }

    fn debug_producer(&self, producer: ClientKey, tombstone: Option<&Now>) -> impl Serialize {
        let client = &self.clients[producer.0 as usize];
        let (peer, info) = (&client.peer, &client.peer.info);
        json_object! {
            broadcast_address: &info.broadcast_address,
            hostname: &info.hostname,
            http_port: info.http_port,
            id: &*peer.address,
            last_update: client.last_update.unix_nanos,
            tcp_port: info.tcp_port,
            tombstoned: tombstone.is_some(),
            tombstoned_at: tombstone.map_or(NEVER_NANOS, |set| set.unix_nanos),
            topology_region: &info.topology_region,
            topology_zone: &info.topology_zone,
            version: &info.version,
        }
    }

    fn topic_named(&self, name: &str) -> Option<&Topic> {
        let topic = self.topics_by_name.get(name)?;
        Some(&self.topics[topic.0 as usize])
    }
}
