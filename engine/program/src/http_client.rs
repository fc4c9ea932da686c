//! HTTP requests to other programs: nsqlookupd, nsqd and auth servers. The requests block, so they
//! belong on helper threads.
//!
//! The client behaves like that of NSQ's programs: it follows redirects, understands gzip and uses
//! no proxy. If a server answers 403 and names an HTTPS port, the client repeats the request there.

mod transport;

use std::io;
use std::sync::Arc;
use std::time::Duration;
use transport::TlsConnector;
use upgrade::ClientConfig;
use ureq::Agent;
use ureq::http::Uri;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector, TcpConnector};
use wire::error::quote;
use wire::go_error::system_text;

/// Most bytes that are read of an answer, unless the program sets another limit.
const ANSWER_BYTES_MAX: u64 = 10 * 1024 * 1024;

/// Most redirects that are followed. Go's client has the same limit.
const REDIRECTS_MAX: u32 = 10;

/// The settings of a client.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Time limit for connecting. Zero means no limit.
    pub connect_timeout: Duration,
    /// Time limit for a whole request. Zero means no limit.
    pub request_timeout: Duration,
    /// The number of idle connections that are kept for later requests.
    pub idle_connections_max: usize,
    /// The TLS of requests over HTTPS.
    pub tls: HttpTls,
}

/// The TLS of a client.
#[derive(Clone, Debug)]
pub enum HttpTls {
    /// This configuration.
    Config(Arc<ClientConfig>),
    /// The authorities of the system, which the first request over HTTPS reads.
    System {
        /// True if TLS 1.2 is refused.
        only_tls13: bool,
    },
}

/// A client that makes requests. Many threads can share it.
#[derive(Debug)]
pub struct HttpClient {
    agent: Agent,
    answer_bytes_max: u64,
}

struct Answer {
    status: ureq::http::StatusCode,
    body: Vec<u8>,
}

impl HttpClient {
    /// Returns a client with these settings.
    pub fn new(settings: HttpSettings) -> HttpClient {
        let some = |timeout: Duration| (!timeout.is_zero()).then_some(timeout);
        let config = Agent::config_builder()
            .timeout_connect(some(settings.connect_timeout))
            .timeout_global(some(settings.request_timeout))
            .http_status_as_error(false)
            .max_redirects(REDIRECTS_MAX)
            .max_idle_connections(settings.idle_connections_max)
            .proxy(None)
            // Some servers log this name. nsqd tells clients apart by it.
            .user_agent("Go-http-client/1.1")
            .accept(nsq_http::ACCEPT)
            .build();
        let connector = TcpConnector::default().chain(TlsConnector::new(settings.tls));
        HttpClient {
            agent: Agent::with_parts(config, connector, DefaultResolver::default()),
            answer_bytes_max: ANSWER_BYTES_MAX,
        }
    }

    /// Returns the client with another limit for the body of an answer, in bytes. The limit is
    /// 10 MiB otherwise.
    #[must_use]
    pub fn with_answer_limit(mut self, bytes_max: u64) -> HttpClient {
        self.answer_bytes_max = bytes_max;
        self
    }

