//! The parameters of a peek.

use super::FRAME_BYTES_MAX;
use crate::config::Config;
use crate::http::admin::{channel_of, topic_of};
use engine_rules::{PeekFrom, PeekPlace, Seq};
use memchr::memmem;
use program::http::{Failure, Query};
use serde_json::Value;
use wire::id::MessageId;

/// Messages of an answer, if the request does not say how many.
const LIMIT_DEFAULT: u64 = 10;
const LIMIT_MAX: u64 = 100;
/// Bytes of a body that are shown, if the request does not say how many.
const BODY_BYTES_DEFAULT: u64 = 4096;

/// The request.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) topic: String,
    pub(super) channel: Option<String>,
    pub(super) from: PeekFrom,
    /// True if the list ends before a message that the request names.
    pub(super) has_since: bool,
    pub(super) place: Option<PeekPlace>,
    /// Messages of the answer at most.
    pub(super) limit: usize,
    /// Bytes of each body at most.
    pub(super) body_bytes_max: usize,
    pub(super) filter: Filter,
}

/// The conditions that a body must fulfil, all of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    /// The bytes of this text are in the body.
    pub(super) contains: Option<String>,
    /// The body is JSON, and has a value at this JSON pointer.
    pub(super) pointer: Option<String>,
    /// This value: a string as it is, everything else as compact JSON.
    pub(super) equals: Option<String>,
}

impl Filter {
    /// True if there is no condition.
    pub(super) fn accepts_all(&self) -> bool {
        *self == Filter::default()
    }

    pub(super) fn accepts(&self, body: &[u8]) -> bool {
        if let Some(text) = &self.contains
            && memmem::find(body, text.as_bytes()).is_none()
        {
            return false;
        }
        let Some(pointer) = &self.pointer else {
            return true;
        };
        let Ok(value) = serde_json::from_slice::<Value>(body) else {
            return false;
        };
        match (value.pointer(pointer), &self.equals) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(Value::String(found)), Some(equals)) => found == equals,
            (Some(found), Some(equals)) => equals == &*found.to_string(),
        }
    }
}

/// Returns why peeks are forbidden, and what to do. `None`: they are not.
pub(super) fn prohibition(config: &Config) -> Option<&'static str> {
    if !config.peek {
        return Some(
            "this nsqd was started with --peek=false; a start without this flag allows peeks",
        );
    }
    let has_auth = !config.auth_http_addresses.is_empty();
    has_auth.then_some(
        "this nsqd asks auth servers who may read a topic (--auth-http-address), and HTTP requests have no AUTH; \
         consume the channel with a client that is permitted",
    )
}

impl Wanted {
    pub(super) fn from_query(query: &Query<'_>, is_of_channel: bool) -> Result<Wanted, Failure> {
        let topic = topic_of(query, Failure::bad("INVALID_ARG_TOPIC"))?.to_owned();
        let channel = if is_of_channel {
            Some(channel_of(query)?.to_owned())
        } else {
            None
        };
        let since = since(query)?;
        let from = match query.get("from") {
            None | Some("oldest") => PeekFrom::Oldest,
            Some("newest") => PeekFrom::Newest,
            Some("deferred") => PeekFrom::Deferred,
            Some("in_flight") if is_of_channel => PeekFrom::InFlight,
            Some("requeued") if is_of_channel => PeekFrom::Requeued,
            Some("attempts") if is_of_channel => PeekFrom::Attempts(1),
            Some("published") if !is_of_channel => PeekFrom::Published {
                since: since.unwrap_or_default(),
            },
            Some(_) => {
                let words = if is_of_channel {
                    "oldest, newest, in_flight, deferred, requeued or attempts; topics also have published"
                } else {
                    "oldest, newest, deferred or published; channels also have in_flight, requeued and attempts"
                };
                let reason = format!("from is {words}");
                return Err(Failure::bad("INVALID_ARG_FROM").because(reason));
            }
        };
        if since.is_some() && !matches!(from, PeekFrom::Published { .. }) {
            return Err(bad_since("since needs from=published"));
        }
        let place = query.get_filter("cursor");
        let bad_place = || {
            let reason = "cursor is the value of next in an earlier answer to the same question";
            Failure::bad("INVALID_ARG_CURSOR").because(reason)
        };
        let place = place.map(|text| parse_place(&text).ok_or_else(bad_place));
        let limit = number(query, "limit", LIMIT_DEFAULT, 1..=LIMIT_MAX)?;
        let most = FRAME_BYTES_MAX as u64;
        let body_bytes_max = number(query, "max_body", BODY_BYTES_DEFAULT.min(most), 0..=most)?;
        Ok(Wanted {
            topic,
            channel,
            from,
            has_since: since.is_some(),
            place: place.transpose()?,
            limit: limit as usize,
            body_bytes_max: body_bytes_max as usize,
            filter: filter(query)?,
        })
    }
}

/// Returns a place as it is shown.
pub(super) fn shown_place(place: PeekPlace) -> String {
    let (first, second) = place.at;
    match place.list {
        0 => format!("{first:x}.{second:x}"),
        list => format!("{first:x}.{second:x}.{list:x}"),
    }
}

fn parse_place(text: &str) -> Option<PeekPlace> {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let (first, rest) = text.split_once('.')?;
    let (second, list) = match rest.split_once('.') {
        Some((second, list)) => (second, u8::from_str_radix(list, 16).ok()?),
        None => (rest, 0),
    };
    Some(PeekPlace {
        list,
        at: (number(first)?, number(second)?),
    })
}

/// Returns the message behind which the messages are wanted.
fn since(query: &Query<'_>) -> Result<Option<Seq>, Failure> {
    let Some(text) = query.get_filter("since") else {
        return Ok(None);
    };
    let id = text.as_bytes().try_into().map(MessageId);
    let place = id.ok().and_then(|id| id.decode());
    match place {
        Some((seq, _)) => Ok(Some(seq)),
        None => Err(bad_since(
            "since is the id of a message, or newest of an earlier answer",
        )),
    }
}

fn bad_since(reason: &'static str) -> Failure {
    Failure::bad("INVALID_ARG_SINCE").because(reason)
}

fn number(
    query: &Query<'_>,
    name: &str,
    default: u64,
    range: std::ops::RangeInclusive<u64>,
) -> Result<u64, Failure> {
    let Some(text) = query.get_filter(name) else {
        return Ok(default);
    };
    let value = text.parse().ok().filter(|value| range.contains(value));
    value.ok_or_else(|| {
        let code = match name {
            "limit" => "INVALID_ARG_LIMIT",
            _ => "INVALID_ARG_MAX_BODY",
        };
        let (least, most) = range.into_inner();
        Failure::bad(code).because(format!("{name} is a number from {least} to {most}"))
    })
}

fn filter(query: &Query<'_>) -> Result<Filter, Failure> {
    let pointer = query.get_filter("json");
    if let Some(pointer) = &pointer
        && !pointer.starts_with('/')
    {
        let reason = "json is a JSON pointer, such as /order/id";
        return Err(Failure::bad("INVALID_ARG_JSON").because(reason));
    }
    let equals = query.get("equals").map(str::to_owned);
    if pointer.is_none() && equals.is_some() {
        let reason = "equals needs json, which says where the value is";
        return Err(Failure::bad("INVALID_ARG_EQUALS").because(reason));
    }
    Ok(Filter {
        contains: query.get_filter("contains"),
        pointer,
        equals,
    })
}
