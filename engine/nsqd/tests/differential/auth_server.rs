//! An auth server whose answer depends only on the secret.

use crate::support::{Answer, rows, serve_http};
use std::net::SocketAddr;

/// Secret, status and body of each answer.
const ANSWERS: &str = r#"
    all       | 200 | {"ttl":3600,"identity":"bob <x>","identity_url":"http://u","authorizations":[{"topic":".*","channels":[".*"],"permissions":["subscribe","publish"]}]}
    publish   | 200 | {"ttl":3600,"authorizations":[{"topic":".*","channels":[".*"],"permissions":["publish"]}]}
    subscribe | 200 | {"ttl":3600,"authorizations":[{"topic":"^auth_","channels":["^c"],"permissions":["subscribe"]}]}
    none      | 200 | {"ttl":3600,"authorizations":[]}
    ttl       | 200 | {"ttl":0,"authorizations":[]}
    text      | 200 | not json
    refused   | 500 | boom"#;

/// Serves on a free port of 127.0.0.1 until the process ends.
pub(crate) fn serve() -> SocketAddr {
    serve_http(|request| {
        let is_secret = |secret: &str| request.target().contains(&format!("secret={secret}&"));
        let found = rows::<3>(ANSWERS).find(|[secret, ..]| is_secret(secret));
        let [_, status, body] = found.unwrap_or(["", "403", "{}"]);
        Answer::new(status.parse().expect("a status"), body)
    })
}
