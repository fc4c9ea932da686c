//! Encoders for a broker's responses and errors and a client's commands, and for clients the
//! decoder of the frames that a broker sends.
//!
//! Each encoder appends to a buffer of the caller. This module makes no message frames: a topic's
//! log holds them ready to be sent (see [`crate::frame`]).

use std::time::Duration;

use crate::decode::UNCOUNTED;
use crate::error::WireError;
use crate::frame::{DATA_AT, FrameType, TYPE_AT};
use crate::id::MessageId;
use crate::limits::SIZE_BYTES;
use crate::name::{ChannelName, TopicName};

/// The response to SUB, PUB, MPUB, DPUB and a plain IDENTIFY.
pub const OK: &[u8] = b"\0\0\0\x06\0\0\0\0OK";

/// The response to CLS.
pub const CLOSE_WAIT: &[u8] = b"\0\0\0\x0e\0\0\0\0CLOSE_WAIT";

/// The frame that the broker sends at intervals. Any command answers it.
pub const HEARTBEAT: &[u8] = b"\0\0\0\x0f\0\0\0\0_heartbeat_";

/// Appends a response frame.
///
/// # Panics
/// When `data` is too long for a frame: 2 GiB.
pub fn response(out: &mut Vec<u8>, data: &[u8]) {
    frame(out, FrameType::Response, data);
}

/// Appends an error frame.
pub fn error(out: &mut Vec<u8>, error: &WireError) {
    frame(out, FrameType::Error, error.data());
}

fn frame(out: &mut Vec<u8>, kind: FrameType, data: &[u8]) {
    size(out, data.len() + (DATA_AT - TYPE_AT));
    out.extend_from_slice(&(kind as i32).to_be_bytes());
    out.extend_from_slice(data);
}

/// Appends a size or a count.
fn size(out: &mut Vec<u8>, value: usize) {
    let value = i32::try_from(value).expect("no size on the wire exceeds 31 bits");
    out.extend_from_slice(&value.to_be_bytes());
}

fn line(out: &mut Vec<u8>, words: &[&[u8]]) {
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(word);
    }
    out.push(b'\n');
}

