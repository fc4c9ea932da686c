//! [`Files`] on the real system.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

use diskq_log::{Memory, Pages, SPILLED_BYTES};
use rustix::fs::{
    FallocateFlags, OFlags, StatVfs, StatVfsMountFlags, fallocate, fcntl_getfl, fcntl_setfl,
    fstatvfs,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::files::{Entry, Files, SyncError};
use crate::mapping::{self, Buffer};
use crate::platform;

/// The mode of new files, as in nsqd: no other user of the machine can read messages.
pub(crate) const FILE_MODE: u32 = 0o600;
/// The mode of new directories.
const DIRECTORY_MODE: u32 = 0o700;

/// The real file system. It keeps no state: each job opens its files by name, so a log with thousands of segments costs
/// no descriptors.
///
/// Linux reports a write-back error that nobody has seen to the first sync of any descriptor of the file, and the log
/// takes no more messages after the first failed sync. An error that a `syncfs` has reported still counts as unseen: file
/// and file system remember the error separately. Linux forgets the error when it drops the file from memory, which may
/// happen to a file that nobody has open or mapped, and whose pages are clean. So bytes that wait for a later sync are in
/// a mapped file, or went around the page cache ([`Files::copy`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct OsFiles;

impl Files for OsFiles {
    /// An open descriptor: the kernel tells each one of every error since it was opened.
    type FileSystem = File;

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            result => result,
        }
    }

    fn allocate(&self, path: &Path, bytes: u64, pages: Pages) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).mode(FILE_MODE);
        let (file, length_before) = match options.clone().create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let file = options.open(path)?;
                let length = file.metadata()?.len();
                (file, Some(length))
            }
            result => (result?, None),
        };
        let reserved = check_room(&file, bytes).and_then(|()| reserve(&file, bytes));
        let result = reserved.and_then(|is_reserved| {
            let makes_pages = length_before.is_none() && is_reserved && pages == Pages::Large;
            if makes_pages {
                write_zeros(&file, 0..bytes)
            } else {
                Ok(())
            }
        });
        if result.is_err() {
            // The reservation's error is the one to report.
            let _ = undo(&file, path, length_before);
        }
        result
    }

    fn map(&self, path: &Path, bytes: u32) -> io::Result<Memory> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(mapping::lend(mapping::map(&file, bytes)?))
    }

    fn unmap(&self, _path: &Path, memory: Memory) {
        self.free(memory);
    }

    fn copy(&self, _from: &Path, memory: &Memory, to: &Path) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(FILE_MODE);
        let file = options.open(to)?;
        let is_direct = direct(&file, |file| file.write_all_at(memory.as_ref(), 0))?;
        if !(is_direct && platform::says_direct(&file)) {
            file.sync_data()?;
        }
        Ok(())
    }

    fn load(&self, path: &Path, bytes: u32, reuse: Option<Memory>) -> io::Result<Memory> {
        let reuse = reuse.and_then(mapping::take_back);
        let file = File::open(path)?;
        let mut buffer = match reuse {
            Some(buffer) if buffer.len() >= bytes as usize => buffer,
            // Room for most segments, so that it serves them, too; untouched pages cost nothing.
            _ => buffer_of(bytes.max(SPILLED_BYTES))?,
        };
        direct(&file, |file| {
            file.read_exact_at(&mut buffer[..bytes as usize], 0)
        })?;
        Ok(buffer.lend(bytes))
    }

    fn sync(&self, path: &Path) -> Result<(), SyncError> {
        let file = OpenOptions::new().write(true).open(path);
        // Covers the pages dirtied through a mapping, and the length.
        file.map_err(SyncError::of_open)?
            .sync_data()
            .map_err(SyncError::Final)
    }

    fn sync_dir(&self, path: &Path) -> Result<(), SyncError> {
        let directory = File::open(path).map_err(SyncError::of_open)?;
        directory.sync_all().map_err(SyncError::Final)
    }

    fn open_file_system(&self, directory: &Path) -> io::Result<File> {
        File::open(directory)
    }

    fn sync_file_system(&self, file_system: &File) -> io::Result<()> {
        platform::sync_file_system(file_system)?;
        // A file system that gave up, or that the kernel made read-only, may report success without having written
        // anything. Then the sync of a directory fails, or the read-only flag is set.
        file_system.sync_all()?;
        if fstatvfs(file_system)?
            .f_flag
            .contains(StatVfsMountFlags::RDONLY)
        {
            return Err(Errno::ROFS.into());
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            // Not following links: a link is never one of ours.
            let metadata = entry.metadata()?;
            let modified = metadata.modified().ok();
            let modified = modified.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            entries.push(Entry {
                name,
                is_dir: metadata.is_dir(),
                bytes: metadata.len(),
                modified_ns: modified.map_or(0, |since| since.as_nanos() as u64),
            });
        }
        entries.sort();
        Ok(entries)
    }

    fn length(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.len())
    }

    fn read_ahead(&self, path: &Path, bytes: u32) {
        if let Ok(file) = File::open(path) {
            platform::read_ahead(&file, bytes);
        }
    }

    fn read_at(&self, path: &Path, offset: u64, out: &mut [u8]) -> io::Result<()> {
        File::open(path)?.read_exact_at(out, offset)
    }

    fn write_at(&self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(path)?;
        file.write_all_at(bytes, offset)
    }
}

