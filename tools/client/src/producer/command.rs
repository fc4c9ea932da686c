//! [`Command`]: one publish, checked and ready to be encoded. [`Tail`]: the last command of an output, which further
//! messages may join.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use wire::encode;
use wire::limits::SIZE_BYTES;
use wire::name::TopicName;

use super::{Batching, PublishError};

/// The largest body of a command: its size is a signed 32-bit number.
const BODY_BYTES_MAX: usize = i32::MAX as usize;

/// One publish. Its topic and sizes are valid.
#[derive(Clone, Debug)]
pub(crate) struct Command<'a> {
    pub(crate) topic: &'a str,
    pub(crate) bodies: Bodies,
}

/// The messages of a publish.
#[derive(Clone, Debug)]
pub(crate) enum Bodies {
    /// PUB, or a part of an MPUB with other publishes.
    One(Bytes),
    /// DPUB.
    Deferred(Duration, Bytes),
    /// MPUB.
    Many(Arc<[Bytes]>),
}

impl<'a> Command<'a> {
    /// Checks the topic and the bodies. `bytes_max` is the longest body that nsqd takes, if it is known.
    pub(crate) fn new(
        topic: &'a str,
        bodies: Bodies,
        bytes_max: Option<usize>,
    ) -> Result<Command<'a>, PublishError> {
        if TopicName::new(topic.as_bytes()).is_none() {
            return Err(PublishError::Topic(topic.to_owned()));
        }
        let list = match &bodies {
            Bodies::One(body) | Bodies::Deferred(_, body) => std::slice::from_ref(body),
            Bodies::Many(bodies) => bodies,
        };
        if list.is_empty() {
            return Err(PublishError::NoMessage);
        }
        let bytes_max = bytes_max.unwrap_or(BODY_BYTES_MAX).min(BODY_BYTES_MAX);
        for body in list {
            if body.is_empty() {
                return Err(PublishError::EmptyMessage);
            }
            if body.len() > bytes_max {
                return Err(PublishError::TooLarge {
                    bytes: body.len(),
                    bytes_max,
                });
            }
        }
        let total = list
            .iter()
            .fold(SIZE_BYTES, |sum, body| sum + SIZE_BYTES + body.len());
        if matches!(bodies, Bodies::Many(_)) && total > BODY_BYTES_MAX {
            return Err(PublishError::TooLarge {
                bytes: total,
                bytes_max: BODY_BYTES_MAX,
            });
        }
        Ok(Command { topic, bodies })
    }

    /// Appends the command to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let topic = TopicName::new(self.topic.as_bytes()).expect("the name was checked");
        match &self.bodies {
            Bodies::One(body) => encode::publish(out, topic, body),
            Bodies::Deferred(delay, body) => encode::dpub(out, topic, *delay, body),
            Bodies::Many(bodies) => encode::mpub(out, topic, bodies.iter()),
        }
    }
}

/// The last command of an output, while messages of the same topic may join it.
///
/// ```text
///   PUB t [5]hello                                  one publish
///   MPUB t [22][2][5]hello[5]world                  the next publish joined
/// ```
#[derive(Debug, Default)]
pub(crate) struct Tail {
    topic: String,
    /// The command's place in the output, in bytes since the handshake.
    place: Range<u64>,
    /// The number of messages. 0 means that no message may join.
    count: u32,
    /// The bytes of all bodies.
    body_bytes: usize,
}

impl Tail {
    /// Makes `command`, which lies at `place`, the last one.
    pub(crate) fn set(&mut self, command: &Command<'_>, place: Range<u64>) {
        match &command.bodies {
            Bodies::One(body) => {
                self.topic.clear();
                self.topic.push_str(command.topic);
                self.place = place;
                self.count = 1;
                self.body_bytes = body.len();
            }
            Bodies::Deferred(..) | Bodies::Many(_) => self.count = 0,
        }
    }

    /// Returns the end of the command in the output.
    pub(crate) fn end(&self) -> u64 {
        self.place.end
    }

    /// Lets the message of `command` join this command, which must be the last one of `out`, the output up to `end`.
    /// Returns false, and changes nothing, when the message cannot join.
    pub(crate) fn join(
        &mut self,
        command: &Command<'_>,
        batching: Batching,
        out: &mut Vec<u8>,
        end: u64,
    ) -> bool {
        let Bodies::One(body) = &command.bodies else {
            return false;
        };
        let taken_up_to = end - out.len() as u64;
        if self.count == 0
            || self.place.end != end
            || self.place.start < taken_up_to
            || self.topic != command.topic
            || self.count >= batching.messages_max
            || self.body_bytes + body.len() > batching.bytes_max
        {
            return false;
        }
        let start = usize::try_from(self.place.start - taken_up_to).expect("it lies in memory");
        let topic = TopicName::new(self.topic.as_bytes()).expect("the name was checked");
        if self.count == 1 {
            let first = Bytes::copy_from_slice(&out[out.len() - self.body_bytes..]);
            out.truncate(start);
            encode::mpub(out, topic, [&first, body]);
        } else {
            out.extend_from_slice(&size(body.len()));
            out.extend_from_slice(body);
            // The sizes lie behind the line: "MPUB topic LF".
            let sizes_at = start + "MPUB ".len() + self.topic.len() + 1;
            let count_at = sizes_at + SIZE_BYTES;
            let bytes = size(out.len() - count_at);
            out[sizes_at..count_at].copy_from_slice(&bytes);
            let count = (self.count + 1).to_be_bytes();
            out[count_at..count_at + SIZE_BYTES].copy_from_slice(&count);
        }
        self.count += 1;
        self.body_bytes += body.len();
        self.place.end = taken_up_to + out.len() as u64;
        true
    }
}

fn size(bytes: usize) -> [u8; SIZE_BYTES] {
    u32::try_from(bytes)
        .expect("the limits of a batch are far below 2 GiB")
        .to_be_bytes()
}

#[cfg(test)]
mod tests;
