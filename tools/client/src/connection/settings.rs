//! [`Settings`]: what the connections of one client ask for. They are made once, from its configuration.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
#[cfg(feature = "tls")]
use upgrade::ClientConfig;

use crate::config::{Config, OptionError, Redacted};
use crate::publisher_id::PublisherId;

/// The settings that a connection asks nsqd for, and the limits of the connection.
#[derive(Clone)]
pub(crate) struct Settings {
    /// The body of IDENTIFY.
    pub(crate) identify: Value,
    /// True when IDENTIFY asks for TLS.
    pub(crate) tls_v1: bool,
    /// The configuration of TLS, if IDENTIFY asks for TLS.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// The subscription of a consumer's connection. A producer has none.
    pub(crate) subscription: Option<Subscription>,
    /// The largest size that a frame may announce, in bytes.
    pub(crate) frame_bytes_max: usize,
    /// The longest time to connect. `None` means no limit.
    pub(crate) dial_timeout: Option<Duration>,
    /// All other settings, as they are.
    pub(crate) config: Config,
}

/// The settings that tell connections apart. TLS and the secret are shown as present or absent.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("identify", &self.identify)
            .field("tls", &self.tls_v1)
            .field("auth_secret", &Redacted(&self.config.auth_secret))
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

impl Settings {
    /// Takes what connections need from a valid configuration. Reads the certificates of TLS.
    pub(crate) fn new(
        config: &Config,
        subscription: Option<Subscription>,
    ) -> Result<Settings, OptionError> {
        config.validate()?;
        // Times are milliseconds; -1 switches off.
        let mut identify = json!({
            "client_id": config.client_id,
            "deflate": config.deflate,
            "deflate_level": config.deflate_level,
            "feature_negotiation": true,
            "heartbeat_interval": milliseconds(config.heartbeat_interval),
            "hostname": config.hostname,
            "msg_timeout": milliseconds(Some(config.msg_timeout)),
            "output_buffer_size": config.output_buffer_size.map_or(-1, i64::from),
            "output_buffer_timeout": milliseconds(config.output_buffer_timeout),
            "sample_rate": config.sample_rate,
            "snappy": config.snappy,
            "tls_v1": config.tls_v1,
            "topology_region": config.topology_region,
            "topology_zone": config.topology_zone,
            "user_agent": config.user_agent,
            // The names of the id and of the host for old servers.
            "short_id": config.client_id,
            "long_id": config.hostname,
        });
        if subscription.is_some() {
            // The client wants to give messages back without counting an attempt. Other nsqds ignore the key.
            identify["req_uncounted"] = true.into();
        }
        Ok(Settings {
            identify,
            tls_v1: config.tls_v1,
            #[cfg(feature = "tls")]
            tls: if config.tls_v1 {
                Some(config.tls.client_config()?)
            } else {
                None
            },
            subscription,
            frame_bytes_max: match config.max_msg_size {
                0 => usize::MAX,
                bytes => bytes as usize,
            },
            dial_timeout: (!config.dial_timeout.is_zero()).then_some(config.dial_timeout),
            config: config.clone(),
        })
    }

    /// Returns the same settings for a client that numbers its messages under `id`.
    pub(crate) fn with_publisher_id(&self, id: PublisherId) -> Settings {
        let mut settings = self.clone();
        settings.identify["publisher_id"] = id.to_string().into();
        settings
    }
}

/// Returns whole milliseconds for IDENTIFY: -1 for `None`.
fn milliseconds(duration: Option<Duration>) -> i64 {
    duration.map_or(-1, |duration| {
        i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
    })
}

/// The RDY limit of an nsqd that does not state one.
const RDY_COUNT_MAX_DEFAULT: i64 = 2500;

/// The settings of one connection, as nsqd answered IDENTIFY. An nsqd that answers `OK` leaves the defaults: nothing is
/// negotiated.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Negotiated {
    /// The largest RDY that nsqd accepts.
    pub max_rdy_count: i64,
    /// nsqd's version. Empty if nsqd did not say.
    pub version: String,
    /// The longest message timeout that nsqd allows. Zero if nsqd did not say.
    #[serde(deserialize_with = "read_milliseconds")]
    pub max_msg_timeout: Duration,
    /// The message timeout in force. Zero if nsqd did not say.
    #[serde(deserialize_with = "read_milliseconds")]
    pub msg_timeout: Duration,
    /// True when the connection has TLS.
    pub tls_v1: bool,
    /// True when the connection is compressed with deflate.
    pub deflate: bool,
    /// The level of deflate, 1 to 9.
    pub deflate_level: i64,
    /// The highest level of deflate that nsqd allows.
    pub max_deflate_level: i64,
    /// True when the connection is compressed with snappy.
    pub snappy: bool,
    /// The percentage of messages that nsqd delivers. 0 means all.
    pub sample_rate: i64,
    /// True when nsqd wants AUTH.
    pub auth_required: bool,
    /// The bytes that nsqd collects before a write.
    pub output_buffer_size: i64,
    /// The longest time that a message waits in nsqd's buffer.
    #[serde(deserialize_with = "read_milliseconds")]
    pub output_buffer_timeout: Duration,
    /// nsqd's region.
    pub topology_region: String,
    /// nsqd's zone.
    pub topology_zone: String,
    /// True when a REQ may say that it does not count as an attempt. Only ringq's nsqd has this.
    pub req_uncounted: bool,
    /// True when nsqd takes the numbers of messages: the client has a publisher id, and a topic of this nsqd has a rule
    /// for numbers. Only ringq's nsqd has this.
    pub publisher_id: bool,
    /// The answer to AUTH, if nsqd wanted it.
    #[serde(skip)]
    pub authorization: Option<Authorization>,
}

impl Default for Negotiated {
    fn default() -> Negotiated {
        Negotiated {
            max_rdy_count: RDY_COUNT_MAX_DEFAULT,
            version: String::new(),
            max_msg_timeout: Duration::ZERO,
            msg_timeout: Duration::ZERO,
            tls_v1: false,
            deflate: false,
            deflate_level: 6,
            max_deflate_level: 0,
            snappy: false,
            sample_rate: 0,
            auth_required: false,
            output_buffer_size: 0,
            output_buffer_timeout: Duration::ZERO,
            topology_region: String::new(),
            topology_zone: String::new(),
            req_uncounted: false,
            publisher_id: false,
            authorization: None,
        }
    }
}

/// The answer to AUTH.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Authorization {
    /// The name that the auth server has for the client.
    pub identity: String,
    /// A page about this identity.
    pub identity_url: String,
    /// The number of the identity's permissions.
    pub permission_count: i64,
}

/// Reads milliseconds. nsqd writes negative numbers for what is switched off.
fn read_milliseconds<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let ms = i64::deserialize(from)?;
    Ok(Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
}
