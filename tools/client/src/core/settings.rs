//! [`Settings`]: what the connections of one client ask for. They are made once, from its configuration.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
#[cfg(feature = "tls")]
use upgrade::ClientConfig;

use crate::config::{Config, OptionError, Redacted};
use crate::publisher_id::PublisherId;

/// The settings that a connection asks nsqd for, and the limits of the connection.
#[derive(Clone)]
pub(crate) struct Settings {
    /// The body of IDENTIFY: JSON.
    pub(crate) identify: Vec<u8>,
    /// True when IDENTIFY asks for TLS.
    pub(crate) tls_v1: bool,
    /// The configuration of TLS, if IDENTIFY asks for TLS.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// True when IDENTIFY asks for deflate.
    pub(crate) deflate: bool,
    /// True when IDENTIFY asks for snappy.
    pub(crate) snappy: bool,
    /// The secret for AUTH. Empty means none.
    pub(crate) auth_secret: String,
    /// The subscription of a consumer's connection. A producer has none.
    pub(crate) subscription: Option<Subscription>,
    /// The largest size that a frame may announce, in bytes.
    pub(crate) frame_bytes_max: usize,
    /// The longest time to connect. `None` means no limit.
    pub(crate) dial_timeout: Option<Duration>,
    /// The longest silence of nsqd.
    pub(crate) read_timeout: Duration,
    /// The longest time in which nsqd takes no byte of a write, and sends no heartbeat that is due.
    pub(crate) write_timeout: Duration,
    /// The time between two heartbeats. `None` when heartbeats are switched off: then an nsqd may be silent after the
    /// handshake.
    pub(crate) heartbeat_interval: Option<Duration>,
}

/// The settings that tell connections apart. TLS and the secret are shown as present or absent.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("identify", &String::from_utf8_lossy(&self.identify))
            .field("tls", &self.tls_v1)
            .field("auth_secret", &Redacted(&self.auth_secret))
            .field("subscription", &self.subscription)
            .finish_non_exhaustive()
    }
}

/// The topic and the channel of a consumer. Both names are valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) topic: Arc<str>,
    pub(crate) channel: Arc<str>,
}

/// The body of IDENTIFY. Times are milliseconds; -1 switches off.
#[derive(Serialize)]
struct Identify<'a> {
    client_id: &'a str,
    deflate: bool,
    deflate_level: u32,
    feature_negotiation: bool,
    heartbeat_interval: i64,
    hostname: &'a str,
    /// The same as `hostname`, for old servers.
    long_id: &'a str,
    msg_timeout: i64,
    output_buffer_size: i64,
    output_buffer_timeout: i64,
    /// True when the client wants to give messages back without counting an attempt. Other nsqds ignore the key.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    req_uncounted: bool,
    sample_rate: u8,
    /// The same as `client_id`, for old servers.
    short_id: &'a str,
    snappy: bool,
    tls_v1: bool,
    topology_region: &'a str,
    topology_zone: &'a str,
    user_agent: &'a str,
}

impl Settings {
    /// Takes what connections need from a valid configuration. Reads the certificates of TLS.
    pub(crate) fn new(
        config: &Config,
        subscription: Option<Subscription>,
    ) -> Result<Settings, OptionError> {
        config.validate()?;
        let identify = Identify {
            client_id: &config.client_id,
            deflate: config.deflate,
            deflate_level: config.deflate_level,
            feature_negotiation: true,
            heartbeat_interval: milliseconds(config.heartbeat_interval),
            hostname: &config.hostname,
            long_id: &config.hostname,
            msg_timeout: milliseconds(Some(config.msg_timeout)),
            output_buffer_size: config.output_buffer_size.map_or(-1, i64::from),
            output_buffer_timeout: milliseconds(config.output_buffer_timeout),
            req_uncounted: subscription.is_some(),
            sample_rate: config.sample_rate,
            short_id: &config.client_id,
            snappy: config.snappy,
            tls_v1: config.tls_v1,
            topology_region: &config.topology_region,
            topology_zone: &config.topology_zone,
            user_agent: &config.user_agent,
        };
        Ok(Settings {
            identify: serde_json::to_vec(&identify).expect("strings and numbers are JSON"),
            tls_v1: config.tls_v1,
            #[cfg(feature = "tls")]
            tls: if config.tls_v1 {
                Some(config.tls.client_config()?)
            } else {
                None
            },
            deflate: config.deflate,
            snappy: config.snappy,
            auth_secret: config.auth_secret.clone(),
            subscription,
            frame_bytes_max: match config.max_msg_size {
                0 => usize::MAX,
                bytes => bytes as usize,
            },
            dial_timeout: (!config.dial_timeout.is_zero()).then_some(config.dial_timeout),
            read_timeout: config.read_timeout,
            write_timeout: config.write_timeout,
            heartbeat_interval: config.heartbeat_interval,
        })
    }
}

impl Settings {
    /// Returns the same settings for a client that numbers its messages under `id`.
    pub(crate) fn with_publisher_id(&self, id: PublisherId) -> Settings {
        let mut identify: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&self.identify).expect("it was made by `new`");
        identify.insert("publisher_id".to_owned(), id.to_string().into());
        Settings {
            identify: serde_json::to_vec(&identify).expect("strings and numbers are JSON"),
            ..self.clone()
        }
    }
}

/// Returns whole milliseconds for IDENTIFY: -1 for `None`.
fn milliseconds(duration: Option<Duration>) -> i64 {
    duration.map_or(-1, |duration| {
        i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
    })
}
