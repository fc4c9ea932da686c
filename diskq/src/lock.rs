//! [`DataPathLock`]: one process per data path.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use rustix::fs::{Access, access};

use crate::error::DiskError;

/// Holds the data path against other processes, nsqd included, until dropped.
#[derive(Debug)]
pub struct DataPathLock {
    /// Open for the lock's sake only: `flock` ends with the last descriptor.
    _directory: File,
}

impl DataPathLock {
    /// Locks the directory itself (`flock`, exclusive, without waiting), as nsqd does, so that both
    /// programs exclude each other. Never creates it.
    pub fn acquire(data_path: &Path) -> Result<DataPathLock, DiskError> {
        let directory = open_directory(data_path)?;
        match directory.try_lock() {
            Ok(()) => Ok(DataPathLock {
                _directory: directory,
            }),
            Err(TryLockError::WouldBlock) => Err(DiskError::Locked(data_path.to_path_buf())),
            Err(TryLockError::Error(source)) => Err(DiskError::io("lock", data_path, source)),
        }
    }
}

/// Checks that files can be made in the data path: the process has the permission, and the file system is not
/// read-only.
pub fn check_writable(data_path: &Path) -> Result<(), DiskError> {
    drop(open_directory(data_path)?);
    access(
        data_path,
        Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK,
    )
    .map_err(|errno| {
        let source = io::Error::from(errno);
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                DiskError::NotPermitted(data_path.to_path_buf(), source)
            }
            _ => DiskError::io("write to", data_path, source),
        }
    })
}

fn open_directory(data_path: &Path) -> Result<File, DiskError> {
    let to_error = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => DiskError::Missing(data_path.to_path_buf()),
        io::ErrorKind::NotADirectory => DiskError::NotADirectory(data_path.to_path_buf()),
        io::ErrorKind::PermissionDenied => DiskError::NotPermitted(data_path.to_path_buf(), source),
        _ => DiskError::io("open", data_path, source),
    };
    let directory = File::open(data_path).map_err(to_error)?;
    if directory.metadata().map_err(to_error)?.is_dir() {
        Ok(directory)
    } else {
        Err(DiskError::NotADirectory(data_path.to_path_buf()))
    }
}

#[cfg(test)]
mod tests;
