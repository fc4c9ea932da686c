//! The present time since 1970.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the milliseconds since 1970. A clock that is before 1970 gives 0.
pub(crate) fn millis() -> i64 {
    i64::try_from(now().as_millis()).unwrap_or(i64::MAX)
}

/// Returns the seconds since 1970.
pub(crate) fn seconds() -> i64 {
    i64::try_from(now().as_secs()).unwrap_or(i64::MAX)
}

fn now() -> Duration {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.unwrap_or_default()
}
