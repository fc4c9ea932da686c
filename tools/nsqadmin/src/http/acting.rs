//! The endpoints that act: each act is written to the audit log and told to the endpoint of
//! notifications. `rights` has checked user and page before.

use ::http::StatusCode;
use wire::name::is_valid_name;

use super::actor::Actor;
use super::endpoint::Change;
use super::subject::Subject;
use super::{App, Reply, Request};
use crate::cluster::{Act, Acted, Terms};
use crate::node::is_host_and_port;
use crate::outcome::Refusal;

const TOMBSTONE: &str = "tombstone_topic_producer";

impl App {
    /// Answers an endpoint that acts, for a client that may act.
    pub(super) async fn change(
        &self,
        change: Change,
        segments: &[String],
        request: &mut Request,
    ) -> Result<Reply, Refusal> {
        let mut subject = Subject::of_path(change, segments);
        let actor = self.acting(request)?;
        let none = Terms::default();
        let (action, acted) = match change {
            Change::Many => return self.act_on_many(actor, request).await,
            Change::Create => {
                [subject.topic, subject.channel] = request
                    .read_texts(self.config.read_timeout, ["topic", "channel"])
                    .await?;
                check_name(&subject.topic, "INVALID_TOPIC")?;
                if !subject.channel.is_empty() {
                    check_name(&subject.channel, "INVALID_CHANNEL")?;
                }
                let (topic, channel) = (&subject.topic, &subject.channel);
                let acted = self.cluster.act(Act::Create, topic, channel, &none).await;
                if !subject.channel.is_empty() {
                    // The topic that a channel needs is an act of its own.
                    let topic = Subject {
                        channel: String::new(),
                        ..subject.clone()
                    };
                    self.report(&actor, topic.action(Act::Create), topic, &acted)
                        .await;
                }
                (subject.action(Act::Create), acted)
            }
            Change::Delete => {
                let (topic, channel) = (&subject.topic, &subject.channel);
                let acted = self.cluster.act(Act::Delete, topic, channel, &none);
                (subject.action(Act::Delete), acted.await)
            }
            Change::Act => {
                let keys = ["action", "for", "note", "undo", "messages"];
                let [action, limit, note, undo, messages] =
                    request.read_terms(self.config.read_timeout, keys).await?;
                let expected_messages = match messages.as_str() {
                    "" => None,
                    number => Some(number.parse().map_err(|_| {
                        Refusal::bad(format!("INVALID_MESSAGES: {number} is not a number"))
                    })?),
                };
                let acts = [Act::Pause, Act::Unpause, Act::Empty, Act::Unempty];
                let act = acts.into_iter().find(|act| act.word() == action);
                let act = act.ok_or_else(|| Refusal::bad("INVALID_ACTION"))?;
                let terms = Terms {
                    limit,
                    note,
                    by: actor.by(),
                    undo,
                    expected_messages,
                };
                let messages = match act {
                    Act::Unempty if expected_messages.is_some() => expected_messages,
                    _ => self.messages_of(act, &subject),
                };
                subject = subject.with_details(act, &terms, messages);
                let (topic, channel) = (&subject.topic, &subject.channel);
                let acted = self.cluster.act(act, topic, channel, &terms);
                (subject.action(act), acted.await)
            }
            Change::Tombstone => {
                subject.topic = self.topic_to_tombstone(request).await?;
                if !is_host_and_port(&subject.node) {
                    return Err(Refusal::not_found("NODE_NOT_FOUND"));
                }
                let acted = self.cluster.tombstone(&subject.node, &subject.topic).await;
                (TOMBSTONE.to_owned(), acted)
            }
        };
        let acted = match change {
            Change::Act | Change::Delete => self.with_gone(&subject.topic, acted),
            _ => acted,
        };
        self.report(&actor, action, subject, &acted).await;
        let warnings = acted?;
        Ok(Reply::object(&warnings, ()))
    }

    /// Returns the number of messages that an empty would drop or an undo would bring back, as of the last live figures.
    fn messages_of(&self, act: Act, subject: &Subject) -> Option<i64> {
        let snapshot = self.collector.as_ref()?.snapshots.borrow();
        let topic = snapshot.topics.get(&subject.topic)?;
        // An empty of a topic leaves its channels as they are.
        let (figures, is_topic) = match subject.channel.as_str() {
            "" => (&topic.total.figures, true),
            channel => (&topic.channels.get(channel)?.figures, false),
        };
        match act {
            Act::Empty if is_topic => Some(figures.depth),
            Act::Empty => Some(nsq_doctor::sum([
                figures.depth,
                figures.in_flight,
                figures.deferred,
            ])),
            Act::Unempty => Some(figures.undo?.message_count),
            Act::Create | Act::Delete | Act::Pause | Act::Unpause => None,
        }
    }

    /// Adds the nodes that are gone and had the topic to the warnings of an act: nothing was done there.
    fn with_gone(&self, topic: &str, acted: Acted) -> Acted {
        let mut warnings = acted?;
        let gone = self.gone_with(topic);
        if !gone.is_empty() {
            warnings.add_text(gone_text(&gone));
        }
        Ok(warnings.of_one_stage())
    }

    /// Returns the nodes that are gone and had the topic.
    pub(super) fn gone_with(&self, topic: &str) -> Vec<String> {
        let Some(collector) = &self.collector else {
            return Vec::new();
        };
        let checkup = collector.checkups.borrow();
        let gone = checkup.gone_with(topic).into_iter();
        gone.map(|gone| gone.address.clone()).collect()
    }

    async fn topic_to_tombstone(&self, request: &mut Request) -> Result<String, Refusal> {
        let read = request
            .read_texts(self.config.read_timeout, ["topic"])
            .await;
        let [topic] = read.map_err(|refusal| match refusal.status {
            StatusCode::BAD_REQUEST => Refusal::bad("INVALID_BODY"),
            _ => refusal,
        })?;
        check_name(&topic, "INVALID_TOPIC")?;
        Ok(topic)
    }

    /// Writes an act to the audit log, and sends the notification of an act that has not failed.
    pub(super) async fn report(
        &self,
        actor: &Actor,
        action: String,
        subject: Subject,
        acted: &Acted,
    ) {
        self.audit
            .write(actor.entry(&action, &subject, acted))
            .await;
        if acted.is_ok() {
            let notification = actor.notification(action, subject, &self.hostname);
            self.notifier.notify(notification);
        }
    }
}

/// Returns the warning about nodes that are gone.
pub(super) fn gone_text(nodes: &[String]) -> String {
    let urls: Vec<String> = nodes.iter().map(|node| format!("http://{node}")).collect();
    format!(
        "nothing was done at {}: gone, and whatever it has stays until it is back",
        urls.join(", ")
    )
}

fn check_name(name: &str, invalid: &'static str) -> Result<(), Refusal> {
    if is_valid_name(name.as_bytes()) {
        Ok(())
    } else {
        Err(Refusal::bad(invalid))
    }
}
