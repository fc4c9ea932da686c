//! Accepting connections on one shard, and what to do when there are no descriptors left.

use crate::http;
use crate::net::address::Peer;
use crate::net::connection;
use crate::net::http_stream::HttpStream;
use crate::net::layered::{HandshakeError, Layered};
use crate::net::socket::{Listener, Stream};
use crate::reactor;
use crate::shard::Shard;
use crate::shard::http_broker::HttpBroker;
use crate::shard::mail::Mail;
use futures_lite::{AsyncWriteExt, future};
use program::http::{Awaited, Connection, Served};
use program::{log_debug, log_info, log_warn};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use upgrade::ServerConfig;
use wire::go_error::system_text;

/// The wait after a failed accept, doubled each time up to the maximum: without descriptors there
/// is nothing to gain by asking at once. Existing connections go on meanwhile.
const BACK_OFF: Duration = Duration::from_millis(5);
const BACK_OFF_MAX: Duration = Duration::from_millis(500);

/// How long what an HTTP client still sends is taken, after an answer that did not need it: as long
/// as Go's server, and so nsqd, does.
const LINGER: Duration = Duration::from_millis(500);

/// An HTTP connection on its way to another shard, between two requests.
pub(crate) struct MovingHttp {
    descriptor: OwnedFd,
    layered: Option<Box<Layered>>,
    unread: Vec<u8>,
    peer: Peer,
}

/// Serves NSQ clients until the task is dropped.
pub(crate) async fn serve_clients(shard: Rc<Shard>, listener: Listener) {
    loop {
        let (stream, peer) = accept(&listener).await;
        log_info!("TCP: new client({peer})");
        connection::start(&shard, stream, &peer);
    }
}

/// Serves HTTP requests until the task is dropped.
pub(crate) async fn serve_http(shard: Rc<Shard>, listener: Listener) {
    loop {
        let (stream, peer) = accept(&listener).await;
        let stream = HttpStream::plain(stream, shard.info.timeouts);
        serve_http_connection(&shard, Connection::new(stream, b""), peer);
    }
}

/// Serves HTTPS requests until the task is dropped.
pub(crate) async fn serve_https(shard: Rc<Shard>, listener: Listener, config: Arc<ServerConfig>) {
    loop {
        let (stream, peer) = accept(&listener).await;
        let (shard, config) = (shard.clone(), config.clone());
        reactor::spawn(async move {
            let mut stream = HttpStream::plain(stream, shard.info.timeouts);
            match stream.secure(&config).await {
                Ok(()) => serve_http_connection(&shard, Connection::new(stream, b""), peer),
                Err(error) => {
                    log_warn!("http: TLS handshake error from {peer}: {error}");
                    refuse(stream, &error).await;
                }
            }
        })
        .detach();
    }
}

/// Ends a connection that has no TLS; one that speaks HTTP is told why.
async fn refuse(mut stream: HttpStream, error: &HandshakeError) {
    if matches!(error, HandshakeError::PlainHttp)
        && let Err(error) = stream.write_all(http::PLAIN_HTTP_REFUSED).await
    {
        log_warn!("http: an answer cannot be sent: {}", system_text(&error));
    }
}

/// Takes an HTTP connection in that comes from another shard.
pub(crate) fn resume_http(shard: &Rc<Shard>, moving: MovingHttp) {
    let stream = HttpStream::adopt(moving.descriptor, moving.layered, shard.info.timeouts);
    let connection = Connection::new(stream, &moving.unread);
    serve_http_connection(shard, connection, moving.peer);
}

fn serve_http_connection(shard: &Rc<Shard>, mut connection: Connection<HttpStream>, peer: Peer) {
    let shard = shard.clone();
    reactor::spawn(async move {
        let broker = HttpBroker::new(shard.clone(), connection.stream().is_secure());
        let linger = async { reactor::sleep(LINGER).await };
        let served = http::serve_connection(&mut connection, &peer, &broker, linger).await;
        match connection.stream().missed() {
            Some(Awaited::Request) => log_debug!("http: closed idle {peer}"),
            Some(awaited) => log_info!("http: closed {peer} - i/o timeout {awaited}"),
            None => {}
        }
        if served == Served::UntilMoved {
            let (stream, unread) = connection.into_parts();
            let (descriptor, layered) = stream.into_parts();
            let moving = MovingHttp {
                descriptor,
                layered,
                unread,
                peer,
            };
            let mail = Mail::HttpConnection(Box::new(moving));
            shard.post.send(broker.better_shard(), mail);
        }
    })
    .detach();
}

/// Accepts one connection, after the ready tasks have had their turn: a flood of connections must not hold them up.
async fn accept(listener: &Listener) -> (Stream, Peer) {
    let mut back_off = BACK_OFF;
    loop {
        future::yield_now().await;
        let failure = match listener.accept().await {
            Ok(Some((stream, peer))) => return (stream, peer),
            Ok(None) => continue,
            Err(error) => system_text(&error),
        };
        log_warn!("temporary Accept() failure - {failure}");
        reactor::sleep(back_off).await;
        back_off = (back_off * 2).min(BACK_OFF_MAX);
    }
}
