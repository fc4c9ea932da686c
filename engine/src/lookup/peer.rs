//! [`Peer`]: one nsqlookupd, over TCP. The connection is made when the nsqlookupd comes onto the list. After the
//! connection broke, the next command makes it again.

use super::command::Command;
use super::registry::Registry;
use crate::config::Config;
use crate::process::Ports;
use program::tcp_address::split_host_port;
use program::version::NSQ_VERSION;
use program::{log_error, log_info};
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use upgrade::ClientConfig;
use upgrade::pki_types::ServerName;
use wire::go_error::system_text;
use wire::go_json::{self, JsonObject, integer, string};

/// The longest time in which a peer must accept a connection, or answer the commands that were sent.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Commands that are sent before their answers are awaited. A node with many channels is registered at a
/// peer far away in a few round trips, and neither side's socket buffer can fill up.
const COMMANDS_TOGETHER: usize = 64;

const MAGIC: &[u8] = b"  V1";

/// This node's description of itself.
pub(super) struct Node {
    identify: Vec<u8>,
    /// The most bytes of an answer.
    answer_bytes_max: usize,
    /// `None` stands for connections without TLS.
    tls: Option<Arc<ClientConfig>>,
}

/// A peer's description of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct PeerInfo {
    tcp_port: i64,
    http_port: i64,
    version: String,
    broadcast_address: String,
}

/// A peer's last description of itself, also while the peer is away. It has the address for questions over HTTP.
#[derive(Clone, Default)]
pub(super) struct SharedInfo(Arc<Mutex<Option<PeerInfo>>>);

impl SharedInfo {
    /// Returns the address at which the peer serves HTTP: `http://host:port`. `None` if the peer has not told it yet.
    pub(super) fn http_url(&self) -> Option<String> {
        let info = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        info.as_ref().and_then(PeerInfo::http_url)
    }

    fn set(&self, info: &PeerInfo) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(info.clone());
    }
}

/// One nsqlookupd.
pub(super) struct Peer {
    pub(super) address: String,
    info: SharedInfo,
    link: Option<Link>,
}

/// The command at which an exchange failed, and the cause, as text for the log.
struct Failure {
    command: String,
    cause: String,
}

impl Failure {
    fn new(command: &impl ToString, cause: String) -> Failure {
        Failure {
            command: command.to_string(),
            cause,
        }
    }
}

impl Node {
    pub(super) fn new(config: &Config, ports: Ports, tls: Option<Arc<ClientConfig>>) -> Node {
        let mut json = String::new();
        let mut object = JsonObject::new(&mut json);
        // Sorted, as Go writes a map.
        object.text("broadcast_address", &config.broadcast_address);
        object.text("hostname", &config.hostname);
        object.number("http_port", ports.http);
        object.number("tcp_port", ports.tcp);
        object.text("topology_region", &config.topology_region);
        object.text("topology_zone", &config.topology_zone);
        object.text("version", NSQ_VERSION);
        object.end();
        let mut identify = b"IDENTIFY\n".to_vec();
        identify.extend((json.len() as u32).to_be_bytes());
        identify.extend(json.as_bytes());
        Node {
            identify,
            answer_bytes_max: usize::try_from(config.body_bytes_max).unwrap_or(usize::MAX),
            tls,
        }
    }
}

impl PeerInfo {
    fn decode(answer: &[u8]) -> Result<PeerInfo, String> {
        let value = go_json::parse(answer)?;
        let Some(fields) = go_json::object(&value, "peerInfo")? else {
            return Ok(PeerInfo::default());
        };
        Ok(PeerInfo {
            tcp_port: integer(fields, "tcp_port")?,
            http_port: integer(fields, "http_port")?,
            version: string(fields, "version")?,
            broadcast_address: string(fields, "broadcast_address")?,
        })
    }

    /// Returns the address at which the peer serves HTTP. `None` if the peer does not tell it.
    fn http_url(&self) -> Option<String> {
        let (host, port) = (&self.broadcast_address, self.http_port);
        match host {
            host if host.is_empty() => None,
            host if host.contains(':') => Some(format!("http://[{host}]:{port}")),
            host => Some(format!("http://{host}:{port}")),
        }
    }
}

impl Peer {
    pub(super) fn new(address: String, info: SharedInfo) -> Peer {
        Peer {
            address,
            info,
            link: None,
        }
    }

    /// Returns whether this peer belongs to an entry of the list. An address that left the list and came back is
    /// another entry.
    pub(super) fn is_of(&self, address: &str, info: &SharedInfo) -> bool {
        self.address == address && Arc::ptr_eq(&self.info.0, &info.0)
    }

