//! The cluster's figures: which nsqds there are, and what their `/stats` say.
//!
//! The requests block, and each question goes to all addresses at the same time. If only some of
//! them answer, the answer has the data of these and the errors of the others ([`Answer`]): each
//! program decides what a partial answer is worth.

mod sources;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nsq_http::{Lookup, NodeInfo, Stats, query};
use parking_lot::Mutex;
use program::http_client::{HttpClient, HttpSettings, HttpTls};
use serde::de::DeserializeOwned;

use crate::flags;

pub use sources::{NSQD_HTTP_ADDRESS, Sources};

/// Most requests that one question has under way. Larger clusters are asked in turns.
const REQUESTS_MAX: usize = 64;

/// Most bytes of one answer. A client takes about 500 bytes of `/stats`, so this is the answer of a
/// node with 400,000 clients.
const ANSWER_BYTES_MAX: u64 = 200 * 1024 * 1024;

program::flags! {
    /// The time limits of connecting and of a whole request. Zero means no limit.
    #[derive(Clone, Copy, Debug)]
    pub struct QueryTimeouts {
        connect: Duration = flags::http_client_connect_timeout();
        request: Duration = flags::http_client_request_timeout("5s");
    }
}

impl QueryTimeouts {
    /// Checks that each time is above zero, like the time that another flag gives.
    ///
    /// # Errors
    /// Names the first flag whose time is not. The error is the reason for the user.
    pub fn check_positive(&self) -> Result<(), String> {
        flags::check_positive("http-client-connect-timeout", self.connect)?;
        flags::check_positive("http-client-request-timeout", self.request)
    }
}

/// The data of the addresses that answered, and the reasons why the others did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer<T> {
    /// The data of the addresses that answered.
    pub data: T,
    /// The addresses that did not answer.
    pub failures: Vec<Failure>,
}

/// An address that did not answer a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `host:port`
    pub address: String,
    /// The reason, as NSQ's programs print it.
    pub why: String,
}

/// No address has answered, or no node has the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryError {
    asked: Asked,
    failures: Vec<Failure>,
}

/// The kind of program that a question goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Lookupd,
    Nsqd,
}

impl std::fmt::Display for QueryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let program = match self.asked {
            Asked::Lookupd => "nsqlookupd",
            Asked::Nsqd => "nsqd",
        };
        write!(f, "failed to query any {program}: ")?;
        if self.failures.is_empty() {
            return f.write_str("no node has the topic");
        }
        for (index, failure) in self.failures.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}", failure.why)?;
        }
        Ok(())
    }
}

impl std::error::Error for QueryError {}

impl QueryError {
    /// Returns why each address gave no figures: it did not answer, or answered with an error.
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// Takes what [`QueryError::failures`] returns.
    pub fn into_failures(self) -> Vec<Failure> {
        self.failures
    }
}

/// A client of nsqlookupds and nsqds. Many threads can share it.
#[derive(Debug)]
pub struct Cluster {
    client: HttpClient,
}

impl Cluster {
    /// Returns a client with these limits.
    pub fn new(timeouts: QueryTimeouts) -> Cluster {
        let settings = HttpSettings {
            connect_timeout: timeouts.connect,
            request_timeout: timeouts.request,
            idle_connections_max: REQUESTS_MAX,
            tls: HttpTls::System { only_tls13: false },
        };
        Cluster {
            client: HttpClient::new(settings).with_answer_limit(ANSWER_BYTES_MAX),
        }
    }

    /// Returns the names of all topics that any of the nsqlookupds knows, sorted.
    ///
    /// # Errors
    /// No nsqlookupd answers.
    pub fn topics(&self, lookupds: &[String]) -> Result<Answer<BTreeSet<String>>, QueryError> {
        let answer = ask_all(Asked::Lookupd, lookupds, |address| {
            self.get::<Lookup>(&format!("http://{address}/topics"))
        })?;
        Ok(answer.map(|lists| lists.into_iter().flat_map(|list| list.topics).collect()))
    }

    /// Returns the nsqds that carry a topic, each once, sorted by address. The address is the one
    /// that the nsqd broadcasts, whatever `sources` says.
    ///
    /// # Errors
    /// No address answers.
    pub fn nodes_of_topic(
        &self,
        sources: &Sources,
        topic: &str,
    ) -> Result<Answer<Vec<NodeInfo>>, QueryError> {
        match sources {
            Sources::Lookupds(addresses) => {
                let page = format!("/lookup{}", query(&[("topic", topic)]));
                self.producers(addresses, &page)
            }
            Sources::Nsqds(addresses) => {
                let answer = ask_all(Asked::Nsqd, addresses, |address| {
                    let stats = self.stats_of(address, topic, "", false)?;
                    if stats.topics.iter().any(|known| known.topic_name == topic) {
                        self.info(address).map(Some)
                    } else {
                        Ok(None)
                    }
                })?;
                Ok(answer.map(|nodes| sorted_nodes(nodes.into_iter().flatten())))
            }
        }
    }

