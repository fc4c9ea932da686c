//! `/debug`: everything that has producers.

use std::collections::BTreeMap;

use serde::Serialize;
use wire::go_json::to_string;
use wire::json_object;

use super::{ClientKey, Database, Now, key};

/// The time that `/debug` shows for a tombstone that was never set: Go's zero time.
const NEVER_NANOS: i64 = -6_795_364_578_871_345_152;

impl Database {
    /// Returns the answer to `/debug`. Go sorts the groups by their names.
    pub fn debug(&self) -> String {
        let mut groups = BTreeMap::new();
        let mut add = |name: String, producers: Vec<_>| {
            if !producers.is_empty() {
                groups.insert(name, producers);
            }
        };
        let clients = self.clients.iter().filter(|(_, client)| !client.is_leaving);
        let clients = clients.map(|(index, _)| self.debug_producer(ClientKey(key(index)), None));
        add("client::".to_owned(), clients.collect());
        for (name, topic) in &self.topics_by_name {
            let topic = &self.topics[topic.0 as usize];
            let producers = topic.producers.iter().map(|producer| {
                let tombstone = topic.tombstones.get(producer);
                self.debug_producer(*producer, tombstone)
            });
            add(format!("topic:{name}:"), producers.collect());
            for (channel_name, channel) in &topic.channels {
                let producers = self.channels[channel.0 as usize].producers.iter();
                let producers = producers.map(|producer| self.debug_producer(*producer, None));
                add(
                    format!("channel:{name}:{channel_name}"),
                    producers.collect(),
                );
            }
        }
        to_string(&groups)
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
}
