//! The settings of producers and consumers, with the names, defaults and bounds of NSQ's Go client.

mod option;
#[cfg(feature = "tls")]
mod tls;

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;
use wire::go_value::duration_text;

use option::OPTIONS;
#[cfg(feature = "tls")]
pub use tls::TlsSettings;

/// Declares the fields of [`Config`], each with its default, and the secret, which is not shown.
macro_rules! config {
    (
        $(#[$attribute:meta])*
        $name:ident {
            $($(#[doc = $doc:literal])* $(#[cfg($($when:tt)*)])? $field:ident: $type:ty = $default:expr,)*
        }
        $(#[doc = $secret_doc:literal])*
        secret $secret:ident
    ) => {
        $(#[$attribute])*
        #[derive(Clone)]
        pub struct $name {
            $($(#[doc = $doc])* $(#[cfg($($when)*)])? pub $field: $type,)*
            $(#[doc = $secret_doc])*
            pub $secret: String,
        }

        impl Default for $name {
            fn default() -> $name {
                $name {
                    $($(#[cfg($($when)*)])? $field: $default,)*
                    $secret: String::new(),
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut text = f.debug_struct(stringify!($name));
                $($(#[cfg($($when)*)])? text.field(stringify!($field), &self.$field);)*
                text.field(stringify!($secret), &Redacted(&self.$secret)).finish()
            }
        }
    };
}

config! {
    /// The settings of a producer or consumer.
    ///
    /// Builders copy the settings, so later changes have no effect. `max_in_flight` alone can be changed while a
    /// consumer runs, through the consumer's control.
    ///
    /// Programs that take options as text use [`set`](Config::set), which checks bounds at once. Fields that are
    /// assigned are checked when the producer or consumer is built, as by [`validate`](Config::validate).
    ///
    /// ```
    /// use ringq_client::Config;
    /// use std::time::Duration;
    ///
    /// let mut config = Config { max_in_flight: 200, ..Config::default() };
    /// config.set("msg-timeout", "1m30s")?;
    /// assert_eq!(config.msg_timeout, Duration::from_secs(90));
    ///
    /// let error = config.set("deflate_level", "10").unwrap_err();
    /// assert_eq!(error.to_string(), "invalid deflate_level ! 10 > 9");
    /// # Ok::<(), ringq_client::OptionError>(())
    /// ```
    Config {
        /// The longest time that a connect may take. Default 1 s; zero sets no limit.
        dial_timeout: Duration = Duration::from_secs(1),
        /// The longest silence of nsqd that a connection tolerates. Default 60 s, 100 ms to 5 min.
        read_timeout: Duration = Duration::from_secs(60),
        /// The longest time in which nsqd takes no byte of a write. Default 1 s, 100 ms to 5 min. An nsqd whose
        /// heartbeats come is slow, not gone: it gets this time from when the next heartbeat is due, but at most
        /// `read_timeout` since it last took a byte.
        write_timeout: Duration = Duration::from_secs(1),
        /// The local address of connections to nsqd. `None` leaves the choice to the system. Port 0 is any port.
        local_addr: Option<SocketAddr> = None,

        /// The time between two queries of the nsqlookupds, and the longest delay before a fixed node is connected
        /// again. Default 60 s, 10 ms to 5 min.
        lookupd_poll_interval: Duration = Duration::from_secs(60),
        /// The largest random addition to each interval between queries, as a fraction of the interval. Default 0.3, 0
        /// to 1.
        lookupd_poll_jitter: f64 = 0.3,
        /// The longest time that a query of an nsqlookupd may take. Default 1 min; zero sets no limit.
        lookupd_poll_timeout: Duration = Duration::from_secs(60),
        /// True if queries of nsqlookupds carry `auth_secret` as a bearer token. Default true. The option
        /// `skip_lookupd_authorization` sets this field too, and its `true` means that the token *is* sent, as in the
        /// Go client.
        lookupd_authorization: bool = true,

        /// The longest automatic requeue delay. Default 15 min, at most 60 min.
        max_requeue_delay: Duration = Duration::from_secs(15 * 60),
        /// The automatic requeue delay of a first attempt. The delay of a later attempt is a multiple. Default 90 s, at
        /// most 60 min.
        default_requeue_delay: Duration = Duration::from_secs(90),
        /// The rule for the length of backoff periods.
        backoff_strategy: BackoffStrategy = BackoffStrategy::Exponential,
        /// The longest backoff period. Default 2 min, at most 60 min. Zero disables backoff.
        max_backoff_duration: Duration = Duration::from_secs(120),
        /// The unit of backoff periods. Default 1 s, at most 60 min.
        backoff_multiplier: Duration = Duration::from_secs(1),
        /// The number of deliveries after which a consumer gives a message up. Default 5; 0 means never.
        max_attempts: u16 = 5,

        /// The time without messages after which a scarce RDY moves to another connection. Default 10 s, 1 s to 5 min.
        low_rdy_idle_timeout: Duration = Duration::from_secs(10),
        /// The time after which a scarce RDY moves to another connection in any case. Default 30 s, 1 s to 5 min.
        low_rdy_timeout: Duration = Duration::from_secs(30),
        /// The time between two redistributions of scarce RDY. Default 5 s, 1 ms to 5 s.
        rdy_redistribute_interval: Duration = Duration::from_secs(5),

        /// The client's name for itself. Default: the host name up to its first dot.
        client_id: String = hostname().split('.').next().unwrap_or_default().to_owned(),
        /// The client's host. Default: the host name.
        hostname: String = hostname(),
        /// The client's library and version. Default `ringq-client/<version>`.
        user_agent: String = concat!("ringq-client/", env!("CARGO_PKG_VERSION")).to_owned(),
        /// The client's region, for topology-aware consumption. Empty if unknown.
        topology_region: String = String::new(),
        /// The client's zone, for topology-aware consumption. Empty if unknown.
        topology_zone: String = String::new(),

        /// The interval of heartbeats that the client asks for. Default 30 s, at most `read_timeout`. `None` disables
        /// heartbeats, which nsqd refuses to consumers.
        heartbeat_interval: Option<Duration> = Some(Duration::from_secs(30)),
        /// The percentage of messages that a consumer wants, 0 to 99. Default 0, which means all.
        sample_rate: u8 = 0,
        /// True if connections use TLS. A connection to an nsqd without TLS then fails.
        tls_v1: bool = false,
        /// The certificates of TLS. The feature `tls` brings this field.
        #[cfg(feature = "tls")]
        tls: TlsSettings = TlsSettings::default(),
        /// True if connections use deflate.
        deflate: bool = false,
        /// The compression level of deflate, 1 to 9. Default 6.
        deflate_level: u32 = 6,
        /// True if connections use snappy.
        snappy: bool = false,
        /// The size of nsqd's buffer for output to this client, in bytes. Default 16384. `None` disables the buffer.
        output_buffer_size: Option<u32> = Some(16 * 1024),
        /// The longest time that a message waits in nsqd's buffer. Default 250 ms. `None` disables the limit.
        output_buffer_timeout: Option<Duration> = Some(Duration::from_millis(250)),

        /// The largest number of messages that a consumer has in flight, over all connections. Default 1; 0 pauses. RDY
        /// moves to another connection only as the messages in flight permit.
        max_in_flight: u32 = 1,
        /// The message timeout that the client asks for. Default zero, which keeps nsqd's.
        msg_timeout: Duration = Duration::ZERO,
        /// The largest frame that the client accepts, in bytes. Default 0, which means any.
        max_msg_size: u32 = 0,
    }
    /// The secret for nsqd's AUTH. Empty means none.
    secret auth_secret
}

/// The rule for the length of backoff periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackoffStrategy {
    /// `backoff_multiplier` doubled once per level.
    #[default]
    Exponential,
    /// A random duration between zero and that of `Exponential`, drawn anew for each decision.
    FullJitter,
}

/// Returns the name of this host.
fn hostname() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

impl Config {
    /// Sets the option `name` to a value as text. Dashes in the name count as underscores.
    ///
    /// Durations have units (`1m30s`). `-1` and `-1ns` disable heartbeats and nsqd's buffer. Booleans are `1 t T TRUE
    /// true True 0 f F FALSE false False`. `tls_root_ca_file`, and `tls_cert` with `tls_key`, read their files at once.
    ///
    /// # Errors
    /// The option is unknown, its value has the wrong form or is out of bounds, or the option needs a feature with
    /// which the crate was not built. The texts are those of the Go client, which has all features.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        let name = name.replace('-', "_");
        #[cfg(feature = "tls")]
        if let Some(done) = tls::set(self, &name, value) {
            return done;
        }
        #[cfg(not(feature = "tls"))]
        if let Some(option) = option::TLS_OPTIONS
            .into_iter()
            .find(|&option| option == name)
        {
            return Err(option::TLS.missing(option));
        }
        match OPTIONS.iter().find(|option| option.name == name) {
            Some(option) => option.set(self, value),
            None => Err(OptionError::Unknown(name)),
        }
    }

    /// Checks the bounds of all fields, and that the fields agree with each other.
    ///
    /// # Errors
    /// A field is out of bounds, heartbeats are further apart than `read_timeout`, or an option needs a feature with
    /// which the crate was not built.
    pub fn validate(&self) -> Result<(), OptionError> {
        let mut copy = self.clone();
        for option in OPTIONS {
            option.check(&mut copy)?;
        }
        if let Some(heartbeat) = self.heartbeat_interval
            && heartbeat > self.read_timeout
        {
            return Err(OptionError::Heartbeat {
                heartbeat,
                read_timeout: self.read_timeout,
            });
        }
        Ok(())
    }
}

/// The reason why an option is refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OptionError {
    /// There is no such option.
    #[error("invalid option {0}")]
    Unknown(String),
    /// The value has the wrong form.
    #[error("failed to coerce option {option} ({value}) - {reason}")]
    Form {
        /// The option.
        option: &'static str,
        /// The value as it was given.
        value: String,
        /// The reason, in the words of Go's library.
        reason: String,
    },
    /// The value is below the lower bound.
    #[error("invalid {option} ! {value} < {min}")]
    TooSmall {
        /// The option, or its field in the Go client if [`Config::validate`] found the error.
        option: &'static str,
        /// The value.
        value: String,
        /// The bound.
        min: String,
    },
    /// The value is above the upper bound.
    #[error("invalid {option} ! {value} > {max}")]
    TooLarge {
        /// The option, or its field in the Go client if [`Config::validate`] found the error.
        option: &'static str,
        /// The value.
        value: String,
        /// The bound.
        max: String,
    },
    /// Heartbeats are further apart than the read timeout.
    #[error(
        "HeartbeatInterval {} must be less than ReadTimeout {}",
        duration_text(*.heartbeat),
        duration_text(*.read_timeout)
    )]
    Heartbeat {
        /// `heartbeat_interval`.
        heartbeat: Duration,
        /// `read_timeout`.
        read_timeout: Duration,
    },
    /// `tls_min_version` has no version of TLS.
    #[error("ERROR: {0} is not a tls version")]
    TlsVersion(String),
    /// `tls_root_ca_file` cannot be used.
    #[cfg(feature = "tls")]
    #[error("{}", root_certificates_text(.0))]
    RootCertificates(#[source] upgrade::ConfigError),
    /// The certificate of `tls_cert` and `tls_key` cannot be used.
    #[cfg(feature = "tls")]
    #[error("{0}")]
    Certificate(#[source] upgrade::ConfigError),
    /// The certificates of the system cannot be used.
    #[error(
        "failed to read the system's certificate authorities ({0}): set tls_root_ca_file, or install them"
    )]
    SystemCertificates(String),
    /// The crate was built without the feature that the option needs.
    #[error(
        "{option} needs the feature \"{feature}\" of ringq-client, which this program was built without. Add \
         \"{feature}\" to the features of ringq-client in Cargo.toml and build again, or do without {option}"
    )]
    NotBuilt {
        /// The option.
        option: &'static str,
        /// The feature of the crate.
        feature: &'static str,
    },
}

#[cfg(feature = "tls")]
fn root_certificates_text(error: &upgrade::ConfigError) -> String {
    match error {
        upgrade::ConfigError::Open(..) => {
            format!("ERROR: failed to read custom Certificate Authority file {error}")
        }
        _ => {
            format!("ERROR: failed to append certificates from Certificate Authority file: {error}")
        }
    }
}

/// Shows `***` instead of a secret, and `""` if there is none.
pub(crate) struct Redacted<'a>(pub(crate) &'a str);

impl fmt::Debug for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            "" => "\"\"",
            _ => "***",
        })
    }
}

/// Returns the address of a server without the user and the password, which lie before the last `@` of the host.
pub(crate) fn without_password(address: &str) -> Cow<'_, str> {
    let begin = address.find("://").map_or(0, |at| at + "://".len());
    let rest = &address[begin..];
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{}***{}", &address[..begin], &rest[at..]).into(),
        None => address.into(),
    }
}

/// Returns the addresses as [`without_password`] does.
pub(crate) fn without_passwords(addresses: &[String]) -> Vec<Cow<'_, str>> {
    let addresses = addresses.iter();
    addresses.map(|address| without_password(address)).collect()
}

#[cfg(test)]
#[cfg(feature = "tls")]
mod tests;
