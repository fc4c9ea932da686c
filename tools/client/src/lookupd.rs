//! [`Lookupd`]: requests to one nsqlookupd over HTTP.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use nsq_http::NodeInfo;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, StatusCode, redirect};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use thiserror::Error;
use url::Url;
use wire::go_error::system_text;

use crate::config::{Config, OptionError, without_password};

/// The text with which nsqlookupd answers a lookup of a topic that it does not know. A status 404 with another text
/// comes from a server that has no such page: a proxy, or another program.
const UNKNOWN_TOPIC: &str = "TOPIC_NOT_FOUND";
/// The largest answer, in bytes. `/nodes` of 10,000 nodes with 100 topics each has about 30 MiB.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// The most nodes that one answer can name.
pub(crate) const NODES_MAX: usize = 10_000;
/// The most topics or channels that one answer can name.
const NAMES_MAX: usize = 100_000;
/// The most header lines of an answer. A proxy can add many. Go's client counts their bytes instead.
const HEADERS_MAX: usize = 10_000;
/// The most redirects of one request.
const REDIRECTS_MAX: usize = 10;

/// One nsqlookupd. Clones share its connections, which are kept alive between requests.
///
/// ```no_run
/// use ringq_client::{Config, Lookupd};
///
/// # async fn example() -> Result<(), ringq_client::LookupdError> {
/// let lookupd = Lookupd::new("127.0.0.1:4161", &Config::default())?;
/// for topic in lookupd.topics().await? {
///     let found = lookupd.lookup(&topic).await?.unwrap_or_default();
///     println!("{topic}: {} nodes", found.producers.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Lookupd {
    name: Arc<str>,
    lookup_url: Url,
    http: Client,
}

impl fmt::Debug for Lookupd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookupd")
            .field("address", &without_password(&self.name))
            .finish_non_exhaustive()
    }
}

impl Lookupd {
    /// Makes the client of an nsqlookupd. `address` is `host:port` or a URL. The path of a URL replaces `/lookup`, and
    /// its query is kept: `http://h:4161/custom?x=1` is asked for `/custom?topic=T&x=1`. `https` uses the TLS settings
    /// of `config`.
    ///
    /// # Errors
    /// The address is no address of an nsqlookupd, or the certificates cannot be used.
    pub fn new(address: &str, config: &Config) -> Result<Lookupd, LookupdError> {
        let timeout = config.lookupd_poll_timeout;
        Lookupd::with_timeouts(address, config, timeout, timeout)
    }

    /// Makes the client of an nsqlookupd as [`Lookupd::new`] does, with timeouts of its own in place of
    /// `lookupd_poll_timeout`: that of a connection, and that of a whole request. Zero sets no timeout.
    ///
    /// # Errors
    /// See [`Lookupd::new`].
    pub fn with_timeouts(
        address: &str,
        config: &Config,
        connecting: Duration,
        request: Duration,
    ) -> Result<Lookupd, LookupdError> {
        let wrong = |reason| LookupdError::new(address, reason);
        let lookup_url = parse_address(address).map_err(wrong)?;
        let http = http_client(&lookup_url, config, connecting, request).map_err(wrong)?;
        Ok(Lookupd {
            name: address.into(),
            lookup_url,
            http,
        })
    }

    /// Checks the text of an address, and makes nothing.
    ///
    /// # Errors
    /// The text is no address of an nsqlookupd.
    pub fn check_address(address: &str) -> Result<(), LookupdError> {
        let wrong = |reason| LookupdError::new(address, reason);
        parse_address(address).map(drop).map_err(wrong)
    }

