//! The head of a request, and what it asks for.

use std::fmt;

use program::http::{PageMarks, Query};
use wire::name::is_valid_name;

/// Most bytes of the head of a request.
pub(super) const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Most headers of a request.
const HEADERS_MAX: usize = 64;

/// The meaning of the bytes that a connection has sent so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// More bytes are needed.
    Partial,
    /// The request asks for a stream, with this query.
    Subscription {
        /// The text after the question mark.
        query: String,
        /// The length of the head, in bytes.
        length: usize,
        /// True if a browser says that a page of another site sends the request.
        is_of_other_site: bool,
    },
    /// The request asks for something else, or is no HTTP: it goes to the HTTP server.
    Other,
}

/// The parameters of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subscription {
    pub(super) topic: String,
    pub(super) channel: String,
    pub(super) max_in_flight: u32,
}

/// The reason why a client gets no stream. The text is the body of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    InvalidUri,
    MissingTopic,
    InvalidTopic,
    MissingChannel,
    InvalidChannel,
    InvalidMaxInFlight,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::InvalidUri => "INVALID_URI",
            Refused::MissingTopic => "MISSING_ARG_TOPIC",
            Refused::InvalidTopic => "INVALID_ARG_TOPIC",
            Refused::MissingChannel => "MISSING_ARG_CHANNEL",
            Refused::InvalidChannel => "INVALID_ARG_CHANNEL",
            Refused::InvalidMaxInFlight => "INVALID_ARG_MAX_IN_FLIGHT",
        })
    }
}

impl Head {
    /// Looks at the first bytes of a connection.
    pub(super) fn of(bytes: &[u8]) -> Head {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        let length = match request.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Head::Partial,
            // The HTTP server has the answers for heads that are wrong or too long.
            Ok(httparse::Status::Partial) | Err(_) => return Head::Other,
        };
        let target = request.path.unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        match path {
            "/sub" => {
                let mut marks = PageMarks::default();
                for header in request.headers {
                    marks.note(header.name, header.value);
                }
                Head::Subscription {
                    query: query.to_owned(),
                    length,
                    is_of_other_site: marks.are_of_other_site(),
                }
            }
            _ => Head::Other,
        }
    }
}

impl Subscription {
    /// Reads the arguments of a request. `most` is the largest number of messages in flight.
    /// `own_channel` is the channel of a client that names none, if such a client is not refused.
    pub(super) fn parse(
        query: &str,
        most: u32,
        own_channel: Option<String>,
    ) -> Result<Subscription, Refused> {
        let query = Query::parse(query).map_err(|_| Refused::InvalidUri)?;
        let topic = query.get_filter("topic").ok_or(Refused::MissingTopic)?;
        if !is_valid_name(topic.as_bytes()) {
            return Err(Refused::InvalidTopic);
        }
        let channel = query
            .get_filter("channel")
            .or(own_channel)
            .ok_or(Refused::MissingChannel)?;
        if !is_valid_name(channel.as_bytes()) {
            return Err(Refused::InvalidChannel);
        }
        let max_in_flight = match query.get_filter("max_in_flight").map(|text| text.parse()) {
            None => most,
            Some(Ok(wanted @ 1..)) => wanted.min(most),
            Some(_) => return Err(Refused::InvalidMaxInFlight),
        };
        Ok(Subscription {
            topic,
            channel,
            max_in_flight,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_told_apart() {
        let subscription = |query: &str, length| Head::Subscription {
            query: query.to_owned(),
            length,
            is_of_other_site: length > 50,
        };
        for (bytes, expected) in [
            ("", Head::Partial),
            ("GET /sub?topic=t HTTP/1.1\r\nHost: x\r\n", Head::Partial),
            (
                "GET /sub?topic=t&a HTTP/1.1\r\nHost: x\r\n\r\nrest",
                subscription("topic=t&a", 40),
            ),
            ("POST /sub HTTP/1.0\r\n\r\n", subscription("", 22)),
            // A page of any site drained the channel.
            (
                "GET /sub HTTP/1.1\r\nHost: x\r\nSec-Fetch-Site: cross-site\r\n\r\n",
                subscription("", 58),
            ),
            (
                "POST /sub HTTP/1.1\r\nHost: x\r\nOrigin: http://evil.example\r\n\r\n",
                subscription("", 60),
            ),
            ("GET /subs HTTP/1.1\r\n\r\n", Head::Other),
            ("GET /stats HTTP/1.1\r\n\r\n", Head::Other),
            ("\x16\x03\x01", Head::Other),
        ] {
            assert_eq!(Head::of(bytes.as_bytes()), expected, "{bytes:?}");
        }
        let long = format!("GET /sub?{} HTTP/1.1\r\n", "x".repeat(HEAD_BYTES_MAX));
        assert_eq!(Head::of(long.as_bytes()), Head::Other);
    }

    #[test]
    fn arguments_are_checked_in_the_originals_order() {
        let parse = |query: &str| Subscription::parse(query, 100, None);
        let good = |channel: &str, max_in_flight| {
            Ok(Subscription {
                topic: "t#ephemeral".to_owned(),
                channel: channel.to_owned(),
                max_in_flight,
            })
        };
        for (query, expected) in [
            ("", Err(Refused::MissingTopic)),
            ("topic=%zz", Err(Refused::InvalidUri)),
            ("topic=&channel=c", Err(Refused::MissingTopic)),
            ("topic=a+b", Err(Refused::InvalidTopic)),
            ("topic=t", Err(Refused::MissingChannel)),
            ("topic=t&channel=%2f", Err(Refused::InvalidChannel)),
            ("topic=t%23ephemeral&channel=c", good("c", 100)),
        ] {
            assert_eq!(parse(query), expected, "{query}");
        }
        for (most, expected) in [
            ("0", Err(Refused::InvalidMaxInFlight)),
            ("x", Err(Refused::InvalidMaxInFlight)),
            ("7", good("c", 7)),
            ("700", good("c", 100)),
        ] {
            let query = format!("channel=c&topic=t%23ephemeral&max_in_flight={most}");
            assert_eq!(parse(&query), expected, "{query}");
        }
        let own = Subscription::parse("topic=t%23ephemeral", 100, Some("own".to_owned()));
        assert_eq!(own, good("own", 100));
    }
}
