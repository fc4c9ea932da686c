//! Formats wall-clock times in the local time zone.
//!
//! `jiff` reads the system's zone files itself. The C library's `localtime` needs `unsafe` and
//! races with changes of the environment.

use std::time::SystemTime;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// Returns `at` in RFC 3339, to the second: `2026-11-21T09:41:38Z`, `2026-11-21T10:41:38+01:00`. Returns an empty
/// text for a time outside the years -9999 to 9999.
pub fn rfc3339(at: SystemTime) -> String {
    let zoned = Timestamp::try_from(at).map(|at| at.to_zoned(TimeZone::system()));
    zoned.map_or(String::new(), |at| rfc3339_zoned(&at, ""))
}

/// Returns `at` in RFC 3339. `fraction` is the format of the part after the seconds.
pub(crate) fn rfc3339_zoned(at: &Zoned, fraction: &str) -> String {
    // Go writes Z for every zone without an offset from UTC.
    let offset = if at.offset().is_zero() { "Z" } else { "%:z" };
    at.strftime(&format!("%Y-%m-%dT%H:%M:%S{fraction}{offset}"))
        .to_string()
}
