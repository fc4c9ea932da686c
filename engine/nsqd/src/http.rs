//! nsqd's HTTP interface: publishing, administration, statistics.
//!
//! ```text
//!   program::http -> route -> publish | admin | stats | config -> Broker
//!   (the server)                  (checks, in nsqd's order)
//! ```
//!
//! This module knows bytes, names and limits. It reaches topics only through the trait [`Broker`],
//! which `shard/http_broker.rs` implements over all shards. One connection is one call of [`serve_connection`], on one
//! shard: nothing here is `Send`, nothing is shared.

use std::time::Duration;

use diskq::AppendError;
use engine_rules::stats::{ShardStats, StatsFilter, StatsSnapshot};
use engine_rules::{NoUndo, PeekBudget, PeekQuestion, PeekSlice, PeekedFrame, Refusal, Seq};
use futures_channel::oneshot;
use http::{Method, StatusCode};
use program::http::{
    Connection, Failure, Head, HostNames, Io, Query, Reply, RequestBody, Route, Served, Service,
    parse_query, profiler,
};

use crate::config::TlsRequired;
use crate::net::address::Peer;
use crate::process::Info;
use wire::origin::Origin;

use route::Endpoint;

mod admin;
mod bodies;
mod config;
mod debug;
mod metrics;
mod peek;
mod publish;
mod route;
mod stats;

pub use admin::{Action, Command};
pub use bodies::Bodies;
pub(crate) use config::{LOG_LEVEL, LOOKUPD_ADDRESSES};
pub(crate) use peek::FRAME_BYTES_MAX;
pub use peek::{ColdFrame, ColdReader};
pub(crate) use stats::memory_fields;

/// The reason why a publish was not accepted: 503 `EXITING`, if nothing else is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishError {
    /// The topic is being deleted, or the process ends.
    Exiting,
    /// The node is being drained: 503 `DRAINING`.
    Draining,
    /// The disk has no room: 503 `DISK_FULL`. The text is the `reason` of the answer.
    DiskFull(String),
    /// The topic takes no messages for another reason: 503 `STORAGE_FAILED`. The text is the `reason` of the answer.
    Backend(String),
}

impl From<Refusal> for PublishError {
    fn from(refusal: Refusal) -> PublishError {
        match refusal {
            Refusal::Exiting => PublishError::Exiting,
            Refusal::Draining => PublishError::Draining,
            Refusal::Log(AppendError::Full(_)) => PublishError::DiskFull(refusal.to_string()),
            other => PublishError::Backend(other.to_string()),
        }
    }
}

/// The reason why an administrative request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminError {
    /// 404 `TOPIC_NOT_FOUND`
    TopicNotFound,
    /// 404 `CHANNEL_NOT_FOUND`
    ChannelNotFound,
    /// 404 `UNDO_NOT_FOUND`, and more codes that begin with `UNDO_`
    NoUndo(NoUndo),
    /// 503 `EXITING`
    Exiting,
    /// 500 `INTERNAL_ERROR`. The text goes to the log, and is logged only here.
    Backend(String),
}

impl From<Refusal> for AdminError {
    fn from(refusal: Refusal) -> AdminError {
        match refusal {
            Refusal::Exiting => AdminError::Exiting,
            other => AdminError::Backend(other.to_string()),
        }
    }
}

/// The kind of a job beside the shards. Each kind has threads of its own, and waits for no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// Puts an answer together, or checks a request, from what is in memory.
    Report,
    /// Reads messages from disk and searches them.
    Peek,
}

/// Too many jobs of this kind are being done: 503 `BUSY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// The broker, as HTTP sees it. Names are valid when they get here. Dropping one of the futures
/// (the peer has gone) may leave the operation done or not done, but never half done.
#[allow(async_fn_in_trait)] // Everything stays on one thread: no bound on the futures is wanted.
pub trait Broker {
    /// Stores the messages, and creates the topic if it is missing. With `defer` they are due
    /// that much later. `origin` is that of the first message, if the publisher numbers its messages.
    async fn publish(
        &self,
        topic: &str,
        bodies: Bodies,
        defer: Option<Duration>,
        origin: Option<Origin>,
    ) -> Result<(), PublishError>;

    /// Carries out an action on a topic, or on a channel of the topic. Returns when a checkpoint records the change,
    /// and for a pause when `nsqd.dat` was written, too. A failed write of `nsqd.dat` is no error here.
    async fn administer(
        &self,
        topic: &str,
        channel: Option<&str>,
        command: Command,
    ) -> Result<(), AdminError>;

