//! The actions of operators: each is carried out on nsqlookupds, on nsqds, or on both. Nodes that do not know the terms
//! of an action are found before ([`Abilities`]).

use std::collections::BTreeMap;

use http::StatusCode;
use jiff::Timestamp;
use nsq_http::query;
use serde::Deserialize;

use super::{Cluster, Gathered, Refusal, Stats, Target, Warnings};
use crate::figures::{NodeIdentity, Operated};
use crate::upstream::{Failed, FailureKind, Server, Upstream, without_user};

/// An action on a topic, or on one of its channels if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Act {
    /// Pauses the topic or the channel.
    Pause,
    /// Ends the pause.
    Unpause,
    /// Drops the messages of the topic or the channel.
    Empty,
    /// Brings the dropped messages of the topic or the channel back.
    Unempty,
    /// Deletes the topic, or only the channel.
    Delete,
    /// Creates the topic, and the channel. An order on many topics cannot have this action.
    #[serde(skip)]
    Create,
}

/// The terms of an action, which only ringq's nsqds know. Empty texts are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The time after which a pause ends, as Go writes durations: `10m`.
    pub limit: String,
    /// The reason of a pause.
    pub note: String,
    /// The name of the admin who pauses.
    pub by: String,
    /// The time for which the messages of an emptied topic or channel can come back.
    pub undo: String,
    /// The number of messages that the admin expects to come back. It is not sent.
    pub expected_messages: Option<i64>,
}

/// The abilities of an nsqd beyond those of nsqd 1.3.0. That nsqd ignores parameters that it does not know, so it would
/// pause without an end, and empty without an undo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Emptied messages of channels that come back. Every nsqd with this undo knows the end, the reason and the name of a
    /// pause, too.
    pub has_undo: bool,
    /// Emptied messages of topics that come back.
    pub has_topic_undo: bool,
}

/// An action with all that it needs.
#[derive(Clone, Copy, Debug)]
pub struct Deed<'a> {
    /// The action.
    pub act: Act,
    /// The topic.
    pub topic: &'a str,
    /// The channel. Empty for an action on the topic.
    pub channel: &'a str,
    /// The terms.
    pub terms: &'a Terms,
}

/// Returns the refusal of an action on a topic or channel that no nsqd has. Servers that did not answer may have it.
fn of_no_nsqd(warnings: &Warnings) -> Refusal {
    if warnings.is_empty() {
        Refusal::not_found("NO_NSQD: no nsqd that answers has it, and nothing was done")
    } else {
        Refusal::upstream(format!("no nsqd that answers has it: {}", warnings.text()))
    }
}

/// Checks that an undo brings back what the admin has read. An undo changes only with a further empty, or when it ends
/// on a node.
fn check_count(count: i64, expected: Option<i64>, warnings: &Warnings) -> Result<(), Refusal> {
    let Some(expected) = expected.filter(|expected| *expected != count) else {
        return Ok(());
    };
    let silent = if warnings.is_empty() {
        String::new()
    } else {
        format!("; {}", warnings.text())
    };
    Err(Refusal::new(
        StatusCode::CONFLICT,
        format!(
            "UNDO_CHANGED: {count} messages can be brought back, not {expected}, and nothing was done{silent}"
        ),
    ))
}

/// The result of an action: the warnings, or the refusal.
pub type Acted = Result<Warnings, Refusal>;

impl Act {
    /// Returns the word in the path of nsqd and nsqlookupd.
    pub fn word(self) -> &'static str {
        match self {
            Act::Create => "create",
            Act::Delete => "delete",
            Act::Pause => "pause",
            Act::Unpause => "unpause",
            Act::Empty => "empty",
            Act::Unempty => "unempty",
        }
    }

    /// Returns the word for what the action is on.
    pub fn subject(channel: &str) -> &'static str {
        if channel.is_empty() {
            "topic"
        } else {
            "channel"
        }
    }
}

