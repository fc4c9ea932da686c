//! [`Connector`]: how a client reaches an nsqd. The default is [`SystemConnector`].

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustix::io::{Errno, read};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, UnixStream, lookup_host};

use crate::address::Address;

/// A stream of bytes to an nsqd and back.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// The future of [`Connector::connect`].
pub type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Transport>>> + Send + 'a>>;

/// Makes connections to nsqds. Tests use the one of the module `testing`, which needs no sockets.
///
/// A proxy is another use:
///
/// ```
/// use ringq_client::{Address, Connecting, Connector, SystemConnector, Transport};
///
/// /// Sends all connections through one tunnel.
/// struct Tunnel(Address);
///
/// impl Connector for Tunnel {
///     fn connect<'a>(&'a self, _nsqd: &'a Address) -> Connecting<'a> {
///         Box::pin(async move { SystemConnector::default().connect(&self.0).await })
///     }
/// }
/// ```
pub trait Connector: Send + Sync + 'static {
    /// Connects to the nsqd at `address`. The client limits the time, and drops the future when the time is over.
    ///
    /// The future fails with the error of the system.
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a>;
}

/// Connects over TCP and over unix sockets.
#[derive(Clone, Debug, Default)]
pub struct SystemConnector {
    local_address: Option<SocketAddr>,
}

impl SystemConnector {
    /// Makes a connector whose TCP connections come from `local_address`. With port 0, the system chooses the port.
    #[must_use]
    pub fn with_local_address(local_address: SocketAddr) -> SystemConnector {
        SystemConnector {
            local_address: Some(local_address),
        }
    }

    /// Makes the connector of a client. With `None`, the system chooses the address.
    pub(crate) fn from_address(local_address: Option<SocketAddr>) -> Arc<dyn Connector> {
        Arc::new(SystemConnector { local_address })
    }

    async fn connect_tcp(&self, host_and_port: &str) -> io::Result<TcpStream> {
        let Some(local) = self.local_address else {
            return TcpStream::connect(host_and_port).await;
        };
        let mut failure = None;
        for remote in lookup_host(host_and_port).await? {
            if remote.is_ipv4() != local.is_ipv4() {
                continue;
            }
            let socket = match remote {
                SocketAddr::V4(_) => TcpSocket::new_v4()?,
                SocketAddr::V6(_) => TcpSocket::new_v6()?,
            };
            socket.bind(local)?;
            match socket.connect(remote).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| {
            io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                format!("{host_and_port} has no address of the same family as local_addr {local}"),
            )
        }))
    }
}

impl Connector for SystemConnector {
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a> {
        Box::pin(async move {
            match address {
                Address::Tcp(host_and_port) => {
                    let stream = self.connect_tcp(host_and_port).await?;
                    stream.set_nodelay(true)?;
                    Ok(Box::new(Socket::new(stream)) as Box<dyn Transport>)
                }
                Address::Unix(path) => {
                    let stream = UnixStream::connect(path).await?;
                    Ok(Box::new(Socket::new(stream)) as Box<dyn Transport>)
                }
            }
        })
    }
}

/// If a socket was not polled for this time, the runtime may not know yet what has come. A smaller value costs more system
/// calls.
const PAUSE: Duration = Duration::from_millis(10);

/// A socket that also reads what the runtime does not know of yet.
///
/// A runtime learns from the system which sockets have something to read, and asks only now and then. After a pause of
/// the process, or of the runtime's thread, a read of tokio's socket finds nothing, although nsqd may have closed the
/// connection. Then this socket asks the system itself.
struct Socket<S> {
    stream: S,
    /// The last time at which there was nothing to read.
    empty_at: Instant,
    /// True from the end of a pause until the system has said that there is nothing more to read.
    is_behind: bool,
}

impl<S> Socket<S> {
    fn new(stream: S) -> Socket<S> {
        Socket {
            stream,
            empty_at: Instant::now(),
            is_behind: false,
        }
    }
}

impl<S: AsyncRead + AsFd + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.stream).poll_read(cx, buf);
        if polled.is_ready() {
            return polled;
        }
        let now = Instant::now();
        this.is_behind |= now.duration_since(this.empty_at) > PAUSE;
        this.empty_at = now;
        if !this.is_behind {
            return Poll::Pending;
        }
        // The sockets of a runtime never block.
        match read(&this.stream, buf.initialize_unfilled()) {
            Ok(length) => {
                buf.advance(length);
                Poll::Ready(Ok(()))
            }
            // The runtime wakes the task up when something comes.
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                this.is_behind = false;
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl fmt::Debug for dyn Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}
