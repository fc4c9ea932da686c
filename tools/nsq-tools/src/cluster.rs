//! The cluster's figures: which nsqds there are, and what their `/stats` say.
//!
//! The requests block, and each question goes to all addresses at the same time. If only some of
//! them answer, the answer has the data of these and the errors of the others ([`Answer`]): each
//! program decides what a partial answer is worth.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nsq_http::{Lookup, NodeInfo, Stats, query};
use parking_lot::Mutex;
use program::Options;
use program::flag::FlagOf;
use program::http_client::{HttpClient, HttpSettings, HttpTls};
use serde::de::DeserializeOwned;

use crate::flags::{self, LOOKUPD_HTTP_ADDRESS, Sources};

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// The kind of program that the question went to.
    asked: &'static str,
    /// Why each address gave no figures: it did not answer, or answered with an error.
    pub failures: Vec<Failure>,
}

impl std::fmt::Display for QueryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let whys: Vec<&str> = self.failures.iter().map(|failure| &*failure.why).collect();
        let why = match &whys[..] {
            [] => "no node has the topic".to_owned(),
            whys => whys.join("\n"),
        };
        write!(f, "failed to query any {}: {why}", self.asked)
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
                let answer = ask_all("nsqd", addresses, |address| {
                    let stats = self.stats_of(address, topic, "", false)?;
                    if stats.topics.iter().any(|known| known.topic_name == topic) {
                        self.get(&format!("http://{address}/info")).map(Some)
                    } else {
                        Ok(None)
                    }
                })?;
                Ok(answer.map(|nodes| sorted_nodes(nodes.into_iter().flatten())))
            }
        }
    }

    /// Returns all nsqds that nsqlookupds know, each once, sorted by address: the one that the nsqd broadcasts.
    ///
    /// # Errors
    /// No address answers.
    pub fn nodes(&self, lookupds: &[String]) -> Result<Answer<Vec<NodeInfo>>, QueryError> {
        self.producers(lookupds, "/nodes")
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
        ask_all("nsqd", addresses, |address| {
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

    fn producers(
        &self,
        addresses: &[String],
        page: &str,
    ) -> Result<Answer<Vec<NodeInfo>>, QueryError> {
        let answer = ask_all("nsqlookupd", addresses, |address| {
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
    asked: &'static str,
    addresses: &[String],
    ask: impl Fn(&String) -> Result<T, String> + Sync,
) -> Result<Answer<Vec<T>>, QueryError> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(BTreeMap::new());
    let ask_in_turn = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(address) = addresses.get(index) else {
                break;
            };
            let result = ask(address);
            results.lock().insert(index, (address, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..addresses.len().min(REQUESTS_MAX) {
            scope.spawn(ask_in_turn);
        }
        ask_in_turn();
    });
    let (mut data, mut failures) = (Vec::new(), Vec::new());
    for (address, result) in results.into_inner().into_values() {
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

/// The addresses of nsqds, of which each is asked.
pub const NSQD_HTTP_ADDRESS: FlagOf<Vec<String>> = flags::new(
    "nsqd-http-address",
    "",
    "nsqd HTTP address (may be given multiple times)",
);

/// Returns the addresses of [`NSQD_HTTP_ADDRESS`] or [`LOOKUPD_HTTP_ADDRESS`].
///
/// # Errors
/// Both or none have a value, or an address has a scheme. The error is the text of NSQ's tools.
pub fn sources(options: &Options) -> Result<Sources, String> {
    let sources = Sources::from_options(options, &NSQD_HTTP_ADDRESS)?;
    let (flag, addresses) = match &sources {
        Sources::Nsqds(addresses) => (NSQD_HTTP_ADDRESS, addresses),
        Sources::Lookupds(addresses) => (LOOKUPD_HTTP_ADDRESS, addresses),
    };
    if addresses.iter().any(|address| address.starts_with("http")) {
        let flag = flag.name();
        return Err(format!(
            "--{flag} error - address should not contain scheme"
        ));
    }
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};

    /// Starts a server that answers each request by its target. An unknown target gets a 404 in the form
    /// of NSQ's daemons.
    fn server(pages: &'static [(&'static str, &'static str)]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                    head.push(byte[0]);
                }
                let head = String::from_utf8(head).unwrap();
                assert!(head.contains("application/vnd.nsq; version=1.0"), "{head}");
                let target = head.split(' ').nth(1).unwrap_or_default();
                let (status, body) = match pages.iter().find(|(known, _)| *known == target) {
                    Some((_, body)) => ("200 OK", *body),
                    None => ("404 Not Found", r#"{"message":"TOPIC_NOT_FOUND"}"#),
                };
                let answer = format!(
                    "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                );
                // A client that has gone needs no answer.
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        address.to_string()
    }

    fn cluster() -> Cluster {
        Cluster::new(QueryTimeouts {
            connect: Duration::from_secs(30),
            request: Duration::from_secs(30),
        })
    }

    /// Returns an address on which nothing listens.
    fn closed() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    }

    const A: &str =
        r#"{"broadcast_address":"a","http_port":4151,"tcp_port":4150,"version":"1.3.0"}"#;

    #[test]
    fn nodes_are_the_union_of_what_all_say() {
        let one = server(&[(
            "/lookup?topic=a%23ephemeral",
            r#"{"channels":[],"producers":[{"broadcast_address":"a","http_port":2},{"broadcast_address":"::1","http_port":1}]}"#,
        )]);
        let two = server(&[(
            "/lookup?topic=a%23ephemeral",
            r#"{"channels":[],"producers":[{"broadcast_address":"a","http_port":2}]}"#,
        )]);
        let sources = Sources::Lookupds(vec![one, two]);
        let nodes = cluster().nodes_of_topic(&sources, "a#ephemeral").unwrap();
        assert!(nodes.failures.is_empty());
        let addresses: Vec<String> = nodes.data.iter().map(NodeInfo::http_address).collect();
        assert_eq!(addresses, ["[::1]:1", "a:2"]);
    }

    #[test]
    fn a_partial_answer_has_data_and_errors() {
        let silent = closed();
        let lookupds = [
            silent.clone(),
            server(&[("/nodes", r#"{"producers":null}"#)]),
        ];
        let nodes = cluster().nodes(&lookupds).unwrap();
        assert!(nodes.data.is_empty());
        let [failure] = &nodes.failures[..] else {
            panic!("{nodes:?}");
        };
        assert_eq!(failure.address, silent);
        let why = format!(
            "Get \"http://{silent}/nodes\": dial tcp {silent}: connect: connection refused"
        );
        assert_eq!(failure.why, why);
    }

    #[test]
    fn no_answer_is_an_error_with_all_reasons() {
        let lookupd = server(&[]);
        let sources = Sources::Lookupds(vec![lookupd.clone(), lookupd]);
        let error = cluster().nodes_of_topic(&sources, "t").unwrap_err();
        let not_found = r#"got response 404 Not Found "{\"message\":\"TOPIC_NOT_FOUND\"}""#;
        assert_eq!(
            error.to_string(),
            format!("failed to query any nsqlookupd: {not_found}\n{not_found}")
        );
        let error = cluster().stats(&[], "t", "c", false).unwrap_err();
        let nobody = "failed to query any nsqd: no node has the topic";
        assert_eq!(error.to_string(), nobody);
        let odd = server(&[("/nodes", "odd")]);
        let error = cluster().nodes(std::slice::from_ref(&odd)).unwrap_err();
        let begin = format!(
            "failed to query any nsqlookupd: http://{odd}/nodes has answered with something else than \
         expected: "
        );
        assert!(error.to_string().starts_with(&begin), "{error}");
    }

    #[test]
    fn a_tcp_port_in_place_of_the_http_port_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 4]).unwrap();
            // nsqd's answer to a magic that it does not know.
            let frame = b"\0\0\0\x12\0\0\0\x01E_BAD_PROTOCOL";
            stream.write_all(frame).unwrap();
        });
        let error = cluster().nodes(&[address]).unwrap_err();
        let text = error.to_string();
        let advice = "choose the server's HTTP port (nsqd: 4151 by default, nsqlookupd: 4161)";
        assert!(text.ends_with(advice), "{text}");
    }

    #[test]
    fn an_nsqd_says_whether_it_has_the_topic_and_who_it_is() {
        let with = server(&[
            (
                "/stats?format=json&topic=t&include_clients=false",
                r#"{"topics":[{"topic_name":"t","channels":null}],"producers":null}"#,
            ),
            ("/info", A),
        ]);
        let without = server(&[(
            "/stats?format=json&topic=t&include_clients=false",
            r#"{"topics":[]}"#,
        )]);
        let sources = Sources::Nsqds(vec![with, without]);
        let nodes = cluster().nodes_of_topic(&sources, "t").unwrap();
        let [node] = &nodes.data[..] else {
            panic!("{nodes:?}");
        };
        assert_eq!(node.http_address(), "a:4151");
        assert_eq!((node.tcp_port, node.version.as_str()), (4150, "1.3.0"));
    }

    #[test]
    fn statistics_come_in_the_order_of_the_addresses() {
        const QUERY: &str = "/stats?format=json&topic=t&channel=c&include_clients=false";
        let pages = |stats| server(stats);
        let one = pages(&[(QUERY, r#"{"version":"1","topics":null,"health":null}"#)]);
        let two = pages(&[(
            QUERY,
            r#"{"version":"2","topics":[{"topic_name":"t","channels":[{"channel_name":"c","depth":5,"clients":null,
            "e2e_processing_latency":{"count":1,"percentiles":[{"quantile":0.5,"value":1.5}]},"new_field":{}}]}]}"#,
        )]);
        let stats = cluster().stats(&[one, two], "t", "c", false).unwrap();
        let versions: Vec<&str> = stats.data.iter().map(|(_, s)| s.version.as_str()).collect();
        assert_eq!(versions, ["1", "2"]);
        let channel = &stats.data[1].1.topics[0].channels[0];
        assert_eq!((channel.depth, channel.clients.as_ref()), (5, None));
        let percentiles = channel.e2e_processing_latency.percentiles.as_ref();
        assert_eq!(percentiles.map(|all| all[0].value), Some(1.5));
    }
}
