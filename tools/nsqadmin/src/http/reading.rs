//! The endpoints that read figures.

use ::http::StatusCode;
use jiff::Timestamp;
use wire::go_json::to_string;
use wire::json_object;

use super::endpoint::Read;
use super::{App, Reply, Request};
use crate::cluster::Stats;
use crate::figures::{ChannelFigures, channel_total, topic_total, topics_of_node};
use crate::graphite;
use crate::outcome::{Refusal, Warnings};
use crate::upstream;

impl App {
    /// Answers an endpoint that reads figures.
    pub(super) async fn read(
        &self,
        read: Read,
        segments: &[String],
        request: &Request,
    ) -> Result<Reply, Refusal> {
        let warnings = &mut Warnings::default();
        match read {
            Read::Topics => self.read_topics(request, warnings).await,
            Read::Topic => self.read_topic(&segments[0], warnings).await,
            Read::Channel => {
                self.read_channel(&segments[0], &segments[1], warnings)
                    .await
            }
            Read::Nodes => self.read_nodes(warnings).await,
            Read::Node => self.read_node(&segments[0], warnings).await,
            Read::Counter => self.read_counter(warnings).await,
            Read::Abilities => self.read_abilities(request, warnings).await,
            Read::Disk => self.read_disk(&segments[0], &segments[1], warnings).await,
        }
    }

    async fn read_topics(
        &self,
        request: &Request,
        warnings: &mut Warnings,
    ) -> Result<Reply, Refusal> {
        if request.parsed_query()?.get("inactive") == Some("true") {
            let topics = self.cluster.inactive_topics(warnings).await?;
            return Ok(Reply::object(warnings, json_object! { topics }));
        }
        let topics = self.cluster.topics(warnings).await?;
        Ok(Reply::object(warnings, json_object! { topics }))
    }

    async fn read_topic(&self, topic: &str, warnings: &mut Warnings) -> Result<Reply, Refusal> {
        let place = self.cluster.place(topic, warnings).await?;
        let wanted = Stats {
            topic,
            ..Stats::default()
        };
        let stats = self.cluster.stats(place.targets, wanted, warnings).await?;
        let total = topic_total(&stats, topic);
        let is_held = total.nodes.as_ref().is_some_and(|nodes| !nodes.is_empty());
        if !is_held && !self.cluster.is_lookup_mode() && warnings.is_empty() {
            return Err(Refusal::not_found("TOPIC_NOT_FOUND"));
        }
        Ok(Reply::object(warnings, total))
    }

    async fn read_channel(
        &self,
        topic: &str,
        channel: &str,
        warnings: &mut Warnings,
    ) -> Result<Reply, Refusal> {
        let place = self.cluster.place(topic, warnings).await?;
        let is_known = place.channels.contains(channel);
        let wanted = Stats {
            topic,
            channel,
            has_clients: true,
            ..Stats::default()
        };
        let stats = self.cluster.stats(place.targets, wanted, warnings).await?;
        let total = match channel_total(&stats, topic, channel, Timestamp::now().as_second()) {
            Some(total) => total,
            None if is_known || !warnings.is_empty() => {
                ChannelFigures::total(topic, channel, Vec::new())
            }
            None => return Err(Refusal::not_found("CHANNEL_NOT_FOUND")),
        };
        Ok(Reply::object(warnings, total))
    }

    async fn read_nodes(&self, warnings: &mut Warnings) -> Result<Reply, Refusal> {
        let nodes = self.cluster.nodes(true, warnings).await?;
        Ok(Reply::object(warnings, json_object! { nodes }))
    }

    async fn read_node(&self, address: &str, warnings: &mut Warnings) -> Result<Reply, Refusal> {
        let stats = self.cluster.node_stats(address, warnings).await?;
        let stats = stats.ok_or_else(|| Refusal::not_found("NODE_NOT_FOUND"))?;
        let topics = topics_of_node(&stats, Timestamp::now().as_second());
        let messages = topics.iter().map(|topic| topic.message_count);
        let messages = messages.fold(0_i64, i64::saturating_add);
        let channels = topics.iter().flat_map(|topic| &topic.channels);
        let clients: usize = channels
            .map(|channel| channel.clients.as_ref().map_or(0, Vec::len))
            .sum();
        let node = json_object! {
            node: address,
            topics,
            total_messages: messages,
            total_clients: clients,
        };
        Ok(Reply::object(warnings, node))
    }

