//! The nsqd that is to be replaced, as its `/info` and `/stats` show it: its clients, the features in use, its backlog.

use std::collections::{BTreeMap, BTreeSet};

use nsq_http::{ClientStats, NodeInfo, Stats};
use program::check::{Finding, bytes_text, program_of};
use program::http_client::HttpClient;
use serde_json::json;

/// The client libraries that are tried with each change, and their versions (`engine/nsqd/tests/interop`).
const TRIED: [(&str, &str); 5] = [
    ("go-nsq", "1.1.0"),
    ("gnsq", "1.0.2"),
    ("nsqjs", "0.13.0"),
    ("pynsq", "0.9.1"),
    ("ringq-client", program::version::RINGQ_VERSION),
];

/// The bytes that a file of the original has beside the body of a message.
const RECORD_BYTES: u64 = 30;

/// The most clients that are listed.
const CLIENTS_MAX: usize = 20;

/// An nsqd that runs.
#[derive(Debug)]
pub struct OldNode {
    url: String,
    info: NodeInfo,
    /// The error says why the node does not tell its figures.
    stats: Result<Stats, String>,
}

impl OldNode {
    /// Asks the nsqd at an address, which is a URL or `host:port`. Blocks.
    ///
    /// # Errors
    /// The finding that says why nothing is known about the node.
    pub fn ask(client: &HttpClient, address: &str) -> Result<OldNode, Finding> {
        let address = address.trim_end_matches('/');
        let url = if address.contains("://") {
            address.to_owned()
        } else {
            format!("http://{address}")
        };
        let get = |target: &str| client.get(&format!("{url}{target}"));
        let info = get("/info").map_err(|why| {
            Finding::warning(
                format!("the node at {url} cannot be asked: {why}"),
                "name the HTTP address of the nsqd that runs (by default port 4151); of https, --tls-root-ca-file has the \
                 authorities",
            )
        })?;
        let info = judge_info(&url, &info)?;
        let stats = get("/stats?format=json&include_mem=false");
        let stats = stats.and_then(|body| {
            let stats: serde_json::Result<Stats> = nsq_http::read(&body);
            stats.map_err(|error| error.to_string())
        });
        Ok(OldNode { url, info, stats })
    }

    /// Returns whether the node listens at a port.
    pub fn has_port(&self, port: u16) -> bool {
        [self.info.tcp_port, self.info.http_port].contains(&port.into())
    }

    /// Judges the node, each finding with the name of its check. `free_bytes` of the data path are free, if that is known.
    pub fn judge(&self, free_bytes: Option<u64>) -> Vec<(&'static str, Finding)> {
        let stats = match &self.stats {
            Ok(stats) => stats,
            Err(why) => {
                let found = format!("the nsqd at {} does not tell its figures: {why}", self.url);
                let advice = "try again; if the answer is too long, read its /stats yourself";
                return vec![("running-nsqd", Finding::warning(found, advice))];
            }
        };
        let clients = clients(stats);
        vec![
            ("running-nsqd", self.figures(stats, clients.len())),
            ("clients", judge_clients(&clients)),
            ("features", judge_features(&clients)),
            ("backlog", judge_backlog(stats, free_bytes)),
        ]
    }

    fn figures(&self, stats: &Stats, connections: usize) -> Finding {
        let (topics, channels) = (stats.topics.len(), channels(stats).count());
        let (url, version) = (&self.url, &self.info.version);
        let name = match &self.info.ringq_version {
            Some(ringq) => format!("the nsqd of ringq {ringq}"),
            None => format!("nsqd {version}"),
        };
        let mut found = format!(
            "{url} is {name}: {topics} topics, {channels} channels, {connections} connections"
        );
        if self.info.ringq_version.is_none() && !version.starts_with("1.3.") {
            found += "; ringq is tried with the clients and the files of nsqd 1.3.0";
        }
        let data = json!({
            "url": url, "version": version, "topics": topics, "channels": channels, "connections": connections,
        });
        Finding::ok(found).with(Vec::new(), data)
    }
}

