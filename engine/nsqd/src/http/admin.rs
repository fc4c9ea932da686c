//! `/topic/*` and `/channel/*`. The words for a bad topic name differ from endpoint to endpoint;
//! nsqadmin and scripts have learned them.

use wire::name::is_valid_name;

use super::{AdminError, Broker, CHANNEL_NOT_FOUND, Command, EXITING, TOPIC_NOT_FOUND, refusal};
use engine_rules::NoUndo;
use http::StatusCode;
use program::http::{Failure, Query, Reply};
use program::log_error;

/// An action of `/topic/*` on a topic, or of `/channel/*` on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Creates the topic or channel; no error if it exists. A channel's topic must exist.
    Create,
    /// Deletes the topic or channel and its data; disconnects the consumers.
    Delete,
    /// Drops what waits in the topic itself, or everything in the channel, in flight and deferred included.
    Empty,
    /// Brings messages back that a topic or channel was emptied of.
    Unempty,
    /// Stops the flow to the channels, or delivery.
    Pause,
    /// Starts the flow to the channels, or delivery.
    Unpause,
}

/// Answers `/topic/*`.
pub(super) async fn change_topic<B: Broker>(
    broker: &B,
    action: Action,
    query: &Query<'_>,
) -> Result<Reply, Failure> {
    let invalid = match action {
        Action::Create | Action::Empty => Failure::bad("INVALID_TOPIC"),
        Action::Delete | Action::Pause | Action::Unpause | Action::Unempty => TOPIC_NOT_FOUND,
    };
    let topic = topic_of(query, invalid)?;
    let command = match Command::from_query(action, query) {
        Ok(command) => command,
        Err(bad) => return Ok(bad.into_reply()),
    };
    answer(broker.administer(topic, None, command).await)
}

/// Answers `/channel/*`.
pub(super) async fn change_channel<B: Broker>(
    broker: &B,
    action: Action,
    query: &Query<'_>,
) -> Result<Reply, Failure> {
    let topic = topic_of(query, Failure::bad("INVALID_ARG_TOPIC"))?;
    let channel = query.get("channel");
    let channel = channel.ok_or(Failure::bad("MISSING_ARG_CHANNEL"))?;
    if !is_valid_name(channel.as_bytes()) {
        return Err(Failure::bad("INVALID_ARG_CHANNEL"));
    }
    let command = match Command::from_query(action, query) {
        Ok(command) => command,
        Err(bad) => return Ok(bad.into_reply()),
    };
    answer(broker.administer(topic, Some(channel), command).await)
}

fn answer(done: Result<(), AdminError>) -> Result<Reply, Failure> {
    match done {
        Ok(()) => Ok(Reply::text("")),
        Err(AdminError::NoUndo(why)) => Ok(undo_refusal(why)),
        Err(error) => Err(failure_of(error)),
    }
}

/// Returns the answer to a command whose undo is not possible.
fn undo_refusal(why: NoUndo) -> Reply {
    let (status, code, reason) = match why {
        NoUndo::NotFound => (
            StatusCode::NOT_FOUND,
            "UNDO_NOT_FOUND",
            "nothing was emptied with undo, or the time is over, or the messages came back or were dropped already",
        ),
        NoUndo::TooLarge => (
            StatusCode::CONFLICT,
            "UNDO_TOO_LARGE",
            "nothing was emptied: the undo would have more than 16384 entries, with those that it has already; an entry is a \
             message that is deferred, requeued or in flight, or a range of others, and those of a topic count once for each \
             of its channels; empty without undo drops all of them for good",
        ),
        NoUndo::NeedsPause => (
            StatusCode::CONFLICT,
            "UNDO_NEEDS_PAUSE",
            "no message came back: the channels cannot take this many deferred messages and ranges at once; pause the \
             topic, wait until its channels are empty and have no undo, use the undo of the topic, then unpause the topic",
        ),
        NoUndo::OnlyEphemeral => (
            StatusCode::CONFLICT,
            "UNDO_NEEDS_CHANNEL",
            "no message came back: all channels of the topic are ephemeral, and would drop most of the messages; create a \
             channel that is not ephemeral first",
        ),
        NoUndo::NoRoom => (
            StatusCode::CONFLICT,
            "UNDO_NO_ROOM",
            "nothing was emptied: the topic takes no messages, /ping says why; empty without undo frees the disk",
        ),
        NoUndo::OfEphemeral => (
            StatusCode::BAD_REQUEST,
            "UNDO_OF_EPHEMERAL",
            "nothing was emptied: ephemeral topics and channels have no undo",
        ),
        NoUndo::InGrace => (
            StatusCode::CONFLICT,
            "UNDO_IN_GRACE",
            "nothing was emptied: the topic is new and keeps messages for channels of other nodes \
             (--new-topic-grace); try again after that time, or empty without undo",
        ),
        NoUndo::OfPaused => (
            StatusCode::CONFLICT,
            "UNDO_OF_PAUSED",
            "no message came back: the topic is paused, and its channels have newer messages; wait until they are empty \
             and have no undo, or unpause the topic first",
        ),
        NoUndo::ChannelFirst => (
            StatusCode::CONFLICT,
            "UNDO_OF_CHANNEL_FIRST",
            "no message came back: a channel was emptied with undo later; use the undo of the channel first, or wait \
             until that undo has ended",
        ),
    };
    refusal(status, code, reason)
}

/// Returns the failure that clients see. The log gets the cause, which clients do not see.
pub(super) fn failure_of(error: AdminError) -> Failure {
    match error {
        AdminError::TopicNotFound => TOPIC_NOT_FOUND,
        AdminError::ChannelNotFound => CHANNEL_NOT_FOUND,
        AdminError::Exiting => EXITING,
        // Only commands with an undo fail like this, and they give the reason.
        AdminError::NoUndo(_) => Failure::INTERNAL,
        AdminError::Backend(why) => {
            log_error!("HTTP: request failed - {why}");
            Failure::INTERNAL
        }
    }
}

/// Returns the topic that a query names. `invalid` is the failure for a bad name.
pub(super) fn topic_of<'a>(query: &'a Query<'_>, invalid: Failure) -> Result<&'a str, Failure> {
    let topic = query.get("topic");
    let topic = topic.ok_or(Failure::bad("MISSING_ARG_TOPIC"))?;
    if is_valid_name(topic.as_bytes()) {
        Ok(topic)
    } else {
        Err(invalid)
    }
}
