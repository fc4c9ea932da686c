//! A frame's bytes, and the message inside a message frame.
//!
//! ```text
//!   0        4        8                 16       18            34
//!   | size   | type   | timestamp       | attempts | id         | body ...
//!   | i32    | i32 =2 | i64, unix ns    | u16      | 16 ASCII   | size - 30 bytes
//! ```
//!
//! Big endian. `size` counts everything behind itself. A message is stored in its topic's log as the
//! frame that a first delivery sends, hence [`write_header`] into memory of the log's and
//! [`patch_attempts`] for later deliveries.

use crate::id::MessageId;
use crate::limits::{ID_BYTES, MESSAGE_BODY_BYTES_MAX, SIZE_BYTES};

/// Where a frame's type begins, in bytes.
pub const TYPE_AT: usize = SIZE_BYTES;
/// Where the data of any frame begins, in bytes; for a message, its timestamp.
pub const DATA_AT: usize = TYPE_AT + SIZE_BYTES;
/// Where a message frame's timestamp begins, in bytes.
pub const TIMESTAMP_AT: usize = DATA_AT;
/// Where a message frame's attempts begin, in bytes.
pub const ATTEMPTS_AT: usize = TIMESTAMP_AT + size_of::<i64>();
/// Where a message frame's id begins, in bytes.
pub const ID_AT: usize = ATTEMPTS_AT + size_of::<u16>();
/// Where a message frame's body begins: the bytes in front of it.
pub const HEADER_BYTES: usize = 34;

const _: () = assert!(HEADER_BYTES == ID_AT + ID_BYTES);

/// What a frame from broker to client holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameType {
    /// The answer to a command, or a heartbeat.
    Response = 0,
    /// An error: code, space, description.
    Error = 1,
    /// A [`Message`].
    Message = 2,
}

impl FrameType {
    /// The type with this number on the wire, if there is one.
    #[inline]
    #[must_use]
    pub fn from_wire(number: i32) -> Option<FrameType> {
        match number {
            0 => Some(FrameType::Response),
            1 => Some(FrameType::Error),
            2 => Some(FrameType::Message),
            _ => None,
        }
    }
}

/// Writes all of a message frame but its body of `body_bytes`. `timestamp_ns` is Unix time.
///
/// # Panics
/// When the frame could not state its own size: a body of 2 GiB, which no client can announce.
#[inline]
pub fn write_header(
    out: &mut [u8; HEADER_BYTES],
    body_bytes: u32,
    timestamp_ns: i64,
    attempts: u16,
    id: &MessageId,
) {
    assert!(
        body_bytes <= MESSAGE_BODY_BYTES_MAX,
        "a body of {body_bytes} bytes fits no frame"
    );
    let size = body_bytes + (HEADER_BYTES - SIZE_BYTES) as u32;
    out[..TYPE_AT].copy_from_slice(&size.to_be_bytes());
    out[TYPE_AT..DATA_AT].copy_from_slice(&(FrameType::Message as i32).to_be_bytes());
    out[TIMESTAMP_AT..ATTEMPTS_AT].copy_from_slice(&timestamp_ns.to_be_bytes());
    patch_attempts(out, attempts);
    out[ID_AT..].copy_from_slice(id.as_bytes());
}

/// Changes the number of deliveries, this one included, in a header that is otherwise complete.
#[inline]
pub fn patch_attempts(out: &mut [u8; HEADER_BYTES], attempts: u16) {
    out[ATTEMPTS_AT..ID_AT].copy_from_slice(&attempts.to_be_bytes());
}

/// A message as a client receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// When the broker took the message in: nanoseconds of Unix time.
    pub timestamp_ns: i64,
    /// Deliveries so far, this one included: 1 for the first.
    pub attempts: u16,
    /// What FIN, REQ and TOUCH name the message by.
    pub id: MessageId,
    /// What was published.
    pub body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads the data of a message frame: all that is behind the frame type. `None` when it is too
    /// short to be one.
    #[inline]
    #[must_use]
    pub fn parse(data: &'a [u8]) -> Option<Message<'a>> {
        let (timestamp_ns, rest) = data.split_first_chunk()?;
        let (attempts, rest) = rest.split_first_chunk()?;
        let (id, body) = rest.split_first_chunk()?;
        Some(Message {
            timestamp_ns: i64::from_be_bytes(*timestamp_ns),
            attempts: u16::from_be_bytes(*attempts),
            id: MessageId(*id),
            body,
        })
    }
}

#[cfg(test)]
mod tests;
