//! [`Peek`]: a question for messages that a node shows and does not consume, and [`Peeked`], a node's answer.
//!
//! Only ringq's nsqd answers peeks. Each answer of another kind becomes an [`Obstacle`], with a sentence
//! that says what to change.

use std::time::Duration;

use futures_util::future::join;
use nsq_http::query;
use serde_json::{Map, Value, json};

use super::{Cluster, Refusal, Target, Warnings};
use crate::figures::NodeIdentity;
use crate::upstream::{Upstream, without_user};

/// The parameters that a question passes on to the nodes.
pub const PARAMETERS: [&str; 7] = [
    "from", "limit", "max_body", "contains", "json", "equals", "cursor",
];

/// The other parameters of nsqadmin.
pub const OWN_PARAMETERS: [&str; 2] = ["node", "since"];

/// The parameters that look into bodies: their answers tell something about bodies that are not shown.
const FILTERS: [&str; 3] = ["contains", "json", "equals"];

/// The list of what was published last. It belongs to the topic, and has no channel.
const PUBLISHED: &str = "published";

/// The list that a node of an older version shows instead of [`PUBLISHED`].
const NEWEST: &str = "newest";

/// The lists of channels that the first nsqds with peeks do not have.
const NEWER_LISTS: [&str; 1] = ["attempts"];

/// nsqd's code for a list that it does not have.
const UNKNOWN_LIST: &str = "INVALID_ARG_FROM";

/// Most nodes of one question that names no node: each node may answer with 4 MiB.
const NODES_MAX: usize = 16;

/// The longest wait for a node's answer. nsqd itself begins nothing new after 2 s.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A question to the nodes of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peek {
    /// The topic.
    pub topic: String,
    /// The channel, or an empty text for the messages that no channel has got yet.
    pub channel: String,
    /// The names and values of [`PARAMETERS`]. Empty values count as missing.
    pub parameters: Vec<(&'static str, String)>,
    /// For what was published last: for some nodes the id of a message, behind which the messages are wanted, such as
    /// `10.0.0.1:4151/0f3c7a5e61c01000`. Commas separate the nodes.
    pub since: String,
}

/// A path of nsqd, with the names and values of its parameters. Empty values count as missing.
type Question<'a> = (&'static str, Vec<(&'static str, &'a str)>);

/// The answer of one node: its JSON with its messages, or the reason why there are none.
pub type Found = Result<Map<String, Value>, Obstacle>;

/// The reason why a node shows no messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The node has no peeks: it is another nsqd than ringq's.
    NotServed,
    /// The operator of the node forbids peeks. The node says why.
    Forbidden(String),
    /// The node does not have the topic, or not the channel.
    Absent,
    /// The node is ringq's nsqd, and too old to have the list.
    Older,
    /// The question is wrong. The text is nsqd's code, and what nsqd says is allowed.
    BadQuestion(String),
    /// The node did not answer, or not as expected.
    Failed(String),
}

impl Peek {
    /// Returns true if `since` names nodes and messages, in a question that has such an answer.
    pub fn has_valid_since(&self) -> bool {
        let mut places = self.since.split(',');
        self.since.is_empty() || self.is_of_published() && places.all(|place| place.contains('/'))
    }

    /// Returns the question to a node.
    pub fn question(&self, node: &str) -> Question<'_> {
        if !self.is_of_published() {
            return self.question_with(&self.channel, self.parameter("from"), "");
        }
        let ids = self.since.split(',').filter_map(|one| one.split_once('/'));
        let mut ids = ids.filter(|(known, _)| *known == node);
        let since = ids.next().map_or("", |(_, id)| id);
        self.question_with("", PUBLISHED, since)
    }

    /// Returns the question for nsqds that do not know the list of the question yet. `None`: there is no such question.
    pub fn older_question(&self) -> Option<Question<'_>> {
        let is_newer = self.is_of_published();
        is_newer.then(|| self.question_with(&self.channel, NEWEST, ""))
    }

    /// Returns the question whether a node has the channel. What was published belongs to the topic, so the answer about it does
    /// not tell. `None`: the other questions tell.
    pub fn channel_question(&self) -> Option<Question<'_>> {
        let is_needed = self.is_of_published() && !self.channel.is_empty();
        is_needed.then(|| {
            let parameters = vec![
                ("topic", self.topic.as_str()),
                ("channel", self.channel.as_str()),
                ("limit", "1"),
                ("max_body", "0"),
            ];
            ("/channel/peek", parameters)
        })
    }

    fn question_with<'a>(
        &'a self,
        channel: &'a str,
        from: &'a str,
        since: &'a str,
    ) -> Question<'a> {
        let path = if channel.is_empty() {
            "/topic/peek"
        } else {
            "/channel/peek"
        };
        let own = [
            ("topic", self.topic.as_str()),
            ("channel", channel),
            ("from", from),
            ("since", since),
        ];
        let others = self.parameters.iter();
        let others = others.map(|(name, value)| (*name, value.as_str()));
        let others = others.filter(|(name, _)| *name != "from");
        (path, own.into_iter().chain(others).collect())
    }

    /// Returns true if the question is about what was published last.
    pub fn is_of_published(&self) -> bool {
        self.parameter("from") == PUBLISHED
    }

    /// Returns true if the question is right, and an nsqd that refuses its list is too old for it.
    pub fn is_of_newer_list(&self) -> bool {
        let is_newer = NEWER_LISTS.contains(&self.parameter("from"));
        self.is_of_published() || is_newer && !self.channel.is_empty()
    }

    /// Returns the value of a parameter, or an empty text.
    fn parameter(&self, name: &str) -> &str {
        let mut parameters = self.parameters.iter();
        let found = parameters.find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    }

    /// Returns true if the answer depends on what bodies contain.
    pub fn looks_into_bodies(&self) -> bool {
        let mut parameters = self.parameters.iter();
        parameters.any(|(name, value)| FILTERS.contains(name) && !value.is_empty())
    }
}

