//! [`Finding`]: what a check has found, and what to do about it.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// The outcome of a check; the worst is the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// All is well.
    Ok,
    /// The daemon works, but slower or with less safety: on some file systems a power failure may take synced messages.
    Warning,
    /// A start would fail now, and would succeed once the daemon that runs here has stopped.
    Waiting,
    /// A start would fail, or the daemon could not do its work from the beginning.
    Failure,
}

/// The judgement of facts that were measured, for the log of a start and for `--check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The outcome.
    pub state: State,
    /// The facts.
    pub found: String,
    /// What to do. The text is empty where there is nothing to say.
    pub advice: String,
    /// Lines for people, below the facts.
    pub details: Vec<String>,
    /// The details for programs.
    pub data: Option<Value>,
}

impl Finding {
    fn new(state: State, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding {
            state,
            found: found.into(),
            advice: advice.into(),
            details: Vec::new(),
            data: None,
        }
    }

    /// Returns the finding that all is well.
    pub fn ok(found: impl Into<String>) -> Finding {
        Finding::new(State::Ok, found, "")
    }

    /// Returns a finding of the state [`State::Warning`].
    pub fn warning(found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding::new(State::Warning, found, advice)
    }

    /// Returns a finding of the state [`State::Waiting`].
    pub fn waiting(found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding::new(State::Waiting, found, advice)
    }

    /// Returns a finding of the state [`State::Failure`].
    pub fn failure(found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding::new(State::Failure, found, advice)
    }

    /// Returns the finding with its details: lines for people, and JSON for programs.
    #[must_use]
    pub fn with(mut self, details: Vec<String>, data: Value) -> Finding {
        self.details = details;
        self.data = Some(data);
        self
    }

    /// Returns a failure as the error that ends a start.
    ///
    /// # Errors
    /// This finding, if it is a failure.
    pub fn or_refuse(self) -> Result<(), Finding> {
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

/// Returns bytes in the unit that people read.
pub fn bytes_text(bytes: u64) -> String {
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
