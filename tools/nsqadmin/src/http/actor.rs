//! [`Actor`]: the client that sends a request, as the audit log, the notifications and the pauses name it.

use ::http::StatusCode;
use ::http::header::USER_AGENT;
use jiff::Timestamp;

use super::subject::Subject;
use super::{App, Request};
use crate::access::{CLAIMED_CHARS_MAX, basic_user, claimed_user, is_invisible};
use crate::audit::{Entry, Outcome};
use crate::cluster::Acted;
use crate::notification::Notification;
use crate::outcome::Refusal;

/// The client that acts.
#[derive(Clone, Debug)]
pub(super) struct Actor {
    /// The user that a trusted proxy has named, or an empty text.
    pub(super) user: String,
    /// The name that a client without a user gives itself, in basic authentication or in a header. Nobody has checked it.
    /// Empty if there is a user.
    claimed_user: String,
    remote_address: String,
    user_agent: String,
    url: String,
}

/// Longest name of an admin that nsqd takes, in characters.
const BY_MAX: usize = 64;

/// The mark behind a name that nobody has checked. The longest such name and the mark have at most [`BY_MAX`] characters.
const UNVERIFIED: &str = " (unverified)";

impl App {
    /// Returns the client that sent the request.
    pub(super) fn actor(&self, request: &Request) -> Actor {
        let user = self.access.user(request.headers(), request.peer.ip());
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
    pub(super) fn acting(&self, request: &Request) -> Result<Actor, Refusal> {
        let actor = self.actor(request);
        if actor.user.is_empty() && actor.claimed_user.is_empty() {
            claimed_user(request.headers())
                .map_err(|why| Refusal::bad(format!("INVALID_CLAIMED_USER: {why}")))?;
        }
        Ok(actor)
    }
}

impl Actor {
    /// Returns the name for the terms of a pause: what nsqd takes of the user's name. A name that nobody has checked has a
    /// mark, so that it is never taken for a user.
    pub(super) fn by(&self) -> String {
        if !self.claimed_user.is_empty() {
            return format!("{}{UNVERIFIED}", self.claimed_user);
        }
        let plain = self.user.chars().filter(|c| !is_invisible(*c));
        plain.take(BY_MAX).collect()
    }

    /// Returns the line of the audit log.
    pub(super) fn entry(&self, action: &str, subject: &Subject, acted: &Acted) -> Entry {
        let (outcome, message) = outcome_of(acted);
        Entry {
            unix_seconds: Timestamp::now().as_second(),
            user: self.user.clone(),
            claimed_user: self.claimed_user.clone(),
            remote_address: self.remote_address.clone(),
            action: action.to_owned(),
            topic: subject.topic.clone(),
            channel: subject.channel.clone(),
            node: subject.node.clone(),
            key: subject.key.clone(),
            outcome,
            message,
            details: subject.details.clone(),
        }
    }

    /// Returns the notification of an act. `via` is the name of this machine.
    pub(super) fn notification(&self, action: String, subject: Subject, via: &str) -> Notification {
        Notification {
            action,
            topic: subject.topic,
            channel: subject.channel,
            node: subject.node,
            unix_seconds: Timestamp::now().as_second(),
            user: self.user.clone(),
            claimed_user: self.claimed_user.clone(),
            remote_ip: self.remote_address.clone(),
            user_agent: self.user_agent.clone(),
            url: self.url.clone(),
            via: via.to_owned(),
            details: subject.details,
        }
    }
}

/// Returns the result of an act in a word, and the message of its answer.
pub(super) fn outcome_of(acted: &Acted) -> (Outcome, String) {
    match acted {
        Ok(warnings) if warnings.is_empty() => (Outcome::Done, String::new()),
        Ok(warnings) => (Outcome::Partly, warnings.message()),
        Err(refusal) if refusal.status == StatusCode::FORBIDDEN => {
            (Outcome::Refused, refusal.message.clone())
        }
        Err(refusal) => (Outcome::Failed, refusal.message.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nsqd_takes_the_longest_name_with_its_mark() {
        let mut actor = Actor {
            user: String::new(),
            claimed_user: "é".repeat(CLAIMED_CHARS_MAX),
            remote_address: String::new(),
            user_agent: String::new(),
            url: String::new(),
        };
        let by = actor.by();
        assert!(by.ends_with("é (unverified)"), "{by}");
        assert!(by.chars().count() <= BY_MAX);
        actor.claimed_user.clear();
        assert_eq!(actor.by(), "");
        // The rest of the line ran from right to left, and could not be read.
        actor.user = "an\u{202e}n\u{200b}\n".to_owned();
        assert_eq!(actor.by(), "ann");
        actor.user = "é".repeat(100);
        assert_eq!(actor.by(), "é".repeat(BY_MAX));
    }
}
