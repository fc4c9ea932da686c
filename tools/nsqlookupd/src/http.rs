//! The HTTP interface: each endpoint is a function from a query to an answer, over the
//! [`Database`].
//!
//! [`Api`] connects the functions with the server in `program::http`. It holds a lock on the
//! database only while it writes one answer, or one part of `/nodes` and `/debug`. These two grow with the number of
//! registrations, so they are made in parts while they are sent.

use std::sync::Arc;
use std::task::Poll;
use std::time::SystemTime;

use ::http::StatusCode;
use parking_lot::RwLock;
use program::http::{
    Failure, HostNames, Io, Query, Reply, RequestBody, Route, Service, parse_query, profiler,
};
use program::version::{NSQ_VERSION, RINGQ_VERSION};
use wire::go_json::to_string;
use wire::json_object;
use wire::name::is_valid_name;

use crate::database::{Database, Now};
use crate::event::Event;
use crate::peer::Peer;

mod metrics;

const TOPIC_NOT_FOUND: Failure = Failure::new(StatusCode::NOT_FOUND, "TOPIC_NOT_FOUND");
const CHANNEL_NOT_FOUND: Failure = Failure::new(StatusCode::NOT_FOUND, "CHANNEL_NOT_FOUND");

/// The endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/ping`
    Ping,
    /// `/info`
    Info,
    /// `/topics`
    Topics,
    /// `/nodes`
    Nodes,
    /// `/debug`
    Debug,
    /// `/metrics`
    Metrics,
    /// An endpoint that only reads.
    Read(Read),
    /// An endpoint that changes the database.
    Change(Change),
    /// `/debug/pprof`
    PprofIndex,
    /// `/debug/pprof/cmdline`
    PprofCommandLine,
    /// `/debug/pprof/symbol`
    PprofSymbol,
    /// The profiles.
    Pprof,
}

/// The endpoints with parameters that only read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// `/lookup`
    Lookup,
    /// `/channels`
    Channels,
}

/// The endpoints that change the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// `/topic/create`
    CreateTopic,
    /// `/topic/delete`
    DeleteTopic,
    /// `/topic/tombstone`
    Tombstone,
    /// `/channel/create`
    CreateChannel,
    /// `/channel/delete`
    DeleteChannel,
}

#[rustfmt::skip]
const ROUTES: &[Route<Endpoint>] = &[
    ("GET", "/ping", Endpoint::Ping),
    ("GET", "/info", Endpoint::Info),
    ("GET", "/debug", Endpoint::Debug),
    ("GET", "/metrics", Endpoint::Metrics),
    ("GET", "/lookup", Endpoint::Read(Read::Lookup)),
    ("GET", "/topics", Endpoint::Topics),
    ("GET", "/channels", Endpoint::Read(Read::Channels)),
    ("GET", "/nodes", Endpoint::Nodes),
    ("POST", "/topic/create", Endpoint::Change(Change::CreateTopic)),
    ("POST", "/topic/delete", Endpoint::Change(Change::DeleteTopic)),
    ("POST", "/channel/create", Endpoint::Change(Change::CreateChannel)),
    ("POST", "/channel/delete", Endpoint::Change(Change::DeleteChannel)),
    ("POST", "/topic/tombstone", Endpoint::Change(Change::Tombstone)),
    ("GET", "/debug/pprof", Endpoint::PprofIndex),
    ("GET", "/debug/pprof/cmdline", Endpoint::PprofCommandLine),
    ("GET", "/debug/pprof/symbol", Endpoint::PprofSymbol),
    ("POST", "/debug/pprof/symbol", Endpoint::PprofSymbol),
    ("GET", "/debug/pprof/profile", Endpoint::Pprof),
    ("GET", "/debug/pprof/heap", Endpoint::Pprof),
    ("GET", "/debug/pprof/goroutine", Endpoint::Pprof),
    ("GET", "/debug/pprof/block", Endpoint::Pprof),
    ("GET", "/debug/pprof/threadcreate", Endpoint::Pprof),
];

