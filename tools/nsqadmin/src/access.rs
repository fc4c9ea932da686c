//! [`Access`]: the rules about users who act, and about pages that send a request which acts.
//!
//! Two checks protect each action. The *user* must be an admin. And the *page* from which a browser
//! sends the request must be nsqadmin's own: otherwise any page in the admin's browser could act in
//! the admin's name (cross-site request forgery).
//!
//! [`IgnoredUserLog`] says when the log tells about an address whose header of a user does not count.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, HeaderName};
use ipnet::IpNet;
use parking_lot::Mutex;
use program::http::{HostNames, PageMarks};

/// The header in which a client names itself if nobody else does. Nobody checks this name, and it permits nothing.
const CLAIMED_USER: &str = "x-claimed-user";

/// Most characters of such a name.
pub const CLAIMED_CHARS_MAX: usize = 50;

/// Most bytes of a header that a refusal shows.
const SHOWN_BYTES_MAX: usize = 256;

/// The rules about users and origins.
#[derive(Clone, Debug)]
pub struct Access {
    /// `--acl-http-header`
    pub header: HeaderName,
    /// `--admin-user`. An empty list makes everybody an admin.
    pub admin_users: Vec<String>,
    /// `--trusted-proxy-cidr`. An empty list trusts no address.
    pub trusted_proxies: Vec<IpNet>,
    /// `--allowed-origin`
    pub allowed_origins: Vec<String>,
    /// The machine's name, `--allowed-host`, and the hosts of `--allowed-origin`.
    pub host_names: HostNames,
    /// `--peek-bodies`
    pub body_readers: BodyReaders,
}

/// The users who may read the bodies of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyReaders {
    /// The users of `--admin-user`. Without the flag, everybody may act, and there is no such user.
    Admins,
    /// Everybody who reaches nsqadmin.
    Everybody,
    /// No user.
    Nobody,
}

impl Access {
    /// Returns the user that the proxy in front has named, or an empty text. The name is UTF-8. A header
    /// from an address that is no trusted proxy does not count. Several headers do not count either: a
    /// client may have sent one of them.
    pub fn user(&self, headers: &HeaderMap, peer: IpAddr) -> String {
        let mut values = headers.get_all(&self.header).iter();
        match (self.is_trusted(peer), values.next(), values.next()) {
            (true, Some(user), None) => {
                let user = std::str::from_utf8(user.as_bytes());
                user.unwrap_or_default().to_owned()
            }
            _ => String::new(),
        }
    }

    /// Returns true if requests from this address come from a proxy that the operator trusts.
    pub fn is_trusted(&self, peer: IpAddr) -> bool {
        let mut proxies = self.trusted_proxies.iter();
        proxies.any(|range| range_has(range, peer))
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

    /// Returns the reason why a client that sends the credentials of basic authentication has no user. Any client can send
    /// them, and nobody has checked the password.
    pub fn ignored_credentials(&self, headers: &HeaderMap, peer: IpAddr) -> Option<String> {
        let value = headers.get(AUTHORIZATION)?.as_bytes();
        let scheme = value.split(|byte| *byte == b' ').next()?;
        let is_ignored =
            scheme.eq_ignore_ascii_case(b"basic") && self.user(headers, peer).is_empty();
        is_ignored.then(|| {
            format!(
                "basic authentication does not count, because nsqadmin checks no password; a proxy that checks it has to \
                 name the user in the header {}",
                self.header
            )
        })
    }

    /// Returns true if the header counts from every address of a family.
    pub fn trusts_everybody(&self) -> bool {
        self.trusted_proxies
            .iter()
            .any(|range| range.prefix_len() == 0)
    }

    /// Returns true if the user may act. An empty text is a client without a user, and never an admin of a list.
    pub fn is_admin(&self, user: &str) -> bool {
        self.admin_users.is_empty() || self.is_listed(user)
    }

    fn is_listed(&self, user: &str) -> bool {
        !user.is_empty() && self.admin_users.iter().any(|admin| admin == user)
    }

    /// Returns true if the user may read the bodies of messages.
    pub fn may_read_bodies(&self, user: &str) -> bool {
        match self.body_readers {
            BodyReaders::Admins => self.is_listed(user),
            BodyReaders::Everybody => true,
            BodyReaders::Nobody => false,
        }
    }

    /// Returns the `Host` of a request from this machine that a page of another site may have sent by DNS rebinding: the
    /// browser then takes that page for nsqadmin's own.
    ///
    /// A proxy on this machine also sends names that nsqadmin does not know, and its headers excuse them. A page's
    /// script can set these headers, too. But a page's request that acts has `Origin`, and has `Sec-Fetch-Site` only
    /// over HTTPS, where the browser has checked the name. So `Origin` without `Sec-Fetch-Site` is never excused.
    pub fn unknown_host<'h>(&self, headers: &'h HeaderMap, peer: IpAddr) -> Option<&'h str> {
        let host = headers.get(HOST)?.to_str().unwrap_or("?");
        if !peer.to_canonical().is_loopback() || self.host_names.have(host) {
            return None;
        }
        let is_unchecked_page =
            headers.contains_key(ORIGIN) && !headers.contains_key("sec-fetch-site");
        (is_unchecked_page || !has_proxy(headers)).then_some(host)
    }

    /// Returns true if a request that acts comes from nsqadmin's own page, from a page of `--allowed-origin`, or from no
    /// browser.
    pub fn is_own_page(&self, headers: &HeaderMap) -> bool {
        let marks = PageMarks::from(headers);
        let is_allowed = marks.origin().is_some_and(|origin| {
            let mut allowed = self.allowed_origins.iter();
            allowed.any(|allowed| allowed.as_bytes() == origin)
        });
        is_allowed || !marks.are_of_other_site()
    }

    /// Says why a request that acts counts as one of another site's page, and what to do if the page is nsqadmin's own.
    pub fn other_page(&self, headers: &HeaderMap) -> String {
        let text = |name: &str| {
            let values = headers.get_all(name).iter();
            let values: Vec<_> = values
                .map(|value| String::from_utf8_lossy(value.as_bytes()))
                .collect();
            let mut text = values.join(", ");
            cut_off(&mut text, SHOWN_BYTES_MAX);
            text
        };
        let (origin, host) = (text("origin"), text("host"));
        if headers.contains_key("sec-fetch-site") {
            let site = text("sec-fetch-site");
            return format!(
                "the browser says that a page of another site has sent the request (Sec-Fetch-Site {site:?}, Origin {origin:?}); \
                 --allowed-origin names the origin of a page that may act"
            );
        }
        format!(
            "the page's Origin is {origin:?} and the request's Host is {host:?}; if the page is nsqadmin's own, have the proxy keep \
             Host or set X-Forwarded-Host, or name the origin with --allowed-origin"
        )
    }
}

