//! [`Refusals`]: the refused requests that have a line in the audit log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The time between two lines in the long run. Any client can send requests that are refused. A line has at most 6 KB, in
/// which each byte of a name takes six, so such clients add at most 52 MB a day.
const ONE_EVERY: Duration = Duration::from_secs(10);

/// Most lines at once.
const BURST: u32 = 100;

/// The time at which the next line is due, if lines came one by one. All clones count the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals(Arc<Mutex<Option<Instant>>>);

impl Refusals {
    /// Returns true if a request that comes now has a line.
    pub(super) fn admit(&self, now: Instant) -> bool {
        let mut due = self.0.lock();
        let next = due.map_or(now, |next| next.max(now));
        if next - now > ONE_EVERY * (BURST - 1) {
            return false;
        }
        *due = Some(next + ONE_EVERY);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_burst_few_lines_are_written() {
        let refusals = Refusals::default();
        let start = Instant::now();
        let count = |now| (0..1000).filter(|_| refusals.clone().admit(now)).count();
        assert_eq!(count(start), 100);
        assert_eq!(count(start + ONE_EVERY / 2), 0);
        assert_eq!(count(start + ONE_EVERY), 1);
        assert_eq!(count(start + ONE_EVERY * 5), 4);
        assert_eq!(count(start + ONE_EVERY * 1000), 100);
    }
}
