//! [`Rate`]: how many messages a second are offered.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Seconds of a day, by which a demand per day becomes a rate.
pub const DAY_SECONDS: f64 = 86_400.0;

/// The offered load, as written on the command line and in files: `max` or messages per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Rate {
    /// A closed loop: as fast as answers come back, with a window of outstanding publishes.
    Max,
    /// An open loop: this many messages per second, whatever the daemon does.
    PerSecond(f64),
}

impl Rate {
    /// Returns the messages per second; `None` for [`Rate::Max`].
    pub fn per_second(self) -> Option<f64> {
        match self {
            Rate::Max => None,
            Rate::PerSecond(rate) => Some(rate),
        }
    }
}

/// Reads a positive number: plain, with `k`, `M` or `G` behind it, or in scientific notation.
/// Fails when the text is no such number; in words for the user.
pub fn parse_count(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is no positive number such as 50000, 50k, 1.5M or 5e9");
    let scaled = |(unit, factor): (char, f64)| Some((text.strip_suffix(unit)?, factor));
    let scales = [('k', 1e3), ('M', 1e6), ('G', 1e9)];
    let (number, factor) = scales.into_iter().find_map(scaled).unwrap_or((text, 1.0));
    let count = number.trim().parse::<f64>().map_err(|_| wrong())? * factor;
    let count = Some(count).filter(|count| count.is_finite() && *count > 0.0);
    count.ok_or_else(wrong)
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        if text == "max" {
            return Ok(Rate::Max);
        }
        let rate = parse_count(text).map_err(|error| format!("{error}, nor `max`"))?;
        Ok(Rate::PerSecond(rate))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rate::Max => f.write_str("max"),
            Rate::PerSecond(rate) => write!(f, "{rate}"),
        }
    }
}

written_as_text!(Rate);

#[cfg(test)]
mod tests;