    /// Sends commands, one at least, and awaits their answers, connecting first if need be. What fails is logged and
    /// not tried again: the next connection starts with everything.
    pub(super) fn tell(&mut self, node: &Node, registry: &Registry, commands: &[Command]) {
        let mut told = Ok(());
        if self.link.is_none() {
            let connected = self.connect(node, registry);
            told = connected.map_err(|cause| Failure::new(&commands[0], cause));
        }
        if let Err(failure) = told.and_then(|()| self.exchange(node, commands)) {
            self.fail(&failure);
        }
    }

    /// Connects, identifies this node and registers everything.
    ///
    /// # Errors
    /// The text for the log, where it is not logged yet.
    pub(super) fn connect(&mut self, node: &Node, registry: &Registry) -> Result<(), String> {
        log_info!("LOOKUP connecting to {}", self.address);
        self.link = Some(Link::connect(&self.address, node.tls.as_ref())?);
        if self.introduce(node, registry) {
            return Ok(());
        }
        self.link = None;
        Err("lookupPeer connectCallback() failed".to_owned())
    }

    /// Identifies this node and registers everything. Returns false if that failed, which is logged.
    fn introduce(&mut self, node: &Node, registry: &Registry) -> bool {
        let Some(link) = &mut self.link else {
            return false;
        };
        let deadline = Instant::now() + TIMEOUT;
        let bytes = [MAGIC, &node.identify].concat();
        let answer = link
            .write(&bytes, deadline)
            .and_then(|()| link.answer(node.answer_bytes_max, deadline));
        let answer = match answer {
            Ok(answer) => answer,
            Err(cause) => {
                self.fail(&Failure::new(&"IDENTIFY", cause));
                return false;
            }
        };
        let address = &self.address;
        if answer == b"E_INVALID" {
            log_info!("LOOKUPD({address}): lookupd returned E_INVALID");
            return false;
        }
        let Ok(info) = PeerInfo::decode(&answer) else {
            let answer = String::from_utf8_lossy(&answer);
            log_error!("LOOKUPD({address}): parsing response - {answer}");
            return false;
        };
        self.info.set(&info);
        log_info!(
            "LOOKUPD({address}): peer info {{TCPPort:{} HTTPPort:{} Version:{} BroadcastAddress:{}}}",
            info.tcp_port,
            info.http_port,
            info.version,
            info.broadcast_address
        );
        if info.broadcast_address.is_empty() {
            log_error!("LOOKUPD({address}): no broadcast address");
        }
        let commands = registry.commands();
        for command in &commands {
            log_info!("LOOKUPD({address}): {command}");
        }
        match self.exchange(node, &commands) {
            Ok(()) => true,
            Err(failure) => {
                self.fail(&failure);
                false
            }
        }
    }

    fn exchange(&mut self, node: &Node, commands: &[Command]) -> Result<(), Failure> {
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        for together in commands.chunks(COMMANDS_TOGETHER) {
            let deadline = Instant::now() + TIMEOUT;
            let lines: String = together.iter().map(|line| format!("{line}\n")).collect();
            link.write(lines.as_bytes(), deadline)
                .map_err(|cause| Failure::new(&together[0], cause))?;
            for command in together {
                // The content does not matter: an nsqlookupd that refuses a command closes the connection.
                link.answer(node.answer_bytes_max, deadline)
                    .map_err(|cause| Failure::new(command, cause))?;
            }
        }
        Ok(())
    }

    fn fail(&mut self, failure: &Failure) {
        let Failure { command, cause } = failure;
        log_error!("LOOKUPD({}): {command} - {cause}", self.address);
        self.link = None;
    }
}

/// One connection.
struct Link {
    stream: Stream,
    /// Read, but not yet taken as an answer.
    input: Vec<u8>,
}

impl Link {
    fn connect(address: &str, tls: Option<&Arc<ClientConfig>>) -> Result<Link, String> {
        let fail = |error: io::Error| format!("dial tcp {address}: {}", cause(&error));
        let deadline = Instant::now() + TIMEOUT;
        let mut result = Err(ErrorKind::AddrNotAvailable.into());
        for address in address.to_socket_addrs().map_err(fail)? {
            result = remaining(deadline)
                .and_then(|timeout| TcpStream::connect_timeout(&address, timeout));
            if result.is_ok() {
                break;
            }
        }
        let stream =
            result.map_err(|error| format!("dial tcp {address}: connect: {}", cause(&error)))?;
        stream.set_nodelay(true).map_err(fail)?;
        let stream = match tls {
            None => Stream::Plain(stream),
            Some(config) => Stream::secure(stream, address, config)
                .map_err(|why| format!("dial tcp {address}: tls: {why}"))?,
        };
        Ok(Link {
            stream,
            input: Vec::new(),
        })
    }

    fn write(&mut self, bytes: &[u8], deadline: Instant) -> Result<(), String> {
        remaining(deadline)
            .and_then(|timeout| self.stream.set_timeouts(timeout))
            .and_then(|()| self.stream.write_all(bytes))
            .and_then(|()| self.stream.flush())
            .map_err(|error| self.text("write", &error))
    }

