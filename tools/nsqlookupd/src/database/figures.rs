//! The figures of `/metrics`, in pages, so that no reader holds the lock for long.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use super::{ClientKey, Database, Now, elapsed, key};

/// The counts of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Topics that `/topics` shows.
    pub topics: u64,
    /// Channels.
    pub channels: u64,
    /// Connected nsqds that `/nodes` shows.
    pub nodes: u64,
    /// Connected nsqds that were silent for longer than `--inactive-producer-timeout`.
    pub inactive_nodes: u64,
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicFigures {
    /// The name.
    pub name: Arc<str>,
    /// The producers that `/lookup` shows.
    pub producers: u64,
    /// The producers that a tombstone hides.
    pub tombstones: u64,
    /// The channels.
    pub channels: u64,
}

/// One connected nsqd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFigures {
    /// `<broadcast address>:<HTTP port>`.
    pub node: String,
    /// The address of the nsqd's end of the connection.
    pub remote_address: Arc<str>,
    /// The topics that the nsqd has registered.
    pub topics: u64,
    /// The time since its last PING or registration of itself.
    pub silence: Duration,
}

impl Database {
    /// Returns the counts of everything. The cost grows with the number of topics and nodes.
    pub fn totals(&self, now: Now) -> Totals {
        let mut totals = Totals {
            topics: self.topics().count() as u64,
            channels: self.channels.len() as u64,
            ..Totals::default()
        };
        for (index, client) in &self.clients {
            if client.is_leaving {
                continue;
            }
            if self.is_active(ClientKey(key(index)), now) {
                totals.nodes += 1
            } else {
                totals.inactive_nodes += 1
            }
        }
        totals
    }

    /// Returns the figures of at most `limit` names of topics that come behind `behind`, and the last of these names.
    /// `None`: there are no more.
    pub fn topic_figures(
        &self,
        behind: Option<&Arc<str>>,
        limit: usize,
        now: Now,
    ) -> Option<(Vec<TopicFigures>, Arc<str>)> {
        let start = behind.map_or(Bound::Unbounded, |name| Bound::Excluded(name.clone()));
        let names = self.topics_by_name.range((start, Bound::Unbounded));
        let mut figures = Vec::new();
        let mut last = None;
        for (name, topic) in names.take(limit) {
            last = Some(name.clone());
            let topic = &self.topics[topic.0 as usize];
            if !topic.is_listed {
                continue;
            }
            let (mut producers, mut tombstones) = (0, 0);
            for producer in &topic.producers {
                if self.has_tombstone(topic, *producer, now) {
                    tombstones += 1;
                } else if self.is_active(*producer, now) {
                    producers += 1;
                }
            }
            figures.push(TopicFigures {
                name: name.clone(),
                producers,
                tombstones,
                channels: topic.channels.len() as u64,
            });
        }
        last.map(|last| (figures, last))
    }

    /// Returns the figures of a client. `None`: it has gone.
    pub fn node_figures(&self, client: ClientKey, now: Now) -> Option<NodeFigures> {
        let entry = self.clients.get(client.0 as usize)?;
        let info = &entry.peer.info;
        (!entry.is_leaving).then(|| NodeFigures {
            node: format!("{}:{}", info.broadcast_address, info.http_port),
            remote_address: entry.peer.address.clone(),
            topics: entry.topics.len() as u64,
            silence: elapsed(entry.last_update, now),
        })
    }
}
