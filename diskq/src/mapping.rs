//! The only unsafe code of the crate: a file as memory, and the last words when that goes wrong.
//!
//! What keeps a mapping sound is kept by this crate as a whole, and stated once here:
//!
//! - A segment's file is never made shorter while it is mapped, by us or, because the data path is
//!   locked, by another nsqd. [`Files`](crate::Files) has no call that shortens a file.
//! - A file is mapped once at a time: the one [`Memory`](crate::Memory) that holds it is owned by
//!   its log, so `&mut` is exclusive inside the process.
//! - Only the length asked for is mapped, and only after the file was found to be that long.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem;
use std::ptr;

use memmap2::{Advice, MmapMut, MmapOptions};

/// Maps the first `bytes` bytes of `file`, shared and writable, and brings its pages in.
pub(crate) fn map(file: &File, bytes: u32) -> io::Result<MmapMut> {
    let length = file.metadata()?.len();
    if length < u64::from(bytes) {
        let text = format!("file of {length} bytes, expected {bytes}");
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
    }
    let mut options = MmapOptions::new();
    options.len(bytes as usize);
    // SAFETY: the file is at least `bytes` long and stays so, and no one else in this process maps
    // it (module invariants). Bytes that change on the device or are scribbled on by a foreign
    // process are covered by the CRC on every read from cold; types of a mapping are plain bytes.
    let mapping = unsafe { options.map_mut(file) }?;
    match mapping.advise(Advice::PopulateWrite) {
        // Kernels before 5.14 do not know the advice. Pages then come in on first touch: slower.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(mapping),
        Err(error) => Err(error),
        Ok(()) => Ok(mapping),
    }
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
