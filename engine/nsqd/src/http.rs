//! nsqd's HTTP interface: publishing, administration, statistics.
//!
//! ```text
//!   program::http -> route -> publish | admin | stats | config -> HttpBroker -> shards
//!   (the server)                  (checks, in nsqd's order)
//! ```
//!
//! [`HttpBroker`] reaches the topics, on whichever shard they are. `http_server.rs` has the connections: each is served on one
//! shard, so nothing here is `Send`, and nothing is shared.

use std::sync::atomic::Ordering;

use engine_rules::REMOTE_STREAK_MAX;
use http::{Method, StatusCode};
use program::http::{
    Failure, Head, HostNames, Io, Query, Reply, RequestBody, Route, Service, parse_query, profiler,
};

use crate::config::TlsRequired;

use route::Endpoint;

mod admin;
mod bodies;
mod broker;
mod config;
mod debug;
mod metrics;
mod peek;
mod publish;
mod route;
mod stats;

use admin::Action;
use bodies::Bodies;
pub(crate) use broker::{HttpBroker, stats_of_all};
pub(crate) use config::{LOG_LEVEL, LOOKUPD_ADDRESSES};
pub(crate) use stats::memory_fields;

impl Service for HttpBroker {
    type Endpoint = Endpoint;

    const ROUTES: &'static [Route<Endpoint>] = route::ROUTES;

    async fn answer(
        &self,
        endpoint: Endpoint,
        segments: &[String],
        query: &str,
        body: &mut RequestBody<'_, impl Io>,
    ) -> Result<Reply, Failure> {
        let broker = self;
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
                let health = broker.shared().health.get();
                Ok(health_reply(&health, StatusCode::INTERNAL_SERVER_ERROR))
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
        self.info().host_names.as_deref()
    }

    /// Pages of other sites publish to the original nsqd, too. All other changes are an operator's.
    fn is_open_to_other_sites(endpoint: Endpoint) -> bool {
        matches!(endpoint, Endpoint::Pub | Endpoint::Mpub)
    }

    /// `OPTIONS *` is answered by Go's server, and so also where TLS is required.
    fn refusal(&self, head: &Head) -> Option<Reply> {
        let info = self.info();
        let is_server_wide = head.method == Method::OPTIONS && head.target.path() == "*";
        let is_https_only = info.config.tls_required == TlsRequired::Yes;
        let is_refused = is_https_only && !self.is_secure && !is_server_wide;
        is_refused.then(|| tls_required(info.ports.https))
    }

    fn is_better_elsewhere(&self) -> bool {
        let (owner, count) = self.streak.get();
        owner != self.shard.id && count >= REMOTE_STREAK_MAX
    }
}

/// Makes the answer to a plain HTTP request where TLS is required. The JSON encoder is not used, because nsqd's text
/// has these spaces.
fn tls_required(https_port: i32) -> Reply {
    let body = format!(r#"{{"message": "TLS_REQUIRED", "https_port": {https_port}}}"#);
    Reply::json(StatusCode::FORBIDDEN, body)
}

/// Says whether clients should be sent here. `/ping` says whether the process works.
fn ready(broker: &HttpBroker) -> Reply {
    let shared = broker.shared();
    let is_started = shared.is_started.load(Ordering::Relaxed);
    let is_stopping = broker.shard.is_stopping();
    let phase = phase(is_stopping, is_started, shared.drain.is_draining());
    let ready = phase.map_or_else(|| shared.health.get(), |phase| Err(phase.to_owned()));
    health_reply(&ready, StatusCode::SERVICE_UNAVAILABLE)
}

fn health_reply(health: &Result<(), String>, unhealthy: StatusCode) -> Reply {
    let status = match health {
        Ok(()) => StatusCode::OK,
        Err(_) => unhealthy,
    };
    Reply::plain(status, health_text(health))
}

/// Returns the phase of the process, if clients should not be sent here because of it.
fn phase(is_stopping: bool, is_started: bool, is_draining: bool) -> Option<&'static str> {
    let phases = [
        (is_stopping, "exiting"),
        (!is_started, "starting"),
        (is_draining, "draining"),
    ];
    phases.iter().find(|phase| phase.0).map(|phase| phase.1)
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
mod tests {
    use super::phase;

    #[test]
    fn clients_are_sent_only_to_a_node_that_has_started_and_does_not_end() {
        assert_eq!(phase(false, true, false), None);
        assert_eq!(phase(false, true, true), Some("draining"));
        assert_eq!(phase(false, false, true), Some("starting"));
        assert_eq!(phase(true, true, true), Some("exiting"));
    }
}
