//! The declaration of the flags, and the checks of their values.

use std::time::Duration;

use program::{Options, Program, flag, version};
use ringq_client::Config as ClientConfig;

use crate::consuming::ConsumerFlags;
use crate::flags::{self, CONSUMER_OPT, PRODUCER_OPT, Refusal, Sources};

program::flags! {
    /// The values of the flags.
    #[derive(Clone, Debug)]
    pub(super) struct Flags {
        = flag::VERSION;
        http_address: String = flags::new("http-address", "0.0.0.0:8080", "<addr>:<port> to listen on for HTTP clients");
        max_in_flight: i64 = flags::new("max-in-flight", "100", "max number of messages to allow in flight, for each HTTP client");
        = flags::NSQD_TCP_ADDRESS;
        = flags::LOOKUPD_HTTP_ADDRESS;
    }
    own {
        has_ephemeral_channels: bool = flags::new("ephemeral-channel", "false", "give a client that names no channel an ephemeral one of its own; by default such a client is refused");
        heartbeat_interval: Duration = flags::new("heartbeat-interval", "30s", "time between two heartbeat lines of a stream");
        client_timeout: Duration = flags::new("client-timeout", "1m0s", "time in which a client must take some bytes of the lines that wait for it; then its stream ends");
        body_bytes_max: usize = flags::new("max-body-size", "1048576", "most bytes of the body of a /pub or /mpub");
        = flags::CONSUMER_OPT;
        = flags::PRODUCER_OPT;
        = flags::DEDUP;
        = flags::DEDUP_STATE;
        = flags::LOG_FORMAT;
    }
}

/// `nsq_pubsub`, as its command line shows it.
pub static NSQ_PUBSUB: Program = Program::of::<Flags>("nsq_pubsub", version::of_tool);

/// The values of the flags, checked.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) flags: Flags,
    /// The flags of each client's consumer.
    pub(super) consumer: ConsumerFlags,
    pub(super) producer: ClientConfig,
}

impl Config {
    /// Checks all values, those of the original first and in its order.
    pub(super) fn new(options: &Options) -> Result<Config, Refusal> {
        // A client that leaves makes attempts, and these must not use up a message.
        let base = ClientConfig {
            max_attempts: 0,
            ..flags::client_config()
        };
        let of = |flag, base| flags::client_with_options(&NSQ_PUBSUB, options, flag, base);
        let mut consumer = of(&CONSUMER_OPT, base)?;
        let producer = of(&PRODUCER_OPT, flags::client_config())?;
        let flags: Flags = options.read()?;
        let max_in_flight = u32::try_from(flags.max_in_flight).ok();
        let max_in_flight = max_in_flight.filter(|max| *max > 0);
        consumer.max_in_flight = max_in_flight.ok_or("--max-in-flight must be > 0")?;
        let sources = Sources::from_options_with_full_stop(options)?;
        for (name, is_zero) in [
            ("heartbeat-interval", flags.heartbeat_interval.is_zero()),
            ("client-timeout", flags.client_timeout.is_zero()),
            ("max-body-size", flags.body_bytes_max == 0),
        ] {
            if is_zero {
                return Err(format!("--{name} must be > 0").into());
            }
        }
        producer.validate().map_err(|error| error.to_string())?;
        Ok(Config {
            consumer: ConsumerFlags::new(options, sources, consumer)?,
            producer,
            flags,
        })
    }
}

#[cfg(test)]
mod tests;
