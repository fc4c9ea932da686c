//! The endpoints of nsqd before 1.0, for producers that still call them: `--old-http-endpoints`.
//!
//! The old endpoints are today's endpoints under other names. A request that does not ask for today's style gets the
//! old style: an envelope around data, and status 500 for every error (`Reply::before_v1`).

use http::Method;
use program::http::OldRequest;

const GET: &[Method] = &[Method::GET];
const POST: &[Method] = &[Method::POST];
const GET_OR_POST: &[Method] = &[Method::GET, Method::POST];

/// The old requests: their methods, and their path then; the method and the path now.
const REQUESTS: &[(&[Method], &str, &str, &str)] = &[
    (POST, "/put", "POST", "/pub"),
    (POST, "/pub", "POST", "/pub"),
    (POST, "/mput", "POST", "/mpub"),
    (POST, "/mpub", "POST", "/mpub"),
    (GET, "/info", "GET", "/info"),
    (GET, "/stats", "GET", "/stats"),
    (GET_OR_POST, "/create_topic", "POST", "/topic/create"),
    (GET_OR_POST, "/delete_topic", "POST", "/topic/delete"),
    (GET_OR_POST, "/empty_topic", "POST", "/topic/empty"),
    (GET_OR_POST, "/pause_topic", "POST", "/topic/pause"),
    (GET_OR_POST, "/unpause_topic", "POST", "/topic/unpause"),
    (GET_OR_POST, "/create_channel", "POST", "/channel/create"),
    (GET_OR_POST, "/delete_channel", "POST", "/channel/delete"),
    (GET_OR_POST, "/empty_channel", "POST", "/channel/empty"),
    (GET_OR_POST, "/pause_channel", "POST", "/channel/pause"),
    (GET_OR_POST, "/unpause_channel", "POST", "/channel/unpause"),
];

/// Returns the present form of a request, if nsqd before 1.0 knew the request.
pub(super) fn translate<'a>(method: &Method, path: &str, query: &'a str) -> Option<OldRequest<'a>> {
    let is_wanted =
        |(methods, then, ..): &&(&[Method], &str, _, _)| *then == path && methods.contains(method);
    let &(.., method, path) = REQUESTS.iter().find(is_wanted)?;
    let is_binary = |pair: &str| pair == "binary" || pair.starts_with("binary=");
    // The old nsqd looked only whether the parameter was there, not at its value.
    let query = if path == "/mpub" && query.split('&').any(is_binary) {
        format!("binary=true&{query}").into()
    } else {
        query.into()
    };
    Some(OldRequest {
        method,
        path,
        query,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_names_are_todays() {
        let shown = |method: &Method, path, query| {
            translate(method, path, query)
                .map(|old| format!("{} {}?{}", old.method, old.path, old.query))
        };
        let post = &Method::POST;
        assert_eq!(shown(post, "/put", "topic=t").unwrap(), "POST /pub?topic=t");
        assert_eq!(
            shown(post, "/mput", "topic=t&binary").unwrap(),
            "POST /mpub?binary=true&topic=t&binary"
        );
        let deleted = shown(&Method::GET, "/delete_channel", "topic=t&channel=c");
        assert_eq!(deleted.unwrap(), "POST /channel/delete?topic=t&channel=c");
        assert_eq!(shown(&Method::GET, "/stats", "").unwrap(), "GET /stats?");
        assert_eq!(shown(&Method::GET, "/put", "topic=t"), None);
        assert_eq!(shown(&Method::PUT, "/create_topic", "topic=t"), None);
        assert_eq!(shown(post, "/topic/create", "topic=t"), None);
        assert_eq!(shown(&Method::GET, "/ping", ""), None);
    }
}