    /// Sends a GET. Returns the body of the answer.
    ///
    /// # Errors
    /// There is no answer, it is too long, or its status is not 200. The error is a text for the log. It does not
    /// contain the query of the URL, because a query may contain a secret.
    pub fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        self.fetch(url, |url| self.ask_get(url))
    }

    /// Sends a POST of a JSON document. Returns the body of the answer.
    ///
    /// # Errors
    /// The errors are those of [`HttpClient::get`].
    pub fn post_json(&self, url: &str, json: &str) -> Result<Vec<u8>, String> {
        self.fetch(url, |url| self.ask_post(url, json))
    }

    /// Asks at `url`, and once more over HTTPS if the server wants that.
    fn fetch(
        &self,
        url: &str,
        ask: impl Fn(&str) -> Result<Answer, String>,
    ) -> Result<Vec<u8>, String> {
        let mut answer = ask(url)?;
        if let Some(secure) = nsq_http::https_url(url, answer.status.as_u16(), &answer.body) {
            answer = ask(&secure)?;
        }
        if answer.status == 200 {
            return Ok(answer.body);
        }
        let (code, body) = (answer.status.as_u16(), quote(&answer.body));
        let reason = answer.status.canonical_reason().unwrap_or_default();
        Err(format!("got response {code} {reason} {body}"))
    }

    fn ask_get(&self, url: &str) -> Result<Answer, String> {
        let answer = self.agent.get(url).call();
        let answer = answer.and_then(|answer| self.read(answer));
        answer.map_err(|error| failure("Get", url, error))
    }

    /// Sends a POST and follows redirects. A redirected POST becomes a GET, unless the status is
    /// 307 or 308. Those need the body once more, which the library leaves to its caller.
    fn ask_post(&self, url: &str, json: &str) -> Result<Answer, String> {
        let mut url = url.to_owned();
        for _ in 0..=REDIRECTS_MAX {
            let sent = self.agent.post(&url).config().max_redirects(0).build();
            let sent = sent.header("content-type", "application/json").send(json);
            let response = sent.map_err(|error| failure("Post", &url, error))?;
            let location = response.headers().get("location");
            let location = location.and_then(|location| location.to_str().ok());
            let next = location.and_then(|location| redirected_url(&url, location));
            match (response.status().as_u16(), next) {
                (301..=303, Some(next)) => return self.ask_get(&next),
                (307 | 308, Some(next)) => url = next,
                _ => {
                    return self
                        .read(response)
                        .map_err(|error| failure("Post", &url, error));
                }
            }
        }
        Err(format!(
            "Post {}: stopped after {REDIRECTS_MAX} redirects",
            shown(&url)
        ))
    }

    fn read(&self, mut response: ureq::http::Response<ureq::Body>) -> Result<Answer, ureq::Error> {
        let body = response.body_mut().with_config();
        Ok(Answer {
            body: body.limit(self.answer_bytes_max).read_to_vec()?,
            status: response.status(),
        })
    }
}

/// Returns the target of a redirect, which is a URL or a path of the same server.
fn redirected_url(base: &str, location: &str) -> Option<String> {
    // `Uri` takes another server without a scheme for a path of this one.
    if location.starts_with("//") {
        return None;
    }
    let base: Uri = base.parse().ok()?;
    let mut target = location.parse::<Uri>().ok()?.into_parts();
    target.scheme = target.scheme.or(base.scheme().cloned());
    target.authority = target.authority.or(base.authority().cloned());
    Some(Uri::from_parts(target).ok()?.to_string())
}

fn failure(verb: &str, url: &str, error: ureq::Error) -> String {
    let cause = match error {
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let authority = url.split("://").nth(1).unwrap_or(url);
            let authority = authority.split(['/', '?']).next().unwrap_or(authority);
            format!("dial tcp {authority}: connect: {}", system_text(&error))
        }
        ureq::Error::Io(error) => system_text(&error),
        // The library's text would repeat the address with its query.
        ureq::Error::BadUri(_) => "not a URL".to_owned(),
        ureq::Error::Protocol(error) => format!(
            "the answer is not HTTP ({error}); choose the server's HTTP port (nsqd: 4151 by default, \
             nsqlookupd: 4161)"
        ),
        other => other.to_string(),
    };
    format!("{verb} {}: {cause}", shown(url))
}

/// Returns a URL without its query, for the log.
fn shown(url: &str) -> String {
    quote(url.split('?').next().unwrap_or(url).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_where_they_say() {
        let base = "http://h:1/a/b?q=1";
        for (location, expected) in [
            ("https://other/x", "https://other/x"),
            ("/x?y", "http://h:1/x?y"),
        ] {
            assert_eq!(redirected_url(base, location).as_deref(), Some(expected));
        }
        assert_eq!(redirected_url(base, "//other/x"), None);
    }
}