impl<'a> Deed<'a> {
    /// Returns an action on a topic, or on a channel if `channel` is not empty.
    pub fn new(act: Act, topic: &'a str, channel: &'a str, terms: &'a Terms) -> Deed<'a> {
        Deed {
            act,
            topic,
            channel,
            terms,
        }
    }

    fn is_on_topic(self) -> bool {
        self.channel.is_empty()
    }

    /// Returns path and query of the request that carries the action out.
    fn request(self) -> String {
        let mut parameters = vec![("topic", self.topic), ("channel", self.channel)];
        let terms = self.terms;
        match self.act {
            Act::Pause => parameters.extend([
                ("for", &*terms.limit),
                ("note", &*terms.note),
                ("by", &*terms.by),
            ]),
            Act::Empty => parameters.push(("undo", &*terms.undo)),
            _ => {}
        }
        let (subject, word) = (Act::subject(self.channel), self.act.word());
        format!("/{subject}/{word}{}", query(&parameters))
    }
}

impl Cluster {
    /// Carries out an action on a topic, or on a channel if `channel` is not empty.
    ///
    /// # Errors
    /// No server could carry it out, no server knows the topic or the channel, no nsqd has it, a server does not know the
    /// terms (409), or another number of messages than expected would come back (409).
    pub async fn act(&self, deed: Deed<'_>) -> Acted {
        if deed.act == Act::Create {
            return self.create(deed).await;
        }
        let mut warnings = Warnings::default();
        let place = self.producers(deed.topic, &mut warnings).await?;
        if place.targets.is_empty() {
            let is_known = deed.is_on_topic() || place.channels.contains(deed.channel);
            if !is_known && warnings.is_empty() {
                return Err(Refusal::not_found("CHANNEL_NOT_FOUND"));
            }
            // The nsqlookupds can forget a name that no nsqd has. Nobody can carry out anything else.
            if deed.act != Act::Delete || !self.is_lookup_mode() {
                return Err(of_no_nsqd(&warnings));
            }
        }
        let mut targets = self.able(deed, &place.targets, &mut warnings).await?;
        if deed.act == Act::Unempty {
            let found = self.with_undo(deed, &targets, &mut warnings).await?;
            let (with_undo, count) = found;
            // Without one, the nsqds themselves say why nothing comes back.
            if !with_undo.is_empty() {
                targets = with_undo;
                check_count(count, deed.terms.expected_messages, &warnings)?;
            }
        }
        self.act_at(deed, &targets, true, warnings).await
    }

    /// Returns the nsqds that can bring messages of the topic or channel back, and the number of these messages.
    ///
    /// # Errors
    /// None of them answers.
    async fn with_undo(
        &self,
        deed: Deed<'_>,
        targets: &[Target],
        warnings: &mut Warnings,
    ) -> Result<(Vec<Target>, i64), Refusal> {
        let Deed { topic, channel, .. } = deed;
        let wanted = Stats::of(topic, channel);
        let stats = self.stats(targets.to_vec(), wanted, warnings).await?;
        let mut counts = BTreeMap::new();
        for node in &stats {
            let operated = if deed.is_on_topic() {
                node.topics_named(topic).next().map(Operated::from)
            } else {
                let mut channels = node.channels_named(topic, channel);
                channels.next().map(Operated::from)
            };
            let undo = operated.and_then(|operated| operated.undo);
            counts.extend(undo.map(|undo| (node.node.address.as_str(), undo.message_count)));
        }
        let targets = targets.iter();
        let able = targets.filter(|target| counts.contains_key(&*target.identity.address));
        Ok((
            able.cloned().collect(),
            nsq_doctor::sum(counts.into_values()),
        ))
    }

    /// Carries out an action on these nsqds, which know the terms. A deletion also goes to the nsqlookupds, which know where
    /// the topic or channel is, but not if others that did not answer may have it: the nsqds are not `all` then.
    ///
    /// # Errors
    /// No server could carry it out, no server knows the topic or the channel, or a deletion has no server to go to.
    pub async fn act_at(
        &self,
        deed: Deed<'_>,
        targets: &[Target],
        all: bool,
        mut warnings: Warnings,
    ) -> Acted {
        let request = deed.request();
        let mut is_done = false;
        let is_of_lookupds = deed.act == Act::Delete && self.is_lookup_mode();
        if is_of_lookupds && !all {
            warnings.add_text(
                "the nsqlookupds keep it, because nsqds that did not answer may have it".to_owned(),
            );
            if targets.is_empty() {
                return Err(Refusal::upstream(warnings.text()));
            }
        } else if is_of_lookupds {
            let deleted = self.post_to_lookupds(&request).await;
            is_done = !deleted.data.is_empty();
            if targets.is_empty() {
                deleted.or_refuse(Server::Nsqlookupd, &mut warnings)?;
                return Ok(warnings.of_one_stage());
            }
            deleted.or_refuse_action(Server::Nsqlookupd, &mut warnings)?;
        }
        let acted = self.post_to_nsqds(targets, &request).await;
        if is_done {
            acted.or_refuse_action(Server::Nsqd, &mut warnings)?
        } else {
            drop(acted.or_refuse(Server::Nsqd, &mut warnings)?)
        }
        Ok(warnings.of_one_stage())
    }

