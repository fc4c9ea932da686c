//! [`Scenario`] and [`Patch`], both declared by one table: the fields of a scenario, their defaults and flags.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{Arrivals, Client, Consume, Via};
use crate::scenario::rate::{DAY_SECONDS, Rate, parse_count};
use crate::scenario::size::Sizes;
use crate::scenario::span::Span;
use crate::scenario::work::Work;

/// Declares [`Scenario`], its default, [`Patch`] and how a patch is applied. A row has the field, its type, its
/// default, the name of the flag's value and the flag's help. Rows of switches have only the field and the help.
macro_rules! scenario {
    ($($heading:literal {
        $($(#[$meta:meta])* $field:ident: $kind:ty = $default:expr, $value:literal, $help:literal;)*
    })*
    switches in $switch_heading:literal { $($switch:ident, $switch_help:literal;)* }) => {
        /// Everything that is done to a daemon, with every default filled in. A share goes from 0 to 1.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Scenario {
            /// The scenario's name; empty for flags alone.
            pub name: String,
            /// One sentence about what the scenario shows.
            pub description: String,
            $($(
                #[doc = $help]
                $(#[$meta])*
                pub $field: $kind,
            )*)*
            $(
                #[doc = $switch_help]
                #[serde(default)]
                pub $switch: bool,
            )*
        }

        impl Default for Scenario {
            fn default() -> Scenario {
                Scenario {
                    name: String::new(),
                    description: String::new(),
                    $($($field: $default,)*)*
                    $($switch: false,)*
                }
            }
        }

        /// The parts of a scenario that the command line or a file states.
        #[derive(Clone, Debug, Default, PartialEq, Deserialize, Args)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        #[group(skip)]
        pub struct Patch {
            /// The scenario's name.
            #[arg(skip)]
            pub name: Option<String>,
            /// One sentence about what the scenario shows.
            #[arg(skip)]
            pub description: Option<String>,
            /// Instead of a rate: messages per day, such as 5e9.
            #[arg(long, value_name = "MESSAGES/DAY", conflicts_with = "rate", value_parser = parse_count,
                  help = "Offered load in messages per day, such as 5e9, instead of --rate",
                  help_heading = "Publishing")]
            pub per_day: Option<f64>,
            $($(
                #[doc = $help]
                #[arg(long, value_name = $value, help = $help, help_heading = $heading)]
                pub $field: Option<$kind>,
            )*)*
            $(
                #[doc = $switch_help]
                #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
                      default_missing_value = "true", help = $switch_help,
                      help_heading = $switch_heading)]
                pub $switch: Option<bool>,
            )*
        }

        impl Patch {
            /// Returns the scenario with each stated field changed.
            pub fn apply(self, mut scenario: Scenario) -> Scenario {
                scenario.name = self.name.unwrap_or(scenario.name);
                scenario.description = self.description.unwrap_or(scenario.description);
                if let Some(messages) = self.per_day {
                    // A day's messages are spread evenly.
                    scenario.rate = Rate::PerSecond(messages / DAY_SECONDS);
                }
                $($(scenario.$field = self.$field.unwrap_or(scenario.$field);)*)*
                $(scenario.$switch = self.$switch.unwrap_or(scenario.$switch);)*
                scenario
            }
        }
    };
}

