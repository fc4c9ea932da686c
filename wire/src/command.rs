//! [`Command`]: what a client can ask for. All of it borrows from the input.

use std::time::Duration;

pub use crate::batch::{Batch, BatchError, Bodies};
use crate::id::MessageId;
use crate::name::{ChannelName, TopicName};

/// One command with everything checked that can be checked without knowing topics and messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `IDENTIFY`: who the client is and what it wants.
    Identify {
        /// JSON, not yet looked at. See [`crate::identify`].
        body: &'a [u8],
    },
    /// `AUTH`: the client's secret, for the auth server.
    Auth {
        /// Any bytes, at least one.
        secret: &'a [u8],
    },
    /// `SUB`: become a consumer.
    Sub {
        /// Of this topic,
        topic: TopicName<'a>,
        /// through this channel.
        channel: ChannelName<'a>,
    },
    /// `PUB`: publish one message.
    Pub {
        /// Where to.
        topic: TopicName<'a>,
        /// The message: 1 to [`crate::limits::Limits::message_bytes_max`] bytes.
        body: &'a [u8],
    },
    /// `MPUB`: publish several messages.
    Mpub {
        /// Where to.
        topic: TopicName<'a>,
        /// The messages.
        batch: Batch<'a>,
    },
    /// `DPUB`: publish one message, to be delivered later.
    Dpub {
        /// Where to.
        topic: TopicName<'a>,
        /// How much later, at most [`crate::limits::Limits::req_timeout_max`]. Zero is a PUB.
        defer: Duration,
        /// The message, as in PUB.
        body: &'a [u8],
    },
    /// `RDY`: how many messages may be in flight to this client at once.
    Rdy {
        /// At most [`crate::limits::Limits::rdy_count_max`], and at most [`u32::MAX`], which is out
        /// of reach for anything in memory.
        count: u32,
    },
    /// `RDY` after `CLS`: to be ignored. nsqd does not even look at its parameters.
    RdyIgnored,
    /// `FIN`: the message is done with.
    Fin {
        /// Any sixteen bytes without space and LF.
        id: MessageId,
    },
    /// `REQ`: the message is to be delivered again.
    Req {
        /// As in FIN.
        id: MessageId,
        /// Not before, clamped to zero and [`crate::limits::Limits::req_timeout_max`].
        timeout: Duration,
        /// What was asked for, in nanoseconds after wrap-around, where it had to be clamped: nsqd
        /// logs it.
        clamped_from_ns: Option<i64>,
    },
    /// `TOUCH`: the message needs more time.
    Touch {
        /// As in FIN.
        id: MessageId,
    },
    /// `CLS`: deliver nothing more, the client is about to leave.
    Cls,
    /// `NOP`: the client is alive.
    Nop,
}
