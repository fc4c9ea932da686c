//! The endpoints that read figures, and the one that shows messages.

use std::collections::BTreeMap;

use ::http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use wire::json_object;

use super::{App, Read, Reply, Request};
use crate::cluster::{Found, OWN_PARAMETERS, Obstacle, PARAMETERS, Peek, Refusal, Stats, Warnings};
use crate::figures::{ChannelFigures, channel_total, topic_total, topics_of_node};

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
            Read::Nodes => {
                let nodes = self.cluster.nodes(warnings).await?;
                Ok(Reply::object(warnings, json_object! { nodes }))
            }
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
        let wanted = Stats::of(topic, "");
        let (stats, _) = self.cluster.stats_of_topic(wanted, warnings).await?;
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
        let wanted = Stats::of(topic, channel).with_clients();
        let (stats, known) = self.cluster.stats_of_topic(wanted, warnings).await?;
        let is_known = known.contains(channel);
        let total = match channel_total(&stats, topic, channel, Timestamp::now().as_second()) {
            Some(total) => total,
            None if is_known || !warnings.is_empty() => {
                ChannelFigures::total(topic, channel, Vec::new())
            }
            None => return Err(Refusal::not_found("CHANNEL_NOT_FOUND")),
        };
        Ok(Reply::object(warnings, total))
    }

    async fn read_node(&self, address: &str, warnings: &mut Warnings) -> Result<Reply, Refusal> {
        let stats = self.cluster.node_stats(address, warnings).await?;
        let stats = stats.ok_or_else(|| Refusal::not_found("NODE_NOT_FOUND"))?;
        let topics = topics_of_node(&stats, Timestamp::now().as_second());
        let messages = nsq_doctor::sum(topics.iter().map(|topic| topic.message_count));
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
        let mut counts = BTreeMap::new();
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
            topic => self.cluster.producers(topic, warnings).await?.targets,
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
        let wanted = Stats::of(topic, channel).with_disk();
        let (stats, _) = self.cluster.stats_of_topic(wanted, warnings).await?;
        let channels = stats.iter().flat_map(|stats| {
            let channels = stats.channels_named(topic, channel);
            channels.map(|channel| (&stats.node.address, channel))
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

    /// Answers `/api/peek/TOPIC` and `/api/peek/TOPIC/CHANNEL`: the messages of all nodes, or of the node
    /// that `node` names. Who may not read bodies gets everything else.
    pub(super) async fn peek(
        &self,
        segments: &[String],
        request: &Request,
    ) -> Result<Reply, Refusal> {
        let query = request.parsed_query()?;
        let is_known = |name: &str| PARAMETERS.contains(&name) || OWN_PARAMETERS.contains(&name);
        let mut given = url::form_urlencoded::parse(request.query().as_bytes());
        if let Some((name, _)) = given.find(|(name, _)| !is_known(name)) {
            let names = [&PARAMETERS[..], &OWN_PARAMETERS].concat().join(", ");
            return Err(Refusal::bad(format!(
                "UNKNOWN_PARAMETER: {name} is none of {names}"
            )));
        }
        let text = |name: &str| query.get(name).unwrap_or_default().to_owned();
        let peek = Peek {
            topic: segments[0].clone(),
            channel: segments.get(1).cloned().unwrap_or_default(),
            parameters: PARAMETERS.map(|name| (name, text(name))).into(),
            since: text("since"),
        };
        if !peek.has_valid_since() {
            return Err(Refusal::bad(
                "INVALID_ARG_SINCE: with from=published, since is HOST:PORT/ID for each node, separated by commas",
            ));
        }
        let user = self.user(request);
        let shows_bodies = self.access.may_read_bodies(&user);
        if !shows_bodies && peek.looks_into_bodies() {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "FORBIDDEN_BODIES"));
        }
        let mut warnings = Warnings::default();
        let node = text("node");
        let answers = self.cluster.peek(&peek, &node, &mut warnings).await?;
        let is_absent = |found: &Found| *found == Found::Nothing(Obstacle::Absent);
        if !answers.is_empty() && answers.iter().all(|answer| is_absent(&answer.found)) {
            let code = if peek.channel.is_empty() {
                "TOPIC_NOT_FOUND"
            } else {
                "CHANNEL_NOT_FOUND"
            };
            return Err(Refusal::not_found(match node.as_str() {
                "" => code.to_owned(),
                node => format!("{code}: the nsqd {node} does not have it"),
            }));
        }
        let mut nodes = Vec::new();
        for mut answer in answers {
            if let Found::Nothing(Obstacle::BadQuestion(why)) = answer.found {
                return Err(Refusal::bad(why));
            }
            if !shows_bodies {
                answer.found.mask();
            }
            let mut node = answer.found.into_json();
            node.insert("node".to_owned(), json!(answer.node.address));
            node.insert("hostname".to_owned(), json!(answer.node.hostname));
            node.insert("url".to_owned(), json!(answer.url));
            nodes.push(Value::Object(node));
        }
        let message = warnings.message();
        let json = json!({ "bodies": shows_bodies, "nodes": nodes, "message": message });
        Ok(Reply::json(json.to_string()))
    }
}
