//! [`IgnoredUserLog`]: decides when the log tells about an address whose header of a user does not count.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Most addresses that are remembered. With more, all of them are forgotten, so an address can have a second line.
const ADDRESSES_MAX: usize = 1000;

/// The time between two lines. A client with many addresses cannot fill the log.
const ONE_EVERY: Duration = Duration::from_secs(1);

/// The addresses that had their line.
#[derive(Clone, Debug, Default)]
pub struct IgnoredUserLog(Arc<Mutex<Told>>);

#[derive(Debug, Default)]
struct Told {
    addresses: BTreeSet<IpAddr>,
    last: Option<Instant>,
}

impl IgnoredUserLog {
    /// Returns true if the log should tell about this address now. An address that comes within a second of another
    /// one's line has its line at a later request.
    pub fn is_due(&self, address: IpAddr, now: Instant) -> bool {
        let mut told = self.0.lock();
        let is_too_early = told.last.is_some_and(|last| now < last + ONE_EVERY);
        if is_too_early || told.addresses.contains(&address) {
            return false;
        }
        if told.addresses.len() == ADDRESSES_MAX {
            told.addresses.clear();
        }
        told.addresses.insert(address);
        told.last = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn each_address_has_one_line_and_each_second_has_one() {
        let log = IgnoredUserLog::default();
        let start = Instant::now();
        let is_due = |number, ms| log.is_due(address(number), start + Duration::from_millis(ms));
        assert!(is_due(1, 0));
        assert!(!is_due(1, 1), "known");
        assert!(!is_due(2, 999), "too early");
        assert!(is_due(2, 1000), "not forgotten");
        assert!(!is_due(1, 5000) && !is_due(2, 5000), "known");
    }

    #[test]
    fn memory_has_a_limit() {
        let log = IgnoredUserLog::default();
        let start = Instant::now();
        for number in 0..3 * 1000 {
            let now = start + Duration::from_secs(number.into());
            assert!(log.is_due(address(number), now));
            let told = log.0.lock();
            assert!(told.addresses.len() <= ADDRESSES_MAX);
        }
    }
}