/// Takes back what a failed reservation has left of a file, which had `length_before` if it was there before. A new
/// file that stays is found at the next start. A longer file only holds room: ext4 keeps what a reservation took before
/// it failed.
fn undo(file: &File, path: &Path, length_before: Option<u64>) -> io::Result<()> {
    match length_before {
        None => fs::remove_file(path),
        // Another thread has just made the file, and may have written to it since.
        Some(0) => Ok(()),
        Some(length) => file.set_len(length),
    }
}

/// Anonymous memory, in huge pages where the system has them: direct I/O looks up every page.
fn buffer_of(bytes: u32) -> io::Result<Buffer> {
    let buffer = Buffer::zeroed(bytes)?;
    buffer.advise_huge()?;
    Ok(buffer)
}

/// Does `job` with direct I/O, or without if the file system has none. Returns whether it was direct.
///
/// Data that goes this way is read back once, if at all. In the page cache it would need fresh pages when it is
/// written, and would push out pages that others need.
fn direct(file: &File, mut job: impl FnMut(&File) -> io::Result<()>) -> io::Result<bool> {
    let flags = fcntl_getfl(file)?;
    match fcntl_setfl(file, flags | OFlags::DIRECT) {
        Err(Errno::INVAL) => return job(file).map(|()| false),
        result => result?,
    }
    match job(file) {
        // Some file systems take the flag and refuse the call.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            fcntl_setfl(file, flags)?;
            job(file).map(|()| false)
        }
        result => result.map(|()| true),
    }
}

/// Fails if the file system says that it has no room to make a file this long. Without this check, the attempt would take
/// all the room for a moment, and the small file of another topic would find none.
fn check_room(file: &File, bytes: u64) -> io::Result<()> {
    let missing = bytes.saturating_sub(file.metadata()?.len());
    match fstatvfs(file) {
        Ok(room) if lacks_room(&room, missing, geteuid().is_root()) => Err(Errno::NOSPC.into()),
        // If the room is not known, the reservation tells.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Returns whether a file system has no room for this many bytes more. ext4 keeps some room for root.
fn lacks_room(room: &StatVfs, missing: u64, is_root: bool) -> bool {
    /// The reservation of less takes no longer than this check.
    const LARGE_FROM: u64 = 1 << 20;
    let free = if is_root { room.f_bfree } else { room.f_bavail };
    // A file system without blocks does not say how many are free.
    missing >= LARGE_FROM && room.f_blocks > 0 && free.saturating_mul(room.f_frsize) < missing
}

/// Reserves room on the disk for the first `bytes` bytes, so that no later store finds the disk full. Returns false if
/// the file system has no fallocate: then the room was filled with zeros.
pub(crate) fn reserve(file: &File, bytes: u64) -> io::Result<bool> {
    loop {
        match fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP) => {
                return write_zeros(file, file.metadata()?.len()..bytes).map(|()| false);
            }
            result => return Ok(result.map(|()| true)?),
        }
    }
}

/// Fills a range of bytes with zeros. The file system makes a folio for each write, where it can ([`Pages::Large`]).
fn write_zeros(file: &File, range: Range<u64>) -> io::Result<()> {
    /// In folios of 2 MiB and more, a virtual machine pays ten times as much for fresh memory, because its host has
    /// to find it (docs/decisions/0003-spilling.md).
    const FOLIO_BYTES: usize = 256 << 10;
    static ZEROS: [u8; FOLIO_BYTES] = [0; FOLIO_BYTES];
    let mut at = range.start;
    while at < range.end {
        let piece = (range.end - at).min(FOLIO_BYTES as u64) as usize;
        file.write_all_at(&ZEROS[..piece], at)?;
        at += piece as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
