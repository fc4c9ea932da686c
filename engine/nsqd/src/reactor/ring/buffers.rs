//! [`Buffers`]: the receive buffers that a ring's kernel side chooses from.
//!
//! ```text
//!   mapping:  | entries: address, length, number of a free buffer; the tail | buffer 0 | buffer 1 | ... |
//!
//!   provided (in the entries) ──► the kernel fills it ──► held by an inbox ──► provided again
//! ```

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use memmap2::{MmapMut, MmapRaw};
use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

/// The buffers of one ring. The kernel takes a power of two. 512 buffers carry 512 connections at the same moment, in
/// 1 MiB per shard.
pub(super) const COUNT: u16 = 512;
/// The size of a buffer. A connection that fills one receives large commands, and is read with plain `recv` again.
pub(super) const BUFFER_BYTES: usize = 2048;
const ENTRIES_BYTES: usize = COUNT as usize * size_of::<BufRingEntry>();
/// The name of the buffers in requests.
pub(super) const GROUP: u16 = 0;

/// A buffer that the kernel has filled, to be given back exactly once.
#[derive(Debug)]
pub(super) struct Filled {
    buffer: u16,
    start: u16,
    end: u16,
}

impl Filled {
    /// Returns whether all bytes are taken.
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// The buffers of one ring, which must be unregistered before the mapping ends.
pub(super) struct Buffers {
    /// Raw memory, because the kernel writes to it at any time.
    mapping: MmapRaw,
    /// The number of buffers provided so far, modulo 65,536.
    tail: u16,
    /// The number of [`Filled`]s.
    held: u16,
}

impl Buffers {
    /// Maps the buffers and provides all of them to the ring.
    ///
    /// # Errors
    /// No memory, or the kernel has no rings of buffers (before Linux 5.19).
    pub(super) fn register(ring: &IoUring) -> io::Result<Buffers> {
        let bytes = ENTRIES_BYTES + usize::from(COUNT) * BUFFER_BYTES;
        let mut buffers = Buffers {
            mapping: MmapMut::map_anon(bytes)?.into(),
            tail: 0,
            held: 0,
        };
        let entries = buffers.mapping.as_ptr() as u64;
        // SAFETY: the mapping begins at a page, is longer than the entries, and outlives the registration:
        // `Ring` unregisters the buffers before it drops them.
        #[allow(unsafe_code)]
        unsafe {
            ring.submitter()
                .register_buf_ring_with_flags(entries, COUNT, GROUP, 0)?;
        }
        for buffer in 0..COUNT {
            buffers.provide(buffer);
        }
        Ok(buffers)
    }

    /// Ends the registration. The kernel writes to no buffer afterwards.
    pub(super) fn unregister(&self, ring: &IoUring) -> io::Result<()> {
        ring.submitter().unregister_buf_ring(GROUP)
    }

    /// The first `bytes` bytes of a buffer, as a completion reports it.
    ///
    /// # Panics
    /// The report names no buffer of these.
    pub(super) fn filled(&mut self, buffer: u16, bytes: usize) -> Filled {
        assert!(
            buffer < COUNT && bytes <= BUFFER_BYTES,
            "a report of this ring"
        );
        self.held += 1;
        Filled {
            buffer,
            start: 0,
            end: bytes as u16,
        }
    }

    /// Moves bytes from the start of `filled` into the start of `room`, as many as fit. Returns their number.
    #[allow(unsafe_code)]
    pub(super) fn take(&self, filled: &mut Filled, room: &mut [u8]) -> usize {
        let at = place(filled.buffer) + usize::from(filled.start);
        let bytes = usize::from(filled.end - filled.start).min(room.len());
        // SAFETY: a `Filled` lies within its buffer, and the buffer lies within the mapping. The kernel does not write to
        // the buffer, because it is not provided as long as its `Filled` exists. `room` is other memory.
        unsafe {
            let from = self.mapping.as_ptr().wrapping_add(at);
            std::ptr::copy_nonoverlapping(from, room.as_mut_ptr(), bytes);
        }
        filled.start += bytes as u16;
        bytes
    }

    /// Lets the kernel use a buffer again.
    pub(super) fn give_back(&mut self, filled: Filled) {
        self.held -= 1;
        self.provide(filled.buffer);
    }

    /// The number of buffers that the kernel has filled and that were not given back.
    pub(super) fn held(&self) -> u16 {
        self.held
    }

    #[allow(unsafe_code)]
    fn provide(&mut self, buffer: u16) {
        let entries = self.mapping.as_mut_ptr().cast::<BufRingEntry>();
        let address = self.mapping.as_ptr() as u64 + place(buffer) as u64;
        let at = usize::from(self.tail % COUNT);
        self.tail = self.tail.wrapping_add(1);
        let entry = entries.wrapping_add(at);
        // SAFETY: the entries are the start of the mapping, which is aligned to a page, and `at` is less than their
        // number. At most `COUNT` buffers exist, and each is provided only while the kernel does not have it, so the
        // kernel does not read this entry before it sees the new tail.
        let entry = unsafe { &mut *entry };
        entry.set_addr(address);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(buffer);
        // SAFETY: this is the first entry of the ring.
        let tail = unsafe { BufRingEntry::tail(entries) }.cast_mut();
        // SAFETY: the tail is an aligned `u16`, which the kernel reads atomically. It lies in a field of the first entry
        // that this program writes nowhere else.
        let tail = unsafe { AtomicU16::from_ptr(tail) };
        tail.store(self.tail, Ordering::Release);
    }
}

/// The place of a buffer in the mapping.
fn place(buffer: u16) -> usize {
    ENTRIES_BYTES + usize::from(buffer) * BUFFER_BYTES
}
