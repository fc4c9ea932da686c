//! The sentences of the doctor.

use std::fmt;

use crate::diagnosis::{Diagnosis, Limit, Paused, Saturation, Setting, Unreached};
use crate::sample::Pause;

/// Most terms of pauses that a sentence tells.
const TERMS_MAX: usize = 3;

impl Diagnosis {
    /// Returns true if somebody should do something.
    pub fn is_problem(&self) -> bool {
        self.oldest_failed.is_some() || self.is_limited()
    }

    /// Returns true if the limit is a problem.
    fn is_limited(&self) -> bool {
        !matches!(
            self.limit,
            Limit::Idle { .. } | Limit::KeepsUp { .. } | Limit::CatchesUp { .. }
        )
    }

    /// Returns the sentence for a channel whose oldest message gets older: it does not say that consumers keep up.
    pub fn beside_older(&self) -> String {
        match &self.limit {
            Limit::KeepsUp { arrivals, .. } if self.oldest_failed.is_none() => format!(
                "Consumers take what else arrives, {}/s; look at the messages in flight and deferred",
                short(*arrivals)
            ),
            _ => self.to_string(),
        }
    }
}

/// One sentence: what limits the channel, and what to change.
impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.oldest_failed {
            None => self.write_limit(f)?,
            Some(failed) => {
                write!(
                    f,
                    "The oldest message has failed {} times: look at it",
                    short(failed as f64)
                )?;
                if self.is_limited() || matches!(self.limit, Limit::CatchesUp { .. }) {
                    write!(f, ". ")?;
                    self.write_limit(f)?;
                }
            }
        }
        if let Some(node) = &self.only_node {
            write!(f, " (only at {node})")?;
        }
        if let Some(unreached) = &self.unreached {
            write!(f, " (and no consumer at {unreached})")?;
        }
        for paused in &self.paused {
            write!(f, ". {paused}")?;
        }
        Ok(())
    }
}

impl Diagnosis {
    fn write_limit(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.limit {
            Limit::Idle {
                has_consumers: false,
                ..
            } => write!(f, "Idle: no messages and no consumers"),
            Limit::Idle { deferred: 0, .. } => write!(f, "Idle: no messages"),
            Limit::Idle { deferred, .. } => write!(f, "Idle: {}", are_deferred(*deferred)),
            Limit::KeepsUp { arrivals, capacity } => keeps_up(f, *arrivals, *capacity),
            Limit::CatchesUp { depth, seconds } => {
                let (depth, time) = (short(*depth as f64), duration(*seconds));
                write!(
                    f,
                    "Catches up: the {depth} waiting messages take {time} more"
                )
            }
            Limit::Paused(paused) => write!(f, "{paused}"),
            Limit::NoConsumers {
                depth,
                deferred,
                arrivals,
            } => no_consumers(f, *depth, *deferred, *arrivals),
            Limit::DeadLetters { from, depth } => write!(
                f,
                "Dead letters of {from}: {}; look at them, then publish them again or empty the channel",
                messages_wait(*depth)
            ),
            Limit::UnreachedNodes(unreached) => write!(
                f,
                "No consumer at {unreached}: connect the consumers to every node"
            ),
            Limit::Backoff {
                without_ready,
                connections,
            } => write!(
                f,
                "Backoff: {without_ready} of {connections} connections have RDY 0; see the \
                 consumers' logs for failed messages"
            ),
            Limit::FewerInFlightThanNodes { nodes } => {
                write!(
                    f,
                    "One node at a time: consumers have fewer messages in flight than the {nodes} nodes"
                )?;
                self.write_change(f)
            }
            Limit::TimesOut { timeouts } => {
                let rate = short(*timeouts);
                write!(f, "Timeouts, {rate}/s: raise msg_timeout or touch messages")?;
                self.write_change(f)
            }
            Limit::Fails { requeues, finishes } => write!(
                f,
                "Handlers fail: {}/s are requeued and {}/s finished; see the consumers' logs",
                short(*requeues),
                short(*finishes)
            ),
            Limit::Stuck { in_flight } => write!(
                f,
                "Stuck: none of the {in_flight} messages in flight was finished; see what the \
                 handlers wait for"
            ),
            Limit::ReadyTooLow(saturation) => {
                write!(f, "RDY too low: ")?;
                write_saturation(f, saturation)?;
                self.write_change(f)
            }
            Limit::HandlerTooSlow(saturation) => {
                write!(f, "Handlers too slow: ")?;
                write_saturation(f, saturation)?;
                self.write_change(f)
            }
            Limit::ReadsSlowly { in_flight, ready } => write!(
                f,
                "Consumers read slowly: {in_flight} messages are in flight and RDY allows {ready}; \
                 see their network and CPU"
            ),
        }
    }

    fn write_change(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(change) = self.change else {
            return Ok(());
        };
        match change.what {
            Setting::MaxInFlight if change.to < change.from => write!(
                f,
                ", or lower max_in_flight from {} to {}",
                change.from, change.to
            ),
            Setting::MaxInFlight => write!(
                f,
                "; raise max_in_flight from {} to {}",
                change.from, change.to
            ),
            Setting::Consumers => write!(
                f,
                "; run {} consumers instead of {}, or as many more handlers",
                change.to, change.from
            ),
        }
    }
}

