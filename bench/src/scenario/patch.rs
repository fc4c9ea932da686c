//! [`Patch`]: the parts of a scenario that the command line or a file states.

use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;

use super::{Arrivals, Consume, Scenario, Via};
use crate::rate::{Rate, parse_count};
use crate::size::Sizes;
use crate::span::Span;
use crate::work::Work;

/// Declares [`Patch`] and how it is applied, from one list: a field of [`Scenario`], its type, its
/// group in the help and its help; then those that are on or off.
macro_rules! patch {
    ($($heading:literal { $($field:ident: $kind:ty, $value:literal, $help:literal;)* })*
     switches in $switch_heading:literal { $($switch:ident, $switch_help:literal;)* }) => {
        /// The stated parts of a scenario. The fields are those of [`Scenario`], which explains them;
        /// `per_day` is another way to state the rate.
        #[derive(Clone, Debug, Default, PartialEq, Deserialize, Args)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        #[group(skip)]
        pub struct Patch {
            #[arg(skip)]
            #[allow(missing_docs)]
            pub name: Option<String>,
            #[arg(skip)]
            #[allow(missing_docs)]
            pub description: Option<String>,
            /// Instead of a rate: messages per day, such as 5e9.
            #[arg(long, value_name = "MESSAGES/DAY", conflicts_with = "rate", value_parser = parse_count,
                  help = "Offered load in messages per day, such as 5e9, instead of --rate",
                  help_heading = "Publishing")]
            pub per_day: Option<f64>,
            $($(
                #[arg(long, value_name = $value, help = $help, help_heading = $heading)]
                #[allow(missing_docs)]
                pub $field: Option<$kind>,
            )*)*
            $(
                #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
                      default_missing_value = "true", help = $switch_help,
                      help_heading = $switch_heading)]
                #[allow(missing_docs)]
                pub $switch: Option<bool>,
            )*
        }

        impl Patch {
            /// The scenario with everything changed that was stated.
            #[must_use]
            pub fn apply(self, mut scenario: Scenario) -> Scenario {
                if let Some(name) = self.name {
                    scenario.name = name;
                }
                if let Some(description) = self.description {
                    scenario.description = description;
                }
                if let Some(messages) = self.per_day {
                    scenario.rate = Rate::per_day(messages);
                }
                $($(
                    if let Some(value) = self.$field {
                        scenario.$field = value;
                    }
                )*)*
                $(
                    if let Some(value) = self.$switch {
                        scenario.$switch = value;
                    }
                )*
                scenario
            }
        }
    };
}

patch! {
    "Topics and connections" {
        topics: u32, "COUNT", "Number of topics [1]";
        channels: u32, "COUNT", "Channels of each topic [1]";
        producers: u32, "CONNECTIONS", "Connections that publish, in all; 0 for none [1]";
        consumers: u32, "CONNECTIONS", "Connections that consume, per channel of each topic; 0 for none [1]";
    }
    "Publishing" {
        via: Via, "HOW", "How messages are published [mpub]";
        batch: u32, "MESSAGES", "Messages in one MPUB [100]";
        defer: Span, "TIME", "How much later a DPUB is to be delivered [1s]";
        size: Sizes, "BYTES", "Message body size: 200, uniform:100-4000, lognormal:MEDIAN,SIGMA or list:200*9,10000*1 (size*weight) [200]";
        rate: Rate, "MESSAGES/S", "Offered load of all producers together: max (closed loop) or messages per second (open loop) [max]";
        arrivals: Arrivals, "HOW", "Distances between the intended send times [even]";
        peak: f64, "FACTOR", "Run one compressed day whose highest rate is FACTOR times its mean; 1 is flat [1]";
        window: u32, "MESSAGES", "With --rate max: messages of a connection that may await their OK [1000]";
        messages: u64, "COUNT", "Stop publishing after so many messages, 0 for no limit [0]";
    }
    "Time" {
        warm_up: Span, "TIME", "Time at the start that is not measured [1s]";
        duration: Span, "TIME", "Time that is measured [10s]";
        drain: Span, "TIME", "Longest wait for outstanding messages at the end [30s]";
    }
    "Consuming" {
        consume: Consume, "WHEN", "When consumers begin to take messages [at-once]";
        pause: Span, "TIME", "With consume after-publish: rest between the two, measured for neither [0s]";
        rdy: u32, "MESSAGES", "Ready count of each consumer [1000]";
        work: Work, "TIME", "Work on each message: 0, 1ms, uniform:1ms-5ms or exp:MEAN [0]";
        requeue: f64, "SHARE", "Share of first deliveries answered with REQ, 0 to 1 [0]";
        requeue_delay: Span, "TIME", "Delay that a REQ asks for [0s]";
        time_out: f64, "SHARE", "Share of first deliveries left to time out, 0 to 1 [0]";
        msg_timeout: Span, "TIME", "Message timeout asked for in IDENTIFY; 0 is the daemon's default [0s]";
        output_buffer_timeout: Span, "TIME", "How long the daemon may hold back messages, asked for in IDENTIFY; 0 is its default [0s]";
        touch: f64, "SHARE", "Share of messages that get a TOUCH halfway through their work, 0 to 1 [0]";
        slow: f64, "SHARE", "Share of consumers that read slowly, 0 to 1 [0]";
        slow_bytes: u32, "BYTES/S", "What a slow consumer reads [100000]";
        stalled: f64, "SHARE", "Share of consumers that read nothing until publishing ends, 0 to 1 [0]";
        storm_every: Span, "TIME", "Every so often some consumers drop their connection and come back; 0 is never [0s]";
        storm: f64, "SHARE", "Share of the consumers that each storm hits, 0 to 1 [0.1]";
        seed: u64, "NUMBER", "Seed of sizes, work times and choices [1]";
    }
    "TLS and compression" {
        tls_ca: PathBuf, "FILE", "With --tls: the certificate authority (PEM) of the daemon's certificate";
        tls_name: String, "NAME", "With --tls: the name the daemon's certificate must be for [its IP address]";
        tls_cert: PathBuf, "FILE", "With --tls: the certificate (PEM) to show to the daemon [none]";
        tls_key: PathBuf, "FILE", "With --tls: the private key (PEM) of --tls-cert";
        deflate: u32, "LEVEL", "Compress V2 connections with deflate at this level, 1 to 9; 0 is not at all [0]";
    }
    switches in "TLS and compression" {
        tls, "Upgrade V2 connections to TLS; needs --tls-ca or --tls-insecure [false]";
        tls_insecure, "With --tls: accept any certificate of the daemon [false]";
        snappy, "Compress V2 connections with snappy [false]";
    }
}

impl Patch {
    /// The patch in a TOML document.
    ///
    /// # Errors
    /// Where and why it is none, in words for the user.
    pub fn from_toml(text: &str) -> Result<Patch, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }
}
