//! The endpoints that act: each act is written to the audit log and told to the endpoint of
//! notifications. `rights` has checked user and page before.

use std::collections::BTreeSet;

use ::http::StatusCode;
use ::http::header::USER_AGENT;
use wire::name::is_valid_name;

use super::{App, Endpoint, Reply, Request};
use crate::access::{CLAIMED_CHARS_MAX, basic_user, claimed_user, is_invisible};
use crate::audit::{Actor, Details, Entry, Subject};
use crate::cluster::{Act, Acted, Deed, Refusal, Terms, Warnings, is_host_and_port};

const TOMBSTONE: &str = "tombstone_topic_producer";

/// Returns what the path of a request that acts names.
pub(super) fn subject_of(endpoint: Endpoint, segments: &[String]) -> Subject {
    let segment = |index: usize| segments.get(index).cloned().unwrap_or_default();
    match endpoint {
        Endpoint::Act | Endpoint::Delete => Subject {
            topic: segment(0),
            channel: segment(1),
            ..Subject::default()
        },
        Endpoint::Tombstone => Subject {
            node: segment(0),
            ..Subject::default()
        },
        _ => Subject::default(),
    }
}

impl App {
    /// Returns the client that sent the request.
    pub(super) fn actor(&self, request: &Request) -> Actor {
        let user = self.user(request);
        // Any client can name a user of basic authentication, and a proxy that passes a password on may have checked nothing.
        let basic: String = basic_user(request.headers())
            .chars()
            .filter(|character| !is_invisible(*character))
            .take(CLAIMED_CHARS_MAX)
            .collect();
        let claimed_user = match (user.is_empty(), basic.is_empty()) {
            (true, false) => basic,
            // A line about a refused request goes without a name that cannot be shown.
            (true, true) => claimed_user(request.headers()).unwrap_or_default(),
            (false, _) => String::new(),
        };
        Actor {
            user,
            claimed_user,
            remote_address: request.peer.to_string(),
            user_agent: request.header(USER_AGENT.as_str()).to_owned(),
            url: request.url(),
        }
    }

    /// Returns the client of a request that acts.
    ///
    /// # Errors
    /// 400: the client gives itself a name that cannot be shown.
    fn acting(&self, request: &Request) -> Result<Actor, Refusal> {
        let actor = self.actor(request);
        if actor.user.is_empty() && actor.claimed_user.is_empty() {
            claimed_user(request.headers())
                .map_err(|why| Refusal::bad(format!("INVALID_CLAIMED_USER: {why}")))?;
        }
        Ok(actor)
    }

