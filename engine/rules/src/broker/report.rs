//! The broker's reports about itself, for /stats, /ping and nsqd.dat.

use super::Broker;
use super::admin::AdminError;
use crate::channel::Channel;
use crate::client::Client;
use crate::client::consumer::Locality;
use crate::ids::{ClientId, TopicKey};
use crate::latency;
use crate::output::Change;
use crate::pause::PauseUnderWay;
use crate::peek::{
    Candidate, CandidateState, LogEnd, PeekBudget, PeekFrom, PeekQuestion, PeekSlice, PeekState,
    PeekedFrame, PeekedMessage,
};
use crate::stats::{
    ChannelStats, ClientStats, DeadLetterStats, DividedTopic, LatencyStats, LogFigures, PauseStats,
    ProtocolVersion, PubCount, StatsFilter, StatsSnapshot, TopicStats, UndoStats,
    UnfinishedSnapshot,
};
use crate::topic::Topic;
use crate::undo::Undo;
use diskq_log::{ChannelFacts, Log, Look, Now, TopicFacts};
use std::sync::Arc;
use std::time::Duration;
use wire::id::{MessageId, Seq};
use wire::identify::GrantedUpgrade;

/// Topics, channels and connections in a slice of a snapshot. They take about 0.1 ms.
const SLICE_ENTRIES: usize = 128;

