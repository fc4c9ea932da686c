//! The listener. It looks at the head of each connection's first request: streams have the socket for
//! themselves, because a message is finished when the socket has taken its line. axum serves all other
//! requests, one for each connection.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use bytes::{Buf, Bytes, BytesMut};
use program::tcp_socket::Backoff;
use program::{log_info, log_warn};
use ringq_client::Producer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::config::{Config, NSQ_PUBSUB};
use super::pages;
use super::request::{HEAD_BYTES_MAX, Head};
use super::shared::Shared;
use super::stream;
use super::streams::Streams;
use crate::consuming::log_event;
use crate::flags::{self, Sources};
use crate::listening::listen;
use crate::stopping::{StopSignals, close, within_stop_time};

/// The time that a client may take for the head of its request.
const HEAD_TIME_MAX: Duration = Duration::from_secs(60);

/// The longest time that clients of pages may take for their last answers.
const PAGES_STOP: Duration = Duration::from_secs(2);

/// Connections that wait for axum.
const WAITING_MAX: usize = 64;

/// Serves until a signal comes. The error is the text for the user.
pub(super) async fn run(config: &Config, mut signals: StopSignals) -> Result<(), String> {
    let dedup = match &config.dedup {
        Some(flags) => tokio::select! {
            dedup = flags.start() => Some(dedup?),
            () = signals.wait() => return Ok(()),
        },
        None => None,
    };
    let producer = producer(config)?;
    let (listener, address) = listen(&config.flags.http_address, NSQ_PUBSUB.name)?;
    log_info!("listening on {address}");
    let (stop, stopped) = watch::channel(false);
    let shared = Arc::new(Shared {
        config: config.clone(),
        producer,
        dedup,
        streams: Arc::new(Streams::default()),
        stop: stopped.clone(),
    });
    let (to_pages, connections) = mpsc::channel(WAITING_MAX);
    let waiting = Waiting {
        connections,
        address,
    };
    let mut pages_stop = stopped;
    let pages = axum::serve(waiting, pages::router(Arc::clone(&shared)));
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
    within_stop_time(close(&shared.producer)).await;
    Ok(())
}

/// Returns a producer for the nsqds, which it connects to when something is published.
fn producer(config: &Config) -> Result<Producer, String> {
    let builder = Producer::builder()
        .config(config.producer.clone())
        .events(|event| log_event(&event));
    let builder = match &config.sources {
        Sources::Nsqds(addresses) => builder.nodes(flags::parse_nsqds(addresses)?),
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
            let connection = Connection {
                first: bytes.freeze(),
                socket,
            };
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

/// A connection whose first bytes have been read already.
struct Connection {
    first: Bytes,
    socket: TcpStream,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.socket).poll_read(context, buffer);
        }
        let count = self.first.len().min(buffer.remaining());
        buffer.put_slice(&self.first[..count]);
        self.first.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
