//! The parameters of a peek.

use super::FRAME_BYTES_MAX;
use super::filter::Filter;
use crate::config::Config;
use crate::http::admin::topic_of;
use engine_rules::{PeekFrom, PeekPlace, Seq};
use program::http::{Failure, Query};
use wire::id::MessageId;
use wire::name::is_valid_name;

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

/// The reason why a request is refused.
#[derive(Debug)]
pub(super) enum Bad {
    /// A failure that other endpoints have, too.
    Failure(Failure),
    /// The word, and what the parameter may be.
    Argument(&'static str, String),
}

impl From<Failure> for Bad {
    fn from(failure: Failure) -> Bad {
        Bad::Failure(failure)
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
    pub(super) fn from_query(query: &Query<'_>, is_of_channel: bool) -> Result<Wanted, Bad> {
        let topic = topic_of(query, Failure::bad("INVALID_ARG_TOPIC"))?.to_owned();
        let channel = if is_of_channel {
            Some(channel_of(query)?)
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
                return Err(Bad::Argument(
                    "INVALID_ARG_FROM",
                    format!("from is {words}"),
                ));
            }
        };
        if since.is_some() && !matches!(from, PeekFrom::Published { .. }) {
            return Err(bad_since("since needs from=published"));
        }
        let place = query.get_filter("cursor");
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

fn bad_place() -> Bad {
    let reason = "cursor is the value of next in an earlier answer to the same question";
    Bad::Argument("INVALID_ARG_CURSOR", reason.to_owned())
}

/// Returns the message behind which the messages are wanted.
fn since(query: &Query<'_>) -> Result<Option<Seq>, Bad> {
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

fn bad_since(reason: &str) -> Bad {
    Bad::Argument("INVALID_ARG_SINCE", reason.to_owned())
}

fn channel_of(query: &Query<'_>) -> Result<String, Failure> {
    let channel = query.get("channel");
    let channel = channel.ok_or(Failure::bad("MISSING_ARG_CHANNEL"))?;
    if is_valid_name(channel.as_bytes()) {
        Ok(channel.to_owned())
    } else {
        Err(Failure::bad("INVALID_ARG_CHANNEL"))
    }
}

fn number(
    query: &Query<'_>,
    name: &str,
    default: u64,
    range: std::ops::RangeInclusive<u64>,
) -> Result<u64, Bad> {
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
        Bad::Argument(code, format!("{name} is a number from {least} to {most}"))
    })
}

fn filter(query: &Query<'_>) -> Result<Filter, Bad> {
    let pointer = query.get_filter("json");
    if let Some(pointer) = &pointer
        && !pointer.starts_with('/')
    {
        let reason = "json is a JSON pointer, such as /order/id".to_owned();
        return Err(Bad::Argument("INVALID_ARG_JSON", reason));
    }
    let equals = query.get("equals").map(str::to_owned);
    if pointer.is_none() && equals.is_some() {
        let reason = "equals needs json, which says where the value is".to_owned();
        return Err(Bad::Argument("INVALID_ARG_EQUALS", reason));
    }
    Ok(Filter {
        contains: query.get_filter("contains"),
        pointer,
        equals,
    })
}
