//! The topics of a cluster, and the nsqds that have them.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::FutureExt;
use nsq_http::{Lookup, query};

use super::nodes::identity_of;
use super::{Asked, Cluster, Stats, Target, gather};
use crate::figures::NodeIdentity;
use crate::node::Node;
use crate::outcome::{Gathered, Refusal, Warnings};
use crate::upstream::{Failed, Server};

/// The place of a topic in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The nsqds that have the topic. In direct mode, all nsqds.
    pub targets: Vec<Target>,
    /// The channels that the nsqlookupds know.
    pub channels: BTreeSet<String>,
}

impl Cluster {
    /// Returns the names of all topics, sorted.
    ///
    /// # Errors
    /// No server answered.
    pub async fn topics(&self, warnings: &mut Warnings) -> Result<BTreeSet<String>, Refusal> {
        if !self.is_lookup_mode() {
            let targets = self.targets_given();
            if targets.is_empty() {
                return Err(Refusal::upstream("failed to query any nsqd: "));
            }
            let stats = self.stats(targets, Stats::default(), warnings).await?;
            let topics = stats.into_iter().flat_map(|stats| stats.topics);
            return Ok(topics.map(|topic| topic.topic_name).collect());
        }
        let answers = self.ask_lookupds("/topics").await.into_iter();
        let answers: Gathered<Lookup> = answers.map(|(_, answer)| answer).collect();
        let answers = answers.or_refuse(Server::Nsqlookupd, warnings)?.into_iter();
        Ok(answers.flat_map(|answer| answer.topics).collect())
    }

    /// Returns the nsqds of direct mode as targets, without their identities.
    fn targets_given(&self) -> Vec<Target> {
        let targets = self.nsqds.iter().map(|address| Target {
            identity: NodeIdentity::at(address),
            url: format!("http://{address}"),
            is_given: true,
            other_addresses: Vec::new(),
        });
        targets.collect()
    }

    /// Returns the topics that no nsqd has, each with the channels that the nsqlookupds know. In
    /// direct mode there are none.
    ///
    /// # Errors
    /// No nsqlookupd answered.
    pub async fn inactive_topics(
        &self,
        warnings: &mut Warnings,
    ) -> Result<BTreeMap<String, BTreeSet<String>>, Refusal> {
        if !self.is_lookup_mode() {
            return Ok(BTreeMap::new());
        }
        let lookupds = self.lookupds();
        let requests = lookupds.iter().map(|lookupd| -> Asked<_> {
            let upstream = self.upstream.clone();
            let topics = format!("http://{lookupd}/topics");
            let nodes = format!("http://{lookupd}/nodes");
            async move {
                let topics: Lookup = upstream.get(Server::Nsqlookupd, &topics).await?;
                let nodes: Lookup = upstream.get(Server::Nsqlookupd, &nodes).await?;
                Ok((topics.topics, nodes.producers))
            }
            .boxed()
        });
        let answers = gather(requests.collect()).await;
        let answers = answers.or_refuse(Server::Nsqlookupd, warnings)?;
        let mut topics = BTreeSet::new();
        let mut active = BTreeSet::new();
        for (known, producers) in answers {
            topics.extend(known);
            let nodes = producers.iter().map(Node::of_producer);
            let flags = nodes.flat_map(|node| node.topics);
            let there = flags.filter(|(_, is_tombstoned)| !is_tombstoned);
            active.extend(there.map(|(topic, _)| topic));
        }
        topics.retain(|topic| !active.contains(topic));
        let mut requests: Vec<Asked<_>> = Vec::new();
        for topic in &topics {
            for lookupd in &lookupds {
                let (upstream, topic) = (self.upstream.clone(), topic.clone());
                let url = format!("http://{lookupd}/channels{}", query(&[("topic", &topic)]));
                let asked = async move {
                    let answer: Lookup = upstream.get(Server::Nsqlookupd, &url).await?;
                    Ok((topic, answer.channels))
                };
                requests.push(asked.boxed());
            }
        }
        // An nsqlookupd that does not answer has a warning already.
        let answers = gather(requests).await.data;
        let mut inactive: BTreeMap<String, BTreeSet<String>> = topics
            .iter()
            .map(|topic| (topic.clone(), BTreeSet::new()))
            .collect();
        for (topic, channels) in answers {
            inactive.entry(topic).or_default().extend(channels);
        }
        Ok(inactive)
    }

    /// Finds the nsqds of a topic.
    ///
    /// # Errors
    /// No nsqlookupd knows the topic (404), or no server answered.
    pub async fn place(&self, topic: &str, warnings: &mut Warnings) -> Result<Place, Refusal> {
        if !self.is_lookup_mode() {
            return Ok(Place {
                targets: self.targets(warnings).await?,
                channels: BTreeSet::new(),
            });
        }
        let path = format!("/lookup{}", query(&[("topic", topic)]));
        let answers = self.ask_lookupds(&path).await.into_iter();
        let answers: Gathered<Lookup> = answers.map(|(_, answer)| answer).collect();
        let is_unknown = |failed: &Failed| {
            let refused = failed.refused.as_ref();
            refused.is_some_and(|refused| refused.code == "TOPIC_NOT_FOUND")
        };
        let mut failures = answers.failures.iter();
        let has_failed = answers.data.is_empty() && !answers.failures.is_empty();
        if has_failed && failures.all(is_unknown) {
            return Err(Refusal::not_found("TOPIC_NOT_FOUND"));
        }
        let answers = answers.or_refuse(Server::Nsqlookupd, warnings)?;
        let producers = answers.iter().flat_map(|answer| &answer.producers);
        let targets = self.targets_of(producers.map(identity_of), warnings);
        let channels = answers.into_iter().flat_map(|answer| answer.channels);
        Ok(Place {
            targets,
            channels: channels.collect(),
        })
    }

    /// Finds the nsqds that have a topic now. In direct mode, all nsqds are asked.
    ///
    /// # Errors
    /// No server knows the topic (404), or no server answered.
    pub async fn producers(
        &self,
        topic: &str,
        warnings: &mut Warnings,
    ) -> Result<Vec<Target>, Refusal> {
        Ok(self.place_of_producers(topic, warnings).await?.targets)
    }

    /// Does the same, and also returns the channels that the nsqlookupds know.
    ///
    /// # Errors
    /// No server knows the topic (404), or no server answered.
    pub(super) async fn place_of_producers(
        &self,
        topic: &str,
        warnings: &mut Warnings,
    ) -> Result<Place, Refusal> {
        let mut place = self.place(topic, warnings).await?;
        if self.is_lookup_mode() {
            return Ok(place);
        }
        let wanted = Stats {
            topic,
            ..Stats::default()
        };
        let stats = self.stats(place.targets.clone(), wanted, warnings).await?;
        let has_topic = |target: &Target| {
            stats.iter().any(|stats| {
                stats.node == target.identity
                    && stats.topics.iter().any(|given| given.topic_name == topic)
            })
        };
        place.targets.retain(has_topic);
        if place.targets.is_empty() && warnings.is_empty() {
            Err(Refusal::not_found("TOPIC_NOT_FOUND"))
        } else {
            Ok(place)
        }
    }
}
