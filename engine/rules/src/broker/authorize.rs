//! AUTH, and the rights that SUB and publishes need if an auth server is configured.
//!
//! ```text
//!   AUTH ─────────────► Output::Authorize ──► the shell asks ──► handle_grants: the answer to AUTH
//!   SUB, PUB, ... ────► grants, not expired: allowed or not
//!        expired └────► Output::Authorize ──► the shell asks ──► handle_grants: the command again
//! ```
//!
//! Until the answer comes, the commands of this client wait. The commands of other clients do not.

use super::Broker;
use super::output::{Level, Output};
use crate::auth::{Auth, AuthQuery, AuthReason, Grants, ip_of};
use crate::client::output::Verb;
use crate::client::{Blocked, Ending};
use crate::ids::ClientId;
use crate::now::Now;
use crate::refusal::Refusal;
use diskq_log::plant;
use wire::error::WireError;
use wire::name::{ChannelName, TopicName};

/// The decision whether a command may be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permit {
    /// The client may carry it out.
    Granted,
    /// The client may not, and has got the error.
    Refused,
    /// The auth server is being asked. The command is offered again when the answer has come.
    Asked,
}

impl Broker {
    /// AUTH.
    pub(super) fn authenticate(&mut self, id: ClientId, secret: &[u8]) {
        let session = &mut self.clients[id].session;
        if session.has_grants() {
            self.fail(id, WireError::auth_already_set());
        } else if !self.options.server.auth_required {
            self.fail(id, WireError::auth_disabled());
        } else {
            session.auth = Some(Box::new(Auth::new(secret)));
            self.ask_for_grants(id, AuthReason::Command);
        }
    }

    fn ask_for_grants(&mut self, id: ClientId, reason: AuthReason) {
        let client = &mut self.clients[id];
        let Some(auth) = &client.session.auth else {
            return;
        };
        let query = AuthQuery {
            secret: auth.secret.clone(),
            is_renewal: reason == AuthReason::Expired,
            remote_ip: ip_of(&client.address).to_owned(),
            tls: client.session.tls.clone(),
        };
        client.block(Blocked::Authorizing(reason));
        self.out.push(Output::Authorize(id, query));
    }

    /// Takes the answer to [`Output::Authorize`]. An error is the reason why there is no answer, for the log. Does
    /// nothing for a client that is gone.
    pub fn handle_grants(
        &mut self,
        now: Now,
        id: ClientId,
        answer: Result<Grants, String>,
        out: &mut Vec<Output>,
    ) {
        self.call(now, out, |broker| {
            let Some(client) = broker.clients.get_mut(id) else {
                return;
            };
            let Some(Blocked::Authorizing(reason)) = client.blocked() else {
                return;
            };
            client.unblock(Blocked::Authorizing(reason));
            if client.ending() != Ending::No {
                // An earlier publish has failed meanwhile, and that error ends the connection.
                return;
            }
            let Some(auth) = &mut client.session.auth else {
                return;
            };
            match answer {
                Err(why) => {
                    let address = client.address.as_str();
                    let error = WireError::auth_failed();
                    let warning = format!("PROTOCOL(V2): [{address}] AUTH failed {why}");
                    let line = format!("[{address}] - {} - {why}", error.text);
                    broker.out.push(Output::Log(Level::Warning, warning));
                    broker.out.push(Output::error(line));
                    client.reply_error(error);
                }
                Ok(grants) => {
                    auth.grant(now.mono, grants);
                    // The command that waits may be an unfinished MPUB, which needs more input only if it is permitted.
                    client.session.decoder.look_again();
                    if reason == AuthReason::Command {
                        let json = auth.has_grants().then(|| auth.json());
                        match json {
                            None => return broker.fail(id, WireError::no_authorizations()),
                            Some(json) => {
                                let mut frame = Vec::with_capacity(json.len() + 8);
                                wire::encode::response(&mut frame, json.as_bytes());
                                client.reply(&frame);
                            }
                        }
                    }
                    broker.out.push(Output::Resume(id));
                }
            }
            broker.flush_later(id);
        })
    }

    /// Returns whether a client may publish to a topic, or subscribe to a channel. In a drain nobody may publish.
    pub(super) fn permit(
        &mut self,
        id: ClientId,
        verb: Verb,
        (topic, channel): (TopicName<'_>, Option<ChannelName<'_>>),
    ) -> Permit {
        if !self.checks_permits {
            return Permit::Granted;
        }
        let auth = self.clients[id].session.auth.as_ref();
        let is_expired = auth.is_some_and(|auth| auth.expires_at < self.now.mono);
        if is_expired && self.options.server.auth_required && !self.is_closed_to(verb) {
            self.ask_for_grants(id, AuthReason::Expired);
            return Permit::Asked;
        }
        match self.refusal_of(id, verb, (topic, channel)) {
            None => Permit::Granted,
            Some(error) => {
                self.fail(id, error);
                Permit::Refused
            }
        }
    }

    /// Returns whether a drain refuses the command.
    fn is_closed_to(&self, verb: Verb) -> bool {
        plant!(DrainTakesPublishes, return false);
        self.is_draining && verb != Verb::Sub
    }

    /// Returns the error of a command that the client may not carry out by its last grants, whether or not they have
    /// expired.
    pub(super) fn refusal_of(
        &self,
        id: ClientId,
        verb: Verb,
        (topic, channel): (TopicName<'_>, Option<ChannelName<'_>>),
    ) -> Option<WireError> {
        if self.is_closed_to(verb) {
            return Some(verb.failed(&Refusal::Draining.to_string()));
        }
        if !self.options.server.auth_required {
            return None;
        }
        let topic = topic.as_str();
        let channel = channel.map_or("", |channel| channel.as_str());
        match &self.clients[id].session.auth {
            None => Some(WireError::auth_first(verb.name())),
            Some(auth) if auth.allows(topic, channel) => None,
            Some(_) => Some(WireError::unauthorized(verb.name(), topic, channel)),
        }
    }

    /// Returns whether the client may publish to the topic of an MPUB that is unfinished or will be refused. nsqd
    /// checks the permission before it looks at the messages.
    pub(super) fn may_publish_many(&mut self, id: ClientId, topic: Option<TopicName<'_>>) -> bool {
        topic.is_none_or(|topic| self.permit(id, Verb::Mpub, (topic, None)) == Permit::Granted)
    }
}
