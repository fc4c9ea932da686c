//! [`Upstream`]: the requests to nsqds and nsqlookupds, and [`Failed`]: a request that failed, in words and by its kind.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nsq_doctor::duration;
use nsq_http::Refusal;
use parking_lot::Mutex;
use program::http::POLL;
use program::{log_debug, log_info};
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use reqwest::{Client, Method, StatusCode, redirect};
use serde::de::DeserializeOwned;
use upgrade::ClientConfig;
use url::Url;
use wire::error::quote;
use wire::go_error::system_text;

use crate::config::{ClientFlags, Config};
use crate::tally::{Tally, UpstreamName};

/// Most redirects that are followed. Go's client has the same limit.
const REDIRECTS_MAX: usize = 10;

/// Most header lines of an answer. A proxy can add many. Go's client counts their bytes instead.
const HEADERS_MAX: usize = 10_000;

/// Longest answer that is parsed on a thread that serves other requests, in bytes.
const PARSED_AT_ONCE_BYTES_MAX: usize = 256 * 1024;

/// Most bytes of a refusal that are shown.
const REFUSAL_BYTES_MAX: usize = 4 * 1024;

/// The time for which a question is not repeated, in times of the wait for its answer. So a server that is slower than the
/// deadline works on a question at most a fifth of the time. Servers that answer in time have the same share
/// (`PAUSE_FACTOR` of the collector).
const PAUSE_FACTOR: u32 = 4;

/// The longest pause. The wait may be long because nsqadmin itself stood still, or has no deadline.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Shortest wait that leads to a pause. A connection that is refused at once costs the server nothing.
const WAIT_MIN: Duration = Duration::from_millis(100);

/// The text that stands for a secret.
const SECRET: &str = "xxxxx";

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

/// The status and the body of an answer.
type Answer = (StatusCode, Vec<u8>);

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

    /// Returns the same client for questions that are asked all the time. It is quiet, and adds its answers to
    /// `answer_time`. It does not load slow servers without end: a question that got no answer fails for a while
    /// without being asked.
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
        let (status, body) = self.counted(Server::Nsqd, url, asked).await?;
        Ok((status.as_u16(), body))
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
    async fn query(&self, method: Method, server: Server, url: &str) -> Result<Answer, Failed> {
        let (server, shown) = (server.name(), without_user(url));
        if self.is_quiet {
            log_debug!("CI: querying {server} {shown}")
        } else {
            log_info!("CI: querying {server} {shown}")
        }
        let (status, body) = self.ask(&method, url).await?;
        match nsq_http::https_url(url, status.as_u16(), &body) {
            Some(secure) => self.ask(&method, &secure).await,
            None => Ok((status, body)),
        }
    }

    /// Returns the body of an answer with status 200.
    async fn fetch(&self, method: Method, server: Server, url: &str) -> Result<Vec<u8>, Failed> {
        let (status, body) = self.query(method, server, url).await?;
        if status == StatusCode::OK {
            return Ok(body);
        }
        let shown = &body[..body.len().min(REFUSAL_BYTES_MAX)];
        let advice = if status.is_redirection() {
            " (a POST follows no redirect, and a GET none to another host or path: name the last URL with --nsqd-url-map, \
                 or the address with the flag)"
        } else {
            ""
        };
        Err(Failed {
            why: format!(
                "got response {} {} {}{advice}",
                status.as_u16(),
                status.canonical_reason().unwrap_or_default(),
                quote(shown)
            ),
            kind: match status {
                StatusCode::NOT_FOUND => FailureKind::NotFound,
                _ => FailureKind::Refused,
            },
            refused: Refused::read(status, &body),
        })
    }

    async fn ask(&self, method: &Method, url: &str) -> Result<Answer, Failed> {
        let failed = |error| Failed::without_answer(method, url, &error);
        let client = match *method {
            Method::GET => &self.client,
            _ => &self.poster,
        };
        let mut request = client.request(method.clone(), url);
        if self.is_quiet {
            request = request.header(POLL, "true");
        }
        let response = request.send().await.map_err(failed)?;
        let status = response.status();
        let body = read_up_to(response, self.answer_bytes_max).await;
        match body.map_err(failed)? {
            Ok(body) => Ok((status, body)),
            Err(why) => Err(Failed::of(FailureKind::NotUnderstood, method, url, &why)),
        }
    }
}

