//! `POST /api/acts`: [`Order`], an action on all topics, or on all channels of topics, that match a filter.
//!
//! ```text
//!   Order ──► subjects that match, with their figures ──► Listing ──► the admin reads it
//!                                                            │
//!   Order with the token of this listing ──► the listing again ──► the same token? ──► acts
//! ```
//!
//! The token stands for the action, its terms, the names, the nodes and the channels. Messages come and go all the time,
//! so their numbers are not part of the token. An undo changes only with a further empty, so its end and its number of
//! messages are.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use ::http::StatusCode;
use futures_util::stream::{self, StreamExt};
use serde::{Deserialize, Serialize};
use wire::go_json::is_default;
use wire::json_object;

use super::act::warn_of_gone;
use super::{App, Reply, Request};
use crate::audit::{Actor, Details, Entry, Subject};
use crate::cluster::{Act, Deed, Refusal, Stats, Target, Terms, Warnings};
use crate::figures::{ChannelFigures, NodeStats, TopicFigures, Undo, add_counts, topic_totals};

/// Most topics or channels that one order touches. Each of them is some requests to each node, and one
/// notification, of which 1000 can wait.
const SUBJECTS_MAX: usize = 500;

/// Topics or channels on which an order acts at the same time.
const AT_ONCE_MAX: usize = 16;

/// The kind of things that an order is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// The topics that match.
    Topics,
    /// The channels of the topics that match.
    Channels,
}

/// The states of topics that the page can narrow its list to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Show {
    /// All topics.
    All,
    /// Topics whose messages wait, in the topic or in a channel.
    Backlog,
    /// Topics without consumers.
    Lonely,
    /// Topics that are paused, or have a paused channel.
    Paused,
}

/// An order, as the body of a request has it. All parts of the filter must match.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    /// The action.
    action: Act,
    /// The kind of things.
    of: Kind,
    /// Words that the name of a topic must contain, in any order. The case does not matter, as in the
    /// page's search.
    #[serde(default)]
    search: String,
    /// The state of a topic.
    show: Option<Show>,
    /// The names of the topics.
    topics: Option<BTreeSet<String>>,
    /// The name of the channels. An empty text matches all.
    #[serde(default)]
    channel: String,
    /// The token of the listing that the admin has read. Without it, nothing is done.
    #[serde(default)]
    confirm: String,
    /// `for` of nsqd: the time after which the pause ends.
    #[serde(default, rename = "for")]
    limit: String,
    /// The reason of the pause.
    #[serde(default)]
    note: String,
    /// `undo` of nsqd: the time for which the messages of emptied topics or channels can come back.
    #[serde(default)]
    undo: String,
}

/// A topic or channel that an order touches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Listed {
    /// The topic.
    topic: String,
    /// The channel. Empty for a topic.
    #[serde(skip_serializing_if = "is_default")]
    channel: String,
    /// Messages that wait: for an order to empty topics those in the topic alone, otherwise also those in
    /// its channels.
    depth: i64,
    /// Messages that consumers have and have not finished.
    #[serde(rename = "in_flight_count")]
    in_flight: i64,
    /// Messages that are not due yet.
    #[serde(rename = "deferred_count")]
    deferred: i64,
    /// Connections of consumers.
    #[serde(rename = "client_count")]
    consumers: i64,
    /// True if it is paused on any nsqd.
    #[serde(rename = "paused")]
    is_paused: bool,
    /// The messages that the subject was emptied of, while they can come back.
    #[serde(flatten)]
    undo: Option<Undo>,
    /// `host:port` of the nsqds that have it.
    nodes: BTreeSet<String>,
    /// The channels of a topic that is deleted.
    channels: BTreeSet<String>,
}

impl Order {
    /// Returns true if something narrows the order. A missing filter is more likely a mistake than the
    /// wish to act on everything, which `"show":"all"` says.
    fn has_filter(&self) -> bool {
        let has_words = !self.search.trim().is_empty();
        has_words || self.show.is_some() || self.topics.is_some() || !self.channel.is_empty()
    }

