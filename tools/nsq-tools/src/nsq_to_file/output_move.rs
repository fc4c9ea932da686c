//! [`OutputMove`]: moves a file from `--work-dir` to `--output-dir`, under the first name that is free.

use std::io;
use std::path::{Path, PathBuf};

use program::log_warn;

use super::disk::{Disk, DiskError, Stop};

/// The move of a file to `--output-dir`.
pub(super) struct OutputMove<'a> {
    pub(super) from: &'a Path,
    pub(super) output_dir: &'a Path,
    /// The first name below that directory.
    pub(super) relative: PathBuf,
    /// The beginning of the log line.
    pub(super) label: &'a str,
    /// The order that ends a copy to another file system.
    pub(super) stop: &'a Stop,
}

impl OutputMove<'_> {
    /// Moves the file, and replaces no other one: while a name is taken, `next` returns the one after it. Returns the new
    /// path.
    ///
    /// # Errors
    /// An operation failed, or a stop ended the copy. The file is in one of the two directories.
    pub(super) fn run<D: Disk>(
        self,
        disk: &mut D,
        mut next: impl FnMut(&Path) -> PathBuf,
    ) -> Result<PathBuf, DiskError> {
        let mut relative = self.relative;
        let mut is_first = true;
        loop {
            let to = self.output_dir.join(&relative);
            // A cleaner may have removed the directory since it was made.
            make_parent(disk, &to)?;
            match disk.move_file(self.from, &to, self.stop) {
                Ok(()) => return Ok(to),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(DiskError::new("move", self.from, source)),
            }
            if is_first {
                let (label, to) = (self.label, to.display());
                log_warn!("{label} destination file already exists: {to}");
                is_first = false;
            }
            relative = next(&relative);
        }
    }
}

/// Makes the directory of a file.
pub(super) fn make_parent(disk: &mut impl Disk, path: &Path) -> Result<(), DiskError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let made = disk.make_directories(directory);
    made.map_err(|source| DiskError::new("make the directory", directory, source))
}
