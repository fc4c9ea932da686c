//! `POST /api/acts`: an action on all topics or channels that match a filter.
//!
//! Without a token the answer is the listing, and nothing is done. With the token of the listing, the server
//! makes the listing anew, and acts only if the token is still the same.

use std::collections::{BTreeMap, BTreeSet};

use ::http::StatusCode;
use futures_util::stream::{self, StreamExt};
use serde::Serialize;
use wire::go_json::is_default;
use wire::json_object;

use super::acting::gone_text;
use super::actor::{Actor, outcome_of};
use super::subject::Subject as Acting;
use super::{App, Reply, Request};
use crate::audit::Outcome;
use crate::cluster::{Act, Scope, Stats, Target, Terms};
use crate::order::{Kind, Order, SUBJECTS_MAX, Subject};
use crate::outcome::{Refusal, Warnings};

/// Topics or channels on which an order acts at the same time.
const AT_ONCE_MAX: usize = 16;

/// The topics or channels that an order touches.
struct Listing {
    subjects: Vec<Subject>,
    /// The nsqds by `host:port`.
    targets: BTreeMap<String, Target>,
    warnings: Warnings,
}

/// The result of one act.
#[derive(Serialize)]
struct Done {
    topic: String,
    #[serde(skip_serializing_if = "is_default")]
    channel: String,
    #[serde(rename = "result")]
    outcome: Outcome,
    message: String,
}

impl App {
    /// Answers `POST /api/acts`.
    pub(super) async fn act_on_many(
        &self,
        actor: Actor,
        request: &mut Request,
    ) -> Result<Reply, Refusal> {
        let order: Order = request.read_json(self.config.read_timeout).await?;
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
        let gone: BTreeSet<String> = subjects
            .iter()
            .flat_map(|subject| self.gone_with(&subject.topic))
            .collect();
        if !gone.is_empty() {
            warnings.add_text(gone_text(&gone.into_iter().collect::<Vec<_>>()));
        }
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
        let act_on = (act, order.of == Kind::Topics);
        let able = self
            .cluster
            .able(act_on, &terms, &named, &mut warnings)
            .await;
        if let Err(refusal) = &able {
            let failed = Err(refusal.clone());
            let entry = actor.entry("many", &Acting::default(), &failed);
            self.audit.write(entry).await;
        }
        let able = by_address(able?.into_iter());
        let acts = subjects
            .into_iter()
            .filter(|subject| order.has_work(subject));
        let acts = stream::iter(acts)
            .map(|subject| self.act_on_one(act, &terms, &actor, subject, (&able, is_whole)));
        let done: Vec<Done> = acts.buffered(AT_ONCE_MAX).collect().await;
        let messages: BTreeSet<&str> = done.iter().map(|one| &*one.message).collect();
        for message in messages.into_iter().filter(|message| !message.is_empty()) {
            warnings.add_text(message.trim_start_matches("WARNING: ").to_owned());
        }
        Ok(Reply::object(&warnings, json_object! { results: done }))
    }

    /// Acts on one subject, at its nodes among those that know the terms.
    async fn act_on_one(
        &self,
        act: Act,
        terms: &Terms,
        actor: &Actor,
        subject: Subject,
        (able, is_whole): (&BTreeMap<String, Target>, bool),
    ) -> Done {
        let (topic, channel) = (&subject.topic, &subject.channel);
        let mut terms = terms.clone();
        if subject.is_ephemeral() {
            terms.undo.clear();
        }
        let nodes = subject.nodes.iter().filter_map(|node| able.get(node));
        let nodes: Vec<Target> = nodes.cloned().collect();
        let silent = subject
            .nodes
            .iter()
            .filter(|node| !able.contains_key(*node));
        let silent: Vec<&str> = silent.map(String::as_str).collect();
        let mut warnings = Warnings::default();
        if !silent.is_empty() {
            let names = silent.join(", ");
            warnings.add_text(format!(
                "nothing was done at {names}: no answer to what the nsqd can do"
            ));
        }
        let acted = if nodes.is_empty() && !silent.is_empty() {
            Err(Refusal::upstream(warnings.text()))
        } else {
            let scope = Scope {
                targets: &nodes,
                is_whole: is_whole && silent.is_empty(),
            };
            let acted = self
                .cluster
                .act_at(act, topic, channel, &terms, scope, warnings);
            acted.await
        };
        let acting = Acting {
            topic: topic.clone(),
            channel: channel.clone(),
            ..Acting::default()
        };
        let messages = match act {
            Act::Unempty => subject.undo.map(|undo| undo.message_count),
            _ => Some(subject.message_count()),
        };
        let acting = acting.with_details(act, &terms, messages);
        let action = acting.action(act);
        self.report(actor, action, acting, &acted).await;
        let (outcome, message) = outcome_of(&acted);
        Done {
            topic: subject.topic,
            channel: subject.channel,
            outcome,
            message,
        }
    }
}

/// Returns nsqds by `host:port`.
fn by_address(targets: impl Iterator<Item = Target>) -> BTreeMap<String, Target> {
    targets
        .map(|target| (target.identity.address.clone(), target))
        .collect()
}
