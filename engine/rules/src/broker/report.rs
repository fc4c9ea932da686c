//! The figures of a shard for /stats, taken in slices.

use super::Broker;
use crate::channel::Channel;
use crate::client::Client;
use crate::ids::{ClientId, TopicKey};
use crate::latency;
use crate::pause::PauseUnderWay;
use crate::stats::{
    AuthStats, ChannelStats, ClientStats, DeadLetterStats, DividedTopic, LatencyStats, PauseStats,
    ProtocolVersion, PubCount, StatsFilter, TlsStats, TopicStats, UndoStats, UnfinishedSnapshot,
};
use crate::topic::Topic;
use crate::undo::Undo;
use diskq_log::Now;
use wire::identify::GrantedUpgrade;

/// Topics, channels and connections in a slice of a snapshot. They take about 0.1 ms.
const SLICE_ENTRIES: usize = 128;

impl UnfinishedSnapshot {
    /// Begins a snapshot of a shard that is taken in slices.
    pub fn begin(broker: &Broker, filter: &StatsFilter) -> UnfinishedSnapshot {
        let topics = broker.by_name.iter().rev();
        let wanted = topics.filter(|(name, _)| filter.wants_topic(name));
        UnfinishedSnapshot {
            topics: wanted.map(|(_, key)| *key).collect(),
            filter: filter.clone(),
            ..UnfinishedSnapshot::default()
        }
    }

    /// Adds topics to the snapshot, until they have some hundred channels and consumers. A topic that has more itself is
    /// divided, and so are the consumers of a channel. The producers come after the last topic. Returns true when the
    /// snapshot is complete. What was deleted or closed in the meantime is left out. A new topic is left out, too.
    pub fn proceed(&mut self, broker: &mut Broker, now: Now) -> bool {
        broker.now = now;
        let mut entries = 0;
        while entries < SLICE_ENTRIES {
            if !self.clients.is_empty() {
                entries += self.add_clients(broker, SLICE_ENTRIES - entries);
            } else if self.has_all_topics {
                return true;
            } else if let Some(topic) = self.divided.take().or_else(|| self.begin_topic(broker)) {
                entries += self.add_channels(broker, topic);
            } else {
                self.has_all_topics = true;
                self.clients = producers(broker, &self.filter);
            }
        }
        false
    }

    /// Adds the next topic, without its channels. Returns `None` if no topic is left.
    fn begin_topic(&mut self, broker: &mut Broker) -> Option<DividedTopic> {
        let is_there = |key: &TopicKey| broker.topics.contains_key(*key);
        let key = std::iter::from_fn(|| self.topics.pop()).find(is_there)?;
        let stats = topic_stats(broker, key, &self.filter);
        self.snapshot.topics.push(stats);
        Some(DividedTopic {
            key,
            after: None,
            latency: None,
        })
    }

    /// Adds the next channels of the last topic, a slice at most, as far as they are wanted. Ends at a channel whose
    /// consumers do not fit into a slice. A topic that fits into a slice is not divided, even if the slice has others.
    /// Returns the entries.
    fn add_channels(&mut self, broker: &mut Broker, mut divided: DividedTopic) -> usize {
        let Some(topic) = broker.topics.get_mut(divided.key) else {
            self.snapshot.topics.pop();
            return 0;
        };
        let ids = topic
            .channels
            .after(divided.after.as_deref(), SLICE_ENTRIES);
        for id in &ids {
            topic.channels[*id].drop_finished();
        }
        let topic = &broker.topics[divided.key];
        let (mut channels, mut consumers) = (0, 0);
        for id in ids {
            let channel = &topic.channels[id];
            divided.after = Some(channel.name.clone());
            channels += 1;
            if let Some(latency) = &channel.latency {
                latency.add_to(broker.now.mono, divided.latency.get_or_insert_default());
            }
            if !self.filter.wants_channel(&channel.name) {
                continue;
            }
            let stats = channel_stats(broker, (topic, channel), &self.filter);
            self.last_topic().channels.push(stats);
            if self.filter.include_clients {
                self.clients = channel.consumers.all.iter().rev().copied().collect();
                consumers += self.add_clients(broker, SLICE_ENTRIES.saturating_sub(consumers));
            }
            if !self.clients.is_empty() {
                break;
            }
        }
        if channels == SLICE_ENTRIES || !self.clients.is_empty() {
            self.divided = Some(divided);
        } else {
            let options = broker.options.topic.latency.as_ref();
            let latency = latency::stats_of_sum(options, divided.latency.as_ref());
            self.last_topic().e2e_processing_latency = latency;
        }
        1 + channels + consumers
    }

