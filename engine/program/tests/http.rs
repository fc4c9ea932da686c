//! Tests of the HTTP server with a small program: a table of routes and a function that answers.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_lite::future::{self, block_on};
use futures_lite::{AsyncRead, AsyncWrite};
use program::http::{
    Awaited, Connection, Failure, HEAD_BYTES_MAX, Io, Reply, RequestBody, Route, Served, Service,
    parse_query, serve_connection,
};

#[derive(Clone, Copy)]
enum Endpoint {
    Ping,
    Echo,
    Keep,
    Note,
    Node,
    Long,
}

#[derive(Default)]
struct Small {
    /// Connections move to another thread after each request.
    moves: bool,
    /// The bodies that were kept.
    kept: RefCell<Vec<Bytes>>,
}

impl Service for Small {
    type Endpoint = Endpoint;

    const ROUTES: &'static [Route<Endpoint>] = &[
        ("GET", "/ping", Endpoint::Ping),
        ("POST", "/echo", Endpoint::Echo),
        ("POST", "/keep", Endpoint::Keep),
        ("POST", "/note", Endpoint::Note),
        ("GET", "/nodes/*", Endpoint::Node),
        ("GET", "/long", Endpoint::Long),
    ];

    async fn answer(
        &self,
        endpoint: Endpoint,
        segments: &[String],
        query: &str,
        body: &mut RequestBody<'_, impl Io>,
    ) -> Result<Reply, Failure> {
        match endpoint {
            Endpoint::Ping | Endpoint::Note => Ok(Reply::plain(http::StatusCode::OK, "OK")),
            Endpoint::Node => Ok(Reply::text(segments.concat())),
            Endpoint::Long => {
                let mut parts = ["", "2,3", "]"].into_iter();
                let reply = Reply::json(http::StatusCode::OK, "[1,".to_owned());
                Ok(reply.and_more(move |_| Poll::Ready(parts.next().map(str::to_owned))))
            }
            Endpoint::Keep => {
                let received = body.receive(1 << 20).await.complete("BODY_TOO_BIG")?;
                self.kept.borrow_mut().push(received);
                Ok(Reply::text("OK"))
            }
            Endpoint::Echo => {
                let query = parse_query(query)?;
                let times = query
                    .get("times")
                    .ok_or(Failure::bad("MISSING_ARG_TIMES"))?;
                let received = body.receive(8).await.complete("BODY_TOO_BIG")?;
                let text = String::from_utf8_lossy(&received);
                Ok(Reply::text(text.repeat(times.parse().unwrap_or(1))))
            }
        }
    }

    fn is_logged(_: Endpoint) -> bool {
        false
    }

    fn is_open_to_other_sites(endpoint: Endpoint) -> bool {
        matches!(endpoint, Endpoint::Note)
    }

    fn is_better_elsewhere(&self) -> bool {
        self.moves
    }
}

/// A client that has sent everything and stays silent.
struct Client {
    input: Vec<u8>,
    /// Bytes that come with one read.
    at_once: usize,
    output: Vec<u8>,
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        target: &mut [u8],
    ) -> Poll<std::io::Result<usize>> {
        let count = target.len().min(self.input.len()).min(self.at_once);
        target[..count].copy_from_slice(&self.input[..count]);
        self.input.drain(..count);
        Poll::Ready(Ok(count))
    }
}

