//! Connections over real sockets: TLS on both sides, clients that are slow, and many streams.

#[path = "../../../wire/upgrade/tests/certificates/mod.rs"]
mod certificates;

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::Admin;
use serde_json::json;
use test_support::daemon::Daemon;
use test_support::process::address_in;
use test_support::{TIMEOUT, assert_like, wait_until};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConnection, StreamOwned};
use upgrade::{ClientTls, authorities, client_config};

#[test]
fn an_nsqd_that_requires_tls_is_asked_over_https() {
    let directory = tempfile::tempdir().unwrap();
    certificates::write(directory.path());
    let file =
        |flag: &str, name: &str| format!("--{flag}={}", directory.path().join(name).display());
    let lookupd = Daemon::nsqlookupd(&[]);
    let nsqd = Daemon::nsqd_at(
        &[&lookupd],
        &[
            "--tls-required=true",
            "--https-address=127.0.0.1:0",
            &file("tls-cert", "server.pem"),
            &file("tls-key", "server-key.pem"),
            "--tls-client-auth-policy=require-verify",
            &file("tls-root-ca-file", "ca.pem"),
        ],
    );
    let pair = [
        file("http-client-tls-cert", "client.pem"),
        file("http-client-tls-key", "client-key.pem"),
    ];
    let ca = file("http-client-tls-root-ca-file", "ca.pem");
    let direct = format!("--nsqd-http-address={}", nsqd.http);
    let trusting = Admin::start(&[&direct, &ca, &pair[0], &pair[1]]);
    let created = trusting.post("/api/topics", r#"{"topic":"t"}"#);
    assert_eq!(created.expect_status(200).json(), json!({"message": ""}));
    assert_eq!(trusting.json("/api/topics")["topics"], json!(["t"]));
    // The certificate of this one is its own root.
    let own_root = Daemon::nsqd_at(
        &[&lookupd],
        &[
            "--tls-required=true",
            "--https-address=127.0.0.1:0",
            &file("tls-cert", "ca.pem"),
            &file("tls-key", "ca-key.pem"),
        ],
    );
    let own_root = format!("--nsqd-http-address={}", own_root.http);
    let admin = Admin::start(&[&own_root, &ca]);
    let created = admin.post("/api/topics", r#"{"topic":"t"}"#);
    assert_eq!(created.expect_status(200).json(), json!({"message": ""}));
    let careless = [
        &direct,
        "--http-client-tls-insecure-skip-verify",
        &pair[0],
        &pair[1],
    ];
    let careless = Admin::start(&careless);
    assert_eq!(careless.json("/api/topics")["topics"], json!(["t"]));
    let unknown = Admin::start(&[&direct, &ca]);
    let refused = unknown.get("/api/topics").expect_status(502).text();
    assert_like(&refused, "…UPSTREAM_ERROR: failed to query any nsqd: Get…");
}

#[test]
fn https_is_http_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    certificates::write(directory.path());
    let file =
        |flag: &str, name: &str| format!("--{flag}={}", directory.path().join(name).display());
    let (cert, key) = (
        file("tls-cert", "server.pem"),
        file("tls-key", "server-key.pem"),
    );
    let admin = Admin::start_alone(&["--https-address=127.0.0.1:0", &cert, &key]);
    let address = address_in(&admin.wait_for_log(" HTTPS: listening on ")).unwrap();
    let roots = authorities(&directory.path().join("ca.pem")).unwrap();
    let config = client_config(&ClientTls {
        authorities: Some(roots),
        cert_and_key: None,
        only_tls13: false,
    });
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let client = ClientConnection::new(config.unwrap(), name).unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut stream = StreamOwned::new(client, socket);
    stream
        .write_all(b"GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    // The server ends the connection without a farewell of TLS.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert_like(&answer, "HTTP/1.1 200 OK\r\n…OK");

    // Plain HTTP where HTTPS is served does no harm.
    let mut plain = TcpStream::connect(address).unwrap();
    plain.set_read_timeout(Some(TIMEOUT)).unwrap();
    plain.write_all(b"GET /ping HTTP/1.1\r\n\r\n").unwrap();
    let _ = plain.read_to_end(&mut Vec::new());
    admin.wait_for_log("WARNING: http: TLS handshake error from 127.0.0.1:");
    admin.get("/ping").expect_status(200);
}

#[test]
fn slow_clients_are_cut_off() {
    let admin = Admin::start_alone(&["--http-read-timeout=200ms"]);
    for sent in ["", "GET /pi", "GET /ping HTTP/1.1\r\n"] {
        let mut stream = admin.connect(sent.as_bytes());
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{sent:?}");
    }
    let mut answer = String::new();
    let is_told = wait_until(TIMEOUT, || {
        answer.clear();
        let mut stream = admin.connect(b"");
        let head = b"POST /api/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{";
        // A client that stands still before it writes is cut off without an answer.
        let _ = stream.write_all(head);
        let _ = stream.read_to_string(&mut answer);
        answer.starts_with("HTTP/1.1 408 ") && answer.contains("BODY_TIMEOUT")
    });
    assert!(is_told, "{answer}");
}

#[test]
fn a_long_head_and_nonsense_are_refused() {
    let mut admin = Admin::start_alone(&[]);
    let long = format!(
        "GET /ping HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
        "x".repeat(1 << 20)
    );
    for sent in [
        long.as_bytes(),
        &[0xff; 4096],
        b"GET /%zz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ] {
        let mut stream = admin.connect(b"");
        // The server may close before it has read everything.
        let _ = stream.write_all(sent);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(
            !answer.starts_with(b"HTTP/1.1 200"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
    assert!(!admin.has_ended());
    admin.get("/ping").expect_status(200);
}

#[test]
fn the_number_of_streams_is_bounded() {
    let admin = Admin::start(&["--nsqd-http-address=127.0.0.1:1"]);
    let open = || {
        let mut stream = admin.connect(b"GET /api/live/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        (head, stream)
    };
    let streams: Vec<_> = (0..256).map(|_| open()).collect();
    assert!(streams.iter().all(|(head, _)| head == b"HTTP/1.1 200"));
    assert_eq!(&open().0, b"HTTP/1.1 503");
    drop(streams);
    let is_free = test_support::wait_until(TIMEOUT, || open().0 == *b"HTTP/1.1 200");
    assert!(is_free, "closed streams make room");
}
