//! The actions of operators: each is carried out on nsqlookupds, on nsqds, or on both.

use futures_util::FutureExt;

use super::{Asked, Cluster, Target, gather, query, with_advice};
use crate::outcome::{Gathered, Refusal, Warnings};
use crate::upstream::Server;

/// An action on a topic, or on one of its channels if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Creates the topic, and the channel.
    Create,
    /// Deletes the topic, or only the channel.
    Delete,
    /// Pauses the topic or the channel.
    Pause,
    /// Ends the pause.
    Unpause,
    /// Drops the messages of the topic or the channel.
    Empty,
}

/// An action on a topic of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAct {
    /// `host:port` of the node's HTTP interface.
    pub node: String,
    /// The topic, which is tombstoned in the nsqlookupds and deleted on the node.
    pub topic: String,
}

/// The result of an action: the warnings, or the refusal.
pub type Acted = Result<Warnings, Refusal>;

impl Act {
    /// Returns the word in the path of nsqd and nsqlookupd.
    fn verb(self) -> &'static str {
        match self {
            Act::Create => "create",
            Act::Delete => "delete",
            Act::Pause => "pause",
            Act::Unpause => "unpause",
            Act::Empty => "empty",
        }
    }

    /// Returns path and query of the request that carries the action out.
    fn request(self, topic: &str, channel: &str) -> String {
        let subject = if channel.is_empty() {
            "topic"
        } else {
            "channel"
        };
        let query = query(&[("topic", topic), ("channel", channel)]);
        format!("/{subject}/{}{query}", self.verb())
    }
}

impl Cluster {
    /// Carries out an action on a topic, or on a channel if `channel` is not empty.
    ///
    /// # Errors
    /// No server could carry it out, or no server knows the topic.
    pub async fn act(&self, act: Act, topic: &str, channel: &str) -> Acted {
        match act {
            Act::Create => self.create(topic, channel).await,
            Act::Delete => self.delete(topic, channel).await,
            Act::Pause | Act::Unpause | Act::Empty => {
                let mut warnings = Warnings::default();
                let targets = self.producers(topic, &mut warnings).await?;
                let request = act.request(topic, channel);
                let acted = self.post_to_nsqds(&targets, &request).await;
                acted.or_refuse_action(Server::Nsqd, &mut warnings)?;
                Ok(warnings.of_one_stage())
            }
        }
    }

    async fn create(&self, topic: &str, channel: &str) -> Acted {
        let mut warnings = Warnings::default();
        let create_topic = Act::Create.request(topic, "");
        if !self.is_lookup_mode() {
            // Without nsqlookupds, the nsqds themselves get the topic.
            let targets = self.targets(&mut warnings).await?;
            let created = self.post_to_nsqds(&targets, &create_topic).await;
            created.or_refuse(Server::Nsqd, &mut warnings)?;
            if !channel.is_empty() {
                let request = Act::Create.request(topic, channel);
                let created = self.post_to_nsqds(&targets, &request).await;
                created.or_refuse(Server::Nsqd, &mut warnings)?;
            }
            return Ok(warnings.of_one_stage());
        }
        let created = self.post_to_lookupds(&create_topic).await;
        created.or_refuse(Server::Nsqlookupd, &mut warnings)?;
        if channel.is_empty() {
            return Ok(warnings.of_one_stage());
        }
        let request = Act::Create.request(topic, channel);
        let created = self.post_to_lookupds(&request).await;
        created.or_refuse(Server::Nsqlookupd, &mut warnings)?;
        let targets = self.producers(topic, &mut warnings).await?;
        let created = self.post_to_nsqds(&targets, &request).await;
        created.or_refuse_action(Server::Nsqd, &mut warnings)?;
        Ok(warnings.of_one_stage())
    }

    async fn delete(&self, topic: &str, channel: &str) -> Acted {
        let mut warnings = Warnings::default();
        let targets = self.producers(topic, &mut warnings).await?;
        let request = Act::Delete.request(topic, channel);
        if self.is_lookup_mode() {
            let deleted = self.post_to_lookupds(&request).await;
            deleted.or_refuse_action(Server::Nsqlookupd, &mut warnings)?;
        }
        let deleted = self.post_to_nsqds(&targets, &request).await;
        deleted.or_refuse_action(Server::Nsqd, &mut warnings)?;
        Ok(warnings.of_one_stage())
    }

    /// Tombstones a topic on a node, and deletes it there. The tombstones come first, so that no
    /// consumer or producer finds the node in the meantime.
    ///
    /// # Errors
    /// No nsqlookupd took the tombstone, or the node does not answer.
    pub async fn tombstone(&self, act: &NodeAct) -> Acted {
        let NodeAct { node, topic } = act;
        let mut warnings = Warnings::default();
        let target = match self.is_lookup_mode() {
            true => {
                let query = query(&[("topic", topic), ("node", node)]);
                let request = format!("/topic/tombstone{query}");
                let set = self.post_to_lookupds(&request).await;
                set.or_refuse(Server::Nsqlookupd, &mut warnings)?;
                self.target(crate::figures::NodeIdentity {
                    address: node.clone(),
                    ..Default::default()
                })
            }
            false => {
                let targets = self.targets(&mut warnings).await?;
                let found = targets
                    .into_iter()
                    .find(|target| target.identity.address == *node);
                found.ok_or_else(|| Refusal::not_found("NODE_NOT_FOUND"))?
            }
        };
        let request = Act::Delete.request(topic, "");
        let deleted = self.post_to_nsqds(&[target], &request).await;
        deleted.or_refuse_action(Server::Nsqd, &mut warnings)?;
        Ok(warnings.of_one_stage())
    }

    async fn post_to_lookupds(&self, request: &str) -> Gathered<()> {
        let lookupds = self.lookupds().into_iter();
        let requests = lookupds.map(|lookupd| -> Asked<()> {
            let upstream = self.upstream.clone();
            let url = format!("http://{lookupd}{request}");
            async move { upstream.post(Server::Nsqlookupd, &url).await }.boxed()
        });
        gather(requests.collect()).await
    }

    async fn post_to_nsqds(&self, targets: &[Target], request: &str) -> Gathered<()> {
        let requests = targets.iter().cloned().map(|target| -> Asked<()> {
            let upstream = self.upstream.clone();
            let url = format!("{}{request}", target.url);
            async move {
                let posted = upstream.post(Server::Nsqd, &url).await;
                posted.map_err(|failed| {
                    with_advice(failed, &target.identity.address, target.is_given)
                })
            }
            .boxed()
        });
        gather(requests.collect()).await
    }
}
