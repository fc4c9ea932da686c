//! [`Negotiated`]: what an nsqd answered to IDENTIFY and AUTH.

use std::time::Duration;

use serde::{Deserialize, Deserializer};

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
    #[serde(deserialize_with = "milliseconds")]
    pub max_msg_timeout: Duration,
    /// The message timeout in force. Zero if nsqd did not say.
    #[serde(deserialize_with = "milliseconds")]
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
    #[serde(deserialize_with = "milliseconds")]
    pub output_buffer_timeout: Duration,
    /// nsqd's region.
    pub topology_region: String,
    /// nsqd's zone.
    pub topology_zone: String,
    /// True when a REQ may say that it does not count as an attempt. Only ringq's nsqd has this.
    pub req_uncounted: bool,
    /// True when nsqd takes the numbers of messages: the client has a publisher id, and a topic of this nsqd has a rule for
    /// numbers. Only ringq's nsqd has this.
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
fn milliseconds<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let ms = i64::deserialize(from)?;
    Ok(Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
}