/// Returns the connections. One that publishes and consumes is in two lists. All clients of a unix socket have the address
/// `@`, so the address alone does not tell them apart.
fn clients(stats: &Stats) -> Vec<&ClientStats> {
    let consumers = channels(stats).flat_map(|channel| channel.clients.iter().flatten());
    let mut known = BTreeSet::new();
    consumers
        .chain(&stats.producers)
        .filter(|it| {
            let name = (&it.remote_address, &it.client_id);
            known.insert((name, it.connect_ts, &it.user_agent))
        })
        .collect()
}

fn channels(stats: &Stats) -> impl Iterator<Item = &nsq_http::ChannelStats> {
    stats.topics.iter().flat_map(|topic| &topic.channels)
}

/// Reads the answer to `/info`. The error says which program has answered.
fn judge_info(url: &str, body: &[u8]) -> Result<NodeInfo, Finding> {
    let info: NodeInfo = nsq_http::read(body).unwrap_or_default();
    if program_of(body) != Some("nsqd") {
        return Err(Finding::warning(
            format!("{url} answers, but is no nsqd"),
            "name the HTTP address of the nsqd (by default port 4151), not of nsqlookupd or nsqadmin",
        ));
    }
    if info.version.starts_with("0.") {
        return Err(Finding::warning(
            format!(
                "{url} is nsqd {}, which is too old for a comparison",
                info.version
            ),
            "move to nsqd 1.3.0 first: ringq takes over what that version has written",
        ));
    }
    Ok(info)
}

/// How well a client library is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    Tried,
    /// The library is tried with this version.
    OtherVersion(&'static str),
    Not,
}

/// Judges the user agent of a client, such as `nsq_to_file/1.3.0 go-nsq/1.1.0`.
fn known(user_agent: &str) -> Known {
    let words = user_agent.split_whitespace();
    let judged = words.filter_map(|word| {
        let (name, version) = word.split_once('/')?;
        let (_, tried) = TRIED.iter().find(|(known, _)| *known == name)?;
        Some(if version == *tried {
            Known::Tried
        } else {
            Known::OtherVersion(tried)
        })
    });
    judged.min().unwrap_or(Known::Not)
}

fn judge_clients(clients: &[&ClientStats]) -> Finding {
    let mut counts: BTreeMap<(Known, &str), usize> = BTreeMap::new();
    for client in clients {
        let agent = client.user_agent.as_str();
        *counts.entry((known(agent), agent)).or_default() += 1;
    }
    let mut details = Vec::new();
    let mut data = Vec::new();
    let (mut tried_count, mut unknown_count) = (0, 0);
    // The clients that nobody has tried come first.
    for ((known, agent), count) in counts.iter().rev() {
        let tried = match known {
            Known::Tried => {
                tried_count += count;
                "tried".to_owned()
            }
            Known::OtherVersion(tried) => format!("tried in version {tried}"),
            Known::Not => {
                unknown_count += count;
                "not tried".to_owned()
            }
        };
        let shown = if agent.is_empty() { "(no name)" } else { agent };
        details.push(format!("{shown}: {tried}, connections: {count}"));
        data.push(json!({ "user_agent": agent, "tried": tried, "connections": count }));
    }
    if details.len() > CLIENTS_MAX {
        let others = details.len() - CLIENTS_MAX;
        details.truncate(CLIENTS_MAX);
        details.push(format!("and {others} more (--check=json has all)"));
    }
    let others = clients.len() - tried_count - unknown_count;
    let found = format!(
        "{tried_count} connections of tried client libraries, {others} of other versions of them, {unknown_count} of others"
    );
    let finding = match unknown_count {
        0 => Finding::ok(found),
        _ => Finding::warning(
            found,
            "try these clients with a ringq that runs beside this node (docs/start.md)",
        ),
    };
    finding.with(details, json!(data))
}

