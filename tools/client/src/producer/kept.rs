//! [`Kept`]: a numbered command, from the time when it is written until nsqd has answered it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use wire::encode;
use wire::name::TopicName;

use super::command::{Bodies, Command};
use crate::error::ConnectionError;

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

    /// Returns the number of messages.
    pub(crate) fn count(&self) -> usize {
        self.bodies.len()
    }

    /// Returns a command for each message, with the message's own number.
    pub(crate) fn split(self) -> impl Iterator<Item = Kept> {
        let Kept {
            topic,
            number,
            bodies,
            defer,
            lost,
        } = self;
        (number..).zip(bodies).map(move |(number, body)| Kept {
            topic: topic.clone(),
            number,
            bodies: vec![body],
            defer,
            lost: lost.clone(),
        })
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
