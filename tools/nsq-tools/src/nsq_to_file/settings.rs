//! [`Settings`]: the part of the flags that says how files are named, written and rotated.

use std::path::PathBuf;
use std::time::Duration;

use super::compression::Compression;
use super::file_name::NameFormat;

/// The part of the flags that says how files are named, written and rotated.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// The directory of finished files, without `.` and trailing slashes.
    pub(super) output_dir: PathBuf,
    /// The directory of the files that are being written, in the same form.
    pub(super) work_dir: PathBuf,
    /// The names of files.
    pub(super) names: NameFormat,
    /// The form of files.
    pub(super) compression: Compression,
    /// The size in bytes above which a file is rotated. `None` sets no limit.
    pub(super) rotate_size: Option<u64>,
    /// The age above which a file is rotated. `None` sets no limit.
    pub(super) rotate_interval: Option<Duration>,
    /// True if a rotation at the end of `--sync-interval` opens no file.
    pub(super) skips_empty_files: bool,
    /// The number of messages after which a batch is synced.
    pub(super) batch_max: usize,
    /// The bytes of messages after which a batch is synced, beside the next messages.
    pub(super) batch_bytes_max: u64,
}

impl Settings {
    /// Returns true if files are written in another directory than that of finished files.
    pub(super) fn moves_files(&self) -> bool {
        self.work_dir != self.output_dir
    }

    /// Returns true if a file that is there already is never continued. A compressed file would get
    /// members behind a torn one. A file that is rotated by age has to begin now.
    pub(super) fn opens_only_new_files(&self) -> bool {
        self.compression != Compression::None || self.rotate_interval.is_some()
    }
}
