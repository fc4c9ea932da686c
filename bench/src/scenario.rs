//! [`Scenario`]: what is done to a daemon. One type behind the flags of `run`, the TOML files in
//! `bench/scenarios/` and the copy in every saved result.
//!
//! ```text
//!   Scenario::default() <- Patch of a TOML file <- Patch of the flags -> check() -> Scenario
//! ```

mod fields;
pub mod header;
pub mod rate;
pub mod size;
pub mod span;
pub(crate) mod unit;
pub mod upgrades;
pub mod work;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::scenario::rate::Rate;
use crate::scenario::span::Span;
use crate::scenario::unit::{Unit, number};
pub use fields::{Patch, Scenario};

/// The command that publishes.
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
    /// Tells whether one command carries several messages.
    pub fn is_batched(self) -> bool {
        matches!(self, Via::Mpub | Via::HttpMpub)
    }

    /// Tells whether messages are published by HTTP.
    pub fn is_http(self) -> bool {
        matches!(self, Via::HttpPub | Via::HttpMpub)
    }
}

/// The kind of program that a producer imitates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Client {
    /// A thread has many connections, and handles what is ready.
    #[default]
    EventLoop,
    /// Each connection has a thread of its own, which sends a command and sleeps until its answer has come.
    Blocking,
}

/// The time at which consumers begin to take messages. They always subscribe before anything is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Consume {
    /// From the start, while producers publish.
    AtOnce,
    /// When all is published: the drain of a backlog.
    AfterPublish,
}

/// The distribution of the intended send times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// At even distances.
    Even,
    /// At random, independent of one another (a Poisson process).
    Poisson,
}

/// The most producers with a thread of their own. Some thousand threads that wake every few milliseconds leave two cores no
/// time for anything else.
const BLOCKING_MAX: u32 = 256;

impl Scenario {
    /// Returns the number of messages that one publish command carries.
    pub fn messages_per_command(&self) -> u32 {
        if self.via.is_batched() { self.batch } else { 1 }
    }

    /// Returns how many messages of a connection may await their answer in a closed loop.
    pub fn window(&self) -> u64 {
        match self.client {
            Client::EventLoop => self.window.into(),
            // A blocking client has one command under way.
            Client::Blocking => self.messages_per_command().into(),
        }
    }

    /// Returns the offered load in messages per second; `None` in a closed loop, and if nothing is published.
    pub fn offered_per_s(&self) -> Option<f64> {
        self.rate.per_second().filter(|_| self.producers > 0)
    }

    /// Returns the scenario with this offered load, in messages per second.
    pub fn at_rate(&self, rate: f64) -> Scenario {
        Scenario {
            rate: Rate::PerSecond(rate),
            ..self.clone()
        }
    }

    /// Returns the number of consumer connections, over all channels and topics.
    pub fn consumer_connections(&self) -> u64 {
        u64::from(self.consumers) * u64::from(self.channels) * u64::from(self.topics)
    }

    /// Tells whether consumers may read so late that messages time out on their way to them.
    pub fn reads_late(&self) -> bool {
        self.slow + self.stalled > 0.0
    }

    /// Returns the longest time for which the scenario itself lets a message rest in the daemon: deferred,
    /// requeued, or in flight to a consumer that did not answer or dropped its connection (nsqd waits
    /// for the timeout then, too). `msg_timeout` is the daemon's own.
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
    pub fn summary(&self) -> String {
        let is_blocking = self.client == Client::Blocking;
        let blocking = if is_blocking { ", blocking" } else { "" };
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
        let colon = if self.name.is_empty() { "" } else { ": " };
        let counted = |count: u32, what: &str| {
            let plural = if count == 1 { "" } else { "s" };
            format!("{} {what}{plural}", number(count.into()))
        };
        format!(
            "{}{colon}{}, {} each; {} ({via}{blocking}), {} per channel (RDY {}); messages of {} bytes{}; {rate}; {} \
             after {} of warm-up",
            self.name,
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

    /// Checks that every value is in its range and the values fit together.
    /// Fails when they do not; in words for the user.
    pub fn check(&self) -> Result<(), String> {
        let shares = [
            ("requeue", self.requeue),
            ("time-out", self.time_out),
            ("touch", self.touch),
            ("slow", self.slow),
            ("stalled", self.stalled),
            ("storm", self.storm),
        ];
        let is_wrong = |(_, share): &&(&str, f64)| !(0.0..=1.0).contains(share);
        if let Some((name, share)) = shares.iter().find(is_wrong) {
            return Err(format!("{name} {share} is no share: it goes from 0 to 1"));
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
        if let Some((name, _)) = positive.iter().find(|(_, count)| *count == 0) {
            return Err(format!("{name} must be at least 1"));
        }
        let is_blocking = self.client == Client::Blocking;
        let (producers, most) = (self.producers, crate::scenario::header::PRODUCERS_MAX);
        let wrong = if producers == 0 && self.consumers == 0 {
            "neither producers nor consumers: there is nothing to run".into()
        } else if producers > most {
            format!("{producers} producers are more than {most}")
        } else if self.consumers > 0 && self.channels == 0 {
            "consumers need at least one channel".into()
        } else if self.duration.is_zero() {
            "duration must not be zero".into()
        } else if self.peak < 1.0 || self.peak > 20.0 {
            format!("peak {} is not between 1 and 20", self.peak)
        } else if self.peak > 1.0 && self.rate == Rate::Max {
            "a day's curve (peak) needs a rate".into()
        } else if is_blocking && self.rate != Rate::Max {
            "a blocking client sends as fast as it is answered: leave the rate out".into()
        } else if is_blocking && producers > BLOCKING_MAX {
            format!(
                "{producers} blocking clients are more threads than {BLOCKING_MAX}: the client event-loop carries more"
            )
        } else if self.consume == Consume::AfterPublish && producers == 0 {
            "consume after-publish needs producers".into()
        } else if self.consume == Consume::AtOnce && !self.pause.is_zero() {
            "a pause needs consume after-publish".into()
        } else {
            return self.check_upgrades();
        };
        Err(wrong)
    }

    fn check_upgrades(&self) -> Result<(), String> {
        let is_set = |path: &PathBuf| !path.as_os_str().is_empty();
        let files = [&self.tls_ca, &self.tls_cert, &self.tls_key];
        let refined = files.into_iter().any(is_set) || !self.tls_name.is_empty();
        let wrong = if self.deflate > 9 {
            return Err(format!("deflate {} is no level from 1 to 9", self.deflate));
        } else if self.snappy && self.deflate > 0 {
            "snappy and deflate exclude each other"
        } else if !self.tls && (refined || self.tls_insecure) {
            "tls-ca, tls-cert, tls-key, tls-name and tls-insecure need tls"
        } else if self.tls && is_set(&self.tls_ca) == self.tls_insecure {
            "tls needs either tls-ca, the authority of the daemon's certificate, or tls-insecure"
        } else if is_set(&self.tls_cert) != is_set(&self.tls_key) {
            "tls-cert and tls-key belong together"
        } else if self.via.is_http() && self.producers > 0 && !self.upgrades().is_empty() {
            "TLS and compression are for V2: HTTP producers would go without"
        } else {
            return Ok(());
        };
        Err(wrong.into())
    }
}

#[cfg(test)]
mod tests;
