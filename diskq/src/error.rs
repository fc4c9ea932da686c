//! [`DiskError`]: why the files of a data path could not be read or changed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use wire::go_error::system_text;

use crate::files::SyncError;

/// Why the files of a data path could not be read or changed.
#[derive(Debug)]
pub enum DiskError {
    /// The directory does not exist. It is never created (as in nsqd).
    Missing(PathBuf),
    /// The path exists and is not a directory.
    NotADirectory(PathBuf),
    /// The directory may not be opened or written to.
    NotPermitted(PathBuf, io::Error),
    /// Another process holds the data path.
    Locked(PathBuf),
    /// Any other answer of the system: what was attempted, and on what.
    Io {
        /// The operation, as in "list".
        attempt: &'static str,
        /// The file or directory of the operation.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Any other reason. The text names the obstacle, and the remedy if there is one.
    Failed(String),
}

/// Makes a [`DiskError`] of the system's answer to an attempt.
pub trait Attempt<T> {
    /// Says what was attempted, as in "list", and on what.
    ///
    /// # Errors
    /// The attempt has failed.
    fn in_attempt(self, attempt: &'static str, path: &Path) -> Result<T, DiskError>;
}

impl<T> Attempt<T> for io::Result<T> {
    fn in_attempt(self, attempt: &'static str, path: &Path) -> Result<T, DiskError> {
        self.map_err(|error| DiskError::io(attempt, path, error))
    }
}

impl<T> Attempt<T> for Result<T, SyncError> {
    fn in_attempt(self, attempt: &'static str, path: &Path) -> Result<T, DiskError> {
        self.map_err(SyncError::into_inner)
            .in_attempt(attempt, path)
    }
}

impl DiskError {
    /// Makes the failure of `attempt` on `path`.
    #[must_use]
    pub fn io(attempt: &'static str, path: &Path, source: io::Error) -> DiskError {
        DiskError::Io {
            attempt,
            path: path.to_path_buf(),
            source,
        }
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskError::Missing(path) => write!(f, "{}: no such file or directory", path.display()),
            DiskError::NotADirectory(path) => write!(f, "{}: not a directory", path.display()),
            DiskError::NotPermitted(path, source) => {
                write!(f, "{}: {}", path.display(), system_text(source))
            }
            DiskError::Failed(text) => f.write_str(text),
            DiskError::Locked(path) => {
                write!(f, "{}: in use by another process", path.display())
            }
            DiskError::Io {
                attempt,
                path,
                source,
            } => {
                write!(
                    f,
                    "cannot {attempt} {}: {}",
                    path.display(),
                    system_text(source)
                )
            }
        }
    }
}

impl std::error::Error for DiskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DiskError::NotPermitted(_, source) | DiskError::Io { source, .. } => Some(source),
            DiskError::Missing(_)
            | DiskError::NotADirectory(_)
            | DiskError::Locked(_)
            | DiskError::Failed(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_tells_what_was_attempted_on_what_and_the_systems_answer() {
        let source = io::Error::from_raw_os_error(libc::EACCES);
        let error = DiskError::io("list", Path::new("/data"), source);
        assert_eq!(error.to_string(), "cannot list /data: permission denied");
    }
}
