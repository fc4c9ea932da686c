//! [`Access`]: the rules about users who act, and about pages that send a request which acts.
//!
//! Two checks protect each action. The *user* must be an admin. And the *page* from which a browser
//! sends the request must be nsqadmin's own: otherwise any page in the admin's browser could act in
//! the admin's name (cross-site request forgery).

use std::net::IpAddr;

use base64::Engine as _;
use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, HeaderName};
use url::Url;

use crate::cidr::Cidr;

/// The rules about users and origins.
#[derive(Clone, Debug)]
pub struct Access {
    /// `--acl-http-header`
    pub header: HeaderName,
    /// `--admin-user`. An empty list makes everybody an admin.
    pub admin_users: Vec<String>,
    /// `--trusted-proxy-cidr`. An empty list trusts no address.
    pub trusted_proxies: Vec<Cidr>,
    /// `--allowed-origin`
    pub allowed_origins: Vec<String>,
    /// `--peek-bodies`
    pub body_readers: BodyReaders,
}

/// The users who may read the bodies of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyReaders {
    /// The users who may act.
    Admins,
    /// Everybody who reaches nsqadmin.
    Everybody,
    /// No user.
    Nobody,
}

impl Access {
    /// Returns the user that the proxy in front has named, or an empty text. A header from an address
    /// that is no trusted proxy does not count. Several headers do not count either: a client may
    /// have sent one of them.
    pub fn user(&self, headers: &HeaderMap, peer: IpAddr) -> String {
        let mut values = headers.get_all(&self.header).iter();
        match (self.is_trusted(peer), values.next(), values.next()) {
            (true, Some(user), None) => user.to_str().unwrap_or_default().to_owned(),
            _ => String::new(),
        }
    }

    fn is_trusted(&self, peer: IpAddr) -> bool {
        self.trusted_proxies
            .iter()
            .any(|range| range.contains(peer))
    }

    /// Returns the reason why the request's user does not count, and what to do if it should: the request names a
    /// user, and comes from an address that is no trusted proxy.
    pub fn ignored_user(&self, headers: &HeaderMap, peer: IpAddr) -> Option<String> {
        if self.is_trusted(peer) || !headers.contains_key(&self.header) {
            return None;
        }
        let prefix_bits = if peer.is_ipv4() { 32 } else { 128 };
        Some(format!(
            "the header {} from {peer} does not count, because this address is no trusted proxy; \
             if it is your proxy, add {peer}/{prefix_bits} to --trusted-proxy-cidr, beside 127.0.0.0/8,::1/128 if a \
             proxy on this machine also counts",
            self.header
        ))
    }

    /// Returns true if the header counts from every address of a family.
    pub fn trusts_everybody(&self) -> bool {
        self.trusted_proxies
            .iter()
            .any(|range| range.is_everything())
    }

    /// Returns true if the user may act.
    pub fn is_admin(&self, user: &str) -> bool {
        self.admin_users.is_empty() || self.admin_users.iter().any(|admin| admin == user)
    }

    /// Returns true if the user may read the bodies of messages.
    pub fn may_read_bodies(&self, user: &str) -> bool {
        match self.body_readers {
            BodyReaders::Admins => self.is_admin(user),
            BodyReaders::Everybody => true,
            BodyReaders::Nobody => false,
        }
    }

    /// Returns true if the request came through a proxy, or names a user.
    pub fn is_forwarded(&self, headers: &HeaderMap) -> bool {
        let names = ["x-forwarded-for", "forwarded"];
        headers.contains_key(&self.header) || names.iter().any(|name| headers.contains_key(*name))
    }

    /// Returns true if a request that acts comes from nsqadmin's own page, or from no browser.
    ///
    /// Browsers say in `Sec-Fetch-Site` where a request comes from, but only to HTTPS and to
    /// loopback addresses. They say the page's origin in `Origin` with each POST, PUT and DELETE. No
    /// script of a page can set these headers. So a request without both comes from no browser
    /// (Chrome, Firefox and Safari send `Origin` since 2020 at the latest). Go's
    /// `http.CrossOriginProtection` has the same rule.
    pub fn is_own_page(&self, headers: &HeaderMap) -> bool {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        let origin = text(ORIGIN.as_str());
        if let Some(origin) = origin
            && self.allowed_origins.iter().any(|allowed| allowed == origin)
        {
            return true;
        }
        if let Some(site) = text("sec-fetch-site") {
            return matches!(site, "same-origin" | "none");
        }
        let Some(origin) = origin else {
            return true;
        };
        // A page cannot set X-Forwarded-Host either, unless nsqadmin allows it in answer to OPTIONS.
        let hosts = [text(HOST.as_str()), text("x-forwarded-host")];
        hosts
            .iter()
            .flatten()
            .any(|host| is_origin_of(origin, host))
    }
}

/// Returns true if the origin, such as `https://h:1`, has this host and port. The scheme is that of
/// the proxy in front, which nsqadmin may not know.
fn is_origin_of(origin: &str, host: &str) -> bool {
    let Ok(origin) = Url::parse(origin) else {
        return false;
    };
    let Ok(own) = Url::parse(&format!("{}://{host}", origin.scheme())) else {
        return false;
    };
    origin.host_str().is_some()
        && origin.host_str() == own.host_str()
        && origin.port_or_known_default() == own.port_or_known_default()
}

/// Returns the user of HTTP basic authentication, or an empty text.
pub fn basic_user(headers: &HeaderMap) -> String {
    let value = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let decoded = value.and_then(|value| {
        let (scheme, encoded) = value.split_once(' ')?;
        let is_basic = scheme.eq_ignore_ascii_case("basic");
        let bytes = base64::engine::general_purpose::STANDARD.decode(encoded);
        is_basic.then(|| String::from_utf8(bytes.ok()?).ok())?
    });
    let decoded = decoded.unwrap_or_default();
    let user = decoded.split_once(':').map(|(user, _)| user);
    user.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