fn body(out: &mut Vec<u8>, bytes: &[u8]) {
    size(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends `IDENTIFY` with this JSON document.
///
/// # Panics
/// When the body has 2 GiB or more. The same holds for every command with a body.
pub fn identify(out: &mut Vec<u8>, json: &[u8]) {
    line(out, &[b"IDENTIFY"]);
    body(out, json);
}

/// Appends `AUTH`.
pub fn auth(out: &mut Vec<u8>, secret: &[u8]) {
    line(out, &[b"AUTH"]);
    body(out, secret);
}

/// Appends `SUB`.
pub fn sub(out: &mut Vec<u8>, topic: TopicName<'_>, channel: ChannelName<'_>) {
    line(out, &[b"SUB", topic.as_bytes(), channel.as_bytes()]);
}

/// Appends `PUB`. A broker refuses an empty message.
pub fn publish(out: &mut Vec<u8>, topic: TopicName<'_>, message: &[u8]) {
    line(out, &[b"PUB", topic.as_bytes()]);
    body(out, message);
}

/// Appends `MPUB`. A broker refuses a batch without messages, or with an empty one.
pub fn mpub<B: AsRef<[u8]>>(
    out: &mut Vec<u8>,
    topic: TopicName<'_>,
    messages: impl IntoIterator<Item = B>,
) {
    line(out, &[b"MPUB", topic.as_bytes()]);
    batch(out, messages);
}

/// Appends the messages of an `MPUB`.
fn batch<B: AsRef<[u8]>>(out: &mut Vec<u8>, messages: impl IntoIterator<Item = B>) {
    let size_at = out.len();
    // The size and the count are known only at the end.
    out.extend_from_slice(&[0; 2 * SIZE_BYTES]);
    let count_at = size_at + SIZE_BYTES;
    let mut count = 0;
    for message in messages {
        body(out, message.as_ref());
        count += 1;
    }
    let mut head = Vec::with_capacity(2 * SIZE_BYTES);
    size(&mut head, out.len() - count_at);
    size(&mut head, count);
    out[size_at..size_at + head.len()].copy_from_slice(&head);
}

/// Appends `DPUB`. `defer` is truncated to whole milliseconds.
pub fn dpub(out: &mut Vec<u8>, topic: TopicName<'_>, defer: Duration, message: &[u8]) {
    let ms = defer.as_millis().to_string();
    line(out, &[b"DPUB", topic.as_bytes(), ms.as_bytes()]);
    body(out, message);
}

/// Appends a `PUB` with the number of the message. Only a broker that has answered IDENTIFY with
/// `"publisher_id":true` knows this form. Any other broker ignores the number.
pub fn publish_numbered(out: &mut Vec<u8>, topic: TopicName<'_>, number: u64, message: &[u8]) {
    line(
        out,
        &[b"PUB", topic.as_bytes(), number.to_string().as_bytes()],
    );
    body(out, message);
}

/// Appends an `MPUB` with the number of the first message, as in [`publish_numbered`].
pub fn mpub_numbered<B: AsRef<[u8]>>(
    out: &mut Vec<u8>,
    topic: TopicName<'_>,
    number: u64,
    messages: impl IntoIterator<Item = B>,
) {
    line(
        out,
        &[b"MPUB", topic.as_bytes(), number.to_string().as_bytes()],
    );
    batch(out, messages);
}

/// Appends a `DPUB` with the number of the message, as in [`publish_numbered`].
pub fn dpub_numbered(
    out: &mut Vec<u8>,
    topic: TopicName<'_>,
    defer: Duration,
    number: u64,
    message: &[u8],
) {
    let ms = defer.as_millis().to_string();
    let number = number.to_string();
    line(
        out,
        &[b"DPUB", topic.as_bytes(), ms.as_bytes(), number.as_bytes()],
    );
    body(out, message);
}

/// Appends `RDY`.
pub fn rdy(out: &mut Vec<u8>, count: u32) {
    line(out, &[b"RDY", count.to_string().as_bytes()]);
}

/// Appends `FIN`.
pub fn fin(out: &mut Vec<u8>, id: &MessageId) {
    line(out, &[b"FIN", id.as_bytes()]);
}

/// Appends `REQ`. `timeout` is truncated to whole milliseconds.
pub fn req(out: &mut Vec<u8>, id: &MessageId, timeout: Duration) {
    let ms = timeout.as_millis().to_string();
    line(out, &[b"REQ", id.as_bytes(), ms.as_bytes()]);
}

/// Appends a `REQ` that does not count as an attempt. `timeout` is truncated to whole milliseconds.
///
/// Only a broker that has answered IDENTIFY with `"req_uncounted":true` knows this form. Any other broker ignores the
/// third parameter, so the REQ counts.
pub fn req_uncounted(out: &mut Vec<u8>, id: &MessageId, timeout: Duration) {
    let ms = timeout.as_millis().to_string();
    line(out, &[b"REQ", id.as_bytes(), ms.as_bytes(), UNCOUNTED]);
}

/// Appends `TOUCH`.
pub fn touch(out: &mut Vec<u8>, id: &MessageId) {
    line(out, &[b"TOUCH", id.as_bytes()]);
}

/// Appends `CLS`.
pub fn cls(out: &mut Vec<u8>) {
    line(out, &[b"CLS"]);
}

/// Appends `NOP`.
pub fn nop(out: &mut Vec<u8>) {
    line(out, &[b"NOP"]);
}

/// The result of [`decode_frame`] for the front of a broker's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameDecoded<'a> {
    /// The frame is not complete before the input holds this many bytes. The broker can announce up
    /// to 2 GiB, so a client may want a limit.
    NeedMore(usize),
    /// A frame.
    Frame {
        /// The type of the frame's content.
        kind: FrameType,
        /// The bytes behind the type. See [`crate::frame::Message::parse`] for messages.
        data: &'a [u8],
        /// The number of input bytes that the frame occupies.
        consumed: usize,
    },
    /// Not a frame: a size that leaves no room for the type, or an unknown type.
    Bad,
}

/// Decodes the frame at the front of `input`.
#[must_use]
pub fn decode_frame(input: &[u8]) -> FrameDecoded<'_> {
    let Some((size, rest)) = input.split_first_chunk() else {
        return FrameDecoded::NeedMore(SIZE_BYTES);
    };
    let size = usize::try_from(i32::from_be_bytes(*size)).unwrap_or(0);
    if size < DATA_AT - TYPE_AT {
        return FrameDecoded::Bad;
    }
    let consumed = SIZE_BYTES + size;
    let Some((kind, _)) = rest.split_first_chunk() else {
        return FrameDecoded::NeedMore(DATA_AT);
    };
    let Some(kind) = FrameType::from_wire(i32::from_be_bytes(*kind)) else {
        return FrameDecoded::Bad;
    };
    match input.get(DATA_AT..consumed) {
        Some(data) => FrameDecoded::Frame {
            kind,
            data,
            consumed,
        },
        None => FrameDecoded::NeedMore(consumed),
    }
}

#[cfg(test)]
mod tests;
