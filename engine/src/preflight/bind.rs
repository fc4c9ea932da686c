//! Addresses: from what the operator wrote to what the shards listen on.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diskq::system_text;

use super::PreflightError;
use crate::net::address::{ListenAddress, UnixSocket};

/// How long an address that is in use is tried again. The listener of a killed process was seen to
/// outlive it, for less than 20 ms (8 of 8 runs, Linux 6.18); most likely because the kernel takes
/// rings apart later, and a request in a ring holds its socket. A supervisor that restarts at once
/// must not fail for that.
const BIND_PATIENCE: Duration = Duration::from_secs(1);
const BIND_PAUSE: Duration = Duration::from_millis(20);

/// An address that was found free, and is kept until this is dropped. The shards bind it with
/// SO_REUSEPORT, which fails while this is held; so it is dropped right before.
#[derive(Debug)]
pub struct BoundProbe {
    address: SocketAddr,
    /// `None` if only connections of an earlier process are in the way.
    _listener: Option<TcpListener>,
}

impl BoundProbe {
    /// What the shards are to bind: resolved, and with a port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A place to listen at that was found free, and is kept until this is dropped.
#[derive(Debug)]
pub enum Bound {
    /// An IP address.
    Tcp(BoundProbe),
    /// A unix socket; it is kept by its address, too.
    Unix(Arc<UnixSocket>),
}

impl Bound {
    /// What the shards are to listen on.
    pub fn address(&self) -> ListenAddress {
        match self {
            Bound::Tcp(probe) => ListenAddress::Tcp(probe.address()),
            Bound::Unix(socket) => ListenAddress::Unix(socket.clone()),
        }
    }
}

/// Takes what is `<host>:<port>` for an IP address and everything else for the path of a unix socket,
/// as nsqd does for TCP and HTTP. May block for up to a second.
pub fn bind(address: &str) -> Result<Bound, PreflightError> {
    if split_host_port(address).is_some() {
        return bind_probe(address).map(Bound::Tcp);
    }
    let socket = UnixSocket::bind(address).map_err(|error| PreflightError::Listen {
        address: address.to_string(),
        why: format!("listen unix {address}: bind: {}", system_text(&error)),
        hint: unix_hint(&error),
    })?;
    Ok(Bound::Unix(Arc::new(socket)))
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

/// Binds an address without SO_REUSEPORT. With it, a second nsqd of the same user would start
/// without an error and take half of the connections. Blocks for up to a second.
pub fn bind_probe(address: &str) -> Result<BoundProbe, PreflightError> {
    bind_probe_within(address, BIND_PATIENCE)
}

fn bind_probe_within(address: &str, patience: Duration) -> Result<BoundProbe, PreflightError> {
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
    bind_patiently(candidate, patience).map_err(|error| {
        let why = system_text(&error);
        refuse(
            format!("listen tcp {candidate}: bind: {why}"),
            bind_hint(&error),
        )
    })
}

fn bind_patiently(candidate: SocketAddr, patience: Duration) -> io::Result<BoundProbe> {
    let deadline = Instant::now() + patience;
    loop {
        let error = match TcpListener::bind(candidate) {
            Ok(listener) => {
                let address = listener.local_addr()?;
                return Ok(BoundProbe {
                    address,
                    _listener: Some(listener),
                });
            }
            Err(error) => error,
        };
        if is_only_left_over(&error, candidate) {
            return Ok(BoundProbe {
                address: candidate,
                _listener: None,
            });
        }
        if error.kind() != io::ErrorKind::AddrInUse || Instant::now() >= deadline {
            return Err(error);
        }
        std::thread::sleep(BIND_PAUSE);
    }
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

/// Whether the address is in use only by closing connections of an earlier process. They do not
/// hinder the shards' SO_REUSEPORT, but they do hinder the probe's bind: without this, a restart
/// would be refused for a minute.
fn is_only_left_over(error: &io::Error, address: SocketAddr) -> bool {
    if error.kind() != io::ErrorKind::AddrInUse {
        return false;
    }
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    match tables {
        [Ok(tcp), Ok(tcp6)] => {
            !has_listener(&tcp, address.port()) && !has_listener(&tcp6, address.port())
        }
        // Without IPv6 there is no second table.
        [Ok(tcp), Err(_)] => !has_listener(&tcp, address.port()),
        // What cannot be ruled out stands.
        [Err(_), _] => false,
    }
}

/// Whether a table of `/proc/net/tcp` has a listening socket (state 0A) on the port. On whatever
/// address: telling overlapping addresses apart is not worth a wrong answer.
///
/// ```text
///   sl  local_address rem_address   st ...
///    0: 0100007F:5E56 00000000:0000 0A ...
/// ```
fn has_listener(table: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_port = words.next().is_some_and(|local| local.ends_with(&port));
        is_port && words.nth(1) == Some("0A")
    })
}

#[cfg(test)]
mod tests;
