//! New files that appear under their names as a whole, and whose names survive a power failure: [`temporary_file`],
//! [`rename_new`] and [`sync_directory`].

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

/// The mode of new files, before the umask.
pub(crate) const FILE_MODE: u32 = 0o666;

/// Makes a file beside `to`. No other copy has this file, and no link leads to it.
pub(crate) fn temporary_file(to: &Path) -> io::Result<(PathBuf, File)> {
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(FILE_MODE);
    loop {
        let path = parent(to).join(format!(".{name}.{:016x}.tmp", fastrand::u64(..)));
        match options.open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Renames a file, within one file system.
///
/// # Errors
/// `AlreadyExists` if the new name is taken, and `CrossesDevices` if it is on another file system. The file then keeps its
/// name.
pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems do not know the flag. A link never replaces a file either.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            std::fs::hard_link(from, to)?;
            std::fs::remove_file(from)
        }
        renamed => Ok(renamed?),
    }
}

/// Returns the directory of a file or directory.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

/// Waits until the names in a directory survive a power failure.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    match rustix::fs::fsync(File::open(path)?) {
        // Some file systems cannot sync a directory. No program can do more for the name there.
        Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
        synced => Ok(synced?),
    }
}
