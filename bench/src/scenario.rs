//! [`Scenario`]: what is done to a daemon. One type behind the flags of `run`, the TOML files in
//! `bench/scenarios/` and the copy in every saved result.
//!
//! ```text
//!   Scenario::default() <- Patch of a TOML file <- Patch of the flags -> check() -> Scenario
//! ```

pub mod patch;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::rate::Rate;
use crate::size::Sizes;
use crate::span::Span;
use crate::unit::{Unit, number};
use crate::work::Work;
pub use patch::Patch;

/// How messages are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// PUB: one message a command.
    Pub,
    /// MPUB: `batch` messages a command.
    Mpub,
    /// DPUB: one message a command, to be delivered `defer` later.
    Dpub,
    /// HTTP `POST /pub`.
    HttpPub,
    /// HTTP `POST /mpub?binary=true`.
    HttpMpub,
}

impl Via {
    /// Tells whether a command carries a batch.
    #[must_use]
    pub fn is_batched(self) -> bool {
        matches!(self, Via::Mpub | Via::HttpMpub)
    }

    /// Tells whether it goes over HTTP.
    #[must_use]
    pub fn is_http(self) -> bool {
        matches!(self, Via::HttpPub | Via::HttpMpub)
    }
}

/// When consumers begin to take messages. They subscribe before anything is published in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Consume {
    /// From the start, while producers publish.
    AtOnce,
    /// When all is published: the drain of a backlog.
    AfterPublish,
}

/// How the intended send times lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// At even distances.
    Even,
    /// At random, independent of one another (a Poisson process).
    Poisson,
}

/// Everything that is done to a daemon, with every default filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The scenario's name; empty for flags alone.
    pub name: String,
    /// One sentence about what the scenario shows.
    pub description: String,

    /// Number of topics.
    pub topics: u32,
    /// Channels of each topic.
    pub channels: u32,
    /// Connections that publish, in all. They take turns over the topics.
    pub producers: u32,
    /// Connections that consume, for each channel of each topic.
    pub consumers: u32,

    /// How messages are published.
    pub via: Via,
    /// Messages in a batch, with MPUB.
    pub batch: u32,
    /// The delay of a DPUB.
    pub defer: Span,
    /// Message body sizes, in bytes.
    pub size: Sizes,

    /// The offered load of all producers together.
    pub rate: Rate,
    /// How the intended send times lie around it.
    pub arrivals: Arrivals,
    /// The highest rate of a day's curve over its mean; 1 is a flat day. The run is one day,
    /// compressed: it starts and ends at the low of the night, with the peak in the middle.
    pub peak: f64,
    /// With rate `max` and with HTTP: messages of a connection that may await their OK at once.
    pub window: u32,
    /// The number of messages after which publishing stops, if that comes before `duration`. Zero is no
    /// limit. With a limit there is no warm-up.
    pub messages: u64,

    /// Time at the start that is not measured.
    pub warm_up: Span,
    /// Time that is measured.
    pub duration: Span,
    /// How long to wait for what is outstanding when publishing has ended.
    pub drain: Span,

    /// When consumers begin.
    pub consume: Consume,
    /// With [`Consume::AfterPublish`]: time between the last answer and the first message, in which the
    /// daemon does what publishing left to be done. It counts for neither.
    pub pause: Span,
    /// Ready count of each consumer, in messages.
    pub rdy: u32,
    /// Time a consumer works on a message.
    pub work: Work,
    /// Share of first deliveries answered with REQ instead of FIN, 0 to 1.
    pub requeue: f64,
    /// The delay a REQ asks for.
    pub requeue_delay: Span,
    /// Share of first deliveries that are left to time out, 0 to 1.
    pub time_out: f64,
    /// The message timeout that consumers ask for in IDENTIFY. Zero is the daemon's default.
    pub msg_timeout: Span,
    /// The time that the daemon may hold back messages to fill its output buffer, which consumers ask for
    /// in IDENTIFY. Zero is the daemon's default (nsqd: 250 ms, which low rates will show).
    pub output_buffer_timeout: Span,
    /// Share of messages that are sent a TOUCH in the middle of their work, 0 to 1.
    pub touch: f64,
    /// Share of consumers that read slowly, 0 to 1.
    pub slow: f64,
    /// The reading rate of a slow consumer, in bytes per second.
    pub slow_bytes: u32,
    /// Share of consumers that read nothing at all after their RDY until publishing ends, 0 to 1.
    pub stalled: f64,
    /// The time between two storms, in which a part of the consumers drop their connections and come back.
    /// Zero is never.
    pub storm_every: Span,
    /// Share of consumers that a storm hits, 0 to 1.
    pub storm: f64,

    /// True when V2 connections are upgraded to TLS. Results from before there were upgrades have none of
    /// these fields.
    #[serde(default)]
    pub tls: bool,
    /// The certificate authority (PEM) of the daemon's certificate; empty with `tls_insecure`.
    #[serde(default)]
    pub tls_ca: PathBuf,
    /// The certificate (PEM) to show to the daemon; empty for none.
    #[serde(default)]
    pub tls_cert: PathBuf,
    /// The private key (PEM) of `tls_cert`.
    #[serde(default)]
    pub tls_key: PathBuf,
    /// The name that the daemon's certificate must be for; empty is the IP address connected to.
    #[serde(default)]
    pub tls_name: String,
    /// True when any certificate of the daemon will do.
    #[serde(default)]
    pub tls_insecure: bool,
    /// True when V2 connections are compressed with snappy.
    #[serde(default)]
    pub snappy: bool,
    /// The level, 1 to 9, at which V2 connections are compressed with deflate. Zero is not at all.
    #[serde(default)]
    pub deflate: u32,

    /// Seed of sizes, work times and choices.
    pub seed: u64,
}

