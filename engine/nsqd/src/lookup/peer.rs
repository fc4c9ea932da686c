//! [`Peer`]: one nsqlookupd, over TCP, with or without TLS. The connection is made when the nsqlookupd comes onto the
//! list. After the connection broke, the next command makes it again.

use super::directory::Target;
use super::inquiry::Source;
use super::registry::{Command, Registry};
use crate::config::Config;
use crate::process::Ports;
use nsq_http::host_port;
use program::version::NSQ_VERSION;
use program::{log_error, log_info, log_warn};
use std::fmt::Display;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use upgrade::{ClientConfig, ClientStream};
use wire::go_error::system_text;
use wire::go_json::{self, integer, string, to_string};
use wire::json_object;

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
    /// Zero stands for no HTTPS. Only ringq's nsqlookupd tells this port.
    https_port: i64,
    version: String,
    broadcast_address: String,
}

/// One nsqlookupd.
pub(super) struct Peer {
    pub(super) target: Target,
    /// The address for questions over HTTP, also while the peer is away.
    pub(super) source: Source,
    link: Option<Link>,
}

impl Node {
    pub(super) fn new(config: &Config, ports: Ports, tls: Option<Arc<ClientConfig>>) -> Node {
        // Sorted, as Go writes a map.
        let json = to_string(&json_object! {
            broadcast_address: &config.broadcast_address,
            hostname: config.options.hostname(),
            http_port: ports.http,
            tcp_port: ports.tcp,
            topology_region: &config.topology_region,
            topology_zone: &config.topology_zone,
            version: NSQ_VERSION,
        });
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
            https_port: integer(fields, "https_port")?,
            version: string(fields, "version")?,
            broadcast_address: string(fields, "broadcast_address")?,
        })
    }

    /// Returns the URL for questions: `http://host:port`. `prefers_https` takes HTTPS if the peer has it. `None` if the
    /// peer does not tell its address.
    fn url(&self, prefers_https: bool) -> Option<String> {
        let (scheme, port) = if prefers_https && self.https_port != 0 {
            ("https", self.https_port)
        } else {
            ("http", self.http_port)
        };
        let address = host_port(&self.broadcast_address, port);
        (!self.broadcast_address.is_empty()).then(|| format!("{scheme}://{address}"))
    }
}

impl Peer {
    pub(super) fn new(target: Target) -> Peer {
        Peer {
            target,
            source: Source::default(),
            link: None,
        }
    }

    /// Returns true if this peer is the nsqlookupd of `target`. A peer is the nsqlookupd that it is connected to.
    pub(super) fn is_at(&self, target: &Target) -> bool {
        match &self.link {
            Some(link) => target.addresses.contains(&link.address),
            None => target.overlaps(&self.target),
        }
    }

    /// Returns this peer with what is known about its addresses now.
    pub(super) fn renamed(self, target: Target) -> Peer {
        Peer { target, ..self }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    /// Sends commands, one at least, and awaits their answers, connecting first if need be. What fails is logged and
    /// not tried again: the next connection starts with everything.
    pub(super) fn tell(&mut self, node: &Node, registry: &Registry, commands: &[Command]) {
        if self.link.is_none()
            && let Err(cause) = self.connect(node, registry)
        {
            self.fail(&commands[0], &cause);
            return;
        }
        self.exchange(node, commands);
    }

    /// Connects, identifies this node and registers everything.
    ///
    /// # Errors
    /// The text for the log, where it is not logged yet.
    pub(super) fn connect(&mut self, node: &Node, registry: &Registry) -> Result<(), String> {
        log_info!("LOOKUP connecting to {}", self.target.label);
        self.link = Some(Link::connect(&self.target, node.tls.as_ref())?);
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
                self.fail(&"IDENTIFY", &cause);
                return false;
            }
        };
        let address = &self.target.label;
        if answer == b"E_INVALID" {
            log_info!("LOOKUPD({address}): lookupd returned E_INVALID");
            return false;
        }
        if answer.ends_with(b"E_BAD_PROTOCOL") {
            log_error!(
                "LOOKUPD({address}): IDENTIFY - it answers E_BAD_PROTOCOL, as an nsqd does: the address must be \
                 nsqlookupd's --tcp-address (by default port 4160)"
            );
            return false;
        }
        let Ok(info) = PeerInfo::decode(&answer) else {
            let answer = String::from_utf8_lossy(&answer);
            log_error!("LOOKUPD({address}): parsing response - {answer}");
            return false;
        };
        self.source.set_url(info.url(node.tls.is_some()));
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
        if node.tls.is_some() && info.https_port == 0 {
            log_warn!(
                "LOOKUPD({address}): tells no HTTPS port, so it is asked for the channels of new topics over HTTP \
                 without TLS; start it with --https-address, which needs ringq's nsqlookupd"
            );
        }
        let commands = registry.commands();
        for command in &commands {
            log_info!("LOOKUPD({address}): {command}");
        }
        self.exchange(node, &commands)
    }

    /// Sends commands, and awaits their answers. Returns false if that failed, which is logged.
    fn exchange(&mut self, node: &Node, commands: &[Command]) -> bool {
        for together in commands.chunks(COMMANDS_TOGETHER) {
            if let Err((command, cause)) = self.exchange_together(node, together) {
                self.fail(command, &cause);
                return false;
            }
        }
        true
    }

    /// The error is the command whose answer is missing, and the text for the log.
    fn exchange_together<'c>(
        &mut self,
        node: &Node,
        together: &'c [Command],
    ) -> Result<(), (&'c Command, String)> {
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        let deadline = Instant::now() + TIMEOUT;
        let lines: String = together.iter().map(|line| format!("{line}\n")).collect();
        let written = link.write(lines.as_bytes(), deadline);
        written.map_err(|cause| (&together[0], cause))?;
        // The content of an answer does not matter: an nsqlookupd that refuses a command closes the connection.
        for command in together {
            let answer = link.answer(node.answer_bytes_max, deadline);
            answer.map_err(|cause| (command, cause))?;
        }
        Ok(())
    }

    fn fail(&mut self, command: &impl Display, cause: &str) {
        log_error!("LOOKUPD({}): {command} - {cause}", self.target.label);
        self.link = None;
    }
}