fn judge_features(clients: &[&ClientStats]) -> Finding {
    let count =
        |is_used: fn(&ClientStats) -> bool| clients.iter().filter(|client| is_used(client)).count();
    let used = [
        ("TLS", count(|client| client.tls)),
        ("deflate", count(|client| client.deflate)),
        ("snappy", count(|client| client.snappy)),
        ("auth", count(|client| client.authed)),
        ("sampling", count(|client| client.sample_rate > 0)),
        ("topology", count(|client| !client.topology_zone.is_empty())),
    ];
    let data: BTreeMap<_, _> = used.into_iter().collect();
    let shown = used.iter().filter(|(_, count)| *count > 0);
    let shown: Vec<_> = shown
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    let found = if shown.is_empty() {
        "no connection uses TLS, compression, auth or sampling".to_owned()
    } else {
        format!("connections with {}; ringq has these", shown.join(", "))
    };
    let old: BTreeSet<String> = clients
        .iter()
        .filter_map(|client| old_tls(client))
        .collect();
    let old: Vec<_> = old.into_iter().collect();
    let finding = if old.is_empty() {
        Finding::ok(found)
    } else {
        Finding::warning(
            format!("{found}, but not {}", old.join(", ")),
            "update these clients: ringq needs TLS 1.2 with ECDHE and GCM or ChaCha20, or TLS 1.3",
        )
    };
    finding.with(Vec::new(), json!(data))
}

/// Returns the TLS of a connection if ringq does not speak that.
fn old_tls(client: &ClientStats) -> Option<String> {
    let (version, suite) = (&client.tls_version, &client.tls_cipher_suite);
    let is_old = matches!(version.as_str(), "SSL30" | "TLS1.0" | "TLS1.1");
    let has_old_suite =
        suite.starts_with("TLS_RSA_") || ["_CBC_", "_RC4_"].iter().any(|part| suite.contains(part));
    (client.tls && (is_old || has_old_suite)).then(|| format!("{version} {suite}"))
}

/// Judges the messages that the node has, all of which are in its files when it has stopped.
fn judge_backlog(stats: &Stats, free_bytes: Option<u64>) -> Finding {
    let (mut count, mut on_disk, mut bytes) = (0_u64, 0_u64, 0_u64);
    for topic in &stats.topics {
        let channels = topic.channels.iter();
        let waiting = channels
            .clone()
            .flat_map(|it| [it.depth, it.in_flight_count, it.deferred_count]);
        let messages = sum(waiting.chain([topic.depth]));
        let mean = natural(topic.message_bytes).checked_div(natural(topic.message_count));
        count = count.saturating_add(messages);
        let backends = channels.map(|it| it.backend_depth);
        on_disk = on_disk.saturating_add(sum(backends.chain([topic.backend_depth])));
        let record = mean.unwrap_or(0).saturating_add(RECORD_BYTES);
        bytes = bytes.saturating_add(messages.saturating_mul(record));
    }
    let mut found = format!(
        "{count} messages, {on_disk} of them on disk: about {} of files when that nsqd has stopped",
        bytes_text(bytes)
    );
    let data =
        json!({ "messages": count, "on_disk": on_disk, "bytes": bytes, "free_bytes": free_bytes });
    let finding = match free_bytes {
        // The new files are complete before the old ones are set aside.
        Some(free) if free < bytes.saturating_mul(2) => Finding::warning(
            format!(
                "{found}; as much again is needed for the takeover, and {} are free",
                bytes_text(free)
            ),
            "make room on the file system of --data-path, or let consumers take the backlog first",
        ),
        free => {
            if let Some(free) = free {
                found += &format!("; {} are free", bytes_text(free));
            }
            Finding::ok(found)
        }
    };
    finding.with(Vec::new(), data)
}

/// Returns the sum of figures that another program tells.
fn sum(numbers: impl Iterator<Item = i64>) -> u64 {
    numbers.map(natural).fold(0, u64::saturating_add)
}

/// A figure as another program tells it.
fn natural(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests;
