//! The addresses at which the broker listens, and those of its peers: IP addresses and unix sockets.

use std::fmt;
use std::fs;
use std::io;
use std::iter;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::process::Ports;
use program::inherited::InheritedSocket;
use program::tcp_address;
use program::tcp_socket::LISTEN_BACKLOG;
use socket2::{Domain, SockAddr, Socket, Type};

/// A place to listen at, resolved and found free.
#[derive(Clone, Debug)]
pub enum ListenAddress {
    /// Every shard binds it for itself.
    Tcp(SocketAddr),
    /// Bound already; the shards share its descriptor.
    Shared(Arc<SharedSocket>),
}

impl ListenAddress {
    /// The port as `/info` shows it: -1 for a unix socket.
    pub fn port(&self) -> i32 {
        let address = self.socket_address();
        address.map_or(-1, |address| i32::from(address.port()))
    }

    /// The IP address and the port; `None` for a unix socket.
    pub fn socket_address(&self) -> Option<SocketAddr> {
        match self {
            ListenAddress::Tcp(address) => Some(*address),
            ListenAddress::Shared(socket) => socket.address.as_socket(),
        }
    }
}

/// The text that log lines show.
impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Tcp(address) => write!(f, "{address}"),
            ListenAddress::Shared(socket) => f.write_str(&tcp_address::text(&socket.address)),
        }
    }
}

/// The addresses at which a broker listens.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// The address for NSQ clients.
    pub tcp: ListenAddress,
    /// The address for HTTP, if HTTP is served.
    pub http: Option<ListenAddress>,
    /// The address for HTTPS, if HTTPS is served.
    pub https: Option<ListenAddress>,
    /// The unix socket for NSQ clients beside `tcp`, if there is one.
    pub unix: Option<ListenAddress>,
    /// The unix socket for HTTP beside `http`, if there is one.
    pub http_unix: Option<ListenAddress>,
}

impl Addresses {
    /// Returns the addresses, each with the name of its protocol in the log.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, &ListenAddress)> {
        let tcp = self.of_nsq_clients().map(|address| ("TCP", address));
        let http = self.of_http_clients().map(|address| ("HTTP", address));
        let https = self.https.iter().map(|address| ("HTTPS", address));
        tcp.chain(http).chain(https)
    }

    /// Returns the addresses for NSQ clients.
    pub(crate) fn of_nsq_clients(&self) -> impl Iterator<Item = &ListenAddress> {
        iter::once(&self.tcp).chain(&self.unix)
    }

    /// Returns the addresses for HTTP without TLS.
    pub(crate) fn of_http_clients(&self) -> impl Iterator<Item = &ListenAddress> {
        self.http.iter().chain(&self.http_unix)
    }

    /// Returns the ports of the addresses.
    pub(crate) fn ports(&self) -> Ports {
        let port =
            |address: &Option<ListenAddress>| address.as_ref().map_or(0, ListenAddress::port);
        Ports {
            tcp: self.tcp.port(),
            http: port(&self.http),
            https: port(&self.https),
        }
    }

    /// Removes the files of unix sockets: they do not go away when the listeners' descriptors are closed.
    pub(crate) fn retire(&self) {
        for (_, address) in self.named() {
            if let ListenAddress::Shared(socket) = address {
                socket.remove_file();
            }
        }
    }
}

/// A socket that is listened on, and that every shard accepts from: a unix socket, because unix sockets have no
/// SO_REUSEPORT, or a socket that the process has inherited. Dropping the socket removes the file that nsqd made for it.
#[derive(Debug)]
pub struct SharedSocket {
    socket: Socket,
    address: SockAddr,
    /// The file of the socket, until it is removed.
    file: Mutex<Option<PathBuf>>,
}

impl SharedSocket {
    /// Takes over a socket that listens already. The file of a unix socket belongs to the process that made the socket.
    pub(crate) fn inherited(inherited: InheritedSocket) -> SharedSocket {
        SharedSocket {
            socket: inherited.socket,
            address: inherited.address,
            file: Mutex::default(),
        }
    }