    /// Returns the address as it was given.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.name
    }

    /// Asks for the channels of a topic and the nodes that have the topic. `None` means that no node has it, which is
    /// an ordinary answer.
    ///
    /// # Errors
    /// The nsqlookupd cannot be asked, or its answer is not understood.
    pub async fn lookup(&self, topic: &str) -> Result<Option<Lookup>, LookupdError> {
        let asked = self.ask(with_topic(&self.lookup_url, topic));
        match asked.await {
            Ok(found) => Ok(Some(found.into())),
            Err(error) if error.is_of_unknown_topic() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks for all topics.
    ///
    /// # Errors
    /// The nsqlookupd cannot be asked, its answer is not understood, or it names more than 100,000 topics.
    pub async fn topics(&self) -> Result<Vec<String>, LookupdError> {
        let url = beside(&self.lookup_url, "topics");
        let topics = self.ask(url).await?.topics;
        match topics.ignored {
            0 => Ok(topics.kept),
            _ => Err(LookupdError::new(&self.name, Reason::TooManyTopics)),
        }
    }

    /// Asks for all nodes.
    ///
    /// # Errors
    /// The nsqlookupd cannot be asked, its answer is not understood, or it names more than 10,000 nodes.
    pub async fn nodes(&self) -> Result<Vec<NodeInfo>, LookupdError> {
        match self.first_nodes().await? {
            (nodes, 0) => Ok(nodes),
            _ => Err(LookupdError::new(&self.name, Reason::TooManyNodes)),
        }
    }

    /// Asks for all nodes. Returns at most [`NODES_MAX`] of them, and the number of the others.
    pub(crate) async fn first_nodes(&self) -> Result<(Vec<NodeInfo>, usize), LookupdError> {
        let url = beside(&self.lookup_url, "nodes");
        let nodes = self.ask(url).await?.producers;
        Ok((nodes.kept, nodes.ignored))
    }

    /// Sends one request.
    async fn ask(&self, url: Url) -> Result<Answer, LookupdError> {
        let wrong = |reason| LookupdError::new(&self.name, reason);
        let http = |error: reqwest::Error| wrong(Reason::Http(error.without_url()));
        let mut response = self.http.get(url).send().await.map_err(http)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(http)? {
            if body.len() + piece.len() > ANSWER_BYTES_MAX {
                return Err(wrong(Reason::TooLarge));
            }
            body.extend_from_slice(&piece);
        }
        match status {
            StatusCode::OK if body.is_empty() => Ok(Answer::default()),
            StatusCode::OK => nsq_http::read(&body).map_err(|error| wrong(Reason::Json(error))),
            status => Err(wrong(Reason::refused(status, &body))),
        }
    }
}

fn http_client(
    url: &Url,
    config: &Config,
    connecting: Duration,
    request: Duration,
) -> Result<Client, Reason> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static(nsq_http::ACCEPT));
    if config.lookupd_authorization && !config.auth_secret.is_empty() {
        let bearer = format!("Bearer {}", config.auth_secret);
        let mut bearer = HeaderValue::from_str(&bearer).map_err(|_| Reason::Secret)?;
        bearer.set_sensitive(true);
        headers.insert(AUTHORIZATION, bearer);
    }
    let mut builder = Client::builder()
        .default_headers(headers)
        .user_agent(&config.user_agent)
        // A redirect to another server, or from HTTPS to HTTP, loses the secret: tests/redirects.rs.
        .redirect(redirect::Policy::limited(REDIRECTS_MAX))
        .no_proxy()
        .http1_max_headers(HEADERS_MAX)
        .http1_allow_obsolete_multiline_headers_in_responses(true)
        .tcp_nodelay(true)
        .pool_idle_timeout(Duration::from_secs(600));
    if !connecting.is_zero() {
        builder = builder.connect_timeout(connecting);
    }
    if !request.is_zero() {
        builder = builder.timeout(request);
    }
    with_tls(builder, url, config)?
        .build()
        .map_err(Reason::Http)
}

/// Adds the TLS configuration. Without `https`, the authorities are not read, and no certificate is accepted.
#[cfg(feature = "tls")]
fn with_tls(
    builder: reqwest::ClientBuilder,
    url: &Url,
    config: &Config,
) -> Result<reqwest::ClientBuilder, Reason> {
    let tls = match url.scheme() {
        "https" => config.tls.client_config().map_err(Reason::Option)?,
        _ => {
            let none = upgrade::ClientTls {
                authorities: Some(upgrade::RootCertStore::empty()),
                ..upgrade::ClientTls::default()
            };
            let tls = upgrade::client_config(&none).map_err(OptionError::Certificate);
            tls.map_err(Reason::Option)?
        }
    };
    Ok(builder.tls_backend_preconfigured(Arc::unwrap_or_clone(tls)))
}