    async fn read_counter(&self, warnings: &mut Warnings) -> Result<Reply, Refusal> {
        let targets = self.cluster.targets(warnings).await?;
        let stats = self
            .cluster
            .stats(targets, Stats::default(), warnings)
            .await?;
        let mut counts = std::collections::BTreeMap::new();
        for stats in &stats {
            for topic in &stats.topics {
                for channel in &topic.channels {
                    let (topic, node) = (&topic.topic_name, &stats.node.address);
                    let key = format!("{topic}:{}:{node}", channel.channel_name);
                    let count = json_object! {
                        node,
                        topic_name: topic,
                        channel_name: &channel.channel_name,
                        message_count: channel.message_count,
                    };
                    counts.insert(key, count);
                }
            }
        }
        Ok(Reply::object(warnings, json_object! { stats: counts }))
    }

    /// Answers `/api/abilities?topic=T`: what the nodes of a topic can do, or all nodes without a topic.
    async fn read_abilities(
        &self,
        request: &Request,
        warnings: &mut Warnings,
    ) -> Result<Reply, Refusal> {
        let query = request.parsed_query()?;
        let targets = match query.get("topic").unwrap_or_default() {
            "" => self.cluster.targets(warnings).await?,
            topic => self.cluster.producers(topic, warnings).await?,
        };
        let nodes = self.cluster.abilities(&targets).await;
        warnings.add(&nodes.failures);
        let nodes = nodes.data.iter().map(|(target, abilities)| {
            json_object! {
                node: &target.identity.address,
                pause_terms: abilities.has_undo,
                undo: abilities.has_undo,
                topic_undo: abilities.has_topic_undo,
            }
        });
        let nodes: Vec<_> = nodes.collect();
        Ok(Reply::object(warnings, json_object! { nodes }))
    }

    /// Answers `/api/disk/T/C`: what the channel keeps on the disk of each node, and who else keeps it. A node that does
    /// not tell it is left out.
    async fn read_disk(
        &self,
        topic: &str,
        channel: &str,
        warnings: &mut Warnings,
    ) -> Result<Reply, Refusal> {
        let place = self.cluster.place(topic, warnings).await?;
        let wanted = Stats {
            topic,
            channel,
            has_disk: true,
            ..Stats::default()
        };
        let targets = place.targets;
        let stats = self.cluster.stats(targets, wanted, warnings).await?;
        let channels = stats.iter().flat_map(|stats| {
            let topics = stats.topics.iter();
            let topics = topics.filter(|it| it.topic_name == topic);
            let channels = topics.flat_map(|it| &it.channels);
            let channels = channels.filter(|it| it.channel_name == channel);
            channels.map(|it| (&stats.node.address, it))
        });
        let nodes = channels.filter_map(|(node, channel)| {
            Some(json_object! {
                node,
                bytes: channel.disk_bytes?,
                alone_bytes: channel.disk_alone_bytes,
                shared_with: &channel.disk_shared_with,
                shared_count: channel.disk_shared_count,
                shared_with_topic: channel.disk_shared_with_topic,
            })
        });
        let nodes: Vec<_> = nodes.collect();
        Ok(Reply::object(warnings, json_object! { nodes }))
    }

    /// Answers `/api/graphite`.
    pub(super) async fn rate(&self, request: &Request) -> Result<Reply, Refusal> {
        let query = request.parsed_query();
        let query = query.map_err(|_| Refusal::bad("INVALID_REQUEST"))?;
        if query.get("metric") != Some("rate") {
            return Err(Refusal::bad("INVALID_ARG_METRIC"));
        }
        let target = query
            .get("target")
            .ok_or_else(|| Refusal::bad("INVALID_ARG_TARGET"))?;
        let failed = |why: String| {
            program::log_error!("graphite request failed - {why}");
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR")
        };
        if self.config.graphite.url.is_empty() {
            return Err(failed("--graphite-url is not set".to_owned()));
        }
        let url = graphite::rate_url(
            &self.config.graphite.url,
            target,
            self.config.graphite.interval,
        );
        let response = self.graphite_client.get(&url).send().await;
        let response = response.map_err(|error| failed(upstream::reason(&url, &error)))?;
        if response.status() != StatusCode::OK {
            return Err(failed(format!("got response {}", response.status())));
        }
        let body = super::site::read_up_to(response, self.config.answer_bytes_max).await;
        let rate = graphite::rate(&body.map_err(failed)?, self.config.graphite.interval);
        let rate = rate.map_err(failed)?;
        Ok(Reply::json(to_string(&json_object! { rate })))
    }
}