/// Connects to an nsqlookupd and waits for the answer to a PING. The connection registers nothing.
///
/// # Errors
/// What fails.
pub(super) fn try_out(target: &Target, tls: Option<&Arc<ClientConfig>>) -> Result<(), String> {
    const ANSWER_BYTES_MAX: usize = 1024;
    let deadline = Instant::now() + TIMEOUT;
    let mut link = Link::connect(target, tls)?;
    link.write(&[MAGIC, b"PING\n"].concat(), deadline)?;
    let answer = link.answer(ANSWER_BYTES_MAX, deadline)?;
    if answer == b"OK" {
        return Ok(());
    }
    let answer = String::from_utf8_lossy(&answer);
    Err(format!(
        "answers {answer:?}: the address must be nsqlookupd's --tcp-address (by default port 4160)"
    ))
}

/// A connection to an nsqlookupd.
struct Link {
    /// The peer's IP address.
    address: SocketAddr,
    stream: BufReader<Box<dyn Stream>>,
}

impl Link {
    /// Connects to the first IP address of an nsqlookupd that accepts.
    ///
    /// # Errors
    /// The text for the log.
    fn connect(target: &Target, tls: Option<&Arc<ClientConfig>>) -> Result<Link, String> {
        let fail = |why: &str| format!("dial tcp {}: {why}", target.label);
        let deadline = Instant::now() + TIMEOUT;
        let mut result = Err(ErrorKind::AddrNotAvailable.into());
        for (index, address) in target.addresses.iter().enumerate() {
            // An address that never answers leaves the others their part of the time.
            let left = u32::try_from(target.addresses.len() - index).unwrap_or(u32::MAX);
            result = remaining(deadline)
                .and_then(|time| TcpStream::connect_timeout(address, time / left))
                .map(|stream| (*address, stream));
            if result.is_ok() {
                break;
            }
        }
        let (address, stream) =
            result.map_err(|error| fail(&format!("connect: {}", cause(&error))))?;
        stream
            .set_nodelay(true)
            .map_err(|error| fail(&cause(&error)))?;
        let socket = Timed {
            socket: stream,
            deadline,
        };
        let stream: Box<dyn Stream> = match tls {
            None => Box::new(socket),
            Some(config) => {
                let client = ClientStream::new(config.clone(), &target.host, socket);
                Box::new(client.map_err(|why| fail(&format!("tls: {why}")))?)
            }
        };
        let stream = BufReader::new(stream);
        Ok(Link { address, stream })
    }

    /// Sends bytes before the deadline.
    ///
    /// # Errors
    /// The text for the log.
    fn write(&mut self, bytes: &[u8], deadline: Instant) -> Result<(), String> {
        let stream = self.stream.get_mut();
        stream.timed().deadline = deadline;
        let written = stream.write_all(bytes).and_then(|()| stream.flush());
        written.map_err(|error| self.text("write", &error))
    }

    /// Returns the next answer, without its length.
    ///
    /// # Errors
    /// The text for the log: the connection is broken, or the answer has more than `bytes_max` bytes.
    fn answer(&mut self, bytes_max: usize, deadline: Instant) -> Result<Vec<u8>, String> {
        self.stream.get_mut().timed().deadline = deadline;
        let mut size = [0; 4];
        self.read(&mut size)?;
        let mut answer = vec![0; answer_bytes(size, bytes_max)?];
        self.read(&mut answer)?;
        Ok(answer)
    }

    fn read(&mut self, room: &mut [u8]) -> Result<(), String> {
        let read = self.stream.read_exact(room);
        read.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => "EOF".to_owned(),
            _ => self.text("read", &error),
        })
    }

    /// In Go's words.
    fn text(&mut self, verb: &str, error: &io::Error) -> String {
        let show = |address: io::Result<SocketAddr>| {
            address.map_or("?".to_owned(), |address| address.to_string())
        };
        let socket = &self.stream.get_mut().timed().socket;
        let (local, peer) = (socket.local_addr(), socket.peer_addr());
        let (local, peer) = (show(local), show(peer));
        format!("{verb} tcp {local}->{peer}: {}", cause(error))
    }
}

