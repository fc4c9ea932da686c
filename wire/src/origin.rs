//! [`Origin`]: the publisher of a message, and the number that the publisher gave the message.
//!
//! A publisher is no connection: the same publisher may use several connections, one after another or at the same
//! time. A publisher that sends a message again sends the same number again, so a broker can tell the copy from a new
//! message.

use std::num::NonZero;

/// The largest number of a message. A batch must end at this number or below.
pub const NUMBER_MAX: u64 = i64::MAX.cast_unsigned();
/// The most hexadecimal digits of a publisher's id.
const ID_DIGITS_MAX: usize = 16;

/// The publisher of a message, and the number that the publisher gave the message in its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// The id of the publisher: a random number that the publisher keeps. Never 0.
    pub publisher: u64,
    /// The number of the message: at most [`NUMBER_MAX`].
    pub number: u64,
}

impl Origin {
    /// Returns the origin of the message that lies `by` messages behind this one in a batch.
    #[inline]
    #[must_use]
    pub fn offset(self, by: u32) -> Origin {
        Origin {
            number: self.number + u64::from(by),
            ..self
        }
    }

    /// Returns whether a batch of `count` messages may begin with this origin: the last number is at most
    /// [`NUMBER_MAX`].
    #[inline]
    #[must_use]
    pub fn has_room_for(self, count: u32) -> bool {
        self.number + u64::from(count.max(1)) - 1 <= NUMBER_MAX
    }
}

/// The number in a command, in eight bytes even if it is optional: commands are moved often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Number(NonZero<u64>);

impl Number {
    /// Returns the number `number`. `None` if it is above [`NUMBER_MAX`].
    #[inline]
    #[must_use]
    pub const fn new(number: u64) -> Option<Number> {
        if number > NUMBER_MAX {
            return None;
        }
        match NonZero::new(number + 1) {
            Some(above) => Some(Number(above)),
            None => None,
        }
    }

    /// The number: at most [`NUMBER_MAX`].
    #[inline]
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get() - 1
    }
}

/// Reads the id of a publisher: 1 to 16 hexadecimal digits that are not all 0.
#[must_use]
pub fn parse_publisher_id(text: &str) -> Option<u64> {
    let is_id = (1..=ID_DIGITS_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = u64::from_str_radix(text, 16).ok().filter(|_| is_id)?;
    (id != 0).then_some(id)
}

/// Reads the number of a message: decimal digits, at most [`NUMBER_MAX`].
#[inline]
#[must_use]
pub fn parse_number(text: &[u8]) -> Option<Number> {
    let mut value = 0_u64;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Number::new(value).filter(|_| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_publishers() {
        for (text, id) in [
            ("1", Some(1)),
            ("0001", Some(1)),
            ("9f86d081884c7d65", Some(0x9f86_d081_884c_7d65)),
            ("FFFFFFFFFFFFFFFF", Some(u64::MAX)),
            ("", None),
            ("0", None),
            ("0000000000000000", None),
            ("10000000000000000", None),
            ("00000000000000001", None),
            ("+1", None),
            ("0x1", None),
            ("g", None),
            ("1 ", None),
        ] {
            assert_eq!(parse_publisher_id(text), id, "{text:?}");
        }
    }

    #[test]
    fn numbers_of_messages() {
        for (text, number) in [
            ("0", Some(0)),
            ("007", Some(7)),
            ("9223372036854775807", Some(NUMBER_MAX)),
            ("9223372036854775808", None),
            ("18446744073709551616", None),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.0", None),
            ("1 ", None),
        ] {
            let parsed = parse_number(text.as_bytes()).map(Number::get);
            assert_eq!(parsed, number, "{text:?}");
        }
    }

    #[test]
    fn a_batch_ends_at_the_largest_number() {
        let last = Origin {
            publisher: 1,
            number: NUMBER_MAX,
        };
        assert!(last.has_room_for(0) && last.has_room_for(1) && !last.has_room_for(2));
        let first = Origin {
            publisher: 1,
            number: NUMBER_MAX - 1,
        };
        assert!(first.has_room_for(2));
        assert_eq!(first.offset(1), last);
    }
}