    async fn create(&self, deed: Deed<'_>) -> Acted {
        let mut warnings = Warnings::default();
        let of_topic = Deed::new(deed.act, deed.topic, "", deed.terms);
        let of_channel = (!deed.is_on_topic()).then_some(deed);
        let requests = [of_topic].into_iter().chain(of_channel).map(Deed::request);
        if !self.is_lookup_mode() {
            // Without nsqlookupds, the nsqds themselves get the topic.
            let targets = self.targets(&mut warnings).await?;
            for request in requests {
                let created = self.post_to_nsqds(&targets, &request).await;
                created.or_refuse(Server::Nsqd, &mut warnings)?;
            }
            return Ok(warnings.of_one_stage());
        }
        for request in requests {
            let created = self.post_to_lookupds(&request).await;
            created.or_refuse(Server::Nsqlookupd, &mut warnings)?;
        }
        if let Some(deed) = of_channel {
            let place = self.producers(deed.topic, &mut warnings).await?;
            let created = self.post_to_nsqds(&place.targets, &deed.request()).await;
            created.or_refuse_action(Server::Nsqd, &mut warnings)?;
        }
        Ok(warnings.of_one_stage())
    }

    /// Tombstones a topic on a node, and deletes it there. The tombstones come first, so that no
    /// consumer or producer finds the node in the meantime.
    ///
    /// # Errors
    /// No nsqlookupd took the tombstone, or the node does not answer.
    pub async fn tombstone(&self, node: &str, topic: &str) -> Acted {
        let mut warnings = Warnings::default();
        let target = if self.is_lookup_mode() {
            let query = query(&[("topic", topic), ("node", node)]);
            let request = format!("/topic/tombstone{query}");
            let set = self.post_to_lookupds(&request).await;
            set.or_refuse(Server::Nsqlookupd, &mut warnings)?;
            self.target(NodeIdentity::at(node))
        } else {
            let mut targets = self.targets(&mut warnings).await?.into_iter();
            let found = targets.find(|target| target.identity.address == node);
            found.ok_or_else(|| Refusal::not_found("NODE_NOT_FOUND"))?
        };
        let terms = Terms::default();
        let request = Deed::new(Act::Delete, topic, "", &terms).request();
        let deleted = self.post_to_nsqds(&[target], &request).await;
        deleted.or_refuse_action(Server::Nsqd, &mut warnings)?;
        Ok(warnings.of_one_stage())
    }

    async fn post_to_lookupds(&self, request: &str) -> Gathered<()> {
        let posted = self.gather(self.lookupds(), |upstream, lookupd| {
            let url = format!("http://{lookupd}{request}");
            async move { upstream.post(Server::Nsqlookupd, &url).await }
        });
        posted.await
    }

    async fn post_to_nsqds(&self, targets: &[Target], request: &str) -> Gathered<()> {
        let posted = self.gather(targets.to_vec(), |upstream, target| {
            let url = format!("{}{request}", target.url);
            async move {
                let posted = upstream.post(Server::Nsqd, &url).await;
                posted.map_err(|failed| target.with_advice(with_sender(failed, &target.url)))
            }
        });
        posted.await
    }

    /// Asks nsqds what they can do. The requests change nothing.
    pub async fn abilities(&self, targets: &[Target]) -> Gathered<(Target, Abilities)> {
        let asked = self.gather(targets.to_vec(), |upstream, target| async move {
            // These questions must not look like acts in the log.
            let abilities = abilities_of(&upstream.quiet(), &target.url).await?;
            Ok((target, abilities))
        });
        asked.await
    }

