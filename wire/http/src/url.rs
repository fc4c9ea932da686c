//! URLs of nsqds and nsqlookupds.

use std::fmt::Display;
use std::num::NonZeroU16;

use serde::Deserialize;

/// Joins a host and a port. An IPv6 address gets brackets.
pub fn host_port(host: &str, port: impl Display) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Returns a query with these parameters and its question mark. Empty values are left out.
pub fn query(parameters: &[(&str, &str)]) -> String {
    let mut query = String::new();
    for (name, value) in parameters.iter().filter(|(_, value)| !value.is_empty()) {
        query.push(if query.is_empty() { '?' } else { '&' });
        query.push_str(name);
        query.push('=');
        push_query_value(&mut query, value.as_bytes());
    }
    query
}

/// Appends a value, escaped like Go's `url.QueryEscape`.
pub fn push_query_value(out: &mut String, value: &[u8]) {
    for byte in value {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(*byte));
            }
            b' ' => out.push('+'),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// Returns the URL at which an nsqd is asked again over HTTPS: it has answered a request at `url` with status 403, because it
/// requires TLS, and names its port for HTTPS. `None` for all other answers.
pub fn https_url(url: &str, status: u16, body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Port {
        https_port: NonZeroU16,
    }
    let rest = url.strip_prefix("http://").filter(|_| status == 403)?;
    let Port { https_port } = serde_json::from_slice(body).ok()?;
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let server = authority.rfind('@').map_or(0, |at| at + 1);
    let (user, server) = authority.split_at(server);
    let (host, _) = server.rsplit_once(':')?;
    // Other colons are those of an IPv6 address in brackets.
    let has_port = !host.contains(':') || host.ends_with(']');
    has_port.then(|| format!("https://{user}{host}:{https_port}{path}"))
}

#[cfg(test)]
mod tests;
