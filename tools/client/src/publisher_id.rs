//! [`PublisherId`]: the number under which a program numbers its messages.

use std::fmt;
use std::io;
use std::num::NonZero;
use std::str::FromStr;

use thiserror::Error;
use wire::origin::parse_publisher_id;

/// The id of a publisher: 64 bits, never 0. nsqd tells the messages of publishers apart by it. Its text has 16
/// hexadecimal digits. Ids of 1 to 16 digits are read.
///
/// An id belongs to one sequence of numbers. Two programs with one id, which number their messages independently, lose
/// messages: nsqd takes the messages of the second program for copies.
///
/// ```
/// use ringq_client::PublisherId;
///
/// let id: PublisherId = "9f86d081884c7d65".parse()?;
/// assert_eq!(id.to_string(), "9f86d081884c7d65");
/// let drawn = PublisherId::random()?;
/// assert_ne!(drawn, id);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublisherId(NonZero<u64>);

impl PublisherId {
    /// Returns the id `id`. `None` if it is 0.
    #[must_use]
    pub const fn new(id: u64) -> Option<PublisherId> {
        match NonZero::new(id) {
            Some(id) => Some(PublisherId(id)),
            None => None,
        }
    }

    /// Draws an id from the system's randomness.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn random() -> io::Result<PublisherId> {
        loop {
            if let Some(id) = PublisherId::new(getrandom::u64()?) {
                return Ok(id);
            }
        }
    }

    /// Returns the id as a number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for PublisherId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for PublisherId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublisherId({self})")
    }
}

/// The text is no id of a publisher: 1 to 16 hexadecimal digits that are not all 0.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no publisher id: 1 to 16 hexadecimal digits, not all 0, are allowed")]
pub struct PublisherIdError(String);

impl FromStr for PublisherId {
    type Err = PublisherIdError;

    fn from_str(text: &str) -> Result<PublisherId, PublisherIdError> {
        let id = parse_publisher_id(text).and_then(PublisherId::new);
        id.ok_or_else(|| PublisherIdError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_read_and_written() {
        for (text, written) in [
            ("1", "0000000000000001"),
            ("9F86d081884c7d65", "9f86d081884c7d65"),
            ("ffffffffffffffff", "ffffffffffffffff"),
        ] {
            let id: PublisherId = text.parse().unwrap();
            assert_eq!(id.to_string(), written);
            assert_eq!(written.parse(), Ok(id));
            assert_eq!(PublisherId::new(id.get()), Some(id));
        }
        for text in [
            "",
            "0",
            "0000000000000000",
            "12345678901234567",
            "x",
            "+1",
            " 1",
        ] {
            let error = text.parse::<PublisherId>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "{text:?} is no publisher id: 1 to 16 hexadecimal digits, not all 0, are allowed"
                )
            );
        }
        assert_eq!(PublisherId::new(0), None);
    }

    #[test]
    fn drawn_ids_differ() {
        let ids = [(); 100].map(|()| PublisherId::random().unwrap());
        let distinct: std::collections::BTreeSet<_> = ids.into_iter().collect();
        assert_eq!(distinct.len(), ids.len());
    }
}
