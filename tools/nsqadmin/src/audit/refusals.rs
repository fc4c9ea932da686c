//! [`Refusals`]: the refused requests that have a line in the audit log.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time between two lines in the long run. Any client can send requests that are refused. A line has at most 6 KB, in
/// which each byte of a name takes six, so such clients add at most 52 MB a day.
const ONE_EVERY: Duration = Duration::from_secs(10);

/// Most lines at once.
const BURST: u32 = 100;

/// The lines that were written. All clones count the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals(Arc<Mutex<Written>>);

#[derive(Debug, Default)]
struct Written {
    /// The time at which the next line is due, if lines came one by one.
    next: Option<Instant>,
    /// The requests without a line since the last line.
    left_out: u64,
}

impl Refusals {
    /// Returns `None` if a request that comes now has no line, and otherwise the number of those before it that had none.
    pub(super) fn admit(&self, now: Instant) -> Option<u64> {
        // No code panics while it holds the lock.
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = written.next.map_or(now, |next| next.max(now));
        if next - now > ONE_EVERY * (BURST - 1) {
            written.left_out += 1;
            return None;
        }
        written.next = Some(next + ONE_EVERY);
        Some(std::mem::take(&mut written.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_burst_few_lines_are_written_and_the_other_requests_are_counted() {
        let refusals = Refusals::default();
        let start = Instant::now();
        for _ in 0..BURST {
            assert_eq!(refusals.admit(start), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(refusals.clone().admit(start), None);
        }
        assert_eq!(refusals.admit(start + ONE_EVERY), Some(7));
        assert_eq!(refusals.admit(start + ONE_EVERY), None);
        let later = start + ONE_EVERY * (BURST + 1);
        assert_eq!(refusals.admit(later), Some(1));
        for _ in 1..BURST {
            assert_eq!(refusals.admit(later), Some(0));
        }
        assert_eq!(refusals.admit(later), None);
    }
}
