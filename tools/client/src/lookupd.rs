//! [`Lookupd`]: questions to one nsqlookupd over HTTP.

mod answer;
mod endpoint;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, StatusCode, redirect};
use serde::de::DeserializeOwned;
use url::Url;

use crate::config::{Config, OptionError};

pub use answer::{Lookup, NodeInfo};
use answer::{Nodes, Topics};

/// The form of answers that this crate understands best. An older nsqlookupd wraps its answers.
const FORM: &str = "application/vnd.nsq; version=1.0";
/// The header with which an nsqlookupd says that its answer has this form.
const FORM_HEADER: &str = "x-nsq-content-type";
/// The largest answer, in bytes. `/nodes` of 10,000 nodes with 100 topics each has about 30 MiB.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// One nsqlookupd. Clones share its connections, which are kept alive between questions.
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
#[derive(Clone, Debug)]
pub struct Lookupd {
    name: Arc<str>,
    lookup_url: Url,
    http: Client,
}

impl Lookupd {
    /// Makes the client of an nsqlookupd. `address` is `host:port` or a URL. The path of a URL replaces `/lookup`, and its
    /// query is kept: `http://h:4161/custom?x=1` is asked for `/custom?topic=T&x=1`. `https` uses the TLS settings of
    /// `config`.
    ///
    /// # Errors
    /// The address is no address of an nsqlookupd, or the certificates cannot be used.
    pub fn new(address: &str, config: &Config) -> Result<Lookupd, LookupdError> {
        let wrong = |reason| LookupdError::new(address, reason);
        let lookup_url = endpoint::parse(address).map_err(wrong)?;
        let http = http_client(&lookup_url, config).map_err(wrong)?;
        Ok(Lookupd {
            name: address.into(),
            lookup_url,
            http,
        })
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
        self.ask(endpoint::with_topic(&self.lookup_url, topic))
            .await
    }

    /// Asks for all topics.
    ///
    /// # Errors
    /// The nsqlookupd cannot be asked, or its answer is not understood.
    pub async fn topics(&self) -> Result<Vec<String>, LookupdError> {
        let answer: Option<Topics> = self
            .ask(endpoint::beside(&self.lookup_url, "topics"))
            .await?;
        Ok(answer.unwrap_or_default().topics)
    }

    /// Asks for all nodes.
    ///
    /// # Errors
    /// The nsqlookupd cannot be asked, or its answer is not understood.
    pub async fn nodes(&self) -> Result<Vec<NodeInfo>, LookupdError> {
        let answer: Option<Nodes> = self
            .ask(endpoint::beside(&self.lookup_url, "nodes"))
            .await?;
        Ok(answer.unwrap_or_default().producers)
    }

    /// Sends one request. Returns `None` for status 404.
    async fn ask<T: DeserializeOwned>(&self, url: Url) -> Result<Option<T>, LookupdError> {
        let wrong = |reason| LookupdError::new(&self.name, reason);
        let http = |error| wrong(Reason::Http(error));
        let mut response = self.http.get(url).send().await.map_err(http)?;
        let is_wrapped = !answer::has_current_form(response.headers().get(FORM_HEADER));
        let status = response.status();
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(http)? {
            if body.len() + piece.len() > ANSWER_BYTES_MAX {
                return Err(wrong(Reason::TooLarge));
            }
            body.extend_from_slice(&piece);
        }
        match status {
            StatusCode::OK => {
                answer::parse(&body, is_wrapped).map_err(|error| wrong(Reason::Json(error)))
            }
            StatusCode::NOT_FOUND => Ok(None),
            status => Err(wrong(Reason::Status(
                status.as_u16(),
                answer::message(&body),
            ))),
        }
    }
}

fn http_client(url: &Url, config: &Config) -> Result<Client, Reason> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static(FORM));
    if config.lookupd_authorization && !config.auth_secret.is_empty() {
        let bearer = format!("Bearer {}", config.auth_secret);
        let mut bearer = HeaderValue::from_str(&bearer).map_err(|_| Reason::Secret)?;
        bearer.set_sensitive(true);
        headers.insert(AUTHORIZATION, bearer);
    }
    let mut builder = Client::builder()
        .default_headers(headers)
        .user_agent(&config.user_agent)
        .redirect(redirect::Policy::limited(10))
        .no_proxy()
        .tcp_nodelay(true)
        .pool_idle_timeout(Duration::from_secs(600));
    if !config.lookupd_poll_timeout.is_zero() {
        builder = builder
            .connect_timeout(config.lookupd_poll_timeout)
            .timeout(config.lookupd_poll_timeout);
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
    use upgrade::RootCertStore;

    let tls = match url.scheme() {
        "https" => config.tls.client_config().map_err(Reason::Option)?,
        _ => {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let tls = rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .expect("ring has TLS 1.2 and 1.3")
                .with_root_certificates(RootCertStore::empty())
                .with_no_client_auth();
            Arc::new(tls)
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

/// The reason why an nsqlookupd could not be asked.
#[derive(Debug)]
pub struct LookupdError {
    address: String,
    reason: Reason,
}

#[derive(Debug)]
enum Reason {
    MissingPort,
    Url(url::ParseError),
    Scheme(String),
    Secret,
    Option(OptionError),
    Http(reqwest::Error),
    Status(u16, String),
    Json(serde_json::Error),
    TooLarge,
}

impl LookupdError {
    fn new(address: &str, reason: Reason) -> LookupdError {
        LookupdError {
            address: address.to_owned(),
            reason,
        }
    }

    /// Returns the address of the nsqlookupd, as it was given.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns true if the address itself is wrong, so that later questions fail, too.
    #[must_use]
    pub fn is_address_wrong(&self) -> bool {
        matches!(
            self.reason,
            Reason::MissingPort | Reason::Url(_) | Reason::Scheme(_)
        )
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
        match &self.reason {
            // The tools print this text and no other.
            Reason::MissingPort => return f.write_str("missing port"),
            _ => write!(f, "nsqlookupd {}: ", self.address)?,
        }
        match &self.reason {
            Reason::MissingPort => Ok(()),
            Reason::Url(error) => write!(f, "the address is no URL: {error}"),
            Reason::Scheme(scheme) => write!(f, "{scheme:?} is neither http nor https"),
            Reason::Secret => f.write_str("auth_secret has characters that a header cannot have"),
            Reason::Option(error) => error.fmt(f),
            Reason::Http(error) => write_with_sources(f, error),
            Reason::Status(status, message) => write!(f, "got response {status} {message:?}"),
            Reason::Json(error) => write!(f, "the answer is not understood: {error}"),
            Reason::TooLarge => write!(f, "the answer has more than {ANSWER_BYTES_MAX} bytes"),
        }
    }
}

/// Writes an error of the HTTP library with its sources, which have the errors of the system.
fn write_with_sources(f: &mut fmt::Formatter<'_>, error: &reqwest::Error) -> fmt::Result {
    write!(f, "{error}")?;
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        write!(f, ": {error}")?;
        source = error.source();
    }
    Ok(())
}

impl std::error::Error for LookupdError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.reason {
            Reason::Url(error) => Some(error),
            Reason::Option(error) => Some(error),
            Reason::Http(error) => Some(error),
            Reason::Json(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
