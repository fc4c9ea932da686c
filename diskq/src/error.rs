//! [`DiskError`]: what start-up and the directory functions return.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use wire::go_error::system_text;

/// A failure of start-up, of the data path's lock or of the removal of a log.
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
    /// Any other failure: what was attempted, on what, and the system's answer.
    Io {
        /// The operation, as in "list".
        attempt: &'static str,
        /// What it was tried on.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
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
            DiskError::Missing(_) | DiskError::NotADirectory(_) | DiskError::Locked(_) => None,
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
