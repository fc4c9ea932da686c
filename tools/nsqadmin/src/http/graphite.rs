//! Graphite: the rate of one series (`/api/graphite`), and the proxy for graphs (`/render`).

use std::time::Duration;

use ::http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_TYPE, COOKIE, HOST, PROXY_AUTHORIZATION,
    TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nsq_http::push_query_value;
use program::{log_error, log_warn};
use reqwest::Client;
use serde::Deserialize;
use url::Url;
use wire::go_json::to_string;
use wire::json_object;

use super::{Reply, Request};
use crate::cluster::Refusal;
use crate::config::{Config, GraphiteFlags};
use crate::upstream;

/// Headers that are not forwarded: those of one connection, and secrets for nsqadmin or for the proxy in front. Graphite gets
/// the user of its own URL.
const NOT_FORWARDED: [HeaderName; 16] = [
    ACCEPT_ENCODING,
    AUTHORIZATION,
    CONNECTION,
    COOKIE,
    HOST,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    // The tokens of users, as oauth2-proxy, AWS, Cloudflare and Google hand them on.
    HeaderName::from_static("x-forwarded-access-token"),
    HeaderName::from_static("x-auth-request-access-token"),
    HeaderName::from_static("x-amzn-oidc-accesstoken"),
    HeaderName::from_static("cf-access-jwt-assertion"),
    HeaderName::from_static("x-goog-iap-jwt-assertion"),
];

/// What `--graphite-url` names.
#[derive(Clone, Debug)]
pub struct Graphite {
    flags: GraphiteFlags,
    /// The place that `/render` is forwarded to. `None` without graphs.
    pub(super) forward: Option<Forward>,
    client: Client,
    answer_bytes_max: usize,
}

impl Graphite {
    /// Returns the graphite of the flags.
    ///
    /// # Errors
    /// The URL cannot be parsed, and graphs are to come from it.
    pub fn new(config: &Config, client: Client) -> Result<Graphite, String> {
        let flags = config.graphite.clone();
        let forward = match (flags.url.as_str(), flags.is_proxied) {
            ("", false) => None,
            (url, true) => Some(Forward::new(url, false)?),
            // The original starts with any text here, so this is no reason to end.
            (url, false) => Forward::new(url, true)
                .inspect_err(|why| log_warn!("no graphs: failed to parse --graphite-url - {why}"))
                .ok(),
        };
        Ok(Graphite {
            flags,
            forward,
            client,
            answer_bytes_max: config.answer_bytes_max,
        })
    }

    /// Answers `/api/graphite`.
    pub(super) async fn rate(&self, request: &Request) -> Result<Reply, Refusal> {
        let query = request.parsed_query();
        let query = query.map_err(|_| Refusal::bad("INVALID_REQUEST"))?;
        if query.get("metric") != Some("rate") {
            return Err(Refusal::bad("INVALID_ARG_METRIC"));
        }
        let target = query
            .get("target")
            .ok_or_else(|| Refusal::bad("INVALID_ARG_TARGET"))?;
        let failed = |why: String| {
            log_error!("graphite request failed - {why}");
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR")
        };
        let GraphiteFlags { url, interval, .. } = &self.flags;
        if url.is_empty() {
            return Err(failed("--graphite-url is not set".to_owned()));
        }
        let url = rate_url(url, target, *interval);
        let asked = self.ask(&url, HeaderMap::new()).await;
        let (status, _, body) = asked.map_err(failed)?;
        if status != StatusCode::OK {
            return Err(failed(format!("got response {status}")));
        }
        let rate = rate(&body.map_err(failed)?, *interval);
        let rate = rate.map_err(failed)?;
        Ok(Reply::json(to_string(&json_object! { rate })))
    }

    /// Answers `/render`: asks graphite in the browser's place.
    pub(super) async fn render(&self, request: &Request) -> Result<Reply, Refusal> {
        let forward = self.forward.as_ref();
        let forward = forward.ok_or_else(|| Refusal::not_found("NOT_FOUND"))?;
        let url = forward.url(request.query());
        let peer = request.peer.ip().to_string();
        let headers = forward.headers(request.headers(), &peer);
        let failed = |why: String| {
            log_error!("failed to proxy to graphite - {why}");
            Refusal::upstream(format!("graphite: {why}"))
        };
        let asked = self.ask(&url, headers).await;
        let (status, content_type, body) = asked.map_err(failed)?;
        let body = body.map_err(failed)?.into();
        Ok(Reply::forwarded(status, content_type.as_ref(), body))
    }

    /// Asks graphite. Returns the status, the content type, and the body or the reason why it cannot be read.
    async fn ask(
        &self,
        url: &str,
        headers: HeaderMap,
    ) -> Result<(StatusCode, Option<HeaderValue>, Result<Vec<u8>, String>), String> {
        let sent = self.client.get(url).headers(headers).send().await;
        let response = sent.map_err(|error| upstream::reason(url, &error))?;
        let status = response.status();
        let content_type = response.headers().get(CONTENT_TYPE).cloned();
        let body = upstream::read_up_to(response, self.answer_bytes_max).await;
        let body = body.map_err(|error| error.to_string()).flatten();
        Ok((status, content_type, body))
    }
}

/// A series in an answer of graphite.
#[derive(Deserialize)]
struct Series {
    #[serde(default)]
    datapoints: Vec<(Option<f64>, f64)>,
}

/// Returns the URL that has the last values of a series. `base` is `--graphite-url`.
fn rate_url(base: &str, target: &str, interval: Duration) -> String {
    let seconds = interval.as_secs();
    let mut url = format!(
        "{base}/render?format=json&from=-{}sec&target=",
        seconds.saturating_mul(2)
    );
    push_query_value(&mut url, target.as_bytes());
    url.push_str(&format!("&until=-{seconds}sec"));
    url
}

