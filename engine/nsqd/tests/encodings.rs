//! Compressed bodies of `/pub` and `/mpub`, with the encoders that clients use.

use std::io::Write;
use std::process::Command;

use crate::support::{
    Broker, Client, Response, TIMEOUT, http_with_headers, is_installed, rss, wait_until,
};
use flate2::Compression;
use flate2::write::GzEncoder;

const ENCODINGS: [&str; 2] = ["gzip", "zstd"];

fn encode(encoding: &str, body: &[u8]) -> Vec<u8> {
    if encoding == "zstd" {
        return zstd::encode_all(body, 3).expect("memory can be encoded");
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).expect("memory can be written");
    encoder.finish().expect("memory can be written")
}

fn post(broker: &Broker, target: &str, encoding: &str, body: &[u8]) -> Response {
    let header = format!("Content-Encoding: {encoding}");
    http_with_headers(broker.http_addr(), "POST", target, &[&header], body)
}

/// Returns a consumer that may get many messages.
fn consumer(broker: &Broker) -> Client {
    broker.consumer("t", "c", 1000)
}

fn message_count(broker: &Broker) -> u64 {
    let topic = broker.topic_stats("t");
    topic.map_or(0, |topic| {
        topic["message_count"].as_u64().expect("a number")
    })
}

fn next_body(consumer: &mut Client) -> Vec<u8> {
    let message = consumer.take();
    message.body
}

#[test]
fn encoded_bodies_are_published_decoded() {
    let broker = Broker::start(2, &[]);
    let mut consumer = consumer(&broker);
    let long = b"0123456789".repeat(100_000);
    for encoding in ENCODINGS {
        for body in [&b"hello"[..], &long] {
            let answer = post(&broker, "/pub?topic=t", encoding, &encode(encoding, body));
            assert_eq!(answer.expect_status(200).text(), "OK");
            assert!(next_body(&mut consumer) == body);
        }
        let lines = encode(encoding, b"one\ntwo\n\nthree");
        post(&broker, "/mpub?topic=t", encoding, &lines).expect_status(200);
        let binary = b"\0\0\0\x02\0\0\0\x04four\0\0\0\x04five";
        let binary = encode(encoding, binary);
        post(&broker, "/mpub?topic=t&binary=true", encoding, &binary).expect_status(200);
        for body in ["one", "two", "three", "four", "five"] {
            assert_eq!(next_body(&mut consumer), body.as_bytes());
        }
    }
    post(&broker, "/pub?topic=t", "identity", b"plain").expect_status(200);
    assert_eq!(next_body(&mut consumer), b"plain");
}

#[test]
fn bodies_that_cannot_be_decoded_publish_nothing() {
    let broker = Broker::start(1, &[]);
    let refused = |target: &str, encoding: &str, body: &[u8], status: u16, word: &str| {
        let answer = post(&broker, target, encoding, body).expect_status(status);
        assert_eq!(answer.json()["message"], word);
        answer
    };
    for target in ["/pub?topic=t", "/mpub?topic=t", "/mpub?topic=t&binary=1"] {
        for encoding in ENCODINGS {
            let whole = encode(encoding, b"\0\0\0\x01\0\0\0\x01a\n");
            for count in 0..whole.len() {
                refused(target, encoding, &whole[..count], 400, "INVALID_ENCODING");
            }
            let with_more = [&whole[..], b"more"].concat();
            refused(target, encoding, &with_more, 400, "INVALID_ENCODING");
            refused(target, encoding, b"plain", 400, "INVALID_ENCODING");
        }
        for unknown in ["br", "deflate", "gzip, zstd", "gzip, gzip"] {
            let answer = refused(target, unknown, b"hello", 415, "UNSUPPORTED_ENCODING");
            assert_eq!(answer.header("accept-encoding"), Some("gzip, zstd"));
        }
    }
    assert_eq!(message_count(&broker), 0);
}

/// The limits count decoded bytes. The memory of the broker stays small, whatever a body would be if it were decoded.
#[test]
fn limits_are_those_of_the_decoded_bytes() {
    let broker = Broker::start(1, &["--max-msg-size=1000", "--max-body-size=2000"]);
    for encoding in ENCODINGS {
        let check = |target: &str, body: &[u8], status: u16, word: &str| {
            let answer = post(&broker, target, encoding, &encode(encoding, body));
            let answer = answer.expect_status(status);
            if status != 200 {
                assert_eq!(answer.json()["message"], word);
            }
        };
        check("/pub?topic=t", &[b'x'; 1000], 200, "");
        check("/pub?topic=t", &[b'x'; 1001], 413, "MSG_TOO_BIG");
        check("/mpub?topic=t", &b"x\n".repeat(1000), 200, "");
        check("/mpub?topic=t", &b"x\n".repeat(1001), 413, "BODY_TOO_BIG");
        check("/mpub?topic=t", &[b'x'; 1001], 413, "MSG_TOO_BIG");
        check("/mpub?topic=t&binary=1", &[0; 2001], 413, "BODY_TOO_BIG");
    }
}

#[test]
fn a_bomb_takes_no_memory() {
    let broker = Broker::start(1, &[]);
    let before = rss(broker.pid()).total_bytes;
    for encoding in ENCODINGS {
        let bomb = encode(encoding, &vec![0; 256 << 20]);
        for target in ["/pub?topic=t", "/mpub?topic=t", "/mpub?topic=t&binary=1"] {
            post(&broker, target, encoding, &bomb).expect_status(413);
        }
        // Frames and members without content never reach the limit of the decoded bytes.
        let empty = encode(encoding, b"").repeat(300_000);
        post(&broker, "/pub?topic=t", encoding, &empty).expect_status(413);
    }
    let grown = rss(broker.pid()).total_bytes.saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
    assert_eq!(broker.get("/ping").expect_status(200).text(), "OK");
}

#[test]
fn curl_sends_what_gzip_and_zstd_write() {
    if !is_installed("curl", "apt install curl") {
        return;
    }
    let broker = Broker::start(2, &[]);
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let file = directory.path().join("body");
    let mut published = 0;
    for encoding in ENCODINGS {
        if !is_installed(encoding, &format!("apt install {encoding}")) {
            continue;
        }
        // These programs announce no length, as they read from a pipe.
        let script = format!("for i in $(seq 500); do echo line $i; done | {encoding} -c");
        let written = Command::new("sh").args(["-c", &script]).output();
        let written = written.expect("there is a shell").stdout;
        std::fs::write(&file, written).expect("the file can be written");
        let sent = Command::new("curl")
            .args(["--disable", "--noproxy", "*", "-s", "-S", "--fail"])
            .args(["-H", &format!("Content-Encoding: {encoding}")])
            .args(["--data-binary", &format!("@{}", file.display())])
            .arg(format!("http://{}/mpub?topic=t", broker.http_addr()))
            .output()
            .expect("curl can be run");
        assert!(sent.status.success(), "{sent:?}");
        published += 500;
    }
    let is_complete = || message_count(&broker) == published;
    assert!(
        wait_until(TIMEOUT, is_complete),
        "{}",
        message_count(&broker)
    );
}