    fn last_topic(&mut self) -> &mut TopicStats {
        let last = self.snapshot.topics.last_mut();
        last.expect("the topic was begun")
    }

    /// Adds connections to the last channel, or to the producers behind the last topic, until they are about `entries_max`
    /// entries. Leaves out those that are closed by now. Returns the entries.
    fn add_clients(&mut self, broker: &Broker, entries_max: usize) -> usize {
        let mut added = Vec::new();
        let mut entries = 0;
        while entries < entries_max
            && let Some(id) = self.clients.pop()
        {
            if let Some(client) = broker.clients.get(id) {
                entries += 1 + client.producer.pub_counts.len();
                added.push(client_stats(client));
            }
        }
        if self.has_all_topics {
            self.snapshot.producers.extend(added);
        } else if let Some(channel) = self.last_topic().channels.last_mut() {
            channel.clients.get_or_insert_default().extend(added);
        }
        entries
    }
}

/// Returns the connections that have published, the last one first, if connections are wanted.
fn producers(broker: &Broker, filter: &StatsFilter) -> Vec<ClientId> {
    if !filter.include_clients {
        return Vec::new();
    }
    let clients = broker.clients.iter();
    let producers = clients.filter(|(_, client)| !client.producer.pub_counts.is_empty());
    let mut ids: Vec<ClientId> = producers.map(|(id, _)| id).collect();
    ids.reverse();
    ids
}

/// Returns the figures of a topic, without its channels.
fn topic_stats(broker: &mut Broker, key: TopicKey, filter: &StatsFilter) -> TopicStats {
    let topic = &mut broker.topics[key];
    topic.distribute(broker.now, &broker.clients, &mut broker.work);
    let topic = &broker.topics[key];
    let gate = topic.gate.as_ref();
    let (numbers, keys) = gate.map_or((None, None), |gate| gate.stats(broker.now));
    let stats = TopicStats {
        topic_name: topic.name.to_string(),
        channels: Vec::new(),
        depth: topic.depth(),
        backend_depth: backend_depth(broker, topic.depth(), topic.ephemeral),
        message_count: topic.counters.totals.messages,
        message_bytes: topic.counters.totals.body_bytes,
        refused_count: topic.counters.refused_count,
        oldest_unfinished_ms: topic.age_ms(broker.now, topic.oldest()),
        shard: broker.options.shard.0,
        unclaimed_dropped_count: topic.unclaimed_dropped_count(),
        numbers,
        keys,
        paused: topic.pause.is_some(),
        pause: pause_stats(topic.pause.as_deref()),
        e2e_processing_latency: LatencyStats::default(),
        undo: topic.undo.as_ref().map(|undo| undo_stats(topic, undo)),
        log: filter.include_logs.then(|| topic.log.stats()),
    };
    broker.pump_later(key);
    stats
}

/// Returns the part of a depth that nsqd would have on disk.
fn backend_depth(broker: &Broker, depth: u64, is_ephemeral: bool) -> u64 {
    if is_ephemeral {
        0
    } else {
        depth.saturating_sub(broker.options.topic.mem_queue_size)
    }
}

