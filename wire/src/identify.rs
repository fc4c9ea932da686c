//! IDENTIFY: the client's request, the broker's offer and the settings that result.
//!
//! ```text
//!   body -> IdentifyRequest --+
//!           ServerSettings ---+--> negotiate --> ClientSettings, Response
//!           ClientSettings ---+
//! ```

mod request;

use std::fmt;
use std::time::Duration;

use crate::error::{ErrorCode, WireError};
use crate::go_json::to_string;
use crate::json_object;
use crate::origin;

/// Heartbeat interval of a client that asks for none. nsqd: half of its 60 s client timeout.
const HEARTBEAT_DEFAULT: Duration = Duration::from_secs(30);
/// Output buffer of a client that asks for none, in bytes.
const OUTPUT_BUFFER_BYTES_DEFAULT: usize = 16 * 1024;
/// Shortest heartbeat interval and message timeout a client may ask for, in milliseconds.
const INTERVAL_MS_MIN: i64 = 1000;
/// Smallest output buffer a client may ask for, in bytes; `-1` asks for none.
const OUTPUT_BUFFER_BYTES_MIN: i64 = 64;
/// Largest sample rate, in percent. 0 stands for all messages.
const SAMPLE_RATE_MAX: i32 = 99;
/// Deflate level of a client that asks for none.
const DEFLATE_LEVEL_DEFAULT: i64 = 6;
/// The value in a request that switches a feature off.
const OFF: i64 = -1;
/// The value in a request that keeps the present setting.
const KEEP: i64 = 0;

/// The body of an IDENTIFY. The numbers are as the client wrote them: no range has been checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentifyRequest {
    /// The client's name for itself.
    pub client_id: String,
    /// The client's host.
    pub hostname: String,
    /// The client's library and version.
    pub user_agent: String,
    /// True when the client wants a JSON answer and upgrades. Without it the next three are
    /// ignored.
    pub feature_negotiation: bool,
    /// True when the client wants TLS.
    pub tls_v1: bool,
    /// True when the client wants snappy compression.
    pub snappy: bool,
    /// True when the client wants deflate compression.
    pub deflate: bool,
    /// Milliseconds between heartbeats. 0 keeps the setting, -1 switches heartbeats off.
    pub heartbeat_interval: i64,
    /// Milliseconds a message may wait in the output buffer. 0 keeps the setting, -1 means without
    /// end.
    pub output_buffer_timeout: i64,
    /// Bytes to collect before a write. 0 keeps the setting, -1 switches the buffer off.
    pub output_buffer_size: i64,
    /// Milliseconds from delivery until a message times out. 0 keeps the setting.
    pub msg_timeout: i64,
    /// Deflate level, 1 to 9. 0 or less means 6.
    pub deflate_level: i64,
    /// Percentage of messages to deliver. 0 means all.
    pub sample_rate: i32,
    /// The client's region.
    pub topology_region: String,
    /// The client's zone.
    pub topology_zone: String,
    /// True when the client wants to requeue messages without counting an attempt
    /// ([`crate::encode::req_uncounted`]). nsqd does not know this key.
    pub req_uncounted: bool,
    /// The id of the publisher in hexadecimal digits, of a client that numbers its messages
    /// ([`crate::origin`]). Empty for any other client. nsqd does not know this key.
    pub publisher_id: String,
}

impl IdentifyRequest {
    /// Parses the body of an IDENTIFY, a JSON object or `null`, with Go's leniency.
    ///
    /// # Errors
    /// `E_BAD_BODY` for a body that Go does not decode either.
    pub fn decode(body: &[u8]) -> Result<IdentifyRequest, WireError> {
        request::decode(body).map_err(|_| bad_body("failed to decode JSON body"))
    }
}