impl Default for Scenario {
    fn default() -> Scenario {
        Scenario {
            name: String::new(),
            description: String::new(),
            topics: 1,
            channels: 1,
            producers: 1,
            consumers: 1,
            via: Via::Mpub,
            batch: 100,
            defer: Span::from_secs(1),
            size: Sizes::Fixed(200),
            rate: Rate::Max,
            arrivals: Arrivals::Even,
            peak: 1.0,
            window: 1000,
            messages: 0,
            warm_up: Span::from_secs(1),
            duration: Span::from_secs(10),
            drain: Span::from_secs(30),
            consume: Consume::AtOnce,
            pause: Span::default(),
            rdy: 1000,
            work: Work::None,
            requeue: 0.0,
            requeue_delay: Span::default(),
            time_out: 0.0,
            msg_timeout: Span::default(),
            output_buffer_timeout: Span::default(),
            touch: 0.0,
            slow: 0.0,
            slow_bytes: 100_000,
            stalled: 0.0,
            storm_every: Span::default(),
            storm: 0.1,
            tls: false,
            tls_ca: PathBuf::new(),
            tls_cert: PathBuf::new(),
            tls_key: PathBuf::new(),
            tls_name: String::new(),
            tls_insecure: false,
            snappy: false,
            deflate: 0,
            seed: 1,
        }
    }
}

impl Scenario {
    /// Messages that one publish command carries.
    #[must_use]
    pub fn messages_per_command(&self) -> u32 {
        if self.via.is_batched() { self.batch } else { 1 }
    }

    /// Connections that consume, in all.
    #[must_use]
    pub fn consumer_connections(&self) -> u64 {
        u64::from(self.consumers) * u64::from(self.channels) * u64::from(self.topics)
    }

    /// Tells whether consumers may read so late that messages time out on their way to them.
    #[must_use]
    pub fn reads_late(&self) -> bool {
        self.slow + self.stalled > 0.0
    }

    /// The longest time for which the scenario itself lets a message rest in the daemon: deferred,
    /// requeued, or in flight to a consumer that did not answer or dropped its connection (nsqd waits
    /// for the timeout then, too). `msg_timeout` is the daemon's own.
    #[must_use]
    pub fn rest_max(&self, msg_timeout: Option<Duration>) -> Span {
        let asked = Some(self.msg_timeout.0).filter(|asked| !asked.is_zero());
        let timeout = asked.or(msg_timeout).unwrap_or_default();
        let storms = !self.storm_every.is_zero() && self.storm > 0.0;
        let rests = [
            (self.via == Via::Dpub, self.defer.0),
            (self.requeue > 0.0, self.requeue_delay.0),
            (self.time_out > 0.0 || storms, timeout),
        ];
        let rests = rests.into_iter().filter(|(occurs, _)| *occurs);
        Span(rests.map(|(_, rest)| rest).max().unwrap_or_default())
    }