/// Reads the body of an answer. The inner error says that it has more than `bytes_max` bytes.
///
/// # Errors
/// The body breaks off.
pub async fn read_up_to(
    mut response: reqwest::Response,
    bytes_max: usize,
) -> Result<Result<Vec<u8>, String>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > bytes_max {
            return Ok(Err(format!(
                "the answer has more than {bytes_max} bytes (--max-answer-size)"
            )));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Ok(body))
}

/// Reads an answer, on another thread if it is long.
async fn read<T>(url: &str, body: Vec<u8>) -> Result<T, Failed>
where
    T: DeserializeOwned + Send + 'static,
{
    let failed = |why: String| Failed::of(FailureKind::NotUnderstood, &Method::GET, url, &why);
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

/// Returns the policy of notifications. A redirect with 307 or 308 repeats the POST. With 301, 302 or 303, the body
/// would be dropped, and the endpoint would be told nothing.
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
    let accept = HeaderValue::from_static(nsq_http::ACCEPT);
    let headers = HeaderMap::from_iter([(ACCEPT, accept)]);
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

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The reason, as the answer of nsqadmin shows it.
    pub why: String,
    /// The kind of the failure.
    pub kind: FailureKind,
    /// The server's own words about a mistake of the client of nsqadmin, if the failure is such a mistake.
    pub refused: Option<Refused>,
}

/// The words with which a server of NSQ refuses a request because of the client's mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// A status 4xx.
    pub status: StatusCode,
    /// The code, such as `INVALID_FOR`.
    pub code: String,
    /// The reason, or an empty text.
    pub reason: String,
}

/// The kinds of failures that lead to different answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The server could not be reached: no connection, or no such host.
    Unreachable,
    /// The connection ended before the answer did, or the answer took too long.
    NoAnswer,
    /// The server does not know the topic or the channel.
    NotFound,
    /// The server answered with another status than 200.
    Refused,
    /// The answer is too long, or cannot be read.
    NotUnderstood,
}

impl Failed {
    /// Returns the failure of a request to a URL, in the form of Go's words.
    fn of(kind: FailureKind, method: &Method, url: &str, why: &str) -> Failed {
        let is_post = *method == Method::POST;
        let verb = if is_post { "Post" } else { "Get" };
        Failed {
            why: format!("{verb} {:?}: {why}", without_user(url)),
            kind,
            refused: None,
        }
    }

    /// Returns the failure of a request without an answer, in Go's words where Go has some.
    fn without_answer(method: &Method, url: &str, error: &reqwest::Error) -> Failed {
        let kind = if error.is_connect() {
            FailureKind::Unreachable
        } else {
            FailureKind::NoAnswer
        };
        Failed::of(kind, method, url, &reason(url, error))
    }
}

impl FailureKind {
    /// Returns the word for `/metrics`. A server that does not know a topic has not failed.
    fn reason(self) -> Option<&'static str> {
        match self {
            FailureKind::Unreachable => Some("unreachable"),
            FailureKind::NoAnswer => Some("no_answer"),
            FailureKind::NotFound => None,
            FailureKind::Refused => Some("refused"),
            FailureKind::NotUnderstood => Some("not_understood"),
        }
    }

    /// Returns true if there was an answer.
    fn is_answer(self) -> bool {
        !matches!(self, FailureKind::Unreachable | FailureKind::NoAnswer)
    }
}

impl Refused {
    /// Reads the answer of a server. `None` for answers that are no mistake of the client: those of other programs, those
    /// about the rights of nsqadmin, and those about paths that the server does not have.
    fn read(status: StatusCode, body: &[u8]) -> Option<Refused> {
        let is_of_client = status.is_client_error()
            && !matches!(status.as_u16(), 401 | 403 | 405 | 407 | 408 | 429);
        let Refusal { message, reason } = Refusal::read(body);
        let is_code = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        let has_code = !message.is_empty() && message.bytes().all(is_code);
        (is_of_client && has_code && message != "NOT_FOUND").then_some(Refused {
            status,
            code: message,
            reason,
        })
    }

    /// Returns the code and the reason.
    pub fn text(&self) -> String {
        match self.reason.as_str() {
            "" => self.code.clone(),
            reason => format!("{}: {reason}", self.code),
        }
    }
}

