//! [`Command`]: one publish, checked and ready to be encoded. [`Tail`]: the last command of an output, which further
//! messages may join. [`Kept`]: a numbered command, which can be written again.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use wire::encode;
use wire::limits::SIZE_BYTES;
use wire::name::TopicName;

use super::error::PublishError;
use crate::error::ConnectionError;

/// The largest body of a command: its size is a signed 32-bit number.
const BODY_BYTES_MAX: usize = i32::MAX as usize;

/// One publish. Its topic and sizes are valid.
#[derive(Clone, Debug)]
pub(crate) struct Command<'a> {
    pub(crate) topic: &'a str,
    pub(crate) bodies: Bodies,
    /// The number that the application gave the first message.
    pub(crate) number: Option<u64>,
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
        Ok(Command {
            topic,
            bodies,
            number: None,
        })
    }

    /// Returns the number of messages.
    pub(crate) fn count(&self) -> usize {
        match &self.bodies {
            Bodies::One(_) | Bodies::Deferred(..) => 1,
            Bodies::Many(bodies) => bodies.len(),
        }
    }

    /// Appends the command to `out`, with the number of its first message if it has one.
    pub(crate) fn encode(&self, number: Option<u64>, out: &mut Vec<u8>) {
        let topic = TopicName::new(self.topic.as_bytes()).expect("the name was checked");
        match (&self.bodies, number) {
            (Bodies::One(body), None) => encode::publish(out, topic, body),
            (Bodies::One(body), Some(number)) => {
                encode::publish_numbered(out, topic, number, body);
            }
            (Bodies::Deferred(delay, body), None) => encode::dpub(out, topic, *delay, body),
            (Bodies::Deferred(delay, body), Some(number)) => {
                encode::dpub_numbered(out, topic, *delay, number, body);
            }
            (Bodies::Many(bodies), None) => encode::mpub(out, topic, bodies.iter()),
            (Bodies::Many(bodies), Some(number)) => {
                encode::mpub_numbered(out, topic, number, bodies.iter());
            }
        }
    }
}

/// The most messages in an MPUB that is made of several publishes. While a connection's task is busy, publishes gather in
/// its output. Consecutive publishes to one topic then become one MPUB. Nothing ever waits for others to come, so this
/// costs no latency. Each publish keeps its own answer: if nsqd refuses the MPUB, its messages are sent one by one.
const BATCH_MESSAGES_MAX: u32 = 1000;
/// The most bytes of bodies in such an MPUB. Longer bodies are sent alone. This is far below nsqd's default
/// `--max-body-size` of 5 MiB.
const BATCH_BYTES_MAX: usize = 256 * 1024;

/// The last command of an output, while messages of the same topic may join it.
///
/// ```text
///   PUB t [5]hello                                  one publish
///   MPUB t [22][2][5]hello[5]world                  the next publish joined
///   PUB t 7 [5]hello                                the same with numbers: the next message has number 8
///   MPUB t 7 [22][2][5]hello[5]world
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
    /// The number of the first message.
    number: Option<u64>,
}

impl Tail {
    /// Makes `command`, which has the number `number` and lies at `place`, the last one.
    pub(crate) fn set(&mut self, command: &Command<'_>, number: Option<u64>, place: Range<u64>) {
        match &command.bodies {
            Bodies::One(body) => {
                self.topic.clear();
                self.topic.push_str(command.topic);
                self.place = place;
                self.count = 1;
                self.body_bytes = body.len();
                self.number = number;
            }
            Bodies::Deferred(..) | Bodies::Many(_) => self.close(),
        }
    }

    /// States that the last command of the output is one that no message may join.
    pub(crate) fn close(&mut self) {
        self.count = 0;
    }

    /// Returns the end of the command in the output.
    pub(crate) fn end(&self) -> u64 {
        self.place.end
    }

