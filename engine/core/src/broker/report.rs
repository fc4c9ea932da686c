//! The broker's reports about itself, for /stats, /ping and nsqd.dat.

use super::Broker;
use super::output::Change;
use crate::channel::Channel;
use crate::client::Client;
use crate::ids::TopicKey;
use crate::latency;
use crate::now::Now;
use crate::pause::PauseUnderWay;
use crate::stats::{
    ChannelStats, ClientStats, DeadLetterStats, LatencyStats, LogFigures, PauseStats, PubCount,
    StatsFilter, StatsSnapshot, TopicStats, UndoStats, UnfinishedSnapshot,
};
use crate::topic::Topic;
use crate::topology::Locality;
use crate::undo::Undo;
use diskq_log::{ChannelFacts, Log, TopicFacts};
use std::sync::Arc;
use wire::identify::GrantedUpgrade;

/// Topics and channels in a slice of a snapshot. They take about 0.1 ms.
const SLICE_ENTRIES: usize = 128;
/// A channel whose latency is measured counts as this many entries, because its quantiles take twice as long as its other
/// figures.
const LATENCY_ENTRIES: usize = 3;

impl Broker {
    /// Distributes published messages to the channels, within the turn's budget, so that the depths are those of the
    /// channels. Then takes a snapshot of this shard's topics, channels and connections.
    pub fn distribute_and_snapshot(&mut self, now: Now, filter: &StatsFilter) -> StatsSnapshot {
        let mut unfinished = self.begin_snapshot(filter);
        while !self.continue_snapshot(now, filter, &mut unfinished) {}
        unfinished.finish()
    }

    /// Begins a snapshot that is taken in slices.
    pub fn begin_snapshot(&self, filter: &StatsFilter) -> UnfinishedSnapshot {
        let topics = self.by_name.iter().rev();
        let wanted = topics.filter(|(name, _)| filter.wants_topic(name));
        UnfinishedSnapshot {
            topics: wanted.map(|(_, key)| *key).collect(),
            snapshot: StatsSnapshot::default(),
        }
    }

    /// Adds topics to a snapshot, until they have some hundred channels. A topic is never divided. Returns true when the
    /// snapshot is complete; the connections come with the last topics. A topic that was deleted in the meantime is
    /// left out, and a new one, too.
    pub fn continue_snapshot(
        &mut self,
        now: Now,
        filter: &StatsFilter,
        unfinished: &mut UnfinishedSnapshot,
    ) -> bool {
        let entries_per_channel = match self.options.topic.latency {
            None => 1,
            Some(_) => LATENCY_ENTRIES,
        };
        let mut entries = 0;
        while entries < SLICE_ENTRIES {
            let Some(key) = unfinished.topics.pop() else {
                if filter.include_clients {
                    let clients = self.clients.values();
                    let producers = clients.filter(|client| !client.producer.pub_counts.is_empty());
                    unfinished.snapshot.producers = producers.map(client_stats).collect();
                }
                return true;
            };
            if self.topics.contains_key(key) {
                let topic = self.topic_stats(now, key, filter);
                entries += 1 + topic.channels.len() * entries_per_channel;
                unfinished.snapshot.topics.push(topic);
            }
        }
        false
    }

    fn topic_stats(&mut self, now: Now, key: TopicKey, filter: &StatsFilter) -> TopicStats {
        let topic = &mut self.topics[key];
        topic.distribute(now, &self.clients, &mut self.work);
        topic.drop_finished();
        let topic = &self.topics[key];
        let all = || topic.channels().map(|(_, channel)| channel);
        let channels = all().filter(|channel| filter.wants_channel(&channel.name));
        let resident = self.options.topic.mem_queue_size;
        let backend = |depth: u64, ephemeral| match ephemeral {
            true => 0,
            false => depth.saturating_sub(resident),
        };
        let stats = TopicStats {
            topic_name: topic.name.to_string(),
            channels: channels
                .map(|c| self.channel_stats(now, (topic, c), filter, &backend))
                .collect(),
            depth: topic.depth(),
            backend_depth: backend(topic.depth(), topic.ephemeral),
            message_count: topic.message_count,
            message_bytes: topic.message_bytes,
            oldest_unfinished_ms: topic.age_ms(now, topic.oldest()),
            shard: self.options.shard.0,
            unclaimed_dropped_count: topic.unclaimed_dropped_count(),
            dedup: topic.dedup_stats(),
            keys: topic.key_stats(now),
            meter: topic.meter_report(),
            paused: topic.paused,
            pause: pause_stats(topic.pause.as_deref()),
            e2e_processing_latency: self.latency_stats(now, all()),
            undo: topic.undo.as_ref().map(|undo| undo_stats(topic, undo)),
            log: filter.include_logs.then(|| log_figures(&topic.log)),
        };
        self.pump_later(key);
        stats
    }

    /// Returns the number of topics of this shard.
    pub fn topics_count(&self) -> usize {
        self.topics.len()
    }