/// Returns the cause of an error of the HTTP library, without the URL.
pub fn reason(url: &str, error: &reqwest::Error) -> String {
    let mut sources = Vec::new();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(error) = cause.downcast_ref::<std::io::Error>()
            && error.raw_os_error().is_some()
        {
            let url = without_user(url);
            let authority = url.split("://").nth(1).unwrap_or(&url);
            let authority = authority.split(['/', '?']).next().unwrap_or(authority);
            return match error.kind() {
                std::io::ErrorKind::ConnectionReset => format!("read: {}", system_text(error)),
                _ => format!("dial tcp {authority}: connect: {}", system_text(error)),
            };
        }
        sources.push(cause.to_string());
        source = cause.source();
    }
    match (error.is_timeout(), error.is_connect()) {
        (true, true) => {
            "no connection in time (--http-client-connect-timeout, --http-client-request-timeout)"
                .to_string()
        }
        (true, false) => "no answer in time (--http-client-request-timeout)".to_string(),
        (false, _) => sources.pop().unwrap_or_else(|| error.to_string()),
    }
}

/// The questions that are not repeated now, by their URL. A server that is too slow for one question may well answer
/// others: the figures without clients cost less than those with clients. Each has the end of its pause, and its failure.
/// All clones share them.
#[derive(Clone, Debug, Default)]
struct Unanswered(Arc<Mutex<BTreeMap<String, (Instant, Failed)>>>);

impl Unanswered {
    /// Returns the failure of a question that is not to be repeated now.
    fn failure(&self, url: &str, now: Instant) -> Option<Failed> {
        let paused = self.0.lock();
        let (_, failed) = paused.get(url).filter(|(until, _)| now < *until)?;
        Some(failed.clone())
    }

    /// Takes a question that was asked at `asked` and has failed without an answer. Returns the failure, which then also
    /// says for how long the question is not repeated.
    fn add(&self, url: &str, mut failed: Failed, asked: Instant, now: Instant) -> Failed {
        let waited = now.saturating_duration_since(asked);
        if waited < WAIT_MIN {
            return failed;
        }
        let pause = waited.saturating_mul(PAUSE_FACTOR).min(PAUSE_MAX);
        let words = duration(pause.as_secs_f64());
        failed.why += &format!("; it is not asked again for {words}");
        let mut paused = self.0.lock();
        // An nsqlookupd may name other nodes each time.
        paused.retain(|_, (until, _)| now < *until);
        paused.insert(url.to_owned(), (now + pause, failed.clone()));
        failed
    }
}

/// The time in which servers worked on answers, since the last look. The wait for a server that gives none is not part
/// of it. All clones count the same.
#[derive(Clone, Debug, Default)]
pub struct AnswerTime(Arc<Mutex<Vec<(Instant, Instant)>>>);

impl AnswerTime {
    /// Adds a request that got an answer.
    pub fn add(&self, asked: Instant, answered: Instant) {
        self.0.lock().push((asked, answered));
    }

    /// Returns the time in which at least one of the answers was under way, and begins anew.
    pub fn take(&self) -> Duration {
        time_of(std::mem::take(&mut *self.0.lock()))
    }

    /// Returns the same time, and goes on.
    pub fn so_far(&self) -> Duration {
        time_of(self.0.lock().clone())
    }
}

fn time_of(mut answers: Vec<(Instant, Instant)>) -> Duration {
    answers.sort_unstable();
    let mut time = Duration::ZERO;
    let mut counted_until = None;
    for (asked, answered) in answers {
        let begin = counted_until.map_or(asked, |until| asked.max(until));
        time += answered.saturating_duration_since(begin);
        counted_until = counted_until.max(Some(answered));
    }
    time
}

/// Returns a URL without the user and the password that it may have. The rest stays as it is written.
pub fn without_user(url: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Cow::Borrowed(url);
    };
    let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..authority].rfind('@') {
        Some(at) => Cow::Owned(format!("{scheme}://{}", &rest[at + 1..])),
        None => Cow::Borrowed(url),
    }
}

