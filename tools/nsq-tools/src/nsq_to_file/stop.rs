//! [`Stop`]: ends long work on files when the tool is to end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The order to end long work on files, such as a copy. All clones share the order.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Gives the order.
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true after the order.
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Ends work by an error after the order. Work calls this before each step that takes long.
    ///
    /// # Errors
    /// `Interrupted` after the order.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.is_set() {
            Err(io::Error::new(
                io::ErrorKind::Interrupted,
                "the tool is stopping",
            ))
        } else {
            Ok(())
        }
    }

    /// Returns true if work has ended by this error because of the order.
    pub(super) fn has_ended(&self, error: &io::Error) -> bool {
        self.is_set() && error.kind() == io::ErrorKind::Interrupted
    }
}
