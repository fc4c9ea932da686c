//! The table of options: name, form and bounds, and where the value lies in a [`Config`].

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use wire::go_value;

use super::{BackoffStrategy, Config, OptionError};

/// One option.
pub(super) struct ConfigOption {
    /// The name for [`Config::set`].
    pub(super) name: &'static str,
    /// The name of the field in the Go client, which errors of [`Config::validate`] quote.
    field: &'static str,
    place: Place,
}

/// The field of an option, by its type.
enum Place {
    /// A duration between bounds in nanoseconds.
    Duration(fn(&mut Config) -> &mut Duration, i64, i64),
    /// A duration that -1 ns disables.
    OptionalDuration(fn(&mut Config) -> &mut Option<Duration>),
    /// A size that -1 disables.
    OptionalSize(fn(&mut Config) -> &mut Option<u32>),
    Unsigned16(fn(&mut Config) -> &mut u16),
    Unsigned32(fn(&mut Config) -> &mut u32, i64, i64),
    Percent(fn(&mut Config) -> &mut u8, i64),
    Fraction(fn(&mut Config) -> &mut f64),
    Boolean(fn(&mut Config) -> &mut bool),
    /// A boolean whose `true` needs a feature of the crate.
    Switch(fn(&mut Config) -> &mut bool, Feature),
    Text(fn(&mut Config) -> &mut String),
    LocalAddress,
    Strategy,
}

/// A feature of the crate that options need.
#[derive(Clone, Copy)]
pub(super) struct Feature {
    name: &'static str,
    is_built: bool,
}

impl Feature {
    /// Returns the refusal of an option that needs this feature.
    pub(super) fn missing(self, option: &'static str) -> OptionError {
        OptionError::NotBuilt {
            option,
            feature: self.name,
        }
    }

    /// Fails if the option is on and this feature was not built.
    fn check(self, option: &'static str, is_on: bool) -> Result<(), OptionError> {
        if is_on && !self.is_built {
            Err(self.missing(option))
        } else {
            Ok(())
        }
    }
}

pub(super) const TLS: Feature = Feature {
    name: "tls",
    is_built: cfg!(feature = "tls"),
};
const COMPRESSION: Feature = Feature {
    name: "compression",
    is_built: cfg!(feature = "compression"),
};

/// The options of TLS that are not in the table: `tls.rs` sets them.
#[cfg(not(feature = "tls"))]
pub(super) const TLS_OPTIONS: [&str; 5] = [
    "tls_cert",
    "tls_insecure_skip_verify",
    "tls_key",
    "tls_min_version",
    "tls_root_ca_file",
];

const MS: i64 = 1_000_000;
const SECOND: i64 = 1000 * MS;
const MINUTE: i64 = 60 * SECOND;
/// The bound of values without a bound.
const NONE: i64 = i64::MAX;
const NONE_32: i64 = u32::MAX as i64;

const fn row(name: &'static str, field: &'static str, place: Place) -> ConfigOption {
    ConfigOption { name, field, place }
}

