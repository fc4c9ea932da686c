//! Every maximum of the protocol. Constants hold the fixed maxima, [`Limits`] those with a flag.

use std::time::Duration;

/// Longest command line in bytes, LF included. The number is the size of nsqd's read buffer: nsqd
/// closes the connection of a peer that sends this many bytes without an LF, and sends no answer.
pub const LINE_BYTES_MAX: usize = 16384;

/// A message id in bytes: 64 bits in hexadecimal.
pub const ID_BYTES: usize = 16;

/// Longest topic or channel name in bytes, `#ephemeral` included.
pub const NAME_BYTES_MAX: usize = 64;

/// The end of a name whose topic or channel is deleted with its last user.
pub(crate) const EPHEMERAL_SUFFIX: &[u8] = b"#ephemeral";

/// Longest text of an IDENTIFY that is kept, in bytes: `client_id`, `hostname`, `user_agent` and
/// both topology texts are cut to this length. nsqd keeps up to `--max-body-size` for each
/// connection.
pub(crate) const IDENTIFY_TEXT_BYTES_MAX: usize = 1024;

/// Bytes of each size and count on the wire: a signed 32-bit integer, big endian.
pub const SIZE_BYTES: usize = 4;

/// Fewest bytes of a message in a batch: its size and one byte, because bodies are never empty.
pub(crate) const BATCH_ENTRY_BYTES_MIN: usize = SIZE_BYTES + 1;

// A batch entry has a size and a body of at least one byte.
const _: () = assert!(SIZE_BYTES == size_of::<i32>() && BATCH_ENTRY_BYTES_MIN > SIZE_BYTES);
// Sixteen hexadecimal digits are exactly the 64 bits behind an id.
const _: () = assert!(ID_BYTES * 4 == u64::BITS as usize);
// The longest suffix leaves room for a name in front of it.
const _: () = assert!(EPHEMERAL_SUFFIX.len() < NAME_BYTES_MAX);
// The longest valid line, `SUB <topic> <channel>`, is far shorter than the maximum.
const _: () = assert!("SUB  \r\n".len() + 2 * NAME_BYTES_MAX < LINE_BYTES_MAX);
// `REQ <id> <timeout>` is far shorter too, even with the twenty digits of the largest 64-bit
// number.
const _: () = assert!("REQ  \r\n".len() + ID_BYTES + 20 < LINE_BYTES_MAX);

/// The maxima an operator can set. [`Default`] gives nsqd's defaults.
///
/// Message and body sizes travel as signed 32-bit integers, so a larger flag has no more effect than
/// [`i32::MAX`]. Values of zero or less refuse everything they bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `--max-msg-size`: largest message body in bytes.
    pub message_bytes_max: i32,
    /// `--max-body-size`: largest IDENTIFY or AUTH body, and largest *declared* MPUB body, in bytes.
    pub body_bytes_max: i32,
    /// `--max-rdy-count`: largest RDY count, in messages.
    pub rdy_count_max: i64,
    /// `--max-req-timeout`: longest deferral. A longer DPUB is refused, a longer REQ is clamped.
    pub req_timeout_max: Duration,
}

impl Limits {
    /// Most messages in one MPUB. Like nsqd, this assumes a body that holds only messages of one
    /// byte.
    #[inline]
    #[must_use]
    pub fn mpub_count_max(&self) -> u32 {
        let count =
            (i64::from(self.body_bytes_max) - SIZE_BYTES as i64) / BATCH_ENTRY_BYTES_MIN as i64;
        u32::try_from(count).unwrap_or(0)
    }

    /// [`Limits::req_timeout_max`] in nanoseconds, the unit of nsqd's comparison. The value is at
    /// most the 292 years that a signed 64-bit integer holds.
    #[inline]
    pub(crate) fn req_timeout_max_ns(&self) -> i64 {
        i64::try_from(self.req_timeout_max.as_nanos()).unwrap_or(i64::MAX)
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            message_bytes_max: 1024 * 1024,
            body_bytes_max: 5 * 1024 * 1024,
            rdy_count_max: 2500,
            req_timeout_max: Duration::from_secs(60 * 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mpub_count_max_follows_the_body_limit() {
        let check = |body_bytes_max, expected| {
            let limits = Limits {
                body_bytes_max,
                ..Limits::default()
            };
            assert_eq!(limits.mpub_count_max(), expected, "{body_bytes_max}");
        };
        check(5 * 1024 * 1024, 1_048_575);
        check(i32::MAX, 429_496_728);
        for (bytes, count) in [(9, 1), (8, 0), (4, 0), (0, 0), (-1, 0), (i32::MIN, 0)] {
            check(bytes, count);
        }
    }
}