    fn latency_stats<'a>(
        &self,
        now: Now,
        channels: impl Iterator<Item = &'a Channel>,
    ) -> LatencyStats {
        let options = self.options.topic.latency.as_ref();
        let latencies = channels.filter_map(|channel| channel.latency.as_deref());
        latency::stats(now.mono, options, latencies)
    }

    fn channel_stats(
        &self,
        now: Now,
        (topic, channel): (&Topic, &Channel),
        filter: &StatsFilter,
        backend: &impl Fn(u64, bool) -> u64,
    ) -> ChannelStats {
        let consumers = match filter.include_clients {
            true => channel.consumers.as_slice(),
            false => &[],
        };
        let clients = consumers.iter().map(|id| client_stats(&self.clients[*id]));
        ChannelStats {
            channel_name: channel.name.to_string(),
            depth: channel.depth(),
            backend_depth: backend(channel.depth(), channel.ephemeral),
            in_flight_count: channel.in_flight_count(),
            deferred_count: channel.deferred_count(),
            message_count: channel.counters.message_count,
            zone_local_msg_count: channel.counters.deliveries[Locality::Zone as usize],
            region_local_msg_count: channel.counters.deliveries[Locality::Region as usize],
            global_msg_count: channel.counters.deliveries[Locality::Global as usize],
            requeue_count: channel.counters.requeue_count,
            timeout_count: channel.counters.timeout_count,
            oldest_unfinished_ms: topic.age_ms(now, channel.oldest()),
            dead_letters: channel.dead_letters.as_ref().map(|dead| DeadLetterStats {
                topic: dead.to().to_string(),
                count: dead.moved_count(),
                waiting_count: dead.count(),
            }),
            client_count: channel.consumers.len() as u64,
            clients: clients.collect(),
            paused: channel.paused,
            pause: pause_stats(channel.pause.as_deref()),
            undo: channel.undo.as_ref().map(|undo| undo_stats(topic, undo)),
            e2e_processing_latency: self.latency_stats(now, std::iter::once(channel)),
            e2e_histogram: channel
                .latency
                .as_ref()
                .filter(|_| filter.include_histograms)
                .and_then(|latency| latency.since_start()),
        }
    }

    /// The durable topics and channels, for nsqd.dat; those that are set aside stay as they are listed there.
    pub fn durable_topics(&self) -> Vec<TopicFacts> {
        let set_aside = self.set_aside.values();
        let set_aside = set_aside.filter_map(|aside| aside.listed.as_ref());
        let topics = self.by_name.values().map(|key| &self.topics[*key]);
        topics
            .filter(|topic| !topic.ephemeral)
            .map(|topic| TopicFacts {
                name: topic.name.to_string(),
                paused: topic.paused,
                channels: topic
                    .channels()
                    .filter(|(_, channel)| !channel.ephemeral)
                    .map(|(_, channel)| ChannelFacts {
                        name: channel.name.to_string(),
                        paused: channel.paused,
                    })
                    .collect(),
            })
            .chain(set_aside.cloned())
            .collect()
    }

    /// Returns the names of the topics, in no order. Topics that are set aside are not among them.
    pub fn topic_names(&self) -> Vec<String> {
        let topics = self.by_name.values().map(|key| &self.topics[*key]);
        topics.map(|topic| topic.name.to_string()).collect()
    }

    /// Every topic and channel that is there, as if it came now.
    pub fn changes_so_far(&self) -> Vec<Change> {
        let topics = self.by_name.values().map(|key| &self.topics[*key]);
        topics
            .flat_map(|topic| {
                let channels = topic.channels().map(|(_, channel)| channel);
                let channels = channels.map(|c| Change::channel(&topic.name, &c.name, true));
                std::iter::once(Change::topic(&topic.name, true)).chain(channels)
            })
            .collect()
    }

    /// Returns why a topic of this shard cannot be published to, if there is such a topic: its log takes no messages,
    /// or the topic is set aside. Cheap enough for every turn.
    pub fn health(&self) -> Option<&Arc<str>> {
        let mut topics = self.unhealthy.iter().map(|key| &self.topics[*key]);
        let reason = topics.find_map(|topic| topic.log.health());
        reason.or_else(|| self.set_aside.values().next().map(|aside| &aside.cause))
    }

    /// The logs of this shard with their topics' names, for the simulation of the disk.
    pub fn logs(&self) -> impl Iterator<Item = (&str, &diskq_log::Log)> {
        let topics = self.topics.values();
        topics.map(|topic| (&*topic.name, &topic.log))
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

fn log_figures(log: &Log) -> LogFigures {
    let stats = log.stats();
    LogFigures {
        disk_bytes: stats.bytes_on_disk,
        memory_bytes: stats.resident_bytes,
        segment_count: stats.segments.into(),
        cold_segment_count: stats.cold_segments.into(),
        damaged_count: stats.damaged_count,
        sync_count: stats.sync_count,
        sync_time: stats.sync_time,
    }
}

fn client_stats(client: &Client) -> ClientStats {
    let tls = client.session.tls.as_deref().cloned().unwrap_or_default();
    let grants = client.session.auth.as_ref().map(|auth| &auth.grants);
    ClientStats {
        client_id: client.session.client_id.clone(),
        hostname: client.session.hostname.clone(),
        remote_address: client.address.clone(),
        state: client.session.state as u8,
        ready_count: u64::from(client.consumer.ready_count),
        in_flight_count: u64::from(client.consumer.in_flight),
        message_count: client.consumer.message_count,
        finish_count: client.consumer.finish_count,
        requeue_count: client.consumer.requeue_count,
        connect_ts: client.connected_at,
        sample_rate: client.consumer.settings.sample_rate,
        deflate: matches!(client.session.compression, Some(GrantedUpgrade::Deflate(_))),
        snappy: client.session.compression == Some(GrantedUpgrade::Snappy),
        user_agent: client.session.user_agent.clone(),
        authed: client.session.has_grants(),
        auth_identity: grants.map_or("", |grants| &grants.identity).to_owned(),
        auth_identity_url: grants.map_or("", |grants| &grants.identity_url).to_owned(),
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
        tls: client.session.tls.is_some(),
        tls_cipher_suite: tls.cipher_suite,
        tls_version: tls.version,
    }
}