    /// Describes the run in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let via = match self.via {
            Via::Pub => "PUB".to_owned(),
            Via::Mpub => format!("MPUB of {}", self.batch),
            Via::Dpub => format!("DPUB in {}", self.defer),
            Via::HttpPub => "HTTP /pub".to_owned(),
            Via::HttpMpub => format!("HTTP /mpub of {}", self.batch),
        };
        let rate = match self.rate {
            Rate::Max => "as fast as answered (closed loop)".to_owned(),
            Rate::PerSecond(rate) => format!("{} offered (open loop)", Unit::PerSecond.show(rate)),
        };
        let name = match self.name.as_str() {
            "" => String::new(),
            name => format!("{name}: "),
        };
        let counted = |count: u32, what: &str| {
            let plural = if count == 1 { "" } else { "s" };
            format!("{} {what}{plural}", number(count.into()))
        };
        format!(
            "{name}{}, {} each; {} ({via}), {} per channel (RDY {}); messages of {} bytes{}; {rate}; {} \
             after {} of warm-up",
            counted(self.topics, "topic"),
            counted(self.channels, "channel"),
            counted(self.producers, "producer"),
            counted(self.consumers, "consumer"),
            self.rdy,
            self.size,
            self.upgrades(),
            self.duration,
            self.warm_up
        )
    }

    /// The upgrades of its V2 connections, to be appended to the rest; empty when they are plain.
    fn upgrades(&self) -> String {
        let mut text = String::new();
        if self.tls {
            text.push_str(", TLS");
        }
        if self.snappy {
            text.push_str(", snappy");
        }
        if self.deflate > 0 {
            text.push_str(&format!(", deflate at level {}", self.deflate));
        }
        text
    }

    /// Checks that the parts fit together.
    ///
    /// # Errors
    /// When they do not; in words for the user.
    pub fn check(&self) -> Result<(), String> {
        let shares = [
            ("requeue", self.requeue),
            ("time-out", self.time_out),
            ("touch", self.touch),
            ("slow", self.slow),
            ("stalled", self.stalled),
            ("storm", self.storm),
        ];
        for (name, share) in shares {
            if !(0.0..=1.0).contains(&share) {
                return Err(format!("{name} {share} is no share: it goes from 0 to 1"));
            }
        }
        if self.requeue + self.time_out > 1.0 || self.slow + self.stalled > 1.0 {
            return Err("shares that exclude each other add up to more than 1".into());
        }
        let positive = [
            ("topics", self.topics),
            ("batch", self.batch),
            ("window", self.window),
            ("rdy", self.rdy),
            ("slow-bytes", self.slow_bytes),
        ];
        for (name, count) in positive {
            if count == 0 {
                return Err(format!("{name} must be at least 1"));
            }
        }
        if self.producers == 0 && self.consumers == 0 {
            return Err("neither producers nor consumers: there is nothing to run".into());
        }
        if self.producers > crate::header::PRODUCERS_MAX {
            return Err(format!(
                "{} producers are more than {}",
                self.producers,
                crate::header::PRODUCERS_MAX
            ));
        }
        if self.consumers > 0 && self.channels == 0 {
            return Err("consumers need at least one channel".into());
        }
        if self.duration.is_zero() {
            return Err("duration must not be zero".into());
        }
        if self.peak < 1.0 || self.peak > 20.0 {
            return Err(format!("peak {} is not between 1 and 20", self.peak));
        }
        if self.peak > 1.0 && self.rate == Rate::Max {
            return Err("a day's curve (peak) needs a rate".into());
        }
        if self.consume == Consume::AfterPublish && self.producers == 0 {
            return Err("consume after-publish needs producers".into());
        }
        if self.consume == Consume::AtOnce && !self.pause.is_zero() {
            return Err("a pause needs consume after-publish".into());
        }
        self.check_upgrades()
    }

    fn check_upgrades(&self) -> Result<(), String> {
        let is_set = |path: &PathBuf| !path.as_os_str().is_empty();
        if self.deflate > 9 {
            return Err(format!("deflate {} is no level from 1 to 9", self.deflate));
        }
        if self.snappy && self.deflate > 0 {
            return Err("snappy and deflate exclude each other".into());
        }
        let files = [&self.tls_ca, &self.tls_cert, &self.tls_key];
        let refined = files.into_iter().any(is_set) || !self.tls_name.is_empty();
        if !self.tls && (refined || self.tls_insecure) {
            return Err("tls-ca, tls-cert, tls-key, tls-name and tls-insecure need tls".into());
        }
        if self.tls && is_set(&self.tls_ca) == self.tls_insecure {
            return Err(
                "tls needs either tls-ca, the authority of the daemon's certificate, or tls-insecure"
                    .into(),
            );
        }
        if is_set(&self.tls_cert) != is_set(&self.tls_key) {
            return Err("tls-cert and tls-key belong together".into());
        }
        if self.via.is_http() && self.producers > 0 && !self.upgrades().is_empty() {
            return Err("TLS and compression are for V2: HTTP producers would go without".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