#[rustfmt::skip]
pub(super) const OPTIONS: &[ConfigOption] = {
    use Place::*;
    &[
        row("dial_timeout", "DialTimeout", Duration(|c| &mut c.dial_timeout, 0, NONE)),
        row("read_timeout", "ReadTimeout", Duration(|c| &mut c.read_timeout, 100 * MS, 5 * MINUTE)),
        row("write_timeout", "WriteTimeout", Duration(|c| &mut c.write_timeout, 100 * MS, 5 * MINUTE)),
        row("local_addr", "LocalAddr", LocalAddress),
        row("lookupd_poll_interval", "LookupdPollInterval", Duration(|c| &mut c.lookupd_poll_interval, 10 * MS, 5 * MINUTE)),
        row("lookupd_poll_jitter", "LookupdPollJitter", Fraction(|c| &mut c.lookupd_poll_jitter)),
        row("lookupd_poll_timeout", "LookupdPollTimeout", Duration(|c| &mut c.lookupd_poll_timeout, 0, NONE)),
        row("max_requeue_delay", "MaxRequeueDelay", Duration(|c| &mut c.max_requeue_delay, 0, 60 * MINUTE)),
        row("default_requeue_delay", "DefaultRequeueDelay", Duration(|c| &mut c.default_requeue_delay, 0, 60 * MINUTE)),
        row("backoff_strategy", "BackoffStrategy", Strategy),
        row("max_backoff_duration", "MaxBackoffDuration", Duration(|c| &mut c.max_backoff_duration, 0, 60 * MINUTE)),
        row("backoff_multiplier", "BackoffMultiplier", Duration(|c| &mut c.backoff_multiplier, 0, 60 * MINUTE)),
        row("max_attempts", "MaxAttempts", Unsigned16(|c| &mut c.max_attempts)),
        row("low_rdy_idle_timeout", "LowRdyIdleTimeout", Duration(|c| &mut c.low_rdy_idle_timeout, SECOND, 5 * MINUTE)),
        row("low_rdy_timeout", "LowRdyTimeout", Duration(|c| &mut c.low_rdy_timeout, SECOND, 5 * MINUTE)),
        row("rdy_redistribute_interval", "RDYRedistributeInterval", Duration(|c| &mut c.rdy_redistribute_interval, MS, 5 * SECOND)),
        row("client_id", "ClientID", Text(|c| &mut c.client_id)),
        row("hostname", "Hostname", Text(|c| &mut c.hostname)),
        row("user_agent", "UserAgent", Text(|c| &mut c.user_agent)),
        row("topology_region", "TopologyRegion", Text(|c| &mut c.topology_region)),
        row("topology_zone", "TopologyZone", Text(|c| &mut c.topology_zone)),
        row("heartbeat_interval", "HeartbeatInterval", OptionalDuration(|c| &mut c.heartbeat_interval)),
        row("sample_rate", "SampleRate", Percent(|c| &mut c.sample_rate, 99)),
        row("tls_v1", "TlsV1", Switch(|c| &mut c.tls_v1, TLS)),
        row("deflate", "Deflate", Switch(|c| &mut c.deflate, COMPRESSION)),
        row("deflate_level", "DeflateLevel", Unsigned32(|c| &mut c.deflate_level, 1, 9)),
        row("snappy", "Snappy", Switch(|c| &mut c.snappy, COMPRESSION)),
        row("output_buffer_size", "OutputBufferSize", OptionalSize(|c| &mut c.output_buffer_size)),
        row("output_buffer_timeout", "OutputBufferTimeout", OptionalDuration(|c| &mut c.output_buffer_timeout)),
        row("max_in_flight", "MaxInFlight", Unsigned32(|c| &mut c.max_in_flight, 0, NONE_32)),
        row("msg_timeout", "MsgTimeout", Duration(|c| &mut c.msg_timeout, 0, NONE)),
        row("max_msg_size", "MaxMsgSize", Unsigned32(|c| &mut c.max_msg_size, 0, i32::MAX as i64)),
        row("auth_secret", "AuthSecret", Text(|c| &mut c.auth_secret)),
        // True means that the token is sent: the Go client's name says the opposite.
        row("skip_lookupd_authorization", "SkipLookupdAuthorization", Boolean(|c| &mut c.lookupd_authorization)),
        row("lookupd_authorization", "LookupdAuthorization", Boolean(|c| &mut c.lookupd_authorization)),
    ]
};

impl ConfigOption {
    /// Sets the option's field to a value as text.
    pub(super) fn set(&self, config: &mut Config, value: &str) -> Result<(), OptionError> {
        let form = |reason: String| form_error(self.name, value, reason);
        match &self.place {
            Place::Duration(field, min, max) => {
                let nanos = duration(value).map_err(form)?;
                bounds(self.name, nanos, *min, *max, nanos_text)?;
                *field(config) = from_nanos(nanos);
            }
            Place::OptionalDuration(field) => {
                let nanos = match value {
                    "-1" => -1,
                    value => duration(value).map_err(form)?,
                };
                bounds(self.name, nanos, -1, NONE, nanos_text)?;
                *field(config) = (nanos >= 0).then(|| from_nanos(nanos));
            }
            Place::OptionalSize(field) => {
                let size = signed(value).map_err(form)?;
                bounds(self.name, size, -1, NONE_32, integer_text)?;
                *field(config) = u32::try_from(size).ok();
            }
            Place::Unsigned16(field) => *field(config) = unsigned(value).map_err(form)?,
            Place::Unsigned32(field, min, max) => {
                let number = signed(value).map_err(form)?;
                bounds(self.name, number, *min, *max, integer_text)?;
                *field(config) = u32::try_from(number).expect("the bounds are those of 32 bits");
            }
            Place::Percent(field, max) => {
                let number = signed(value).map_err(form)?;
                bounds(self.name, number, 0, *max, integer_text)?;
                *field(config) = u8::try_from(number).expect("the bounds are those of 8 bits");
            }
            Place::Fraction(field) => {
                let number = go_value::parse_float(value).filter(|number| !number.is_nan());
                let number = number.ok_or_else(|| form(number_error("ParseFloat", value)))?;
                bounds(self.name, number, 0.0, 1.0, go_value::float_text)?;
                *field(config) = number;
            }
            Place::Boolean(field) => *field(config) = boolean(value).map_err(form)?,
            Place::Switch(field, feature) => {
                let is_on = boolean(value).map_err(form)?;
                feature.check(self.name, is_on)?;
                *field(config) = is_on;
            }
            Place::Text(field) => value.clone_into(field(config)),
            Place::LocalAddress => config.local_addr = Some(local_address(value).map_err(form)?),
            Place::Strategy => {
                config.backoff_strategy = match value {
                    "exponential" => BackoffStrategy::Exponential,
                    "full_jitter" => BackoffStrategy::FullJitter,
                    _ => return Err(form("it must be exponential or full_jitter".to_owned())),
                }
            }
        }
        Ok(())
    }

