//! [`Finding`]: what a check has found, and what to do about it.

use std::fmt;
use std::num::NonZeroUsize;

use serde::Serialize;

/// The outcome of a check; the worst is the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// All is well.
    Ok,
    /// nsqd works, but slower or with less safety: on some file systems a power failure may take synced messages.
    Warning,
    /// A start would fail, or nsqd could not do its work from the beginning.
    Failure,
}

/// The judgement of facts that were measured, for the log of a start and for `nsqd --check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub(crate) state: State,
    pub(crate) found: String,
    /// What to do. The text is empty where there is nothing to say.
    pub(crate) advice: String,
}

impl Finding {
    fn new(state: State, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding {
            state,
            found: found.into(),
            advice: advice.into(),
        }
    }

    pub(crate) fn ok(found: impl Into<String>) -> Finding {
        Finding::new(State::Ok, found, "")
    }

    pub(crate) fn warning(found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding::new(State::Warning, found, advice)
    }

    pub(crate) fn failure(found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding::new(State::Failure, found, advice)
    }

    /// Returns a failure as the error that ends a start.
    pub(crate) fn or_refuse(self) -> Result<(), Finding> {
        if self.state == State::Failure {
            return Err(self);
        }
        Ok(())
    }
}

/// The text for a FATAL line.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.found)?;
        if self.advice.is_empty() {
            return Ok(());
        }
        write!(f, " - {}", self.advice)
    }
}

/// `1 shard`, `2 shards`.
pub(crate) fn shards_text(shard_count: NonZeroUsize) -> String {
    match shard_count.get() {
        1 => "1 shard".to_owned(),
        count => format!("{count} shards"),
    }
}

/// Bytes in the unit that people read.
pub(crate) fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut number = bytes as f64;
    let mut unit = 0;
    while number >= 1024.0 && unit + 1 < UNITS.len() {
        number /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} bytes"),
        _ if number < 10.0 => format!("{number:.1} {}", UNITS[unit]),
        _ => format!("{number:.0} {}", UNITS[unit]),
    }
}
