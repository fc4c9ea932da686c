//! [`Lookupd`]: requests to one nsqlookupd over HTTP.

mod answer;
mod endpoint;
mod error;
#[cfg(test)]
pub(crate) mod mock;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use nsq_http::NodeInfo;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, StatusCode, redirect};
use url::Url;

use crate::config::{Config, without_password};

use answer::Answer;
pub use answer::Lookup;
pub use error::LookupdError;
use error::Reason;

/// The text with which nsqlookupd answers a lookup of a topic that it does not know. A status 404 with another text comes
/// from a server that has no such page: a proxy, or another program.
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
    /// Makes the client of an nsqlookupd. `address` is `host:port` or a URL. The path of a URL replaces `/lookup`, and its
    /// query is kept: `http://h:4161/custom?x=1` is asked for `/custom?topic=T&x=1`. `https` uses the TLS settings of
    /// `config`.
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
        let lookup_url = endpoint::parse(address).map_err(wrong)?;
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
        let parsed = endpoint::parse(address);
        parsed
            .map(drop)
            .map_err(|reason| LookupdError::new(address, reason))
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
        let asked = self.ask(endpoint::with_topic(&self.lookup_url, topic));
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
        let url = endpoint::beside(&self.lookup_url, "topics");
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
        let url = endpoint::beside(&self.lookup_url, "nodes");
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
            let tls =
                upgrade::client_config(&none).map_err(crate::config::OptionError::Certificate);
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
        "https" => Err(Reason::Option(crate::config::OptionError::NotBuilt {
            option: "https",
            feature: "tls",
        })),
        _ => Ok(builder),
    }
}

#[cfg(test)]
#[cfg(feature = "tls")]
mod tests;
