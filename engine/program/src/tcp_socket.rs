//! The TCP sockets of a daemon's listeners, with what Go's runtime sets.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use wire::go_error::system_text;

use crate::log::Level;
use crate::log_repeated;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// The backlog of a listener; the kernel's net.core.somaxconn caps it.
pub const LISTEN_BACKLOG: i32 = 4096;

/// The time for which an address that is in use is tried again. A process that was killed may still be dying: its sockets
/// are closed when all of its memory was given back. A supervisor that restarts a daemon at once must not fail for that.
pub const BIND_TIMEOUT: Duration = Duration::from_secs(1);
/// The time between two tries.
pub const BIND_PAUSE: Duration = Duration::from_millis(20);

/// The wait after a failed accept, doubled each time up to the maximum.
const BACKOFF: Duration = Duration::from_millis(5);
const BACKOFF_MAX: Duration = Duration::from_millis(500);

/// The interval of keep-alive probes, which find out that a silent peer has gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Returns a socket that listens on an address, and never blocks. At `[::]`, it takes IPv4 connections, too. With
/// `is_shared`, other sockets of the process may listen on the same address.
///
/// # Errors
/// The system's answer to socket, bind or listen.
pub fn listen(address: SocketAddr, is_shared: bool) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    if is_shared {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Sets the options of an accepted connection: no delay, keep-alive.
///
/// # Errors
/// The peer has gone already.
pub fn set_options<'s>(socket: impl Into<SockRef<'s>>) -> io::Result<()> {
    let socket = socket.into();
    socket.set_tcp_nodelay(true)?;
    let keep_alive = TcpKeepalive::new()
        .with_time(KEEP_ALIVE)
        .with_interval(KEEP_ALIVE);
    socket.set_tcp_keepalive(&keep_alive)
}

/// The waits after failed accepts. Without descriptors, there is nothing to gain by asking at once.
#[derive(Debug)]
pub struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff(BACKOFF)
    }
}

impl Backoff {
    /// Logs that an accept has failed, once per second for each cause, and returns the wait before the next one.
    pub fn after_failure(&mut self, error: &io::Error) -> Duration {
        // All listeners of a program fail at the same time.
        let cause = format!("temporary Accept() failure - {}", system_text(error));
        log_repeated!(Level::Warn, cause.clone(), "{cause}");
        self.next_wait()
    }

    fn next_wait(&mut self) -> Duration {
        let wait = self.0;
        self.0 = (wait * 2).min(BACKOFF_MAX);
        wait
    }

    /// Notes a success: the next wait is short again.
    pub fn reset(&mut self) {
        *self = Backoff::default();
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;
    use crate::log::capture;

    #[test]
    fn waits_are_doubled_up_to_half_a_second() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..9).map(|_| backoff.next_wait().as_millis()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 500, 500]);
        backoff.reset();
        assert_eq!(backoff.next_wait().as_millis(), 5);
    }

    #[test]
    fn a_failure_has_a_line_with_its_cause() {
        let mut backoff = Backoff::default();
        capture::start();
        let wait = backoff.after_failure(&Errno::MFILE.into());
        let log = capture::stop();
        assert_eq!(wait, BACKOFF);
        let line = "WARNING: temporary Accept() failure - too many open files";
        assert_eq!(log, [line]);
    }

    #[test]
    fn only_shared_sockets_listen_on_one_address() {
        let at = |address: &str| address.parse().expect("an address");
        let local = |socket: &Socket| {
            let address = socket.local_addr().expect("it listens");
            address.as_socket().expect("an IP address")
        };
        let shared = listen(at("127.0.0.1:0"), true).expect("a free port");
        listen(local(&shared), true).expect("both share the port");
        let alone = listen(at("127.0.0.1:0"), false).expect("a free port");
        let refused = listen(local(&alone), false).expect_err("the port is taken");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    }
}
