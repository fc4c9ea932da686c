//! [`has_name`] and [`is_removed`]: the names of open files, on file systems that are bad at telling files apart.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};
use rustix::io::Errno;

use super::os_file::link;

/// The end of the path that Linux shows for a file without a name.
const DELETED: &[u8] = b" (deleted)";

/// Returns true if somebody has removed an open file that had this name.
pub(super) fn is_removed(file: &File, path: &Path) -> io::Result<bool> {
    let links = file.metadata()?.nlink();
    is_nameless(links, &present_path(file), || has_name(file, path))
}

/// Decides if an open file was removed. `links` is the number of its names, `present_path` is its path now, and
/// `has_name` says if the path of its opening still leads to the file. Some file systems report 0 links for files that
/// are there, so that number alone proves nothing.
fn is_nameless(
    links: u64,
    present_path: &Path,
    has_name: impl FnOnce() -> io::Result<bool>,
) -> io::Result<bool> {
    let name = present_path.file_name().unwrap_or_default().as_bytes();
    // The kernel says so, but some FUSE file systems still report a link.
    let is_deleted = name.ends_with(DELETED);
    // An NFS client and libfuse rename a removed file that is still open, and remove it when the file is closed.
    let is_hidden = name.starts_with(b".nfs") || name.starts_with(b".fuse_hidden");
    if links == 0 || is_deleted || is_hidden {
        Ok(!has_name()?)
    } else {
        Ok(false)
    }
}

/// Returns the path that an open file has now, or an empty path if the system does not tell.
fn present_path(file: &File) -> PathBuf {
    std::fs::read_link(link(file)).unwrap_or_default()
}

/// Returns true if `path` still leads to `file`.
pub(crate) fn has_name(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    let named = match std::fs::metadata(path) {
        Ok(named) => named,
        Err(error) if is_gone(&error) => return Ok(false),
        Err(error) => return Err(error),
    };
    // Another file system may lie over the directory now.
    if named.dev() != own.dev() {
        return Ok(false);
    }
    let has_its_number = named.ino() == own.ino() || is_present_path(file, path);
    Ok(has_its_number || is_renumbered(file, &present_path(file), path)?)
}

/// Returns true if a name leads to nothing: the file may be gone, or a directory that leads to it, or the directory may be
/// replaced by a file.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Returns true if the system says that `path` is where an open file is now. Some file systems (FUSE, CIFS) give a file
/// another inode number each time that it is looked up, so the number alone does not prove that a name leads elsewhere.
fn is_present_path(file: &File, path: &Path) -> bool {
    path.canonicalize()
        .is_ok_and(|path| path == present_path(file))
}

/// Returns true if the system calls an open file deleted only because the file system has given another inode number to
/// the path: see [`is_present_path`]. Then the file at the path equals the open file in all but the number.
fn is_renumbered(file: &File, present_path: &Path, path: &Path) -> io::Result<bool> {
    let present_path = present_path.as_os_str().as_bytes();
    let Some(old_path) = present_path.strip_suffix(DELETED) else {
        return Ok(false);
    };
    let is_here = path
        .canonicalize()
        .is_ok_and(|path| path.as_os_str().as_bytes() == old_path);
    if !is_here {
        return Ok(false);
    }
    // The system may remember the size that the file at the path had before the last write.
    let fresh = AtFlags::STATX_FORCE_SYNC;
    let own = statx(
        file,
        "",
        fresh | AtFlags::EMPTY_PATH,
        StatxFlags::BASIC_STATS,
    )?;
    match statx(CWD, path, fresh, StatxFlags::BASIC_STATS) {
        Ok(named) => Ok(traits(&own) == traits(&named)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns what two files hardly have in common: links, size, and the time of the last change in nanoseconds.
fn traits(file: &Statx) -> (u32, u64, i64, u32) {
    let changed = file.stx_mtime;
    (
        file.stx_nlink,
        file.stx_size,
        changed.tv_sec,
        changed.tv_nsec,
    )
}

#[cfg(test)]
mod tests;
