//! [`Event`]: what happens to a producer or consumer beside its messages. The display of an event is a line in the form of
//! NSQ's client.

mod client;
mod level;
#[cfg(any(feature = "tracing", feature = "metrics"))]
mod observe;
mod text;

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use wire::id::MessageId;

use crate::address::Address;
use crate::core::Negotiated;
#[cfg(feature = "dedup")]
use crate::dedup::DedupReport;
use crate::error::{ConnectionError, ErrorFrame};
use crate::lookupd::LookupdError;
pub use client::Client;
pub use level::Level;

/// Something that happened to a producer or consumer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A connection is being made.
    Connecting {
        /// The producer or consumer.
        client: Client,
        /// The nsqd.
        node: Address,
    },
    /// A connection is open: the handshake is over.
    Connected {
        /// The producer or consumer.
        client: Client,
        /// The nsqd.
        node: Address,
        /// The settings to which nsqd agreed.
        negotiated: Arc<Negotiated>,
    },
    /// A connection could not be made.
    ConnectFailed {
        /// The producer or consumer.
        client: Client,
        /// The nsqd.
        node: Address,
        /// The reason.
        error: Arc<ConnectionError>,
        /// The time until the next attempt. `None` if there is none for now.
        retry_in: Option<Duration>,
    },
    /// A connection is over.
    Disconnected {
        /// The producer or consumer.
        client: Client,
        /// The nsqd.
        node: Address,
        /// The reason. `None` if the application closed the connection.
        error: Option<Arc<ConnectionError>>,
    },
    /// nsqd sent an error.
    ErrorFrame {
        /// The producer or consumer.
        client: Client,
        /// The nsqd.
        node: Address,
        /// The error.
        error: ErrorFrame,
    },
    /// nsqd's limit for RDY is below `max_in_flight`. Reported once for each connection.
    ReadyTruncated {
        /// The consumer.
        client: Client,
        /// The nsqd.
        node: Address,
        /// The largest RDY that nsqd accepts.
        max_rdy_count: u32,
        /// The consumer's `max_in_flight`.
        max_in_flight: u32,
    },
    /// A message failed. All connections pause, and then one of them is tested.
    BackoffEntered {
        /// The consumer.
        client: Client,
        /// The level, at least 1. Each level doubles the pause.
        level: u32,
        /// The length of the pause.
        period: Duration,
    },
    /// Messages succeed again. All connections resume.
    BackoffLeft {
        /// The consumer.
        client: Client,
    },
    /// A handler returned an error, or panicked.
    HandlerFailed {
        /// The consumer.
        client: Client,
        /// The nsqd.
        node: Address,
        /// The message.
        id: MessageId,
        /// The text of the error or of the panic.
        error: String,
        /// True for a panic.
        is_panic: bool,
    },
    /// A message's attempts exceed `max_attempts`: the consumer finishes the message.
    GaveUp {
        /// The consumer.
        client: Client,
        /// The nsqd.
        node: Address,
        /// The message.
        id: MessageId,
        /// The number of deliveries, this one included.
        attempts: u16,
    },
    /// An nsqlookupd named a node that is not connected yet.
    Discovered {
        /// The consumer.
        client: Client,
        /// The nsqd.
        node: Address,
    },
    /// An nsqlookupd does not know the topic. It is asked again later.
    TopicNotFound {
        /// The consumer.
        client: Client,
        /// The address of the nsqlookupd.
        lookupd: String,
    },
    /// An nsqlookupd named nodes that the client leaves out: nodes without a valid address, or too many nodes.
    NodesIgnored {
        /// The producer or consumer.
        client: Client,
        /// The address of the nsqlookupd.
        lookupd: String,
        /// The number of nodes and channels that are ignored.
        ignored: usize,
    },
    /// Messages had timed out before the application took them, and made room for others. nsqd delivers them again.
    TimedOut {
        /// The consumer.
        client: Client,
        /// The nsqd from which the room was needed.
        node: Address,
        /// The number of messages.
        count: usize,
    },
    /// The drain limit is over: the consumer ends, although messages have no answer. nsqd delivers them again.
    DrainLimitReached {
        /// The consumer.
        client: Client,
        /// The limit.
        limit: Duration,
        /// The number of messages without an answer.
        in_flight: u64,
    },
    /// A producer has no node: all nsqlookupds have answered or failed, and none of them names an nsqd. Publishes fail. The
    /// nsqlookupds are asked again soon.
    NoNode {
        /// The producer.
        client: Client,
    },
    /// nsqd refused an answer, because the message was not in flight any more: its timeout was over, or the channel was
    /// emptied. Reported once for each consumer.
    AnswerTooLate {
        /// The consumer.
        client: Client,
        /// The nsqd.
        node: Address,
        /// The message timeout of the connection.
        msg_timeout: Duration,
    },
    /// An nsqlookupd could not be asked. It is asked again later.
    DiscoveryFailed {
        /// The producer or consumer.
        client: Client,
        /// The reason.
        error: Arc<LookupdError>,
    },
    /// Something happened to the filter that recognises messages.
    #[cfg(feature = "dedup")]
    Dedup {
        /// The consumer.
        client: Client,
        /// The report.
        report: DedupReport,
    },
    /// The application closes the producer or consumer.
    Stopping {
        /// The producer or consumer.
        client: Client,
    },
}