/// Returns the value of a flag whose URL may have secrets: the password, or the user alone, and the query are not
/// shown. Nothing of a text that is no URL is shown.
pub fn masked(url: &str) -> String {
    let Ok(mut parsed) = Url::parse(url) else {
        return if url.is_empty() { "" } else { SECRET }.to_owned();
    };
    let has_password = parsed.password().is_some();
    let has_user = !parsed.username().is_empty();
    if !has_password && !has_user && parsed.query().is_none() {
        return url.to_owned();
    }
    // These calls fail only for URLs without a host, which have no user.
    let _ = match (has_password, has_user) {
        (true, _) => parsed.set_password(Some(SECRET)),
        (false, true) => parsed.set_username(SECRET),
        (false, false) => Ok(()),
    };
    if parsed.query().is_some() {
        parsed.set_query(Some(SECRET));
    }
    parsed.to_string()
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

    #[test]
    fn only_words_of_nsq_about_a_mistake_of_the_client_are_passed_on() {
        let read = |status: u16, body: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            Refused::read(status, body.as_bytes()).map(|refused| refused.text())
        };
        let text = |text: &str| Some(text.to_owned());
        let with_reason = r#"{"message":"INVALID_FOR","reason":"no unit"}"#;
        assert_eq!(read(400, with_reason), text("INVALID_FOR: no unit"));
        let missing = r#"{"message":"CHANNEL_NOT_FOUND"}"#;
        assert_eq!(read(404, missing), text("CHANNEL_NOT_FOUND"));
        let old = r#"{"status_code":404,"status_txt":"TOPIC_NOT_FOUND","data":null}"#;
        assert_eq!(read(404, old), text("TOPIC_NOT_FOUND"));
        for (status, body) in [
            (403, r#"{"message":"TLS_REQUIRED"}"#),
            (404, r#"{"message":"NOT_FOUND"}"#),
            (405, r#"{"message":"METHOD_NOT_ALLOWED"}"#),
            (500, r#"{"message":"INTERNAL_ERROR"}"#),
            (503, r#"{"message":"EXITING"}"#),
            (404, r#"{"message":"no such host"}"#),
            (404, r#"{"message":""}"#),
            (404, "404 page not found"),
        ] {
            assert_eq!(read(status, body), None, "{status} {body}");
        }
    }

    #[test]
    fn a_question_is_not_repeated_for_four_times_the_wait() {
        let unanswered = Unanswered::default();
        let start = Instant::now();
        let second = |number: u64| start + Duration::from_secs(number);
        let failed = || Failed {
            why: "no answer in time".to_owned(),
            kind: FailureKind::NoAnswer,
            refused: None,
        };
        let told = unanswered.add("http://slow/", failed(), start, second(5));
        assert_eq!(told.why, "no answer in time; it is not asked again for 20s");
        let failure = |url: &str, number| unanswered.failure(url, second(number));
        assert_eq!(failure("http://slow/", 24), Some(told));
        assert_eq!(failure("http://slow/", 25), None);
        assert_eq!(failure("http://slow/stats", 6), None);
        // A refused connection.
        let soon = second(30) + Duration::from_millis(1);
        let told = unanswered.add("http://dead/", failed(), second(30), soon);
        assert_eq!(told, failed());
        assert_eq!(unanswered.failure("http://dead/", soon), None);
        // Questions whose pause is over take no memory.
        unanswered.add("http://last/", failed(), second(30), second(31));
        assert_eq!(unanswered.0.lock().len(), 1);
        // nsqadmin stood still for ten minutes, or has no deadline.
        let told = unanswered.add("http://hung/", failed(), start, second(600));
        assert_eq!(told.why, "no answer in time; it is not asked again for 30s");
        assert_eq!(failure("http://hung/", 630), None);
    }

    #[test]
    fn answers_at_the_same_time_count_once_and_gaps_do_not_count() {
        let start = Instant::now();
        let second = |number: u64| start + Duration::from_secs(number);
        let time = AnswerTime::default();
        for (asked, answered) in [(20, 21), (0, 4), (1, 2), (3, 6), (5, 6)] {
            time.clone().add(second(asked), second(answered));
        }
        assert_eq!(time.so_far(), Duration::from_secs(7));
        assert_eq!(time.take(), Duration::from_secs(7));
        assert_eq!(time.take(), Duration::ZERO);
    }

    #[test]
    fn a_url_is_shown_without_its_user() {
        for (url, expected) in [
            ("http://u:p@h:1/x?y=a@b", "http://h:1/x?y=a@b"),
            ("http://token@h", "http://h"),
            ("http://a@b:c@h/", "http://h/"),
            ("http://h/@x", "http://h/@x"),
            ("http://h?u@x", "http://h?u@x"),
            ("h:4151", "h:4151"),
        ] {
            assert_eq!(without_user(url), expected);
        }
    }

    #[test]
    fn secrets_are_masked() {
        for (url, expected) in [
            ("http://u:secret@h/x", "http://u:xxxxx@h/x"),
            ("http://token@h/x", "http://xxxxx@h/x"),
            ("http://h/x?token=secret", "http://h/x?xxxxx"),
            ("http://h/x", "http://h/x"),
            ("http://h", "http://h"),
            ("http://u:pa/ss@h", "xxxxx"),
            ("", ""),
        ] {
            assert_eq!(masked(url), expected);
        }
    }
}
