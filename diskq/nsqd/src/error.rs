//! [`TransferError`]: the reason why nsqd's files were not taken over or not written.

use std::fmt;

use diskq::{DiskError, LogWriteError};

/// The reason why nsqd's files were not taken over or not written.
#[derive(Debug)]
pub enum TransferError {
    /// The system refused an operation.
    Disk(DiskError),
    /// Any other reason. The text names the obstacle and the remedy.
    Failed(String),
}

impl From<LogWriteError> for TransferError {
    fn from(error: LogWriteError) -> TransferError {
        match error {
            LogWriteError::Disk(error) => TransferError::Disk(error),
            other => TransferError::Failed(other.to_string()),
        }
    }
}

impl From<DiskError> for TransferError {
    fn from(error: DiskError) -> TransferError {
        TransferError::Disk(error)
    }
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransferError::Disk(error) => error.fmt(f),
            TransferError::Failed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for TransferError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TransferError::Disk(error) => Some(error),
            TransferError::Failed(_) => None,
        }
    }
}
