//! [`Disk`]: the operations on files that an archive needs. [`OsDisk`] is the real file system.

mod moving;
mod name;
mod os_file;

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;

use new_file::{FILE_MODE, parent, sync_directory};
use rustix::io::Errno;

use self::name::is_removed;
pub(super) use self::name::{has_name, is_gone};
use self::os_file::OsFile;
pub(super) use self::os_file::OsSync;
use super::stop::Stop;
use crate::advice::advice;

/// The mode of new directories, before the umask.
const DIRECTORY_MODE: u32 = 0o770;

/// The number of times that another process may move a file while it is being opened. Two in a row are improbable.
const LOST_MAX: u32 = 100;

/// The operations on files that an archive needs. After a power failure, the disk has everything
/// that these operations promise.
pub(super) trait Disk {
    /// An open file.
    type File;

    /// A sync that goes on beside other operations.
    type Sync;

    /// Makes a directory and those that lead to it. New directories survive a power failure.
    fn make_directories(&mut self, path: &Path) -> io::Result<()>;

    /// Returns true if there is a file of this name.
    fn exists(&mut self, path: &Path) -> io::Result<bool>;

    /// Opens a file, whose name survives a power failure. A file that is there stays as it is, and
    /// grows at its end.
    ///
    /// # Errors
    /// `AlreadyExists` if the file must be new and is not.
    fn open(&mut self, path: &Path, must_be_new: bool) -> io::Result<Opened<Self::File>>;

    /// Writes bytes at the end of a file.
    fn write(&mut self, file: &mut Self::File, bytes: &[u8]) -> io::Result<()>;

    /// Waits until a file's bytes survive a power failure.
    fn sync(&mut self, file: &mut Self::File) -> io::Result<()>;

    /// Returns the number of syncs of a file that may run at the same time. It is at least 1.
    fn syncs_max(&self, file: &Self::File) -> usize;

    /// Begins to wait until the bytes that a file has now survive a power failure. More bytes may be
    /// written meanwhile.
    fn begin_sync(&mut self, file: &mut Self::File) -> io::Result<Self::Sync>;

    /// Waits for the end of a sync.
    fn end_sync(&mut self, file: &mut Self::File, sync: Self::Sync) -> io::Result<()>;

    /// Returns true if somebody has removed an open file that had this name.
    fn is_removed(&mut self, file: &Self::File, path: &Path) -> io::Result<bool>;

    /// Returns true if a name still leads to an open file.
    fn has_name(&mut self, file: &Self::File, path: &Path) -> io::Result<bool>;

    /// Moves a file. The new name survives a power failure. `stop` ends a copy to another file system.
    ///
    /// # Errors
    /// `AlreadyExists` if the new name is taken, and `Interrupted` after a stop. The file then keeps its name.
    fn move_file(&mut self, from: &Path, to: &Path, stop: &Stop) -> io::Result<()>;

    /// Takes away the bytes of a file behind this length.
    fn cut(&mut self, file: &mut Self::File, length: u64) -> io::Result<()>;

    /// Removes the file of this name.
    fn remove(&mut self, path: &Path) -> io::Result<()>;
}

/// A file that was just opened.
#[derive(Debug)]
pub(super) struct Opened<F> {
    pub(super) file: F,
    /// The bytes that it has already.
    pub(super) size: u64,
    /// True if the last of these bytes is not a line feed: a write was cut off.
    pub(super) has_torn_line: bool,
    /// True if somebody else writes the file now.
    pub(super) is_shared: bool,
}

/// The real file system.
#[derive(Clone, Copy, Debug)]
pub(super) struct OsDisk;

impl Disk for OsDisk {
    type File = OsFile;
    type Sync = OsSync;

