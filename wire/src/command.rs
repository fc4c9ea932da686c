//! [`Command`]: a request of a client. A command borrows from the input.

use std::time::Duration;

pub use crate::batch::{Batch, BatchError, Bodies};
use crate::id::MessageId;
use crate::name::{ChannelName, TopicName};
use crate::origin::Number;

/// One command that has passed every check which needs no knowledge of topics and messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `IDENTIFY`: describes the client and the features it asks for.
    Identify {
        /// A JSON document, not parsed yet. See [`crate::identify`].
        body: &'a [u8],
    },
    /// `AUTH`: gives the client's secret for the auth server.
    Auth {
        /// Any bytes, at least one.
        secret: &'a [u8],
    },
    /// `SUB`: makes the client a consumer.
    Sub {
        /// The topic to consume.
        topic: TopicName<'a>,
        /// The channel of that topic.
        channel: ChannelName<'a>,
    },
    /// `PUB`: publishes one message.
    Pub {
        /// The topic of the message.
        topic: TopicName<'a>,
        /// The message: 1 to [`crate::limits::Limits::message_bytes_max`] bytes.
        body: &'a [u8],
        /// The number of the message, if IDENTIFY has agreed on `publisher_id`. See [`crate::origin`].
        number: Option<Number>,
    },
    /// `MPUB`: publishes several messages.
    Mpub {
        /// The topic of the messages.
        topic: TopicName<'a>,
        /// The messages.
        batch: Batch<'a>,
        /// The number of the first message, as in PUB. The last number is at most
        /// [`crate::origin::NUMBER_MAX`].
        number: Option<Number>,
    },
    /// `DPUB`: publishes one deferred message.
    Dpub {
        /// The topic of the message.
        topic: TopicName<'a>,
        /// The deferral, at most [`crate::limits::Limits::req_timeout_max`]. Zero makes the command
        /// a PUB.
        defer: Duration,
        /// The message, as in PUB.
        body: &'a [u8],
        /// The number of the message, as in PUB.
        number: Option<Number>,
    },
    /// `RDY`: sets how many messages may be in flight to this client at once.
    Rdy {
        /// The ready count: at most [`crate::limits::Limits::rdy_count_max`] and at most
        /// [`u32::MAX`], which no number of messages in memory reaches.
        count: u32,
    },
    /// `RDY` after `CLS`, which the broker ignores. nsqd does not even check its parameters.
    RdyIgnored,
    /// `FIN`: finishes the message.
    Fin {
        /// Any sixteen bytes without a space or LF.
        id: MessageId,
    },
    /// `REQ`: requeues the message.
    Req {
        /// The id, with the same rule as in FIN.
        id: MessageId,
        /// The delay before the next delivery, clamped to zero and
        /// [`crate::limits::Limits::req_timeout_max`].
        timeout: Duration,
        /// The requested delay in nanoseconds after wrap-around, if it was clamped: nsqd logs this
        /// number.
        clamped_from_ns: Option<i64>,
        /// False if the delivery does not count as an attempt. Only a client that has agreed on
        /// `req_uncounted` in IDENTIFY can ask for this.
        is_counted: bool,
    },
    /// `TOUCH`: restarts the message's timeout.
    Touch {
        /// The id, with the same rule as in FIN.
        id: MessageId,
    },
    /// `CLS`: ends deliveries, because the client is about to disconnect.
    Cls,
    /// `NOP`: shows that the client is alive.
    Nop,
}
