//! [`Peer`]: one nsqlookupd, over TCP. The connection is made when the nsqlookupd comes onto the list. After the
//! connection broke, the next command makes it again.

use super::address::Target;
use super::command::Command;
use super::inquiry::Source;
use super::link::{Link, TIMEOUT};
use super::registry::Registry;
use crate::config::Config;
use crate::process::Ports;
use nsq_http::host_port;
use program::version::NSQ_VERSION;
use program::{log_error, log_info, log_warn};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use upgrade::ClientConfig;
use wire::go_json::{self, integer, string, to_string};
use wire::json_object;

/// Commands that are sent before their answers are awaited. A node with many channels is registered at a
/// peer far away in a few round trips, and neither side's socket buffer can fill up.
const COMMANDS_TOGETHER: usize = 64;

/// The time after which the other peers have their turn.
const SLICE: Duration = Duration::from_millis(200);

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
    /// The commands that are still to be sent. A node with many channels has many at a new connection, and the other
    /// peers must not wait for a slow one.
    backlog: VecDeque<Command>,
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
            backlog: VecDeque::new(),
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
    /// not tried again: the next connection starts with everything. What does not fit into one exchange remains for
    /// [`Peer::go_on`].
    pub(super) fn tell(&mut self, node: &Node, registry: &Registry, commands: &[Command]) {
        if self.link.is_none()
            && let Err(cause) = self.connect(node, registry)
        {
            self.fail(&Failure::new(&commands[0], cause));
            return;
        }
        for command in commands {
            match command {
                // A peer that gets a long registration slowly must still hear that this node is alive.
                Command::Ping => self.backlog.push_front(Command::Ping),
                _ => self.backlog.push_back(command.clone()),
            }
        }
        self.go_on(node);
    }

    /// Returns true if commands are still to be sent.
    pub(super) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Sends further commands, and awaits their answers, for [`SLICE`]. The last exchange can end after that, within a
    /// second.
    pub(super) fn go_on(&mut self, node: &Node) {
        let end = Instant::now() + SLICE;
        loop {
            if let Err(failure) = self.exchange(node) {
                self.fail(&failure);
            }
            if self.backlog.is_empty() || Instant::now() >= end {
                return;
            }
        }
    }

    /// Connects, identifies this node and begins to register everything.
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
        self.backlog.clear();
        Err("lookupPeer connectCallback() failed".to_owned())
    }

    /// Identifies this node and begins to register everything. Returns false if that failed, which is logged.
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
        self.backlog = commands.into();
        match self.exchange(node) {
            Ok(()) => true,
            Err(failure) => {
                self.fail(&failure);
                false
            }
        }
    }

    fn exchange(&mut self, node: &Node) -> Result<(), Failure> {
        let count = self.backlog.len().min(COMMANDS_TOGETHER);
        let together: Vec<Command> = self.backlog.drain(..count).collect();
        let (Some(link), Some(first)) = (&mut self.link, together.first()) else {
            return Ok(());
        };
        let deadline = Instant::now() + TIMEOUT;
        let lines: String = together.iter().map(|line| format!("{line}\n")).collect();
        link.write(lines.as_bytes(), deadline)
            .map_err(|cause| Failure::new(first, cause))?;
        for command in &together {
            // The content does not matter: an nsqlookupd that refuses a command closes the connection.
            link.answer(node.answer_bytes_max, deadline)
                .map_err(|cause| Failure::new(command, cause))?;
        }
        Ok(())
    }

    fn fail(&mut self, failure: &Failure) {
        let Failure { command, cause } = failure;
        log_error!("LOOKUPD({}): {command} - {cause}", self.target.label);
        self.link = None;
        self.backlog.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
