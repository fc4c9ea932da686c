//! The part of HTTP that the generator speaks.

use wire::command::Batch;

use super::channel::{Store, limits};
use crate::http::content_length;

/// Answers the requests at the front of `input`. Returns the bytes handled, and true if the connection ends behind the
/// answer.
pub(super) fn answer(input: &[u8], output: &mut Vec<u8>, store: &mut Store) -> (usize, bool) {
    let mut consumed = 0;
    loop {
        let rest = &input[consumed..];
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut request = httparse::Request::new(&mut headers);
        let head_bytes = match request.parse(rest) {
            Ok(httparse::Status::Complete(bytes)) => bytes,
            Ok(httparse::Status::Partial) => return (consumed, false),
            Err(_) => {
                respond(output, 400, b"BAD_REQUEST");
                return (consumed, true);
            }
        };
        let length = content_length(request.headers).unwrap_or(0);
        let Some(body) = rest.get(head_bytes..head_bytes.saturating_add(length)) else {
            return (consumed, false);
        };
        consumed += head_bytes + length;
        let target = request.path.unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        route(path, query, body, output, store);
        if request.version == Some(0) {
            return (consumed, true);
        }
    }
}

fn route(path: &str, query: &str, body: &[u8], output: &mut Vec<u8>, store: &mut Store) {
    let parameter = |name: &str| {
        let mut pairs = query.split('&');
        let value = pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_default()
    };
    match path {
        "/pub" => {
            store.publish(parameter("topic"), body);
            respond(output, 200, b"OK");
        }
        "/mpub" => match Batch::parse_binary(body, &limits()) {
            Ok(batch) => {
                for message in batch {
                    store.publish(parameter("topic"), message);
                }
                respond(output, 200, b"OK");
            }
            Err(error) => respond(output, 413, error.as_str().as_bytes()),
        },
        "/ping" => respond(output, 200, b"OK"),
        "/stats" => respond(output, 200, store.stats().to_string().as_bytes()),
        "/channel/create" => {
            store.channel(parameter("topic"), parameter("channel"));
            respond(output, 200, b"");
        }
        "/topic/create" | "/topic/delete" => respond(output, 200, b""),
        _ => respond(output, 404, b"NOT_FOUND"),
    }
}

fn respond(output: &mut Vec<u8>, status: u16, body: &[u8]) {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} -\r\nContent-Length: {length}\r\n\r\n");
    output.extend_from_slice(head.as_bytes());
    output.extend_from_slice(body);
}
