//! Sockets on the reactor: reading when there is something, gathering writes, being duplicated
//! for another shard, listening.

use crate::net::address::{LISTEN_BACKLOG, ListenAddress, Peer};
use crate::reactor::{self, Source};
use futures_lite::{AsyncRead, AsyncWrite, future};
use rustix::event::{PollFd, PollFlags, Timespec};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Keep-alive probes after this long, as nsqd's runtime sets it.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A connection's socket.
pub(crate) struct Stream {
    source: Source,
    socket: Socket,
}

impl Stream {
    fn new(socket: Socket) -> io::Result<Stream> {
        socket.set_nonblocking(true)?;
        Ok(Stream::of(socket))
    }

    /// Of a socket that is non-blocking.
    fn of(socket: Socket) -> Stream {
        Stream {
            source: Source::new(),
            socket,
        }
    }

    /// The stream of a descriptor that another shard gave away.
    pub(crate) fn adopt(descriptor: OwnedFd) -> Stream {
        Stream::of(Socket::from(descriptor))
    }

    /// The descriptor alone, for another shard to adopt.
    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.socket.into()
    }

    /// A second descriptor of the socket, which outlives the stream.
    ///
    /// # Errors
    /// The system's answer, for example too many open files.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }

    /// Network and own address, for log lines: `tcp 127.0.0.1:4150`.
    pub(crate) fn local_text(&self) -> String {
        match self.socket.local_addr() {
            Ok(address) if address.is_unix() => format!("unix {}", Peer::of(&address)),
            Ok(address) => format!("tcp {}", Peer::of(&address)),
            Err(_) => "tcp ?".to_owned(),
        }
    }

    /// Reads what is there; 0 is the end.
    pub(crate) fn poll_read(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            std::task::ready!(self.source.poll_readable(cx, self.socket.as_fd()));
            match (&self.socket).read(buffer) {
                Ok(bytes) => {
                    self.source.note_read(bytes);
                    if bytes < buffer.len() {
                        // The engine reports what comes after this, and the end. On epoll, one thing escapes: bytes
                        // behind an urgent byte, or behind a descriptor on a unix socket, end a read early and
                        // wait for the peer's next bytes. No NSQ client sends either.
                        self.source.expect_no_more();
                    }
                    return Poll::Ready(Ok(bytes));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.source.expect_no_more(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Whether the peer has ended its side, whatever is left to read.
    pub(crate) fn has_hung_up(&self) -> bool {
        const ENDS: PollFlags = PollFlags::RDHUP.union(PollFlags::HUP).union(PollFlags::ERR);
        let mut descriptors = [PollFd::new(&self.socket, ENDS)];
        let now = Timespec::default();
        // A question that fails tells nothing about the peer.
        let count = rustix::event::poll(&mut descriptors, Some(&now)).unwrap_or(0);
        count > 0 && descriptors[0].revents().intersects(ENDS)
    }

    /// Writes as much as the socket takes now. `Ok(None)`: nothing at all.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        loop {
            // The standard library ignores SIGPIPE, so a broken connection is an error here.
            let written = match slices {
                // Without a list, which the kernel would have to fetch and check.
                [only] => (&self.socket).write(only),
                _ => (&self.socket).write_vectored(slices),
            };
            return match written {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
                Err(error) => Err(error),
            };
        }
    }

    /// Writes as much as the socket takes, once it takes something.
    pub(crate) fn poll_write(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.send(&[IoSlice::new(bytes)])? {
            Some(bytes) => Poll::Ready(Ok(bytes)),
            None => {
                self.source.wait_writable(cx, self.socket.as_fd());
                Poll::Pending
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Stream::poll_read(&self, cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Stream::poll_write(&self, cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.shutdown(Shutdown::Write))
    }
}

/// One of several listeners of the same address, one per shard. The kernel spreads the connections
/// over those of an IP address. Those of a unix socket are one, and whoever is first accepts.
pub(crate) struct Listener {
    source: Source,
    /// What the source watches, if not the socket.
    epoll_around_socket: Option<OwnedFd>,
    socket: Socket,
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

    fn bind(address: SocketAddr) -> io::Result<Listener> {
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

    /// Waits for a connection, and sets what every one of them has: no delay, keep-alive. `None`: the
    /// peer was gone before we looked.
    ///
    /// # Errors
    /// The system's answer, for example too many open files.
    pub(crate) async fn accept(&self) -> io::Result<Option<(Stream, Peer)>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::is_usable;
    use crate::reactor::{self, Engine};
    use futures_lite::AsyncReadExt;
    use std::net::TcpStream;

    fn listener() -> (Listener, SocketAddr) {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into()).expect("a free port");
        let address = listener.socket.local_addr().expect("bound");
        (listener, address.as_socket().expect("an IP address"))
    }

    /// Runs a test on each engine that this machine lets run.
    fn on_each_engine<F: Future<Output = ()> + 'static>(test: impl Fn() -> F) {
        let engines = Engine::ALL.iter().copied();
        for engine in engines.filter(|engine| is_usable(*engine)) {
            reactor::run(engine, test()).expect("the engine works");
        }
    }

    async fn connected(listener: &Listener) -> Stream {
        listener
            .accept()
            .await
            .expect("connected")
            .expect("there")
            .0
    }

    #[test]
    fn a_duplicate_outlives_its_stream_and_can_be_adopted_elsewhere() {
        on_each_engine(|| async {
            let (listener, address) = listener();
            let mut peer = TcpStream::connect(address).expect("listening");
            let stream = connected(&listener).await;
            for round in 0..100u8 {
                let copy = stream.duplicate().expect("descriptors are left");
                peer.write_all(&[round]).expect("connected");
                let mut adopted = Stream::adopt(copy);
                let mut byte = [0];
                adopted.read_exact(&mut byte).await.expect("one byte");
                assert_eq!(byte, [round], "each copy is the same socket");
                drop(adopted);
            }
            let last = stream.duplicate().expect("descriptors are left");
            drop(stream);
            let adopted = Stream::adopt(last);
            let parts = [IoSlice::new(b"still "), IoSlice::new(b"open")];
            assert_eq!(adopted.send(&parts).expect("connected"), Some(10));
            // A task waits for the socket. A ring holds the socket open until the poll is cancelled.
            let waits = future::poll_once(future::poll_fn(|cx| adopted.poll_read(cx, &mut [0])));
            assert!(waits.await.is_none());
            drop(adopted);
            let (sender, got) = futures_channel::oneshot::channel();
            std::thread::spawn(move || {
                let mut got = String::new();
                let read = peer.read_to_string(&mut got);
                sender.send(read.map(|_| got)).expect("waited for");
            });
            let got = got.await.expect("the thread ends");
            assert_eq!(got.expect("closed by the last copy"), "still open");
        });
    }

    #[test]
    fn a_full_socket_takes_nothing_and_a_broken_one_says_so() {
        on_each_engine(|| async {
            let (listener, address) = listener();
            let peer = TcpStream::connect(address).expect("listening");
            let stream = connected(&listener).await;
            let chunk = vec![7; 1 << 20];
            let mut sent = 0;
            while let Some(bytes) = stream.send(&[IoSlice::new(&chunk)]).expect("connected") {
                sent += bytes;
                assert!(sent < 1 << 30, "a peer that does not read fills up");
            }
            drop(peer);
            let broken = std::iter::repeat_with(|| stream.send(&[IoSlice::new(&chunk)]));
            assert!(broken.take(1000).any(|result| result.is_err()));
        });
    }
}
