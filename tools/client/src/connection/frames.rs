//! [`FrameBuffer`]: the bytes that an nsqd sent, and the frames in them. No body is copied.

use bytes::{Buf, Bytes, BytesMut};
use wire::encode::{FrameDecoded, decode_frame};
use wire::frame::{DATA_AT, FrameType, HEADER_BYTES, Message};
use wire::id::MessageId;
use wire::limits::SIZE_BYTES;

use crate::error::ConnectionError;

/// The size of a piece of the buffer, in bytes. Messages of one piece share its memory, which is free when all of these
/// messages have been dropped.
const PIECE_BYTES: usize = 64 * 1024;
/// A read into less free space than this would return too few messages, in bytes.
const SPARE_BYTES_MIN: usize = 8 * 1024;
/// The first four bytes of an HTTP response. As a frame they would announce 1,213,486,160 bytes.
const HTTP: &[u8] = b"HTTP";

/// A message in the form in which it came. `body` shares memory with the other messages of the same read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawMessage {
    /// The time at which nsqd received the message, in nanoseconds of Unix time.
    pub(crate) timestamp_ns: i64,
    /// The number of deliveries, this one included.
    pub(crate) attempts: u16,
    pub(crate) id: MessageId,
    pub(crate) body: Bytes,
}

/// Consecutive message frames of one read: an iterator over at least one message.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// Complete message frames and nothing else. Each is long enough for a message.
    frames: Bytes,
    count: usize,
}

impl Iterator for Batch {
    type Item = RawMessage;

    #[inline]
    fn next(&mut self) -> Option<RawMessage> {
        let size = self.frames.first_chunk::<SIZE_BYTES>()?;
        let bytes = SIZE_BYTES + u32::from_be_bytes(*size) as usize;
        let frame = self.frames.split_to(bytes);
        let message = Message::parse(&frame[DATA_AT..]).expect("the frame was checked");
        self.count -= 1;
        Some(RawMessage {
            timestamp_ns: message.timestamp_ns,
            attempts: message.attempts,
            id: message.id,
            body: frame.slice(HEADER_BYTES..),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for Batch {}

/// The next content of the buffer.
#[derive(Debug)]
pub(crate) enum Incoming {
    Response(Bytes),
    Error(Bytes),
    Messages(Batch),
}

/// Plain bytes from an nsqd, from the first one that no frame has used yet.
#[derive(Debug)]
pub(crate) struct FrameBuffer {
    bytes: BytesMut,
    /// The number of bytes that the buffer must have before the first frame is complete.
    needed: usize,
    /// The largest size that a frame may announce, in bytes.
    size_max: usize,
}

impl FrameBuffer {
    pub(crate) fn new(size_max: usize) -> FrameBuffer {
        FrameBuffer {
            bytes: BytesMut::new(),
            needed: SIZE_BYTES,
            size_max,
        }
    }

    /// Returns the buffer with free space behind its bytes. The space grows with what has come, so that an announced
    /// size alone makes no memory.
    #[inline]
    pub(crate) fn space(&mut self) -> &mut BytesMut {
        let filled = self.bytes.len();
        let missing = self.needed.saturating_sub(filled);
        let wanted = missing.clamp(SPARE_BYTES_MIN, PIECE_BYTES.max(filled));
        if self.bytes.capacity() - filled < wanted {
            self.bytes.reserve(wanted.max(PIECE_BYTES));
        }
        &mut self.bytes
    }

    /// Removes all bytes: what came behind the answer that leads to an upgrade belongs to the upgrade.
    #[cfg(any(feature = "compression", feature = "tls"))]
    pub(crate) fn take_rest(&mut self) -> BytesMut {
        self.needed = SIZE_BYTES;
        self.bytes.split()
    }

    /// Removes the next response, the next error, or the next messages. `None` means that the buffer has no complete
    /// frame.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Incoming>, ConnectionError> {
        if self.bytes.len() < self.needed {
            return Ok(None);
        }
        let (kind, bytes) = match self.frame_at(0)? {
            Frame::Incomplete(needed) => {
                self.needed = needed;
                return Ok(None);
            }
            Frame::Complete(kind, bytes) => (kind, bytes),
        };
        self.needed = SIZE_BYTES;
        let incoming = match kind {
            FrameType::Response => Incoming::Response(self.take_data(bytes)),
            FrameType::Error => Incoming::Error(self.take_data(bytes)),
            FrameType::Message => Incoming::Messages(self.take_batch(bytes)?),
        };
        Ok(Some(incoming))
    }

    fn take_data(&mut self, bytes: usize) -> Bytes {
        let mut frame = self.bytes.split_to(bytes).freeze();
        frame.advance(DATA_AT);
        frame
    }

    /// Takes the message frame of `bytes` at the front, and the complete message frames behind it.
    fn take_batch(&mut self, bytes: usize) -> Result<Batch, ConnectionError> {
        let (mut end, mut count) = (bytes, 1);
        // An error behind the messages is found again by the next call.
        while let Ok(Frame::Complete(FrameType::Message, bytes)) = self.frame_at(end) {
            end += bytes;
            count += 1;
        }
        let frames = self.bytes.split_to(end).freeze();
        Ok(Batch { frames, count })
    }

    #[inline]
    fn frame_at(&self, at: usize) -> Result<Frame, ConnectionError> {
        let input = &self.bytes[at..];
        let Some(size) = input.first_chunk::<SIZE_BYTES>() else {
            return Ok(Frame::Incomplete(SIZE_BYTES));
        };
        let announced = i32::from_be_bytes(*size);
        let size = usize::try_from(announced).unwrap_or(usize::MAX);
        if size > self.size_max || input.starts_with(HTTP) {
            return Err(bad_size(announced, self.size_max, input));
        }
        match decode_frame(input) {
            FrameDecoded::NeedMore(needed) => Ok(Frame::Incomplete(needed)),
            FrameDecoded::Bad => Err(bad_size(announced, self.size_max, input)),
            FrameDecoded::Frame { kind, consumed, .. } => {
                if kind == FrameType::Message && consumed < HEADER_BYTES {
                    return Err(ConnectionError::ShortMessage {
                        bytes: consumed - DATA_AT,
                    });
                }
                Ok(Frame::Complete(kind, consumed))
            }
        }
    }
}

/// The frame at a place of the buffer.
enum Frame {
    /// The buffer must have this many bytes from that place on.
    Incomplete(usize),
    /// The type of the frame, and its length in bytes.
    Complete(FrameType, usize),
}

/// Says what is wrong with the front of `input`.
fn bad_size(announced: i32, size_max: usize, input: &[u8]) -> ConnectionError {
    if input.starts_with(HTTP) {
        return ConnectionError::HttpEndpoint;
    }
    match usize::try_from(announced) {
        Ok(size) if size > size_max => ConnectionError::FrameTooLarge {
            bytes: size,
            bytes_max: size_max,
        },
        Ok(size) if size >= DATA_AT - SIZE_BYTES => ConnectionError::FrameType {
            number: input
                .get(SIZE_BYTES..DATA_AT)
                .and_then(|kind| kind.first_chunk())
                .map_or(-1, |kind| i32::from_be_bytes(*kind)),
        },
        _ => ConnectionError::FrameSize { announced },
    }
}

#[cfg(test)]
mod tests;
