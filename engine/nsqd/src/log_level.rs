//! The levels of the core's lines in the program's log.

use engine_rules::Level;
use program::log;

/// Returns the level of the program's log for a line of the core, which knows no log.
pub(crate) fn log_level(level: Level) -> log::Level {
    match level {
        Level::Debug => log::Level::Debug,
        Level::Info => log::Level::Info,
        Level::Warning => log::Level::Warn,
        Level::Error => log::Level::Error,
    }
}
