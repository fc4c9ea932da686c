//! [`SetupError`]: settings with which messages cannot be recognised.

use std::io;
use std::path::{Path, PathBuf};

use new_file::InUse;
use ringq_dedup::StateError;
use thiserror::Error;

/// The reason why a [`Dedup`](super::Dedup) cannot be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A filter of numbers has a key that is no number.
    #[error(
        "a Roaring pair needs a key that is a number; use another filter for bodies, texts and bytes"
    )]
    KeyIsNoNumber,
    /// The state cannot be read, or its directory cannot be written.
    #[error("{}: {error}{}", .path.display(), advice(.path, .error))]
    State {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        error: StateError,
    },
    /// The file has the state of a filter with other sizes.
    #[error(
        "{} has a filter with {saved}, and a filter with {wanted} is wanted; \
         remove the file to begin with an empty filter, or choose the sizes of the saved one",
        .path.display()
    )]
    OtherSizes {
        /// The file.
        path: PathBuf,
        /// The sizes of the saved filter.
        saved: String,
        /// The sizes of the filter that was to be restored.
        wanted: String,
    },
    /// The file has the state of a filter with other keys.
    #[error(
        "{} has a filter of the keys {saved}, and a filter of the keys {wanted} is wanted; \
         remove the file to begin with an empty filter, or choose the key of the saved one",
        .path.display()
    )]
    OtherKey {
        /// The file.
        path: PathBuf,
        /// The name of the saved filter's keys.
        saved: String,
        /// The name of the keys of the filter that was to be restored.
        wanted: String,
    },
    /// Another process uses the file, or another [`Dedup`](super::Dedup) of this process.
    #[error("{}", in_use(.path, *.process))]
    InUse {
        /// The file.
        path: PathBuf,
        /// The id of that process, if it is known.
        process: Option<u32>,
    },
    /// The lock that keeps other processes from the file cannot be taken.
    #[error("cannot lock {}: {error}", .path.display())]
    Lock {
        /// The file with the lock.
        path: PathBuf,
        /// The reason.
        #[source]
        error: io::Error,
    },
    /// A store that is not in this process has a state file.
    #[error("memcached keeps its own state; use no state file with it")]
    StateOfStore,
    /// The interval between two saves is zero, or there is no file.
    #[error("an interval between saves must be above zero, and needs a state file")]
    SaveInterval,
}

fn in_use(path: &Path, process: Option<u32>) -> InUse {
    let path = path.to_owned();
    InUse { path, process }
}

/// Returns what to do if the file cannot be used because its directory is not there.
fn advice(path: &Path, error: &StateError) -> String {
    // A path without a slash lies in the working directory, which is there.
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    match (error, directory) {
        (StateError::Io(error), Some(directory)) if error.kind() == io::ErrorKind::NotFound => {
            let directory = directory.display();
            format!("; the directory {directory} is missing: make it, or choose another path")
        }
        _ => String::new(),
    }
}
