//! [`Saving`]: the progress of a save.

/// A save that is under way.
#[derive(Debug)]
pub(crate) struct Saving {
    /// The place that is saved next.
    pub(super) next: usize,
    pub(super) body: Vec<u8>,
}

impl Saving {
    /// The bytes of a save that is done.
    pub(crate) fn into_body(self) -> Vec<u8> {
        self.body
    }
}