    /// Returns the targets that can carry out the action on a topic or channel with these terms. Those that do not say
    /// what they can do are left out with a warning.
    ///
    /// # Errors
    /// 409 if one of them cannot, 400 if the others refuse the terms, and 502 if no target says what it can do. Nothing has
    /// been done yet.
    pub async fn able(
        &self,
        deed: Deed<'_>,
        targets: &[Target],
        warnings: &mut Warnings,
    ) -> Result<Vec<Target>, Refusal> {
        let (terms, is_of_topic) = (deed.terms, deed.is_on_topic());
        let (code, what) = match deed.act {
            Act::Pause if !terms.limit.is_empty() => ("LIMIT_UNSUPPORTED", "limit of a pause"),
            Act::Empty if terms.undo.is_empty() => return Ok(targets.to_vec()),
            Act::Empty if is_of_topic => ("UNDO_UNSUPPORTED", "undo of emptied topics"),
            Act::Empty => ("UNDO_UNSUPPORTED", "undo of emptied channels"),
            _ => return Ok(targets.to_vec()),
        };
        let can = |abilities: &Abilities| match deed.act {
            Act::Empty if is_of_topic => abilities.has_topic_undo,
            _ => abilities.has_undo,
        };
        if targets.is_empty() {
            return Ok(Vec::new());
        }
        let asked = self.abilities(targets).await;
        let asked = asked.or_refuse(Server::Nsqd, warnings)?;
        let unable = asked.iter().filter(|(_, abilities)| !can(abilities));
        let unable: Vec<&str> = unable
            .map(|(target, _)| &*target.identity.address)
            .collect();
        if unable.is_empty() {
            return Ok(asked.into_iter().map(|(target, _)| target).collect());
        }
        // A value that no node takes is the caller's mistake, whatever the other nodes can do.
        if let Some((target, _)) = asked.iter().find(|(_, abilities)| can(abilities)) {
            self.try_terms(deed, target).await?;
        }
        let unable = unable.join(", ");
        let why = format!("{code}: nothing was done; no {what} at {unable}");
        Err(Refusal::new(StatusCode::CONFLICT, why))
    }

    /// Asks a node for its opinion about terms, with an action on a topic that no node has. An nsqd reads the terms before
    /// it looks for the topic.
    ///
    /// # Errors
    /// The node's own words about wrong terms (400).
    async fn try_terms(&self, deed: Deed<'_>, target: &Target) -> Result<(), Refusal> {
        let nanoseconds = Timestamp::now().as_nanosecond();
        let topic = &*format!("nsqadmin-asks.{nanoseconds:x}");
        let url = format!("{}{}", target.url, Deed { topic, ..deed }.request());
        let tried = self.upstream.quiet().post(Server::Nsqd, &url).await;
        let refused = tried.err().and_then(|failed| failed.refused);
        match refused.filter(|refused| refused.status == StatusCode::BAD_REQUEST) {
            Some(refused) => Err(Refusal::new(refused.status, refused.text())),
            None => Ok(()),
        }
    }
}

/// Adds the URL of an nsqd to its answer that is a failure. Without an answer, the failure has the URL.
fn with_sender(mut failed: Failed, url: &str) -> Failed {
    if matches!(failed.kind, FailureKind::NotFound | FailureKind::Refused) {
        failed.why.push_str(&format!(" from {}", without_user(url)));
    }
    failed
}

async fn abilities_of(upstream: &Upstream, url: &str) -> Result<Abilities, Failed> {
    // The paths exist for POST only, or they do not exist.
    let has = async |path: &str| {
        let (_, body) = upstream.answer(&format!("{url}{path}")).await?;
        Ok(String::from_utf8_lossy(&body).contains("METHOD_NOT_ALLOWED"))
    };
    Ok(Abilities {
        has_undo: has("/channel/unempty").await?,
        has_topic_undo: has("/topic/unempty").await?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::server;

    /// The reason was "failed to query any nsqd:", and nsqadmin had asked none.
    #[tokio::test]
    async fn a_deletion_that_goes_to_no_server_says_why() {
        let flags = ["--lookupd-http-address=127.0.0.1:1", "--live-interval=0"];
        let config = Config::from_args(flags.map(Into::into)).unwrap();
        let checked = config.check().unwrap();
        let cluster = server::app(config, checked).unwrap().cluster;
        let (terms, warnings) = (Terms::default(), Warnings::default());
        let deed = Deed::new(Act::Delete, "t", "", &terms);
        let deleted = cluster.act_at(deed, &[], false, warnings);
        assert_eq!(
            deleted.await.unwrap_err().message,
            "UPSTREAM_ERROR: the nsqlookupds keep it, because nsqds that did not answer may have it"
        );
    }
}
