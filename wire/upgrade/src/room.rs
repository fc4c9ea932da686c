//! [`Room`]: space for plain bytes.

/// A space to which bytes are appended until it is full.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    bytes: &'a mut [u8],
    filled: usize,
}

impl Room<'_> {
    pub(crate) fn of(bytes: &mut [u8]) -> Room<'_> {
        Room { bytes, filled: 0 }
    }

    /// Returns the number of bytes in the space.
    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    pub(crate) fn is_full(&self) -> bool {
        self.filled == self.bytes.len()
    }

    /// Returns the free space.
    pub(crate) fn left(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// Notes that the first `bytes` of the free space are filled.
    pub(crate) fn fill(&mut self, bytes: usize) {
        self.filled += bytes;
        debug_assert!(self.filled <= self.bytes.len());
    }

    /// Moves bytes from the front of `from` into the free space until one of them ends.
    pub(crate) fn take(&mut self, from: &mut &[u8]) {
        let left = self.left();
        let (front, behind) = from.split_at(from.len().min(left.len()));
        left[..front.len()].copy_from_slice(front);
        self.fill(front.len());
        *from = behind;
    }
}
