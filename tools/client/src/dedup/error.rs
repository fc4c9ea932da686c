//! [`SetupError`]: settings with which messages cannot be recognised.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use new_file::InUse;
use ringq_dedup::StateError;

/// The reason why a [`Dedup`](super::Dedup) cannot be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum SetupError {
    /// A filter of numbers has a key that is no number.
    KeyIsNoNumber,
    /// The state cannot be read, or its directory cannot be written.
    State {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: StateError,
    },
    /// The file has the state of a filter with other sizes.
    OtherSizes {
        /// The file.
        path: PathBuf,
        /// The sizes of the saved filter.
        saved: String,
        /// The sizes of the filter that was to be restored.
        wanted: String,
    },
    /// The file has the state of a filter with other keys.
    OtherKey {
        /// The file.
        path: PathBuf,
        /// The name of the saved filter's keys.
        saved: String,
        /// The name of the keys of the filter that was to be restored.
        wanted: String,
    },
    /// Another process uses the file, or another [`Dedup`](super::Dedup) of this process.
    InUse {
        /// The file.
        path: PathBuf,
        /// The id of that process, if it is known.
        process: Option<u32>,
    },
    /// The lock that keeps other processes from the file cannot be taken.
    Lock {
        /// The file with the lock.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A store that is not in this process has a state file.
    StateOfStore,
    /// The interval between two saves is zero, or there is no file.
    SaveInterval,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupError::KeyIsNoNumber => f.write_str(
                "a Roaring pair needs a key that is a number; use another filter for bodies, texts and bytes",
            ),
            SetupError::State { path, error } => {
                write!(f, "{}: {error}", path.display())?;
                match missing_directory(path, error) {
                    Some(directory) => write!(
                        f,
                        "; the directory {} is missing: make it, or choose another path",
                        directory.display()
                    ),
                    None => Ok(()),
                }
            }
            SetupError::OtherSizes {
                path,
                saved,
                wanted,
            } => write!(
                f,
                "{} has a filter with {saved}, and a filter with {wanted} is wanted; \
                 remove the file to begin with an empty filter, or choose the sizes of the saved one",
                path.display()
            ),
            SetupError::OtherKey {
                path,
                saved,
                wanted,
            } => write!(
                f,
                "{} has a filter of the keys {saved}, and a filter of the keys {wanted} is wanted; \
                 remove the file to begin with an empty filter, or choose the key of the saved one",
                path.display()
            ),
            SetupError::InUse { path, process } => {
                let (path, process) = (path.clone(), *process);
                InUse { path, process }.fmt(f)
            }
            SetupError::Lock { path, error } => {
                write!(f, "cannot lock {}: {error}", path.display())
            }
            SetupError::StateOfStore => {
                f.write_str("memcached keeps its own state; use no state file with it")
            }
            SetupError::SaveInterval => {
                f.write_str("an interval between saves must be above zero, and needs a state file")
            }
        }
    }
}

/// Returns the directory of the file, if the file cannot be used because its directory is not there.
fn missing_directory<'p>(path: &'p Path, error: &StateError) -> Option<&'p Path> {
    match error {
        StateError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
            let directory = path.parent()?;
            // A path without a slash lies in the working directory, which is there.
            (!directory.as_os_str().is_empty()).then_some(directory)
        }
        _ => None,
    }
}

impl std::error::Error for SetupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SetupError::State { error, .. } => Some(error),
            SetupError::Lock { error, .. } => Some(error),
            _ => None,
        }
    }
}
