//! Peeks: the messages that the nodes of a topic show.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join};
use futures_util::stream::{self, StreamExt};
use nsq_http::query;

use super::{Cluster, Target};
use crate::figures::NodeIdentity;
use crate::outcome::{Refusal, Warnings};
use crate::peek::{Found, Obstacle, Peek, Question};
use crate::shown_url::without_user;
use crate::upstream::Upstream;

/// Most nodes of one question that names no node: each node may answer with 4 MiB.
const NODES_MAX: usize = 16;

/// The longest wait for a node's answer. nsqd itself begins nothing new after 2 s.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The answer of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Peeked {
    /// The node.
    pub node: NodeIdentity,
    /// The URL that was asked, without a user.
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
        let asked = targets.into_iter().map(|target| -> BoxFuture<'static, _> {
            peek_at(self.upstream.clone(), target, peek.clone()).boxed()
        });
        let asked: Vec<_> = asked.collect();
        Ok(stream::iter(asked).buffered(NODES_MAX).collect().await)
    }
}

/// Asks a node. If the node is too old for the list, asks for what it has instead.
async fn peek_at(upstream: Upstream, target: Target, peek: Peek) -> Peeked {
    let url_of = |(path, parameters): Question<'_>| -> String {
        format!("{}{path}{}", target.url, query(&parameters))
    };
    let mut url = url_of(peek.question(&target.identity.address));
    let is_known_list = peek.is_of_newer_list();
    let asked = ask(&upstream, &target, &url, is_known_list);
    let mut found = match peek.channel_question() {
        None => asked.await,
        Some(question) => {
            let of_channel = url_of(question);
            let of_channel = ask(&upstream, &target, &of_channel, false);
            match join(asked, of_channel).await {
                (_, Found::Nothing(Obstacle::Absent)) => Found::Nothing(Obstacle::Absent),
                (found, _) => found,
            }
        }
    };
    if found == Found::Nothing(Obstacle::Older)
        && let Some(older) = peek.older_question()
    {
        url = url_of(older);
        found = ask(&upstream, &target, &url, false).await;
        found.mark_older();
    }
    Peeked {
        node: target.identity,
        url: without_user(&url).into_owned(),
        found,
    }
}

async fn ask(upstream: &Upstream, target: &Target, url: &str, is_known_list: bool) -> Found {
    let answer = upstream.answer(url);
    let failed = |why| Found::Nothing(Obstacle::Failed(why));
    match tokio::time::timeout(TIMEOUT, answer).await {
        Ok(Ok((status, body))) => Found::read(status, &body, is_known_list),
        Ok(Err(error)) => failed(target.with_advice(error).why),
        Err(_) => failed(format!("no answer within {} s", TIMEOUT.as_secs())),
    }
}
