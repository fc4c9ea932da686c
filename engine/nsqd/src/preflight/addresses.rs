//! Addresses: from what the operator wrote to what the shards listen on. For `nsqd --check`: free, and different from each
//! other.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use program::check::{State, in_use, local_address};
use program::inherited::{InheritedSocket, InheritedSockets};
use program::tcp_address;
use program::tcp_socket::BIND_PAUSE;
use socket2::{Domain, Protocol, Socket, Type};
use wire::go_error::system_text;

use super::Finding;
use crate::config::Config;
use crate::net::address::{ListenAddress, SharedSocket};

/// A place to listen at that belongs to this process until this is dropped. No client can connect yet, except to a socket
/// that the process has inherited: there, clients wait.
#[derive(Debug)]
pub(crate) struct Reserved {
    /// The address that the shards are to listen on: resolved, and with a port. A shared socket keeps the place, too.
    pub(super) address: ListenAddress,
    /// On other systems than Linux, the socket would be in the way of the shards' listeners.
    _socket: Option<Socket>,
}

/// The meaning of the text that names a place to listen at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressKind {
    /// `<host>:<port>` is an IP address, and everything else is the path of a unix socket, as in nsqd for TCP and HTTP.
    TcpOrUnix,
    /// An IP address.
    Tcp,
    /// The path of a unix socket.
    Unix,
}

/// A place that a flag asks for.
#[derive(Debug)]
pub(super) struct Place<'a> {
    flag: &'static str,
    address: &'a str,
    kind: AddressKind,
    /// The socket that takes the place of the address.
    inherited: Option<InheritedSocket>,
}

/// Returns the places to listen at, in the order of a start.
///
/// # Errors
/// An inherited socket cannot be used.
pub(super) fn places(
    config: &Config,
    inherited: InheritedSockets,
) -> Result<[Place<'_>; 5], Finding> {
    use AddressKind::{Tcp, TcpOrUnix, Unix};
    let https = if config.has_certificate() {
        config.https_address.as_str()
    } else {
        ""
    };
    let flags = [
        ("tcp-address", config.tcp_address.as_str(), TcpOrUnix),
        ("http-address", &config.http_address, TcpOrUnix),
        ("https-address", https, Tcp),
        ("unix-socket", &config.unix_socket, Unix),
        ("http-unix-socket", &config.http_unix_socket, Unix),
    ];
    let refused = |why| Finding::failure(why, "");
    let sockets = inherited.assign(flags.map(|(flag, address, _)| (flag, address)));
    let mut sockets = sockets.map_err(refused)?.into_iter();
    Ok(flags.map(|(flag, address, kind)| Place {
        flag,
        address,
        kind,
        inherited: sockets.next().flatten(),
    }))
}

impl Place<'_> {
    /// Returns true if the flag switches the place off. An empty address for NSQ clients is one that the system chooses.
    pub(super) fn is_off(&self) -> bool {
        self.address.is_empty() && self.flag != "tcp-address"
    }

    /// Reserves the place. An inherited socket is reserved already.
    pub(super) fn reserve(self, mode: Option<u32>, time: Duration) -> Result<Reserved, Finding> {
        match self.inherited {
            Some(inherited) => Ok(shared(SharedSocket::inherited(inherited))),
            None => reserve(self.address, self.kind, mode, time),
        }
    }
}

fn shared(socket: SharedSocket) -> Reserved {
    Reserved {
        address: ListenAddress::Shared(Arc::new(socket)),
        _socket: None,
    }
}

/// Reserves a place to listen at. The file of a unix socket gets the permissions `mode`. Tries an address that is in
/// use for `time`.
fn reserve(
    address: &str,
    kind: AddressKind,
    mode: Option<u32>,
    time: Duration,
) -> Result<Reserved, Finding> {
    let is_tcp = match kind {
        AddressKind::TcpOrUnix => tcp_address::split_host_port(address).is_some(),
        AddressKind::Tcp => true,
        AddressKind::Unix => false,
    };
    if is_tcp {
        return reserve_within(address, time);
    }
    let bind = || SharedSocket::bind_unix(address, mode);
    let socket = retry_while_in_use(time, bind);
    let socket = socket.map_err(|error| {
        let why = format!("listen unix {address}: bind: {}", system_text(&error));
        bind_failed(address, &error, &why, unix_hint(&error))
    })?;
    Ok(shared(socket))
}

fn unix_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "the socket belongs to a process that runs, or the file is no socket: choose another path, or end that \
             process or remove that file"
        }
        io::ErrorKind::InvalidInput => "the path of a unix socket has at most 107 bytes",
        _ => "what is not <host>:<port> is the path of a unix socket",
    }
}

