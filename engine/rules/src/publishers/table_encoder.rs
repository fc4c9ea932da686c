//! [`TableEncoder`]: the bytes of a table of publishers, while they are put together.

/// The encoding of a table that is being saved, a slice per turn.
#[derive(Debug)]
pub(crate) struct TableEncoder {
    /// The place that is encoded next.
    pub(super) next: usize,
    pub(super) body: Vec<u8>,
}

impl TableEncoder {
    /// Returns the bytes of the whole table.
    pub(crate) fn into_body(self) -> Vec<u8> {
        self.body
    }
}