/// Returns the answer to an endpoint that only reads.
///
/// # Errors
/// The status and the word for the client.
pub fn read(
    endpoint: Read,
    query: &Query<'_>,
    database: &Database,
    now: Now,
) -> Result<Reply, Failure> {
    let topic = argument(query, "topic", "MISSING_ARG_TOPIC")?;
    let channels: Vec<&str> = database.channels(topic).collect();
    let producers = match endpoint {
        Read::Lookup => Some(database.producers(topic, now).ok_or(TOPIC_NOT_FOUND)?),
        Read::Channels => None,
    };
    let producers = producers.map(|it| it.map(Peer::json).collect::<Vec<_>>());
    let json = to_string(&json_object! {
        channels,
        #[serde(flatten)]
        producers: producers.map(|producers| json_object! { producers }),
    });
    Ok(Reply::json(StatusCode::OK, json))
}

/// Returns the answer to `/topics`.
pub fn topics(database: &Database) -> Reply {
    let topics: Vec<&str> = database.topics().collect();
    Reply::json(StatusCode::OK, to_string(&json_object! { topics }))
}

/// Returns the answer to `/info`.
pub fn info() -> Reply {
    let info = json_object! { version: NSQ_VERSION, ringq_version: RINGQ_VERSION };
    Reply::json(StatusCode::OK, to_string(&info))
}

/// Changes the database.
///
/// # Errors
/// The status and the word for the client.
pub fn change(
    endpoint: Change,
    query: &Query<'_>,
    database: &mut Database,
    now: Now,
    events: &mut Vec<Event>,
) -> Result<Reply, Failure> {
    let topic = argument(query, "topic", "MISSING_ARG_TOPIC")?;
    match endpoint {
        Change::CreateTopic => {
            check(topic, "INVALID_ARG_TOPIC")?;
            events.push(Event::AddingTopic(topic.to_string()));
            database.create_topic(topic);
        }
        Change::DeleteTopic => database.delete_topic(topic, events),
        Change::Tombstone => {
            let node = argument(query, "node", "MISSING_ARG_NODE")?;
            events.push(Event::SettingTombstone {
                topic: topic.to_string(),
                node: node.to_string(),
            });
            database.tombstone(topic, node, now);
        }
        Change::CreateChannel => {
            let channel = channel(topic, query)?;
            events.push(Event::AddingChannel {
                topic: topic.to_string(),
                channel: channel.to_string(),
            });
            events.push(Event::AddingTopic(topic.to_string()));
            database.create_channel(topic, channel);
        }
        Change::DeleteChannel => {
            let channel = channel(topic, query)?;
            if !database.delete_channel(topic, channel, events) {
                return Err(CHANNEL_NOT_FOUND);
            }
        }
    }
    Ok(Reply::text(""))
}

fn argument<'a>(
    query: &'a Query<'_>,
    name: &str,
    missing: &'static str,
) -> Result<&'a str, Failure> {
    query.get(name).ok_or(Failure::bad(missing))
}

fn check(name: &str, invalid: &'static str) -> Result<(), Failure> {
    if is_valid_name(name.as_bytes()) {
        Ok(())
    } else {
        Err(Failure::bad(invalid))
    }
}

/// Returns the channel of a `/channel/*` endpoint, which checks the topic first.
fn channel<'a>(topic: &str, query: &'a Query<'_>) -> Result<&'a str, Failure> {
    check(topic, "INVALID_ARG_TOPIC")?;
    let channel = argument(query, "channel", "MISSING_ARG_CHANNEL")?;
    check(channel, "INVALID_ARG_CHANNEL")?;
    Ok(channel)
}

/// Bytes of a part of `/nodes` and `/debug`: about 0.1 ms of work under the lock. A node, or a group of producers, is
/// never divided, so a part can be longer.
const PART_BYTES: usize = 64 * 1024;

/// Returns a JSON document. `next` makes its parts, each when the one before has left, and returns true with the last one.
fn json_in_parts(mut next: impl FnMut() -> (String, bool) + Send + 'static) -> Reply {
    let (first, mut is_last) = next();
    let reply = Reply::json(StatusCode::OK, first);
    if is_last {
        return reply;
    }
    reply.and_more(move |_| {
        let part = (!is_last).then(&mut next);
        Poll::Ready(part.map(|(part, is_end)| {
            is_last = is_end;
            part
        }))
    })
}