/// Reserves an address for the shards. Blocks for up to a second.
///
/// Listeners with SO_REUSEPORT alone do not find out that the address is taken: a second nsqd of the same user would
/// start without an error and take half of the connections. So a socket is bound without this option first.
fn reserve_within(address: &str, timeout: Duration) -> Result<Reserved, Finding> {
    let candidate = tcp_address::resolve(address).map_err(|why| refused(address, &why, ""))?;
    reserve_with_retries(candidate, timeout).map_err(|error| {
        let why = format!("listen tcp {candidate}: bind: {}", system_text(&error));
        bind_failed(
            address,
            &error,
            &why,
            tcp_address::bind_hint(&error, "nsqd"),
        )
    })
}

/// An address cannot be listened on. It is in the operator's spelling, and the cause in nsqd's words where nsqd has some.
fn refused(address: &str, why: &str, advice: impl Into<String>) -> Finding {
    Finding::failure(format!("listen ({address}) failed - {why}"), advice)
}

/// An address that is in use may become free.
fn bind_failed(address: &str, error: &io::Error, why: &str, advice: impl Into<String>) -> Finding {
    let mut finding = refused(address, why, advice);
    if error.kind() == io::ErrorKind::AddrInUse {
        finding.state = State::Waiting;
    }
    finding
}

fn reserve_with_retries(address: SocketAddr, timeout: Duration) -> io::Result<Reserved> {
    // Connections that an earlier process has left, in TIME_WAIT for example, are in the way of the first try only.
    let bind = || bind_alone(address, false).or_else(|_| bind_alone(address, true));
    retry_while_in_use(timeout, bind).and_then(share_with_shards)
}

fn retry_while_in_use<T>(timeout: Duration, bind: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + timeout;
    loop {
        match bind() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(BIND_PAUSE);
            }
            bound => return bound,
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
fn share_with_shards(socket: Socket) -> io::Result<Reserved> {
    let address = socket.local_addr()?;
    let address = address
        .as_socket()
        .expect("the socket was bound to an IP address");
    socket.set_reuse_address(false)?;
    socket.set_reuse_port(true)?;
    Ok(Reserved {
        address: ListenAddress::Tcp(address),
        _socket: cfg!(target_os = "linux").then_some(socket),
    })
}

/// A place that the check has tried.
#[derive(Debug)]
pub(super) struct TriedPlace<'a> {
    pub(super) flag: &'static str,
    address: &'a str,
    /// Waiting if the address is in use.
    pub(super) finding: Finding,
}

/// Reserves all addresses as a start does, and so finds out that two are equal. A start at the same moment tries again for
/// a second, and the check holds no address that long: it tries each once.
pub(super) fn check(config: &Config, inherited: InheritedSockets) -> Vec<TriedPlace<'_>> {
    let places = match places(config, inherited) {
        Ok(places) => places,
        Err(finding) => {
            let (flag, address) = ("sockets", "");
            return vec![TriedPlace {
                flag,
                address,
                finding,
            }];
        }
    };
    let mut taken = Vec::new();
    let mut tried = Vec::new();
    for place in places.into_iter().filter(|place| !place.is_off()) {
        let (flag, address, is_inherited) = (place.flag, place.address, place.inherited.is_some());
        let finding = match place.reserve(config.unix_socket_mode.0, Duration::ZERO) {
            Err(finding) => finding,
            Ok(reserved) => {
                let text = if is_inherited {
                    format!("{} is inherited", reserved.address)
                } else {
                    format!("{address} is free")
                };
                taken.push(reserved);
                Finding::ok(text)
            }
        };
        tried.push(TriedPlace {
            flag,
            address,
            finding,
        });
    }
    tried
}

impl TriedPlace<'_> {
    /// Decides whether an address in use waits for the nsqd that runs here, which has some ports, or is a stranger's.
    pub(super) fn judge_in_use(&mut self, runs_here: bool, has_port: impl Fn(u16) -> bool) {
        if self.finding.state != State::Waiting {
            return;
        }
        // An nsqd tells no port of HTTPS, and no path of a unix socket.
        let told = match self.flag {
            "tcp-address" | "http-address" => local_address(self.address),
            _ => None,
        };
        if runs_here && told.is_none_or(|address| has_port(address.port())) {
            self.finding = in_use(self.address, "nsqd");
        } else {
            self.finding.state = State::Failure;
        }
    }
}

#[cfg(test)]
mod tests;
