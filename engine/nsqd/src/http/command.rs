//! [`Command`]: an operator's action on a topic or channel, with the parameters of its request.

use std::ops::RangeInclusive;
use std::time::Duration;

use engine_rules::{PAUSE_TIME_MAX, Pause, UNDO_TIME_MAX};
use http::StatusCode;
use program::http::{Query, Reply};
use wire::go_value::parse_duration;

use super::{Action, refusal};

/// The time of a pause with `for`.
const PAUSE: RangeInclusive<Duration> = Duration::from_secs(1)..=PAUSE_TIME_MAX;
/// The time of an `undo`.
const UNDO: RangeInclusive<Duration> = Duration::from_secs(1)..=UNDO_TIME_MAX;
/// Characters of a `note`.
const CHARS_OF_NOTE_MAX: usize = 200;
/// Characters of a name in `by`.
const CHARS_OF_NAME_MAX: usize = 64;

/// An action of an operator on a topic or channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// [`Action::Create`]
    Create,
    /// [`Action::Delete`]
    Delete,
    /// [`Action::Empty`]. With a time, the messages can be brought back so long.
    Empty(Option<Duration>),
    /// [`Action::Unempty`]
    Unempty,
    /// [`Action::Pause`]
    Pause(Pause),
    /// [`Action::Unpause`]
    Unpause,
}

/// A parameter that cannot be used: the error code, and what the parameter may be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadParameter {
    code: &'static str,
    reason: &'static str,
}

impl BadParameter {
    /// Returns the answer: 400 with the code and the reason.
    pub(super) fn into_reply(self) -> Reply {
        refusal(StatusCode::BAD_REQUEST, self.code, self.reason)
    }
}

impl Command {
    /// Reads the parameters of an action. nsqd has none of them, so requests without them mean what they mean to nsqd.
    pub(super) fn from_query(action: Action, query: &Query<'_>) -> Result<Command, BadParameter> {
        Ok(match action {
            Action::Create => Command::Create,
            Action::Delete => Command::Delete,
            Action::Empty => Command::Empty(undo_of(query)?),
            Action::Unempty => Command::Unempty,
            Action::Pause => Command::Pause(pause_of(query)?),
            Action::Unpause => Command::Unpause,
        })
    }
}

fn pause_of(query: &Query<'_>) -> Result<Pause, BadParameter> {
    const FOR: BadParameter = BadParameter {
        code: "INVALID_FOR",
        reason: "for is a duration such as 90s or 1h30m, from 1s to 720h; a pause without for has no end",
    };
    const NOTE: BadParameter = BadParameter {
        code: "INVALID_NOTE",
        reason: "note has at most 200 characters and no control characters",
    };
    const BY: BadParameter = BadParameter {
        code: "INVALID_BY",
        reason: "by is a name of at most 64 characters without control characters",
    };
    let length = query
        .get("for")
        .map(|text| duration(text, &PAUSE).ok_or(FOR));
    Ok(Pause {
        length: length.transpose()?,
        note: text_of(query, "note", CHARS_OF_NOTE_MAX).ok_or(NOTE)?,
        by: text_of(query, "by", CHARS_OF_NAME_MAX).ok_or(BY)?,
    })
}

fn undo_of(query: &Query<'_>) -> Result<Option<Duration>, BadParameter> {
    const BAD: BadParameter = BadParameter {
        code: "INVALID_UNDO",
        reason: "undo is a duration such as 90s or 1h30m, from 1s to 24h; without undo, the messages are gone",
    };
    let undo = query.get("undo");
    let undo = undo.map(|text| duration(text, &UNDO).ok_or(BAD));
    undo.transpose()
}

/// Parses a duration in Go's form. `None`: the text is no duration, or the duration is not in the range.
fn duration(text: &str, range: &RangeInclusive<Duration>) -> Option<Duration> {
    let nanos = u64::try_from(parse_duration(text).ok()?).ok()?;
    let duration = Duration::from_nanos(nanos);
    range.contains(&duration).then_some(duration)
}

/// Returns a parameter, or an empty text if the request has none. `None`: the text is too long or has control
/// characters.
fn text_of(query: &Query<'_>, name: &str, chars_max: usize) -> Option<String> {
    let text = query.get(name).unwrap_or_default();
    let is_good = text.chars().count() <= chars_max && !text.chars().any(char::is_control);
    is_good.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::http::parse_query;

    fn pause(query: &str) -> Result<Pause, &'static str> {
        let query = parse_query(query).expect("a query");
        match Command::from_query(Action::Pause, &query) {
            Ok(Command::Pause(pause)) => Ok(pause),
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
            Command::from_query(Action::Empty, &query).map_err(|bad| bad.code)
        };
        assert_eq!(empty("topic=t"), Ok(Command::Empty(None)));
        let day = Duration::from_secs(24 * 3600);
        assert_eq!(empty("undo=24h"), Ok(Command::Empty(Some(day))));
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
