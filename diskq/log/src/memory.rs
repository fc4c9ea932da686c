//! [`Memory`]: the bytes of a segment, lent by the crate that maps files.

use std::fmt;
use std::ops::Range;

/// The bytes of one segment, wherever they are kept.
///
/// A log reads and writes the bytes, and hands each memory back, in a [`Request`](crate::Request). Dropping a memory of
/// a mapping makes no system call: the type has no destructor, and the lender never sees the bytes again. So a
/// forgotten memory stays mapped until the process ends.
pub enum Memory {
    /// Bytes of a mapping. The holder of the slice may use it for ever, so the lender ends the mapping only after it
    /// has got the whole slice back.
    Lent(&'static mut [u8]),
    /// Plain memory, for a simulated disk.
    Heap(Box<[u8]>),
}

impl Memory {
    /// Names parts of a mapping that were written. `None`: this memory has no pages that a sync writes.
    #[must_use]
    pub fn written(&self, parts: [Range<u32>; 2]) -> Option<Written> {
        match self {
            Memory::Lent(bytes) => Some(Written {
                address: bytes.as_ptr() as usize,
                parts,
            }),
            Memory::Heap(_) => None,
        }
    }
}

impl AsRef<[u8]> for Memory {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Memory::Lent(bytes) => bytes,
            Memory::Heap(bytes) => bytes,
        }
    }
}

impl AsMut<[u8]> for Memory {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Lent(bytes) => bytes,
            Memory::Heap(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Memory::Lent(_) => "Lent",
            Memory::Heap(_) => "Heap",
        };
        write!(f, "{kind}({} bytes)", self.as_ref().len())
    }
}

/// The parts of a mapping that were written since they were synced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The address of the first byte of the mapping. The lender finds the mapping by this address.
    pub address: usize,
    /// The parts, as offsets in the mapping: frames and slots.
    pub parts: [Range<u32>; 2],
}

/// The pages of a new file in the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// The pages that the file system chooses, as a rule the processor's pages. A sync writes the touched ones.
    Small,
    /// Folios of many pages (up to 256 KiB), where the file system has them. They are several times quicker to bring in,
    /// but a sync writes each of them whole.
    Large,
}
