//! [`Target`]: the daemon under test, and how it is found.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde::Deserialize;
use wire::encode::{self, FrameDecoded, decode_frame};
use wire::frame::FrameType;

use crate::generator::identify_json;
use crate::http::call;
use crate::machine::process::Process;
use crate::result::Daemon;

/// Longest wait for a connection and for an answer.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// The daemon under test: its addresses, its process, and what it said about itself.
#[derive(Clone, Debug)]
pub struct Target {
    /// The daemon's TCP address.
    pub tcp: SocketAddr,
    /// The daemon's HTTP address; `None` when it has none or none is to be used.
    pub http: Option<SocketAddr>,
    /// The daemon's process; `None` when it is remote or unknown.
    pub process: Option<Process>,
    /// The daemon's name and version.
    pub daemon: Daemon,
    /// The largest ready count that the daemon accepts, if it said so.
    pub rdy_max: Option<u64>,
    /// The daemon's default message timeout, if it said so.
    pub msg_timeout: Option<Duration>,
}

/// The part of an IDENTIFY answer that is of interest.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Identity {
    version: String,
    max_rdy_count: Option<u64>,
    msg_timeout: Option<u64>,
    nsq_bench_sink: bool,
}

impl Target {
    /// Connects once, identifies, and finds out what the daemon is.
    /// Fails when nothing answers, or the answer is not NSQ's; in words for the user.
    pub fn inspect(
        tcp: SocketAddr,
        http: Option<SocketAddr>,
        pid: Option<u32>,
    ) -> Result<Target, String> {
        let identity = greet(tcp).map_err(|error| format!("no daemon at {tcp}: {error}"))?;
        if let Some(http) = http {
            call(http, "GET", "/ping").map_err(|error| {
                format!(
                    "the HTTP address does not answer ({error}); give --http-address, or `none`"
                )
            })?;
        }
        let process = pid.map(|pid| Process { pid });
        let process = process.or_else(|| Process::listening_at(tcp));
        Ok(Target {
            tcp,
            http,
            process: process.filter(|process| process.usage().is_some()),
            daemon: Daemon {
                kind: if identity.nsq_bench_sink {
                    "sink"
                } else {
                    "nsqd"
                }
                .into(),
                version: identity.version,
                tcp_address: tcp.to_string(),
                command: None,
            },
            rdy_max: identity.max_rdy_count,
            msg_timeout: identity.msg_timeout.map(Duration::from_millis),
        })
    }
}

/// Connects, sends IDENTIFY, reads the answer.
fn greet(tcp: SocketAddr) -> Result<Identity, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect_timeout(&tcp, LOOK_TIMEOUT).map_err(text)?;
    stream.set_read_timeout(Some(LOOK_TIMEOUT)).map_err(text)?;
    let mut out = wire::decode::MAGIC_V2.to_vec();
    encode::identify(&mut out, identify_json(0, 0).to_string().as_bytes());
    stream.write_all(&out).map_err(text)?;
    let mut input = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match decode_frame(&input) {
            FrameDecoded::Frame {
                kind: FrameType::Response,
                data,
                ..
            } => return Ok(serde_json::from_slice(data).unwrap_or_default()),
            FrameDecoded::Frame { data, .. } => {
                return Err(format!("it answers {}", String::from_utf8_lossy(data)));
            }
            FrameDecoded::NeedMore(bytes) if bytes <= 1 << 20 => {}
            FrameDecoded::NeedMore(_) | FrameDecoded::Bad => {
                return Err("it does not speak NSQ".into());
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) => return Err("it closes the connection".into()),
            Ok(bytes) => input.extend_from_slice(&chunk[..bytes]),
            Err(error) => return Err(format!("it does not answer: {error}")),
        }
    }
}

/// Reads an address written as `host:port`, and resolves the name.
/// Fails when the text is no address, or the name is unknown; in words for the user.
pub fn resolve(text: &str) -> Result<SocketAddr, String> {
    let mut found = text
        .to_socket_addrs()
        .map_err(|error| format!("`{text}` is no address such as 127.0.0.1:4150: {error}"))?;
    found
        .next()
        .ok_or_else(|| format!("`{text}` has no address"))
}
