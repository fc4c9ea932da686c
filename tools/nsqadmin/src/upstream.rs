//! [`Upstream`]: the requests to nsqds and nsqlookupds.

use std::time::{Duration, Instant};

use program::http::POLL;
use program::{log_debug, log_info};
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use reqwest::{Client, Method, StatusCode, redirect};
use serde::de::DeserializeOwned;
use upgrade::ClientConfig;
use url::Url;
use wire::error::quote;

use crate::answer_time::AnswerTime;
use crate::config::{ClientFlags, Config};
use crate::shown_url::without_user;
use crate::tally::{Tally, UpstreamName};

mod failure;
mod unanswered;

pub use failure::{Failed, FailureKind, Refused, reason};

use failure::{failed, verb};
use unanswered::Unanswered;

/// Most redirects that are followed. Go's client has the same limit.
const REDIRECTS_MAX: usize = 10;

/// Most header lines of an answer. A proxy can add many. Go's client counts their bytes instead.
const HEADERS_MAX: usize = 10_000;

/// Longest answer that is parsed on a thread that serves other requests, in bytes.
const PARSED_AT_ONCE_BYTES_MAX: usize = 256 * 1024;

/// Most bytes of a refusal that are shown.
const REFUSAL_BYTES_MAX: usize = 4 * 1024;

/// The kind of a server that is asked, named in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// An nsqd.
    Nsqd,
    /// An nsqlookupd.
    Nsqlookupd,
}

impl Server {
    /// Returns the name of the program.
    pub fn name(self) -> &'static str {
        match self {
            Server::Nsqd => "nsqd",
            Server::Nsqlookupd => "nsqlookupd",
        }
    }
}

/// A client of nsqds and nsqlookupds. Many tasks can share it.
#[derive(Clone, Debug)]
pub struct Upstream {
    client: Client,
    /// The client for POSTs, which follows no redirect: an act is for the server that was asked.
    poster: Client,
    answer_bytes_max: usize,
    /// True if requests are logged only at level DEBUG, here and by the server, because they are made all the time.
    is_quiet: bool,
    tally: Tally,
    answer_time: Option<AnswerTime>,
    /// The questions that this client does not repeat for a while. `None` repeats every question.
    unanswered: Option<Unanswered>,
}

/// An answer whose body has been read.
struct Answered {
    status: StatusCode,
    body: Vec<u8>,
}

impl Upstream {
    /// Returns a client with the settings of the flags.
    ///
    /// # Errors
    /// The HTTP library refuses the settings.
    pub fn new(config: &Config, tls: ClientConfig, tally: Tally) -> Result<Upstream, String> {
        let flags = &config.client;
        Ok(Upstream {
            client: client(flags, tls.clone(), same_question())?,
            poster: client(flags, tls, redirect::Policy::none())?,
            answer_bytes_max: config.answer_bytes_max,
            is_quiet: false,
            tally,
            answer_time: None,
            unanswered: None,
        })
    }

    /// Returns the same client, which logs its requests only at level DEBUG.
    #[must_use]
    pub fn quiet(&self) -> Upstream {
        Upstream {
            is_quiet: true,
            ..self.clone()
        }
    }

    /// Returns the same client for questions that are asked all the time. It is quiet, and adds its answers to `answer_time`.
    /// It does not load slow servers without end: a question that got no answer fails for a while without being asked.
    #[must_use]
    pub fn for_collecting(&self, answer_time: AnswerTime) -> Upstream {
        Upstream {
            is_quiet: true,
            answer_time: Some(answer_time),
            unanswered: Some(Unanswered::default()),
            ..self.clone()
        }
    }

