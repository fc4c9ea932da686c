//! An auth server whose answer depends on the secret alone.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Secret, status and body of each answer.
const ANSWERS: [(&str, &str, &str); 7] = [
    (
        "all",
        "200 OK",
        r#"{"ttl":3600,"identity":"bob <x>","identity_url":"http://u","authorizations":[{"topic":".*","channels":[".*"],"permissions":["subscribe","publish"]}]}"#,
    ),
    (
        "publish",
        "200 OK",
        r#"{"ttl":3600,"authorizations":[{"topic":".*","channels":[".*"],"permissions":["publish"]}]}"#,
    ),
    (
        "subscribe",
        "200 OK",
        r#"{"ttl":3600,"authorizations":[{"topic":"^auth_","channels":["^c"],"permissions":["subscribe"]}]}"#,
    ),
    ("none", "200 OK", r#"{"ttl":3600,"authorizations":[]}"#),
    ("ttl", "200 OK", r#"{"ttl":0,"authorizations":[]}"#),
    ("text", "200 OK", "not json"),
    ("refused", "500 Internal Server Error", "boom"),
];

/// An auth server that answers until the process ends.
pub(crate) struct AuthServer {
    pub(crate) address: SocketAddr,
}

impl AuthServer {
    /// Starts the server on a free port of 127.0.0.1.
    pub(crate) fn start() -> AuthServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A broker that has closed the connection needs no answer.
                let _ = answer(stream);
            }
        });
        AuthServer { address }
    }
}

fn answer(stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut header = String::new();
    while reader.read_line(&mut header)? > 2 {
        header.clear();
    }
    let found = ANSWERS
        .iter()
        .find(|(secret, ..)| request.contains(&format!("secret={secret}&")));
    let (_, status, body) = found.unwrap_or(&("", "403 Forbidden", "{}"));
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    reader.get_mut().write_all((head + body).as_bytes())
}
