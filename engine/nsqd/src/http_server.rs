//! HTTP connections on one shard: accepting, TLS, deadlines, and the move to another shard. [`HttpBroker`] answers the
//! requests.

use crate::http::HttpBroker;
use crate::net::address::Peer;
use crate::net::listener::Listener;
use crate::net::socket::Taken;
use crate::net::transport::{MovingTransport, Transport};
use crate::net::upgraded::HandshakeError;
use crate::reactor::{self, Alarm};
use crate::shard::Shard;
use crate::shard::mail::Mail;
use crate::tls::ListenerTls;
use futures_lite::{AsyncRead, AsyncWrite, AsyncWriteExt, future};
use program::http::{Awaited, Connection, Deadline, HttpTimeouts, Io, Served};
use program::{log_debug, log_info, log_warn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use upgrade::{ServerConfig, Upgrade};
use wire::go_error::system_text;

/// The answer to a peer that speaks plain HTTP where HTTPS is served.
const PLAIN_HTTP_REFUSED: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// After an answer that did not need the rest of a request, the server still reads what the client sends for this time,
/// like Go's server and so nsqd.
const LINGER: Duration = Duration::from_millis(500);

/// The first bytes by which Go's server tells an HTTP request from TLS.
const REQUEST_STARTS: [&[u8]; 5] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"];

fn timeouts(shard: &Shard) -> HttpTimeouts {
    shard.shared.info.config.http_timeouts
}

/// Serves HTTP requests until the task is dropped.
pub(crate) async fn serve(shard: Rc<Shard>, listener: Listener) {
    loop {
        let (stream, peer) = listener.accept().await;
        let stream = HttpStream::new(Transport::new(stream), timeouts(&shard));
        serve_connection(&shard, Connection::new(stream, b""), peer);
    }
}

/// Serves HTTPS requests until the task is dropped.
pub(crate) async fn serve_tls(shard: Rc<Shard>, listener: Listener, tls: ListenerTls) {
    loop {
        let (stream, peer) = listener.accept().await;
        let (shard, config) = (shard.clone(), tls.get());
        reactor::spawn(async move {
            let mut stream = HttpStream::new(Transport::new(stream), timeouts(&shard));
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
fn resume(shard: &Rc<Shard>, transport: MovingTransport, unread: &[u8], peer: Peer) {
    if !shard.is_stopping() {
        let stream = HttpStream::new(Transport::adopt(transport), timeouts(shard));
        serve_connection(shard, Connection::new(stream, unread), peer);
    }
}

fn serve_connection(shard: &Rc<Shard>, mut connection: Connection<HttpStream>, peer: Peer) {
    let shard = shard.clone();
    reactor::spawn(async move {
        let broker = HttpBroker::new(shard.clone(), connection.stream().transport.was_upgraded());
        let linger = async { reactor::sleep(LINGER).await };
        let served = program::http::serve_connection(&mut connection, &peer, &broker, linger).await;
        match connection.stream().deadline.missed() {
            Some(Awaited::Request) => log_debug!("http: closed idle {peer}"),
            Some(awaited) => log_info!("http: closed {peer} - i/o timeout {awaited}"),
            None => {}
        }
        if served == Served::UntilMoved {
            let (stream, unread) = connection.into_parts();
            let transport = stream.transport.into_moving();
            let resume = move |shard: &Rc<Shard>| resume(shard, transport, &unread, peer);
            let mail = Mail::Call(Box::new(resume));
            shard.shared.post.send(broker.better_shard(), mail);
        }
    })
    .detach();
}

/// A stream of an HTTP connection.
struct HttpStream {
    transport: Transport,
    deadline: Deadline<Alarm>,
    /// A write has failed. TLS may have encoded bytes of it, so the connection takes no other bytes.
    has_failed: bool,
}

impl HttpStream {
    /// Returns the stream of a connection that is new here.
    fn new(transport: Transport, timeouts: HttpTimeouts) -> HttpStream {
        HttpStream {
            transport,
            deadline: Deadline::new(timeouts, Alarm::new()),
            has_failed: false,
        }
    }

    /// Makes the stream HTTPS, and returns when the handshake is over. If the handshake fails, `self` can still tell
    /// the peer something in the clear.
    async fn secure(&mut self, config: &Arc<ServerConfig>) -> Result<(), HandshakeError> {
        let upgrade = Upgrade::tls_server(config).map_err(HandshakeError::Refused)?;
        self.transport.upgrade(upgrade, &[])?;
        self.deadline.begin(Awaited::Handshake);
        let mut is_first = true;
        while self.transport.is_handshaking() {
            let look = |wire: &[u8]| {
                let is_request = REQUEST_STARTS.iter().any(|start| wire.starts_with(start));
                if std::mem::replace(&mut is_first, false) && is_request {
                    Err(HandshakeError::PlainHttp)
                } else {
                    Ok(())
                }
            };
            let mut look = Some(look);
            let step = future::poll_fn(|cx| match look.take() {
                Some(look) => match self.transport.poll_handshake(cx, look) {
                    Poll::Pending => self.deadline.poll_input(cx).map_err(HandshakeError::from),
                    step => step,
                },
                None => Poll::Ready(Ok(())),
            })
            .await;
            // TLS has an answer also to what it refuses, and that is the error to report.
            let flushed = future::poll_fn(|cx| self.poll_flush_encoded(cx)).await;
            if let Err(error) = step {
                self.transport.clear();
                return Err(error);
            }
            flushed?;
        }
        Ok(())
    }

    /// Writes what is encoded, which comes from TLS itself: the bytes of an answer leave in `poll_write`.
    fn poll_flush_encoded(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.transport.has_unsent() {
            ready!(self.poll_send(cx, &[]))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes once, when the socket has room and the others have had their turn. After an error, every write fails.
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.transport.stream().source().poll_budget(cx));
        if self.has_failed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let sent = self.poll_send_once(cx, bytes);
        self.has_failed = matches!(sent, Poll::Ready(Err(_)));
        sent
    }

    fn poll_send_once(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.transport.send(&[IoSlice::new(bytes)])?;
        if written.taken == Taken::Nothing {
            self.transport.stream().wait_writable(cx);
            return self.deadline.poll_room(cx);
        }
        self.transport.stream().source().count_work(written.left);
        self.deadline.count_bytes(written.left);
        Poll::Ready(Ok(written.left))
    }
}

impl program::http::Alarm for Alarm {
    fn poll(&mut self, cx: &mut Context<'_>, now: Instant, end: Instant) -> Poll<()> {
        Alarm::poll(self, cx, now, end)
    }
}

impl Io for HttpStream {
    fn begin(&mut self, awaited: Awaited) {
        self.deadline.begin(awaited);
    }
}

impl AsyncRead for HttpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let read = self.transport.poll_read(cx, buffer);
        match read {
            Poll::Pending => self.deadline.poll_input(cx),
            Poll::Ready(Ok(bytes)) => {
                self.deadline.count_bytes(bytes);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        }
    }
}

impl AsyncWrite for HttpStream {
    /// Writes until a part of `bytes` has left. The rest must be written next.
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match ready!(self.poll_send(cx, bytes))? {
                // Only what TLS itself has to say has left.
                0 if !bytes.is_empty() => {}
                left => return Poll::Ready(Ok(left)),
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush_encoded(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.transport.end();
        ready!(self.poll_flush_encoded(cx))?;
        Poll::Ready(self.transport.stream().shut_down())
    }
}

#[cfg(test)]
mod tests;