impl Event {
    /// Returns the producer or consumer of the event.
    #[must_use]
    pub fn client(&self) -> &Client {
        match self {
            Event::Connecting { client, .. }
            | Event::Connected { client, .. }
            | Event::ConnectFailed { client, .. }
            | Event::Disconnected { client, .. }
            | Event::ErrorFrame { client, .. }
            | Event::ReadyTruncated { client, .. }
            | Event::BackoffEntered { client, .. }
            | Event::BackoffLeft { client }
            | Event::HandlerFailed { client, .. }
            | Event::GaveUp { client, .. }
            | Event::Discovered { client, .. }
            | Event::TopicNotFound { client, .. }
            | Event::NodesIgnored { client, .. }
            | Event::TimedOut { client, .. }
            | Event::DrainLimitReached { client, .. }
            | Event::NoNode { client }
            | Event::AnswerTooLate { client, .. }
            | Event::DiscoveryFailed { client, .. }
            | Event::Stopping { client } => client,
            #[cfg(feature = "dedup")]
            Event::Dedup { client, .. } => client,
        }
    }

    /// Returns the nsqd of the event, if it has one.
    #[must_use]
    pub fn node(&self) -> Option<&Address> {
        match self {
            Event::Connecting { node, .. }
            | Event::Connected { node, .. }
            | Event::ConnectFailed { node, .. }
            | Event::Disconnected { node, .. }
            | Event::ErrorFrame { node, .. }
            | Event::ReadyTruncated { node, .. }
            | Event::HandlerFailed { node, .. }
            | Event::GaveUp { node, .. }
            | Event::TimedOut { node, .. }
            | Event::AnswerTooLate { node, .. }
            | Event::Discovered { node, .. } => Some(node),
            Event::BackoffEntered { .. }
            | Event::BackoffLeft { .. }
            | Event::TopicNotFound { .. }
            | Event::NodesIgnored { .. }
            | Event::DrainLimitReached { .. }
            | Event::NoNode { .. }
            | Event::DiscoveryFailed { .. }
            | Event::Stopping { .. } => None,
            #[cfg(feature = "dedup")]
            Event::Dedup {
                report: DedupReport::ShorterThanTimeout { node, .. },
                ..
            } => Some(node),
            #[cfg(feature = "dedup")]
            Event::Dedup { .. } => None,
        }
    }

    /// Returns the name of the variant in lower case: the label of the event in metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Event::Connecting { .. } => "connecting",
            Event::Connected { .. } => "connected",
            Event::ConnectFailed { .. } => "connect_failed",
            Event::Disconnected { .. } => "disconnected",
            Event::ErrorFrame { .. } => "error_frame",
            Event::ReadyTruncated { .. } => "ready_truncated",
            Event::BackoffEntered { .. } => "backoff_entered",
            Event::BackoffLeft { .. } => "backoff_left",
            Event::HandlerFailed { .. } => "handler_failed",
            Event::GaveUp { .. } => "gave_up",
            Event::Discovered { .. } => "discovered",
            Event::TopicNotFound { .. } => "topic_not_found",
            Event::NodesIgnored { .. } => "nodes_ignored",
            Event::TimedOut { .. } => "timed_out",
            Event::DrainLimitReached { .. } => "drain_limit_reached",
            Event::NoNode { .. } => "no_node",
            Event::AnswerTooLate { .. } => "answer_too_late",
            Event::DiscoveryFailed { .. } => "discovery_failed",
            #[cfg(feature = "dedup")]
            Event::Dedup { .. } => "dedup",
            Event::Stopping { .. } => "stopping",
        }
    }
}

/// The destination of the events of one client.
#[derive(Clone, Default)]
pub(crate) struct Events {
    callback: Option<Arc<dyn Fn(Event) + Send + Sync>>,
}

impl Events {
    /// Sends the events to `callback`.
    pub(crate) fn to(callback: impl Fn(Event) + Send + Sync + 'static) -> Events {
        Events {
            callback: Some(Arc::new(callback)),
        }
    }

    /// Sends `event` to the callback, and to `tracing` and `metrics` if these features are on. Without any receiver, warnings
    /// and errors go to standard error, as those of NSQ's client do.
    pub(crate) fn emit(&self, event: Event) {
        #[cfg(feature = "tracing")]
        observe::trace(&event);
        #[cfg(feature = "metrics")]
        observe::count(&event);
        match &self.callback {
            Some(callback) => callback(event),
            None if is_traced() || event.level() < Level::Warning => {}
            None => {
                // A program without a standard error has nobody to tell.
                let _ = writeln!(io::stderr(), "{event}");
            }
        }
    }
}

/// Returns true if a subscriber of `tracing` gets the events.
fn is_traced() -> bool {
    #[cfg(feature = "tracing")]
    return tracing::dispatcher::has_been_set();
    #[cfg(not(feature = "tracing"))]
    return false;
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("has_callback", &self.callback.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests;