scenario! {
    "Topics and connections" {
        topics: u32 = 1, "COUNT", "Number of topics [1]";
        channels: u32 = 1, "COUNT", "Channels of each topic [1]";
        producers: u32 = 1, "CONNECTIONS", "Connections that publish, in all; 0 for none [1]";
        consumers: u32 = 1, "CONNECTIONS",
            "Connections that consume, per channel of each topic; 0 for none [1]";
    }
    "Publishing" {
        via: Via = Via::Mpub, "HOW", "How messages are published [mpub; pub with --client blocking]";
        batch: u32 = 100, "MESSAGES", "Messages in one MPUB [100]";
        defer: Span = Span::from_secs(1), "TIME", "How much later a DPUB is to be delivered [1s]";
        size: Sizes = Sizes::Fixed(200), "BYTES",
            "Body size: 200, uniform:100-4000, lognormal:MEDIAN,SIGMA or list:200*9,10000*1 [200]";
        rate: Rate = Rate::Max, "MESSAGES/S",
            "Offered load of all producers together: max (closed loop) or messages per second (open loop) [max]";
        arrivals: Arrivals = Arrivals::Even, "HOW", "Distances between the intended send times [even]";
        /// The run starts and ends at the low of the night, with the peak in the middle.
        peak: f64 = 1.0, "FACTOR",
            "Run one compressed day whose highest rate is FACTOR times its mean; 1 is flat [1]";
        /// Results from before there was a choice have no such field.
        #[serde(default)]
        client: Client = Client::EventLoop, "KIND",
            "Producers: event-loop, or blocking (a thread each, one command under way) [event-loop]";
        /// A connection for HTTP has one request under way.
        window: u32 = 1000, "MESSAGES",
            "With --rate max: messages of a connection that may await their OK [1000]";
        /// With a limit there is no warm-up.
        messages: u64 = 0, "COUNT", "Stop publishing after so many messages, 0 for no limit [0]";
    }
    "Time" {
        warm_up: Span = Span::from_secs(1), "TIME", "Time at the start that is not measured [1s]";
        duration: Span = Span::from_secs(10), "TIME", "Time that is measured [10s]";
        drain: Span = Span::from_secs(30), "TIME", "Longest wait for outstanding messages at the end [30s]";
    }
    "Consuming" {
        consume: Consume = Consume::AtOnce, "WHEN", "When consumers begin to take messages [at-once]";
        /// Meanwhile the daemon finishes the work that publishing left, such as writing to disk.
        pause: Span = Span::default(), "TIME",
            "With consume after-publish: rest between the two, measured for neither [0s]";
        rdy: u32 = 1000, "MESSAGES", "Ready count of each consumer [1000]";
        work: Work = Work::None, "TIME", "Work on each message: 0, 1ms, uniform:1ms-5ms or exp:MEAN [0]";
        requeue: f64 = 0.0, "SHARE", "Share of first deliveries answered with REQ, 0 to 1 [0]";
        requeue_delay: Span = Span::default(), "TIME", "Delay that a REQ asks for [0s]";
        time_out: f64 = 0.0, "SHARE", "Share of first deliveries left to time out, 0 to 1 [0]";
        msg_timeout: Span = Span::default(), "TIME",
            "Message timeout asked for in IDENTIFY; 0 is the daemon's default [0s]";
        /// nsqd's default is 250 ms, which low rates will show.
        output_buffer_timeout: Span = Span::default(), "TIME",
            "How long the daemon may hold back messages, asked for in IDENTIFY; 0 is its default [0s]";
        touch: f64 = 0.0, "SHARE",
            "Share of messages that get a TOUCH halfway through their work, 0 to 1 [0]";
        slow: f64 = 0.0, "SHARE", "Share of consumers that read slowly, 0 to 1 [0]";
        slow_bytes: u32 = 100_000, "BYTES/S", "What a slow consumer reads [100000]";
        stalled: f64 = 0.0, "SHARE", "Share of consumers that read nothing until publishing ends, 0 to 1 [0]";
        storm_every: Span = Span::default(), "TIME",
            "Every so often some consumers drop their connection and come back; 0 is never [0s]";
        storm: f64 = 0.1, "SHARE", "Share of the consumers that each storm hits, 0 to 1 [0.1]";
        seed: u64 = 1, "NUMBER", "Seed of sizes, work times and choices [1]";
    }
    "TLS and compression" {
        /// Results from before there were upgrades have none of these fields.
        #[serde(default)]
        tls_ca: PathBuf = PathBuf::new(), "FILE",
            "With --tls: the certificate authority (PEM) of the daemon's certificate";
        #[serde(default)]
        tls_name: String = String::new(), "NAME",
            "With --tls: the name the daemon's certificate must be for [its IP address]";
        #[serde(default)]
        tls_cert: PathBuf = PathBuf::new(), "FILE",
            "With --tls: the certificate (PEM) to show to the daemon [none]";
        #[serde(default)]
        tls_key: PathBuf = PathBuf::new(), "FILE", "With --tls: the private key (PEM) of --tls-cert";
        #[serde(default)]
        deflate: u32 = 0, "LEVEL",
            "Compress V2 connections with deflate at this level, 1 to 9; 0 is not at all [0]";
    }
    switches in "TLS and compression" {
        tls, "Upgrade V2 connections to TLS; needs --tls-ca or --tls-insecure [false]";
        tls_insecure, "With --tls: accept any certificate of the daemon [false]";
        snappy, "Compress V2 connections with snappy [false]";
    }
}

impl Patch {
    /// The patch in a TOML document.
    /// Fails with the place and the reason, in words for the user, when it is none.
    pub fn from_toml(text: &str) -> Result<Patch, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }
}