    /// Sends a GET and reads the answer.
    ///
    /// # Errors
    /// There is no answer, the answer is too long or not understood, or its status is not 200.
    pub async fn get<T>(&self, server: Server, url: &str) -> Result<T, Failed>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let asked = async {
            let body = self.fetch(Method::GET, server, url).await?;
            read(url, body).await
        };
        self.counted(server, url, asked).await
    }

    /// Sends a request with an empty body, and returns the status and the body of any answer.
    ///
    /// # Errors
    /// There is no answer, or the answer is too long.
    pub async fn answer(&self, url: &str) -> Result<(u16, Vec<u8>), Failed> {
        let asked = self.query(Method::GET, Server::Nsqd, url);
        let answered = self.counted(Server::Nsqd, url, asked).await?;
        Ok((answered.status.as_u16(), answered.body))
    }

    /// Sends a POST with an empty body.
    ///
    /// # Errors
    /// There is no answer, or its status is not 200.
    pub async fn post(&self, server: Server, url: &str) -> Result<(), Failed> {
        let asked = self.fetch(Method::POST, server, url);
        self.counted(server, url, asked).await.map(drop)
    }

    /// Asks, and counts the question. A question that is not to be repeated now fails, and does not count.
    async fn counted<T>(
        &self,
        server: Server,
        url: &str,
        asked: impl Future<Output = Result<T, Failed>>,
    ) -> Result<T, Failed> {
        let started = Instant::now();
        let unanswered = self.unanswered.as_ref();
        if let Some(failed) = unanswered.and_then(|it| it.failure(url, started)) {
            return Err(failed);
        }
        let result = asked.await;
        let now = Instant::now();
        let kind = result.as_ref().err().map(|failed| failed.kind);
        let is_answer = kind.is_none_or(FailureKind::is_answer);
        if let Some(answer_time) = self.answer_time.as_ref().filter(|_| is_answer) {
            answer_time.add(started, now);
        }
        self.tally.count_upstream(
            counted_name(server, url),
            now.saturating_duration_since(started),
            kind.and_then(FailureKind::reason),
            is_answer,
            now,
        );
        match (result, unanswered) {
            (Err(failed), Some(unanswered)) if !is_answer => {
                Err(unanswered.add(url, failed, started, now))
            }
            (result, _) => result,
        }
    }

    /// Asks, and asks once more over HTTPS if the server wants that.
    async fn query(&self, method: Method, server: Server, url: &str) -> Result<Answered, Failed> {
        let (server, shown) = (server.name(), without_user(url));
        if self.is_quiet {
            log_debug!("CI: querying {server} {shown}")
        } else {
            log_info!("CI: querying {server} {shown}")
        }
        let answered = self.ask(&method, url).await?;
        match nsq_http::https_url(url, answered.status.as_u16(), &answered.body) {
            Some(secure) => self.ask(&method, &secure).await,
            None => Ok(answered),
        }
    }

    /// Returns the body of an answer with status 200.
    async fn fetch(&self, method: Method, server: Server, url: &str) -> Result<Vec<u8>, Failed> {
        let answered = self.query(method, server, url).await?;
        if answered.status == StatusCode::OK {
            return Ok(answered.body);
        }
        let shown = &answered.body[..answered.body.len().min(REFUSAL_BYTES_MAX)];
        let advice = if answered.status.is_redirection() {
            " (a POST follows no redirect, and a GET none to another host or path: name the last URL with --nsqd-url-map, \
                 or the address with the flag)"
        } else {
            ""
        };
        Err(Failed {
            why: format!(
                "got response {} {} {}{advice}",
                answered.status.as_u16(),
                answered.status.canonical_reason().unwrap_or_default(),
                quote(shown)
            ),
            kind: match answered.status {
                StatusCode::NOT_FOUND => FailureKind::NotFound,
                _ => FailureKind::Refused,
            },
            refused: Refused::read(answered.status, &answered.body),
        })
    }

    async fn ask(&self, method: &Method, url: &str) -> Result<Answered, Failed> {
        let failed = |error| failed(method, url, &error);
        let client = match *method {
            Method::GET => &self.client,
            _ => &self.poster,
        };
        let mut request = client.request(method.clone(), url);
        if self.is_quiet {
            request = request.header(POLL, "true");
        }
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > self.answer_bytes_max {
                let max = self.answer_bytes_max;
                return Err(Failed {
                    why: format!(
                        "{} {:?}: the answer has more than {max} bytes (--max-answer-size)",
                        verb(method),
                        without_user(url)
                    ),
                    kind: FailureKind::NotUnderstood,
                    refused: None,
                });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answered { status, body })
    }
}

