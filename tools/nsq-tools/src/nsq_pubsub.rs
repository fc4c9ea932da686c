//! `nsq_pubsub`: the messages of a channel as an endless HTTP answer, one message on each line, and
//! publishing over HTTP.
//!
//! ```text
//!   HTTP client ─► server ─┬─ /sub ──► stream ◄─ Consumer ◄─ nsqd
//!                          └─ other ─► pages (axum)
//! ```
//!
//! A message is finished when the client's socket has taken its line. All other messages go back to
//! nsqd when the client leaves.
//!
//! The listener looks at the head of each connection's first request: streams have the socket for
//! themselves, because a message is finished when the socket has taken its line. axum serves all other
//! requests, one for each connection: `/pub`, `/mpub`, `/stats`, `/ping`, and 404 with an empty body
//! for the rest.

mod config;
mod request;
mod stream;
mod streams;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Cursor};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, RawQuery, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{from_fn, map_response};
use axum::response::Response;
use axum::routing::{any, post};
use axum::serve::Listener;
use bytes::{Bytes, BytesMut};
use program::http::Query;
use program::tcp_socket::Backoff;
use program::{log_info, log_warn};
use ringq_client::{Outcome, Producer, PublishError};
use tokio::io::{AsyncReadExt, Chain, Join, join};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::consuming::{Consuming, log_event};
use crate::flags::{self, NSQD_TCP_ADDRESS, Sources};
use crate::process::{self, StopSignals, listen, refuse_other_sites, within_stop_time};
use config::Config;
pub use config::NSQ_PUBSUB;
use request::{HEAD_BYTES_MAX, Head, Refused};
use streams::{Shared, Streams};

/// Runs the tool with these arguments, without the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    program::stop::abort_on_panic();
    process::run_tool(&NSQ_PUBSUB, args, Config::new, async |config, signals| {
        let end = serve_until_stop(config, signals).await;
        end.map_err(|why| format!("FATAL: {why}"))
    })
}

/// The time that a client may take for the head of its request.
const HEAD_TIME_MAX: Duration = Duration::from_secs(60);

/// The longest time that clients of pages may take for their last answers.
const PAGES_STOP: Duration = Duration::from_secs(2);

/// Connections that wait for axum.
const WAITING_MAX: usize = 64;

/// Serves until a signal comes. The error is the text for the user.
async fn serve_until_stop(config: Config, mut signals: StopSignals) -> Result<(), String> {
    let consuming = tokio::select! {
        consuming = Consuming::start(&config.consumer) => consuming?,
        () = signals.wait() => return Ok(()),
    };
    let producer = producer(&config)?;
    let (listener, address) = listen(&config.flags.http_address, NSQ_PUBSUB.name)?;
    log_info!("listening on {address}");
    let (stop, stopped) = watch::channel(false);
    let shared = Arc::new(Shared {
        config,
        producer,
        consuming,
        streams: Arc::new(Streams::default()),
        stop: stopped.clone(),
    });
    let (to_pages, connections) = mpsc::channel(WAITING_MAX);
    let waiting = Waiting {
        connections,
        address,
    };
    let mut pages_stop = stopped;
    let pages = axum::serve(waiting, router(Arc::clone(&shared)));
    let pages = pages.with_graceful_shutdown(async move {
        // A lost sender means the same.
        let _ = pages_stop.wait_for(|stops| *stops).await;
    });
    let pages = tokio::spawn(pages.into_future());
    let mut connections = JoinSet::new();
    let mut backoff = Backoff::default();
    loop {
        let accepted = tokio::select! {
            biased;
            () = signals.wait() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, peer)) => {
                backoff.reset();
                // An IPv4 peer of a listener for both families is shown as IPv4.
                let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                connections.spawn(serve(socket, peer, Arc::clone(&shared), to_pages.clone()));
            }
            Err(error) => sleep(backoff.after_failure(&error)).await,
        }
    }
    drop(listener);
    log_info!("stopping");
    // Fails only if nobody is left to be told.
    let _ = stop.send(true);
    within_stop_time(async { while connections.join_next().await.is_some() {} }).await;
    if timeout(PAGES_STOP, pages).await.is_err() {
        log_warn!("HTTP clients were still connected");
    }
    within_stop_time(process::close(&shared.producer)).await;
    Ok(())
}

/// Returns a producer for the nsqds, which it connects to when something is published.
fn producer(config: &Config) -> Result<Producer, String> {
    let builder = Producer::builder()
        .config(config.producer.clone())
        .events(|event| log_event(&event));
    let builder = match &config.consumer.sources {
        Sources::Nsqds(addresses) => {
            builder.nodes(flags::parse_nsqds(NSQD_TCP_ADDRESS.name(), addresses)?)
        }
        Sources::Lookupds(addresses) => {
            flags::check_lookupds(addresses)?;
            let lookupds = addresses.iter();
            lookupds.fold(builder, |builder, lookupd| builder.lookupd(lookupd))
        }
    };
    builder.build().map_err(|error| error.to_string())
}