/// Returns true if a proxy has noted that it forwards the request.
fn has_proxy(headers: &HeaderMap) -> bool {
    let names = [
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-real-ip",
        "forwarded",
        "via",
    ];
    names.iter().any(|name| headers.contains_key(*name))
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

/// Returns the name that a client gives itself, or an empty text.
///
/// # Errors
/// There are several names, or the name is too long, or it has characters that cannot be seen. Such characters could hide
/// the mark of a name that nobody has checked.
pub fn claimed_user(headers: &HeaderMap) -> Result<String, &'static str> {
    let mut values = headers.get_all(CLAIMED_USER).iter();
    let name = match (values.next(), values.next()) {
        (None, _) => return Ok(String::new()),
        (Some(name), None) => std::str::from_utf8(name.as_bytes())
            .map_err(|_| "the name in X-Claimed-User is not UTF-8")?,
        (Some(_), Some(_)) => return Err("there is more than one X-Claimed-User"),
    };
    let name = name.trim();
    if name.chars().count() > CLAIMED_CHARS_MAX {
        return Err("the name in X-Claimed-User has more than 50 characters");
    }
    if name.chars().any(is_invisible) {
        Err("the name in X-Claimed-User has characters that cannot be seen")
    } else {
        Ok(name.to_owned())
    }
}

/// Returns true for control characters, and for those that change the direction of a text, join or separate characters, or
/// have no width (the category Cf of Unicode, and its separators of lines and paragraphs).
pub(crate) fn is_invisible(character: char) -> bool {
    let is_format = matches!(
        character,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}'
    );
    is_format || character.is_control()
}

/// Parses a range of IP addresses in Go's notation: `192.0.2.0/24` or `2001:db8::/32`. Bits behind the prefix mean
/// nothing. The parser of [`IpNet`] also takes `010.0.0.1/8`, which Go refuses, so the address is parsed apart.
///
/// # Errors
/// Go's text: `invalid CIDR address: 1.2.3.4`.
pub fn parse_range(text: &str) -> Result<IpNet, String> {
    let parsed = || {
        let (address, prefix) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let is_number = prefix.bytes().all(|byte| byte.is_ascii_digit());
        let range = IpNet::new(address, prefix.parse().ok()?).ok()?;
        let prefix_bits = match range.prefix_len() {
            bits if address == address.to_canonical() => bits,
            bits => bits.saturating_sub(96),
        };
        IpNet::new(address.to_canonical(), prefix_bits)
            .ok()
            .filter(|_| is_number)
    };
    parsed().ok_or_else(|| format!("invalid CIDR address: {text}"))
}

/// Returns true if the range has the address. An IPv4 address inside an IPv6 one counts as IPv4.
pub fn range_has(range: &IpNet, address: IpAddr) -> bool {
    range.contains(&address.to_canonical())
}

/// Most addresses that are remembered. With more, all of them are forgotten, so an address can have a second line.
const ADDRESSES_MAX: usize = 1000;

/// The time between two lines. A client with many addresses cannot fill the log.
const ONE_EVERY: Duration = Duration::from_secs(1);

/// The addresses that had their line.
#[derive(Clone, Debug, Default)]
pub struct IgnoredUserLog(Arc<Mutex<Told>>);

#[derive(Debug, Default)]
struct Told {
    addresses: BTreeSet<IpAddr>,
    last: Option<Instant>,
}

impl IgnoredUserLog {
    /// Returns true if the log should tell about this address now. An address that comes within a second of another
    /// one's line has its line at a later request.
    pub fn is_due(&self, address: IpAddr, now: Instant) -> bool {
        let mut told = self.0.lock();
        let is_too_early = told.last.is_some_and(|last| now < last + ONE_EVERY);
        if is_too_early || told.addresses.contains(&address) {
            return false;
        }
        if told.addresses.len() == ADDRESSES_MAX {
            told.addresses.clear();
        }
        told.addresses.insert(address);
        told.last = Some(now);
        true
    }
}

/// Cuts a text off that has more bytes, and marks the place. Clients choose such texts, and must not fill the disk.
pub(crate) fn cut_off(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push('…');
    }
}

#[cfg(test)]
mod tests;