    /// All shards' snapshots, merged; see [`StatsFilter`] for what is to be in it.
    async fn stats(&self, filter: &StatsFilter) -> StatsSnapshot;
    /// Returns a slice of the messages of a topic or channel. Nothing changes.
    async fn peek(&self, question: &PeekQuestion) -> Result<PeekSlice, AdminError>;
    /// Returns where messages of a topic are now. Nothing changes.
    async fn peek_again(
        &self,
        topic: &str,
        seqs: Vec<Seq>,
        budget: PeekBudget,
    ) -> Result<Vec<PeekedFrame>, AdminError>;
    /// Returns the function that reads messages from disk, for a job of [`Broker::in_background`].
    fn cold_reader(&self) -> ColdReader;
    /// Returns the figures of all shards, in order.
    async fn shards(&self) -> Vec<ShardStats>;
    /// Has a job done on another thread, so that it delays no message. The job may read files.
    ///
    /// # Errors
    /// Too many jobs of this kind wait.
    fn begin_in_background(
        &self,
        kind: Background,
        job: impl FnOnce() + Send + 'static,
    ) -> Result<(), Busy>;
    /// Does the same, and waits for the result.
    ///
    /// # Errors
    /// Too many jobs of this kind wait.
    async fn in_background<R: Send + 'static>(
        &self,
        kind: Background,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, Busy> {
        let (sender, receiver) = oneshot::channel();
        self.begin_in_background(kind, move || {
            // The caller may be gone: an HTTP client that hung up.
            let _ = sender.send(job());
        })?;
        receiver.await.map_err(|_| Busy)
    }
    /// Returns the names of all topics, in no order.
    async fn topic_names(&self) -> Vec<String>;
    /// Returns why a log takes no messages, or a topic is set aside, as an error.
    fn health(&self) -> Result<(), String>;
    /// Returns whether all shards serve.
    fn is_started(&self) -> bool;
    /// Returns whether the process ends.
    fn is_stopping(&self) -> bool;
    /// Returns whether a drain is under way.
    fn is_draining(&self) -> bool;
    /// Begins a drain, or takes it back. Returns when all shards have followed.
    async fn set_draining(&self, is_draining: bool) -> Result<(), AdminError>;
    /// Returns the addresses of the nsqlookupds, as they were set last. `None`: they were set to `null`.
    fn lookupd_addresses(&self) -> Option<Vec<String>>;
    /// Replaces that list, until the process ends.
    fn set_lookupd_addresses(&self, addresses: Option<Vec<String>>);
    /// Returns the facts about the process that do not change.
    fn info(&self) -> &Info;
    /// Returns whether the connection came over TLS.
    fn is_secure(&self) -> bool;
    /// Returns whether the connection should move to another shard. The server asks this between requests.
    fn is_better_elsewhere(&self) -> bool;
}

/// Serves one connection until it ends or is to move: see [`program::http::serve_connection`].
pub async fn serve_connection<B: Broker>(
    connection: &mut Connection<impl Io>,
    peer: &Peer,
    broker: &B,
    linger: impl Future<Output = ()>,
) -> Served {
    program::http::serve_connection(connection, peer, &Nsqd(broker), linger).await
}

/// nsqd's answers, for this broker.
struct Nsqd<'a, B>(&'a B);