/// A socket whose reads and writes end at a deadline. A read or write of TLS can be many of them.
struct Timed {
    socket: TcpStream,
    deadline: Instant,
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let timeout = remaining(self.deadline)?;
        self.socket.set_read_timeout(Some(timeout))?;
        self.socket.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let timeout = remaining(self.deadline)?;
        self.socket.set_write_timeout(Some(timeout))?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// The stream of a connection. The handshake of TLS is part of the first exchange.
trait Stream: Read + Write + Send {
    fn timed(&mut self) -> &mut Timed;
}

impl Stream for Timed {
    fn timed(&mut self) -> &mut Timed {
        self
    }
}

impl Stream for ClientStream<Timed> {
    fn timed(&mut self) -> &mut Timed {
        self.below()
    }
}

/// Returns the length of an answer that begins with its size.
fn answer_bytes(size: [u8; 4], bytes_max: usize) -> Result<usize, String> {
    if size == *b"HTTP" {
        return Err(
            "it answers in HTTP: the address must be nsqlookupd's --tcp-address (by default port 4160)".to_owned(),
        );
    }
    let size = i32::from_be_bytes(size);
    let bytes = usize::try_from(size);
    let bytes = bytes.map_err(|_| format!("response body size ({size}) is negative"))?;
    if bytes > bytes_max {
        return Err(format!(
            "response body size ({size}) is greater than limit ({bytes_max})"
        ));
    }
    Ok(bytes)
}

fn remaining(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(ErrorKind::TimedOut.into())
    } else {
        Ok(left)
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
    use std::net::TcpListener;
    use upgrade::{ClientTls, client_config};

    #[test]
    fn a_peer_says_where_it_serves_http() {
        let url = |json: &str| PeerInfo::decode(json.as_bytes()).map(|info| info.url(true));
        let some = |url: &str| Ok(Some(url.to_owned()));
        assert_eq!(
            url(r#"{"broadcast_address":"lk","HTTP_PORT":4161,"new":[]}"#),
            some("http://lk:4161")
        );
        assert_eq!(
            url(r#"{"broadcast_address":"::1","http_port":1}"#),
            some("http://[::1]:1")
        );
        let both = r#"{"broadcast_address":"lk","http_port":1,"https_port":2}"#;
        assert_eq!(url(both), some("https://lk:2"));
        let info = PeerInfo::decode(both.as_bytes()).expect("it is JSON");
        assert_eq!(info.url(false), Some("http://lk:1".to_owned()));
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

    #[test]
    fn answers_are_taken_whole_and_within_bounds() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let target = Target::ip("lk", address);
        let take = |bytes: &[u8]| {
            let mut link = Link::connect(&target, None).expect("it listens");
            let (mut peer, _) = listener.accept().expect("a connection");
            peer.write_all(bytes).expect("sent");
            drop(peer);
            let deadline = Instant::now() + TIMEOUT;
            let mut answers = Vec::new();
            loop {
                match link.answer(10, deadline) {
                    Ok(answer) => answers.push(answer),
                    Err(why) => return (answers, why),
                }
            }
        };
        let end = |answers: &[&[u8]]| {
            let answers: Vec<Vec<u8>> = answers.iter().map(|answer| answer.to_vec()).collect();
            (answers, "EOF".to_owned())
        };
        assert_eq!(take(b"\0\0"), end(&[]));
        assert_eq!(take(b"\0\0\0\x02O"), end(&[]));
        assert_eq!(take(b"\0\0\0\x02OK\0\0\0\0"), end(&[b"OK", b""]));
        let refused = |bytes: &[u8], why: &str| {
            assert_eq!(take(bytes), (Vec::new(), why.to_owned()));
        };
        refused(
            b"HTTP/1.1 400",
            "it answers in HTTP: the address must be nsqlookupd's --tcp-address (by default port 4160)",
        );
        refused(
            b"\0\0\0\x0b",
            "response body size (11) is greater than limit (10)",
        );
        refused(b"\xff\xff\xff\xff", "response body size (-1) is negative");
    }

    /// Each byte came before the timeout of its read, so a peer could keep the thread for hours.
    #[test]
    fn a_peer_that_sends_tls_byte_by_byte_is_left_at_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            // The head of a record of TLS that never ends.
            let head = [0x16, 3, 3, 0x3f, 0xff];
            for byte in head.into_iter().chain(std::iter::repeat(0)) {
                if stream.write_all(&[byte]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let config = client_config(&ClientTls {
            authorities: None,
            cert_and_key: None,
            only_tls13: false,
        });
        let target = Target::ip("peer", address);
        let config = config.expect("no file is named");
        let mut link = Link::connect(&target, Some(&config)).expect("it listens");
        let started = Instant::now();
        let deadline = started + Duration::from_millis(200);
        let done = link
            .write(b"PING\n", deadline)
            .and_then(|()| link.answer(10, deadline));
        let error = done.expect_err("the handshake does not end");
        assert!(error.ends_with("i/o timeout"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
