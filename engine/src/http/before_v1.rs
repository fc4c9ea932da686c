//! The endpoints of nsqd before 1.0, for producers that still call them: `--old-http-endpoints`.
//!
//! The old endpoints are today's endpoints under other names. A request that does not ask for today's style gets the
//! old style: an envelope around data, and status 500 for every error (`Reply::before_v1`).

use http::Method;
use program::http::OldRequest;

/// What was called otherwise: the path then, the path now.
const RENAMED: &[(&str, &str)] = &[
    ("/create_topic", "/topic/create"),
    ("/delete_topic", "/topic/delete"),
    ("/empty_topic", "/topic/empty"),
    ("/pause_topic", "/topic/pause"),
    ("/unpause_topic", "/topic/unpause"),
    ("/create_channel", "/channel/create"),
    ("/delete_channel", "/channel/delete"),
    ("/empty_channel", "/channel/empty"),
    ("/pause_channel", "/channel/pause"),
    ("/unpause_channel", "/channel/unpause"),
];

/// What a request means, if it is one that nsqd before 1.0 knew.
pub(super) fn translate<'a>(method: &Method, path: &str, query: &'a str) -> Option<OldRequest<'a>> {
    let is_get_or_post = method == Method::GET || method == Method::POST;
    if let Some((_, path)) = RENAMED.iter().find(|(then, _)| *then == path) {
        return is_get_or_post.then_some(OldRequest {
            method: "POST",
            path,
            query: query.into(),
        });
    }
    let (method, path) = match (method.as_str(), path) {
        ("POST", "/put" | "/pub") => ("POST", "/pub"),
        ("POST", "/mput" | "/mpub") => ("POST", "/mpub"),
        ("GET", "/info") => ("GET", "/info"),
        ("GET", "/stats") => ("GET", "/stats"),
        _ => return None,
    };
    let is_binary = |pair: &str| pair == "binary" || pair.starts_with("binary=");
    // The old nsqd looked only whether the parameter was there, not at its value.
    let query = match path == "/mpub" && query.split('&').any(is_binary) {
        true => format!("binary=true&{query}").into(),
        false => query.into(),
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
