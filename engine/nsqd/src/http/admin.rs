//! `/topic/*` and `/channel/*`: an operator's actions. The words for a bad topic name differ from endpoint to endpoint;
//! nsqadmin and scripts have learned them.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{CHANNEL_NOT_FOUND, EXITING, HttpBroker, TOPIC_NOT_FOUND};
use engine_rules::{Act, AdminError, NoUndo, PAUSE_TIME_MAX, Pause, Refusal, UNDO_TIME_MAX};
use http::StatusCode;
use program::go_value;
use program::http::{Failure, Query, Reply};
use program::log_error;
use wire::name::is_valid_name;

/// The time of a pause with `for`.
const PAUSE: RangeInclusive<Duration> = Duration::from_secs(1)..=PAUSE_TIME_MAX;
/// The time of an `undo`.
const UNDO: RangeInclusive<Duration> = Duration::from_secs(1)..=UNDO_TIME_MAX;
/// Characters of a `note`.
const CHARS_OF_NOTE_MAX: usize = 200;
/// Characters of a name in `by`.
const CHARS_OF_NAME_MAX: usize = 64;

/// An action of `/topic/*` on a topic, or of `/channel/*` on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
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
pub(super) async fn change_topic(
    broker: &HttpBroker,
    action: Action,
    query: &Query<'_>,
) -> Result<Reply, Failure> {
    let invalid = match action {
        Action::Create | Action::Empty => Failure::bad("INVALID_TOPIC"),
        Action::Delete | Action::Pause | Action::Unpause | Action::Unempty => TOPIC_NOT_FOUND,
    };
    let topic = topic_of(query, invalid)?;
    let act = act_of(action, query)?;
    broker.administer(topic, None, act).await?;
    Ok(Reply::text(""))
}

/// Answers `/channel/*`.
pub(super) async fn change_channel(
    broker: &HttpBroker,
    action: Action,
    query: &Query<'_>,
) -> Result<Reply, Failure> {
    let topic = topic_of(query, Failure::bad("INVALID_ARG_TOPIC"))?;
    let channel = Some(channel_of(query)?);
    let act = act_of(action, query)?;
    broker.administer(topic, channel, act).await?;
    Ok(Reply::text(""))
}

/// Reads the parameters of an action. nsqd has none of them, so requests without them mean what they mean to nsqd.
fn act_of(action: Action, query: &Query<'_>) -> Result<Act, Failure> {
    Ok(match action {
        Action::Create => Act::Create,
        Action::Delete => Act::Delete,
        Action::Empty => Act::Empty(undo_of(query)?),
        Action::Unempty => Act::Unempty,
        Action::Pause => Act::Pause(Some(pause_of(query)?)),
        Action::Unpause => Act::Pause(None),
    })
}

fn pause_of(query: &Query<'_>) -> Result<Pause, Failure> {
    let bad = |code, reason: &'static str| Failure::bad(code).because(reason);
    let length = query.get("for").map(|text| duration(text, &PAUSE));
    if length == Some(None) {
        return Err(bad(
            "INVALID_FOR",
            "for is a duration such as 90s or 1h30m, from 1s to 720h; a pause without for has no end",
        ));
    }
    let note = text_of(query, "note", CHARS_OF_NOTE_MAX).ok_or_else(|| {
        let reason = "note has at most 200 characters and no control characters";
        bad("INVALID_NOTE", reason)
    })?;
    let by = text_of(query, "by", CHARS_OF_NAME_MAX).ok_or_else(|| {
        let reason = "by is a name of at most 64 characters without control characters";
        bad("INVALID_BY", reason)
    })?;
    Ok(Pause {
        length: length.flatten(),
        note,
        by,
    })
}

fn undo_of(query: &Query<'_>) -> Result<Option<Duration>, Failure> {
    let undo = query.get("undo").map(|text| duration(text, &UNDO));
    if undo == Some(None) {
        return Err(Failure::bad("INVALID_UNDO").because(
            "undo is a duration such as 90s or 1h30m, from 1s to 24h; without undo, the messages are gone",
        ));
    }
    Ok(undo.flatten())
}

/// Parses a duration in Go's form. `None`: the text is no duration, or the duration is not in the range.
fn duration(text: &str, range: &RangeInclusive<Duration>) -> Option<Duration> {
    go_value::duration(text).filter(|it| range.contains(it))
}

