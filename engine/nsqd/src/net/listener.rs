//! Listening, accepting connections, and what to do when there are no descriptors left.

use crate::net::address::{ListenAddress, Peer};
use crate::net::socket::Stream;
use crate::reactor::{self, Source};
use futures_lite::future;
use program::tcp_socket::{self, Backoff};
use socket2::Socket;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll};

/// A shard's listener at an address. For an IP address, each shard has its own socket, and the kernel spreads the
/// connections over them. A unix socket and an inherited one are shared by all shards, and the first shard that accepts
/// gets the connection.
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
            ListenAddress::Shared(socket) => Listener::new(socket.share()?),
        }
    }

    pub(super) fn bind(address: SocketAddr) -> io::Result<Listener> {
        let socket = tcp_socket::listen(address, true)?;
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
        let mut backoff = Backoff::default();
        loop {
            future::yield_now().await;
            match self.try_accept().await {
                Ok(Some((stream, peer))) => return (stream, peer),
                Ok(None) => {}
                Err(error) => reactor::sleep(backoff.after_failure(&error)).await,
            }
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
        if !peer.is_unix() && tcp_socket::set_options(&socket).is_err() {
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