/// The channels that a slice of a snapshot has got of a topic.
#[derive(Default)]
struct AddedChannels {
    /// Their number, with those that are not wanted.
    channels: usize,
    /// The entries of their consumers.
    consumers: usize,
    /// The consumers that the last channel lacks, the next one last.
    consumers_left: Vec<ClientId>,
}

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
            ..UnfinishedSnapshot::default()
        }
    }

    /// Adds topics to a snapshot, until they have some hundred channels and consumers. A topic that has more itself is
    /// divided, and so are the consumers of a channel. The producers come after the last topic. Returns true when the
    /// snapshot is complete. What was deleted or closed in the meantime is left out. A new topic is left out, too.
    pub fn continue_snapshot(
        &mut self,
        now: Now,
        filter: &StatsFilter,
        unfinished: &mut UnfinishedSnapshot,
    ) -> bool {
        self.now = now;
        let mut entries = 0;
        while entries < SLICE_ENTRIES {
            let entries_left = SLICE_ENTRIES - entries;
            let topics = &mut unfinished.snapshot.topics;
            let last_channel = topics.last_mut().and_then(|it| it.channels.last_mut());
            if !unfinished.consumers.is_empty()
                && let Some(channel) = last_channel
            {
                let consumers = &mut unfinished.consumers;
                let clients = channel.clients.get_or_insert_default();
                entries += self.add_clients(consumers, clients, entries_left);
                continue;
            }
            let divided = unfinished.divided.take();
            let Some(mut topic) = divided.or_else(|| self.begin_topic(filter, unfinished)) else {
                let wanted = || self.producers(filter);
                let producers = unfinished.producers.get_or_insert_with(wanted);
                let added = &mut unfinished.snapshot.producers;
                entries += self.add_clients(producers, added, entries_left);
                if producers.is_empty() {
                    return true;
                }
                continue;
            };
            let Some(stats) = unfinished.snapshot.topics.last_mut() else {
                unreachable!("the topic was begun");
            };
            if !self.topics.contains_key(topic.key) {
                unfinished.snapshot.topics.pop();
                continue;
            }
            // A topic that fits into a slice is not divided, even if the slice has others.
            let added = self.add_channels(filter, &mut topic, stats);
            unfinished.consumers = added.consumers_left;
            entries += 1 + added.channels + added.consumers;
            if added.channels == SLICE_ENTRIES || !unfinished.consumers.is_empty() {
                unfinished.divided = Some(topic);
            } else {
                stats.e2e_processing_latency = latency::stats_of_sum(
                    self.options.topic.latency.as_ref(),
                    topic.latency.as_ref(),
                );
            }
        }
        false
    }

    /// Adds the next topic to a snapshot, without its channels. Returns `None` if no topic is left.
    fn begin_topic(
        &mut self,
        filter: &StatsFilter,
        unfinished: &mut UnfinishedSnapshot,
    ) -> Option<DividedTopic> {
        loop {
            let key = unfinished.topics.pop()?;
            if self.topics.contains_key(key) {
                unfinished
                    .snapshot
                    .topics
                    .push(self.topic_stats(key, filter));
                return Some(DividedTopic {
                    key,
                    after: None,
                    latency: None,
                });
            }
        }
    }

    /// Adds the next channels of a topic, a slice at most, as far as they are wanted. Ends at a channel whose consumers do not
    /// fit into a slice.
    fn add_channels(
        &mut self,
        filter: &StatsFilter,
        divided: &mut DividedTopic,
        stats: &mut TopicStats,
    ) -> AddedChannels {
        let topic = &mut self.topics[divided.key];
        let ids = topic
            .channels
            .after(divided.after.as_deref(), SLICE_ENTRIES);
        for id in &ids {
            topic.channels[*id].drop_finished();
        }
        let topic = &self.topics[divided.key];
        let mut added = AddedChannels::default();
        for id in ids {
            let channel = &topic.channels[id];
            divided.after = Some(channel.name.clone());
            added.channels += 1;
            if let Some(latency) = &channel.latency {
                latency.add_to(self.now.mono, divided.latency.get_or_insert_default());
            }
            if !filter.wants_channel(&channel.name) {
                continue;
            }
            let mut of_channel = self.channel_stats((topic, channel), filter);
            if filter.include_clients {
                let mut left: Vec<ClientId> = channel.consumers.all.iter().rev().copied().collect();
                let entries_left = SLICE_ENTRIES.saturating_sub(added.consumers);
                let clients = of_channel.clients.insert(Vec::new());
                added.consumers += self.add_clients(&mut left, clients, entries_left);
                added.consumers_left = left;
            }
            stats.channels.push(of_channel);
            if !added.consumers_left.is_empty() {
                break;
            }
        }
        added
    }

    /// Returns the connections that have published, the last one first, if connections are wanted.
    fn producers(&self, filter: &StatsFilter) -> Vec<ClientId> {
        if !filter.include_clients {
            return Vec::new();
        }
        let clients = self.clients.iter();
        let producers = clients.filter(|(_, client)| !client.producer.pub_counts.is_empty());
        let mut ids: Vec<ClientId> = producers.map(|(id, _)| id).collect();
        ids.reverse();
        ids
    }

    /// Adds connections from the end of `left`, until they are about `entries_max` entries. Leaves out those that are closed
    /// by now. Returns the entries.
    fn add_clients(
        &self,
        left: &mut Vec<ClientId>,
        added: &mut Vec<ClientStats>,
        entries_max: usize,
    ) -> usize {
        let mut entries = 0;
        while entries < entries_max
            && let Some(id) = left.pop()
        {
            if let Some(client) = self.clients.get(id) {
                entries += 1 + client.producer.pub_counts.len();
                added.push(client_stats(client));
            }
        }
        entries
    }

    /// Returns the figures of a topic, without its channels.
    fn topic_stats(&mut self, key: TopicKey, filter: &StatsFilter) -> TopicStats {
        let topic = &mut self.topics[key];
        topic.distribute(self.now, &self.clients, &mut self.work);
        let topic = &self.topics[key];
        let gate = topic.gate.as_ref();
        let (numbers, keys) = gate.map_or((None, None), |gate| gate.stats(self.now));
        let stats = TopicStats {
            topic_name: topic.name.to_string(),
            channels: Vec::new(),
            depth: topic.depth(),
            backend_depth: self.backend_depth(topic.depth(), topic.ephemeral),
            message_count: topic.counters.totals.messages,
            message_bytes: topic.counters.totals.body_bytes,
            refused_count: topic.counters.refused_count,
            oldest_unfinished_ms: topic.age_ms(self.now, topic.oldest()),
            shard: self.options.shard.0,
            unclaimed_dropped_count: topic.unclaimed_dropped_count(),
            numbers,
            keys,
            paused: topic.pause.is_some(),
            pause: pause_stats(topic.pause.as_deref()),
            e2e_processing_latency: LatencyStats::default(),
            undo: topic.undo.as_ref().map(|undo| undo_stats(topic, undo)),
            log: filter.include_logs.then(|| log_figures(&topic.log)),
        };
        self.pump_later(key);
        stats
    }

    /// Returns the part of a depth that nsqd would have on disk.
    fn backend_depth(&self, depth: u64, is_ephemeral: bool) -> u64 {
        if is_ephemeral {
            0
        } else {
            depth.saturating_sub(self.options.topic.mem_queue_size)
        }
    }

    /// Returns the number of topics of this shard.
    pub fn topics_count(&self) -> usize {
        self.topics.len()
    }

    /// Returns the figures of a channel, without its consumers.
    fn channel_stats(
        &self,
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
            backend_depth: self.backend_depth(channel.depth(), channel.ephemeral),
            in_flight_count: channel.in_flight_count(),
            deferred_count: channel.deferred_count(),
            message_count: channel.counters.message_count,
            zone_local_msg_count: channel.counters.deliveries[Locality::Zone as usize],
            region_local_msg_count: channel.counters.deliveries[Locality::Region as usize],
            global_msg_count: channel.counters.deliveries[Locality::Global as usize],
            requeue_count: channel.counters.requeue_count,
            timeout_count: channel.counters.timeout_count,
            oldest_unfinished_ms: topic.age_ms(self.now, oldest),
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
                self.now.mono,
                self.options.topic.latency.as_ref(),
                channel.latency.as_deref(),
            ),
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
                paused: topic.pause.is_some(),
                channels: topic
                    .channels
                    .iter()
                    .filter(|(_, channel)| !channel.ephemeral)
                    .map(|(_, channel)| ChannelFacts {
                        name: channel.name.to_string(),
                        paused: channel.pause.is_some(),
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

    /// Every topic and channel that is there and not withdrawn by a drain, as if it came now.
    pub fn changes_so_far(&self) -> Vec<Change> {
        let topics = self.by_name.values().map(|key| &self.topics[*key]);
        topics
            .filter(|topic| !topic.is_withdrawn)
            .flat_map(|topic| {
                let channels = topic.channels.iter().map(|(_, channel)| channel);
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
        version: ProtocolVersion::V2,
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
        tls_negotiated_protocol: "",
        tls_negotiated_protocol_is_mutual: client.session.tls.is_some(),
    }
}

/// Peeks: slices of a channel's or topic's messages. A peek changes nothing: it borrows the broker only to read.
impl Broker {
    /// Returns a slice of messages. The cost is bounded by the question's budget.
    ///
    /// # Errors
    /// There is no such topic or channel.
    pub fn peek(&self, now: Now, question: &PeekQuestion) -> Result<PeekSlice, AdminError> {
        let topic = self.peeked_topic(&question.topic)?;
        let PeekQuestion {
            from,
            place,
            budget,
            ..
        } = question;
        let candidates = match &question.channel {
            None => topic.candidates(*from, *place, budget),
            Some(name) => {
                let id = topic
                    .channels
                    .find(name)
                    .ok_or(AdminError::ChannelNotFound)?;
                topic.channels[id].candidates(*from, *place, budget)
            }
        };
        let mut slice = PeekSlice {
            next: candidates.next,
            passed: candidates.passed,
            log_end: matches!(from, PeekFrom::Published { .. }).then(|| self.log_end(topic)),
            ..PeekSlice::default()
        };
        let found = &candidates.found;
        let frames = frames_within(topic, found.iter().map(|candidate| candidate.seq), budget);
        for (candidate, frame) in found.iter().zip(frames) {
            slice.messages.push(self.peeked(now, candidate, frame));
        }
        let count = slice.messages.len();
        if count < found.len()
            && let Some(last) = found[..count].last()
        {
            slice.next = Some(last.next);
            slice.passed = last.passed;
        }
        Ok(slice)
    }

    /// Returns where messages are now, because they were not where an earlier peek has found them. The result is shorter
    /// than `seqs` if the bytes of the budget end before.
    ///
    /// # Errors
    /// There is no such topic any more.
    pub fn peek_again(
        &self,
        topic: &str,
        seqs: &[Seq],
        budget: &PeekBudget,
    ) -> Result<Vec<PeekedFrame>, AdminError> {
        let topic = self.peeked_topic(topic)?;
        Ok(frames_within(topic, seqs.iter().copied(), budget).collect())
    }

    fn peeked_topic(&self, name: &str) -> Result<&Topic, AdminError> {
        if let Some(aside) = self.set_aside.get(name) {
            return Err(AdminError::SetAside(aside.cause.clone()));
        }
        let key = self.by_name.get(name).ok_or(AdminError::TopicNotFound)?;
        Ok(&self.topics[*key])
    }

    fn log_end(&self, topic: &Topic) -> LogEnd {
        let newest = Seq(topic.log.next_seq().0.saturating_sub(1));
        LogEnd {
            newest,
            newest_id: MessageId::new(newest, self.options.topic.log.node),
            message_count: topic.counters.totals.messages,
            first: topic.counters.first_seq,
        }
    }

    fn peeked(&self, now: Now, candidate: &Candidate, frame: PeekedFrame) -> PeekedMessage {
        let state = match candidate.state {
            CandidateState::Waiting => PeekState::Waiting,
            CandidateState::Requeued => PeekState::Requeued,
            CandidateState::Published { is_finished } => PeekState::Published { is_finished },
            CandidateState::DeferredFor(ms) => PeekState::DeferredFor(ms),
            CandidateState::Due(due) => PeekState::DeferredUntil(unix_ns(now, due)),
            CandidateState::InFlight(entry) => {
                let client = self.clients.get(entry.owner);
                let names = |client: &crate::client::Client| {
                    (client.address.clone(), client.session.client_id.clone())
                };
                PeekState::InFlight {
                    client: client.map(names),
                    since_ns: unix_ns(now, entry.delivered),
                    until_ns: unix_ns(now, entry.deadline),
                }
            }
        };
        PeekedMessage {
            seq: candidate.seq,
            id: MessageId::new(candidate.seq, self.options.topic.log.node),
            attempts: candidate.attempts,
            state,
            frame,
            next: candidate.next,
        }
    }
}

/// Returns the frames of messages until the bytes of the budget end. The first one comes in any case.
fn frames_within(
    topic: &Topic,
    seqs: impl Iterator<Item = Seq>,
    budget: &PeekBudget,
) -> impl Iterator<Item = PeekedFrame> {
    let mut left = None;
    seqs.map_while(move |seq| {
        let frame = frame_of(topic, seq, budget);
        let bytes = frame.copied_bytes();
        let room = left.unwrap_or(budget.bytes_max.max(bytes));
        left = Some(room.checked_sub(bytes)?);
        Some(frame)
    })
}

fn frame_of(topic: &Topic, seq: Seq, budget: &PeekBudget) -> PeekedFrame {
    match topic.log.look(seq) {
        Look::Frame(frame) => {
            let copied = &frame[..frame.len().min(budget.frame_bytes_max)];
            PeekedFrame::Copied(copied.to_vec(), frame.len())
        }
        Look::Cold(cold) => PeekedFrame::Cold(cold),
        Look::Damaged => PeekedFrame::Damaged,
        Look::Gone => PeekedFrame::Gone,
    }
}

/// Returns the Unix time of a moment on the monotonic clock, in nanoseconds.
fn unix_ns(now: Now, at: Duration) -> u64 {
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    match at.checked_sub(now.mono) {
        Some(until) => now.wall_ns.saturating_add(nanos(until)),
        None => now.wall_ns.saturating_sub(nanos(now.mono - at)),
    }
}
