//! The endpoints that act: each act is written to the audit log and told to the endpoint of
//! notifications. `rights` has checked user and page before.

use ::http::StatusCode;
use wire::name::is_valid_name;

use super::endpoint::Change;
use super::{App, Reply, Request};
use crate::access::basic_user;
use crate::audit::{Entry, Outcome};
use crate::cluster::{Act, Acted, NodeAct, Terms};
use crate::notification::Notification;
use crate::outcome::Refusal;
use crate::unix_time;

/// The subject of an act.
#[derive(Clone, Debug, Default)]
pub(super) struct Subject {
    pub(super) topic: String,
    /// Empty for an act on a topic.
    pub(super) channel: String,
    /// Empty, except for a tombstone.
    pub(super) node: String,
    /// Empty, except for `PUT /config/*`.
    pub(super) key: String,
}

/// The client that acts.
#[derive(Clone, Debug)]
pub(super) struct Actor {
    /// The user for logs, or an empty text.
    pub(super) user: String,
    /// The user for notifications, or an empty text.
    told_user: String,
    remote_address: String,
    user_agent: String,
    url: String,
}

/// Longest name of an admin that nsqd takes, in characters.
const BY_MAX: usize = 64;

impl Actor {
    /// Returns the name for the terms of a pause: what nsqd takes of the user's name.
    pub(super) fn by(&self) -> String {
        let plain = self.user.chars().filter(|c| !c.is_control());
        plain.take(BY_MAX).collect()
    }
}

impl Subject {
    /// Returns what the path of a request names.
    pub(super) fn of_path(change: Change, segments: &[String]) -> Subject {
        let segment = |index: usize| segments.get(index).cloned().unwrap_or_default();
        match change {
            Change::Create | Change::Many => Subject::default(),
            Change::Act | Change::Delete => Subject {
                topic: segment(0),
                channel: segment(1),
                ..Subject::default()
            },
            Change::Tombstone => Subject {
                node: segment(0),
                ..Subject::default()
            },
        }
    }

    /// Returns the name of an action: `pause_topic`, `pause_channel`, ...
    pub(super) fn action(&self, verb: Act) -> &'static str {
        match (verb, self.channel.is_empty()) {
            (Act::Create, true) => "create_topic",
            (Act::Create, false) => "create_channel",
            (Act::Delete, true) => "delete_topic",
            (Act::Delete, false) => "delete_channel",
            (Act::Pause, true) => "pause_topic",
            (Act::Pause, false) => "pause_channel",
            (Act::Unpause, true) => "unpause_topic",
            (Act::Unpause, false) => "unpause_channel",
            (Act::Empty, true) => "empty_topic",
            (Act::Empty, false) => "empty_channel",
            (Act::Unempty, true) => "unempty_topic",
            (Act::Unempty, false) => "unempty_channel",
        }
    }
}

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
        let actor = self.actor(request);
        let none = Terms::default();
        let (action, acted) = match change {
            Change::Many => return self.act_on_many(actor, request).await,
            Change::Create => {
                [subject.topic, subject.channel] = request
                    .read_texts(self.read_timeout, ["topic", "channel"])
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
                    self.report(&actor, "create_topic", topic, &acted).await;
                }
                (subject.action(Act::Create), acted)
            }
            Change::Delete => {
                let (topic, channel) = (&subject.topic, &subject.channel);
                let acted = self.cluster.act(Act::Delete, topic, channel, &none);
                (subject.action(Act::Delete), acted.await)
            }
            Change::Act => {
                let keys = ["action", "for", "note", "undo"];
                let [action, limit, note, undo] =
                    request.read_texts(self.read_timeout, keys).await?;
                let act = match action.as_str() {
                    "pause" => Act::Pause,
                    "unpause" => Act::Unpause,
                    "empty" => Act::Empty,
                    "unempty" => Act::Unempty,
                    _ => return Err(Refusal::bad("INVALID_ACTION")),
                };
                let terms = Terms {
                    limit,
                    note,
                    by: actor.by(),
                    undo,
                };
                let (topic, channel) = (&subject.topic, &subject.channel);
                let acted = self.cluster.act(act, topic, channel, &terms);
                (subject.action(act), acted.await)
            }
            Change::Tombstone => {
                subject.topic = self.topic_to_tombstone(request).await?;
                if !is_host_and_port(&subject.node) {
                    return Err(Refusal::not_found("NODE_NOT_FOUND"));
                }
                let act = NodeAct {
                    node: subject.node.clone(),
                    topic: subject.topic.clone(),
                };
                (TOMBSTONE, self.cluster.tombstone(&act).await)
            }
        };
        self.report(&actor, action, subject, &acted).await;
        let warnings = acted?;
        Ok(Reply::object(&warnings, |_| {}))
    }

    async fn topic_to_tombstone(&self, request: &mut Request) -> Result<String, Refusal> {
        let read = request.read_texts(self.read_timeout, ["topic"]).await;
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
        action: &'static str,
        subject: Subject,
        acted: &Acted,
    ) {
        self.audit.write(actor.entry(action, &subject, acted)).await;
        if acted.is_ok() {
            let notification = actor.notification(action, subject, &self.hostname);
            self.notifier.notify(notification);
        }
    }

    /// Returns the client that sent the request.
    pub(super) fn actor(&self, request: &Request) -> Actor {
        // Any client can name a user of basic authentication. The proxy's user is the one who may act.
        let first = |user: String, other: String| if user.is_empty() { other } else { user };
        let of_proxy = self.access.user(request.headers(), request.peer().ip());
        let basic = basic_user(request.headers());
        Actor {
            user: first(of_proxy.clone(), basic.clone()),
            // Basic authentication comes first here, as in the original.
            told_user: first(basic, of_proxy),
            remote_address: request.peer().to_string(),
            user_agent: request.user_agent().to_owned(),
            url: request.url(),
        }
    }
}