    /// Lets the message of `command`, which has the number `number`, join this command, which must be the last one of
    /// `out`, the output up to `end`. Returns false, and changes nothing, when the message cannot join.
    pub(crate) fn join(
        &mut self,
        command: &Command<'_>,
        number: Option<u64>,
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
            || self.next_number() != number
            || self.count >= BATCH_MESSAGES_MAX
            || self.body_bytes + body.len() > BATCH_BYTES_MAX
        {
            return false;
        }
        let start = usize::try_from(self.place.start - taken_up_to).expect("it lies in memory");
        let topic = TopicName::new(self.topic.as_bytes()).expect("the name was checked");
        if self.count == 1 {
            let first = Bytes::copy_from_slice(&out[out.len() - self.body_bytes..]);
            out.truncate(start);
            match self.number {
                None => encode::mpub(out, topic, [&first, body]),
                Some(number) => encode::mpub_numbered(out, topic, number, [&first, body]),
            }
        } else {
            out.extend_from_slice(&size(body.len()));
            out.extend_from_slice(body);
            let sizes_at = start + self.line_bytes();
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

    /// Returns the number that a message must have to join.
    fn next_number(&self) -> Option<u64> {
        self.number.map(|first| first + u64::from(self.count))
    }

    /// Returns the length of the line `MPUB topic LF` or `MPUB topic number LF`, behind which the sizes lie.
    fn line_bytes(&self) -> usize {
        let number = self.number.map_or(0, |number| {
            let further_digits = number.checked_ilog10().unwrap_or(0) as usize;
            " 0".len() + further_digits
        });
        "MPUB ".len() + self.topic.len() + number + "\n".len()
    }
}

fn size(bytes: usize) -> [u8; SIZE_BYTES] {
    u32::try_from(bytes)
        .expect("the limits of a batch are far below 2 GiB")
        .to_be_bytes()
}

/// A numbered command. It is kept so that it can be written again, with the same numbers, to another connection to the
/// same node. The bodies share the memory of those that the application gave.
#[derive(Debug)]
pub(crate) struct Kept {
    topic: Box<str>,
    /// The number of the first message.
    number: u64,
    bodies: Vec<Bytes>,
    /// The deferral of a DPUB.
    defer: Option<Duration>,
    /// The first loss of a connection that may have sent the command, if there was one.
    pub(crate) lost: Option<Loss>,
}

/// The loss of a connection that may have sent a command.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    pub(crate) reason: Arc<ConnectionError>,
    /// The time at which the producer abandons the command if the node has no connection.
    pub(crate) deadline: Instant,
}

impl Kept {
    pub(crate) fn new(command: &Command<'_>, number: u64) -> Kept {
        let (bodies, defer) = match &command.bodies {
            Bodies::One(body) => (vec![body.clone()], None),
            Bodies::Deferred(defer, body) => (vec![body.clone()], Some(*defer)),
            Bodies::Many(bodies) => (bodies.to_vec(), None),
        };
        Kept {
            topic: command.topic.into(),
            number,
            bodies,
            defer,
            lost: None,
        }
    }

    /// Adds the message of a command that joined this one.
    pub(crate) fn join(&mut self, command: &Command<'_>) {
        match &command.bodies {
            Bodies::One(body) => self.bodies.push(body.clone()),
            Bodies::Deferred(..) | Bodies::Many(_) => unreachable!("only a PUB joins a command"),
        }
    }

    /// States that a connection that may have sent the command is lost. Returns the deadline of the first loss, at which
    /// the producer abandons the command. `deadline` counts only if this loss is the first.
    pub(crate) fn lost_until(
        &mut self,
        reason: &Arc<ConnectionError>,
        deadline: Instant,
    ) -> Instant {
        let loss = self.lost.get_or_insert_with(|| Loss {
            reason: Arc::clone(reason),
            deadline,
        });
        loss.deadline
    }

    /// Returns the topic, and the numbers of the messages.
    pub(crate) fn numbers(&self) -> (&str, Range<u64>) {
        let end = self.number + self.bodies.len() as u64;
        (&self.topic, self.number..end)
    }

    /// Appends the command to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let topic = TopicName::new(self.topic.as_bytes()).expect("the name was checked");
        match (self.bodies.as_slice(), self.defer) {
            ([body], Some(defer)) => encode::dpub_numbered(out, topic, defer, self.number, body),
            ([body], None) => encode::publish_numbered(out, topic, self.number, body),
            (bodies, _) => encode::mpub_numbered(out, topic, self.number, bodies),
        }
    }
}

#[cfg(test)]
mod tests;
