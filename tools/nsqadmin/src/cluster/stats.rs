//! The figures of nsqds, as they answer now.

use std::collections::BTreeSet;

use nsq_http::query;

use super::{Cluster, Refusal, Target, Warnings};
use crate::figures::{Answered, NodeStats, Now};
use crate::upstream::Server;

/// The part of `/stats` that an nsqd is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats<'a> {
    topic: &'a str,
    channel: &'a str,
    has_clients: bool,
    has_disk: bool,
}

impl<'a> Stats<'a> {
    /// Returns the figures of a topic and a channel. An empty text stands for all.
    pub fn of(topic: &'a str, channel: &'a str) -> Stats<'a> {
        Stats {
            topic,
            channel,
            ..Stats::default()
        }
    }

    /// Adds the clients.
    #[must_use]
    pub fn with_clients(mut self) -> Stats<'a> {
        self.has_clients = true;
        self
    }

    /// Adds what the channel keeps on disk.
    #[must_use]
    pub fn with_disk(mut self) -> Stats<'a> {
        self.has_disk = true;
        self
    }

    pub(super) fn path(self) -> String {
        let include_clients = if self.has_clients { "" } else { "false" };
        let include_disk = if self.has_disk { "true" } else { "" };
        let query = query(&[
            ("format", "json"),
            ("topic", self.topic),
            ("channel", self.channel),
            ("include_clients", include_clients),
            ("include_disk", include_disk),
        ]);
        format!("/stats{query}")
    }
}

impl Cluster {
    /// Asks nsqds for their figures. `targets` beyond the limit on nodes are left out with a warning.
    ///
    /// # Errors
    /// There are targets, and none of them answered.
    pub async fn stats(
        &self,
        targets: Vec<Target>,
        stats: Stats<'_>,
        warnings: &mut Warnings,
    ) -> Result<Vec<NodeStats>, Refusal> {
        if targets.is_empty() {
            return Ok(Vec::new());
        }
        let path = stats.path();
        let targets = self.within_limit(targets, warnings);
        let answers = self.gather(targets, |upstream, target| {
            let url = format!("{}{path}", target.url);
            async move {
                let answer = upstream.get::<nsq_http::Stats>(Server::Nsqd, &url).await;
                let answer = answer.map_err(|failed| target.with_advice(failed))?;
                Ok(NodeStats {
                    answered: answered_now(&answer),
                    node: target.identity,
                    topics: answer.topics,
                })
            }
        });
        answers.await.or_refuse(Server::Nsqd, warnings)
    }

    /// Asks the nsqds of a topic for their figures, and returns the channels that the nsqlookupds know, too.
    ///
    /// # Errors
    /// No nsqlookupd knows the topic (404), or no server answered.
    pub async fn stats_of_topic(
        &self,
        stats: Stats<'_>,
        warnings: &mut Warnings,
    ) -> Result<(Vec<NodeStats>, BTreeSet<String>), Refusal> {
        let place = self.place(stats.topic, warnings).await?;
        let found = self.stats(place.targets, stats, warnings).await?;
        Ok((found, place.channels))
    }

    /// Leaves targets beyond the limit on nodes out, with a warning.
    pub(super) fn within_limit(
        &self,
        mut targets: Vec<Target>,
        warnings: &mut Warnings,
    ) -> Vec<Target> {
        if targets.len() > self.nodes_max {
            let left_out = targets.len() - self.nodes_max;
            warnings.add_text(format!("{left_out} nsqds are left out (--max-nodes)"));
            targets.truncate(self.nodes_max);
        }
        targets
    }

    /// Returns the figures of one node with all its clients, and `None` for an unknown node.
    ///
    /// # Errors
    /// The node does not answer, or no server knows which nodes there are.
    pub async fn node_stats(
        &self,
        address: &str,
        warnings: &mut Warnings,
    ) -> Result<Option<NodeStats>, Refusal> {
        let mut targets = self.targets(warnings).await?;
        targets.retain(|target| target.identity.address == address);
        targets.truncate(1);
        let wanted = Stats::default().with_clients();
        let stats = self.stats(targets, wanted, warnings).await?;
        Ok(stats.into_iter().next())
    }
}

/// Returns the time of an answer that has just come.
pub(super) fn answered_now(stats: &nsq_http::Stats) -> Answered {
    Answered {
        steady_millis: Now::read().steady_millis,
        start_time: stats.start_time,
    }
}
