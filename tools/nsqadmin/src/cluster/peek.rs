//! Peeks: the messages that the nodes of a topic show.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use reqwest::Method;

use super::{Cluster, Target, query, with_advice};
use crate::figures::NodeIdentity;
use crate::outcome::{Refusal, Warnings};
use crate::peek::{Found, Obstacle, Peek};
use crate::upstream::{Server, Upstream};

/// Most nodes of one question that names no node: each node may answer with 4 MiB.
const NODES_MAX: usize = 16;

/// The longest wait for a node's answer. nsqd itself begins nothing new after 2 s.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The answer of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Peeked {
    /// The node.
    pub node: NodeIdentity,
    /// The URL that was asked.
    pub url: String,
    /// The messages, or the reason why there are none.
    pub found: Found,
}

impl Cluster {
    /// Asks the nodes of a topic for messages, or one node. An empty `node` stands for all.
    ///
    /// # Errors
    /// No server knows the topic (404), the node does not have the topic (404), or no server answered.
    pub async fn peek(
        &self,
        peek: &Peek,
        node: &str,
        warnings: &mut Warnings,
    ) -> Result<Vec<Peeked>, Refusal> {
        let mut targets = self.producers(&peek.topic, warnings).await?;
        if !node.is_empty() {
            targets.retain(|target| target.identity.address == node);
            if targets.is_empty() {
                return Err(Refusal::not_found("NODE_NOT_FOUND"));
            }
        }
        if targets.len() > NODES_MAX {
            let left_out = targets.len() - NODES_MAX;
            warnings.add_text(format!("{left_out} nsqds are not asked: choose a node"));
            targets.truncate(NODES_MAX);
        }
        let parameters = [("topic", &peek.topic), ("channel", &peek.channel)];
        let parameters = parameters.map(|(name, value)| (name, value.as_str()));
        let others = peek.parameters.iter();
        let others = others.map(|(name, value)| (*name, value.as_str()));
        let parameters: Vec<_> = parameters.into_iter().chain(others).collect();
        let path = format!("{}{}", peek.path(), query(&parameters));
        let is_known_list = peek.is_of_newer_list();
        let asked = targets.into_iter().map(|target| -> BoxFuture<'static, _> {
            peek_at(self.upstream.clone(), target, path.clone(), is_known_list).boxed()
        });
        let asked: Vec<_> = asked.collect();
        Ok(stream::iter(asked).buffered(NODES_MAX).collect().await)
    }
}

async fn peek_at(upstream: Upstream, target: Target, path: String, is_known_list: bool) -> Peeked {
    let url = format!("{}{path}", target.url);
    let answer =
        tokio::time::timeout(TIMEOUT, upstream.answer(Method::GET, Server::Nsqd, &url)).await;
    let failed = |why| Found::Nothing(Obstacle::Failed(why));
    let found = match answer {
        Ok(Ok((status, body))) => Found::read(status, &body, is_known_list),
        Ok(Err(error)) => {
            let error = with_advice(error, &target.identity.address, target.is_given);
            failed(error.why)
        }
        Err(_) => failed(format!("no answer within {} s", TIMEOUT.as_secs())),
    };
    Peeked {
        node: target.identity,
        url,
        found,
    }
}
