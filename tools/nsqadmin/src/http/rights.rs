//! The rights of a request: each endpoint has its [`Audience`], which is checked before the body is read. Refused
//! acts are written to the audit log.

use std::time::Instant;

use ::http::{Method, StatusCode};
use program::http::HostNames;
use program::log_warn;

use super::act::subject_of;
use super::{App, Audience, Endpoint, Request};
use crate::access::range_has;
use crate::audit::{Entry, Subject};
use crate::cluster::Refusal;

impl App {
    /// Checks that the client may use the endpoint.
    ///
    /// # Errors
    /// 403: the client may not. The audit log says so, except for a `GET /config/*`.
    pub(super) async fn admit(
        &self,
        endpoint: Endpoint,
        segments: &[String],
        request: &Request,
    ) -> Result<(), Refusal> {
        let is_put = *request.method() == Method::PUT;
        let checked = match endpoint.audience(request.method()) {
            Audience::Everybody => return Ok(()),
            Audience::ConfigClients if !is_put => return self.check_range(request),
            // The address of a proxy may be inside the range, and must not open it to everybody who may read.
            Audience::ConfigClients => self
                .check_range(request)
                .and_then(|()| self.check_right_to_act(request)),
            Audience::Admins => self.check_right_to_act(request),
        };
        if let Err(refusal) = &checked {
            let (action, subject) = match endpoint {
                Endpoint::PutOption => put_of(&segments[0]),
                _ => (
                    format!("{endpoint:?}").to_lowercase(),
                    subject_of(endpoint, segments),
                ),
            };
            let entry = Entry::new(self.actor(request), action, subject, &Err(refusal.clone()));
            self.audit.write(entry).await;
        }
        checked
    }

    /// Returns the user of a request that a trusted proxy has named, or an empty text.
    pub(super) fn user(&self, request: &Request) -> String {
        self.access.user(request.headers(), request.peer.ip())
    }

    /// Returns the refusal of a request that a page of another site may have sent by a name of its own for this machine. Over
    /// TLS, the browser has checked the name.
    pub(super) fn misdirected(&self, request: &Request) -> Option<Refusal> {
        let peer = request.peer.ip();
        let unknown = self.access.unknown_host(request.headers(), peer);
        let host = unknown.filter(|_| !request.is_tls)?;
        let advice = HostNames::advice(host);
        Some(Refusal::new(
            StatusCode::MISDIRECTED_REQUEST,
            format!("MISDIRECTED_HOST: {advice}"),
        ))
    }

    /// Logs that the request's user does not count, once for each address and at most once a second.
    pub(super) fn tell_ignored_user(&self, request: &Request) {
        if let Some(why) = self.ignored_user(request)
            && self
                .ignored_user_log
                .is_due(request.peer.ip(), Instant::now())
        {
            log_warn!("{why}");
        }
    }

    /// Returns the reason why the request's user does not count, if the request names one.
    pub(super) fn ignored_user(&self, request: &Request) -> Option<String> {
        self.access
            .ignored_user(request.headers(), request.peer.ip())
    }

    /// Returns the refusal of a client that is no admin.
    fn no_admin(&self, request: &Request) -> Refusal {
        let of_credentials = || {
            let peer = request.peer.ip();
            self.access.ignored_credentials(request.headers(), peer)
        };
        forbidden(match self.ignored_user(request).or_else(of_credentials) {
            Some(why) => format!("FORBIDDEN: {why}"),
            None => "FORBIDDEN".to_owned(),
        })
    }

    /// Checks that the request comes from nsqadmin's own page and from an admin.
    fn check_right_to_act(&self, request: &Request) -> Result<(), Refusal> {
        let user = self.user(request);
        let is_own_page = self.access.is_own_page(request.headers());
        match (is_own_page, self.access.is_admin(&user)) {
            (true, true) => Ok(()),
            (false, _) => {
                let why = self.access.other_page(request.headers());
                Err(forbidden(format!("FORBIDDEN_ORIGIN: {why}")))
            }
            (true, false) => Err(self.no_admin(request)),
        }
    }

    /// Checks the client's address. No header counts.
    fn check_range(&self, request: &Request) -> Result<(), Refusal> {
        let peer = request.peer.ip();
        match self.config_clients {
            Some(range) if !range_has(&range, peer) => Err(forbidden("FORBIDDEN")),
            _ => Ok(()),
        }
    }
}

/// Returns the action and the subject of a `PUT /config/*` in the audit log.
pub(super) fn put_of(key: &str) -> (String, Subject) {
    let subject = Subject {
        key: key.to_owned(),
        ..Subject::default()
    };
    ("put_config".to_owned(), subject)
}

fn forbidden(message: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, message)
}

#[cfg(test)]
mod tests;