fn no_consumers(
    f: &mut fmt::Formatter<'_>,
    depth: i64,
    deferred: i64,
    arrivals: f64,
) -> fmt::Result {
    write!(f, "No consumers: {}", messages_wait(depth))?;
    if deferred != 0 {
        write!(f, ", {}", are_deferred(deferred))?;
    }
    write!(f, " and {}/s arrive; start a consumer", short(arrivals))
}

fn keeps_up(f: &mut fmt::Formatter<'_>, arrivals: f64, capacity: Option<f64>) -> fmt::Result {
    write!(f, "Keeps up: {}/s arrive", short(arrivals))?;
    match capacity {
        Some(capacity) if capacity > arrivals => {
            write!(f, ", RDY allows about {}/s", short(capacity))
        }
        _ => Ok(()),
    }
}

/// `Paused at 1 of 2 nodes for another 12m by ann (deploying); 7 messages wait there`. A pause with an end, a name or a note
/// is intended, so only pauses without them are followed by the advice to end them: that would end the others, too.
impl fmt::Display for Paused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_partial = self.nodes < self.all;
        write!(
            f,
            "{}",
            if self.is_of_topic {
                "Topic paused"
            } else {
                "Paused"
            }
        )?;
        if is_partial {
            write!(f, " at {} of {} nodes", self.nodes, self.all)?;
        }
        let there = if is_partial { " there" } else { "" };
        if self.terms.is_empty() {
            let waiting = short(self.waiting as f64);
            let what = if self.is_of_topic {
                "it"
            } else {
                "the channel"
            };
            return write!(f, " with {waiting} waiting messages{there}: unpause {what}");
        }
        for (index, terms) in self.terms.iter().take(TERMS_MAX).enumerate() {
            write!(f, "{}{terms}", if index > 0 { ", elsewhere" } else { "" })?;
        }
        match self.terms.len().saturating_sub(TERMS_MAX) {
            0 => {}
            more => write!(f, ", and with {more} other terms")?,
        }
        match self.without_terms {
            0 => {}
            1 => write!(f, ", and at 1 node without a reason")?,
            nodes => write!(f, ", and at {nodes} nodes without a reason")?,
        }
        write!(f, "; {}{there}", messages_wait(self.waiting))
    }
}

/// ` for another 12m by ann (deploying)`
impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pause { left, by, note } = self;
        if let Some(left) = left {
            write!(f, " for another {}", duration(left.as_secs_f64()))?;
        }
        if !by.is_empty() {
            write!(f, " by {by}")?;
        }
        if note.is_empty() {
            Ok(())
        } else {
            write!(f, " ({note})")
        }
    }
}

/// Two of the nodes, and the messages of all: `a:4151, b:4151 and 3 more, where 6 messages wait`.
impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.nodes.iter().take(2).map(String::as_str).collect();
        write!(f, "{}", names.join(", "))?;
        if self.nodes.len() > 2 {
            write!(f, " and {} more", self.nodes.len() - 2)?;
        }
        write!(f, ", where {}", messages_wait(self.depth))
    }
}

fn messages_wait(count: i64) -> String {
    match count {
        1 => "1 message waits".to_owned(),
        _ => format!("{} messages wait", short(count as f64)),
    }
}

fn are_deferred(count: i64) -> String {
    match count {
        1 => "1 message is deferred".to_owned(),
        _ => format!("{} messages are deferred", short(count as f64)),
    }
}

fn write_saturation(f: &mut fmt::Formatter<'_>, saturation: &Saturation) -> fmt::Result {
    let subject = match saturation.consumers {
        1 => "1 consumer finishes".to_owned(),
        count => format!("{count} consumers finish"),
    };
    write!(
        f,
        "{subject} {} of {}/s at {} a message",
        short(saturation.finishes),
        short(saturation.arrivals),
        duration(saturation.seconds_in_flight)
    )
}

/// Returns a number in at most five characters: `950`, `1.2k`, `35k`, `4.1M`.
pub fn short(number: f64) -> String {
    let units = ["", "k", "M", "G", "T", "P", "E"];
    let mut scaled = number.abs();
    let mut unit = 0;
    // A number that would be shown as 1000 belongs to the next unit.
    while scaled >= 999.5 && unit + 1 < units.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    let sign = if number < 0.0 { "-" } else { "" };
    let is_whole = scaled.fract() == 0.0 && unit == 0;
    let digits = if scaled >= 9.95 || is_whole { 0 } else { 1 };
    format!("{sign}{scaled:.digits$}{}", units[unit])
}

/// Returns a time in at most five characters: `850us`, `12ms`, `3.4s`, `2m`, `5h`, `12d`.
pub fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 0.000_999_5 => (s * 1e6, "us"),
        s if s < 0.999_5 => (s * 1e3, "ms"),
        s if s < 99.5 => (s, "s"),
        s if s < 99.5 * 60.0 => (s / 60.0, "m"),
        s if s < 99.5 * 3600.0 => (s / 3600.0, "h"),
        s => (s / 86_400.0, "d"),
    };
    let digits = if value >= 9.95 || value == 0.0 { 0 } else { 1 };
    format!("{value:.digits$}{unit}")
}