#[cfg(not(feature = "tls"))]
fn with_tls(
    builder: reqwest::ClientBuilder,
    url: &Url,
    _config: &Config,
) -> Result<reqwest::ClientBuilder, Reason> {
    match url.scheme() {
        "https" => Err(Reason::Option(OptionError::NotBuilt {
            option: "https",
            feature: "tls",
        })),
        _ => Ok(builder),
    }
}

/// The answer to a lookup: the channels of a topic, and the nodes that have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lookup {
    /// The names of the topic's channels, at most 100,000.
    pub channels: Vec<String>,
    /// The nodes that have the topic, at most 10,000.
    pub producers: Vec<NodeInfo>,
    /// The number of further nodes and channels in the answer.
    pub ignored: usize,
}

/// An answer of any endpoint.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    topics: Bounded<String, NAMES_MAX>,
    channels: Bounded<String, NAMES_MAX>,
    producers: Bounded<NodeInfo, NODES_MAX>,
}

impl From<Answer> for Lookup {
    fn from(answer: Answer) -> Lookup {
        Lookup {
            ignored: answer.channels.ignored + answer.producers.ignored,
            channels: answer.channels.kept,
            producers: answer.producers.kept,
        }
    }
}

/// The first elements of a list, at most `MAX`. Go writes an empty list as `null`.
#[derive(Debug)]
struct Bounded<T, const MAX: usize> {
    kept: Vec<T>,
    /// The number of further elements.
    ignored: usize,
}

impl<T, const MAX: usize> Default for Bounded<T, MAX> {
    fn default() -> Bounded<T, MAX> {
        Bounded {
            kept: Vec::new(),
            ignored: 0,
        }
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bounded<T, MAX>, D::Error> {
        from.deserialize_any(BoundedVisitor(PhantomData))
    }
}

struct BoundedVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for BoundedVisitor<T, MAX> {
    type Value = Bounded<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list or null")
    }

