//! Listening, accepting connections, and what to do when there are no descriptors left.

use crate::net::address::{LISTEN_BACKLOG, ListenAddress, Peer};
use crate::net::socket::Stream;
use crate::reactor::{self, Source};
use futures_lite::future;
use program::log::Level;
use program::log_repeated;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll};
use std::time::Duration;
use wire::go_error::system_text;

/// The wait after a failed accept, doubled each time up to the maximum: without descriptors there
/// is nothing to gain by asking at once. Existing connections go on meanwhile.
const BACK_OFF: Duration = Duration::from_millis(5);
const BACK_OFF_MAX: Duration = Duration::from_millis(500);

/// Keep-alive probes after this long, as nsqd's runtime sets it.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A shard's listener at an address. For an IP address, each shard has its own socket, and the kernel spreads the
/// connections over them. A unix socket is shared by all shards, and the first shard that accepts gets the connection.
pub(crate) struct Listener {
    source: Source,
    /// The descriptor that the source watches instead of the socket; see [`reactor::epoll_around_listener`].
    epoll_around_socket: Option<OwnedFd>,
    pub(super) socket: Socket,
}

impl Listener {
    /// Listens on an address.
    ///
    /// # Errors
    /// The system's answer to socket, bind or listen, or that no descriptor is left.
    pub(crate) fn open(address: &ListenAddress) -> io::Result<Listener> {
        match address {
            ListenAddress::Tcp(address) => Listener::bind(*address),
            ListenAddress::Unix(socket) => Listener::new(socket.share()?),
        }
    }

    pub(super) fn bind(address: SocketAddr) -> io::Result<Listener> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        socket.listen(LISTEN_BACKLOG)?;
        socket.set_nonblocking(true)?;
        Listener::new(socket)
    }

    fn new(socket: Socket) -> io::Result<Listener> {
        Ok(Listener {
            source: Source::new(),
            epoll_around_socket: reactor::epoll_around_listener(&socket)?,
            socket,
        })
    }

    /// Accepts one connection, after the ready tasks have had their turn: a flood of connections must not hold them up.
    pub(crate) async fn accept(&self) -> (Stream, Peer) {
        let mut back_off = BACK_OFF;
        loop {
            future::yield_now().await;
            let failure = match self.try_accept().await {
                Ok(Some((stream, peer))) => return (stream, peer),
                Ok(None) => continue,
                Err(error) => system_text(&error),
            };
            // All listeners of all shards fail at the same time.
            let cause = format!("temporary Accept() failure - {failure}");
            log_repeated!(Level::Warn, cause.clone(), "{cause}");
            reactor::sleep(back_off).await;
            back_off = (back_off * 2).min(BACK_OFF_MAX);
        }
    }

    /// Waits for a connection, and sets what every one of them has: no delay, keep-alive. `None`: the
    /// peer was gone before we looked.
    ///
    /// # Errors
    /// The system's answer, for example too many open files.
    pub(super) async fn try_accept(&self) -> io::Result<Option<(Stream, Peer)>> {
        let socket = future::poll_fn(|cx| self.poll_accept(cx)).await?;
        let Ok(peer) = socket.peer_addr() else {
            return Ok(None);
        };
        if !peer.is_unix() && set_options(&socket).is_err() {
            return Ok(None);
        }
        Ok(Some((Stream::new(socket)?, Peer::of(&peer))))
    }

    fn poll_accept(&self, cx: &Context<'_>) -> Poll<io::Result<Socket>> {
        loop {
            let watched = match &self.epoll_around_socket {
                Some(epoll) => epoll.as_fd(),
                None => self.socket.as_fd(),
            };
            std::task::ready!(self.source.poll_readable(cx, watched));
            match self.socket.accept() {
                Ok((socket, _)) => return Poll::Ready(Ok(socket)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.source.expect_no_more(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

fn set_options(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    let keep_alive = TcpKeepalive::new()
        .with_time(KEEP_ALIVE)
        .with_interval(KEEP_ALIVE);
    socket.set_tcp_keepalive(&keep_alive)
}
