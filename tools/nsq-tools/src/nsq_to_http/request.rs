//! [`Hop`]: one request, and the request that follows after a redirect. [`Target`]: a URL. [`Headers`]: the headers of each
//! request. [`redacted`]: a URL for the log.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, LOCATION,
    PROXY_AUTHORIZATION, REFERER, TE, TRAILER, TRANSFER_ENCODING, USER_AGENT, WWW_AUTHENTICATE,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use url::Url;

/// The most requests that one message causes at one address: the first one and nine redirects, as in
/// Go's client.
const REQUESTS_MAX: usize = 10;

/// A URL with the scheme `http` or `https`, and what the request line and its headers need.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The URL as text, for the next redirect.
    url: String,
    /// The URL without user and fragment.
    uri: Uri,
    host: HeaderValue,
    /// The value of `Authorization`, if the URL has a user.
    authorization: Option<HeaderValue>,
}

impl Target {
    /// Parses a URL. The error is the reason for the user.
    pub(super) fn parse(text: &str) -> Result<Target, String> {
        let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
        let (Some("http" | "https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err("a URL begins with http:// or https:// and a host".to_owned());
        };
        let url = Url::parse(text).map_err(|error| error.to_string())?;
        let authorization = basic_authorization(&url);
        let bare = authority.as_str().rsplit('@').next().unwrap_or_default();
        let bare = bare.strip_suffix(':').unwrap_or(bare).to_owned();
        let host = HeaderValue::from_str(&bare).map_err(|error| error.to_string())?;
        let mut parts = uri.into_parts();
        parts.authority = Some(bare.parse().map_err(|error| format!("{error}"))?);
        parts
            .path_and_query
            .get_or_insert(PathAndQuery::from_static("/"));
        Ok(Target {
            url: text.to_owned(),
            uri: Uri::from_parts(parts).map_err(|error| error.to_string())?,
            host,
            authorization,
        })
    }
}

/// Returns the value of `Authorization` for the user and the password of a URL.
fn basic_authorization(url: &Url) -> Option<HeaderValue> {
    let decoded = |text| percent_encoding::percent_decode_str(text).collect::<Vec<u8>>();
    let password = url.password();
    if url.username().is_empty() && password.is_none() {
        return None;
    }
    let mut user = decoded(url.username());
    user.push(b':');
    user.extend(decoded(password.unwrap_or_default()));
    HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(user))).ok()
}

/// A request to one URL, with the requests before it that led here by redirects.
#[derive(Clone, Debug)]
pub(super) struct Hop {
    method: Method,
    target: Target,
    body: Bytes,
    /// The number of requests so far, with this one.
    count: usize,
    referer: Option<HeaderValue>,
    /// True if a redirect led to another host: headers with secrets are not sent there.
    is_elsewhere: bool,
    /// True if a redirect turned a POST into a GET.
    lost_body: bool,
}

impl Hop {
    /// Returns the first request for a message.
    pub(super) fn new(method: Method, target: Target, body: Bytes) -> Hop {
        Hop {
            method,
            target,
            body,
            count: 1,
            referer: None,
            is_elsewhere: false,
            lost_body: false,
        }
    }

    /// Returns the URL of this request if a redirect on the way here has dropped the body. The message is then nowhere,
    /// whatever the answer says.
    pub(super) fn url_without_body(&self) -> Option<&str> {
        self.lost_body.then_some(self.target.url.as_str())
    }

    /// Returns the request for the HTTP client, with its headers in the order of Go's client.
    pub(super) fn request(&self, headers: &Headers) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.target.uri.clone();
        let map = request.headers_mut();
        let custom_host = headers.host.as_ref().filter(|_| self.count == 1);
        map.insert(HOST, custom_host.unwrap_or(&self.target.host).clone());
        map.insert(USER_AGENT, headers.user_agent.clone());
        if self.method == Method::POST {
            map.insert(CONTENT_LENGTH, HeaderValue::from(self.body.len()));
        }
        map.extend(self.sorted(headers));
        if headers.asks_for_gzip {
            map.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        request
    }

    /// Returns the headers behind `Content-Length`, sorted by name.
    fn sorted(&self, headers: &Headers) -> Vec<(HeaderName, HeaderValue)> {
        let is_kept = |name: &HeaderName| {
            let is_secret =
                [AUTHORIZATION, COOKIE, WWW_AUTHENTICATE, PROXY_AUTHORIZATION].contains(name);
            !(is_secret && self.is_elsewhere || *name == CONTENT_TYPE && self.lost_body)
        };
        let mut sorted: Vec<(HeaderName, HeaderValue)> = headers.others.clone();
        sorted.retain(|(name, _)| is_kept(name));
        let own = [
            (AUTHORIZATION, self.target.authorization.clone()),
            (REFERER, self.referer.clone()),
        ];
        for (name, value) in own {
            let is_given = sorted.iter().any(|(given, _)| *given == name);
            sorted.extend(value.filter(|_| !is_given).map(|value| (name, value)));
        }
        sorted.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        sorted
    }

