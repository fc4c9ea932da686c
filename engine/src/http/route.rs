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
    ConfigGet,
    ConfigPut,
    PprofIndex,
    PprofCommandLine,
    PprofSymbol,
    Pprof,
    SetBlockRate,
    FreeMemory,
}

/// Every route. A `*` at the end is one segment of any name.
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
    ("GET", "/config/*", Endpoint::ConfigGet),
    ("PUT", "/config/*", Endpoint::ConfigPut),
    ("GET", "/debug/pprof/", Endpoint::PprofIndex),
    ("GET", "/debug/pprof/cmdline", Endpoint::PprofCommandLine),
    ("GET", "/debug/pprof/symbol", Endpoint::PprofSymbol),
    ("POST", "/debug/pprof/symbol", Endpoint::PprofSymbol),
    ("GET", "/debug/pprof/profile", Endpoint::Pprof),
    ("GET", "/debug/pprof/heap", Endpoint::Pprof),
    ("GET", "/debug/pprof/goroutine", Endpoint::Pprof),
    ("GET", "/debug/pprof/block", Endpoint::Pprof),
    ("GET", "/debug/pprof/threadcreate", Endpoint::Pprof),
    ("PUT", "/debug/setblockrate", Endpoint::SetBlockRate),
    ("POST", "/debug/freememory", Endpoint::FreeMemory),
];

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// With the segment that stands for the `*`, if the route has one.
    Found(Endpoint, String),
    /// To the path as it should have been written.
    Redirect(String),
    /// OPTIONS on a path that exists; the value of `Allow`, or `None` for `OPTIONS *`.
    Options(Option<String>),
    /// The path exists for other methods; the value of `Allow`.
    WrongMethod(String),
    NotFound,
}

/// Finds the route. Redirects look at the request's own method only, so that `GET /topic/create/`
/// is unknown; OPTIONS and 405 look at all methods, but at the exact path.
pub(super) fn route(method: &str, raw_path: &str) -> Route {
    if method == "OPTIONS" && raw_path == "*" {
        return Route::Options(None);
    }
    // A path that cannot be decoded was refused with its head.
    let path = percent_decode(raw_path.as_bytes()).unwrap_or_default();
    let own = || ROUTES.iter().filter(|(of, ..)| *of == method);
    let found = own().find_map(|(_, route, endpoint)| Some((endpoint, wildcard(route, &path)?)));
    if let Some((endpoint, segment)) = found {
        return Route::Found(*endpoint, String::from_utf8_lossy(segment).into_owned());
    }
    if own().next().is_some() && &*path != b"/" {
        let cleaned = clean(&path);
        if let Some(canonical) = own().find_map(|(_, route, _)| canonical(route, &cleaned)) {
            return Route::Redirect(canonical);
        }
    }
    let has_path = |route: &str| raw_path == "*" || wildcard(route, &path).is_some();
    let mut methods: Vec<&str> = ROUTES
        .iter()
        .filter(|(_, route, _)| has_path(route))
        .map(|(of, ..)| *of)
        .collect();
    if methods.is_empty() {
        return Route::NotFound;
    }
    methods.push("OPTIONS");
    methods.sort_unstable();
    methods.dedup();
    let allow = methods.join(", ");
    if method == "OPTIONS" {
        Route::Options(Some(allow))
    } else {
        Route::WrongMethod(allow)
    }
}

/// What stands for the `*` of a route, or nothing if there is none. `None`: the path is another.
fn wildcard<'a>(route: &str, path: &'a [u8]) -> Option<&'a [u8]> {
    let Some(prefix) = route.strip_suffix('*') else {
        return (route.as_bytes() == path).then_some(&[]);
    };
    let segment = path.strip_prefix(prefix.as_bytes())?;
    (!segment.is_empty() && !segment.contains(&b'/')).then_some(segment)
}

/// The path as it should have been written, of one that is a route's but for the case. What stands
/// for a `*` keeps its case.
fn canonical(route: &str, cleaned: &[u8]) -> Option<String> {
    let Some(prefix) = route.strip_suffix('*') else {
        let is_same = route
            .trim_end_matches('/')
            .as_bytes()
            .eq_ignore_ascii_case(cleaned);
        return is_same.then(|| route.to_string());
    };
    let (start, segment) = cleaned.split_at_checked(prefix.len())?;
    let is_same = start.eq_ignore_ascii_case(prefix.as_bytes());
    (is_same && wildcard("*", segment).is_some()).then(|| format!("{prefix}{}", escape(segment)))
}

/// A segment as it stands in a path.
fn escape(segment: &[u8]) -> String {
    let mut escaped = String::with_capacity(segment.len());
    for &byte in segment {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,:;=@".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
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
        let found = |endpoint| Route::Found(endpoint, String::new());
        let redirect = |path: &str| Route::Redirect(path.to_string());
        check("GET", "/ping", found(Endpoint::Ping));
        check("GET", "/%70ing", found(Endpoint::Ping));
        check("POST", "/topic/unpause", found(Endpoint::TopicPause(false)));
        for path in [
            "/ping/",
            "/PING",
            "//ping",
            "/a/../ping",
            "/ping%2f",
            "/./Ping/",
            "/../ping",
        ] {
            check("GET", path, redirect("/ping"));
        }
        check("POST", "/PUB", redirect("/pub"));
        check("POST", "/Topic/Create/", redirect("/topic/create"));
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
        check(
            "GET",
            "*",
            Route::WrongMethod(allow("GET, OPTIONS, POST, PUT")),
        );
        let option = |endpoint, name: &str| Route::Found(endpoint, name.to_string());
        check("GET", "/config/Foo", option(Endpoint::ConfigGet, "Foo"));
        check("PUT", "/config/a%20b", option(Endpoint::ConfigPut, "a b"));
        check("GET", "/CONFIG/Foo", redirect("/config/Foo"));
        check("GET", "/Config//Id/", redirect("/config/Id"));
        check("PUT", "/config/a%20b/", redirect("/config/a%20b"));
        for path in [
            "/config/",
            "/config",
            "/config/a/b",
            "/config/a%2fb",
            "/debug",
            "/debug/pprof/mutex",
        ] {
            check("GET", path, Route::NotFound);
        }
        check(
            "POST",
            "/config/x",
            Route::WrongMethod(allow("GET, OPTIONS, PUT")),
        );
        check("GET", "/debug/pprof/", found(Endpoint::PprofIndex));
        check("GET", "/debug/pprof", redirect("/debug/pprof/"));
        check("POST", "/debug/freememory/", redirect("/debug/freememory"));
        let all = Some(allow("GET, OPTIONS, POST"));
        check("OPTIONS", "/debug/pprof/symbol", Route::Options(all));
        // nsqd before 1.0.
        for path in [
            "/put",
            "/mput",
            "/create_topic",
            "/delete_channel",
            "/empty_channel",
        ] {
            check("POST", path, Route::NotFound);
        }
    }
}
