//! [`Listener`]: a TCP listener of the daemons that run on tokio.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use wire::go_error::system_text;

use crate::log::Level;
use crate::{log_repeated, tcp_address};

/// The backlog of a listener; the kernel's net.core.somaxconn caps it.
const LISTEN_BACKLOG: i32 = 4096;

/// Time for which an address that is in use is tried again: the process that a supervisor has just
/// killed may still be dying.
const BIND_TIMEOUT: Duration = Duration::from_secs(1);
const BIND_PAUSE: Duration = Duration::from_millis(20);

/// The wait after a failed accept, doubled each time up to the maximum.
const BACK_OFF: Duration = Duration::from_millis(5);
const BACK_OFF_MAX: Duration = Duration::from_millis(500);

/// Interval of keep-alive probes, as Go's runtime sets it. They are what finds out that a silent peer has
/// gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A listener.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    back_off: Duration,
}

impl Listener {
    /// Listens on `<addr>:<port>`. An address that is in use is tried again for a second. `program` is named
    /// in the hint about an address that needs privileges.
    ///
    /// # Errors
    /// The reason for the FATAL line.
    pub async fn bind(address: &str, program: &str) -> Result<Listener, String> {
        let refuse = |why: String| format!("listen ({address}) failed - {why}");
        let resolved = tcp_address::resolve(address).map_err(refuse)?;
        let deadline = Instant::now() + BIND_TIMEOUT;
        loop {
            match bind(resolved) {
                Ok(listener) => return Ok(listener),
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline =>
                {
                    sleep(BIND_PAUSE).await;
                }
                Err(error) => {
                    let why = format!("listen tcp {resolved}: bind: {}", system_text(&error));
                    return Err(refuse(match tcp_address::bind_hint(&error, program) {
                        hint if hint.is_empty() => why,
                        hint => format!("{why} - {hint}"),
                    }));
                }
            }
        }
    }

    /// Returns the address, with the port that the system has chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for a connection. A failure is logged and tried again after a pause, which ends early if the
    /// future is dropped. The peer of an IPv4 connection has an IPv4 address, also at a listener for both
    /// families.
    pub async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match self.socket.accept().await {
                Ok((socket, peer)) => {
                    self.back_off = BACK_OFF;
                    // A peer that has gone already shows in the first read.
                    let _ = set_options(&socket);
                    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                    return (socket, peer);
                }
                Err(error) => {
                    let cause = format!("temporary Accept() failure - {}", system_text(&error));
                    log_repeated!(Level::Warn, cause.clone(), "{cause}");
                    let pause = self.back_off;
                    self.back_off = (pause * 2).min(BACK_OFF_MAX);
                    sleep(pause).await;
                }
            }
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<Listener> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    socket.set_nonblocking(true)?;
    let socket = TcpListener::from_std(socket.into())?;
    Ok(Listener {
        address: socket.local_addr()?,
        socket,
        back_off: BACK_OFF,
    })
}

fn set_options(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let keep_alive = TcpKeepalive::new()
        .with_time(KEEP_ALIVE)
        .with_interval(KEEP_ALIVE);
    SockRef::from(socket).set_tcp_keepalive(&keep_alive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_in_use_is_tried_again_and_then_named() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let error = Listener::bind(&address, "nsqd").await.unwrap_err();
        let expected = format!(
            "listen ({address}) failed - listen tcp {address}: bind: address already in use"
        );
        assert!(error.starts_with(&expected), "{error}");
        let wait = tokio::spawn(async move {
            sleep(Duration::from_millis(100)).await;
            drop(taken);
        });
        let bound = Listener::bind(&address, "nsqd").await.unwrap();
        assert_eq!(bound.address().to_string(), address);
        wait.await.unwrap();
    }

    #[tokio::test]
    async fn a_peer_of_both_families_is_shown_as_ipv4() {
        let Ok(mut listener) = Listener::bind("[::]:0", "nsqd").await else {
            // The machine has no IPv6.
            assert!(std::net::TcpListener::bind("[::]:0").is_err());
            return;
        };
        let port = listener.address().port();
        let client = std::thread::spawn(move || std::net::TcpStream::connect(("127.0.0.1", port)));
        let (socket, peer) = listener.accept().await;
        assert!(peer.is_ipv4(), "{peer}");
        assert!(socket.nodelay().unwrap());
        client.join().unwrap().unwrap();
    }
}