    /// Returns the request that follows this answer, or `None` if the answer is no redirect. The error is the reason for
    /// the log.
    pub(super) fn redirect(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Result<Option<Hop>, String> {
        if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Ok(None);
        }
        let Some(location) = headers.get(LOCATION) else {
            return Ok(None);
        };
        if self.count == REQUESTS_MAX {
            return Err("stopped after 10 redirects".to_owned());
        }
        let text = String::from_utf8_lossy(location.as_bytes());
        let next = Url::parse(&self.target.url).and_then(|url| url.join(&text));
        let target = next.ok().and_then(|url| Target::parse(url.as_str()).ok());
        let target = target.ok_or_else(|| {
            let text = redacted(&text);
            format!("the server redirects to {text:?}, which is no URL")
        })?;
        let keeps_body = matches!(status.as_u16(), 307 | 308);
        let (method, body) = if keeps_body {
            (self.method.clone(), self.body.clone())
        } else {
            (Method::GET, Bytes::new())
        };
        let is_elsewhere = self.is_elsewhere || !is_same_site(&self.target.uri, &target.uri);
        Ok(Some(Hop {
            method,
            body,
            count: self.count + 1,
            referer: self.referer_for(&target),
            is_elsewhere,
            lost_body: self.lost_body || !keeps_body && self.method == Method::POST,
            target,
        }))
    }

    /// Returns the URL of this request for the header `Referer` of the next one. A page that came
    /// encrypted is not told to a server that is not.
    fn referer_for(&self, next: &Target) -> Option<HeaderValue> {
        let is_secret = self.target.uri.scheme_str() == Some("https");
        if is_secret && next.uri.scheme_str() == Some("http") {
            return None;
        }
        let mut url = Url::parse(&self.target.url).ok()?;
        // Both calls fail only for URLs that have no host.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        HeaderValue::from_str(url.as_str()).ok()
    }
}

/// Returns true if secrets for the first host may go to the second one: the same host, or a host
/// below it.
fn is_same_site(first: &Uri, second: &Uri) -> bool {
    let (Some(first), Some(second)) = (first.host(), second.host()) else {
        return false;
    };
    let (first, second) = (first.to_ascii_lowercase(), second.to_ascii_lowercase());
    second == first || second.ends_with(&format!(".{first}"))
}

/// The name of the tool in requests.
const AGENT: HeaderValue = HeaderValue::from_static("nsq_to_http v1.3.0");

/// The headers that are the same for all requests: `User-Agent`, `Content-Type`, and those of the
/// command line.
#[derive(Clone, Debug)]
pub(super) struct Headers {
    /// A `Host` of the command line.
    pub(super) host: Option<HeaderValue>,
    pub(super) user_agent: HeaderValue,
    /// The other headers, but for `Accept-Encoding: gzip`, sorted by name.
    pub(super) others: Vec<(HeaderName, HeaderValue)>,
    /// True if the command line has no `Accept-Encoding`. Like Go's client, the tool then asks for
    /// compressed answers, behind all other headers.
    pub(super) asks_for_gzip: bool,
}

impl Headers {
    /// Puts the headers in the order of the wire. The headers of the command line come last, so they
    /// replace others.
    pub(super) fn new(
        content_type: Option<HeaderValue>,
        custom: Vec<(HeaderName, HeaderValue)>,
    ) -> Headers {
        let mut all = HeaderMap::new();
        all.insert(USER_AGENT, AGENT);
        all.extend(content_type.map(|value| (CONTENT_TYPE, value)));
        for (name, value) in custom {
            all.insert(name, value);
        }
        let host = all.remove(HOST);
        let user_agent = all.remove(USER_AGENT).unwrap_or(AGENT);
        let asks_for_gzip = !all.contains_key(ACCEPT_ENCODING);
        let mut others: Vec<(HeaderName, HeaderValue)> = all
            .into_iter()
            .filter_map(|(name, value)| Some((name?, value)))
            .collect();
        others.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        Headers {
            host,
            user_agent,
            others,
            asks_for_gzip,
        }
    }
}

/// Parses the headers of the command line, each `name: value`. The error is the reason for the user.
pub(super) fn parse_headers(texts: &[String]) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    texts.iter().map(|text| parse_header(text)).collect()
}

fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parts = text
        .split_once(':')
        .map(|(name, value)| (name.trim(), value.trim()));
    let Some((name, value)) = parts.filter(|(name, value)| !name.is_empty() && !value.is_empty())
    else {
        return Err(format!(
            "--header value format should be 'name: value', not {text:?}"
        ));
    };
    let name: HeaderName = name
        .parse()
        .map_err(|_| format!("--header has no valid name of a header: {name:?}"))?;
    if [CONTENT_LENGTH, TRANSFER_ENCODING, TRAILER, TE].contains(&name) {
        return Err(format!(
            "--header cannot set {name}: nsq_to_http sets the framing of requests itself"
        ));
    }
    let value = HeaderValue::from_bytes(value.as_bytes())
        .map_err(|_| format!("--header has no valid value for {name}: {value:?}"))?;
    Ok((name, value))
}

/// The text in place of a password, as in Go's `URL.Redacted`.
const MASK: &str = "xxxxx";

/// Returns the URL with its password masked. The text does not have to be a right URL: everything between the first `:`
/// behind the scheme and the last `@` counts as the password, if a host could follow.
pub(super) fn redacted(url: &str) -> String {
    let begin = url.find("//").map_or(0, |at| at + 2);
    let (scheme, rest) = url.split_at(begin);
    // A password with an unescaped `/`, `?` or `#` makes a wrong URL, and is a password all the same.
    let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let at = match rest[..authority].rfind('@') {
        Some(at) => Some(at),
        None if has_port(&rest[..authority]) => None,
        None => rest.rfind('@'),
    };
    let Some(at) = at else {
        return url.to_owned();
    };
    let (user, host) = rest.split_at(at);
    match user.split_once(':') {
        Some((name, _)) => format!("{scheme}{name}:{MASK}{host}"),
        None => url.to_owned(),
    }
}

/// Returns true for a host with or without a port.
fn has_port(authority: &str) -> bool {
    match authority.rsplit_once(':') {
        Some((_, port)) => port
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b']'),
        None => true,
    }
}

#[cfg(test)]
mod tests;