/// Returns a parameter, or an empty text if the request has none. `None`: the text is too long or has control
/// characters.
fn text_of(query: &Query<'_>, name: &str, chars_max: usize) -> Option<String> {
    let text = query.get(name).unwrap_or_default();
    let is_good = text.chars().count() <= chars_max && !text.chars().any(char::is_control);
    is_good.then(|| text.to_owned())
}

/// Returns the failure of a command whose undo is not possible.
fn undo_failure(why: NoUndo) -> Failure {
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
    Failure::new(status, code).because(reason)
}

/// Returns the failure that clients see. The log gets the cause, which clients do not see.
pub(super) fn failure_of(error: AdminError) -> Failure {
    match error {
        AdminError::TopicNotFound => TOPIC_NOT_FOUND,
        AdminError::ChannelNotFound => CHANNEL_NOT_FOUND,
        AdminError::NoUndo(why) => undo_failure(why),
        AdminError::SetAside(cause) => internal(&cause),
    }
}

/// Returns the failure of a request that the broker refuses, as [`failure_of`].
pub(super) fn failure_of_refusal(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Exiting => EXITING,
        other => internal(&other.to_string()),
    }
}

fn internal(why: &str) -> Failure {
    log_error!("HTTP: request failed - {why}");
    Failure::INTERNAL
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

/// Returns the channel that a query names.
pub(super) fn channel_of<'a>(query: &'a Query<'_>) -> Result<&'a str, Failure> {
    let channel = query.get("channel");
    let channel = channel.ok_or(Failure::bad("MISSING_ARG_CHANNEL"))?;
    if is_valid_name(channel.as_bytes()) {
        Ok(channel)
    } else {
        Err(Failure::bad("INVALID_ARG_CHANNEL"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::http::parse_query;

    fn pause(query: &str) -> Result<Pause, &'static str> {
        let query = parse_query(query).expect("a query");
        match act_of(Action::Pause, &query) {
            Ok(Act::Pause(pause)) => Ok(pause.expect("it is no end of a pause")),
            Ok(other) => panic!("a pause, and not {other:?}"),
            Err(bad) => Err(bad.code),
        }
    }

    #[test]
    fn a_pause_without_parameters_is_that_of_the_original() {
        assert_eq!(pause("topic=t"), Ok(Pause::default()));
        assert_eq!(pause("note=&by="), Ok(Pause::default()));
    }

    #[test]
    fn an_undo_has_bounds() {
        let empty = |query: &str| {
            let query = parse_query(query).expect("a query");
            act_of(Action::Empty, &query).map_err(|bad| bad.code)
        };
        assert_eq!(empty("topic=t"), Ok(Act::Empty(None)));
        let day = Duration::from_secs(24 * 3600);
        assert_eq!(empty("undo=24h"), Ok(Act::Empty(Some(day))));
        for text in ["", "0", "10", "-1m", "999ms", "24h1ms"] {
            assert_eq!(empty(&format!("undo={text}")), Err("INVALID_UNDO"));
        }
    }

    #[test]
    fn the_parameters_have_bounds() {
        let secs = |secs| Some(Duration::from_secs(secs));
        for (text, expected) in [
            ("1s", secs(1)),
            ("1h30m", secs(5400)),
            ("720h", secs(2_592_000)),
        ] {
            let length = pause(&format!("for={text}")).map(|pause| pause.length);
            assert_eq!(length, Ok(expected), "{text}");
        }
        for text in [
            "", "0", "10", "-5s", "999ms", "720h1s", "1d", "10m%20", "9999999h",
        ] {
            assert_eq!(pause(&format!("for={text}")), Err("INVALID_FOR"), "{text}");
        }
        let long = |character: &str, count| character.repeat(count);
        // A character may take several bytes.
        let (note, by) = (long("%C3%A9", 200), long("%C3%A9", 64));
        let good = pause(&format!("note={note}&by={by}")).expect("within the bounds");
        assert_eq!((good.note, good.by), (long("é", 200), long("é", 64)));
        assert_eq!(
            pause(&format!("note={}", long("x", 201))),
            Err("INVALID_NOTE")
        );
        assert_eq!(pause(&format!("by={}", long("x", 65))), Err("INVALID_BY"));
        for control in ["%0A", "%00", "%7F", "%C2%85"] {
            assert_eq!(pause(&format!("note=a{control}")), Err("INVALID_NOTE"));
            assert_eq!(pause(&format!("by=a{control}")), Err("INVALID_BY"));
        }
    }
}