    /// Binds a unix socket and listens on it. A path that begins with `@` is an abstract name, which has no file. For
    /// an empty path, the system makes such a name. The file that a dead process has left at the path is replaced.
    ///
    /// `mode` has the permissions of the file. `None` leaves them to the umask of the process.
    ///
    /// # Errors
    /// The system's answer. Any other file that exists is an error, and so is the socket of a living process.
    pub(crate) fn bind_unix(path: &str, mode: Option<u32>) -> io::Result<SharedSocket> {
        let abstract_name = path.strip_prefix('@');
        let address = match abstract_name {
            Some(name) => SockAddr::unix(Path::new(&format!("\0{name}"))),
            None => SockAddr::unix(Path::new(path)),
        };
        // The library refuses long names itself, in words of its own.
        let address = address.map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        let has_file = abstract_name.is_none() && !path.is_empty();
        let bound = match socket.bind(&address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && has_file => {
                remove_dead(path, &address, error).and_then(|()| socket.bind(&address))
            }
            bound => bound,
        };
        bound?;
        let socket = SharedSocket {
            address: socket.local_addr()?,
            socket,
            file: Mutex::new(has_file.then(|| PathBuf::from(path))),
        };
        // Nobody can connect to a socket that does not listen. So no client ever meets another mode than this one.
        if let Some(mode) = mode.filter(|_| has_file) {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        socket.socket.listen(LISTEN_BACKLOG)?;
        socket.socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// Another descriptor of it, for one shard.
    pub(crate) fn share(&self) -> io::Result<Socket> {
        self.socket.try_clone()
    }

    fn remove_file(&self) {
        let mut file = self.file.lock();
        if let Some(path) = file.take() {
            // Fails if somebody has removed the file already, which is as good.
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for SharedSocket {
    fn drop(&mut self) {
        self.remove_file();
    }
}

/// Removes the file at `path`, which is in the way, if it is the socket of a process that has ended.
///
/// A datagram socket finds this out. If a process has the file, the kernel refuses the connection because of its type,
/// and the process does not notice. That also holds for a socket that does not listen yet.
///
/// # Errors
/// `in_the_way`, if the file is no socket or if its process lives. Otherwise the system's answer to the removal.
fn remove_dead(path: &str, address: &SockAddr, in_the_way: io::Error) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let asked = Socket::new(Domain::UNIX, Type::DGRAM, None)?.connect(address);
    let is_refused = asked.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_socket && is_refused {
        fs::remove_file(path)
    } else {
        Err(in_the_way)
    }
}

/// The other side of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The peer's IP address and port.
    Ip(SocketAddr),
    /// The name of the peer's unix socket, or `@` if the socket has no name.
    Unix(String),
}

impl Peer {
    /// The peer of an accepted socket. An IPv4 peer of a dual-stack listener is shown as what it is.
    pub(crate) fn of(address: &SockAddr) -> Peer {
        match address.as_socket() {
            Some(peer) => Peer::Ip(SocketAddr::new(peer.ip().to_canonical(), peer.port())),
            None => Peer::Unix(tcp_address::text(address)),
        }
    }

    /// The IP address alone; empty for a unix socket.
    pub(crate) fn host(&self) -> String {
        match self {
            Peer::Ip(address) => address.ip().to_string(),
            Peer::Unix(_) => String::new(),
        }
    }
}

/// The text that log lines and statistics show.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Ip(address) => write!(f, "{address}"),
            Peer::Unix(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_socket_has_its_file_as_long_as_it_is_there() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("n.sock");
        let name = path.to_str().expect("the path is text");
        let socket = SharedSocket::bind_unix(name, Some(0o604)).expect("nothing is there yet");
        assert_eq!(tcp_address::text(&socket.address), name);
        let mode = fs::metadata(&path)
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o604);
        UnixStream::connect(&path).expect("it is listened on");
        let second = SharedSocket::bind_unix(name, None).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        UnixStream::connect(&path).expect("the failure has left it alone");
        let address = ListenAddress::Shared(Arc::new(socket));
        assert_eq!((address.port(), address.socket_address()), (-1, None));
        let addresses = Addresses {
            tcp: address,
            http: None,
            https: None,
            unix: None,
            http_unix: None,
        };
        addresses.retire();
        assert!(!path.exists());
        let next = UnixListener::bind(&path).expect("the name is free");
        drop(addresses);
        assert!(path.exists(), "the file of somebody else stays");
        drop(next);
    }

    #[test]
    fn only_the_file_of_a_dead_socket_is_replaced() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("n.sock");
        let name = path.to_str().expect("the path is text");
        let is_in_use = || {
            let refused = SharedSocket::bind_unix(name, None).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
            assert!(path.exists());
        };
        let bound = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        let address = SockAddr::unix(&path).expect("short enough");
        bound.bind(&address).expect("nothing is there yet");
        is_in_use();
        drop(bound);
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link can be made");
        SharedSocket::bind_unix(link.to_str().expect("text"), None).unwrap_err();
        assert!(
            path.exists() && link.exists(),
            "a link stays, and so does its target"
        );
        SharedSocket::bind_unix(name, None).expect("the owner has ended");
        fs::write(&path, "text").expect("the file is gone again");
        is_in_use();
    }

    #[test]
    fn abstract_names_have_no_file() {
        let own = format!("@ringq-test-{}", std::process::id());
        let socket = SharedSocket::bind_unix(&own, Some(0o600)).expect("the name is free");
        assert_eq!(tcp_address::text(&socket.address), own);
        let chosen = SharedSocket::bind_unix("", None).expect("the system finds a name");
        let chosen = tcp_address::text(&chosen.address);
        assert!(chosen.starts_with('@') && chosen.len() > 1, "{chosen}");
        let long = SharedSocket::bind_unix(&"x".repeat(108), None).unwrap_err();
        assert_eq!(long.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn peers_are_shown_as_in_nsqd() {
        let ip = SocketAddr::from(([127, 0, 0, 1], 5));
        let mapped: SocketAddr = "[::ffff:127.0.0.1]:5".parse().expect("an address");
        assert_eq!(Peer::of(&mapped.into()), Peer::Ip(ip));
        assert_eq!(Peer::Ip(ip).host(), "127.0.0.1");
        let unnamed = SockAddr::unix("").expect("short enough");
        let peer = Peer::of(&unnamed);
        assert_eq!((peer.to_string().as_str(), peer.host().as_str()), ("@", ""));
    }
}
