//! [`ReadOnly`]: files that refuse changes. Start-up tidies up while it reads; an export must not.

use std::io;
use std::path::Path;

use diskq::{Entry, Files, Memory, Pages, SyncError};

/// Passes reads on to the same files and refuses every change.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadOnly<F>(pub(super) F);

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl<F: Files> Files for ReadOnly<F> {
    type FileSystem = F::FileSystem;

    fn create_dir(&self, _path: &Path) -> io::Result<()> {
        refused()
    }

    fn allocate(&self, _path: &Path, _bytes: u64) -> io::Result<()> {
        refused()
    }

    fn map(&self, _path: &Path, _bytes: u32, _pages: Pages) -> io::Result<Memory> {
        refused()
    }

    fn unmap(&self, path: &Path, memory: Memory) {
        self.0.unmap(path, memory);
    }

    fn copy(&self, _from: &Path, _memory: &Memory, _to: &Path) -> io::Result<()> {
        refused()
    }

    fn load(&self, path: &Path, bytes: u32, reuse: Option<Memory>) -> io::Result<Memory> {
        self.0.load(path, bytes, reuse)
    }

    fn sync(&self, _path: &Path) -> Result<(), SyncError> {
        refused().map_err(SyncError::Sync)
    }

    fn sync_dir(&self, _path: &Path) -> Result<(), SyncError> {
        refused().map_err(SyncError::Sync)
    }

    fn open_file_system(&self, directory: &Path) -> io::Result<F::FileSystem> {
        self.0.open_file_system(directory)
    }

    fn sync_file_system(&self, _file_system: &F::FileSystem) -> io::Result<()> {
        refused()
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        refused()
    }

    fn remove(&self, _path: &Path) -> io::Result<()> {
        refused()
    }

    fn remove_dir(&self, _path: &Path) -> io::Result<()> {
        refused()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.0.list(path)
    }

    fn length(&self, path: &Path) -> io::Result<u64> {
        self.0.length(path)
    }

    fn read_at(&self, path: &Path, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_at(path, offset, out)
    }

    fn write_at(&self, _path: &Path, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        refused()
    }
}
