//! From method and path to an endpoint, or to what is answered instead.

use super::query::percent_decode;

/// What a routed request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Ping,
    Info,
    Stats,
    Pub,
    Mpub,
    TopicCreate,
    TopicDelete,
    TopicEmpty,
    TopicPause(bool),
    ChannelCreate,
    ChannelDelete,
    ChannelEmpty,
    ChannelPause(bool),
}

/// Every route. nsqd's `/config/:opt` and `/debug/...` are not there yet and answer 404.
const ROUTES: &[(&str, &str, Endpoint)] = &[
    ("GET", "/ping", Endpoint::Ping),
    ("GET", "/info", Endpoint::Info),
    ("GET", "/stats", Endpoint::Stats),
    ("POST", "/pub", Endpoint::Pub),
    ("POST", "/mpub", Endpoint::Mpub),
    ("POST", "/topic/create", Endpoint::TopicCreate),
    ("POST", "/topic/delete", Endpoint::TopicDelete),
    ("POST", "/topic/empty", Endpoint::TopicEmpty),
    ("POST", "/topic/pause", Endpoint::TopicPause(true)),
    ("POST", "/topic/unpause", Endpoint::TopicPause(false)),
    ("POST", "/channel/create", Endpoint::ChannelCreate),
    ("POST", "/channel/delete", Endpoint::ChannelDelete),
    ("POST", "/channel/empty", Endpoint::ChannelEmpty),
    ("POST", "/channel/pause", Endpoint::ChannelPause(true)),
    ("POST", "/channel/unpause", Endpoint::ChannelPause(false)),
];

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Found(Endpoint),
    /// To the path as it should have been written.
    Redirect(&'static str),
    /// OPTIONS on a path that exists; the value of `Allow`, or `None` for `OPTIONS *`.
    Options(Option<String>),
    /// The path exists for other methods; the value of `Allow`.
    WrongMethod(String),
    NotFound,
    /// The path cannot be decoded; answered by Go's server, not by nsqd.
    BadPath,
}

/// Finds the route. Redirects look at the request's own method only, so that `GET /topic/create/`
/// is unknown; OPTIONS and 405 look at all methods, but at the exact path.
pub(super) fn route(method: &str, raw_path: &str) -> Route {
    if method == "OPTIONS" && raw_path == "*" {
        return Route::Options(None);
    }
    let Ok(path) = percent_decode(raw_path.as_bytes()) else {
        return Route::BadPath;
    };
    let exact = |route: &str| route.as_bytes() == &*path;
    let own = || ROUTES.iter().filter(|(of, ..)| *of == method);
    if let Some((.., endpoint)) = own().find(|(_, route, _)| exact(route)) {
        return Route::Found(*endpoint);
    }
    if own().next().is_some() && &*path != b"/" {
        let cleaned = clean(&path);
        if let Some((_, route, _)) =
            own().find(|(_, route, _)| route.as_bytes().eq_ignore_ascii_case(&cleaned))
        {
            return Route::Redirect(route);
        }
    }
    let mut methods: Vec<&str> = ROUTES
        .iter()
        .filter(|(_, route, _)| exact(route))
        .map(|(of, ..)| *of)
        .collect();
    if methods.is_empty() {
        return Route::NotFound;
    }
    methods.push("OPTIONS");
    methods.sort_unstable();
    let allow = methods.join(", ");
    if method == "OPTIONS" {
        Route::Options(Some(allow))
    } else {
        Route::WrongMethod(allow)
    }
}

/// The path without empty, `.` and `..` segments, and without a slash at its end.
fn clean(path: &[u8]) -> Vec<u8> {
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in path.split(|&byte| byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => {
                segments.pop();
            }
            other => segments.push(other),
        }
    }
    let mut cleaned = Vec::with_capacity(path.len());
    for segment in segments {
        cleaned.push(b'/');
        cleaned.extend_from_slice(segment);
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_of_the_specification() {
        let check = |method: &str, path: &str, expected: Route| {
            assert_eq!(route(method, path), expected, "{method} {path}");
        };
        let allow = |text: &str| text.to_string();
        check("GET", "/ping", Route::Found(Endpoint::Ping));
        check("GET", "/%70ing", Route::Found(Endpoint::Ping));
        check(
            "POST",
            "/topic/unpause",
            Route::Found(Endpoint::TopicPause(false)),
        );
        for path in [
            "/ping/",
            "/PING",
            "//ping",
            "/a/../ping",
            "/ping%2f",
            "/./Ping/",
            "/../ping",
        ] {
            check("GET", path, Route::Redirect("/ping"));
        }
        check("POST", "/PUB", Route::Redirect("/pub"));
        check("POST", "/Topic/Create/", Route::Redirect("/topic/create"));
        for path in ["/topic/create/", "/", "/nope", "/ping/x", "/put", "/pingx"] {
            check("GET", path, Route::NotFound);
        }
        check("HEAD", "/ping/", Route::NotFound);
        check("PUT", "/PING", Route::NotFound);
        check("HEAD", "/ping", Route::WrongMethod(allow("GET, OPTIONS")));
        check("BREW", "/pub", Route::WrongMethod(allow("OPTIONS, POST")));
        check("GET", "/pub", Route::WrongMethod(allow("OPTIONS, POST")));
        check(
            "OPTIONS",
            "/pub",
            Route::Options(Some(allow("OPTIONS, POST"))),
        );
        check("OPTIONS", "/PUB", Route::NotFound);
        check("OPTIONS", "*", Route::Options(None));
        check("GET", "/%zz", Route::BadPath);
    }
}