    /// Returns what the order touches, sorted by name. `inactive` are topics that no nsqd has, which can
    /// only be deleted. An empty has all that match, because messages come and go between the list and the act.
    fn subjects(&self, stats: &[NodeStats], inactive: &BTreeSet<String>) -> Vec<Listed> {
        let mut totals = topic_totals(stats);
        if (self.action, self.of) == (Act::Delete, Kind::Topics) {
            let known: BTreeSet<&str> = totals.iter().map(|total| &*total.topic_name).collect();
            let others = inactive.iter().filter(|name| !known.contains(&***name));
            let others = others.map(|topic| TopicFigures::total(topic, Vec::new()));
            totals.extend(others.collect::<Vec<_>>());
            totals.sort_by(|a, b| a.topic_name.cmp(&b.topic_name));
        }
        let matching = totals.iter().filter(|total| self.matches(total));
        let subjects = matching.flat_map(|total| match self.of {
            Kind::Topics => vec![self.of_topic(total)],
            Kind::Channels => {
                let channels = total.channels.iter();
                let wanted = channels
                    .filter(|it| self.channel.is_empty() || it.channel_name == self.channel);
                wanted.map(|channel| self.of_channel(channel)).collect()
            }
        });
        subjects
            .filter(|subject| self.action == Act::Empty || self.has_work(subject))
            .collect()
    }

    /// Returns true if the topic matches the filter.
    fn matches(&self, total: &TopicFigures) -> bool {
        let name = total.topic_name.to_lowercase();
        let search = self.search.to_lowercase();
        let mut words = search.split_whitespace();
        let topics = self.topics.as_ref();
        let is_named = topics.is_none_or(|topics| topics.contains(&total.topic_name));
        let mut channels = total.channels.iter();
        let is_shown = match self.show {
            None | Some(Show::All) => true,
            Some(Show::Backlog) => total.depth > 0 || channels.any(|channel| channel.depth > 0),
            Some(Show::Lonely) => channels.all(|channel| channel.client_count == 0),
            Some(Show::Paused) => {
                total.operated.is_paused || channels.any(|channel| channel.operated.is_paused)
            }
        };
        is_named && is_shown && words.all(|word| name.contains(word))
    }

    fn of_topic(&self, total: &TopicFigures) -> Listed {
        let parts = total.nodes.iter().flatten();
        let mut subject = Listed {
            topic: total.topic_name.clone(),
            depth: total.depth,
            nodes: self.touched(parts.map(|part| (&part.node, part.operated.undo))),
            is_paused: total.operated.is_paused,
            undo: total.operated.undo,
            ..Listed::default()
        };
        // Emptying a topic, and its undo, leave the channels as they are.
        if !matches!(self.action, Act::Empty | Act::Unempty) {
            for channel in &total.channels {
                let part = self.of_channel(channel);
                add_counts! { subject += part: depth, in_flight, deferred, consumers }
                subject.channels.insert(part.channel);
            }
        }
        subject
    }

    fn of_channel(&self, channel: &ChannelFigures) -> Listed {
        let parts = channel.nodes.iter().flatten();
        Listed {
            topic: channel.topic_name.clone(),
            channel: channel.channel_name.clone(),
            nodes: self.touched(parts.map(|part| (&part.node, part.operated.undo))),
            channels: BTreeSet::new(),
            depth: channel.depth,
            in_flight: channel.in_flight_count,
            deferred: channel.deferred_count,
            consumers: channel.client_count,
            is_paused: channel.operated.is_paused,
            undo: channel.operated.undo,
        }
    }

    /// Returns the nodes that the action touches. Only those with an undo can bring messages back.
    fn touched<'a>(
        &self,
        nodes: impl Iterator<Item = (&'a String, Option<Undo>)>,
    ) -> BTreeSet<String> {
        let touched = nodes.filter(|(_, undo)| self.action != Act::Unempty || undo.is_some());
        touched.map(|(node, _)| node.clone()).collect()
    }