impl AsyncWrite for Client {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.output.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Io for Client {
    fn begin(&mut self, _: Awaited) {}
}

/// Returns the answers to requests, which come in pieces, without their dates.
fn answers(service: &Small, requests: &str, at_once: usize) -> String {
    let client = Client {
        input: requests.as_bytes().to_vec(),
        at_once,
        output: Vec::new(),
    };
    let mut connection = Connection::new(client, b"");
    let served = serve_connection(&mut connection, &"10.0.0.1:5", service, future::pending());
    assert_eq!(block_on(served), Served::ToTheEnd);
    let (client, _) = connection.into_parts();
    let output = String::from_utf8(client.output).unwrap();
    let lines = output
        .split("\r\n")
        .filter(|line| !line.starts_with("Date: "));
    lines.collect::<Vec<_>>().join("\n")
}

fn answer(request: &str) -> String {
    let request = request.replace('\n', "\r\n");
    answers(&Small::default(), &request, usize::MAX)
}

#[test]
fn a_service_is_a_table_and_a_function() {
    let check = |request: &str, expected: &str| {
        let request = format!("{request} HTTP/1.1\nHost: x\n");
        let request = if request.contains("POST") {
            format!("{request}Content-Length: 3\n\nabc")
        } else {
            format!("{request}\n")
        };
        assert_eq!(answer(&request), expected, "{request}");
    };
    const OF_V1: &str = "X-Nsq-Content-Type: nsq; version=1.0\n";
    const TEXT: &str = "Content-Type: text/plain; charset=utf-8\n";
    const JSON: &str = "Content-Type: application/json; charset=utf-8\n";
    check(
        "GET /ping",
        &format!("HTTP/1.1 200 OK\nContent-Length: 2\n{TEXT}\nOK"),
    );
    check(
        "GET /nodes/a%3A1",
        &format!("HTTP/1.1 200 OK\n{OF_V1}Content-Length: 3\n{TEXT}\na:1"),
    );
    check(
        "POST /echo?times=2",
        &format!("HTTP/1.1 200 OK\n{OF_V1}Content-Length: 6\n{TEXT}\nabcabc"),
    );
    let failure = |status: &str, headers: &str, code: &str| {
        let body = format!(r#"{{"message":"{code}"}}"#);
        let bytes = body.len();
        format!("HTTP/1.1 {status}\n{headers}{JSON}{OF_V1}Content-Length: {bytes}\n\n{body}")
    };
    check(
        "POST /echo",
        &failure("400 Bad Request", "", "MISSING_ARG_TIMES"),
    );
    check("GET /nodes", &failure("404 Not Found", "", "NOT_FOUND"));
    check(
        "GET /echo",
        &failure(
            "405 Method Not Allowed",
            "Allow: OPTIONS, POST\n",
            "METHOD_NOT_ALLOWED",
        ),
    );
    let redirect = answer("GET /Ping/?a=1 HTTP/1.1\nHost: x\n\n");
    assert!(
        redirect.starts_with("HTTP/1.1 301 Moved Permanently\n"),
        "{redirect}"
    );
    assert!(redirect.contains("Location: /ping?a=1\n"), "{redirect}");
}

/// The memory for an answer does not grow with the answer.
#[test]
fn a_long_document_is_sent_in_parts() {
    let head = "HTTP/1.1 200 OK\nContent-Type: application/json; charset=utf-8\n\
                X-Nsq-Content-Type: nsq; version=1.0\n";
    let chunks = "3\n[1,\n3\n2,3\n1\n]\n0\n\n";
    assert_eq!(
        answer("GET /long HTTP/1.1\nHost: x\n\n"),
        format!("{head}Transfer-Encoding: chunked\n\n{chunks}")
    );
    // The connection goes on.
    let both = answer("GET /long HTTP/1.1\nHost: x\n\nGET /ping HTTP/1.1\nHost: x\n\n");
    assert!(both.contains(chunks) && both.ends_with("\nOK"), "{both}");
    // HTTP/1.0 knows no chunks.
    let old = answer("GET /long HTTP/1.0\nConnection: keep-alive\n\n");
    assert_eq!(
        old,
        format!("{}\n[1,2,3]", head.replace("HTTP/1.1", "HTTP/1.0"))
    );
}

/// A page of any site could do what its visitor's browser could reach.
#[test]
fn requests_of_pages_of_other_sites_change_nothing() {
    let check = |request: &str, marks: &str, status: &str| {
        let text = format!("{request} HTTP/1.1\nHost: h:1\nContent-Length: 0\n{marks}\n");
        let answer = answer(&text);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}\n")),
            "{text}{answer}"
        );
    };
    for marks in [
        "Origin: http://evil.example\n",
        "Origin: null\n",
        "Sec-Fetch-Site: cross-site\n",
        "Origin: http://h:1\nSec-Fetch-Site: same-site\n",
    ] {
        check("POST /echo?times=1", marks, "403 Forbidden");
        check("GET /ping", marks, "200 OK");
        check("POST /note", marks, "200 OK");
        check("POST /nope", marks, "404 Not Found");
        check("OPTIONS /echo", marks, "200 OK");
    }
    for marks in [
        "",
        "Origin: http://h:1\n",
        "Origin: https://outer.example\nX-Forwarded-Host: outer.example\n",
        "Origin: https://outer.example\nSec-Fetch-Site: same-origin\n",
        "Sec-Fetch-Site: none\n",
    ] {
        check("POST /echo?times=1", marks, "200 OK");
    }
}