/// Returns the rate per second from graphite's answer, with two decimals. A missing or negative value
/// is `N/A`.
///
/// # Errors
/// The answer is not understood.
fn rate(body: &[u8], interval: Duration) -> Result<String, String> {
    let series: Vec<Series> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let first = series.first().and_then(|series| series.datapoints.first());
    let value = first.and_then(|(value, _)| *value);
    #[allow(clippy::cast_precision_loss)] // An interval is some seconds.
    let seconds = interval.as_secs() as f64;
    Ok(match value {
        Some(value) if value >= 0.0 && seconds > 0.0 => format!("{:.2}", value / seconds),
        _ => "N/A".to_owned(),
    })
}

/// The place that `/render` is forwarded to.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    /// The URL of graphite without its user, and without a slash at the end.
    base: String,
    /// The value of `Authorization`, if the URL has a user.
    authorization: Option<String>,
}

impl Forward {
    /// Returns the place in `--graphite-url`. With `has_path`, its path counts. The original's proxy
    /// ignores the path.
    ///
    /// # Errors
    /// The text is not a URL.
    fn new(graphite_url: &str, has_path: bool) -> Result<Forward, String> {
        let url = Url::parse(graphite_url).map_err(|error| error.to_string())?;
        let user = (!url.username().is_empty()).then(|| {
            let password = url.password().map(percent_decoded).unwrap_or_default();
            let pair = format!("{}:{password}", percent_decoded(url.username()));
            format!("Basic {}", STANDARD.encode(pair))
        });
        let path = if has_path { url.path() } else { "" };
        let path = path.trim_end_matches('/');
        Ok(Forward {
            base: format!("{}{path}", url.origin().ascii_serialization()),
            authorization: user,
        })
    }

    /// Returns the URL for a query.
    fn url(&self, query: &str) -> String {
        let separator = if query.is_empty() { "" } else { "?" };
        format!("{}/render{separator}{query}", self.base)
    }

    /// Returns the headers for graphite. `peer` is the client's IP address.
    fn headers(&self, given: &HeaderMap, peer: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let named = given.get_all(CONNECTION).iter();
        let named: Vec<String> = named
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(|name| name.trim().to_ascii_lowercase())
            .collect();
        for (name, value) in given {
            let is_kept =
                !NOT_FORWARDED.contains(name) && !named.iter().any(|of| of == name.as_str());
            if is_kept {
                headers.append(name, value.clone());
            }
        }
        let before = given
            .get("x-forwarded-for")
            .and_then(|value| value.to_str().ok());
        let chain = match before {
            Some(before) => format!("{before}, {peer}"),
            None => peer.to_owned(),
        };
        for (name, value) in [
            ("x-forwarded-for", Some(&chain)),
            ("authorization", self.authorization.as_ref()),
        ] {
            if let Some(value) = value.and_then(|value| value.parse().ok()) {
                headers.insert(name, value);
            }
        }
        headers
    }
}

/// Returns a text without its percent escapes.
fn percent_decoded(text: &str) -> String {
    let query = format!("x={}", text.replace('+', "%2B"));
    let parsed = url::form_urlencoded::parse(query.as_bytes()).next();
    parsed
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_rate_is_the_first_value_per_second() {
        let url = rate_url("http://g/x", "sumSeries(a.*.b)", MINUTE);
        let expected =
            "http://g/x/render?format=json&from=-120sec&target=sumSeries%28a.%2A.b%29&until=-60sec";
        assert_eq!(url, expected);
        let check = |body: &str, expected: &str| {
            assert_eq!(
                rate(body.as_bytes(), MINUTE).as_deref(),
                Ok(expected),
                "{body}"
            );
        };
        check(r#"[{"target":"x","datapoints":[[240.0,1],[1,2]]}]"#, "4.00");
        check(r#"[{"datapoints":[[-1,1]]}]"#, "N/A");
        check(r#"[{"datapoints":[[null,1]]}]"#, "N/A");
        check(r#"[{"datapoints":[]}]"#, "N/A");
        check(r#"[{}]"#, "N/A");
        check("[]", "N/A");
        assert!(rate(b"<html>", MINUTE).is_err());
        assert_eq!(
            rate(br#"[{"datapoints":[[1,1]]}]"#, Duration::ZERO).unwrap(),
            "N/A"
        );
    }

    #[test]
    fn the_proxy_forwards_to_the_host_and_drops_secrets() {
        let forward = Forward::new("http://us%40er:p%20w@graphite:8080/ignored", false).unwrap();
        let with_path = Forward::new("http://graphite:8080/g/", true).unwrap();
        assert_eq!(with_path.url("x"), "http://graphite:8080/g/render?x");
        assert_eq!(
            forward.url("target=a&x"),
            "http://graphite:8080/render?target=a&x"
        );
        assert_eq!(forward.url(""), "http://graphite:8080/render");
        let mut given = HeaderMap::new();
        for (name, value) in [
            ("cookie", "s=1"),
            ("authorization", "Bearer x"),
            ("x-forwarded-access-token", "secret"),
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("accept", "image/png"),
            ("x-forwarded-for", "10.0.0.1"),
        ] {
            given.insert(name, value.parse().unwrap());
        }
        let headers = forward.headers(&given, "10.0.0.2");
        assert_eq!(headers["accept"], "image/png");
        assert_eq!(headers["x-forwarded-for"], "10.0.0.1, 10.0.0.2");
        assert_eq!(headers["authorization"], "Basic dXNAZXI6cCB3");
        assert_eq!(headers.len(), 3, "{headers:?}");
    }
}
