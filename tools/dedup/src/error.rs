//! The errors: options that make no filter, and saved states that cannot be used.

use std::fmt;
use std::io;

/// An option with which no filter can be made.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterOptionError {
    /// The name of the option.
    pub option: &'static str,
    /// The condition that the value must meet.
    pub requirement: &'static str,
    /// The value.
    pub value: f64,
}

impl fmt::Display for FilterOptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FilterOptionError {
            option,
            requirement,
            value,
        } = self;
        write!(f, "{option} is {value}, and must be {requirement}")
    }
}

impl std::error::Error for FilterOptionError {}

/// A saved state that could not be written or read.
#[derive(Debug)]
pub enum StateError {
    /// The file or stream failed.
    Io(io::Error),
    /// The bytes are no saved state, or are damaged. The text says where.
    Damaged(&'static str),
    /// The bytes are the saved state of another filter.
    OtherFilter {
        /// The filter that the caller wants.
        wanted: &'static str,
        /// The filter whose state the bytes are.
        found: String,
    },
    /// The bytes have a version that this crate does not know.
    Version(u16),
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateError::Io(error) => write!(f, "the saved state cannot be used: {error}"),
            StateError::Damaged(what) => write!(
                f,
                "the saved state is damaged ({what}); remove it to begin with an empty filter"
            ),
            StateError::OtherFilter { wanted, found } => write!(
                f,
                "the saved state is that of the filter {found}, and {wanted} is wanted; choose another file"
            ),
            StateError::Version(version) => write!(
                f,
                "the saved state has version {version}, which a newer program has written"
            ),
        }
    }
}

impl std::error::Error for StateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StateError::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for StateError {
    fn from(error: io::Error) -> StateError {
        StateError::Io(error)
    }
}
