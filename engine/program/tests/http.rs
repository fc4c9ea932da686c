//! Tests of the HTTP server with a small program: a table of routes and a function that answers.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_lite::future::{self, block_on};
use futures_lite::{AsyncRead, AsyncWrite};
use program::http::{
    Awaited, Connection, End, Failure, Io, Reply, RequestBody, Route, Service, parse_query,
    serve_connection,
};

#[derive(Clone, Copy)]
enum Endpoint {
    Ping,
    Echo,
    Note,
    Node,
    Long,
}

struct Small;

impl Service for Small {
    type Endpoint = Endpoint;

    const ROUTES: &'static [Route<Endpoint>] = &[
        ("GET", "/ping", Endpoint::Ping),
        ("POST", "/echo", Endpoint::Echo),
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
                let mut parts = ["[1,", "", "2,3", "]"].into_iter();
                Ok(Reply::json_in_parts(move || {
                    let part = parts.next().unwrap_or_default();
                    (part.to_owned(), parts.len() == 0)
                }))
            }
            Endpoint::Echo => {
                let query = parse_query(query)?;
                let times = query
                    .get("times")
                    .ok_or(Failure::bad("MISSING_ARG_TIMES"))?;
                let received = body.receive(8).await;
                match received.end {
                    End::Complete => {}
                    End::Broken => return Err(Failure::INTERNAL),
                    End::OverLimit => return Err(Failure::too_large("BODY_TOO_BIG")),
                }
                let text = String::from_utf8_lossy(&received.bytes);
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
}

/// A client that has sent everything and stays silent.
struct Client {
    input: Vec<u8>,
    output: Vec<u8>,
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        target: &mut [u8],
    ) -> Poll<std::io::Result<usize>> {
        let count = target.len().min(self.input.len());
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

/// Returns the answer to a request without its date.
fn answer(request: &str) -> String {
    let client = Client {
        input: request.replace('\n', "\r\n").into_bytes(),
        output: Vec::new(),
    };
    let mut connection = Connection::new(client, b"");
    let served = serve_connection(&mut connection, &"10.0.0.1:5", &Small, future::pending());
    block_on(served);
    let (client, unread) = connection.into_parts();
    assert_eq!(unread, b"");
    let output = String::from_utf8(client.output).unwrap();
    let lines = output
        .split("\r\n")
        .filter(|line| !line.starts_with("Date: "));
    lines.collect::<Vec<_>>().join("\n")
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
