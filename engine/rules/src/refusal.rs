//! [`Refusal`]: the reason why a publish, a SUB or an operator's change has no success.

use diskq_log::AppendError;
use std::fmt;
use std::sync::Arc;

/// The reason why a publish, a SUB or an operator's change was refused or has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The topic is not served, for this reason.
    SetAside(Arc<str>),
    /// The topic's log does not take the messages.
    Log(AppendError),
    /// The keeper could not do a job of the topic's log. The text is what was attempted, on what, and the system's
    /// answer.
    Disk(Arc<str>),
    /// A sync of the topic's log has failed before.
    NothingDurable,
    /// The topic is being deleted, or the process ends.
    Exiting,
    /// The node takes no messages, because it is to be drained.
    Draining,
}

/// The text in error frames and in the log.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::SetAside(cause) | Refusal::Disk(cause) => f.write_str(cause),
            Refusal::Log(error) => error.fmt(f),
            Refusal::NothingDurable => {
                f.write_str("nothing is durable any more since a failed sync")
            }
            Refusal::Exiting => f.write_str("exiting"),
            Refusal::Draining => f.write_str("draining, publish to another nsqd"),
        }
    }
}

impl std::error::Error for Refusal {}
