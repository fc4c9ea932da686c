//! The rights that an auth server has granted to a client, and their end. The auth server learns of the TLS session.

use diskq_log::plant;
use regex::Regex;
use std::sync::Arc;
use std::time::Duration;
use wire::go_json::to_string;
use wire::json_object;

/// A question to an auth server.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthQuery {
    /// The body of AUTH.
    pub secret: Arc<[u8]>,
    /// The client was authorised before, and its grants have expired.
    pub is_renewal: bool,
    /// The client's IP address, without the port. Empty for a client of a unix socket.
    pub remote_ip: String,
    /// The connection's encryption.
    pub tls: Option<Box<TlsSession>>,
}

/// Without the secret: this may end up in a log.
impl std::fmt::Debug for AuthQuery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthQuery")
            .field("remote_ip", &self.remote_ip)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// An auth server's answer.
#[derive(Debug, Clone, Default)]
pub struct Grants {
    /// The time for which the grants hold.
    pub ttl: Duration,
    /// The name of the client, by the auth server.
    pub identity: String,
    /// A URL with more about the client, by the auth server.
    pub identity_url: String,
    /// The client's rights. A command needs only one of them.
    pub authorizations: Vec<Authorization>,
}

/// Leave to use some topics and channels.
#[derive(Debug, Clone)]
pub struct Authorization {
    /// Searched for in the topic's name.
    pub topic: Regex,
    /// Patterns for the channel's name, of which one must match. For a publish, the name is empty.
    pub channels: Vec<Regex>,
    /// SUB.
    pub may_subscribe: bool,
    /// PUB, MPUB, DPUB.
    pub may_publish: bool,
}

impl Authorization {
    fn allows(&self, topic: &str, channel: &str) -> bool {
        let is_permitted = match channel {
            "" => self.may_publish,
            _ => self.may_subscribe,
        };
        is_permitted
            && self.topic.is_match(topic)
            && self
                .channels
                .iter()
                .any(|pattern| pattern.is_match(channel))
    }
}

/// The reason why an auth server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthReason {
    /// AUTH, which wants an answer.
    Command,
    /// The grants of an earlier answer have expired.
    Expired,
}

/// The grants of a client. They move to another shard with the connection.
#[derive(Debug, Clone)]
pub(crate) struct Auth {
    pub(crate) secret: Arc<[u8]>,
    pub(crate) grants: Grants,
    /// The end of the grants; another question is due then.
    pub(crate) expires_at: Duration,
}

impl Auth {
    /// Nothing is granted before the answer comes.
    pub(crate) fn new(secret: &[u8]) -> Auth {
        Auth {
            secret: secret.into(),
            grants: Grants::default(),
            expires_at: Duration::ZERO,
        }
    }

    /// Takes an answer over.
    pub(crate) fn grant(&mut self, now: Duration, grants: Grants) {
        self.expires_at = now.saturating_add(grants.ttl);
        plant!(GrantsNeverExpire, self.expires_at = Duration::MAX);
        self.grants = grants;
    }

    pub(crate) fn has_grants(&self) -> bool {
        !self.grants.authorizations.is_empty()
    }

    /// Returns whether the grants allow a SUB to `channel`, or with an empty `channel` a publish.
    pub(crate) fn allows(&self, topic: &str, channel: &str) -> bool {
        let grants = self.grants.authorizations.iter();
        grants.into_iter().any(|grant| grant.allows(topic, channel))
    }

    /// The answer to AUTH.
    pub(crate) fn json(&self) -> String {
        let grants = &self.grants;
        to_string(&json_object! {
            identity: &grants.identity,
            identity_url: &grants.identity_url,
            permission_count: grants.authorizations.len(),
        })
    }
}

/// `10.0.0.1` of `10.0.0.1:5`, `::1` of `[::1]:5`.
pub(crate) fn ip_of(address: &str) -> &str {
    let ip = address.rsplit_once(':').map_or("", |(ip, _)| ip);
    ip.trim_start_matches('[').trim_end_matches(']')
}

/// The result of a TLS handshake, in nsqd's words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsSession {
    /// `TLS1.2` and the like.
    pub version: String,
    /// Name or number of the cipher suite.
    pub cipher_suite: String,
    /// The common name in the client's certificate; empty where there is none.
    pub common_name: String,
}