    fn visit_unit<E>(self) -> Result<Bounded<T, MAX>, E> {
        Ok(Bounded::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Bounded<T, MAX>, A::Error> {
        let mut bounded = Bounded::default();
        while bounded.kept.len() < MAX {
            match list.next_element()? {
                Some(element) => bounded.kept.push(element),
                None => return Ok(bounded),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {
            bounded.ignored += 1;
        }
        Ok(bounded)
    }
}

/// Parses `host:port` or a URL into the URL of lookups.
fn parse_address(address: &str) -> Result<Url, Reason> {
    let text = if address.contains("://") {
        address.to_owned()
    } else {
        format!("http://{address}")
    };
    // A path or a query may have commas.
    let (_, rest) = text.split_once("://").unwrap_or_default();
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains(',') {
        return Err(Reason::List);
    }
    let mut url = Url::parse(&text).map_err(Reason::Url)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Reason::Scheme(url.scheme().to_owned()));
    }
    if !has_port(authority) {
        return Err(Reason::MissingPort);
    }
    if url.path() == "/" {
        url.set_path("/lookup");
    }
    Ok(url)
}

/// Returns true if `user:password@host:port` has a port. The parsed URL does not tell port 80 from no port.
fn has_port(authority: &str) -> bool {
    let host_and_port = authority.rsplit('@').next().unwrap_or_default();
    // The colons of an IPv6 address are inside brackets.
    let behind = host_and_port.rsplit(']').next().unwrap_or_default();
    let port = behind.rsplit_once(':');
    port.is_some_and(|(_, port)| !port.is_empty())
}

/// Adds the topic to the query, whose parameters are sorted by name as in Go.
fn with_topic(lookup: &Url, topic: &str) -> Url {
    let own = lookup.query_pairs();
    let mut pairs: Vec<(String, String)> = own
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    pairs.push(("topic".to_owned(), topic.to_owned()));
    pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut url = lookup.clone();
    url.query_pairs_mut().clear().extend_pairs(pairs);
    url
}

/// Returns the URL of an endpoint in the same directory as that of lookups.
fn beside(lookup: &Url, endpoint: &str) -> Url {
    let mut url = lookup.clone();
    let (directory, _) = lookup.path().rsplit_once('/').unwrap_or_default();
    url.set_path(&format!("{directory}/{endpoint}"));
    url
}

/// The reason why an nsqlookupd could not be asked.
#[derive(Debug)]
pub struct LookupdError {
    address: String,
    reason: Reason,
}

/// The cause of the failure.
#[derive(Debug, Error)]
enum Reason {
    #[error(
        "missing port: write host:port, as in 127.0.0.1:4161 (nsqlookupd has HTTP on port 4161 by default)"
    )]
    MissingPort,
    #[error("this is a list: give each address by itself")]
    List,
    #[error("the address is no URL: {0}")]
    Url(#[source] url::ParseError),
    #[error("{0:?} is neither http nor https")]
    Scheme(String),
    #[error("auth_secret has characters that a header cannot have")]
    Secret,
    #[error("{0}")]
    Option(#[source] OptionError),
    #[error("{}", http_text(.0))]
    Http(#[source] reqwest::Error),
    #[error("{}", status_text(*.0, .1))]
    Status(u16, String),
    #[error("the answer is not understood: {0}")]
    Json(#[source] serde_json::Error),
    #[error("the answer has more than {ANSWER_BYTES_MAX} bytes")]
    TooLarge,
    #[error("the answer names more than {NAMES_MAX} topics")]
    TooManyTopics,
    #[error("the answer names more than {NODES_MAX} nodes")]
    TooManyNodes,
}

/// The most bytes that are shown of a refusal that is not in the words of NSQ.
const SHOWN_BYTES_MAX: usize = 200;

impl Reason {
    /// Returns the reason of a refusal: the code in the body, or the beginning of the body.
    fn refused(status: StatusCode, body: &[u8]) -> Reason {
        let mut message = nsq_http::Refusal::read(body).message;
        if message.is_empty() {
            let shown = &body[..body.len().min(SHOWN_BYTES_MAX)];
            message = String::from_utf8_lossy(shown).into_owned();
        }
        Reason::Status(status.as_u16(), message)
    }
}

impl LookupdError {
    fn new(address: &str, reason: Reason) -> LookupdError {
        LookupdError {
            address: without_password(address).into_owned(),
            reason,
        }
    }

    /// Returns the address of the nsqlookupd, as it was given, without a password.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns true if the address itself is wrong, so that later requests fail, too.
    #[must_use]
    pub fn is_address_wrong(&self) -> bool {
        matches!(
            self.reason,
            Reason::MissingPort | Reason::List | Reason::Url(_) | Reason::Scheme(_)
        )
    }

    /// Returns true if the nsqlookupd does not know the topic.
    fn is_of_unknown_topic(&self) -> bool {
        matches!(&self.reason, Reason::Status(404, message) if message == UNKNOWN_TOPIC)
    }

    /// Returns the HTTP status of a refusal.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self.reason {
            Reason::Status(status, _) => Some(status),
            _ => None,
        }
    }
}

impl fmt::Display for LookupdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nsqlookupd {}: {}", self.address, self.reason)
    }
}

impl std::error::Error for LookupdError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.reason)
    }
}

fn http_text(error: &reqwest::Error) -> String {
    if is_not_http(error) {
        return "an nsqlookupd HTTP endpoint is required: this address does not speak HTTP (nsqlookupd has HTTP on \
                port 4161 by default, and TCP on port 4160)"
            .to_owned();
    }
    cause_of(error)
}

fn status_text(status: u16, message: &str) -> String {
    let advice = match status {
        404 => {
            ": this address has no such page, so it is not that of an nsqlookupd (nsqlookupd has HTTP on port 4161 by \
             default, and nsqd on port 4151)"
        }
        _ => "",
    };
    format!("got response {status} {message:?}{advice}")
}

/// Returns true if an answer came that is not HTTP.
fn is_not_http(error: &reqwest::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            return error.is_parse();
        }
        source = error.source();
    }
    false
}

/// Returns the first cause of an error of the HTTP library, such as `connection refused`. The layers between only name
/// parts of the library.
fn cause_of(error: &reqwest::Error) -> String {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    match cause.downcast_ref::<io::Error>() {
        Some(error) => system_text(error),
        None => cause.to_string(),
    }
}

#[cfg(test)]
#[cfg(feature = "tls")]
mod tests;
