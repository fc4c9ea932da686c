//! HTTP connections on one shard: accepting, TLS, deadlines, and the move to another shard. [`crate::http`] answers the
//! requests.

mod stream;

use crate::http;
use crate::net::address::Peer;
use crate::net::listener::Listener;
use crate::net::upgraded::HandshakeError;
use crate::reactor;
use crate::shard::Shard;
use crate::shard::http_broker::HttpBroker;
use crate::shard::mail::{Mail, MovingHttp};
use crate::tls::ListenerTls;
use futures_lite::AsyncWriteExt;
use program::http::{Awaited, Connection, HttpTimeouts, Served};
use program::{log_debug, log_info, log_warn};
use std::rc::Rc;
use std::time::Duration;
use stream::HttpStream;
use wire::go_error::system_text;

/// The answer to a peer that speaks plain HTTP where HTTPS is served.
const PLAIN_HTTP_REFUSED: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// After an answer that did not need the rest of a request, the server still reads what the client sends for this time,
/// like Go's server and so nsqd.
const LINGER: Duration = Duration::from_millis(500);

fn timeouts(shard: &Shard) -> HttpTimeouts {
    shard.shared.info.config.http_timeouts
}

/// Serves HTTP requests until the task is dropped.
pub(crate) async fn serve(shard: Rc<Shard>, listener: Listener) {
    loop {
        let (stream, peer) = listener.accept().await;
        let stream = HttpStream::plain(stream, timeouts(&shard));
        serve_connection(&shard, Connection::new(stream, b""), peer);
    }
}

/// Serves HTTPS requests until the task is dropped.
pub(crate) async fn serve_tls(shard: Rc<Shard>, listener: Listener, tls: ListenerTls) {
    loop {
        let (stream, peer) = listener.accept().await;
        let (shard, config) = (shard.clone(), tls.get());
        reactor::spawn(async move {
            let mut stream = HttpStream::plain(stream, timeouts(&shard));
            match stream.secure(&config).await {
                Ok(()) => serve_connection(&shard, Connection::new(stream, b""), peer),
                Err(error) => {
                    log_warn!("http: TLS handshake error from {peer}: {error}");
                    refuse(stream, &error).await;
                }
            }
        })
        .detach();
    }
}

/// Ends a connection whose handshake failed. A peer that speaks HTTP is told why.
async fn refuse(mut stream: HttpStream, error: &HandshakeError) {
    if matches!(error, HandshakeError::PlainHttp)
        && let Err(error) = stream.write_all(PLAIN_HTTP_REFUSED).await
    {
        log_warn!("http: an answer cannot be sent: {}", system_text(&error));
    }
}

/// Takes an HTTP connection in that comes from another shard.
pub(super) fn resume(shard: &Rc<Shard>, moving: MovingHttp) {
    let stream = HttpStream::adopt(moving.transport, timeouts(shard));
    let connection = Connection::new(stream, &moving.unread);
    serve_connection(shard, connection, moving.peer);
}

fn serve_connection(shard: &Rc<Shard>, mut connection: Connection<HttpStream>, peer: Peer) {
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
            let moving = MovingHttp {
                transport: stream.into_moving(),
                unread,
                peer,
            };
            let mail = Mail::HttpConnection(Box::new(moving));
            shard.shared.post.send(broker.better_shard(), mail);
        }
    })
    .detach();
}
