//! [`Files`]: the file system as logs use it. A test can answer in its place.
//!
//! Every call may block. The keeper, start-up, import, export and the writer of nsqd.dat make these calls, a reactor
//! never does. Two things do not go through [`Files`]: the lock of the data path
//! ([`DataPathLock`](crate::DataPathLock)), and the trial of a file system before the start
//! ([`TrialFile`](crate::TrialFile)).

use std::io;
use std::path::Path;

use diskq_log::{Memory, Pages};

use crate::mapping::{self, Buffer};

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name, without the directory. Names that are not UTF-8 are not ours and not listed.
    pub name: String,
    /// True if it is a directory itself.
    pub is_dir: bool,
    /// The file's length.
    pub bytes: u64,
    /// The Unix time in nanoseconds at which the file was last written, as the file system says; 0: not known.
    pub modified_ns: u64,
}

/// Why something is not durable.
#[derive(Debug)]
pub enum SyncError {
    /// It could not be opened for want of a descriptor or of memory: nothing was tried, nothing is lost,
    /// and the next attempt may work.
    Retryable(io::Error),
    /// The sync failed, or the file system no longer lets the file be opened. Final: the kernel may have
    /// dropped what it could not write.
    Final(io::Error),
}

impl SyncError {
    /// Classifies the error of an open that a sync begins with. Only a shortage of descriptors or memory is
    /// temporary. A file that is gone, or a file system that was shut down or is read-only, counts as a failed
    /// sync.
    #[must_use]
    pub fn of_open(error: io::Error) -> SyncError {
        if is_shortage(&error) {
            SyncError::Retryable(error)
        } else {
            SyncError::Final(error)
        }
    }

    /// The system's answer.
    #[must_use]
    pub fn into_inner(self) -> io::Error {
        match self {
            SyncError::Retryable(error) | SyncError::Final(error) => error,
        }
    }
}

/// Returns whether the process or the system lacks descriptors or memory. Such a shortage is temporary and says
/// nothing about the file.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let codes = [libc::EMFILE, libc::ENFILE, libc::ENOMEM];
    error.kind() == io::ErrorKind::OutOfMemory
        || error
            .raw_os_error()
            .is_some_and(|code| codes.contains(&code))
}

/// A file system. One instance serves one data path; calls may come from several threads.
pub trait Files {
    /// A descriptor of a whole file system. The kernel remembers which errors it has reported through this
    /// descriptor.
    type FileSystem;

    /// Makes the directory; an existing one is fine.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes sure the file exists with room for its first `bytes` bytes; never shrinks it. The pages are those of a
    /// file that did not exist before. On failure, such a file does not exist after.
    fn allocate(&self, path: &Path, bytes: u64, pages: Pages) -> io::Result<()>;
    /// Maps the first `bytes` bytes, with its pages brought in, ready to be written.
    fn map(&self, path: &Path, bytes: u32) -> io::Result<Memory>;
    /// Takes back what [`Files::map`] gave. The contents stay in the file.
    fn unmap(&self, path: &Path, memory: Memory);
    /// Lends a buffer that was filled from a file.
    fn lend(&self, buffer: Buffer) -> Memory {
        let bytes = buffer.len() as u32;
        buffer.lend(bytes)
    }
    /// Takes back memory whose contents nobody needs: what [`Files::load`] or [`Files::lend`] gave, or a mapping that
    /// comes back too late for [`Files::unmap`].
    fn free(&self, memory: Memory) {
        drop(mapping::take_back(memory));
    }
    /// Writes `memory`, which [`Files::map`] gave for `from`, to the new file `to`. Goes around the page cache where
    /// the file system can, and otherwise syncs what it has written: the error of a later write-back would be lost if
    /// the kernel drops the file from memory before a sync. The copy is not durable until it is synced. `to` must not
    /// exist. A failure may leave `to` unfinished.
    fn copy(&self, from: &Path, memory: &Memory, to: &Path) -> io::Result<()>;
    /// Reads the first `bytes` bytes of a file that nobody has mapped. Goes around the page cache where the file system
    /// can. Reads into `reuse` if that is the memory of an earlier load and has enough room.
    fn load(&self, path: &Path, bytes: u32, reuse: Option<Memory>) -> io::Result<Memory>;
    /// Makes the contents and length of the file durable.
    fn sync(&self, path: &Path) -> Result<(), SyncError>;
    /// Makes the names in the directory durable.
    fn sync_dir(&self, path: &Path) -> Result<(), SyncError>;
    /// The file system of a directory. Errors from now on are told by [`Files::sync_file_system`].
    fn open_file_system(&self, directory: &Path) -> io::Result<Self::FileSystem>;
    /// Makes everything in the file system durable, files and names. Fails if something could not be written since
    /// `file_system` was opened or last failed. Each error is reported once through each descriptor, and once more by
    /// [`Files::sync`] of the file concerned.
    fn sync_file_system(&self, file_system: &Self::FileSystem) -> io::Result<()>;
    /// Gives a file or directory another name, replacing a file that has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory, sorted.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;
    /// The length of the file.
    fn length(&self, path: &Path) -> io::Result<u64>;
    /// Starts to read the first `bytes` bytes of the file into the page cache, and does not wait. Only advice: errors are
    /// left to [`Files::read_at`].
    fn read_ahead(&self, _path: &Path, _bytes: u32) {}
    /// Fills `out` from the file, starting at `offset`.
    fn read_at(&self, path: &Path, offset: u64, out: &mut [u8]) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`, making the file if it does not exist.
    fn write_at(&self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()>;
}
