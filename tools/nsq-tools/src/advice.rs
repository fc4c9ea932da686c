//! [`advice`]: what helps after the failure of a file.

use std::io::{Error, ErrorKind};

/// Returns what a user can do after this failure of a file. `None` means that the failure says too little.
pub fn advice(error: &Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Some("free some space"),
        ErrorKind::PermissionDenied => Some("let this user write there"),
        ErrorKind::ReadOnlyFilesystem => Some("mount the file system for writing"),
        ErrorKind::NotADirectory => Some("move the file that is in the way"),
        _ => None,
    }
}