/// Displays the request as Go prints the struct with `%+v`. nsqd logs this text.
impl fmt::Display for IdentifyRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{ClientID:{}", self.client_id)?;
        write!(f, " Hostname:{}", self.hostname)?;
        write!(f, " HeartbeatInterval:{}", self.heartbeat_interval)?;
        write!(f, " OutputBufferSize:{}", self.output_buffer_size)?;
        write!(f, " OutputBufferTimeout:{}", self.output_buffer_timeout)?;
        write!(f, " FeatureNegotiation:{}", self.feature_negotiation)?;
        write!(f, " TLSv1:{} Deflate:{}", self.tls_v1, self.deflate)?;
        write!(f, " DeflateLevel:{}", self.deflate_level)?;
        write!(f, " Snappy:{}", self.snappy)?;
        write!(f, " SampleRate:{}", self.sample_rate)?;
        write!(f, " UserAgent:{}", self.user_agent)?;
        write!(f, " MsgTimeout:{}", self.msg_timeout)?;
        write!(f, " TopologyRegion:{}", self.topology_region)?;
        write!(f, " TopologyZone:{}}}", self.topology_zone)
    }
}

/// The broker's offer and limits. [`Default`] gives nsqd's defaults, without upgrades.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// The version in the answer.
    pub version: String,
    /// `--max-rdy-count`, in messages.
    pub max_rdy_count: i64,
    /// `--msg-timeout`: the message timeout of a client that asks for none.
    pub msg_timeout: Duration,
    /// `--max-msg-timeout`: the longest message timeout a client may ask for.
    pub msg_timeout_max: Duration,
    /// `--max-heartbeat-interval`: the longest interval a client may ask for.
    pub heartbeat_interval_max: Duration,
    /// `--output-buffer-timeout`: the timeout of a client that asks for none. Zero means without
    /// end.
    pub output_buffer_timeout: Duration,
    /// `--min-output-buffer-timeout`: the shortest timeout a client may ask for.
    pub output_buffer_timeout_min: Duration,
    /// `--max-output-buffer-timeout`: the longest timeout a client may ask for.
    pub output_buffer_timeout_max: Duration,
    /// `--max-output-buffer-size`: the largest buffer a client may ask for, in bytes.
    pub output_buffer_size_max: i64,
    /// `--max-deflate-level`.
    pub deflate_level_max: i64,
    /// True when the connection can start TLS.
    pub tls_available: bool,
    /// True when the connection can start snappy.
    pub snappy_available: bool,
    /// True when the connection can start deflate.
    pub deflate_available: bool,
    /// True when a client without TLS may send only IDENTIFY.
    pub tls_required: bool,
    /// True when an auth server is configured.
    pub auth_required: bool,
    /// True when some topic recognises messages that a publisher sends again by their numbers.
    pub takes_numbers: bool,
    /// `--topology-region`.
    pub topology_region: String,
    /// `--topology-zone`.
    pub topology_zone: String,
}

impl Default for ServerSettings {
    fn default() -> ServerSettings {
        ServerSettings {
            version: "1.3.0".to_owned(),
            max_rdy_count: 2500,
            msg_timeout: Duration::from_secs(60),
            msg_timeout_max: Duration::from_secs(15 * 60),
            heartbeat_interval_max: Duration::from_secs(60),
            output_buffer_timeout: Duration::from_millis(250),
            output_buffer_timeout_min: Duration::from_millis(25),
            output_buffer_timeout_max: Duration::from_secs(30),
            output_buffer_size_max: 64 * 1024,
            deflate_level_max: 6,
            // `--snappy` and `--deflate` default to true, but only a caller that can carry out an
            // upgrade offers it: a broker that announces an upgrade and continues in plain text
            // breaks the client's stream.
            tls_available: false,
            snappy_available: false,
            deflate_available: false,
            tls_required: false,
            auth_required: false,
            takes_numbers: false,
            topology_region: String::new(),
            topology_zone: String::new(),
        }
    }
}

