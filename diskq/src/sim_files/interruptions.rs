//! The acts of other threads between two calls of a job.

use std::fmt;

type Act = Box<dyn FnOnce() + Send>;

/// The acts that wait for a place between two calls. Each place lowers the counts of all, and the acts with count zero are
/// due.
#[derive(Default)]
pub(super) struct Interruptions {
    waiting: Vec<(u64, Act)>,
}

impl Interruptions {
    pub(super) fn add(&mut self, nth: u64, act: Act) {
        self.waiting.push((nth, act));
    }

    /// Counts a place between two calls.
    pub(super) fn count(&mut self) {
        for (left, _) in &mut self.waiting {
            *left = left.saturating_sub(1);
        }
    }

    pub(super) fn take_due(&mut self) -> Option<Act> {
        let at = self.waiting.iter().position(|(left, _)| *left == 0)?;
        Some(self.waiting.remove(at).1)
    }

    /// Takes the one that was added first.
    pub(super) fn take_first(&mut self) -> Option<Act> {
        (!self.waiting.is_empty()).then(|| self.waiting.remove(0).1)
    }
}

impl fmt::Debug for Interruptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} interruptions", self.waiting.len())
    }
}