    fn make_directories(&mut self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        let parent = parent(path);
        if parent != path {
            self.make_directories(parent)?;
        }
        match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
            Ok(()) => sync_directory(parent),
            // Another topic, or another process, may make the same directory.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if path.is_dir() {
                    Ok(())
                } else {
                    Err(Errno::NOTDIR.into())
                }
            }
            Err(error) => Err(error),
        }
    }

    fn exists(&mut self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn open(&mut self, path: &Path, must_be_new: bool) -> io::Result<Opened<OsFile>> {
        open(path, must_be_new, has_name)
    }

    fn write(&mut self, file: &mut OsFile, bytes: &[u8]) -> io::Result<()> {
        file.file.write_all(bytes)
    }

    fn sync(&mut self, file: &mut OsFile) -> io::Result<()> {
        file.file.sync_all()
    }

    fn syncs_max(&self, file: &OsFile) -> usize {
        file.syncs_max()
    }

    fn begin_sync(&mut self, file: &mut OsFile) -> io::Result<OsSync> {
        file.begin_sync(|work| thread::Builder::new().name("sync".to_owned()).spawn(work))
    }

    fn end_sync(&mut self, file: &mut OsFile, sync: OsSync) -> io::Result<()> {
        file.end_sync(sync)
    }

    fn is_removed(&mut self, file: &OsFile, path: &Path) -> io::Result<bool> {
        is_removed(&file.file, path)
    }

    fn has_name(&mut self, file: &OsFile, path: &Path) -> io::Result<bool> {
        has_name(&file.file, path)
    }

    fn move_file(&mut self, from: &Path, to: &Path, stop: &Stop) -> io::Result<()> {
        moving::move_file(from, to, stop)
    }

    fn cut(&mut self, file: &mut OsFile, length: u64) -> io::Result<()> {
        file.file.set_len(length)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
}

/// Opens a file as [`Disk::open`] says. `has_name` finds out if the name still leads to the file.
fn open(
    path: &Path,
    must_be_new: bool,
    has_name: impl Fn(&File, &Path) -> io::Result<bool>,
) -> io::Result<Opened<OsFile>> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(FILE_MODE);
    for lost_count in 0..LOST_MAX {
        let made = options.clone().create_new(true).open(path);
        let mut file = match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !must_be_new => {
                options.clone().create(true).open(path)?
            }
            // The last try made the file, so nobody else has.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && lost_count > 0 => break,
            made => made?,
        };
        let is_shared = match file.try_lock() {
            // A file system without locks has nothing to say about other processes.
            Ok(()) | Err(TryLockError::Error(_)) => false,
            Err(TryLockError::WouldBlock) => true,
        };
        if !has_name(&file, path)? {
            // Another process has moved the file in the meantime.
            continue;
        }
        // A process that made the file may have been killed before it synced the name.
        sync_directory(parent(path))?;
        let size = file.metadata()?.len();
        let has_torn_line = size > 0 && last_byte(&mut file)? != b'\n';
        return Ok(Opened {
            file: OsFile::new(file),
            size,
            has_torn_line,
            is_shared,
        });
    }
    Err(io::Error::other(
        "as soon as the file is open, its name seems to lead to another one: this file system does not tell files apart",
    ))
}

fn last_byte(file: &mut File) -> io::Result<u8> {
    let mut byte = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut byte)?;
    Ok(byte[0])
}

/// The failure of an operation on a file. The text says what to do.
#[derive(Debug)]
pub(super) struct DiskError {
    /// The operation: `write to`.
    pub(super) verb: &'static str,
    pub(super) path: PathBuf,
    pub(super) source: io::Error,
}

impl DiskError {
    /// Returns the failure of an operation on a file.
    pub(super) fn new(verb: &'static str, path: &Path, source: io::Error) -> DiskError {
        DiskError {
            verb,
            path: path.to_path_buf(),
            source,
        }
    }
}

impl std::fmt::Display for DiskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let DiskError { verb, path, source } = self;
        let why = wire::go_error::system_text(source);
        write!(f, "cannot {verb} {}: {why}", path.display())?;
        match advice(source) {
            Some(advice) => write!(
                f,
                "; {advice}, or choose another directory (--output-dir, --work-dir). Messages that were not synced are not \
                 finished, and come again"
            ),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
