//! The only unsafe code of the crate: a file as memory, and the last words when that goes wrong.
//!
//! What keeps a mapping sound is kept by this crate as a whole, and stated once here:
//!
//! - A segment's file is never made shorter while it is mapped, by us or, because the data path is
//!   locked, by another nsqd. [`Files`](crate::Files) has no call that shortens a file.
//! - A file is mapped once at a time: the one [`Mapping`] that gives out its bytes is owned by its
//!   log, so `&mut` is exclusive inside the process. [`Written`] shares the pages, not the bytes.
//! - Only the length asked for is mapped, and only after the file was found to be that long.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem;
use std::ops::{Deref, DerefMut, Range};
use std::ptr;
use std::slice;
use std::sync::Arc;

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};

use crate::files::Pages;

/// A huge page, on the processors that have them of this size; on others a piece like any.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Small pages that are brought in at once: far less than a thread may keep a processor, far more than a call costs.
const SMALL_AT_ONCE: usize = 128 << 10;

/// The bytes of a file, in the page cache: a shared and writable mapping.
#[derive(Debug)]
pub struct Mapping(Arc<MmapRaw>);

impl Deref for Mapping {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes are mapped as long as the `Arc` lives, the file stays as long, and who
        // else has the `Arc` reads and writes none of them (module invariants). Bytes that change on the
        // device or are scribbled on by a foreign process are covered by the CRC on every read from cold.
        unsafe { slice::from_raw_parts(self.0.as_ptr(), self.0.len()) }
    }
}

impl DerefMut for Mapping {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this is the only `Mapping` of these pages.
        unsafe { slice::from_raw_parts_mut(self.0.as_mut_ptr(), self.0.len()) }
    }
}

impl Mapping {
    /// Marks pieces as written, for the sync.
    pub(crate) fn written(&self, pieces: [Range<u32>; 2]) -> Written {
        Written {
            pages: Arc::clone(&self.0),
            pieces,
        }
    }
}

/// The pages of a mapping that were written since they were synced.
#[derive(Debug)]
pub struct Written {
    pages: Arc<MmapRaw>,
    pieces: [Range<u32>; 2],
}

impl Written {
    /// Takes the pages out of the page tables, not out of the page cache: the next access brings them
    /// back, as they are. A sync write-protects every page that is still there, and each of them is an
    /// interrupt to every processor that runs this program; here one does for all of them.
    pub(crate) fn let_go(&self) {
        for piece in &self.pieces {
            let (start, length) = (piece.start as usize, piece.len());
            // SAFETY: what was stored into a shared mapping of a file is in the page cache, and that is where
            // the next access finds it; no byte changes, so it does not matter who uses them meanwhile.
            let let_go = unsafe {
                self.pages
                    .unchecked_advise_range(UncheckedAdvice::DontNeed, start, length)
            };
            // Locked memory (mlockall) cannot go: the sync is dearer, and as good.
            let_go.unwrap_or_default();
        }
    }
}

/// Maps the first `bytes` bytes of `file`, shared and writable, and brings its pages in.
pub(crate) fn map(file: &File, bytes: u32, size: Pages) -> io::Result<Mapping> {
    let length = file.metadata()?.len();
    if length < u64::from(bytes) {
        let text = format!("file of {length} bytes, expected {bytes}");
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
    }
    let mut options = MmapOptions::new();
    options.len(bytes as usize);
    let pages = options.map_raw(file)?;
    if size == Pages::Huge {
        // Kernels without huge pages do not know the advice.
        unless_unknown(pages.advise(Advice::HugePage))?;
    }
    populate(&pages, size)?;
    Ok(Mapping(Arc::new(pages)))
}

/// Brings the pages in, some at a time: a kernel that does not preempt itself lets nobody else have this
/// processor meanwhile, and fresh memory of a virtual machine takes up to 1.5 us for each KiB.
fn populate(pages: &MmapRaw, size: Pages) -> io::Result<()> {
    let at_once = match size {
        Pages::Small => SMALL_AT_ONCE,
        Pages::Huge => HUGE_PAGE_BYTES,
    };
    for start in (0..pages.len()).step_by(at_once) {
        let length = at_once.min(pages.len() - start);
        // Kernels before 5.14 do not know this one. Pages then come in on first touch: slower.
        unless_unknown(pages.advise_range(Advice::PopulateWrite, start, length))?;
    }
    Ok(())
}

/// Whether the advice was taken, or the kernel does not know it.
pub(crate) fn unless_unknown(advised: io::Result<()>) -> io::Result<()> {
    advised.or_else(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => Ok(()),
        _ => Err(error),
    })
}

/// Makes a SIGBUS say one line on standard error before it ends the process as usual.
///
/// It means that a page of a segment could not be read or written: the device failed, or someone
/// made the file shorter. There is no going on, a store may be half done.
pub fn install_sigbus_reporter() -> io::Result<()> {
    // SAFETY: `sigaction` is plain data for which all zeros is a valid value.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
        report_sigbus;
    action.sa_sigaction = handler as libc::sighandler_t;
    // RESETHAND: the second SIGBUS, raised below, gets the default action.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND;
    // SAFETY: the action is fully initialised and its handler only does what is async-signal-safe.
    let result = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Runs in signal context: no allocation, no lock, no formatting machinery.
extern "C" fn report_sigbus(
    _signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo to a handler installed with SA_SIGINFO.
    let info = unsafe { &*info };
    // SAFETY: for a SIGBUS the kernel fills in the address.
    let address = unsafe { info.si_addr() } as usize;
    let line = sigbus_line(address);
    // SAFETY: write(2) is async-signal-safe; pointer and length are those of a live array.
    let _written = unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
    // SAFETY: raise(3) is async-signal-safe. The signal is blocked until the handler returns, and
    // its action is the default again: the process ends there.
    let _raised = unsafe { libc::raise(libc::SIGBUS) };
}

const LINE_HEAD: &[u8; 19] = b"SIGBUS at address 0";
const LINE_TAIL: &[u8; 62] = b": a page of a mapped file failed (device, or file shortened).\n";

/// The line for `address`, in hexadecimal.
fn sigbus_line(address: usize) -> [u8; 19 + 1 + 16 + 62] {
    let mut line = [0; 19 + 1 + 16 + 62];
    line[..19].copy_from_slice(LINE_HEAD);
    line[19] = b'x';
    for (at, digit) in line[20..36].iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[address >> (60 - 4 * at) & 15];
    }
    line[36..].copy_from_slice(LINE_TAIL);
    line
}

#[cfg(test)]
mod tests;