impl Actor {
    /// Returns the line of the audit log.
    pub(super) fn entry(&self, action: &str, subject: &Subject, acted: &Acted) -> Entry {
        let (outcome, message) = match acted {
            Ok(warnings) if warnings.is_empty() => (Outcome::Done, String::new()),
            Ok(warnings) => (Outcome::Partly, warnings.message()),
            Err(refusal) if refusal.status == StatusCode::FORBIDDEN => {
                (Outcome::Refused, refusal.message.clone())
            }
            Err(refusal) => (Outcome::Failed, refusal.message.clone()),
        };
        Entry {
            unix_seconds: unix_time::seconds(),
            user: self.user.clone(),
            remote_address: self.remote_address.clone(),
            action: action.to_owned(),
            topic: subject.topic.clone(),
            channel: subject.channel.clone(),
            node: subject.node.clone(),
            key: subject.key.clone(),
            outcome,
            message,
        }
    }

    fn notification(&self, action: &'static str, subject: Subject, via: &str) -> Notification {
        Notification {
            action,
            topic: subject.topic,
            channel: subject.channel,
            node: subject.node,
            unix_seconds: unix_time::seconds(),
            user: self.told_user.clone(),
            remote_ip: self.remote_address.clone(),
            user_agent: self.user_agent.clone(),
            url: self.url.clone(),
            via: via.to_owned(),
        }
    }
}

fn check_name(name: &str, invalid: &'static str) -> Result<(), Refusal> {
    match is_valid_name(name.as_bytes()) {
        true => Ok(()),
        false => Err(Refusal::bad(invalid)),
    }
}

/// Returns true for `host:port`, in which the host has no characters of another part of a URL.
fn is_host_and_port(node: &str) -> bool {
    let Some((host, port)) = program::tcp_address::split_host_port(node) else {
        return false;
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:%".contains(&byte);
    !host.is_empty() && host.bytes().all(is_plain) && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::is_host_and_port;

    #[test]
    fn a_node_is_a_host_and_a_port() {
        for node in ["127.0.0.1:4151", "node-1.example_x:1", "[::1]:4151"] {
            assert!(is_host_and_port(node), "{node}");
        }
        for node in [
            "h", "h:", ":1", "h:65536", "h/x:1", "u@h:1", "h?x:1", "h#:1", "::1:4151",
        ] {
            assert!(!is_host_and_port(node), "{node}");
        }
    }
}
