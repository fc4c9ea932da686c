//! [`OpenFile`]: the file that an archive writes.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use wire::go_value::duration_text;

use crate::nsq_to_file::disk::{Disk, DiskError};
use crate::nsq_to_file::settings::Settings;

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

    /// Returns the reason why the next message belongs to another file, if there is one. `name` is the
    /// name of a file that is opened now.
    pub(super) fn rotation_reason(
        &self,
        name: &str,
        now: Instant,
        settings: &Settings,
    ) -> Option<String> {
        if self.name != name {
            return Some(format!("new filename {name}"));
        }
        let age = now.saturating_duration_since(self.opened);
        if settings.rotate_interval.is_some_and(|max| age > max) {
            return Some(format!("{} since last open", duration_text(age)));
        }
        self.full(settings)
    }

    /// Returns the reason why the file is too large, if it is.
    pub(super) fn full(&self, settings: &Settings) -> Option<String> {
        let max = settings.rotate_size.filter(|max| self.size > *max)?;
        let (path, size) = (self.path.display(), self.size);
        Some(format!("{path} currently {size} bytes (> {max})"))
    }
}