    /// The next answer, without its length.
    fn answer(&mut self, bytes_max: usize, deadline: Instant) -> Result<Vec<u8>, String> {
        loop {
            if let Some(answer) = take_answer(&mut self.input, bytes_max)? {
                return Ok(answer);
            }
            let mut buffer = [0; 4096];
            let bytes = remaining(deadline)
                .and_then(|timeout| self.stream.set_timeouts(timeout))
                .and_then(|()| self.stream.read(&mut buffer))
                .map_err(|error| self.text("read", &error))?;
            if bytes == 0 {
                return Err("EOF".to_owned());
            }
            self.input.extend_from_slice(&buffer[..bytes]);
        }
    }

    /// In Go's words.
    fn text(&self, verb: &str, error: &io::Error) -> String {
        let show = |address: io::Result<std::net::SocketAddr>| {
            address.map_or("?".to_owned(), |address| address.to_string())
        };
        let socket = self.stream.socket();
        let (local, peer) = (socket.local_addr(), socket.peer_addr());
        let (local, peer) = (show(local), show(peer));
        format!("{verb} tcp {local}->{peer}: {}", cause(error))
    }
}

/// The stream of a connection. The handshake of TLS is part of the first exchange.
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn secure(
        socket: TcpStream,
        address: &str,
        config: &Arc<ClientConfig>,
    ) -> Result<Stream, String> {
        let (host, _) = split_host_port(address).ok_or("missing port in address")?;
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let client =
            ClientConnection::new(config.clone(), name).map_err(|error| error.to_string())?;
        Ok(Stream::Tls(Box::new(StreamOwned::new(client, socket))))
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => &stream.sock,
        }
    }

    /// Sets both timeouts: a write of TLS may have to read.
    fn set_timeouts(&self, timeout: Duration) -> io::Result<()> {
        self.socket().set_read_timeout(Some(timeout))?;
        self.socket().set_write_timeout(Some(timeout))
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

/// Takes an answer off the front of `input`, once it is complete.
fn take_answer(input: &mut Vec<u8>, bytes_max: usize) -> Result<Option<Vec<u8>>, String> {
    let Some(size) = input.first_chunk() else {
        return Ok(None);
    };
    let size = i32::from_be_bytes(*size);
    let Ok(bytes) = usize::try_from(size) else {
        return Err(format!("response body size ({size}) is negative"));
    };
    if bytes > bytes_max {
        return Err(format!(
            "response body size ({size}) is greater than limit ({bytes_max})"
        ));
    }
    if input.len() < 4 + bytes {
        return Ok(None);
    }
    let rest = input.split_off(4 + bytes);
    let mut answer = std::mem::replace(input, rest);
    answer.drain(..4);
    Ok(Some(answer))
}

fn remaining(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

fn cause(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "i/o timeout".to_owned(),
        _ => system_text(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_whole_and_within_bounds() {
        let take = |bytes: &[u8]| {
            let mut input = bytes.to_vec();
            take_answer(&mut input, 10).map(|answer| (answer, input))
        };
        assert_eq!(take(b"\0\0"), Ok((None, b"\0\0".to_vec())));
        assert_eq!(take(b"\0\0\0\x02O"), Ok((None, b"\0\0\0\x02O".to_vec())));
        let both = b"\0\0\0\x02OK\0\0\0\0";
        assert_eq!(take(both), Ok((Some(b"OK".to_vec()), b"\0\0\0\0".to_vec())));
        assert_eq!(take(b"\0\0\0\0"), Ok((Some(Vec::new()), Vec::new())));
        assert_eq!(
            take(b"HTTP/1.1 400"),
            Err("response body size (1213486160) is greater than limit (10)".to_owned())
        );
        assert_eq!(
            take(b"\xff\xff\xff\xff"),
            Err("response body size (-1) is negative".to_owned())
        );
    }

    #[test]
    fn a_peer_says_where_it_serves_http() {
        let url = |json: &str| PeerInfo::decode(json.as_bytes()).map(|info| info.http_url());
        let some = |url: &str| Ok(Some(url.to_owned()));
        assert_eq!(
            url(r#"{"broadcast_address":"lk","HTTP_PORT":4161,"new":[]}"#),
            some("http://lk:4161")
        );
        assert_eq!(
            url(r#"{"broadcast_address":"::1","http_port":1}"#),
            some("http://[::1]:1")
        );
        assert_eq!(url("{}"), Ok(None));
        assert_eq!(url("null"), Ok(None));
        for answer in [
            "OK",
            "",
            "E_BAD_BODY IDENTIFY missing fields",
            r#"{"tcp_port":"1"}"#,
        ] {
            assert!(url(answer).is_err(), "{answer}");
        }
    }
}
