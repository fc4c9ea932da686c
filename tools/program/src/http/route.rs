//! Maps method and path to an endpoint or to another answer, by the rules of the router of NSQ's
//! programs.

use super::query::percent_decode;

/// One row of a program's table of routes: the method, the path, and the program's name for the
/// endpoint. A `*` at the end of the path stands for one segment of any name.
pub type Route<E> = (&'static str, &'static str, E);

/// The result of [`route`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routed<E> {
    /// An endpoint, with the segment at the `*` if the route has one.
    Found(E, String),
    /// A redirect to the canonical path.
    Redirect(String),
    /// OPTIONS on a path that exists, with the value of `Allow`, or `None` for `OPTIONS *`.
    Options(Option<String>),
    /// A path that exists for other methods only, with the value of `Allow`.
    WrongMethod(String),
    /// A path that no method has.
    NotFound,
}

/// Finds the route of a request. A redirect needs a route with the request's own method, so `GET
/// /topic/create/` is unknown. OPTIONS and 405 consider all methods, but need the exact path.
pub fn route<E: Copy>(routes: &[Route<E>], method: &str, raw_path: &str) -> Routed<E> {
    if method == "OPTIONS" && raw_path == "*" {
        return Routed::Options(None);
    }
    // A head whose path cannot be decoded was refused before.
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

/// Returns the part of the path at the `*` of a route, or an empty part if the route has no `*`.
/// Returns `None` if the path does not match.
fn wildcard<'a>(route: &str, path: &'a [u8]) -> Option<&'a [u8]> {
    let Some(prefix) = route.strip_suffix('*') else {
        return (route.as_bytes() == path).then_some(&[]);
    };
    let segment = path.strip_prefix(prefix.as_bytes())?;
    (!segment.is_empty() && !segment.contains(&b'/')).then_some(segment)
}

/// Returns the canonical form of a path that matches a route without regard to case. The part at a
/// `*` keeps its case.
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

/// Escapes a segment for a path.
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

/// Returns the path without empty, `.` and `..` segments and without a slash at its end.
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