/// The settings of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// Time between heartbeats. `None` means no heartbeats and no deadlines.
    pub heartbeat: Option<Duration>,
    /// Longest time a message may wait in the output buffer. `None` means that the time has no
    /// limit, or that there is no buffer.
    pub output_buffer_timeout: Option<Duration>,
    /// Bytes of output to collect before a write. 1 means that every write is sent at once.
    pub output_buffer_size: usize,
    /// Percentage of messages to deliver, 0 to 99. 0 means all.
    pub sample_rate: u8,
    /// Time from delivery until a message times out.
    pub msg_timeout: Duration,
    /// True when a REQ of this client may say that it does not count as an attempt.
    pub req_uncounted: bool,
    /// The id of the publisher, if each publish of this client has the number of its first message.
    pub publisher_id: Option<u64>,
}

impl ClientSettings {
    /// Returns the settings of a client that asks for nothing.
    #[must_use]
    pub fn from_server(server: &ServerSettings) -> ClientSettings {
        ClientSettings {
            heartbeat: Some(HEARTBEAT_DEFAULT),
            output_buffer_timeout: non_zero(server.output_buffer_timeout),
            output_buffer_size: OUTPUT_BUFFER_BYTES_DEFAULT,
            sample_rate: 0,
            msg_timeout: server.msg_timeout,
            req_uncounted: false,
            publisher_id: None,
        }
    }

    /// Applies the requested settings in nsqd's order: the first value that is out of range is the
    /// error. The settings before it stay changed. Nobody sees that, because the error is fatal.
    fn apply(&mut self, ask: &IdentifyRequest, server: &ServerSettings) -> Result<(), WireError> {
        match ask.heartbeat_interval {
            KEEP => {}
            OFF => self.heartbeat = None,
            ms if (INTERVAL_MS_MIN..=whole_ms(server.heartbeat_interval_max)).contains(&ms) => {
                self.heartbeat = Some(from_ms(ms));
            }
            ms => return Err(out_of_range("heartbeat interval", ms)),
        }
        let shortest = whole_ms(server.output_buffer_timeout_min);
        let longest = whole_ms(server.output_buffer_timeout_max);
        match ask.output_buffer_timeout {
            KEEP => {}
            OFF => self.output_buffer_timeout = None,
            ms if (shortest..=longest).contains(&ms) => {
                self.output_buffer_timeout = non_zero(from_ms(ms));
            }
            ms => return Err(out_of_range("output buffer timeout", ms)),
        }
        match ask.output_buffer_size {
            KEEP => {}
            // Without a buffer no message waits, so there is no timeout either.
            OFF => (self.output_buffer_size, self.output_buffer_timeout) = (1, None),
            bytes if (OUTPUT_BUFFER_BYTES_MIN..=server.output_buffer_size_max).contains(&bytes) => {
                self.output_buffer_size = bytes as usize;
            }
            bytes => return Err(out_of_range("output buffer size", bytes)),
        }
        match ask.sample_rate {
            percent @ 0..=SAMPLE_RATE_MAX => self.sample_rate = percent as u8,
            percent => return Err(out_of_range("sample rate", percent.into())),
        }
        match ask.msg_timeout {
            KEEP => {}
            ms if (INTERVAL_MS_MIN..=whole_ms(server.msg_timeout_max)).contains(&ms) => {
                self.msg_timeout = from_ms(ms);
            }
            ms => return Err(out_of_range("msg timeout", ms)),
        }
        Ok(())
    }
}

/// The answer to an IDENTIFY: the data of a response frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// `OK`, to a client that negotiates nothing.
    Ok,
    /// The settings, and the upgrades that follow.
    Json(String, Vec<GrantedUpgrade>),
}

/// A change of the connection after the answer to its IDENTIFY. TLS comes first. A connection has
/// at most one compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantedUpgrade {
    /// TLS, in which the broker is the server.
    Tls,
    /// Snappy's framing format in both directions.
    Snappy,
    /// Raw deflate in both directions. The broker compresses with this level, 1 to 9.
    Deflate(u8),
}

/// Displays the name in nsqd's log.
impl fmt::Display for GrantedUpgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GrantedUpgrade::Tls => f.write_str("TLS"),
            GrantedUpgrade::Snappy => f.write_str("snappy"),
            GrantedUpgrade::Deflate(level) => write!(f, "deflate (level {level})"),
        }
    }
}

