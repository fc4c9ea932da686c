//! [`AuthServer`]: grants everything to one secret.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

const GRANT: &str = r#"{"ttl":3600,"identity":"me","identity_url":"","authorizations":[{"topic":".*","channels":[".*"],"permissions":["subscribe","publish"]}]}"#;

/// An auth server that knows the secret `sesame`. Its thread ends with the test's process.
pub(crate) struct AuthServer {
    pub(crate) address: SocketAddr,
}

impl AuthServer {
    pub(crate) fn start() -> AuthServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || answer(&stream));
            }
        });
        AuthServer { address }
    }
}

/// Answers one request. nsqd asks again if the connection breaks.
fn answer(mut stream: &TcpStream) {
    let mut lines = BufReader::new(stream).lines();
    let Some(Ok(request)) = lines.next() else {
        return;
    };
    while lines
        .next()
        .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
    {}
    let body = if request.contains("secret=sesame") {
        GRANT
    } else {
        r#"{"ttl":3600,"authorizations":[]}"#
    };
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
}
