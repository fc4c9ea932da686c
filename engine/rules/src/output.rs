//! [`Output`]: an effect that the broker asks of its shell. The bytes for a connection are no such effect: see
//! [`Broker::output`](crate::Broker::output).

use crate::auth::AuthQuery;
use crate::ids::{ClientId, ShardId, TaskId, TopicKey};
use diskq_log::{AppendError, Memory, Request};
use std::fmt;
use std::sync::Arc;
use wire::identify::GrantedUpgrade;

/// The importance of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// DEBUG
    Debug,
    /// INFO
    Info,
    /// WARNING
    Warning,
    /// ERROR
    Error,
}

/// The reason why a task is woken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wakeup {
    /// Try again: there may be room for the publish now, or the topic has started or has caught up.
    Retry,
    /// The task's request is done, or has failed for this reason.
    Done(Result<(), Refusal>),
}

/// One effect that the shell has to carry out.
#[derive(Debug)]
pub enum Output {
    /// Close the socket and call `Broker::disconnect`.
    Close(ClientId),
    /// Take the connection to another shard: `Broker::detach` here, `Broker::attach` there,
    /// unread input included.
    Move(ClientId, ShardId),
    /// Upgrade the connection. The output that is there already leaves without the upgrade. Drop the unread input. If
    /// the upgrade waits for the peer, call `Broker::upgrade_begins`. When the upgrade is there or has failed, call
    /// `Broker::upgraded` or `Broker::upgrade_failed`.
    Upgrade(ClientId, GrantedUpgrade),
    /// Offer the unread input again.
    Resume(ClientId),
    /// The peer was silent for too long: treat its input as ended.
    Expired(ClientId),
    /// Too little output has left within the write deadline, but the socket may have room that was not reported yet.
    /// Write as much as the socket takes now, and then call `Broker::write_expired`, which decides whether the
    /// connection ends.
    WriteExpired(ClientId),
    /// The peer took too long for its part of an upgrade. Treat the upgrade as failed, unless the upgrade has
    /// succeeded meanwhile.
    UpgradeExpired(ClientId),
    /// Let a task go on.
    Wake(TaskId, Wakeup),
    /// A job for the keeper; its reply goes to `Broker::handle_reply`.
    Keeper(TopicKey, Arc<str>, Request),
    /// Give the keeper memory of a topic that is gone.
    Free(Memory),
    /// Delete the log of a topic that is gone.
    DeleteLog(DeletedLog),
    /// A durable topic or channel was made, paused or unpaused, or a channel was deleted: nsqd.dat is out of date.
    MetadataChanged,
    /// A topic or channel came or went.
    Changed(Change),
    /// A new topic waits for the channels that others know of; they go to `Broker::handle_channels`.
    AskForChannels(TopicKey, Arc<str>),
    /// A topic in grace asks again, and does not wait; the channels go to `Broker::handle_channels`.
    AskAgain(TopicKey, Arc<str>),
    /// An auth server is to be asked; the answer goes to `Broker::handle_grants`.
    Authorize(ClientId, AuthQuery),
    /// A line for the log.
    Log(Level, String),
    /// A line for the log about something that may happen to many topics at the same time, or to one topic again and
    /// again, such as an action that fails and is tried again. The shell writes only some of the lines of one cause.
    Repeated {
        /// The importance of the line.
        level: Level,
        /// The cause: equal for all topics to which the same happens.
        cause: String,
        /// The text of the line, with the topic.
        line: String,
    },
}

impl Output {
    pub(crate) fn info(line: String) -> Output {
        Output::Log(Level::Info, line)
    }

    pub(crate) fn warning(line: String) -> Output {
        Output::Log(Level::Warning, line)
    }

    pub(crate) fn error(line: String) -> Output {
        Output::Log(Level::Error, line)
    }
}

/// The log of a deleted topic.
#[derive(Debug)]
pub struct DeletedLog {
    /// The topic's name.
    pub topic: Arc<str>,
    /// True if the topic is ephemeral, so nsqd.dat does not list it. For a durable topic, nsqd.dat must not be written
    /// before the log is deleted: if the process crashes before the deletion, the topic stays as it was.
    pub is_ephemeral: bool,
    /// The last jobs of the log, to be done before.
    pub requests: Vec<Request>,
    /// The task that is woken when the log is deleted or the deletion has failed.
    pub task: Option<TaskId>,
}

/// A topic or channel that came or went, an ephemeral one, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The channel's name. `None`: it is about the topic itself.
    pub channel: Option<Box<str>>,
    /// False when it went.
    pub is_there: bool,
}

impl Change {
    pub(crate) fn topic(topic: &Arc<str>, is_there: bool) -> Change {
        Change {
            topic: topic.clone(),
            channel: None,
            is_there,
        }
    }

    pub(crate) fn channel(topic: &Arc<str>, channel: &str, is_there: bool) -> Change {
        Change {
            topic: topic.clone(),
            channel: Some(channel.into()),
            is_there,
        }
    }
}

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
