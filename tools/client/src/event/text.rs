//! The text of an event: a line in the form of NSQ's client.

use std::fmt;

use wire::go_value::duration_text;

use super::Event;
use crate::lookupd::NODES_MAX;

impl Event {
    /// Writes what happened, without the client and the nsqd.
    pub(super) fn write_text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
            Event::TimedOut { count: 1, .. } => f.write_str(
                "1 message timed out before the application took it; nsqd delivers it again",
            ),
            Event::TimedOut { count, .. } => write!(
                f,
                "{count} messages timed out before the application took them; nsqd delivers them again"
            ),
            Event::DrainLimitReached {
                limit,
                in_flight: 1,
                ..
            } => write!(
                f,
                "ending after {limit:?} although 1 message has no answer; nsqd delivers it again"
            ),
            Event::DrainLimitReached {
                limit, in_flight, ..
            } => write!(
                f,
                "ending after {limit:?} although {in_flight} messages have no answer; nsqd delivers them again"
            ),
            Event::NoNode { .. } => {
                f.write_str("no nsqlookupd names an nsqd: publishes fail until one does")
            }
            Event::AnswerTooLate { msg_timeout, .. } => write!(
                f,
                "an answer came after the message timeout of {}, so nsqd delivers the message again, or after the channel was \
                 emptied: msg_timeout or auto_touch gives handlers more time",
                duration_text(*msg_timeout)
            ),
            Event::DiscoveryFailed { error, .. } => {
                write!(f, "error querying nsqlookupd - {error}")
            }
            #[cfg(feature = "dedup")]
            Event::Dedup { report, .. } => write!(f, "{report}"),
            Event::Stopping { client } => f.write_str(match client.subscription {
                Some(_) => "stopping...",
                None => "stopping",
            }),
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
