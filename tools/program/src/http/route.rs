//! From method and path to an endpoint, or to what is answered instead: the rules of the router of NSQ's programs.

use super::query::percent_decode;

/// One row of a program's table of routes: the method, the path, and what the program calls the endpoint. A `*` at the
/// end of the path is one segment of any name.
pub type Route<E> = (&'static str, &'static str, E);

/// The result of [`route`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routed<E> {
    /// With the segment that stands for the `*`, if the route has one.
    Found(E, String),
    /// To the path as it should have been written.
    Redirect(String),
    /// OPTIONS on a path that exists; the value of `Allow`, or `None` for `OPTIONS *`.
    Options(Option<String>),
    /// The path exists for other methods; the value of `Allow`.
    WrongMethod(String),
    /// No method has the path.
    NotFound,
}

/// Finds the route of a request. Redirects look at the request's own method only, so that `GET /topic/create/`
/// is unknown; OPTIONS and 405 look at all methods, but at the exact path.
pub fn route<E: Copy>(routes: &[Route<E>], method: &str, raw_path: &str) -> Routed<E> {
    if method == "OPTIONS" && raw_path == "*" {
        return Routed::Options(None);
    }
    // A path that cannot be decoded was refused with its head.
    let path = percent_decode(raw_path.as_bytes()).unwrap_or_default();
    let own = || routes.iter().filter(|(of, ..)| *of == method);
    let found = own().find_map(|(_, route, endpoint)| Some((endpoint, wildcard(route, &path)?)));
    if let Some((endpoint, segment)) = found {
        return Routed::Found(*endpoint, String::from_utf8_lossy(segment).into_owned());
    }
    if own().next().is_some() && &*path != b"/" {
        let cleaned = clean(&path);
        if let Some(canonical) = own().find_map(|(_, route, _)| canonical(route, &cleaned)) {
            return Routed::Redirect(canonical);
        }
    }
    let has_path = |route: &str| raw_path == "*" || wildcard(route, &path).is_some();
    let mut methods: Vec<&str> = routes
        .iter()
        .filter(|(_, route, _)| has_path(route))
        .map(|(of, ..)| *of)
        .collect();
    if methods.is_empty() {
        return Routed::NotFound;
    }
    methods.push("OPTIONS");
    methods.sort_unstable();
    methods.dedup();
    let allow = methods.join(", ");
    if method == "OPTIONS" {
        Routed::Options(Some(allow))
    } else {
        Routed::WrongMethod(allow)
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