/// Serves one connection, or gives it to axum.
async fn serve(
    mut socket: TcpStream,
    peer: SocketAddr,
    shared: Arc<Shared>,
    to_pages: mpsc::Sender<(Connection, SocketAddr)>,
) {
    let mut stop = shared.stop.clone();
    let mut bytes = BytesMut::with_capacity(1024);
    let head = tokio::select! {
        biased;
        _ = stop.wait_for(|stops| *stops) => return,
        head = timeout(HEAD_TIME_MAX, read_head(&mut socket, &mut bytes)) => head,
    };
    match head {
        Ok(Ok(Head::Subscription {
            is_of_other_site: true,
            ..
        })) => {
            stream::refuse_other_site(socket, peer).await;
        }
        Ok(Ok(Head::Subscription { query, length, .. })) if bytes.len() == length => {
            stream::serve(socket, peer, &query, &shared).await;
        }
        Ok(Ok(Head::Other)) => {
            let (reader, writer) = socket.into_split();
            let connection = join(Cursor::new(bytes.freeze()).chain(reader), writer);
            // axum has ended only if nsq_pubsub stops.
            let _ = to_pages.send((connection, peer)).await;
        }
        // A client that sends anything after its request ends the stream before it begins. A client
        // that has gone, or takes too long, gets no answer.
        Ok(Ok(Head::Subscription { .. } | Head::Partial) | Err(_)) | Err(_) => {}
    }
}

/// Reads the head of the first request.
async fn read_head(socket: &mut TcpStream, bytes: &mut BytesMut) -> io::Result<Head> {
    loop {
        if socket.read_buf(bytes).await? == 0 {
            return Ok(Head::Partial);
        }
        match Head::of(bytes) {
            Head::Partial if bytes.len() < HEAD_BYTES_MAX => {}
            head => return Ok(head),
        }
    }
}

/// The connections that are not streams, for axum.
struct Waiting {
    connections: mpsc::Receiver<(Connection, SocketAddr)>,
    address: SocketAddr,
}

impl Listener for Waiting {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        match self.connections.recv().await {
            Some(connection) => connection,
            // nsq_pubsub stops, and axum is told so by other means.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// A connection whose first bytes have been read already: these bytes, and then the socket.
type Connection = Join<Chain<Cursor<Bytes>, OwnedReadHalf>, OwnedWriteHalf>;

/// The answer if nothing was published.
type NotPublished = (StatusCode, String);

/// Returns the service.
fn router(shared: Arc<Shared>) -> Router {
    let body_bytes_max = shared.config.flags.body_bytes_max;
    Router::new()
        .route("/pub", post(publish))
        .route("/mpub", post(publish_lines))
        .route_layer(from_fn(refuse_other_sites))
        .route("/stats", any(stats))
        .route("/ping", any(async || "OK"))
        .fallback(async || StatusCode::NOT_FOUND)
        .layer(DefaultBodyLimit::max(body_bytes_max))
        .layer(map_response(close))
        .with_state(shared)
}

/// Publishes the body.
async fn publish(
    State(shared): State<Arc<Shared>>,
    RawQuery(query): RawQuery,
    body: Result<Bytes, BytesRejection>,
) -> Result<&'static str, NotPublished> {
    publish_all(&shared, query, body, |body| vec![body]).await
}

/// Publishes each line of the body, but for empty ones.
async fn publish_lines(
    State(shared): State<Arc<Shared>>,
    RawQuery(query): RawQuery,
    body: Result<Bytes, BytesRejection>,
) -> Result<&'static str, NotPublished> {
    let split = |body: Bytes| {
        let lines = body.split(|byte| *byte == b'\n');
        lines.map(|line| body.slice_ref(line)).collect()
    };
    publish_all(&shared, query, body, split).await
}

/// Publishes the messages of a body, but for empty ones.
async fn publish_all(
    shared: &Shared,
    query: Option<String>,
    body: Result<Bytes, BytesRejection>,
    split: impl FnOnce(Bytes) -> Vec<Bytes>,
) -> Result<&'static str, NotPublished> {
    let query = Query::parse(query.as_deref().unwrap_or_default());
    let query = query.map_err(|_| bad_request(Refused::InvalidUri))?;
    let topic = query.get_filter("topic");
    let topic = topic.ok_or_else(|| bad_request(Refused::MissingTopic))?;
    let mut bodies = split(body.map_err(not_read)?);
    bodies.retain(|body| !body.is_empty());
    let published = match &bodies[..] {
        [] => return Err(bad_request("MSG_EMPTY")),
        [body] => shared
            .producer
            .publish(&topic, body.clone())
            .await
            .map(drop),
        _ => shared.producer.publish_many(&topic, bodies).await.map(drop),
    };
    published.map(|()| "OK").map_err(not_published)
}

async fn stats(State(shared): State<Arc<Shared>>) -> String {
    shared.streams.report(Instant::now())
}

/// Ends the connection after the answer: only the first request of a connection can be a stream.
async fn close(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

fn bad_request(why: impl Display) -> NotPublished {
    (StatusCode::BAD_REQUEST, format!("{why}\n"))
}

fn not_read(rejection: BytesRejection) -> NotPublished {
    let text = match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => "MSG_TOO_BIG\n".to_owned(),
        _ => rejection.body_text() + "\n",
    };
    (rejection.status(), text)
}

fn not_published(error: PublishError) -> NotPublished {
    match error {
        PublishError::Topic(_) => return bad_request(Refused::InvalidTopic),
        PublishError::TooLarge { .. } => {
            return (StatusCode::PAYLOAD_TOO_LARGE, "MSG_TOO_BIG\n".to_owned());
        }
        _ => log_warn!("failed to publish - {error}"),
    }
    let (status, code) = match error.outcome() {
        Outcome::NotStored => (StatusCode::SERVICE_UNAVAILABLE, "NOT_PUBLISHED"),
        Outcome::Unknown | Outcome::Stored => (StatusCode::GATEWAY_TIMEOUT, "PERHAPS_PUBLISHED"),
    };
    (status, format!("{code}: {error}\n"))
}