    /// Answers an endpoint that acts, for a client that may act.
    pub(super) async fn change(
        &self,
        endpoint: Endpoint,
        segments: &[String],
        request: &mut Request,
    ) -> Result<Reply, Refusal> {
        let mut subject = subject_of(endpoint, segments);
        let actor = self.acting(request)?;
        let (act, terms) = match endpoint {
            Endpoint::Many => return self.act_on_many(actor, request).await,
            Endpoint::Tombstone => {
                subject.topic = topic_to_tombstone(request).await?;
                if !is_host_and_port(&subject.node) {
                    return Err(Refusal::not_found("NODE_NOT_FOUND"));
                }
                let acted = self.cluster.tombstone(&subject.node, &subject.topic).await;
                let action = TOMBSTONE.to_owned();
                self.report(&actor, action, subject, &acted).await;
                return Ok(Reply::object(&acted?, ()));
            }
            Endpoint::Create => {
                let texts = request.read_texts(["topic", "channel"]).await?;
                [subject.topic, subject.channel] = texts;
                check_name(&subject.topic, "INVALID_TOPIC")?;
                if !subject.channel.is_empty() {
                    check_name(&subject.channel, "INVALID_CHANNEL")?;
                }
                (Act::Create, Terms::default())
            }
            Endpoint::Delete => (Act::Delete, Terms::default()),
            _ => {
                let (act, terms) = read_act(request, &actor).await?;
                let messages = match act {
                    Act::Unempty if terms.expected_messages.is_some() => terms.expected_messages,
                    _ => self.messages_of(act, &subject),
                };
                subject.details = Details::of(act, &terms, messages);
                (act, terms)
            }
        };
        let deed = Deed::new(act, &subject.topic, &subject.channel, &terms);
        let mut acted = self.cluster.act(deed).await;
        if act != Act::Create {
            acted = self.with_gone(&subject.topic, acted);
        } else if !subject.channel.is_empty() {
            // The topic that a channel needs is an act of its own.
            let of_topic = Subject {
                topic: subject.topic.clone(),
                ..Subject::default()
            };
            let action = of_topic.action(act);
            self.report(&actor, action, of_topic, &acted).await;
        }
        let action = subject.action(act);
        self.report(&actor, action, subject, &acted).await;
        Ok(Reply::object(&acted?, ()))
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
            Act::Unempty => Some(figures.operated.undo?.message_count),
            Act::Create | Act::Delete | Act::Pause | Act::Unpause => None,
        }
    }

    /// Adds the nodes that are gone and had the topic to the warnings of an act: nothing was done there.
    fn with_gone(&self, topic: &str, acted: Acted) -> Acted {
        let mut warnings = acted?;
        let gone = self.gone_with(topic).into_iter().collect();
        warn_of_gone(gone, &mut warnings);
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

    /// Writes an act to the audit log, and sends the notification of an act that has not failed.
    pub(super) async fn report(
        &self,
        actor: &Actor,
        action: String,
        subject: Subject,
        acted: &Acted,
    ) -> Entry {
        let entry = Entry::new(actor.clone(), action, subject, acted);
        self.audit.write(entry.clone()).await;
        if acted.is_ok() {
            self.notifier.notify(entry.clone());
        }
        entry
    }
}

/// Reads an act on a topic or channel, and its terms.
async fn read_act(request: &mut Request, actor: &Actor) -> Result<(Act, Terms), Refusal> {
    let keys = ["action", "for", "note", "undo", "messages"];
    let [action, limit, note, undo, messages] = request.read_terms(keys).await?;
    let invalid = |_| Refusal::bad(format!("INVALID_MESSAGES: {messages} is not a number"));
    let expected_messages = match messages.as_str() {
        "" => None,
        number => Some(number.parse().map_err(invalid)?),
    };
    let acts = [Act::Pause, Act::Unpause, Act::Empty, Act::Unempty];
    let act = acts.into_iter().find(|act| act.word() == action);
    let terms = Terms {
        limit,
        note,
        by: actor.by(),
        undo,
        expected_messages,
    };
    Ok((act.ok_or_else(|| Refusal::bad("INVALID_ACTION"))?, terms))
}

async fn topic_to_tombstone(request: &mut Request) -> Result<String, Refusal> {
    let read = request.read_texts(["topic"]).await;
    let [topic] = read.map_err(|refusal| match refusal.status {
        StatusCode::BAD_REQUEST => Refusal::bad("INVALID_BODY"),
        _ => refusal,
    })?;
    check_name(&topic, "INVALID_TOPIC")?;
    Ok(topic)
}

/// Adds the warning about nodes that are gone.
pub(super) fn warn_of_gone(nodes: BTreeSet<String>, warnings: &mut Warnings) {
    if !nodes.is_empty() {
        let urls: Vec<String> = nodes.iter().map(|node| format!("http://{node}")).collect();
        let urls = urls.join(", ");
        warnings.add_text(format!(
            "nothing was done at {urls}: gone, and whatever it has stays until it is back"
        ));
    }
}

fn check_name(name: &str, invalid: &'static str) -> Result<(), Refusal> {
    if is_valid_name(name.as_bytes()) {
        Ok(())
    } else {
        Err(Refusal::bad(invalid))
    }
}
