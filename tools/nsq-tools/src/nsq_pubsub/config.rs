//! The table of flags, and the typed form of their values.

use std::ffi::OsString;
use std::time::Duration;

use program::flag::{self, Flag};
use program::log::Style;
use program::{Exit, Options, Program, version};
use ringq_client::Config as ClientConfig;

use crate::flags::{self, CONSUMER_OPT, PRODUCER_OPT, SourceError, Sources};

/// `nsq_pubsub`, as its command line shows it.
pub static NSQ_PUBSUB: Program = Program {
    name: "nsq_pubsub",
    version: version::of_tool,
    flags: FLAGS,
    own_flags: OWN_FLAGS,
};

/// The flags of NSQ's program of this name, which is no longer part of NSQ.
const FLAGS: &[Flag] = &[
    flag::VERSION,
    flags::text(
        "http-address",
        "0.0.0.0:8080",
        "<addr>:<port> to listen on for HTTP clients",
    ),
    flags::integer(
        "max-in-flight",
        "100",
        "max number of messages to allow in flight, for each HTTP client",
    ),
    flags::NSQD_TCP_ADDRESS,
    flags::LOOKUPD_HTTP_ADDRESS,
];

/// The flags that NSQ's program did not have.
const OWN_FLAGS: &[Flag] = &[
    flags::boolean(
        "ephemeral-channel",
        "give a client that names no channel an ephemeral one of its own; by default such a client is \
         refused",
    ),
    flags::duration(
        "heartbeat-interval",
        "30s",
        "time between two heartbeat lines of a stream",
    ),
    flags::duration(
        "client-timeout",
        "1m0s",
        "time in which a client must take some bytes of the lines that wait for it; then its stream \
         ends",
    ),
    flags::integer(
        "max-body-size",
        "1048576",
        "most bytes of the body of a /pub or /mpub",
    ),
    CONSUMER_OPT,
    PRODUCER_OPT,
    flags::DEDUP,
    flags::DEDUP_STATE,
    flags::LOG_FORMAT,
];

/// The values of the flags.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) log_style: Style,
    pub(super) http_address: String,
    pub(super) sources: Sources,
    /// The settings of each client's consumer.
    pub(super) consumer: ClientConfig,
    pub(super) producer: ClientConfig,
    /// The recognition of messages that were handled before.
    pub(super) dedup: Option<flags::Dedup>,
    pub(super) has_ephemeral_channels: bool,
    pub(super) heartbeat_interval: Duration,
    pub(super) client_timeout: Duration,
    pub(super) body_bytes_max: usize,
}

impl Config {
    /// Reads the command line, without the program's name.
    ///
    /// # Errors
    /// The program ends: a value or a flag is wrong, or the command line has `--help` or
    /// `--version`.
    pub(super) fn from_args(args: impl IntoIterator<Item = OsString>) -> Result<Config, Exit> {
        let options = NSQ_PUBSUB.options(args, &program::hostname())?;
        // A client that leaves makes attempts, and these must not use up a message.
        let mut consumer = ClientConfig {
            max_attempts: 0,
            ..flags::client_config()
        };
        let mut producer = flags::client_config();
        flags::apply_client_options(&NSQ_PUBSUB, &options, &CONSUMER_OPT, &mut consumer)?;
        flags::apply_client_options(&NSQ_PUBSUB, &options, &PRODUCER_OPT, &mut producer)?;
        Config::new(&options, consumer, producer).map_err(|why| NSQ_PUBSUB.failed(&why))
    }

    /// Checks all values, those of the original first and in its order.
    fn new(
        options: &Options,
        mut consumer: ClientConfig,
        mut producer: ClientConfig,
    ) -> Result<Config, String> {
        flags::check_no_words(options)?;
        let max_in_flight = u32::try_from(options.number("max-in-flight")).ok();
        let max_in_flight = max_in_flight.filter(|max| *max > 0);
        consumer.max_in_flight = max_in_flight.ok_or("--max-in-flight must be > 0")?;
        let sources = Sources::from_options(options).map_err(|error| match error {
            SourceError::Missing => format!("{error}."),
            SourceError::Both => error.to_string(),
        })?;
        for name in ["heartbeat-interval", "client-timeout", "max-body-size"] {
            if options.number(name) <= 0 {
                return Err(format!("--{name} must be > 0"));
            }
        }
        for client in [&mut consumer, &mut producer] {
            client.user_agent = flags::user_agent(NSQ_PUBSUB.name);
            client.validate().map_err(|error| error.to_string())?;
        }
        Ok(Config {
            log_style: options.log_style_of_tool(),
            http_address: options.text("http-address"),
            sources,
            consumer,
            producer,
            dedup: flags::Dedup::from_options(options)?,
            has_ephemeral_channels: options.boolean("ephemeral-channel"),
            heartbeat_interval: options.duration("heartbeat-interval"),
            client_timeout: options.duration("client-timeout"),
            body_bytes_max: options.count("max-body-size", usize::MAX),
        })
    }
}

#[cfg(test)]
mod tests;
