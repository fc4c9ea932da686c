//! The errors of a producer.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use wire::name::InvalidName;

use super::Receipt;
use super::numbering::NumberError;
use crate::address::{Address, AddressError};
use crate::config::OptionError;
use crate::error::{ConnectionError, ErrorFrame, Outcome};
use crate::lookupd::LookupdError;

/// The reason why a publish failed. [`PublishError::outcome`] says whether the message may be stored all the same.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The topic name is invalid: 1 to 64 bytes of `.a-zA-Z0-9_-`, and an optional `#ephemeral` at the end.
    #[error("invalid topic name: {}", InvalidName(.0))]
    Topic(String),
    /// A body is empty, which nsqd refuses.
    #[error("a message is empty, which nsqd refuses")]
    EmptyMessage,
    /// There is no body to publish.
    #[error("there is no message to publish")]
    NoMessage,
    /// A body is longer than `max_msg_size`, or the bodies together are longer than a command can be.
    #[error("message too big: {bytes} bytes, {bytes_max} are allowed")]
    TooLarge {
        /// The length, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        bytes_max: usize,
    },
    /// The number of the message is missing, or there should be none.
    #[error("{0}")]
    Number(#[source] NumberError),
    /// The producer is closed.
    #[error("stopped")]
    Stopped,
    /// The producer has no such node.
    #[error("the producer has no node {0}")]
    UnknownNode(Address),
    /// The producer knows no node: no nsqlookupd named one.
    #[error("{}", no_node_text(.0.as_deref()))]
    NoNode(#[source] Option<Arc<LookupdError>>),
    /// No connection could be made. With several nodes, this is the error of the last one that was tried.
    #[error("{node}: {error}")]
    Connect {
        /// The nsqd.
        node: Address,
        /// The reason.
        #[source]
        error: Arc<ConnectionError>,
    },
    /// nsqd refused the publish.
    #[error("{error}")]
    Refused {
        /// The nsqd.
        node: Address,
        /// nsqd's error.
        error: ErrorFrame,
    },
    /// The connection was lost before the command left this process.
    #[error("not connected: {node}: {error}; the message was not sent")]
    NotSent {
        /// The nsqd.
        node: Address,
        /// The reason.
        #[source]
        error: Arc<ConnectionError>,
    },
    /// The connection was lost before nsqd answered. nsqd may have the message.
    #[error("not connected: {node}: {error}; the message may be stored")]
    Lost {
        /// The nsqd.
        node: Address,
        /// The reason.
        #[source]
        error: Arc<ConnectionError>,
    },
    /// A numbered message whose outcome was unknown came again, and nsqd refused it. nsqd may have the message from the
    /// time before.
    #[error("{node} refused the message when it came again: {error}; the message may be stored")]
    ResendRefused {
        /// The nsqd.
        node: Address,
        /// nsqd's error.
        error: ErrorFrame,
    },
    /// The publish timeout ended before nsqd answered.
    #[error("{}", timeout_text(*.limit, .node.as_ref()))]
    Timeout {
        /// The timeout.
        limit: Duration,
        /// The nsqd to which the command was given, and which may have the message. `None` means that the command was
        /// given to none.
        node: Option<Address>,
    },
}

impl PublishError {
    /// Returns whether the message may be stored. [`Outcome::Stored`] never comes from here.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            PublishError::Lost { .. }
            | PublishError::ResendRefused { .. }
            | PublishError::Timeout { node: Some(_), .. } => Outcome::Unknown,
            PublishError::Refused { error, .. } if may_be_stored(error) => Outcome::Unknown,
            _ => Outcome::NotStored,
        }
    }

    /// Returns the nsqd at which the publish failed.
    #[must_use]
    pub fn node(&self) -> Option<&Address> {
        match self {
            PublishError::UnknownNode(node)
            | PublishError::Connect { node, .. }
            | PublishError::Refused { node, .. }
            | PublishError::ResendRefused { node, .. }
            | PublishError::NotSent { node, .. }
            | PublishError::Lost { node, .. } => Some(node),
            PublishError::Timeout { node, .. } => node.as_ref(),
            _ => None,
        }
    }

    /// Returns true when the message itself was refused, for example because it is too large: by the producer, or by
    /// nsqd (`E_BAD_MESSAGE`, `E_BAD_BODY`). The node works, and takes other messages. A message that nsqd read only in
    /// part was not refused in this sense.
    #[must_use]
    pub fn is_about_message(&self) -> bool {
        match self {
            PublishError::EmptyMessage | PublishError::TooLarge { .. } => true,
            PublishError::Refused { error, .. } => is_about_messages(error),
            _ => false,
        }
    }

    /// Returns true when the same publish may succeed later, or at another node, and certainly makes no duplicate then:
    /// no node is known or can be reached, the connection was lost before the command left, nsqd read only a part of
    /// the command, the publish timeout ended before a node was given the command, or nsqd exits or is drained. The
    /// outcome is [`Outcome::NotStored`].
    ///
    /// False means: nsqd or the producer refused the message (also for its number), `publish_on` named a node that the
    /// producer does not have ([`PublishError::UnknownNode`]), the producer is closed, or the message may be stored.
    ///
    /// The producer has tried its other nodes already, so a program waits a little before its next try:
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ringq_client::{Producer, PublishError, Receipt};
    /// async fn publish(producer: &Producer, body: &str) -> Result<Receipt, PublishError> {
    ///     for delay in [100, 200, 400, 800] {
    ///         match producer.publish("orders", body.to_owned()).await {
    ///             Err(error) if error.permits_retry() => {}
    ///             result => return result,
    ///         }
    ///         tokio::time::sleep(Duration::from_millis(delay)).await;
    ///     }
    ///     producer.publish("orders", body.to_owned()).await
    /// }
    /// ```
    #[must_use]
    pub fn permits_retry(&self) -> bool {
        match self {
            PublishError::Connect { .. }
            | PublishError::NotSent { .. }
            | PublishError::NoNode(_)
            | PublishError::Timeout { node: None, .. } => true,
            PublishError::Refused { error, .. } => is_declined(error),
            _ => false,
        }
    }
}

