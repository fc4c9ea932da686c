//! An auth server whose answer depends only on the secret.

use crate::support::{Reply, serve_http};
use std::net::SocketAddr;

/// Secret, status and body of each answer.
const ANSWERS: [(&str, u16, &str); 7] = [
    (
        "all",
        200,
        r#"{"ttl":3600,"identity":"bob <x>","identity_url":"http://u","authorizations":[{"topic":".*","channels":[".*"],"permissions":["subscribe","publish"]}]}"#,
    ),
    (
        "publish",
        200,
        r#"{"ttl":3600,"authorizations":[{"topic":".*","channels":[".*"],"permissions":["publish"]}]}"#,
    ),
    (
        "subscribe",
        200,
        r#"{"ttl":3600,"authorizations":[{"topic":"^auth_","channels":["^c"],"permissions":["subscribe"]}]}"#,
    ),
    ("none", 200, r#"{"ttl":3600,"authorizations":[]}"#),
    ("ttl", 200, r#"{"ttl":0,"authorizations":[]}"#),
    ("text", 200, "not json"),
    ("refused", 500, "boom"),
];

/// Serves on a free port of 127.0.0.1 until the process ends.
pub(crate) fn serve() -> SocketAddr {
    serve_http(|request| {
        let mut answers = ANSWERS.iter();
        let found =
            answers.find(|(secret, ..)| request.target.contains(&format!("secret={secret}&")));
        let (_, status, body) = *found.unwrap_or(&("", 403, "{}"));
        Reply::new(status, body)
    })
}