/// Determines the settings of a client from now on. `client` may hold the settings of an earlier
/// IDENTIFY, which a request can keep.
///
/// # Errors
/// `E_BAD_BODY` for a value out of range, `E_IDENTIFY_FAILED` when both compressions would be on.
pub fn negotiate(
    ask: &IdentifyRequest,
    server: &ServerSettings,
    client: &mut ClientSettings,
) -> Result<Response, WireError> {
    client.apply(ask, server)?;
    client.req_uncounted = ask.feature_negotiation && ask.req_uncounted;
    let asks_for_numbers = ask.feature_negotiation && !ask.publisher_id.is_empty();
    client.publisher_id = match origin::parse_publisher_id(&ask.publisher_id) {
        None if asks_for_numbers => {
            let id = &ask.publisher_id;
            return Err(bad_body(format_args!("publisher id ({id}) is invalid")));
        }
        id => id.filter(|_| asks_for_numbers && server.takes_numbers),
    };
    if !ask.feature_negotiation {
        return Ok(Response::Ok);
    }
    let tls = server.tls_available && ask.tls_v1;
    let deflate = server.deflate_available && ask.deflate;
    let snappy = server.snappy_available && ask.snappy;
    if deflate && snappy {
        let description = "cannot enable both deflate and snappy compression";
        return Err(WireError::new(ErrorCode::IdentifyFailed, description));
    }
    let asked = Some(ask.deflate_level).filter(|level| deflate && *level > 0);
    let deflate_level = asked
        .unwrap_or(DEFLATE_LEVEL_DEFAULT)
        .min(server.deflate_level_max);

    let output_buffer_timeout = client.output_buffer_timeout.unwrap_or_default();
    // Other clients get nsqd's answer, byte for byte.
    let req_uncounted = client
        .req_uncounted
        .then(|| json_object! { req_uncounted: true });
    let takes_numbers = client.publisher_id.is_some();
    let publisher_id = asks_for_numbers.then(|| json_object! { publisher_id: takes_numbers });
    let json = to_string(&json_object! {
        max_rdy_count: server.max_rdy_count,
        version: &server.version,
        max_msg_timeout: whole_ms(server.msg_timeout_max),
        msg_timeout: whole_ms(client.msg_timeout),
        tls_v1: tls,
        deflate,
        deflate_level,
        max_deflate_level: server.deflate_level_max,
        snappy,
        sample_rate: client.sample_rate,
        auth_required: server.auth_required,
        output_buffer_size: client.output_buffer_size,
        output_buffer_timeout: whole_ms(output_buffer_timeout),
        topology_region: &server.topology_region,
        topology_zone: &server.topology_zone,
        #[serde(flatten)]
        req_uncounted,
        #[serde(flatten)]
        publisher_id,
    });
    let upgrades = [
        tls.then_some(GrantedUpgrade::Tls),
        snappy.then_some(GrantedUpgrade::Snappy),
        deflate.then_some(GrantedUpgrade::Deflate(deflate_level as u8)),
    ];
    let upgrades = upgrades.into_iter().flatten().collect();
    Ok(Response::Json(json, upgrades))
}

fn bad_body(what: impl fmt::Display) -> WireError {
    WireError::new(ErrorCode::BadBody, format_args!("IDENTIFY {what}"))
}

fn out_of_range(what: &str, value: i64) -> WireError {
    bad_body(format_args!("{what} ({value}) is invalid"))
}

/// Returns a limit as nsqd compares it: truncated to milliseconds.
fn whole_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Converts a number of milliseconds that has passed a range check with limits of at least 0.
fn from_ms(ms: i64) -> Duration {
    Duration::from_millis(ms.unsigned_abs())
}

fn non_zero(duration: Duration) -> Option<Duration> {
    (!duration.is_zero()).then_some(duration)
}

#[cfg(test)]
mod tests;
