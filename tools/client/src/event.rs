//! [`Event`]: what happens to a producer or consumer beside its messages. The display of an event is a line in the form
//! of NSQ's client.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use wire::go_value::duration_text;
use wire::id::MessageId;

use crate::address::Address;
use crate::connection::Negotiated;
#[cfg(feature = "dedup")]
use crate::dedup::DedupReport;
use crate::error::{ConnectionError, ErrorFrame};
use crate::lookupd::{LookupdError, NODES_MAX};

/// Declares [`Event`]: each event with its name, and with its fields beside the client.
macro_rules! events {
    (
        $(#[$attribute:meta])*
        $enum:ident {
            $(
                $(#[doc = $doc:literal])*
                $(#[cfg($($when:tt)*)])?
                $event:ident = $name:literal {
                    $($(#[doc = $field_doc:literal])* $field:ident: $type:ty,)*
                },
            )*
        }
    ) => {
        $(#[$attribute])*
        pub enum $enum {
            $(
                $(#[doc = $doc])*
                $(#[cfg($($when)*)])?
                $event {
                    /// The producer or consumer.
                    client: Client,
                    $($(#[doc = $field_doc])* $field: $type,)*
                },
            )*
        }

        impl $enum {
            /// Returns the producer or consumer of the event.
            #[must_use]
            pub fn client(&self) -> &Client {
                match self {
                    $($(#[cfg($($when)*)])? $enum::$event { client, .. } => client,)*
                }
            }

            /// Returns the name of the variant in lower case: the label of the event in metrics.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $($(#[cfg($($when)*)])? $enum::$event { .. } => $name,)*
                }
            }
        }
    };
}

events! {
    /// Something that happened to a producer or consumer.
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    Event {
        /// A connection is being made.
        Connecting = "connecting" {
            /// The nsqd.
            node: Address,
        },
        /// A connection is open: the handshake is over.
        Connected = "connected" {
            /// The nsqd.
            node: Address,
            /// The settings to which nsqd agreed.
            negotiated: Arc<Negotiated>,
        },
        /// A connection could not be made.
        ConnectFailed = "connect_failed" {
            /// The nsqd.
            node: Address,
            /// The reason.
            error: Arc<ConnectionError>,
            /// The time until the next attempt. `None` if there is none for now.
            retry_in: Option<Duration>,
        },
        /// A connection is over.
        Disconnected = "disconnected" {
            /// The nsqd.
            node: Address,
            /// The reason. `None` if the application closed the connection.
            error: Option<Arc<ConnectionError>>,
        },
        /// nsqd sent an error.
        ErrorFrame = "error_frame" {
            /// The nsqd.
            node: Address,
            /// The error.
            error: ErrorFrame,
        },
        /// The limit for RDY of an nsqd is below `max_in_flight`. Reported when the connection is open.
        ReadyTruncated = "ready_truncated" {
            /// The nsqd.
            node: Address,
            /// The largest RDY that nsqd accepts.
            max_rdy_count: u32,
            /// The consumer's `max_in_flight`.
            max_in_flight: u32,
        },
        /// A message failed. All connections pause, and then one of them is tested.
        BackoffEntered = "backoff_entered" {
            /// The level, at least 1. Each level doubles the pause.
            level: u32,
            /// The length of the pause.
            period: Duration,
        },
        /// Messages succeed again. All connections resume.
        BackoffLeft = "backoff_left" {},
        /// A handler returned an error, or panicked.
        HandlerFailed = "handler_failed" {
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
        GaveUp = "gave_up" {
            /// The nsqd.
            node: Address,
            /// The message.
            id: MessageId,
            /// The number of deliveries, this one included.
            attempts: u16,
        },
        /// An nsqlookupd named a node that is not connected yet.
        Discovered = "discovered" {
            /// The nsqd.
            node: Address,
        },
        /// An nsqlookupd does not know the topic. It is asked again later.
        TopicNotFound = "topic_not_found" {
            /// The address of the nsqlookupd.
            lookupd: String,
        },
        /// An nsqlookupd named nodes that the client leaves out: nodes without a valid address, or too many nodes.
        NodesIgnored = "nodes_ignored" {
            /// The address of the nsqlookupd.
            lookupd: String,
            /// The number of nodes and channels that are ignored.
            ignored: usize,
        },
        /// Messages had timed out before the application took them, and made room for others. nsqd delivers them again.
        TimedOut = "timed_out" {
            /// The nsqd from which the room was needed.
            node: Address,
            /// The number of messages.
            count: usize,
        },
        /// The drain limit is over: the consumer ends, although messages have no answer. nsqd delivers them again.
        DrainLimitReached = "drain_limit_reached" {
            /// The limit.
            limit: Duration,
            /// The number of messages without an answer.
            in_flight: u64,
        },
        /// A producer has no node: all nsqlookupds have answered or failed, and none of them names an nsqd. Publishes
        /// fail. The nsqlookupds are asked again soon.
        NoNode = "no_node" {},
        /// nsqd refused an answer, because the message was not in flight any more: its timeout was over, or the channel
        /// was emptied. Reported once for each consumer.
        AnswerTooLate = "answer_too_late" {
            /// The nsqd.
            node: Address,
            /// The message timeout of the connection.
            msg_timeout: Duration,
        },
        /// An nsqlookupd could not be asked. It is asked again later.
        DiscoveryFailed = "discovery_failed" {
            /// The reason.
            error: Arc<LookupdError>,
        },
        /// Something happened to the filter that recognises messages.
        #[cfg(feature = "dedup")]
        Dedup = "dedup" {
            /// The report.
            report: DedupReport,
        },
        /// The application closes the producer or consumer.
        Stopping = "stopping" {},
    }
}

impl Event {
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
            #[cfg(feature = "dedup")]
            Event::Dedup {
                report: DedupReport::ShorterThanTimeout { node, .. },
                ..
            } => Some(node),
            _ => None,
        }
    }
}

/// The receiver of a client's events.
pub(crate) type Callback = Arc<dyn Fn(Event) + Send + Sync>;

/// One client as the source of events, and their destination.
pub(crate) struct Events {
    client: Client,
    callback: Option<Callback>,
}

impl Events {
    pub(crate) fn new(client: Client, callback: Option<Callback>) -> Events {
        Events { client, callback }
    }

    /// Returns the client.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Sends an event of the client to the callback, and to `tracing` and `metrics` if these features are on. Without
    /// any receiver, warnings and errors go to standard error, as those of NSQ's client do.
    pub(crate) fn emit(&self, event: impl FnOnce(Client) -> Event) {
        let event = event(self.client.clone());
        #[cfg(feature = "tracing")]
        trace(&event);
        #[cfg(feature = "metrics")]
        metrics::counter!("nsq_client_events_total", "event" => event.name()).increment(1);
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
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

/// The number of the next producer or consumer of this process.
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(1);

/// A producer or a consumer of this process, in events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    number: u32,
    /// `topic/channel` of a consumer.
    subscription: Option<Arc<str>>,
}

impl Client {
    /// Numbers a new producer.
    pub(crate) fn producer() -> Client {
        Client {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            subscription: None,
        }
    }

    /// Numbers a new consumer.
    pub(crate) fn consumer(topic: &str, channel: &str) -> Client {
        Client {
            subscription: Some(format!("{topic}/{channel}").into()),
            ..Client::producer()
        }
    }

    /// Returns the number of the producer or consumer, which counts both from 1 in each process.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns `topic/channel` of a consumer.
    #[must_use]
    pub fn subscription(&self) -> Option<&str> {
        self.subscription.as_deref()
    }
}

/// The importance of an [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// For the search for errors in the client.
    Debug,
    /// The usual course.
    Info,
    /// The client goes on, but something is wrong.
    Warning,
    /// Something failed.
    Error,
}

impl Level {
    /// Returns the tag of log lines: `DBG`, `INF`, `WRN` or `ERR`.
    #[must_use]
    pub fn tag(self) -> &'static str {
        match self {
            Level::Debug => "DBG",
            Level::Info => "INF",
            Level::Warning => "WRN",
            Level::Error => "ERR",
        }
    }
}

impl Event {
    /// Returns the importance of the event.
    #[must_use]
    pub fn level(&self) -> Level {
        match self {
            Event::ConnectFailed { .. } | Event::ErrorFrame { .. } => Level::Error,
            Event::Disconnected { error: Some(_), .. }
            | Event::HandlerFailed { .. }
            | Event::DiscoveryFailed { .. } => Level::Error,
            // NSQ's client logs an unknown topic as an error. A topic begins with its first message, so a warning is
            // enough.
            Event::TopicNotFound { .. }
            | Event::NoNode { .. }
            | Event::AnswerTooLate { .. }
            | Event::ReadyTruncated { .. }
            | Event::BackoffEntered { .. }
            | Event::BackoffLeft { .. }
            | Event::NodesIgnored { .. }
            | Event::TimedOut { .. }
            | Event::DrainLimitReached { .. }
            | Event::GaveUp { .. } => Level::Warning,
            #[cfg(feature = "dedup")]
            Event::Dedup { report, .. } => match report {
                DedupReport::StoreUnavailable { .. }
                | DedupReport::EndFailed { .. }
                | DedupReport::SaveFailed { .. } => Level::Error,
                DedupReport::WithoutKey { .. }
                | DedupReport::ShorterThanTimeout { .. }
                | DedupReport::SaveDelayed { .. } => Level::Warning,
                DedupReport::StoreAvailable
                | DedupReport::ConsumerStopped { .. }
                | DedupReport::Saved { .. } => Level::Info,
            },
            _ => Level::Info,
        }
    }
}

impl Event {
    /// Writes what happened, without the client and the nsqd.
    fn write_text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Connecting { .. } => f.write_str("connecting to nsqd"),
            Event::Connected { negotiated, .. } => match &negotiated.authorization {
                Some(auth) => write!(
                    f,
                    "connected; Auth accepted. Identity: {} {} Permissions: {}",
                    auth.identity, auth.identity_url, auth.permission_count
                ),
                None => f.write_str("connected"),
            },
            Event::ConnectFailed {
                error, retry_in, ..
            } => {
                write!(f, "error connecting to nsqd - {error}")?;
                match retry_in {
                    Some(delay) => write!(f, "; re-connecting in {delay:?}"),
                    None => Ok(()),
                }
            }
            Event::Disconnected {
                error: Some(error), ..
            } => write!(f, "disconnected - {error}"),
            Event::Disconnected { error: None, .. } => f.write_str("disconnected"),
            Event::ErrorFrame { error, .. } => write!(f, "protocol error - {error}"),
            Event::Discovered { .. } => f.write_str("discovered by nsqlookupd"),
            Event::TopicNotFound { lookupd, .. } => {
                write!(f, "nsqlookupd {lookupd} does not know the topic yet")
            }
            Event::NodesIgnored {
                lookupd, ignored, ..
            } => write!(
                f,
                "left out {ignored} of the nodes and channels that nsqlookupd {lookupd} names: a node's address is invalid, \
                 or there are more than {NODES_MAX} nodes"
            ),
            Event::NoNode { .. } => {
                f.write_str("no nsqlookupd names an nsqd: publishes fail until one does")
            }
            Event::DiscoveryFailed { error, .. } => {
                write!(f, "error querying nsqlookupd - {error}")
            }
            #[cfg(feature = "dedup")]
            Event::Dedup { report, .. } => write!(f, "{report}"),
            Event::Stopping { client } => f.write_str(match client.subscription {
                Some(_) => "stopping...",
                None => "stopping",
            }),
            _ => self.write_delivery_text(f),
        }
    }

    /// Writes what happened to the messages of a consumer, or to its flow.
    fn write_delivery_text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::ReadyTruncated {
                max_rdy_count,
                max_in_flight,
                ..
            } => write!(
                f,
                "max RDY count {max_rdy_count} < consumer max in flight {max_in_flight}, truncation possible"
            ),
            Event::BackoffEntered { level, period, .. } => write!(
                f,
                "backing off for {} (backoff level {level}), setting all to RDY 0",
                duration_text(*period)
            ),
            Event::BackoffLeft { .. } => f.write_str("exiting backoff, returning all to RDY"),
            Event::HandlerFailed { id, error, .. } => {
                write!(f, "Handler returned error ({error}) for msg {id}")
            }
            Event::GaveUp { id, attempts, .. } => {
                write!(f, "msg {id} attempted {attempts} times, giving up")
            }
            Event::TimedOut { count, .. } => write!(
                f,
                "messages timed out before the application took them ({count}); nsqd delivers them again"
            ),
            Event::DrainLimitReached {
                limit, in_flight, ..
            } => write!(
                f,
                "ending after {limit:?} although messages have no answer ({in_flight}); nsqd delivers them again"
            ),
            Event::AnswerTooLate { msg_timeout, .. } => write!(
                f,
                "an answer came after the message timeout of {}, so nsqd delivers the message again, or after the channel was \
                 emptied: msg_timeout or auto_touch gives handlers more time",
                duration_text(*msg_timeout)
            ),
            _ => unreachable!("the caller has the text of the others"),
        }
    }
}

/// Writes the line of NSQ's client, without the time: `INF    1 [topic/channel] (127.0.0.1:4150) connecting to nsqd`.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = self.client();
        write!(f, "{:<4} {:3}", self.level().tag(), client.number)?;
        if let Some(subscription) = &client.subscription {
            write!(f, " [{subscription}]")?;
        }
        if let Some(node) = self.node() {
            write!(f, " ({node})")?;
        }
        f.write_str(" ")?;
        self.write_text(f)
    }
}

/// Records the event with the fields `client`, `subscription` and `node`.
#[cfg(feature = "tracing")]
fn trace(event: &Event) {
    struct Text<'a>(&'a Event);

    impl std::fmt::Display for Text<'_> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.write_text(f)
        }
    }

    let client = event.client().number();
    let subscription = event.client().subscription();
    let node = event.node().map(tracing::field::display);
    let text = Text(event);
    match event.level() {
        Level::Debug => tracing::debug!(client, subscription, node, "{text}"),
        Level::Info => tracing::info!(client, subscription, node, "{text}"),
        Level::Warning => tracing::warn!(client, subscription, node, "{text}"),
        Level::Error => tracing::error!(client, subscription, node, "{text}"),
    }
}

#[cfg(test)]
mod tests;
