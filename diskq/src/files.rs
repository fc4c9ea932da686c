//! [`Files`]: everything this crate ever asks of a file system, so that a test can answer instead.
//!
//! All of it may block. Only the keeper and start-up call it, never a reactor.

use std::io;
use std::ops::Range;
use std::path::Path;

use crate::mapping::{Mapping, Written};

/// The bytes of one segment, wherever they are kept. Dropping a mapped one unmaps it, which may
/// block: a reactor hands memories to the keeper instead of dropping them.
#[derive(Debug)]
pub enum Memory {
    /// A shared, writable mapping of the segment's file.
    Mapped(Mapping),
    /// Anonymous pages, of which the first so many bytes are a copy of the segment's file.
    Buffer(memmap2::MmapMut, u32),
    /// Plain memory: simulation, or a rescued copy of a file with unreadable blocks.
    Heap(Box<[u8]>),
}

impl Memory {
    /// Marks pieces as written, for the sync; what is not mapped does not care.
    pub(crate) fn written(&self, pieces: [Range<u32>; 2]) -> Option<Written> {
        match self {
            Memory::Mapped(mapping) => Some(mapping.written(pieces)),
            Memory::Buffer(..) | Memory::Heap(_) => None,
        }
    }
}

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        match self {
            Memory::Mapped(mapping) => mapping,
            Memory::Buffer(buffer, bytes) => &buffer[..*bytes as usize],
            Memory::Heap(bytes) => bytes,
        }
    }
}

impl AsMut<[u8]> for Memory {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Mapped(mapping) => mapping,
            Memory::Buffer(buffer, bytes) => &mut buffer[..*bytes as usize],
            Memory::Heap(bytes) => bytes,
        }
    }
}

/// What a mapping of a file is to be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// What the file system chooses, as a rule the processor's pages. A sync writes those that were touched.
    Small,
    /// Huge ones (2 MiB on x86), where kernel and file system have them for files. Quicker to bring in and to
    /// copy with direct I/O, but a sync writes each of them whole.
    Huge,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name, without the directory. Names that are not UTF-8 are not ours and not listed.
    pub name: String,
    /// Whether it is a directory itself.
    pub is_dir: bool,
    /// The file's length.
    pub bytes: u64,
}

/// Why something is not durable.
#[derive(Debug)]
pub enum SyncError {
    /// It could not be opened for want of a descriptor or of memory: nothing was tried, nothing is lost,
    /// and the next attempt may work.
    Open(io::Error),
    /// The sync failed, or the file system no longer lets the file be opened. Final: the kernel may have
    /// dropped what it could not write.
    Sync(io::Error),
}

impl SyncError {
    /// Classifies the error of an open that a sync begins with. Only a shortage of descriptors or memory is
    /// temporary. A file that is gone, or a file system that was shut down or is read-only, counts as a failed
    /// sync.
    pub(crate) fn of_open(error: io::Error) -> SyncError {
        if is_shortage(&error) {
            SyncError::Open(error)
        } else {
            SyncError::Sync(error)
        }
    }

    /// The system's answer.
    #[must_use]
    pub fn into_inner(self) -> io::Error {
        match self {
            SyncError::Open(error) | SyncError::Sync(error) => error,
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
    type Whole;

    /// Makes the directory; an existing one is fine.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes sure the file exists with room for its first `bytes` bytes; never shrinks it. On
    /// failure a file that did not exist before does not exist after.
    fn allocate(&self, path: &Path, bytes: u64) -> io::Result<()>;
    /// Maps the first `bytes` bytes, with its pages brought in, ready to be written.
    fn map(&self, path: &Path, bytes: u32, pages: Pages) -> io::Result<Memory>;
    /// Takes back what [`Files::map`] gave. The contents stay in the file.
    fn unmap(&self, path: &Path, memory: Memory);
    /// Writes what [`Files::map`] gave of `from` to the new file `to`, around the page cache where
    /// the file system can. Not durable until synced. `to` must not exist; a failure may leave it,
    /// unfinished.
    fn copy(&self, from: &Path, memory: &Memory, to: &Path) -> io::Result<()>;
    /// Reads the first `bytes` bytes of a file nobody has mapped, around the page cache where the
    /// file system can; into `reuse` if that is an earlier one with room enough.
    fn load(&self, path: &Path, bytes: u32, reuse: Option<Memory>) -> io::Result<Memory>;
    /// Makes the contents and length of the file durable.
    fn sync(&self, path: &Path) -> Result<(), SyncError>;
    /// Makes the names in the directory durable.
    fn sync_dir(&self, path: &Path) -> Result<(), SyncError>;
    /// The file system of a directory. Errors from now on are told by [`Files::sync_whole`].
    fn whole(&self, directory: &Path) -> io::Result<Self::Whole>;
    /// Makes everything in the file system durable, files and names. Fails if any of it was not written since
    /// `whole` was taken or last failed: each error is told once through each `whole`, and besides that once
    /// by [`Files::sync`] of the file concerned.
    fn sync_whole(&self, whole: &Self::Whole) -> io::Result<()>;
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
    /// Fills `out` from the file, starting at `offset`.
    fn read_at(&self, path: &Path, offset: u64, out: &mut [u8]) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`, making the file if it does not exist.
    fn write_at(&self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()>;
}
