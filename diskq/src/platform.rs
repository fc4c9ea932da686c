//! The system calls that only Linux has. On other systems ringq runs for developers, and goes without these calls.

use memmap2::{MmapMut, MmapRaw};
#[cfg(target_os = "linux")]
use rustix::fs::{Advice, AtFlags, StatxFlags, fadvise, statx};
use std::fs::File;
use std::io;
#[cfg(target_os = "linux")]
use std::num::NonZero;

/// Asks for huge pages for a buffer. Succeeds also where the kernel has no huge pages.
#[cfg(target_os = "linux")]
pub(crate) fn advise_huge(buffer: &MmapMut) -> io::Result<()> {
    unless_unknown(buffer.advise(memmap2::Advice::HugePage))
}

/// Brings pages in, for writing. A kernel before Linux 5.14 does not know how: pages come in at the first touch.
#[cfg(target_os = "linux")]
pub(crate) fn populate(pages: &MmapRaw, start: usize, length: usize) -> io::Result<()> {
    unless_unknown(pages.advise_range(memmap2::Advice::PopulateWrite, start, length))
}

/// Treats EINVAL (advice unknown to this kernel) as success.
#[cfg(target_os = "linux")]
fn unless_unknown(advised: io::Result<()>) -> io::Result<()> {
    advised.or_else(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => Ok(()),
        _ => Err(error),
    })
}

/// Starts to read the first bytes of a file into the page cache.
#[cfg(target_os = "linux")]
pub(crate) fn read_ahead(file: &File, bytes: u32) {
    // Only advice: without it, the read comes later.
    let _ = fadvise(file, 0, NonZero::new(u64::from(bytes)), Advice::WillNeed);
}

/// Syncs a whole file system.
#[cfg(target_os = "linux")]
pub(crate) fn sync_file_system(any_file: &File) -> io::Result<()> {
    Ok(rustix::fs::syncfs(any_file)?)
}

/// Returns true if the kernel says that direct I/O of this file goes around the page cache. Linux says so from 6.1 on. ext4
/// accepts the flag for every file, and writes a file that it encrypts or journals through the page cache.
#[cfg(target_os = "linux")]
pub(crate) fn says_direct(file: &File) -> bool {
    let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    found.is_ok_and(|found| {
        let says = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::DIOALIGN);
        says && found.stx_dio_offset_align != 0
    })
}

/// The error numbers with which a device, and not a limit of the process, answers: no data (a bad sector), target,
/// protection, timeout. Populating says EFAULT where a touch would be a SIGBUS.
#[cfg(target_os = "linux")]
pub(crate) const MEDIA_ERRORS: &[i32] = &[
    libc::EFAULT,
    libc::EIO,
    libc::EHWPOISON,
    libc::EBADMSG,
    libc::EUCLEAN,
    libc::ENODATA,
    libc::EREMOTEIO,
    libc::EILSEQ,
    libc::ETIMEDOUT,
];

#[cfg(not(target_os = "linux"))]
mod other_systems {
    use super::*;

    pub(crate) fn advise_huge(_buffer: &MmapMut) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn populate(_pages: &MmapRaw, _start: usize, _length: usize) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn read_ahead(_file: &File, _bytes: u32) {}

    /// There is no such call. After this error each file is synced separately.
    pub(crate) fn sync_file_system(_any_file: &File) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn says_direct(_file: &File) -> bool {
        false
    }

    pub(crate) const MEDIA_ERRORS: &[i32] = &[
        libc::EFAULT,
        libc::EIO,
        libc::EBADMSG,
        libc::EILSEQ,
        libc::ETIMEDOUT,
    ];
}

#[cfg(not(target_os = "linux"))]
pub(crate) use other_systems::*;
