//! [`Listener`]: a TCP listener of the daemons that run on tokio.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use program::inherited::InheritedSocket;
use program::tcp_socket::{self, BIND_PAUSE, BIND_TIMEOUT, Backoff};
use program::{log_warn, tcp_address};
use socket2::Socket;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use wire::go_error::system_text;

/// A listener.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    backoff: Backoff,
}

impl Listener {
    /// Listens on the inherited socket, or on `<addr>:<port>` without one.
    ///
    /// # Errors
    /// The reason for the FATAL line.
    pub async fn open(
        address: &str,
        inherited: Option<InheritedSocket>,
        program: &str,
    ) -> Result<Listener, String> {
        let Some(inherited) = inherited else {
            return Listener::bind(address, program).await;
        };
        inherited.check_tcp(program)?;
        let address = tcp_address::text(&inherited.address);
        let listener = listen_on(inherited.socket);
        listener.map_err(|error| format!("listen ({address}) failed - {}", system_text(&error)))
    }

    /// Listens on `<addr>:<port>`. An address that is in use is tried again for a second. `program` is named
    /// in the hint about an address that needs privileges.
    async fn bind(address: &str, program: &str) -> Result<Listener, String> {
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
                    self.backoff.reset();
                    // A peer that has gone already shows in the first read.
                    let _ = tcp_socket::set_options(&socket);
                    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                    return (socket, peer);
                }
                Err(error) => sleep(self.backoff.after_failure(&error)).await,
            }
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<Listener> {
    listen_on(tcp_socket::listen(address, false)?)
}

fn listen_on(socket: Socket) -> io::Result<Listener> {
    let socket = TcpListener::from_std(socket.into())?;
    Ok(Listener {
        address: socket.local_addr()?,
        socket,
        backoff: Backoff::default(),
    })
}

/// Returns the result of a TLS handshake, or `None` after a failure, which is logged. `name` is that of the listener in the
/// log. Without a limit, a peer may take any time.
pub async fn shake_hands(
    tls: &TlsAcceptor,
    (socket, peer): (TcpStream, SocketAddr),
    limit: Option<Duration>,
    name: &str,
) -> Option<TlsStream<TcpStream>> {
    let handshake = tls.accept(socket);
    let shaken = match limit {
        None => Ok(handshake.await),
        Some(limit) => timeout(limit, handshake).await,
    };
    let why = match shaken {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => system_text(&error),
        Err(_) => "i/o timeout".to_owned(),
    };
    log_warn!("{name}: TLS handshake error from {peer}: {why}");
    None
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
