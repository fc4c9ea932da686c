//! Files as memory, and the report of a page that fails. All unsafe code of this crate is here.
//!
//! This crate keeps mappings sound:
//!
//! - A segment's file is never made shorter while it is mapped: not by this process, and not by another nsqd, because the
//!   data path is locked. [`Files`](crate::Files) has no call that shortens a file.
//! - A file is mapped once at a time. The bytes of a mapping are one slice, which its [`Memory`] owns, so `&mut` is
//!   exclusive inside the process. [`Written`] names pages and gives no access to bytes.
//! - A mapping that is lent ends only when its whole slice comes back ([`take_back`]). The table [`LENT`] has all such
//!   mappings, so nobody can end a mapping that is not theirs to end.
//! - Only the length asked for is mapped, and only after the file was found to be that long.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::Arc;

use diskq_log::{Memory, Written};
use memmap2::{MmapMut, MmapOptions, MmapRaw, UncheckedAdvice};
use parking_lot::Mutex;
use signal_hook::low_level;

use crate::platform;

/// Pages are brought in this many bytes at a time. That takes far less time than a thread may keep a processor, and far
/// more than the call itself costs.
const AT_ONCE: usize = 128 << 10;

/// The mappings that are lent, by the address of their first byte. A keeper's thread takes the lock for a moment when
/// it maps, unmaps or syncs a segment; a reactor never does.
static LENT: Mutex<BTreeMap<usize, Lent>> = Mutex::new(BTreeMap::new());

/// A mapping whose bytes a [`Memory`] has.
#[derive(Debug)]
enum Lent {
    /// A segment's file. The threads that let its pages go share it.
    File(Arc<MmapRaw>),
    /// A buffer, and the number of its first bytes that are lent.
    Buffer(MmapMut, usize),
}

impl Lent {
    /// The number of bytes that are lent.
    fn bytes(&self) -> usize {
        match self {
            Lent::File(pages) => pages.len(),
            Lent::Buffer(_, bytes) => *bytes,
        }
    }
}

/// Lends a mapping of a file, until [`take_back`].
pub(crate) fn lend(pages: MmapRaw) -> Memory {
    let (start, length) = (pages.as_mut_ptr(), pages.len());
    LENT.lock()
        .insert(start as usize, Lent::File(Arc::new(pages)));
    // SAFETY: the pages stay mapped until the table gives them up, which it does in exchange for this slice. The
    // file stays as long (module invariants). Who else has the mapping reads and writes none of its bytes. Bytes
    // that change on the device or are scribbled on by a foreign process are covered by the CRC on every read from
    // cold.
    Memory::Lent(unsafe { slice::from_raw_parts_mut(start, length) })
}

/// Anonymous memory. Its pages are zeros, and cost nothing until they are touched.
#[derive(Debug)]
pub struct Buffer(MmapMut);

impl Buffer {
    /// Maps `bytes` bytes of zeros. The number may come from a file, so there may be too little memory.
    ///
    /// # Errors
    /// The system's answer.
    pub fn zeroed(bytes: u32) -> io::Result<Buffer> {
        MmapMut::map_anon(bytes as usize).map(Buffer)
    }

    /// Asks for huge pages, where the system has them.
    pub(crate) fn advise_huge(&self) -> io::Result<()> {
        platform::advise_huge(&self.0)
    }

    /// Lends the first `bytes` bytes, until [`take_back`].
    pub(crate) fn lend(mut self, bytes: u32) -> Memory {
        let bytes = bytes as usize;
        assert!((1..=self.0.len()).contains(&bytes), "a part of the buffer");
        let start = self.0.as_mut_ptr();
        LENT.lock()
            .insert(start as usize, Lent::Buffer(self.0, bytes));
        // SAFETY: the pages stay mapped until the table gives them up, which it does in exchange for this slice. The
        // table itself never touches them.
        Memory::Lent(unsafe { slice::from_raw_parts_mut(start, bytes) })
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// Takes memory back: unmaps a file, frees plain memory, and returns a buffer for the next use.
pub(crate) fn take_back(memory: Memory) -> Option<Buffer> {
    let Memory::Lent(bytes) = memory else {
        return None;
    };
    let address = bytes.as_ptr() as usize;
    let mut lent = LENT.lock();
    // Only the whole slice proves that nobody else has a byte of the mapping: the first part of a split slice has the
    // same address.
    let is_whole = |lent: &Lent| lent.bytes() == bytes.len();
    if !lent.get(&address).is_some_and(is_whole) {
        return None;
    }
    let mapping = lent.remove(&address);
    drop(lent);
    match mapping {
        Some(Lent::Buffer(buffer, _)) => Some(Buffer(buffer)),
        // Unmaps, without the lock.
        Some(Lent::File(_)) | None => None,
    }
}

/// Takes written pages out of the page tables, not out of the page cache. The next access brings the pages back
/// unchanged. A sync write-protects every page that is still in the page tables, and each such page interrupts every
/// processor that runs this program. This call needs one interrupt for all pages.
pub(crate) fn let_go(written: &Written) {
    let pages = match LENT.lock().get(&written.address) {
        Some(Lent::File(pages)) => Arc::clone(pages),
        // The mapping has come back meanwhile.
        Some(Lent::Buffer(..)) | None => return,
    };
    for part in &written.parts {
        let (start, end) = (part.start as usize, part.end as usize);
        if start >= end || end > pages.len() {
            // Nothing was written, or another mapping has the address now.
            continue;
        }
        // SAFETY: what was stored into a shared mapping of a file is in the page cache, and that is where
        // the next access finds it; no byte changes, so it does not matter who uses them meanwhile.
        let advised =
            unsafe { pages.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start) };
        // Locked memory (mlockall) cannot go: the sync is dearer, and as good.
        advised.unwrap_or_default();
    }
}

/// Maps the first `bytes` bytes of `file`, shared and writable, and brings its pages in. Dropping the mapping unmaps the
/// file.
pub(crate) fn map(file: &File, bytes: u32) -> io::Result<MmapRaw> {
    let length = file.metadata()?.len();
    if length < u64::from(bytes) {
        let text = format!("file of {length} bytes, expected {bytes}");
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
    }
    let pages = MmapOptions::new().len(bytes as usize).map_raw(file)?;
    populate(&pages)?;
    Ok(pages)
}

/// Brings the pages in, some at a time. A kernel that does not preempt itself lets nobody else use this processor
/// during a call, and fresh memory of a virtual machine takes up to 2.5 us for each KiB.
fn populate(pages: &MmapRaw) -> io::Result<()> {
    for start in (0..pages.len()).step_by(AT_ONCE) {
        let length = AT_ONCE.min(pages.len() - start);
        platform::populate(pages, start, length)?;
    }
    Ok(())
}

/// Makes a SIGBUS say one line on standard error before it ends the process as usual.
///
/// A SIGBUS means that a page of a segment could not be read or written: the device failed, or someone made the file
/// shorter. The process cannot go on, because a store may be half done.
pub fn install_sigbus_reporter() -> io::Result<()> {
    // SAFETY: the action writes to a descriptor, and ends the process. Both are async-signal-safe.
    unsafe { low_level::register(libc::SIGBUS, report_sigbus) }.map(drop)
}

/// Runs in signal context: no allocation, no lock, no formatting machinery.
fn report_sigbus() {
    let line = b"SIGBUS: a page of a mapped file failed (device, or file shortened).\n";
    // The process ends, whether the line could be written or not.
    let _ = rustix::io::write(io::stderr(), line);
    let _ = low_level::emulate_default_handler(libc::SIGBUS);
}

#[cfg(test)]
mod tests;
