//! [`Cluster`]: asks the nsqlookupds and nsqds, many at the same time.
//!
//! In *lookup mode*, nsqlookupds say which nsqds there are. In *direct mode*, the nsqds are fixed.
//! The mode is lookup mode as soon as there is one nsqlookupd.

mod act;
mod nodes;
mod outcome;
mod peek;
mod stats;
mod survey;
mod topics;

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use nsq_http::Lookup;
use parking_lot::RwLock;

use crate::config::{Config, UrlMap};
use crate::tally::UpstreamName;
use crate::upstream::{AnswerTime, Failed, Server, Upstream, counted_name};

use nodes::UsesGiven;

pub use act::{Abilities, Act, Acted, Deed, Terms};
pub use nodes::{Discovered, Target, is_host_and_port};
pub use outcome::{Gathered, Refusal, Warnings};
pub use peek::{Found, OWN_PARAMETERS, Obstacle, PARAMETERS, Peek, Peeked};
pub use stats::Stats;
pub use survey::{Builds, Surveyed};
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
    uses_given: Arc<UsesGiven>,
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
            uses_given: Arc::default(),
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

    /// Returns the name by which the metrics know an nsqd of lookup mode.
    pub fn counted_name(&self, address: &str) -> UpstreamName {
        counted_name(Server::Nsqd, &self.url_map.url(address))
    }

    /// Asks each of these servers, some of them at the same time. The results keep the order. The requests borrow nothing, so
    /// that they can be waited for on any thread.
    fn each<S, T, F>(
        &self,
        servers: impl IntoIterator<Item = S>,
        ask: impl Fn(Upstream, S) -> F,
    ) -> BoxFuture<'static, Vec<T>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let servers = servers.into_iter();
        let requests = servers.map(|server| ask(self.upstream.clone(), server).boxed());
        let requests: Vec<_> = requests.collect();
        let results = stream::iter(requests).buffered(REQUESTS_MAX);
        results.collect().boxed()
    }

    /// Does the same, and tells the data from the failures.
    fn gather<S, T, F>(
        &self,
        servers: impl IntoIterator<Item = S>,
        ask: impl Fn(Upstream, S) -> F,
    ) -> BoxFuture<'static, Gathered<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failed>> + Send + 'static,
    {
        let results = self.each(servers, ask);
        results.map(Gathered::from_iter).boxed()
    }

    /// Asks each nsqlookupd for this path, and returns the answers by the nsqlookupds' addresses.
    async fn ask_lookupds(&self, path: &str) -> Vec<(String, Result<Lookup, Failed>)> {
        let asked = self.each(self.lookupds(), |upstream, lookupd| {
            let url = format!("http://{lookupd}{path}");
            async move { (lookupd, upstream.get(Server::Nsqlookupd, &url).await) }
        });
        asked.await
    }
}