    /// Checks the bounds of the option's field. Does not change the field.
    pub(super) fn check(&self, config: &mut Config) -> Result<(), OptionError> {
        match &self.place {
            Place::Duration(field, min, max) => {
                let nanos = i64::try_from(field(config).as_nanos()).unwrap_or(i64::MAX);
                bounds(self.field, nanos, *min, *max, nanos_text)
            }
            Place::Unsigned32(field, min, max) => bounds(
                self.field,
                (*field(config)).into(),
                *min,
                *max,
                integer_text,
            ),
            Place::Percent(field, max) => {
                bounds(self.field, (*field(config)).into(), 0, *max, integer_text)
            }
            Place::Fraction(field) => {
                bounds(self.field, *field(config), 0.0, 1.0, go_value::float_text)
            }
            Place::Switch(field, feature) => feature.check(self.name, *field(config)),
            _ => Ok(()),
        }
    }
}

pub(super) fn form_error(option: &'static str, value: &str, reason: String) -> OptionError {
    let value = value.to_owned();
    OptionError::Form {
        option,
        value,
        reason,
    }
}

/// Parses a boolean. The error is Go's.
pub(super) fn boolean(value: &str) -> Result<bool, String> {
    go_value::parse_bool(value).map_err(|_| number_error("ParseBool", value))
}

fn bounds<T: PartialOrd>(
    option: &'static str,
    value: T,
    min: T,
    max: T,
    text: fn(T) -> String,
) -> Result<(), OptionError> {
    // What is not a number is not above the bound either.
    let is_enough = value >= min;
    if !is_enough {
        let (value, min) = (text(value), text(min));
        return Err(OptionError::TooSmall { option, value, min });
    }
    if value > max {
        let (value, max) = (text(value), text(max));
        return Err(OptionError::TooLarge { option, value, max });
    }
    Ok(())
}

fn integer_text(value: i64) -> String {
    value.to_string()
}

fn nanos_text(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let magnitude = Duration::from_nanos(nanos.unsigned_abs());
    format!("{sign}{}", go_value::duration_text(magnitude))
}

fn from_nanos(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).expect("the lower bound is 0"))
}

fn duration(value: &str) -> Result<i64, String> {
    go_value::parse_duration(value).map_err(|_| go_value::duration_error(value))
}

fn signed(value: &str) -> Result<i64, String> {
    go_value::parse_decimal(value)
        .map_err(|why| format!("strconv.ParseInt: parsing {value:?}: {why}"))
}

fn unsigned(value: &str) -> Result<u16, String> {
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(number_error("ParseUint", value));
    }
    value
        .parse()
        .map_err(|_| format!("strconv.ParseUint: parsing {value:?}: value out of range"))
}

fn number_error(function: &str, value: &str) -> String {
    format!("strconv.{function}: parsing {value:?}: invalid syntax")
}

/// Resolves `host:port`. An empty host is any address of the machine.
fn local_address(value: &str) -> Result<SocketAddr, String> {
    let Some((host, port)) = value.rsplit_once(':') else {
        return Err(format!("address {value}: missing port in address"));
    };
    if !port.bytes().all(|byte| byte.is_ascii_digit()) || port.parse::<u16>().is_err() {
        return Err(format!("lookup tcp/{port}: unknown port"));
    }
    let resolved = match host {
        "" => format!("0.0.0.0:{port}").to_socket_addrs(),
        _ => value.to_socket_addrs(),
    };
    let found = resolved.map_err(|error| format!("lookup {host}: {error}"))?;
    let mut found = found.collect::<Vec<_>>();
    // IPv4 comes first, as in Go's library.
    found.sort_by_key(SocketAddr::is_ipv6);
    let first = found.first().copied();
    first.ok_or_else(|| format!("lookup {host}: no such host"))
}
