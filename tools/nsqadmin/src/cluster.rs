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

use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use parking_lot::RwLock;

use crate::answer_time::AnswerTime;
use crate::outcome::Gathered;
use crate::shown_url::without_user;
use crate::upstream::{Failed, FailureKind, Unanswered, Upstream};
use crate::url_map::UrlMap;

use given::Noted;

pub use ability::Abilities;
pub use act::{Act, Acted, NodeAct, Scope, Terms};
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

/// The servers that a cluster begins with.
#[derive(Clone, Debug)]
pub struct Servers {
    /// `host:port` of each nsqlookupd.
    pub lookupds: Vec<String>,
    /// `host:port` of each nsqd.
    pub nsqds: Vec<String>,
    /// Where to reach nsqds whose broadcast address cannot be reached.
    pub url_map: UrlMap,
    /// Most nsqds that are asked.
    pub nodes_max: usize,
}

impl Cluster {
    /// Returns a cluster of these servers.
    pub fn new(upstream: Upstream, servers: Servers) -> Cluster {
        Cluster {
            upstream,
            lookupds: Arc::new(RwLock::new(servers.lookupds)),
            nsqds: servers.nsqds.into(),
            url_map: Arc::new(servers.url_map),
            nodes_max: servers.nodes_max,
            noted: Arc::default(),
        }
    }

    /// Returns the same cluster for questions that are asked all the time: they are logged only at level DEBUG, their answers
    /// are added to `answer_time`, and those without an answer are not repeated for a while.
    #[must_use]
    pub fn for_collecting(&self, answer_time: AnswerTime) -> Cluster {
        let upstream = self.upstream.quiet().timed(answer_time);
        Cluster {
            upstream: upstream.sparing(Unanswered::default()),
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
}

/// A request that has not begun. It borrows nothing, so that many can be waited for on any thread.
type Asked<T> = BoxFuture<'static, Result<T, Failed>>;

/// Waits for all requests, of which some run at the same time. The results keep the order.
async fn gather<T: Send>(requests: Vec<Asked<T>>) -> Gathered<T> {
    let mut gathered = Gathered {
        data: Vec::new(),
        failures: Vec::new(),
    };
    let mut results = stream::iter(requests).buffered(REQUESTS_MAX);
    while let Some(result) = results.next().await {
        match result {
            Ok(data) => gathered.data.push(data),
            Err(failed) => gathered.failures.push(failed),
        }
    }
    gathered
}

/// Adds advice to the failure of an nsqd that cannot be reached at the address that it broadcasts.
fn with_advice(mut failed: Failed, address: &str, is_mapped: bool) -> Failed {
    if failed.kind == FailureKind::Unreachable && !is_mapped {
        failed.why.push_str(&format!(
            " (the nsqd broadcasts {address}; if this address cannot be reached from here, name its \
             URL with --nsqd-url-map={address}=URL)"
        ));
    }
    failed
}

/// Adds the URL of an nsqd to its answer that is a failure. Without an answer, the failure has the URL.
fn with_sender(mut failed: Failed, url: &str) -> Failed {
    if matches!(failed.kind, FailureKind::NotFound | FailureKind::Refused) {
        failed.why.push_str(&format!(" from {}", without_user(url)));
    }
    failed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_that_is_not_mapped_gets_advice() {
        let advice = |kind, is_mapped| {
            let failed = Failed {
                why: "x".to_owned(),
                kind,
                refused: None,
            };
            with_advice(failed, "n1:4151", is_mapped).why
        };
        let text = advice(FailureKind::Unreachable, false);
        assert!(text.contains("--nsqd-url-map=n1:4151=URL"), "{text}");
        assert_eq!(advice(FailureKind::Unreachable, true), "x");
        assert_eq!(advice(FailureKind::Refused, false), "x");
    }
}
