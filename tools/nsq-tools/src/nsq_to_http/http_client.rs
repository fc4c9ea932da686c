//! [`HttpClient`]: sends requests over kept connections, follows redirects, and limits the time.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time;
use upgrade::{ClientTls, ConfigError, RootCertStore, client_config, system_authorities};

use super::request::{Headers, Hop, redacted};

/// The most bytes of a body that are read, in bytes. A longer body costs more than a new connection.
const BODY_BYTES_MAX: usize = 1 << 20;

/// The most header lines of an answer. Go's client counts their bytes instead.
const HEADERS_MAX: usize = 10_000;

/// A client for HTTP/1.1 and HTTPS. It asks no proxy, and trusts the certificates that the system
/// trusts.
#[derive(Debug)]
pub(super) struct HttpClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    headers: Headers,
    /// The limit of a whole request. `None` means no limit.
    pub(super) timeout: Option<Duration>,
}

impl HttpClient {
    /// Returns a client without connections. The headers are those of each request. The limits are
    /// for a TCP connection and for a whole request with its redirects; `None` means no limit.
    ///
    /// # Errors
    /// The system's certificates cannot be read, which matters only if `has_tls`.
    pub(super) fn new(
        headers: Headers,
        connect_timeout: Option<Duration>,
        timeout: Option<Duration>,
        has_tls: bool,
    ) -> Result<HttpClient, ConfigError> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(connect_timeout);
        let roots = match (system_authorities(), has_tls) {
            (Ok(roots), _) => roots,
            (Err(error), true) => return Err(error),
            // No certificate is trusted, so a redirect to HTTPS fails.
            (Err(_), false) => RootCertStore::empty(),
        };
        let tls = client_config(&ClientTls {
            authorities: Some(roots),
            ..ClientTls::default()
        })?;
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(Arc::unwrap_or_clone(tls))
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .http1_title_case_headers(true)
            .http1_max_headers(HEADERS_MAX)
            .http1_allow_obsolete_multiline_headers_in_responses(true)
            .build(connector);
        Ok(HttpClient {
            client,
            headers,
            timeout,
        })
    }

    /// Sends a request, and reads the whole answer. Returns the status behind all redirects. A body that takes too long
    /// does not take the status back.
    ///
    /// # Errors
    /// There is no status. After an error, the server may have the message. The error is the reason for the log.
    pub(super) async fn send(&self, mut hop: Hop) -> Result<StatusCode, String> {
        let limit = self.timeout.unwrap_or(Duration::MAX);
        let ends_at = time::Instant::now().checked_add(limit);
        loop {
            let request = hop.request(&self.headers);
            let answer = within(ends_at, self.client.request(request)).await;
            let answer = answer.ok_or_else(|| {
                format!("no answer within {limit:?} (--http-client-request-timeout)")
            })?;
            let answer = answer.map_err(|error| why_no_answer(&error))?;
            let status = answer.status();
            let next = hop.redirect(status, answer.headers());
            // Without its end, the connection closes. The server has the message all the same.
            let _ = within(ends_at, discard(answer.into_body())).await;
            if let Some(next) = next? {
                hop = next;
                continue;
            }
            return match hop.url_without_body() {
                Some(url) => Err(format!(
                    "the server redirects with status 301, 302 or 303, so the body did not get to {}: give this URL to \
                     --post, or let the server redirect with 307 or 308",
                    redacted(url)
                )),
                None => Ok(status),
            };
        }
    }
}

/// Returns what is behind an error, the nearest cause first.
fn causes(error: &legacy::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}

/// Returns the reason why a request could not be sent, or why its answer is no HTTP.
fn why_no_answer(error: &legacy::Error) -> String {
    let of_hyper = causes(error).find_map(|cause| cause.downcast_ref::<hyper::Error>());
    if of_hyper.is_some_and(hyper::Error::is_parse) {
        return "this address does not speak HTTP: choose the port of an HTTP server (nsqd has HTTP on port 4151 by \
                default, and TCP on port 4150)"
            .to_owned();
    }
    // hyper's own text names the step that failed, and its causes say why.
    let causes: Vec<String> = causes(error).map(ToString::to_string).collect();
    match &causes[..] {
        [] => error.to_string(),
        causes => causes.join(": "),
    }
}

/// Returns the result of `work`, or `None` if `ends_at` comes first.
async fn within<F: Future>(ends_at: Option<time::Instant>, work: F) -> Option<F::Output> {
    match ends_at {
        None => Some(work.await),
        Some(ends_at) => time::timeout_at(ends_at, work).await.ok(),
    }
}

/// Reads a body to its end, so that the connection can be used again, unless the body is longer than
/// [`BODY_BYTES_MAX`]. The status counts, even if the body breaks off.
async fn discard(mut body: Incoming) {
    let mut left = BODY_BYTES_MAX;
    while left > 0
        && let Some(Ok(frame)) = body.frame().await
    {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        left = left.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests;
