//! Maps method and path to an endpoint or to another answer, by the rules of the router of NSQ's
//! programs.

use super::query::percent_decode;

/// One row of a program's table of routes: the method, the path, and the program's name for the
/// endpoint. A segment `*` of the path stands for one segment of any name.
pub type Route<E> = (&'static str, &'static str, E);

/// The result of [`route`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routed<E> {
    /// An endpoint, with the segments at the `*`s of the route.
    Found(E, Vec<String>),
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
    let exact = |route: &str| segments(route, &path, <[u8]>::eq);
    let found = own().find_map(|(_, route, endpoint)| Some((endpoint, exact(route)?)));
    if let Some((endpoint, segments)) = found {
        let text = |segment| String::from_utf8_lossy(segment).into_owned();
        return Routed::Found(*endpoint, segments.into_iter().map(text).collect());
    }
    if own().next().is_some() && &*path != b"/" {
        let cleaned = clean(&path);
        if let Some(canonical) = own().find_map(|(_, route, _)| canonical(route, &cleaned)) {
            return Routed::Redirect(canonical);
        }
    }
    let has_path = |route: &str| raw_path == "*" || exact(route).is_some();
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

/// Compares a path with a route, segment by segment. Returns the segments of the path at the `*`s of the route, or
/// `None` if the path does not match.
fn segments<'a>(
    route: &str,
    path: &'a [u8],
    is_same: fn(&[u8], &[u8]) -> bool,
) -> Option<Vec<&'a [u8]>> {
    if !route.contains('*') {
        return is_same(route.as_bytes(), path).then(Vec::new);
    }
    let mut found = Vec::new();
    let mut rest = path.split(|&byte| byte == b'/');
    for name in route.split('/') {
        match (name, rest.next()?) {
            ("*", segment @ [_, ..]) => found.push(segment),
            (name, segment) if is_same(name.as_bytes(), segment) => {}
            _ => return None,
        }
    }
    rest.next().is_none().then_some(found)
}

/// Returns the canonical form of a path that matches a route without regard to case. The segments at
/// the `*`s keep their case.
fn canonical(route: &str, cleaned: &[u8]) -> Option<String> {
    let is_same = <[u8]>::eq_ignore_ascii_case;
    let found = segments(route.trim_end_matches('/'), cleaned, is_same)?;
    let fill = |path: String, segment| path.replacen('*', &escape(segment), 1);
    Some(found.into_iter().fold(route.to_string(), fill))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_may_have_several_segments_of_any_name() {
        const ROUTES: &[Route<u8>] = &[
            ("GET", "/", 0),
            ("GET", "/api/topics", 1),
            ("GET", "/api/topics/*", 2),
            ("GET", "/api/topics/*/*", 3),
            ("DELETE", "/api/*/of", 4),
        ];
        let check = |method: &str, path: &str, expected: Routed<u8>| {
            assert_eq!(route(ROUTES, method, path), expected, "{method} {path}");
        };
        let found = |endpoint, segments: &[&str]| {
            let segments = segments.iter().map(ToString::to_string);
            Routed::Found(endpoint, segments.collect())
        };
        let redirect = |path: &str| Routed::Redirect(path.to_string());
        check("GET", "/", found(0, &[]));
        check("GET", "/api/topics", found(1, &[]));
        check("GET", "/api/topics/a", found(2, &["a"]));
        check("GET", "/api/topics/a/tmp%23x", found(3, &["a", "tmp#x"]));
        check("DELETE", "/api/n:1/of", found(4, &["n:1"]));
        check("GET", "//", redirect("/"));
        check("GET", "/API/topics/", redirect("/api/topics"));
        check("GET", "/api/Topics/A/*/", redirect("/api/topics/A/%2A"));
        check("DELETE", "/Api//N/OF", redirect("/api/N/of"));
        for path in ["/api/topics/a/b/c", "/api"] {
            check("GET", path, Routed::NotFound);
        }
        let allow = "DELETE, OPTIONS".to_string();
        check("GET", "/api/x/of", Routed::WrongMethod(allow));
    }
}
