//! [`Level`]: the importance of a line.

use std::str::FromStr;

/// The importance of a line. The numbers are those that `/config/log_level` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Details for a developer: every command, every message.
    Debug = 1,
    /// Information for an operator.
    Info = 2,
    /// Something unexpected happened, and the process handled it.
    Warn = 3,
    /// An operation failed, and the process continues.
    Error = 4,
    /// The process ends for this reason.
    Fatal = 5,
}

/// The levels with their names and the words of their lines.
const LEVELS: [(Level, &str, &str); 5] = [
    (Level::Debug, "debug", "DEBUG"),
    (Level::Info, "info", "INFO"),
    (Level::Warn, "warn", "WARNING"),
    (Level::Error, "error", "ERROR"),
    (Level::Fatal, "fatal", "FATAL"),
];

impl Level {
    /// Returns the name of the level for `--log-level` and for JSON.
    pub fn name(self) -> &'static str {
        LEVELS[self as usize - 1].1
    }

    /// Returns the word for a line of text. Like NSQ's programs, a line says WARNING although the
    /// flag accepts `warn`.
    pub fn word(self) -> &'static str {
        LEVELS[self as usize - 1].2
    }

    /// Returns the level with this number. A number that is not one of a level counts as FATAL.
    pub(super) fn of(number: u8) -> Level {
        let known = LEVELS.iter().find(|(level, ..)| *level as u8 == number);
        known.map_or(Level::Fatal, |(level, ..)| *level)
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Level, String> {
        let lower = text.to_ascii_lowercase();
        let known = LEVELS.iter().find(|(_, name, _)| *name == lower);
        let known = known.map(|(level, ..)| *level);
        known.ok_or_else(|| format!("invalid log level '{text}' (debug, info, warn, error, fatal)"))
    }
}
