//! [`Work`]: the time that a consumer works on a message before the FIN.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::random::exponential;
use crate::scenario::span::Span;
use fastrand::Rng;

/// The distribution of work times, as written on the command line and in files: `0`, `1ms`,
/// `uniform:1ms-5ms`, `exp:2ms` (mean).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Work {
    /// No work: a message is finished as soon as it is read.
    #[default]
    None,
    /// Every message takes this long.
    Fixed(Span),
    /// Every time from the first to the last is equally likely.
    Uniform(Span, Span),
    /// The times are exponentially distributed, with this mean.
    Exponential(Span),
}

impl Work {
    /// Draws the work time of one message, in nanoseconds.
    pub fn draw_ns(&self, random: &mut Rng) -> u64 {
        match self {
            Work::None => 0,
            Work::Fixed(span) => span.as_ns(),
            Work::Uniform(least, most) => {
                least.as_ns() + random.u64(..most.as_ns() - least.as_ns() + 1)
            }
            Work::Exponential(mean) => Span(mean.0.mul_f64(exponential(random))).as_ns(),
        }
    }
}

impl FromStr for Work {
    type Err = String;

    fn from_str(text: &str) -> Result<Work, String> {
        match text.split_once(':') {
            None => Ok(match text.parse::<Span>()? {
                span if span.is_zero() => Work::None,
                span => Work::Fixed(span),
            }),
            Some(("exp", mean)) => Ok(Work::Exponential(mean.parse()?)),
            Some(("uniform", range)) => {
                let (least, most) = range
                    .split_once('-')
                    .ok_or_else(|| format!("`{range}` is no range such as 1ms-5ms"))?;
                let (least, most): (Span, Span) = (least.parse()?, most.parse()?);
                if least > most {
                    return Err(format!("{least}-{most} is upside down"));
                }
                Ok(Work::Uniform(least, most))
            }
            Some((other, _)) => Err(format!(
                "`{other}` is no work time: write 0, 1ms, uniform:1ms-5ms or exp:2ms"
            )),
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::None => f.write_str("0"),
            Work::Fixed(span) => write!(f, "{span}"),
            Work::Uniform(least, most) => write!(f, "uniform:{least}-{most}"),
            Work::Exponential(mean) => write!(f, "exp:{mean}"),
        }
    }
}

written_as_text!(Work);

#[cfg(test)]
mod tests;
