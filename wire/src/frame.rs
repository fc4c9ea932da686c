//! The bytes of a frame, and the message inside a message frame.
//!
//! ```text
//!   0        4        8                 16       18            34
//!   | size   | type   | timestamp       | attempts | id         | body ...
//!   | i32    | i32 =2 | i64, unix ns    | u16      | 16 ASCII   | size - 30 bytes
//! ```
//!
//! All numbers are big endian. `size` counts all bytes behind itself. A topic's log stores a
//! message as the frame that the first delivery sends. [`write_header`] writes the header into the
//! log's memory, and [`patch_attempts`] adapts a header to a later delivery.

use crate::id::MessageId;
use crate::limits::{ID_BYTES, SIZE_BYTES};

/// Offset of a frame's type, in bytes.
pub(crate) const TYPE_AT: usize = SIZE_BYTES;
/// Offset of any frame's data, in bytes. The data of a message begin with its timestamp.
pub const DATA_AT: usize = TYPE_AT + SIZE_BYTES;
/// Offset of a message frame's timestamp, in bytes.
pub const TIMESTAMP_AT: usize = DATA_AT;
/// Offset of a message frame's attempts, in bytes.
pub const ATTEMPTS_AT: usize = TIMESTAMP_AT + size_of::<i64>();
/// Offset of a message frame's id, in bytes.
pub(crate) const ID_AT: usize = ATTEMPTS_AT + size_of::<u16>();
/// Offset of a message frame's body, which is the size of the header, in bytes.
pub const HEADER_BYTES: usize = 34;

/// Largest body of a message frame, in bytes. The frame's size is a signed 32-bit integer that
/// counts the header behind it too. `--max-msg-size` should stay far below this number.
const MESSAGE_BODY_BYTES_MAX: u32 = (i32::MAX as usize - (HEADER_BYTES - SIZE_BYTES)) as u32;

const _: () = assert!(HEADER_BYTES == ID_AT + ID_BYTES);

/// The type of a frame from broker to client.
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
    /// Returns the type with this number on the wire, if there is one.
    #[inline]
    #[must_use]
    pub(crate) fn from_wire(number: i32) -> Option<FrameType> {
        match number {
            0 => Some(FrameType::Response),
            1 => Some(FrameType::Error),
            2 => Some(FrameType::Message),
            _ => None,
        }
    }
}

/// Writes the header of a message frame whose body has `body_bytes`. `timestamp_ns` is Unix time.
///
/// # Panics
/// When the body has 2 GiB: the frame could not state its own size. No client can announce such a
/// body.
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

/// Changes the attempts in a complete header. `attempts` includes this delivery.
#[inline]
pub fn patch_attempts(out: &mut [u8; HEADER_BYTES], attempts: u16) {
    out[ATTEMPTS_AT..ID_AT].copy_from_slice(&attempts.to_be_bytes());
}

/// A message as a client receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Time at which the broker received the message, in nanoseconds of Unix time.
    pub timestamp_ns: i64,
    /// Number of deliveries, this one included: 1 for the first.
    pub attempts: u16,
    /// The id with which FIN, REQ and TOUCH name the message.
    pub id: MessageId,
    /// The published bytes.
    pub body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Parses the data of a message frame: all bytes behind the frame type. Returns `None` when
    /// they are too few for a message.
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