impl PublishError {
    /// Returns true when the connection was lost before nsqd had the whole command. The same node may take the message
    /// over a new connection.
    pub(super) fn is_loss_of_command(&self) -> bool {
        match self {
            PublishError::NotSent { .. } => true,
            PublishError::Refused { error, .. } => is_cut_off(error),
            _ => false,
        }
    }
}

/// The end of the error with which ringq's nsqd refuses a publish in a drain.
const DRAINING: &str = "draining, publish to another nsqd";

/// Returns true when the nsqd that sent this error exits or is drained, and has not stored the messages.
pub(super) fn is_leaving(error: &ErrorFrame) -> bool {
    let text = error.text();
    is_failure(error) && (text.ends_with("exiting") || text.ends_with(DRAINING))
}

/// Returns true when nsqd refused the messages themselves. nsqd may take some of these messages if each comes alone.
pub(super) fn is_about_messages(error: &ErrorFrame) -> bool {
    is_about_input(error) && !is_cut_off(error)
}

/// Returns true when nsqd has stored none of the messages of the refused command, and may take some of them if each
/// comes alone. `E_MPUB_FAILED` may come in the middle of the messages. All other errors come before the first one.
pub(super) fn may_pass_alone(error: &ErrorFrame) -> bool {
    !is_failure(error) && !is_cut_off(error)
}

/// Returns true when nsqd exits or is drained, or read only a part of the command. It has not stored the messages, and
/// they are sent again.
pub(super) fn is_declined(error: &ErrorFrame) -> bool {
    is_leaving(error) || is_cut_off(error)
}

/// Returns true when nsqd read only a part of the command, for example because the client stood still for too long.
/// nsqd has not stored the messages.
pub(super) fn is_cut_off(error: &ErrorFrame) -> bool {
    is_about_input(error) && error.text().contains(" failed to read ")
}

/// Returns true when nsqd refused what it read of a command. It closes the connection and carries out nothing behind
/// the command.
pub(super) fn is_about_input(error: &ErrorFrame) -> bool {
    matches!(error.code(), "E_BAD_MESSAGE" | "E_BAD_BODY")
}

/// Returns true when messages may be stored in spite of this error: a disk failed in the middle.
fn may_be_stored(error: &ErrorFrame) -> bool {
    is_failure(error) && !is_leaving(error)
}

fn is_failure(error: &ErrorFrame) -> bool {
    matches!(
        error.code(),
        "E_PUB_FAILED" | "E_MPUB_FAILED" | "E_DPUB_FAILED"
    )
}

fn no_node_text(failure: Option<&LookupdError>) -> String {
    match failure {
        None => "no nsqlookupd knows an nsqd".to_owned(),
        Some(error) => format!("no nsqd is known: {error}"),
    }
}

fn timeout_text(limit: Duration, node: Option<&Address>) -> String {
    match node {
        Some(node) => format!("no answer from {node} within {limit:?}; the message may be stored"),
        None => format!("no nsqd took the message within {limit:?}"),
    }
}

/// The reason why a message did not reach as many nodes as it should.
#[derive(Clone, Debug)]
pub struct ReplicationError {
    /// The number of nodes that the message should reach.
    pub wanted: usize,
    /// The nodes that have the message.
    pub stored: Vec<Receipt>,
    /// The failures, one for each node that was tried in vain.
    pub failures: Vec<PublishError>,
}

impl ReplicationError {
    /// Returns `Stored` if a node has the message, else `Unknown` if a node may have it, else `NotStored`.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let is_unknown = |error: &PublishError| error.outcome() == Outcome::Unknown;
        match () {
            () if !self.stored.is_empty() => Outcome::Stored,
            () if self.failures.iter().any(is_unknown) => Outcome::Unknown,
            () => Outcome::NotStored,
        }
    }
}

impl fmt::Display for ReplicationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stored, wanted) = (self.stored.len(), self.wanted);
        write!(f, "the message reached {stored} of {wanted} nodes")?;
        match self.failures.last() {
            Some(failure) => write!(f, "; the last failure: {failure}"),
            None => f.write_str("; there are no further nodes"),
        }
    }
}

impl std::error::Error for ReplicationError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.failures.last().map(|failure| failure as _)
    }
}

/// The reason why a producer cannot be built.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// There is no node and no nsqlookupd.
    #[error("a producer needs the address of an nsqd or of an nsqlookupd")]
    NoNodes,
    /// The address of a node is wrong.
    #[error("{0}")]
    Address(#[source] AddressError),
    /// The number of permits is 0 or too large.
    #[error("{0} permits: 1 to 2^29 are allowed")]
    Permits(usize),
    /// The system has no randomness for the id of the publisher.
    #[error("cannot draw the id of the publisher: {0}")]
    Randomness(#[source] io::Error),
    /// An option of the configuration is wrong.
    #[error("{0}")]
    Option(#[from] OptionError),
    /// The address of an nsqlookupd is wrong.
    #[error("{0}")]
    Lookupd(#[from] LookupdError),
}

#[cfg(test)]
mod tests;