/// Reads an answer, on another thread if it is long.
async fn read<T>(url: &str, body: Vec<u8>) -> Result<T, Failed>
where
    T: DeserializeOwned + Send + 'static,
{
    let failed = |why: String| Failed {
        why: format!("Get {:?}: {why}", without_user(url)),
        kind: FailureKind::NotUnderstood,
        refused: None,
    };
    let parsed = if body.len() <= PARSED_AT_ONCE_BYTES_MAX {
        nsq_http::read(&body)
    } else {
        let parsing = tokio::task::spawn_blocking(move || nsq_http::read(&body));
        parsing.await.map_err(|error| failed(error.to_string()))?
    };
    parsed.map_err(|error| failed(format!("the answer is not understood: {error}")))
}

/// Returns the name by which the metrics know the server at a URL.
pub fn counted_name(server: Server, url: &str) -> UpstreamName {
    UpstreamName {
        server: server.name(),
        address: authority(url),
    }
}

/// Returns `host:port` of a URL, without the user and the password that it may have.
fn authority(url: &str) -> String {
    let Ok(url) = Url::parse(url) else {
        return "an address that is not a URL".to_owned();
    };
    let host = url.host_str().unwrap_or_default();
    match url.port_or_known_default() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// Returns the policy of questions. A server may send them to its own HTTPS or to another of its ports, with the same path:
/// anybody can register an address, and must not choose what is asked of the servers near nsqadmin.
fn same_question() -> redirect::Policy {
    redirect::Policy::custom(|attempt| {
        let url = attempt.url();
        let is_same = attempt.previous().last().is_some_and(|asked| {
            let is_plainer = asked.scheme() == "https" && url.scheme() != "https";
            asked.host() == url.host()
                && asked.path() == url.path()
                && asked.query() == url.query()
                && !is_plainer
        });
        if is_same && attempt.previous().len() <= REDIRECTS_MAX {
            attempt.follow()
        } else {
            attempt.stop()
        }
    })
}

/// Returns the policy of notifications. A redirect with 307 or 308 repeats the POST. With 301, 302 or 303, the body would be
/// dropped, and the endpoint would be told nothing.
pub fn with_body() -> redirect::Policy {
    redirect::Policy::custom(|attempt| match attempt.status().as_u16() {
        307 | 308 if attempt.previous().len() <= REDIRECTS_MAX => attempt.follow(),
        _ => attempt.stop(),
    })
}

/// Returns an HTTP client with these settings.
///
/// # Errors
/// The HTTP library refuses the settings.
pub fn client(
    flags: &ClientFlags,
    tls: ClientConfig,
    redirects: redirect::Policy,
) -> Result<Client, String> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static(nsq_http::ACCEPT));
    let mut builder = Client::builder()
        .default_headers(headers)
        .user_agent(concat!("nsqadmin/", "1.3.0"))
        .redirect(redirects)
        .no_proxy()
        .http1_max_headers(HEADERS_MAX)
        .http1_allow_obsolete_multiline_headers_in_responses(true)
        .tcp_nodelay(true)
        .pool_idle_timeout(Duration::from_secs(90))
        .tls_backend_preconfigured(tls);
    if let Some(timeout) = flags.connect_timeout {
        builder = builder.connect_timeout(timeout);
    }
    if let Some(timeout) = flags.request_timeout {
        builder = builder.timeout(timeout);
    }
    builder
        .build()
        .map_err(|error| format!("failed to make the HTTP client - {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_counted_by_its_host_and_port() {
        assert_eq!(authority("http://u:p@h:4151/stats?a=b"), "h:4151");
        assert_eq!(authority("https://h/x"), "h:443");
        assert_eq!(authority("http://[::1]:1/x"), "[::1]:1");
        assert_eq!(authority("http://h:x/"), "an address that is not a URL");
    }
}