/// Reads the answer of a node. `is_known_list` says that ringq's nsqd has the list that was asked for.
fn read(status: u16, body: &[u8], is_known_list: bool) -> Found {
    if status != 200 {
        return Err(Obstacle::read(status, body, is_known_list));
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(answer)) if answer.contains_key("messages") => Ok(answer),
        _ => Err(Obstacle::Failed("the answer is not understood".to_owned())),
    }
}

impl Peeked {
    /// Returns the JSON for the page: `outcome`, the messages or the `reason` why there are none, and the node. Without
    /// `bodies`, the messages have none.
    pub fn into_json(self, bodies: bool) -> Map<String, Value> {
        let told = self.found.map_err(Obstacle::told);
        let (mut answer, outcome) = match told {
            Ok(answer) => (answer, "messages"),
            Err((outcome, reason)) => {
                let reason = ("reason".to_owned(), json!(reason));
                (Map::from_iter([reason]), outcome)
            }
        };
        let messages = answer.get_mut("messages").filter(|_| !bodies);
        let messages = messages.and_then(Value::as_array_mut).into_iter().flatten();
        for message in messages.filter_map(Value::as_object_mut) {
            message.remove("body");
            message.remove("encoding");
        }
        let NodeIdentity {
            address, hostname, ..
        } = self.node;
        for (name, value) in [
            ("outcome", json!(outcome)),
            ("node", json!(address)),
            ("hostname", json!(hostname)),
            ("url", json!(self.url)),
        ] {
            answer.insert(name.to_owned(), value);
        }
        answer
    }
}

impl Obstacle {
    fn read(status: u16, body: &[u8], is_known_list: bool) -> Obstacle {
        let nsq_http::Refusal { message, reason } = nsq_http::Refusal::read(body);
        match (status, message.as_str()) {
            (400, UNKNOWN_LIST) if is_known_list => Obstacle::Older,
            (404, "TOPIC_NOT_FOUND" | "CHANNEL_NOT_FOUND") => Obstacle::Absent,
            (404, _) => Obstacle::NotServed,
            (403, "PEEK_FORBIDDEN") => Obstacle::Forbidden(reason),
            (400, _) if !reason.is_empty() => Obstacle::BadQuestion(format!("{message}: {reason}")),
            (400, _) => Obstacle::BadQuestion(message),
            _ => Obstacle::Failed(format!("got response {status} {message}")),
        }
    }

    /// Returns the word for it, and the sentence that says what to change.
    fn told(self) -> (&'static str, String) {
        match self {
            Obstacle::NotServed => (
                "not_served",
                "This node has no peeks, as NSQ's own nsqd. Run ringq's nsqd there, or read a copy of the messages: nsq_tail \
                 makes a channel of its own."
                    .to_owned(),
            ),
            Obstacle::Absent => ("absent", "This node does not have it.".to_owned()),
            Obstacle::Older => (
                "older",
                "This node's nsqd is older than nsqadmin, and does not have this list. Run the nsqd of nsqadmin's version \
                 there."
                    .to_owned(),
            ),
            Obstacle::Forbidden(why) => ("forbidden", why),
            Obstacle::BadQuestion(why) | Obstacle::Failed(why) => ("failed", why),
        }
    }
}

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

impl Peek {
    /// Asks the nodes of a topic for messages, or one node. An empty `node` stands for all.
    ///
    /// # Errors
    /// No server knows the topic (404), the node does not have the topic (404), or no server answered.
    pub async fn ask(
        &self,
        cluster: &Cluster,
        node: &str,
        warnings: &mut Warnings,
    ) -> Result<Vec<Peeked>, Refusal> {
        let mut targets = cluster.producers(&self.topic, warnings).await?.targets;
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
        let asked = cluster.each(targets, |upstream, target| {
            peek_at(upstream, target, self.clone())
        });
        Ok(asked.await)
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
                (_, Err(Obstacle::Absent)) => Err(Obstacle::Absent),
                (found, _) => found,
            }
        }
    };
    if found == Err(Obstacle::Older)
        && let Some(older) = peek.older_question()
    {
        url = url_of(older);
        found = ask(&upstream, &target, &url, false).await;
        // The node has shown its newest waiting messages: its version does not know what was published last.
        if let Ok(answer) = &mut found {
            answer.insert("from".to_owned(), json!(NEWEST));
        }
    }
    Peeked {
        node: target.identity,
        url: without_user(&url).into_owned(),
        found,
    }
}

async fn ask(upstream: &Upstream, target: &Target, url: &str, is_known_list: bool) -> Found {
    let answer = upstream.answer(url);
    let failed = |why| Err(Obstacle::Failed(why));
    match tokio::time::timeout(TIMEOUT, answer).await {
        Ok(Ok((status, body))) => read(status, &body, is_known_list),
        Ok(Err(error)) => failed(target.with_advice(error).why),
        Err(_) => failed(format!("no answer within {} s", TIMEOUT.as_secs())),
    }
}

#[cfg(test)]
mod tests;