    /// Returns true if the action would change the subject.
    fn has_work(&self, subject: &Listed) -> bool {
        match self.action {
            Act::Pause | Act::Delete | Act::Create => true,
            Act::Unpause => subject.is_paused,
            Act::Empty => subject.message_count() > 0,
            Act::Unempty => subject.undo.is_some(),
        }
    }

    /// Returns the token of a listing. The token is the same in every nsqadmin of the same build.
    fn token(&self, subjects: &[Listed]) -> String {
        let mut hasher = DefaultHasher::new();
        let terms = (&self.limit, &self.undo);
        (self.action, self.of, terms).hash(&mut hasher);
        for subject in subjects {
            let Listed { topic, channel, .. } = subject;
            (topic, channel, &subject.nodes, &subject.channels).hash(&mut hasher);
            // An undo stays as it is until somebody empties the topic or channel again.
            if self.action == Act::Unempty {
                let undo = subject.undo.map(|undo| (undo.until_ms, undo.message_count));
                undo.hash(&mut hasher);
            }
        }
        format!("{:016x}", hasher.finish())
    }
}

impl Listed {
    /// Returns true if nothing of it outlives its last consumer. nsqd has no undo for it.
    fn is_ephemeral(&self) -> bool {
        let names = [&self.topic, &self.channel];
        names.iter().any(|name| name.ends_with("#ephemeral"))
    }

    /// Returns the number of all its messages.
    fn message_count(&self) -> i64 {
        nsq_doctor::sum([self.depth, self.in_flight, self.deferred])
    }
}

/// The topics or channels that an order touches.
struct Listing {
    subjects: Vec<Listed>,
    /// The nsqds by `host:port`.
    targets: BTreeMap<String, Target>,
    warnings: Warnings,
}

impl App {
    /// Answers `POST /api/acts`.
    pub(super) async fn act_on_many(
        &self,
        actor: Actor,
        request: &mut Request,
    ) -> Result<Reply, Refusal> {
        let order: Order = request.read_json().await?;
        if !order.has_filter() {
            return Err(Refusal::bad("MISSING_FILTER"));
        }
        let listing = self.listing(&order).await?;
        let with_work = listing.subjects.iter();
        let count = with_work.filter(|it| order.has_work(it)).count();
        if count > SUBJECTS_MAX {
            return Err(Refusal::bad(format!(
                "TOO_MANY: {count} match, and at most {SUBJECTS_MAX} can be acted on at once; narrow the filter"
            )));
        }
        let token = order.token(&listing.subjects);
        if order.confirm.is_empty() {
            let found = json_object! { confirm: token, subjects: &listing.subjects };
            return Ok(Reply::object(&listing.warnings, found));
        }
        if order.confirm != token {
            return Err(Refusal::new(StatusCode::CONFLICT, "LIST_CHANGED"));
        }
        self.carry_out(order, listing, actor).await
    }

    /// Returns what the order touches now.
    async fn listing(&self, order: &Order) -> Result<Listing, Refusal> {
        let mut warnings = Warnings::default();
        let targets = self.cluster.targets(&mut warnings).await?;
        let by_address = by_address(targets.iter().cloned());
        let wanted = Stats::default();
        let stats = self.cluster.stats(targets, wanted, &mut warnings).await?;
        let has_inactive = (order.action, order.of) == (Act::Delete, Kind::Topics);
        // A node that does not answer may have topics that look as if no nsqd had them.
        let inactive = if has_inactive && warnings.is_empty() && self.cluster.is_lookup_mode() {
            self.cluster.topics(&mut warnings).await?
        } else {
            BTreeSet::new()
        };
        let subjects = order.subjects(&stats, &inactive);
        let gone = subjects.iter().flat_map(|one| self.gone_with(&one.topic));
        warn_of_gone(gone.collect(), &mut warnings);
        Ok(Listing {
            subjects,
            targets: by_address,
            warnings,
        })
    }

