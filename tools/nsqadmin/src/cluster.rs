//! [`Cluster`]: asks the nsqlookupds and nsqds, many at the same time.
//!
//! In *lookup mode*, nsqlookupds say which nsqds there are. In *direct mode*, the nsqds are fixed.
//! The mode is lookup mode as soon as there is one nsqlookupd.

mod ability;
mod act;
mod given;
mod nodes;
mod peek;
mod survey;
mod topics;

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use nsq_http::Lookup;
use parking_lot::RwLock;

use crate::answer_time::AnswerTime;
use crate::config::Config;
use crate::outcome::Gathered;
use crate::shown_url::without_user;
use crate::upstream::{Failed, FailureKind, Server, Upstream};
use crate::url_map::UrlMap;

use given::Noted;

pub use ability::Abilities;
pub use act::{Act, Acted, Scope, Terms};
pub use nodes::{Stats, Target};
pub use peek::Peeked;
pub use survey::{Builds, Discovered, Surveyed};
pub use topics::Place;

/// Most requests that one question has under way.
const REQUESTS_MAX: usize = 128;

/// The servers of a cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    upstream: Upstream,
    lookupds: Arc<RwLock<Vec<String>>>,
    nsqds: Arc<[String]>,
    url_map: Arc<UrlMap>,
    nodes_max: usize,
    noted: Arc<Noted>,
}

impl Cluster {
    /// Returns the cluster of the servers that the flags name.
    pub fn new(upstream: Upstream, config: &Config, url_map: UrlMap) -> Cluster {
        Cluster {
            upstream,
            lookupds: Arc::new(RwLock::new(config.lookupd_http_addresses.clone())),
            nsqds: config.nsqd_http_addresses.clone().into(),
            url_map: Arc::new(url_map),
            nodes_max: config.nodes_max,
            noted: Arc::default(),
        }
    }

    /// Returns the same cluster for questions that are asked all the time: they are logged only at level DEBUG, their answers
    /// are added to `answer_time`, and those without an answer are not repeated for a while.
    #[must_use]
    pub fn for_collecting(&self, answer_time: AnswerTime) -> Cluster {
        Cluster {
            upstream: self.upstream.for_collecting(answer_time),
            ..self.clone()
        }
    }

    /// Returns the addresses of the nsqlookupds.
    pub fn lookupds(&self) -> Vec<String> {
        self.lookupds.read().clone()
    }

    /// Replaces the addresses of the nsqlookupds. The next request uses them.
    pub fn set_lookupds(&self, addresses: Vec<String>) {
        *self.lookupds.write() = addresses;
    }

    /// Returns true in lookup mode.
    pub fn is_lookup_mode(&self) -> bool {
        !self.lookupds().is_empty()
    }

    /// Asks each nsqlookupd for this path, and returns the answers by the nsqlookupds' addresses.
    async fn ask_lookupds(&self, path: &str) -> Vec<(String, Result<Lookup, Failed>)> {
        let requests = self.lookupds().into_iter().map(|lookupd| {
            let upstream = self.upstream.clone();
            let url = format!("http://{lookupd}{path}");
            async move { (lookupd, upstream.get(Server::Nsqlookupd, &url).await) }.boxed()
        });
        let requests: Vec<BoxFuture<'static, _>> = requests.collect();
        stream::iter(requests)
            .buffered(REQUESTS_MAX)
            .collect()
            .await
    }
}

/// A request that has not begun. It borrows nothing, so that many can be waited for on any thread.
type Asked<T> = BoxFuture<'static, Result<T, Failed>>;

/// Waits for all requests, of which some run at the same time. The results keep the order.
async fn gather<T: Send>(requests: Vec<Asked<T>>) -> Gathered<T> {
    let results = stream::iter(requests).buffered(REQUESTS_MAX);
    results.collect::<Vec<_>>().await.into_iter().collect()
}

/// Adds the URL of an nsqd to its answer that is a failure. Without an answer, the failure has the URL.
fn with_sender(mut failed: Failed, url: &str) -> Failed {
    if matches!(failed.kind, FailureKind::NotFound | FailureKind::Refused) {
        failed.why.push_str(&format!(" from {}", without_user(url)));
    }
    failed
}
