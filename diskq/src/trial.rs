//! [`TrialFile`]: does to a file without a name what a log does to its segments, so that a file system can be judged
//! before it holds messages.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::mapping;
use crate::os_files;

/// A file in a data path that nobody sees. It is gone when this is dropped, or the process ends.
#[derive(Debug)]
pub struct TrialFile(File);

impl TrialFile {
    /// Makes the file in `directory` and removes its name at once. Another process may hold the lock of the data path
    /// meanwhile: a file without a name is in nobody's way.
    ///
    /// A process that is killed in between leaves the name behind, and in a container each process has the same id. So
    /// a name that is there is removed. The file behind it may belong to another process that runs: that process has
    /// the file open already, and needs the name no more.
    ///
    /// # Errors
    /// The system's answer: no file can be made there.
    pub fn create(directory: &Path) -> io::Result<TrialFile> {
        let path = directory.join(format!(".nsqd-check-{}", std::process::id()));
        let file = match create_new(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                remove_name(&path)?;
                create_new(&path)
            }
            result => result,
        }?;
        remove_name(&path)?;
        Ok(TrialFile(file))
    }

    /// Reserves room, as for a segment. Returns false if the file system cannot reserve: the room is filled with
    /// zeros then.
    ///
    /// # Errors
    /// The system's answer, as a rule that there is no room.
    pub fn reserve(&self, bytes: u64) -> io::Result<bool> {
        os_files::reserve(&self.0, bytes)
    }

    /// Maps what was reserved, and brings its pages in, as for a segment.
    ///
    /// # Errors
    /// The system's answer.
    pub fn map(&self, bytes: u32) -> io::Result<()> {
        mapping::map(&self.0, bytes).map(drop)
    }

    /// Writes into the reserved room and syncs it, as the keeper does. Returns the time that the sync took.
    ///
    /// # Errors
    /// The system's answer.
    pub fn write_and_sync(&self, offset: u64, bytes: &[u8]) -> io::Result<Duration> {
        self.0.write_all_at(bytes, offset)?;
        let began = Instant::now();
        self.0.sync_data()?;
        Ok(began.elapsed())
    }
}

fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    options.mode(os_files::FILE_MODE).open(path)
}

/// Removes a name that another process may have removed meanwhile.
fn remove_name(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every use of a file; the directory stays empty.
    fn check(make: impl Fn(&Path) -> io::Result<TrialFile>) {
        let directory = tempfile::tempdir().unwrap();
        let trial = make(directory.path()).unwrap();
        let is_empty = || fs::read_dir(directory.path()).unwrap().next().is_none();
        assert!(is_empty());
        trial.reserve(64 << 10).unwrap();
        trial.map(64 << 10).unwrap();
        trial.write_and_sync(4096, &[1; 4096]).unwrap();
        let length = trial.0.metadata().unwrap().len();
        assert_eq!(length, 64 << 10, "what is written was reserved");
        assert!(is_empty());
        trial
            .map(128 << 10)
            .expect_err("no more can be mapped than was reserved");
    }

    #[test]
    fn a_trial_leaves_no_name() {
        check(TrialFile::create);
    }

    /// Every later check failed. Opened by a check that was killed before it removed its file's name, in a container,
    /// where each process has the same id.
    #[test]
    fn a_name_that_a_killed_check_left_is_not_in_the_way() {
        check(|directory| {
            let left = directory.join(format!(".nsqd-check-{}", std::process::id()));
            fs::write(left, "left over")?;
            TrialFile::create(directory)
        });
    }

    #[test]
    fn a_trial_needs_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing");
        let error = TrialFile::create(&missing).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(!missing.exists());
    }
}