#[test]
fn requests_may_come_in_any_pieces() {
    let requests = "\r\n\
        POST /keep HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789\
        POST /nope HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello\n\
        POST /keep HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n\
        3;x\r\na\nb\r\n2\r\n\nc\r\n0\r\nA: b\r\n\r\n\
        POST /keep HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\
        Content-Length: 2\r\n\r\nhi\
        GET /ping HTTP/1.0\r\n\r\n";
    let service = Small::default();
    let whole = answers(&service, requests, usize::MAX);
    assert_eq!(whole.matches(" 200 OK").count(), 4, "{whole}");
    assert_eq!(whole.matches(" 100 Continue").count(), 1, "{whole}");
    assert_eq!(whole.matches(" 404 Not Found").count(), 1, "{whole}");
    let expected: [&[u8]; 3] = [b"0123456789", b"a\nb\nc", b"hi"];
    assert_eq!(service.kept.take(), expected);
    for at_once in [1, 2, 3, 7, 50, 100] {
        assert_eq!(answers(&service, requests, at_once), whole, "{at_once}");
        assert_eq!(service.kept.take(), expected, "{at_once}");
    }
}

#[test]
fn long_bodies_arrive_whole() {
    let service = Small::default();
    for length in [8_000, 8_192, 20_000, 300_001, 1 << 20] {
        let letters = (0..length).map(|i| char::from(b'a' + (i % 23) as u8));
        let body: String = letters.collect();
        for at_once in [1_000, 9_000, usize::MAX] {
            let head = format!("POST /keep HTTP/1.1\r\nHost: x\r\nContent-Length: {length}");
            let request = format!("{head}\r\n\r\n{body}GET /ping HTTP/1.1\r\nHost: x\r\n\r\n");
            let answer = answers(&service, &request, at_once);
            assert_eq!(answer.matches("\n\nOK").count(), 2, "{length} {at_once}");
            assert!(service.kept.take() == [&body], "{length} {at_once}");
            let answer = answers(&service, &request[..request.len() - 100], at_once);
            assert!(answer.contains("500 Internal Server Error"), "{answer}");
        }
    }
}

#[test]
fn a_connection_moves_between_requests_with_what_was_read_ahead() {
    let service = Small {
        moves: true,
        ..Small::default()
    };
    let ping = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n";
    let client = Client {
        input: [&ping[..], &ping[..], b"GET /pi"].concat(),
        at_once: usize::MAX,
        output: Vec::new(),
    };
    let mut connection = Connection::new(client, b"");
    for _ in 0..2 {
        let served = serve_connection(&mut connection, &"10.0.0.1:5", &service, future::pending());
        assert_eq!(block_on(served), Served::UntilMoved);
        let (client, unread) = connection.into_parts();
        connection = Connection::new(client, &unread);
    }
    let (client, unread) = connection.into_parts();
    assert_eq!(unread, b"GET /pi");
    let output = String::from_utf8_lossy(&client.output);
    assert_eq!(output.matches("200 OK").count(), 2);
}

#[test]
fn unread_bodies_are_read_or_end_the_connection() {
    let request = |length: usize| {
        let body = "x".repeat(length);
        let ping = "GET /ping HTTP/1.1\nHost: x\n\n";
        answer(&format!(
            "POST /note HTTP/1.1\nHost: x\nContent-Length: {length}\n\n{body}{ping}"
        ))
    };
    let both = request(262_143);
    assert_eq!(both.matches("HTTP/1.1 ").count(), 2, "{both}");
    assert!(!both.contains("Connection: close"));
    let one = request(262_144);
    assert_eq!(one.matches("HTTP/1.1 ").count(), 1, "{one}");
    assert!(one.contains("Connection: close"));
}

#[test]
fn old_malformed_and_long_requests_get_these_answers() {
    let refused = |status: &str| {
        format!(
            "HTTP/1.1 {status}\nContent-Type: text/plain; charset=utf-8\nConnection: close\n\n{status}"
        )
    };
    let malformed = refused("400 Bad Request");
    assert_eq!(answer("GET /ping HTTP/1.1\nHost: x\n"), malformed);
    let old = "HTTP/1.0 200 OK\nContent-Length: 2\nContent-Type: text/plain; charset=utf-8\n\
               Connection: keep-alive\n\nOK";
    assert_eq!(
        answer("GET /ping HTTP/1.0\nConnection: keep-alive\n\nnonsense\n"),
        format!("{old}{malformed}")
    );
    assert_eq!(
        answer("GET //ping HTTP/1.1\nHost: x\n\n"),
        "HTTP/1.1 301 Moved Permanently\nContent-Type: text/html; charset=utf-8\nLocation: /ping\n\
         Content-Length: 40\n\n<a href=\"/ping\">Moved Permanently</a>.\n\n"
    );
    let start = "GET /ping HTTP/1.1\r\nHost: x\r\nA: ";
    for (length, status) in [(HEAD_BYTES_MAX, "200"), (HEAD_BYTES_MAX + 1, "431")] {
        let filler = "b".repeat(length - start.len() - 4);
        let request = format!("{start}{filler}\r\n\r\n");
        let answer = answers(&Small::default(), &request, usize::MAX);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
}
