//! Addresses: from what the operator wrote to what the shards listen on.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use wire::go_error::system_text;

use super::PreflightError;
use crate::net::address::{ListenAddress, UnixSocket};

/// How long an address that is in use is tried again. A process that was killed may still be dying: its sockets are
/// closed when all of its memory was given back. A supervisor that restarts nsqd at once must not fail for that.
const BIND_PATIENCE: Duration = Duration::from_secs(1);
const BIND_PAUSE: Duration = Duration::from_millis(20);

/// A TCP address that belongs to this process until this is dropped. No client can connect yet.
#[derive(Debug)]
pub struct ReservedAddress {
    address: SocketAddr,
    /// On other systems than Linux, the socket would be in the way of the shards' listeners.
    _socket: Option<Socket>,
}

impl ReservedAddress {
    /// The address that the shards are to listen on: resolved, and with a port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A place to listen at that belongs to this process until this is dropped.
#[derive(Debug)]
pub enum Reserved {
    /// An IP address.
    Tcp(ReservedAddress),
    /// A unix socket. Its address keeps it, too.
    Unix(Arc<UnixSocket>),
}

impl Reserved {
    /// The address that the shards are to listen on.
    pub fn address(&self) -> ListenAddress {
        match self {
            Reserved::Tcp(reserved) => ListenAddress::Tcp(reserved.address()),
            Reserved::Unix(socket) => ListenAddress::Unix(socket.clone()),
        }
    }
}

/// Takes what is `<host>:<port>` for an IP address and everything else for the path of a unix socket,
/// as nsqd does for TCP and HTTP. May block for up to a second.
pub fn reserve(address: &str) -> Result<Reserved, PreflightError> {
    if split_host_port(address).is_some() {
        return reserve_tcp(address).map(Reserved::Tcp);
    }
    let socket = UnixSocket::bind(address).map_err(|error| PreflightError::Listen {
        address: address.to_string(),
        why: format!("listen unix {address}: bind: {}", system_text(&error)),
        hint: unix_hint(&error),
    })?;
    Ok(Reserved::Unix(Arc::new(socket)))
}

fn unix_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "the file exists; if no process listens there, it was left over by one that was killed, \
             and has to be removed"
        }
        io::ErrorKind::InvalidInput => "the path of a unix socket has at most 107 bytes",
        _ => "what is not <host>:<port> is the path of a unix socket",
    }
}

/// Reserves an address for the shards. Blocks for up to a second.
///
/// Listeners with SO_REUSEPORT alone do not find out that the address is taken: a second nsqd of the same user would
/// start without an error and take half of the connections. So a socket is bound without this option first.
pub fn reserve_tcp(address: &str) -> Result<ReservedAddress, PreflightError> {
    reserve_within(address, BIND_PATIENCE)
}

fn reserve_within(address: &str, patience: Duration) -> Result<ReservedAddress, PreflightError> {
    let refuse = |why: String, hint: &'static str| PreflightError::Listen {
        address: address.to_string(),
        why,
        hint,
    };
    let (host, port) = split_host_port(address).ok_or_else(|| {
        let why = format!("listen tcp: address {address}: missing port in address");
        refuse(why, "")
    })?;
    let port = parse_port(port).map_err(|why| refuse(format!("listen tcp: {why}"), ""))?;
    let candidate = resolve(host, port)
        .map_err(|why| refuse(format!("listen tcp: lookup {host}: {why}"), ""))?;
    let Some(candidate) = candidate else {
        return Err(refuse(
            format!("listen tcp: lookup {host}: no such host"),
            "",
        ));
    };
    reserve_patiently(candidate, patience).map_err(|error| {
        let why = system_text(&error);
        refuse(
            format!("listen tcp {candidate}: bind: {why}"),
            bind_hint(&error),
        )
    })
}

fn reserve_patiently(address: SocketAddr, patience: Duration) -> io::Result<ReservedAddress> {
    let deadline = Instant::now() + patience;
    loop {
        // Connections that an earlier process has left, in TIME_WAIT for example, are in the way of the first try only.
        match bind_alone(address, false).or_else(|_| bind_alone(address, true)) {
            Ok(socket) => return share_with_shards(socket),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(BIND_PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Binds a socket that does not listen, without SO_REUSEPORT.
fn bind_alone(address: SocketAddr, reuse_address: bool) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(reuse_address)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Lets listeners with SO_REUSEPORT bind the socket's address, too, and nobody else.
fn share_with_shards(socket: Socket) -> io::Result<ReservedAddress> {
    let address = socket.local_addr()?;
    let address = address
        .as_socket()
        .expect("the socket was bound to an IP address");
    socket.set_reuse_address(false)?;
    socket.set_reuse_port(true)?;
    Ok(ReservedAddress {
        address,
        _socket: cfg!(target_os = "linux").then_some(socket),
    })
}

fn bind_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another process listens there, perhaps another nsqd (see: ss -ltnp); stop it, or \
             choose another port"
        }
        io::ErrorKind::AddrNotAvailable => "no interface of this machine has this address",
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need privileges (CAP_NET_BIND_SERVICE); choose a higher one"
        }
        _ => "",
    }
}

/// Splits as Go's `net.SplitHostPort`: an IPv6 address needs brackets.
fn split_host_port(address: &str) -> Option<(&str, &str)> {
    let (host, port) = address.rsplit_once(':')?;
    if let Some(inner) = host.strip_prefix('[') {
        let inner = inner.strip_suffix(']')?;
        return (!inner.contains(['[', ']'])).then_some((inner, port));
    }
    (!host.contains([':', '[', ']']) && !port.contains(['[', ']'])).then_some((host, port))
}

/// A number, or the name of a service. The error is Go's text.
fn parse_port(text: &str) -> Result<u16, String> {
    if text.is_empty() {
        return Ok(0);
    }
    if let Ok(port) = text.parse::<i64>() {
        return u16::try_from(port).map_err(|_| format!("address {text}: invalid port"));
    }
    let services = std::fs::read_to_string("/etc/services").unwrap_or_default();
    find_service(&services, text).ok_or_else(|| format!("lookup tcp/{text}: unknown port"))
}

/// The TCP port of a service, by name or alias.
///
/// ```text
///   http    80/tcp   www    # WorldWideWeb HTTP
/// ```
fn find_service(services: &str, name: &str) -> Option<u16> {
    services.lines().find_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let (service, port) = (words.next()?, words.next()?);
        let port = port.strip_suffix("/tcp")?;
        let mut names = std::iter::once(service).chain(words);
        names
            .any(|known| known.eq_ignore_ascii_case(name))
            .then(|| port.parse().ok())?
    })
}

/// The address to bind. A wildcard is both families on one socket, as in nsqd, or IPv4 alone where
/// the system has no IPv6. A name gives one address, IPv4 if it has one: listening on only one of
/// several is what nsqd does, too.
fn resolve(host: &str, port: u16) -> Result<Option<SocketAddr>, String> {
    if matches!(host, "" | "0.0.0.0" | "::") {
        let any4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let any6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        return Ok(Some(if has_ipv6() { any6 } else { any4 }));
    }
    let found = (host, port).to_socket_addrs().map_err(|error| {
        // The C library's text, behind the standard library's own words.
        let text = error.to_string();
        text.rsplit(": ")
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
    })?;
    Ok(found.min_by_key(SocketAddr::is_ipv6))
}

fn has_ipv6() -> bool {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok()
}

#[cfg(test)]
mod tests;
