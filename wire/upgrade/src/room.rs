//! [`Room`]: space for plain bytes, and how much of it is taken.

/// Bytes are appended until it is full.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    bytes: &'a mut [u8],
    filled: usize,
}

impl Room<'_> {
    pub(crate) fn of(bytes: &mut [u8]) -> Room<'_> {
        Room { bytes, filled: 0 }
    }

    /// Bytes that are there.
    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    pub(crate) fn is_full(&self) -> bool {
        self.filled == self.bytes.len()
    }

    /// The space that is left.
    pub(crate) fn left(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// The first `bytes` bytes of what was left are filled.
    pub(crate) fn fill(&mut self, bytes: usize) {
        self.filled += bytes;
        debug_assert!(self.filled <= self.bytes.len());
    }

    /// Moves as many bytes in as fit, off the front of `from`.
    pub(crate) fn take(&mut self, from: &mut &[u8]) {
        let left = self.left();
        let (front, behind) = from.split_at(from.len().min(left.len()));
        left[..front.len()].copy_from_slice(front);
        self.fill(front.len());
        *from = behind;
    }
}
