//! The endpoints that read figures, and the one that shows messages.

use std::collections::BTreeMap;

use ::http::StatusCode;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use wire::json_object;

use super::{App, Endpoint, Reply, Request};
use crate::cluster::{
    Cluster, Found, OWN_PARAMETERS, Obstacle, PARAMETERS, Peek, Refusal, Stats, Warnings,
};
use crate::figures::{ChannelFigures, channel_total, topic_total, topics_of_node};

/// A request for figures.
pub(super) struct Reading<'a> {
    app: &'a App,
    cluster: &'a Cluster,
    segments: &'a [String],
    request: &'a Request,
    /// The failures of servers so far.
    warnings: Warnings,
}

impl<'a> Reading<'a> {
    pub(super) fn new(app: &'a App, segments: &'a [String], request: &'a Request) -> Reading<'a> {
        Reading {
            app,
            cluster: &app.cluster,
            segments,
            request,
            warnings: Warnings::default(),
        }
    }

    /// Answers an endpoint that reads.
    pub(super) async fn answer(mut self, endpoint: Endpoint) -> Result<Reply, Refusal> {
        match endpoint {
            Endpoint::Topics => self.topics().await,
            Endpoint::Topic => self.topic().await,
            Endpoint::Channel => self.channel().await,
            Endpoint::Nodes => {
                let nodes = self.cluster.nodes(&mut self.warnings).await?;
                Ok(self.reply(json_object! { nodes }))
            }
            Endpoint::Node => self.node().await,
            Endpoint::Counter => self.counter().await,
            Endpoint::Abilities => self.abilities().await,
            Endpoint::Disk => self.disk().await,
            Endpoint::Peek => self.peek().await,
            live => match &self.app.collector {
                Some(collector) => collector.answer(live, self.segments, self.request),
                None => Err(Refusal::not_found("LIVE_DISABLED")),
            },
        }
    }

    fn reply(&self, fields: impl Serialize) -> Reply {
        Reply::object(&self.warnings, fields)
    }

    async fn topics(&mut self) -> Result<Reply, Refusal> {
        if self.request.parsed_query()?.get("inactive") == Some("true") {
            let topics = self.cluster.inactive_topics(&mut self.warnings).await?;
            return Ok(self.reply(json_object! { topics }));
        }
        let topics = self.cluster.topics(&mut self.warnings).await?;
        Ok(self.reply(json_object! { topics }))
    }

    async fn topic(&mut self) -> Result<Reply, Refusal> {
        let topic = &*self.segments[0];
        let asked = self
            .cluster
            .stats_of_topic(Stats::of(topic, ""), &mut self.warnings);
        let (stats, _) = asked.await?;
        let total = topic_total(&stats, topic);
        let is_held = total.nodes.as_ref().is_some_and(|nodes| !nodes.is_empty());
        if !is_held && !self.cluster.is_lookup_mode() && self.warnings.is_empty() {
            return Err(Refusal::not_found("TOPIC_NOT_FOUND"));
        }
        Ok(self.reply(total))
    }

    async fn channel(&mut self) -> Result<Reply, Refusal> {
        let (topic, channel) = (&*self.segments[0], &*self.segments[1]);
        let wanted = Stats::of(topic, channel).with_clients();
        let asked = self.cluster.stats_of_topic(wanted, &mut self.warnings);
        let (stats, known) = asked.await?;
        let total = match channel_total(&stats, topic, channel, Timestamp::now().as_second()) {
            Some(total) => total,
            None if known.contains(channel) || !self.warnings.is_empty() => {
                ChannelFigures::total(topic, channel, Vec::new())
            }
            None => return Err(Refusal::not_found("CHANNEL_NOT_FOUND")),
        };
        Ok(self.reply(total))
    }

    async fn node(&mut self) -> Result<Reply, Refusal> {
        let address = &*self.segments[0];
        let stats = self.cluster.node_stats(address, &mut self.warnings).await?;
        let stats = stats.ok_or_else(|| Refusal::not_found("NODE_NOT_FOUND"))?;
        let topics = topics_of_node(&stats, Timestamp::now().as_second());
        let messages = nsq_doctor::sum(topics.iter().map(|topic| topic.message_count));
        let channels = topics.iter().flat_map(|topic| &topic.channels);
        let clients = channels.flat_map(|channel| channel.clients.iter().flatten());
        let clients = clients.count();
        Ok(self.reply(json_object! {
            node: address,
            topics,
            total_messages: messages,
            total_clients: clients,
        }))
    }

    async fn counter(&mut self) -> Result<Reply, Refusal> {
        let targets = self.cluster.targets(&mut self.warnings).await?;
        let asked = self
            .cluster
            .stats(targets, Stats::default(), &mut self.warnings);
        let answers = asked.await?;
        let mut stats = BTreeMap::new();
        for answer in &answers {
            for topic in &answer.topics {
                for channel in &topic.channels {
                    let (topic, node) = (&topic.topic_name, &answer.node.address);
                    let key = format!("{topic}:{}:{node}", channel.channel_name);
                    let count = json_object! {
                        node,
                        topic_name: topic,
                        channel_name: &channel.channel_name,
                        message_count: channel.message_count,
                    };
                    stats.insert(key, count);
                }
            }
        }
        Ok(self.reply(json_object! { stats }))
    }

    /// Answers `/api/abilities?topic=T`: what the nodes of a topic can do, or all nodes without a topic.
    async fn abilities(&mut self) -> Result<Reply, Refusal> {
        let query = self.request.parsed_query()?;
        let warnings = &mut self.warnings;
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
        Ok(self.reply(json_object! { nodes }))
    }

    /// Answers `/api/disk/T/C`: what the channel keeps on the disk of each node, and who else keeps it. A node that does
    /// not tell it is left out.
    async fn disk(&mut self) -> Result<Reply, Refusal> {
        let (topic, channel) = (&*self.segments[0], &*self.segments[1]);
        let wanted = Stats::of(topic, channel).with_disk();
        let asked = self.cluster.stats_of_topic(wanted, &mut self.warnings);
        let (stats, _) = asked.await?;
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
        Ok(self.reply(json_object! { nodes }))
    }

    /// Answers `/api/peek/TOPIC` and `/api/peek/TOPIC/CHANNEL`: the messages of all nodes, or of the node
    /// that `node` names. Who may not read bodies gets everything else.
    async fn peek(&mut self) -> Result<Reply, Refusal> {
        let query = self.request.parsed_query()?;
        let is_known = |name: &str| PARAMETERS.contains(&name) || OWN_PARAMETERS.contains(&name);
        let mut given = url::form_urlencoded::parse(self.request.query().as_bytes());
        if let Some((name, _)) = given.find(|(name, _)| !is_known(name)) {
            let names = [&PARAMETERS[..], &OWN_PARAMETERS].concat().join(", ");
            return Err(Refusal::bad(format!(
                "UNKNOWN_PARAMETER: {name} is none of {names}"
            )));
        }
        let text = |name: &str| query.get(name).unwrap_or_default().to_owned();
        let peek = Peek {
            topic: self.segments[0].clone(),
            channel: self.segments.get(1).cloned().unwrap_or_default(),
            parameters: PARAMETERS.map(|name| (name, text(name))).into(),
            since: text("since"),
        };
        if !peek.has_valid_since() {
            return Err(Refusal::bad(
                "INVALID_ARG_SINCE: with from=published, since is HOST:PORT/ID for each node, separated by commas",
            ));
        }
        let access = &self.app.access;
        let bodies = access.may_read_bodies(&self.app.user(self.request));
        if !bodies && peek.looks_into_bodies() {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "FORBIDDEN_BODIES"));
        }
        let node = text("node");
        let answers = peek.ask(self.cluster, &node, &mut self.warnings).await?;
        let is_absent = |found: &Found| *found == Err(Obstacle::Absent);
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
        for answer in answers {
            if let Err(Obstacle::BadQuestion(why)) = answer.found {
                return Err(Refusal::bad(why));
            }
            nodes.push(Value::Object(answer.into_json(bodies)));
        }
        let message = self.warnings.message();
        let json = json!({ "bodies": bodies, "nodes": nodes, "message": message });
        Ok(Reply::json(json.to_string()))
    }
}