    /// Acts on all subjects of a listing. Failures of single ones do not end the order.
    async fn carry_out(
        &self,
        order: Order,
        listing: Listing,
        actor: Actor,
    ) -> Result<Reply, Refusal> {
        let (subjects, mut warnings) = (listing.subjects, listing.warnings);
        // A node that did not answer may have topics of the listing, or their channels.
        let is_whole = warnings.is_empty();
        let terms = Terms {
            limit: order.limit.clone(),
            note: order.note.clone(),
            by: actor.by(),
            undo: order.undo.clone(),
            expected_messages: None,
        };
        let act = order.action;
        let names: BTreeSet<&String> = subjects.iter().flat_map(|one| &one.nodes).collect();
        let named = names
            .into_iter()
            .filter_map(|name| listing.targets.get(name));
        let named: Vec<Target> = named.cloned().collect();
        // The names make no difference to what the nodes are able to do.
        let channel = if order.of == Kind::Topics { "" } else { "c" };
        let deed = Deed::new(act, "", channel, &terms);
        let able = self.cluster.able(deed, &named, &mut warnings).await;
        if let Err(refusal) = &able {
            let failed = Err(refusal.clone());
            let (actor, action) = (actor.clone(), "many".to_owned());
            let entry = Entry::new(actor, action, Subject::default(), &failed);
            self.audit.write(entry).await;
        }
        let able = by_address(able?.into_iter());
        let acts = subjects
            .into_iter()
            .filter(|subject| order.has_work(subject));
        let acts = stream::iter(acts)
            .map(|subject| self.act_on_one(act, &terms, &actor, subject, (&able, is_whole)));
        let done: Vec<Entry> = acts.buffered(AT_ONCE_MAX).collect().await;
        let messages: BTreeSet<&str> = done.iter().map(|entry| &*entry.message).collect();
        for message in messages.into_iter().filter(|message| !message.is_empty()) {
            warnings.add_text(message.trim_start_matches("WARNING: ").to_owned());
        }
        let results = done.iter().map(|entry| {
            json_object! {
                #[serde(flatten)]
                subject: &entry.subject,
                result: entry.outcome.word(),
                message: &entry.message,
            }
        });
        let results: Vec<_> = results.collect();
        Ok(Reply::object(&warnings, json_object! { results }))
    }

    /// Acts on one subject, at its nodes among those that know the terms.
    async fn act_on_one(
        &self,
        act: Act,
        terms: &Terms,
        actor: &Actor,
        subject: Listed,
        (able, is_whole): (&BTreeMap<String, Target>, bool),
    ) -> Entry {
        let mut terms = terms.clone();
        if subject.is_ephemeral() {
            terms.undo.clear();
        }
        let (mut nodes, mut silent, mut warnings) = (vec![], vec![], Warnings::default());
        for node in &subject.nodes {
            match able.get(node) {
                Some(target) => nodes.push(target.clone()),
                None => silent.push(node.as_str()),
            }
        }
        if !silent.is_empty() {
            let names = silent.join(", ");
            warnings.add_text(format!(
                "nothing was done at {names}: no answer to what the nsqd can do"
            ));
        }
        let acted = if nodes.is_empty() && !silent.is_empty() {
            Err(Refusal::upstream(warnings.text()))
        } else {
            let deed = Deed::new(act, &subject.topic, &subject.channel, &terms);
            let are_all = is_whole && silent.is_empty();
            let acted = self.cluster.act_at(deed, &nodes, are_all, warnings);
            acted.await
        };
        let messages = match act {
            Act::Unempty => subject.undo.map(|undo| undo.message_count),
            _ => Some(subject.message_count()),
        };
        let acting = Subject {
            details: Details::of(act, &terms, messages),
            topic: subject.topic,
            channel: subject.channel,
            ..Subject::default()
        };
        let action = acting.action(act);
        self.report(actor, action, acting, &acted).await
    }
}

/// Returns nsqds by `host:port`.
fn by_address(targets: impl Iterator<Item = Target>) -> BTreeMap<String, Target> {
    targets
        .map(|target| (target.identity.address.clone(), target))
        .collect()
}

#[cfg(test)]
mod tests;