/// Returns the answer to `/nodes`. Nodes that leave in the meantime may be missing.
fn nodes(database: Arc<RwLock<Database>>, now: fn() -> Now) -> Reply {
    let clients = database.read().clients();
    let mut clients = clients.into_iter();
    let mut opening = Some("{\"producers\":[");
    let mut needs_comma = false;
    json_in_parts(move || {
        let mut json = opening.take().unwrap_or_default().to_string();
        let database = database.read();
        while json.len() < PART_BYTES {
            let Some(client) = clients.next() else {
                json.push_str("]}");
                return (json, true);
            };
            let length = json.len();
            if needs_comma {
                json.push(',');
            }
            if database.append_node(client, now(), &mut json) {
                needs_comma = true;
            } else {
                json.truncate(length);
            }
        }
        (json, false)
    })
}

/// Returns the answer to `/debug`. Changes in the meantime may be a part of it.
fn debug(database: Arc<RwLock<Database>>) -> Reply {
    let mut progress = database.read().debug_start();
    json_in_parts(move || {
        let mut json = String::new();
        let is_last = database
            .read()
            .debug_piece(&mut progress, PART_BYTES, &mut json);
        (json, is_last)
    })
}

/// The endpoints over a shared database.
#[derive(Debug)]
pub struct Api {
    /// The database.
    pub database: Arc<RwLock<Database>>,
    /// The time at which the process started.
    pub started: SystemTime,
    /// The clock.
    pub now: fn() -> Now,
    /// The names under which clients reach nsqlookupd. `None`: any name.
    pub host_names: Option<Arc<HostNames>>,
}

impl Api {
    fn read<T>(&self, read: impl FnOnce(&Database) -> T) -> T {
        read(&self.database.read())
    }

    fn change(&self, endpoint: Change, query: &Query<'_>) -> Result<Reply, Failure> {
        let mut events = Vec::new();
        let mut database = self.database.write();
        let reply = change(endpoint, query, &mut database, (self.now)(), &mut events);
        drop(database);
        crate::event::log(&events);
        reply
    }
}

impl Service for Api {
    type Endpoint = Endpoint;

    const ROUTES: &'static [Route<Endpoint>] = ROUTES;

    async fn answer(
        &self,
        endpoint: Endpoint,
        _segments: &[String],
        query: &str,
        body: &mut RequestBody<'_, impl Io>,
    ) -> Result<Reply, Failure> {
        match endpoint {
            Endpoint::Ping => Ok(Reply::plain(StatusCode::OK, "OK")),
            Endpoint::Info => Ok(info()),
            Endpoint::Topics => Ok(self.read(topics)),
            Endpoint::Nodes => Ok(nodes(self.database.clone(), self.now)),
            Endpoint::Debug => Ok(debug(self.database.clone())),
            Endpoint::Metrics => Ok(metrics::metrics(&self.database, self.now, self.started).await),
            Endpoint::Read(endpoint) => {
                let query = parse_query(query)?;
                read_body(body).await?;
                self.read(|database| read(endpoint, &query, database, (self.now)()))
            }
            Endpoint::Change(endpoint) => {
                let query = parse_query(query)?;
                read_body(body).await?;
                self.change(endpoint, &query)
            }
            Endpoint::PprofIndex => Ok(profiler::index("/debug/pprof/")),
            Endpoint::PprofCommandLine => Ok(profiler::command_line()),
            Endpoint::PprofSymbol => Ok(profiler::symbols()),
            Endpoint::Pprof => Ok(profiler::profile("/proc")),
        }
    }

    fn is_logged(endpoint: Endpoint) -> bool {
        !matches!(
            endpoint,
            Endpoint::PprofIndex
                | Endpoint::PprofCommandLine
                | Endpoint::PprofSymbol
                | Endpoint::Pprof
        )
    }

    fn host_names(&self) -> Option<&HostNames> {
        self.host_names.as_deref()
    }
}

/// Reads the body of a request whose endpoint has parameters. No endpoint uses the body.
async fn read_body(body: &mut RequestBody<'_, impl Io>) -> Result<(), Failure> {
    if body.read_and_forget().await {
        Ok(())
    } else {
        Err(Failure::bad("INVALID_REQUEST"))
    }
}

#[cfg(test)]
mod tests;