impl<B: Broker> Service for Nsqd<'_, B> {
    type Endpoint = Endpoint;

    const ROUTES: &'static [Route<Endpoint>] = route::ROUTES;

    async fn answer(
        &self,
        endpoint: Endpoint,
        segments: &[String],
        query: &str,
        body: &mut RequestBody<'_, impl Io>,
    ) -> Result<Reply, Failure> {
        let broker = self.0;
        let (raw_query, mut query) = (query, Query::default());
        if endpoint.reads_only_query() {
            query = parse_query(raw_query)?;
            // `/topic/create` does not read the body, as in nsqd.
            let is_body_read = endpoint != Endpoint::Topic(Action::Create);
            if is_body_read && !body.read_and_forget().await {
                return Err(Failure::bad("INVALID_REQUEST"));
            }
        }
        match endpoint {
            Endpoint::Ping => {
                let health = broker.health();
                let status = match health {
                    Ok(()) => StatusCode::OK,
                    Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
                };
                Ok(Reply::plain(status, health_text(&health)))
            }
            Endpoint::Ready => Ok(ready(broker)),
            Endpoint::Info => Ok(stats::info(broker.info())),
            Endpoint::Stats => Ok(stats::stats(broker, stats::Wanted::from_query(&query)).await),
            Endpoint::Metrics => metrics::metrics(broker, &query).await,
            Endpoint::PeekTopic => peek::peek(broker, false, &query).await,
            Endpoint::PeekChannel => peek::peek(broker, true, &query).await,
            Endpoint::Topics => Ok(stats::topics(broker).await),
            Endpoint::Pub => publish::publish(broker, raw_query, body).await,
            Endpoint::Mpub => publish::publish_many(broker, raw_query, body).await,
            Endpoint::Topic(action) => admin::change_topic(broker, action, &query).await,
            Endpoint::Channel(action) => admin::change_channel(broker, action, &query).await,
            Endpoint::ConfigGet => config::get(broker, &segments[0]),
            Endpoint::ConfigPut => config::put(broker, &segments[0], body).await,
            Endpoint::PprofIndex => Ok(profiler::index("")),
            Endpoint::PprofCommandLine => Ok(profiler::command_line()),
            Endpoint::PprofSymbol => Ok(profiler::symbols()),
            Endpoint::Pprof => Ok(profiler::profile("/stats")),
            Endpoint::SetBlockRate => Ok(debug::set_block_rate(raw_query, body).await),
            Endpoint::FreeMemory => Ok(debug::free_memory()),
        }
    }

    /// Publishes are too many to be logged. The profiler never reaches nsqd's own code.
    fn is_logged(endpoint: Endpoint) -> bool {
        !matches!(
            endpoint,
            Endpoint::Pub
                | Endpoint::Mpub
                | Endpoint::PprofIndex
                | Endpoint::PprofCommandLine
                | Endpoint::PprofSymbol
                | Endpoint::Pprof
        )
    }

    fn host_names(&self) -> Option<&HostNames> {
        self.0.info().host_names.as_deref()
    }

    /// Pages of other sites publish to the original nsqd, too. All other changes are an operator's.
    fn is_open_to_other_sites(endpoint: Endpoint) -> bool {
        matches!(endpoint, Endpoint::Pub | Endpoint::Mpub)
    }

    /// `OPTIONS *` is answered by Go's server, and so also where TLS is required.
    fn refusal(&self, head: &Head) -> Option<Reply> {
        let info = self.0.info();
        let is_server_wide = head.method == Method::OPTIONS && head.target.path() == "*";
        let is_https_only = info.config.tls_required == TlsRequired::Yes;
        let is_refused = is_https_only && !self.0.is_secure() && !is_server_wide;
        is_refused.then(|| tls_required(info.ports.https))
    }

    fn is_better_elsewhere(&self) -> bool {
        self.0.is_better_elsewhere()
    }
}

/// Makes the answer to a plain HTTP request where TLS is required. The JSON encoder is not used, because nsqd's text
/// has these spaces.
fn tls_required(https_port: i32) -> Reply {
    let body = format!(r#"{{"message": "TLS_REQUIRED", "https_port": {https_port}}}"#);
    Reply::json(StatusCode::FORBIDDEN, body)
}

/// Says whether clients should be sent here. `/ping` says whether the process works.
fn ready(broker: &impl Broker) -> Reply {
    let ready = if broker.is_stopping() {
        Err("exiting".to_owned())
    } else if !broker.is_started() {
        Err("starting".to_owned())
    } else if broker.is_draining() {
        Err("draining".to_owned())
    } else {
        broker.health()
    };
    let status = match ready {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    Reply::plain(status, health_text(&ready))
}

const BUSY: Failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "BUSY");
const EXITING: Failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "EXITING");
const DISK_FULL: Failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "DISK_FULL");
const STORAGE_FAILED: Failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "STORAGE_FAILED");
const DRAINING: Failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "DRAINING");
const TOPIC_NOT_FOUND: Failure = Failure::new(StatusCode::NOT_FOUND, "TOPIC_NOT_FOUND");
const CHANNEL_NOT_FOUND: Failure = Failure::new(StatusCode::NOT_FOUND, "CHANNEL_NOT_FOUND");

fn health_text(health: &Result<(), String>) -> String {
    match health {
        Ok(()) => "OK".to_string(),
        Err(why) => format!("NOK - {why}"),
    }
}

#[cfg(test)]
mod tests;
