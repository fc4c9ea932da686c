//! The JSON of an IDENTIFY, read as Go's `encoding/json` reads it into a struct.
//!
//! serde_json knows the grammar. This module makes up for each difference between serde_json and
//! Go:
//!
//! | Go | serde_json | here |
//! | --- | --- | --- |
//! | bytes that are not UTF-8 become U+FFFD, each | error | replaced beforehand: [`mend`] |
//! | half a surrogate pair in an escape becomes U+FFFD | error | the same |
//! | keys match whatever their case | exactly | [`fold`] |
//! | the last of equal keys wins | error, in a struct | keys are visited one by one |
//! | `null` changes nothing | error, unless `Option` | [`IdentifyRequest::set`] |
//! | `-0` is an integer, `1e3` and `-0.0` are not | `-0` is not | integers are read from their text |
//!
//! Go rejects values nested deeper than 10000. Here unknown values may have any depth, because the
//! parser skips them without recursion.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::IdentifyRequest;
use crate::go_json::fold;
use crate::limits::IDENTIFY_TEXT_BYTES_MAX;

/// Parses `body`. The error is for debugging only: the peer gets the same error in all cases.
pub(super) fn decode(body: &[u8]) -> Result<IdentifyRequest, serde_json::Error> {
    serde_json::from_str::<Request>(&mend(body)).map(|request| request.0)
}

/// Carries the implementation of [`Deserialize`], which the public type should not have.
struct Request(IdentifyRequest);

impl<'de> Deserialize<'de> for Request {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Request, D::Error> {
        deserializer.deserialize_any(RequestVisitor)
    }
}

struct RequestVisitor;

impl<'de> Visitor<'de> for RequestVisitor {
    type Value = Request;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or null")
    }

    fn visit_unit<E: Error>(self) -> Result<Request, E> {
        Ok(Request(IdentifyRequest::default()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Request, A::Error> {
        let mut request = IdentifyRequest::default();
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value::<&RawValue>()?.get();
            request.set(&fold(&key), value).map_err(A::Error::custom)?;
        }
        Ok(Request(request))
    }
}

impl IdentifyRequest {
    /// Stores a value, given as JSON text, in the field that a key names. The grammar of the text has been checked. Unknown
    /// keys include `short_id` and `long_id`, which old clients send.
    fn set(&mut self, folded_key: &str, json: &str) -> Result<(), serde_json::Error> {
        if json == "null" {
            return Ok(());
        }
        match folded_key {
            "client_id" => self.client_id = text(json)?,
            "hostname" => self.hostname = text(json)?,
            "user_agent" => self.user_agent = text(json)?,
            "feature_negotiation" => self.feature_negotiation = serde_json::from_str(json)?,
            "tls_v1" => self.tls_v1 = serde_json::from_str(json)?,
            "snappy" => self.snappy = serde_json::from_str(json)?,
            "deflate" => self.deflate = serde_json::from_str(json)?,
            "heartbeat_interval" => self.heartbeat_interval = integer(json)?,
            "output_buffer_timeout" => self.output_buffer_timeout = integer(json)?,
            "output_buffer_size" => self.output_buffer_size = integer(json)?,
            "msg_timeout" => self.msg_timeout = integer(json)?,
            "deflate_level" => self.deflate_level = integer(json)?,
            "sample_rate" => self.sample_rate = integer(json)?,
            "topology_region" => self.topology_region = text(json)?,
            "topology_zone" => self.topology_zone = text(json)?,
            "req_uncounted" => self.req_uncounted = serde_json::from_str(json)?,
            "publisher_id" => self.publisher_id = text(json)?,
            _ => {}
        }
        Ok(())
    }
}

/// Reads an integer from its text, as Go does: serde_json takes `-0` for a float.
fn integer<T: FromStr<Err: fmt::Display>>(json: &str) -> Result<T, serde_json::Error> {
    json.parse().map_err(serde_json::Error::custom)
}

/// Reads a text, and cuts it to [`IDENTIFY_TEXT_BYTES_MAX`]: the broker keeps the text as long as its connection.
fn text(json: &str) -> Result<String, serde_json::Error> {
    let mut text: String = serde_json::from_str(json)?;
    text.truncate(text.floor_char_boundary(IDENTIFY_TEXT_BYTES_MAX));
    text.shrink_to_fit();
    Ok(text)
}

/// Returns the same JSON with U+FFFD for each part that Go reads as an invalid character.
fn mend(body: &[u8]) -> Cow<'_, str> {
    let text = match str::from_utf8(body) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(mend_utf8(body)),
    };
    // A backslash occurs only in strings; any other backslash is an error later.
    if text.contains("\\u") {
        Cow::Owned(mend_surrogates(&text))
    } else {
        text
    }
}

/// Replaces each byte that is not part of a character by one U+FFFD. `String::from_utf8_lossy`
/// writes one U+FFFD for several bytes if they begin a character that is cut short.
fn mend_utf8(body: &[u8]) -> String {
    let mut out = String::with_capacity(body.len());
    for chunk in body.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    out
}

/// Replaces each escape of one half of a surrogate pair that lacks its other half.
fn mend_surrogates(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let (mended, bytes) = match (
            unicode_escape(escape),
            escape.get(6..).and_then(unicode_escape),
        ) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (&escape[..12], 12),
            (Some(0xd800..=0xdfff), _) => ("\\ufffd", 6),
            // Skips the second byte too, because it may be another backslash.
            _ => {
                let bytes = 1 + escape[1..].chars().next().map_or(0, char::len_utf8);
                (&escape[..bytes], bytes)
            }
        };
        out.push_str(mended);
        rest = &escape[bytes..];
    }
    out.push_str(rest);
    out
}

/// Returns the number in the `\uXXXX` at the front of `text`.
fn unicode_escape(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    // `from_str_radix` would accept a sign.
    let all_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    all_digits
        .then(|| u16::from_str_radix(digits, 16).ok())
        .flatten()
}
