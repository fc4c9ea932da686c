//! [`Span`]: a duration as people write it, `250us`, `10ms`, `1.5s`, `2m`, `12h`, `7d`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A length of time that is written with its unit, on the command line and in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(pub Duration);

/// The units, the longest first, in nanoseconds.
const UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

impl Span {
    /// Makes a span of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Span {
        Span(Duration::from_millis(ms))
    }

    /// Makes a span of `seconds` seconds.
    pub const fn from_secs(seconds: u64) -> Span {
        Span(Duration::from_secs(seconds))
    }

    /// Returns the length in nanoseconds, at most the 584 years that fit.
    pub fn as_ns(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the length in whole milliseconds, rounded down, at most `u64::MAX`.
    pub fn as_millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// Tells whether the length is zero.
    pub fn is_zero(self) -> bool {
        self.0.is_zero()
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let wrong = || {
            format!("`{text}` is no length of time: write a number and ns, us, ms, s, m, h or d")
        };
        if text == "0" {
            return Ok(Span::default());
        }
        let unit_at = text.find(|c: char| c.is_ascii_alphabetic());
        let (number, unit) = text.split_at(unit_at.ok_or_else(wrong)?);
        let known = UNITS.iter().find(|(name, _)| *name == unit);
        let (_, unit_ns) = known.ok_or_else(wrong)?;
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        let ns = number * *unit_ns as f64;
        if !(0.0..9e18).contains(&ns) {
            return Err(wrong());
        }
        Ok(Span(Duration::from_nanos(ns.round() as u64)))
    }
}

impl fmt::Display for Span {
    /// Writes the span in the longest unit that leaves no remainder, so that the text reads back as the same span.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.as_ns();
        if ns == 0 {
            return f.write_str("0s");
        }
        let mut units = UNITS
            .iter()
            .filter(|(_, unit_ns)| ns.is_multiple_of(*unit_ns));
        let (name, unit_ns) = units.next().expect("all are multiples of 1 ns");
        write!(f, "{}{name}", ns / unit_ns)
    }
}

written_as_text!(Span);

#[cfg(test)]
mod tests;