/// Returns the figures of a channel, without its consumers.
fn channel_stats(
    broker: &Broker,
    (topic, channel): (&Topic, &Channel),
    filter: &StatsFilter,
) -> ChannelStats {
    let oldest = channel.oldest();
    ChannelStats {
        channel_name: channel.name.to_string(),
        disk: (filter.include_disk && filter.topic.is_some() && filter.channel.is_some())
            .then(|| topic.disk_use(channel))
            .flatten(),
        depth: channel.depth(),
        backend_depth: backend_depth(broker, channel.depth(), channel.ephemeral),
        in_flight_count: channel.in_flight_count(),
        deferred_count: channel.deferred_count(),
        counters: channel.counters,
        oldest_unfinished_ms: topic.age_ms(broker.now, oldest),
        oldest_failed_attempts: oldest.map_or(0, |seq| channel.failed_attempts(seq).into()),
        dead_letters: channel.dead_letters.as_ref().map(|dead| DeadLetterStats {
            topic: dead.to().to_string(),
            count: dead.moved_count(),
            waiting_count: dead.count(),
        }),
        client_count: channel.consumers.all.len() as u64,
        clients: None,
        paused: channel.pause.is_some(),
        pause: pause_stats(channel.pause.as_deref()),
        undo: channel.undo.as_ref().map(|undo| undo_stats(topic, undo)),
        e2e_processing_latency: latency::stats(
            broker.now.mono,
            broker.options.topic.latency.as_ref(),
            channel.latency.as_deref(),
        ),
        e2e_histogram: channel
            .latency
            .as_ref()
            .filter(|_| filter.include_histograms)
            .and_then(|latency| latency.since_start()),
    }
}

fn undo_stats(topic: &Topic, undo: &Undo) -> UndoStats {
    UndoStats {
        until_ms: undo.until_ns / 1_000_000,
        message_count: undo.count(),
        disk_bytes: topic.undo_bytes(undo),
    }
}

fn pause_stats(pause: Option<&PauseUnderWay>) -> PauseStats {
    let stats = pause.map(|pause| PauseStats {
        until_ms: pause.terms.until_ns / 1_000_000,
        note: pause.terms.note.clone(),
        by: pause.terms.by.clone(),
    });
    stats.unwrap_or_default()
}

fn client_stats(client: &Client) -> ClientStats {
    let tls = client.session.tls.as_deref().cloned().unwrap_or_default();
    let grants = client.session.auth.as_ref().map(|auth| &auth.grants);
    ClientStats {
        client_id: client.session.client_id.clone(),
        hostname: client.session.hostname.clone(),
        version: ProtocolVersion::V2,
        remote_address: client.address.clone(),
        state: client.session.state as u8,
        ready_count: u64::from(client.consumer.ready_count),
        in_flight_count: u64::from(client.consumer.in_flight),
        counters: client.consumer.counters,
        connect_ts: client.connected_at,
        sample_rate: client.consumer.settings.sample_rate,
        deflate: matches!(client.session.compression, Some(GrantedUpgrade::Deflate(_))),
        snappy: client.session.compression == Some(GrantedUpgrade::Snappy),
        user_agent: client.session.user_agent.clone(),
        auth: AuthStats {
            authed: client.session.has_grants(),
            identity: grants.map_or("", |grants| &grants.identity).to_owned(),
            identity_url: grants.map_or("", |grants| &grants.identity_url).to_owned(),
        },
        topology_zone: client.session.topology_zone.clone(),
        topology_region: client.session.topology_region.clone(),
        pub_counts: client
            .producer
            .pub_counts
            .iter()
            .map(|(topic, count)| PubCount {
                topic: String::from_utf8_lossy(topic).into_owned(),
                count: *count,
            })
            .collect(),
        tls: TlsStats {
            tls: client.session.tls.is_some(),
            cipher_suite: tls.cipher_suite,
            version: tls.version,
            negotiated_protocol: "",
            negotiated_protocol_is_mutual: client.session.tls.is_some(),
        },
    }
}
