//! [`OpenFile`]: the file that an archive writes.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use crate::nsq_to_file::disk::{Disk, DiskError};

/// The file that an archive writes.
pub(super) struct OpenFile<D: Disk> {
    pub(super) file: D::File,
    /// The name with `<REV>` left in place.
    pub(super) name: String,
    /// The path below `--work-dir`, and later below `--output-dir`.
    pub(super) relative: PathBuf,
    /// The path while the file is open.
    pub(super) path: PathBuf,
    /// The bytes of the messages before compression, and those that the file had when it was opened.
    pub(super) size: u64,
    /// The bytes that were written since the opening.
    pub(super) written: u64,
    /// The first of these bytes that are synced.
    pub(super) synced: u64,
    /// The time of the opening.
    pub(super) opened: Instant,
}

impl<D: Disk> OpenFile<D> {
    /// Returns the failure of an operation on this file.
    pub(super) fn error(&self, verb: &'static str, source: io::Error) -> DiskError {
        DiskError::new(verb, &self.path, source)
    }
}
