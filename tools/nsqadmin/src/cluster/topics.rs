//! The topics of a cluster, and the nsqds that have them.

use std::collections::{BTreeMap, BTreeSet};

use nsq_http::{Lookup, query};

use super::nodes::topics_of;
use super::{Cluster, Gathered, Refusal, Stats, Target, Warnings};
use crate::figures::NodeIdentity;
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
            let targets = self.nsqds.iter();
            let targets = targets.map(|address| Target::given(NodeIdentity::at(address), address));
            let targets: Vec<Target> = targets.collect();
            if targets.is_empty() {
                return Err(Refusal::upstream("failed to query any nsqd: "));
            }
            let stats = self.stats(targets, Stats::default(), warnings).await?;
            let topics = stats.into_iter().flat_map(|stats| stats.topics);
            return Ok(topics.map(|topic| topic.topic_name).collect());
        }
        let answers = self.gather_lookups("/topics").await;
        let answers = answers.or_refuse(Server::Nsqlookupd, warnings)?.into_iter();
        Ok(answers.flat_map(|answer| answer.topics).collect())
    }

    async fn gather_lookups(&self, path: &str) -> Gathered<Lookup> {
        let answers = self.ask_lookupds(path).await.into_iter();
        answers.map(|(_, answer)| answer).collect()
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
        let answers = self.gather(&lookupds, |upstream, lookupd| {
            let [topics, nodes] = ["topics", "nodes"].map(|it| format!("http://{lookupd}/{it}"));
            async move {
                let topics: Lookup = upstream.get(Server::Nsqlookupd, &topics).await?;
                let nodes: Lookup = upstream.get(Server::Nsqlookupd, &nodes).await?;
                Ok((topics.topics, nodes.producers))
            }
        });
        let answers = answers.await.or_refuse(Server::Nsqlookupd, warnings)?;
        let mut inactive: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for topic in answers.iter().flat_map(|(topics, _)| topics) {
            inactive.entry(topic.clone()).or_default();
        }
        let flags = answers.iter().flat_map(|(_, nodes)| nodes);
        for (topic, is_tombstoned) in flags.flat_map(topics_of) {
            if !is_tombstoned {
                inactive.remove(topic);
            }
        }
        let topics = inactive.keys().cloned();
        let asked = topics.flat_map(|topic| lookupds.iter().map(move |it| (topic.clone(), it)));
        let answers = self.gather(asked, |upstream, (topic, lookupd)| {
            let url = format!("http://{lookupd}/channels{}", query(&[("topic", &topic)]));
            async move {
                let answer: Lookup = upstream.get(Server::Nsqlookupd, &url).await?;
                Ok((topic, answer.channels))
            }
        });
        // An nsqlookupd that does not answer has a warning already.
        for (topic, channels) in answers.await.data {
            inactive.entry(topic).or_default().extend(channels);
        }
        Ok(inactive)
    }

    /// Finds the nsqds of a topic.
    ///
    /// # Errors
    /// No nsqlookupd knows the topic (404), or no server answered.
    pub(super) async fn place(
        &self,
        topic: &str,
        warnings: &mut Warnings,
    ) -> Result<Place, Refusal> {
        if !self.is_lookup_mode() {
            return Ok(Place {
                targets: self.targets(warnings).await?,
                channels: BTreeSet::new(),
            });
        }
        let path = format!("/lookup{}", query(&[("topic", topic)]));
        let answers = self.gather_lookups(&path).await;
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
        let targets = self.targets_of(producers.map(NodeIdentity::of), warnings);
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
    pub async fn producers(&self, topic: &str, warnings: &mut Warnings) -> Result<Place, Refusal> {
        let mut place = self.place(topic, warnings).await?;
        if self.is_lookup_mode() {
            return Ok(place);
        }
        let wanted = Stats::of(topic, "");
        let stats = self.stats(place.targets.clone(), wanted, warnings).await?;
        place.targets.retain(|target| {
            let mut own = stats.iter().filter(|stats| stats.node == target.identity);
            own.any(|stats| stats.topics_named(topic).next().is_some())
        });
        if place.targets.is_empty() && warnings.is_empty() {
            Err(Refusal::not_found("TOPIC_NOT_FOUND"))
        } else {
            Ok(place)
        }
    }
}
