//! [`Sizes`]: the sizes of messages.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::random::normal;
use crate::scenario::header::HEADER_BYTES;
use fastrand::Rng;

/// Largest body that can be asked for, in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 30;

/// The distribution of message sizes in bytes, as written on the command line and in files:
/// `200`, `uniform:100-4000`, `lognormal:400,1.2` (median, sigma), `list:200*9,10000*1` (weights).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Sizes {
    /// Every message has this size.
    Fixed(usize),
    /// Every size from the first to the last is equally likely.
    Uniform(usize, usize),
    /// The logarithm is normally distributed: median in bytes, standard deviation of the logarithm.
    LogNormal(f64, f64),
    /// Each size with its weight.
    List(Vec<(usize, u32)>),
}

impl Sizes {
    /// Draws one size, never less than the header needs nor more than [`Sizes::bytes_max`].
    pub fn draw(&self, random: &mut Rng) -> usize {
        let bytes = match self {
            Sizes::Fixed(bytes) => *bytes,
            Sizes::Uniform(least, most) => least + random.u64(..(most - least) as u64 + 1) as usize,
            Sizes::LogNormal(median, sigma) => (median * (sigma * normal(random)).exp()) as usize,
            Sizes::List(list) => {
                let total: u64 = list.iter().map(|(_, weight)| u64::from(*weight)).sum();
                let mut at = random.u64(..total);
                let found = list.iter().find(|(_, weight)| {
                    let found = at < u64::from(*weight);
                    at = at.saturating_sub(u64::from(*weight));
                    found
                });
                found.map_or(HEADER_BYTES, |(bytes, _)| *bytes)
            }
        };
        bytes.clamp(HEADER_BYTES, self.bytes_max())
    }

    /// Returns the largest size that [`Sizes::draw`] returns. The log-normal tail is cut at four sigma, one
    /// message in 30,000.
    pub fn bytes_max(&self) -> usize {
        match self {
            Sizes::Fixed(bytes) => *bytes,
            Sizes::Uniform(_, most) => *most,
            Sizes::LogNormal(median, sigma) => {
                ((median * (4.0 * sigma).exp()) as usize).clamp(HEADER_BYTES, BODY_BYTES_MAX)
            }
            Sizes::List(list) => list.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0),
        }
    }

    /// Returns the mean of the distribution in bytes, as if the log-normal tail were not cut.
    pub fn mean(&self) -> f64 {
        match self {
            Sizes::Fixed(bytes) => *bytes as f64,
            Sizes::Uniform(least, most) => (*least as f64 + *most as f64) / 2.0,
            Sizes::LogNormal(median, sigma) => median * (sigma * sigma / 2.0).exp(),
            Sizes::List(list) => {
                let total: f64 = list.iter().map(|(_, weight)| f64::from(*weight)).sum();
                let bytes = |(bytes, weight): &(usize, u32)| *bytes as f64 * f64::from(*weight);
                list.iter().map(bytes).sum::<f64>() / total
            }
        }
    }

    fn checked(self) -> Result<Sizes, String> {
        let (least, most) = match &self {
            Sizes::Uniform(least, most) if least > most => {
                return Err(format!("{least}-{most} is upside down"));
            }
            Sizes::Uniform(least, _) => (*least, self.bytes_max()),
            Sizes::LogNormal(median, sigma) => {
                if !(0.0..=4.0).contains(sigma) || !median.is_finite() {
                    return Err(format!("sigma {sigma} is not between 0 and 4"));
                }
                (*median as usize, self.bytes_max())
            }
            Sizes::Fixed(bytes) => (*bytes, *bytes),
            Sizes::List(list) => {
                if list.iter().all(|(_, weight)| *weight == 0) {
                    return Err("no size of the list has a weight".into());
                }
                let least = list.iter().map(|(bytes, _)| *bytes).min();
                (least.unwrap_or(0), self.bytes_max())
            }
        };
        if least < HEADER_BYTES {
            return Err(format!(
                "{least} bytes are too few: each message carries {HEADER_BYTES} bytes of producer, \
                 number, time and checksum"
            ));
        }
        if most > BODY_BYTES_MAX {
            return Err(format!("{most} bytes are more than {BODY_BYTES_MAX}"));
        }
        Ok(self)
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Sizes, String> {
        let wrong = || {
            format!(
                "`{text}` is no message size in bytes: write 200, uniform:100-4000, \
                 lognormal:400,1.2 or list:200*9,10000*1"
            )
        };
        let bytes = |text: &str| text.trim().parse::<usize>().map_err(|_| wrong());
        let sizes = match text.split_once(':') {
            None => Sizes::Fixed(bytes(text)?),
            Some(("uniform", range)) => {
                let (least, most) = range.split_once('-').ok_or_else(wrong)?;
                Sizes::Uniform(bytes(least)?, bytes(most)?)
            }
            Some(("lognormal", shape)) => {
                let (median, sigma) = shape.split_once(',').ok_or_else(wrong)?;
                let number = |text: &str| text.trim().parse::<f64>().map_err(|_| wrong());
                Sizes::LogNormal(number(median)?, number(sigma)?)
            }
            Some(("list", list)) => {
                let entry = |entry: &str| match entry.split_once('*') {
                    Some((size, weight)) => {
                        Ok((bytes(size)?, weight.trim().parse().map_err(|_| wrong())?))
                    }
                    None => Ok((bytes(entry)?, 1)),
                };
                Sizes::List(list.split(',').map(entry).collect::<Result<_, String>>()?)
            }
            Some(_) => return Err(wrong()),
        };
        sizes.checked()
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::Fixed(bytes) => write!(f, "{bytes}"),
            Sizes::Uniform(least, most) => write!(f, "uniform:{least}-{most}"),
            Sizes::LogNormal(median, sigma) => write!(f, "lognormal:{median},{sigma}"),
            Sizes::List(list) => {
                f.write_str("list:")?;
                for (index, (bytes, weight)) in list.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{bytes}*{weight}")?;
                }
                Ok(())
            }
        }
    }
}

written_as_text!(Sizes);

#[cfg(test)]
mod tests;
