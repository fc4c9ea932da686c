//! Files that appear under their names as a whole, and whose names survive a power failure.
//!
//! ```text
//!   temporary file ─► write ─► sync ─► rename ─► sync of the directory
//! ```
//!
//! A temporary file has a random name that no other file has: [`temporary_name`]. A failure removes the temporary file. A
//! crash leaves the file, and nothing ever reads it again.
//!
//! [`replace`] does all steps for a file that is written again and again. A [`Directory`] is opened once, so all files that
//! are made in it are synced with it, even if another directory gets its path meanwhile.
//!
//! A [`FileLock`] keeps other processes from a file that is replaced again and again.

#![forbid(unsafe_code)]

mod lock;

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

pub use lock::{FileLock, InUse, LockError};

/// The mode of files for other programs, before the umask: what NSQ's `nsq_to_file` gives its files.
pub const FILE_MODE: u32 = 0o666;
/// The mode of files that only their own program reads: what NSQ's nsqd gives its files. A state may have parts of
/// messages, and no other user of the machine may read messages.
pub const STATE_MODE: u32 = 0o600;

/// Makes or replaces a file that only this user can read ([`STATE_MODE`]). `write` writes the new content. A crash or a power
/// failure leaves the old file or the new one, and never a part.
///
/// # Errors
/// `write` failed, or the file or its directory cannot be written or synced. The temporary file is removed.
pub fn replace(path: &Path, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let directory = Directory::open(parent(path))?;
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let (temporary, file) = directory.temporary_file(name, STATE_MODE)?;
    let moved = write(&file)
        .and_then(|()| file.sync_all())
        .and_then(|()| directory.rename(&temporary, name));
    if let Err(error) = moved {
        // A part of a file would keep a full disk full. If the removal fails too, the first error has the reason.
        let _ = directory.remove_file(&temporary);
        return Err(error);
    }
    directory.sync()
}

/// Finds out if [`replace`] can make a file beside `path`. All files stay as they are.
///
/// # Errors
/// The directory is missing, or takes no files.
pub fn check_replaceable(path: &Path) -> io::Result<()> {
    let directory = Directory::open(parent(path))?;
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let (temporary, _) = directory.temporary_file(name, STATE_MODE)?;
    directory.remove_file(&temporary)
}

/// Returns a name for a temporary file that becomes the file `name`: `.clicks.log.0f3c5a7e9b1d2468.tmp`. It begins with a
/// dot, so that shells and most readers of directories leave it out.
pub fn temporary_name(name: &OsStr) -> OsString {
    let name = name.to_string_lossy();
    OsString::from(format!(".{name}.{:016x}.tmp", fastrand::u64(..)))
}

/// Makes a file with the mode [`FILE_MODE`] beside `to`. No other copy has this file, and no link leads to it.
///
/// # Errors
/// The directory is missing, cannot be read, or takes no files.
pub fn temporary_file(to: &Path) -> io::Result<(PathBuf, File)> {
    let directory = parent(to);
    let name = to.file_name().unwrap_or_default();
    let (name, file) = Directory::open(directory)?.temporary_file(name, FILE_MODE)?;
    Ok((directory.join(name), file))
}

/// Renames a file, within one file system.
///
/// # Errors
/// `AlreadyExists` if the new name is taken, and `CrossesDevices` if it is on another file system. The file then keeps its
/// name.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    rename_new_at(CWD, from, to)
}

/// Returns the directory of a file or directory.
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

/// Waits until the names in a directory survive a power failure.
///
/// # Errors
/// The directory cannot be opened or synced.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    Directory::open(path)?.sync()
}

/// An open directory. The names in its methods are those of its files.
#[derive(Debug)]
pub struct Directory(File);

impl Directory {
    /// Opens a directory.
    ///
    /// # Errors
    /// There is no such directory, or this user cannot read it.
    pub fn open(path: &Path) -> io::Result<Directory> {
        let flags = OFlags::DIRECTORY.bits().cast_signed();
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
        opened.map(Directory)
    }

    /// Makes a file that becomes the file `name`. No other copy has this file, and no link leads to it. The umask takes
    /// from `mode`.
    ///
    /// # Errors
    /// The directory takes no files.
    pub fn temporary_file(&self, name: &OsStr, mode: u32) -> io::Result<(OsString, File)> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        loop {
            let name = temporary_name(name);
            match rustix::fs::openat(&self.0, &name, flags, Mode::from_raw_mode(mode)) {
                Ok(file) => return Ok((name, File::from(file))),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Opens a regular file for reading. Returns `None` if the name is that of anything else, such as a link.
    ///
    /// # Errors
    /// There is no such file, or this user cannot read it.
    pub fn open_regular_file(&self, name: &OsStr) -> io::Result<Option<File>> {
        let found = rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.0, name, flags, Mode::empty())?;
        Ok(Some(File::from(file)))
    }

    /// Renames a file, and replaces the file that has the new name.
    ///
    /// # Errors
    /// The system refuses the rename. The file then keeps its name.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }

    /// Renames a file.
    ///
    /// # Errors
    /// `AlreadyExists` if the new name is taken. The file then keeps its name.
    pub fn rename_new(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        rename_new_at(self.0.as_fd(), Path::new(from), Path::new(to))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The system refuses the removal.
    pub fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Waits until the names in the directory survive a power failure.
    ///
    /// # Errors
    /// The disk fails.
    pub fn sync(&self) -> io::Result<()> {
        match rustix::fs::fsync(&self.0) {
            // Some file systems cannot sync a directory. No program can do more for the name there.
            Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
            synced => Ok(synced?),
        }
    }
}

fn rename_new_at(directory: BorrowedFd<'_>, from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
        // Some file systems do not know the flag. A link never replaces a file either.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            rustix::fs::linkat(directory, from, directory, to, AtFlags::empty())?;
            Ok(rustix::fs::unlinkat(directory, from, AtFlags::empty())?)
        }
        renamed => Ok(renamed?),
    }
}

#[cfg(test)]
mod tests;