    /// Returns all nsqds, each once, sorted by address. Like [`Cluster::nodes_of_topic`], it returns
    /// the addresses that the nsqds broadcast.
    ///
    /// # Errors
    /// No address answers.
    pub fn nodes(&self, sources: &Sources) -> Result<Answer<Vec<NodeInfo>>, QueryError> {
        match sources {
            Sources::Lookupds(addresses) => self.producers(addresses, "/nodes"),
            Sources::Nsqds(addresses) => {
                let answer = ask_all(Asked::Nsqd, addresses, |address| self.info(address))?;
                Ok(answer.map(sorted_nodes))
            }
        }
    }

    /// Returns the statistics of each address, in the order of `addresses`. The topic and the channel
    /// select what is shown. An empty name selects everything.
    ///
    /// # Errors
    /// No nsqd answers.
    pub fn stats(
        &self,
        addresses: &[String],
        topic: &str,
        channel: &str,
        include_clients: bool,
    ) -> Result<Answer<Vec<(String, Stats)>>, QueryError> {
        ask_all(Asked::Nsqd, addresses, |address| {
            let stats = self.stats_of(address, topic, channel, include_clients)?;
            Ok((address.clone(), stats))
        })
    }

    fn stats_of(
        &self,
        address: &str,
        topic: &str,
        channel: &str,
        include_clients: bool,
    ) -> Result<Stats, String> {
        let include_clients = if include_clients { "" } else { "false" };
        let query = query(&[
            ("format", "json"),
            ("topic", topic),
            ("channel", channel),
            ("include_clients", include_clients),
        ]);
        self.get(&format!("http://{address}/stats{query}"))
    }

    /// Returns the value of a key of an nsqd's `/config`.
    ///
    /// # Errors
    /// The reason why there is no value. An nsqd that lacks the key answers with status 404.
    pub fn config_value<T: DeserializeOwned>(&self, address: &str, key: &str) -> Result<T, String> {
        self.get(&format!("http://{address}/config/{key}"))
    }

    fn info(&self, address: &str) -> Result<NodeInfo, String> {
        self.get(&format!("http://{address}/info"))
    }

    fn producers(
        &self,
        addresses: &[String],
        page: &str,
    ) -> Result<Answer<Vec<NodeInfo>>, QueryError> {
        let answer = ask_all(Asked::Lookupd, addresses, |address| {
            let producers = self.get::<Lookup>(&format!("http://{address}{page}"));
            producers.map_err(with_hint_of_nsqd)
        })?;
        Ok(answer.map(|lists| sorted_nodes(lists.into_iter().flat_map(|list| list.producers))))
    }

    fn get<T: DeserializeOwned>(&self, url: &str) -> Result<T, String> {
        let body = self.client.get(url)?;
        nsq_http::read(&body).map_err(|error| {
            let shown = url.split('?').next().unwrap_or(url);
            format!("{shown} has answered with something else than expected: {error}")
        })
    }
}

impl<T> Answer<T> {
    /// Returns the answer with other data.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Answer<U> {
        Answer {
            data: change(self.data),
            failures: self.failures,
        }
    }
}

/// Returns the nodes without duplicates. One node often registers with several nsqlookupds.
fn sorted_nodes(nodes: impl IntoIterator<Item = NodeInfo>) -> Vec<NodeInfo> {
    let mut nodes: Vec<NodeInfo> = nodes.into_iter().collect();
    nodes.sort_by_cached_key(NodeInfo::http_address);
    nodes.dedup_by_key(|node| node.http_address());
    nodes
}

/// Asks all addresses at the same time, each with `ask`. The data are in the order of the addresses.
fn ask_all<T: Send>(
    asked: Asked,
    addresses: &[String],
    ask: impl Fn(&String) -> Result<T, String> + Sync,
) -> Result<Answer<Vec<T>>, QueryError> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(addresses.len()));
    let ask_in_turn = || {
        while let Some(address) = addresses.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = ask(address);
            results.lock().push((address, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..addresses.len().min(REQUESTS_MAX) {
            scope.spawn(ask_in_turn);
        }
        ask_in_turn();
    });
    let mut results = results.into_inner();
    let place = |address: &String| addresses.iter().position(|known| known == address);
    results.sort_by_key(|(address, _)| place(address));
    let (mut data, mut failures) = (Vec::new(), Vec::new());
    for (address, result) in results {
        match result {
            Ok(value) => data.push(value),
            Err(why) => failures.push(Failure {
                address: address.clone(),
                why,
            }),
        }
    }
    if data.is_empty() {
        Err(QueryError { asked, failures })
    } else {
        Ok(Answer { data, failures })
    }
}

/// Adds the likely reason to the answer of a server that does not have nsqlookupd's pages. nsqlookupd
/// has another text for a topic that it does not know.
fn with_hint_of_nsqd(why: String) -> String {
    let has_no_page = why.starts_with("got response 404 ") && why.contains("\"NOT_FOUND");
    if has_no_page {
        format!(
            "{why}: this address has no such page, so it is not that of an nsqlookupd (nsqlookupd has HTTP on port \
             4161 by default, and nsqd on port 4151; the address of an nsqd belongs into --nsqd-http-address)"
        )
    } else {
        why
    }
}

#[cfg(test)]
mod tests;
