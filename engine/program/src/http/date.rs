//! The `Date` header, formatted once a second.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

/// The text of one second.
#[derive(Debug, Default)]
pub(super) struct Date {
    second: u64,
    text: String,
}

impl Date {
    /// Returns the present date in the format of HTTP.
    pub(super) fn now(&mut self) -> &str {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        // A wall clock before 1970 counts as 1970.
        let second = since.map_or(0, |since| since.as_secs());
        if self.text.is_empty() || self.second != second {
            let text = at(second);
            *self = Date { second, text };
        }
        &self.text
    }
}

fn at(second: u64) -> String {
    // A date after the year 9999 has no text.
    let time = i64::try_from(second).ok().map(Timestamp::from_second);
    let time = time.and_then(Result::ok).unwrap_or(Timestamp::MAX);
    let printed = DateTimePrinter::new().timestamp_to_rfc9110_string(&time);
    printed.expect("the year has four digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(at(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(at(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(at(784_111_778), "Sun, 06 Nov 1994 08:49:38 GMT");
        assert!(at(u64::MAX).ends_with(" Dec 9999 22:00:00 GMT"));
    }
}
