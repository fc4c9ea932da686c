//! Tests of the HTTP interface with `curl`: publishes and questions over HTTP and HTTPS. All answers are recorded cases
//! (`differential/http_*.case`).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{
    Broker, Certificates, Client, Response, TIMEOUT, is_installed, parse_http, run, wait_until,
};
use serde_json::json;

const V1: &str = "nsq; version=1.0";
const JSON: &str = "application/json; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// A broker and the files that hold request bodies.
struct Session {
    broker: Broker,
    bodies: tempfile::TempDir,
    /// The certificates, if the broker serves HTTPS.
    certificates: Option<Certificates>,
}

impl Session {
    fn start(shards: usize, is_secure: bool) -> Session {
        let bodies = tempfile::tempdir().expect("a temporary directory can be made");
        let certificates = is_secure.then(Certificates::new);
        Session {
            broker: match &certificates {
                Some(certificates) => certificates.broker(shards, &[]),
                None => Broker::start(shards, &[]),
            },
            bodies,
            certificates,
        }
    }

    fn url(&self, target: &str) -> String {
        match self.certificates {
            Some(_) => format!("https://{}{target}", self.broker.https_addr()),
            None => format!("http://{}{target}", self.broker.http_addr()),
        }
    }

    /// Returns a curl command that knows the authority.
    fn command(&self) -> Command {
        let mut command = Command::new("curl");
        // curl ignores the user's settings and a proxy of the environment.
        command.args(["--disable", "--noproxy", "*"]);
        if let Some(certificates) = &self.certificates {
            command.args(["--cacert", &certificates.text("ca.pem")]);
        }
        command
    }

    fn curl(&self, options: &[&str], target: &str) -> Response {
        let url = self.url(target);
        let mut command = self.command();
        // --raw, because the headers that come with --include describe the raw body.
        command.args([
            "--silent",
            "--show-error",
            "--include",
            "--raw",
            "--max-time",
            "60",
        ]);
        command.args(options).arg(url);
        let output = command.output().expect("curl can be run");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success(),
            "curl {options:?} {target}: {error}"
        );
        parse_http(&output.stdout, false).expect("curl prints an HTTP response")
    }

    fn get(&self, target: &str) -> Response {
        self.curl(&[], target)
    }

    fn post(&self, target: &str, body: &[u8]) -> Response {
        let path: PathBuf = self.bodies.path().join("body");
        std::fs::write(&path, body).expect("a temporary file can be written");
        self.curl(
            &[
                "--request",
                "POST",
                "--data-binary",
                &format!("@{}", path.display()),
            ],
            target,
        )
    }

    /// Sends a POST without a body. It must succeed with an empty body.
    fn admin(&self, target: &str) {
        let response = self.post(target, b"");
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, ""),
            "{target}"
        );
        assert_eq!(response.header("x-nsq-content-type"), Some(V1), "{target}");
        assert_eq!(response.header("content-length"), Some("0"), "{target}");
    }

    /// Sends a POST that publishes.
    fn publish(&self, target: &str, body: &[u8]) {
        let response = self.post(target, body);
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, "OK"),
            "{target}"
        );
        assert_eq!(response.header("x-nsq-content-type"), Some(V1), "{target}");
        assert_eq!(response.header("content-type"), Some(TEXT), "{target}");
    }

    fn stats(&self, query: &str) -> serde_json::Value {
        let response = self.get(&format!("/stats?format=json&{query}"));
        assert_eq!(response.status, 200);
        assert_eq!(response.header("x-nsq-content-type"), Some(V1));
        assert_eq!(response.header("content-type"), Some(JSON));
        response.json()
    }

    /// Waits until a number of a channel in /stats is `value`. The number may lag behind a
    /// publication.
    fn expect_channel(&self, topic: &str, channel: &str, key: &str, value: serde_json::Value) {
        let mut last = json!(null);
        let good = wait_until(TIMEOUT, || {
            last = self.stats(&format!("topic={topic}&channel={channel}"));
            last["topics"][0]["channels"][0][key] == value
        });
        assert!(good, "{topic}/{channel}: {key} is not {value}: {last}");
    }
}

#[test]
fn curl_publishes_and_asks() {
    if !is_installed("curl", "the package curl") {
        return;
    }
    for (shards, is_secure) in [(1, false), (5, false), (5, true)] {
        let session = Session::start(shards, is_secure);
        ping_and_info(&session);
        publishing(&session);
        topics(&session);
        redirects(&session);
    }
}

/// Connections with requests for topics of several shards move together with their TLS.
#[test]
fn https_connections_move_between_shards() {
    const TOPICS: usize = 4;
    const STREAK: usize = 30;
    if !is_installed("curl", "the package curl") {
        return;
    }
    let session = Session::start(5, true);
    let topics = (0..TOPICS).flat_map(|n| std::iter::repeat_n(format!("moved-{n}"), STREAK));
    let urls: Vec<String> = topics
        .map(|topic| session.url(&format!("/pub?topic={topic}")))
        .collect();
    let mut command = session.command();
    command.args([
        "--silent",
        "--show-error",
        "--fail",
        "--data-binary",
        "a message",
    ]);
    command
        .args(["--write-out", " %{num_connects}\n"])
        .args(&urls);
    let exit = run(&mut command, TIMEOUT);
    let answers: Vec<&str> = exit.stdout.lines().collect();
    assert_eq!(answers[0], "OK 1", "{exit}");
    assert!(
        answers[1..].iter().all(|answer| *answer == "OK 0"),
        "one connection: {exit}"
    );
    for n in 0..TOPICS {
        let topic = session
            .broker
            .topic_stats(&format!("moved-{n}"))
            .expect("published to");
        assert_eq!(topic["message_count"], STREAK);
    }
}

#[test]
fn plain_http_is_told_that_it_is_https() {
    let certificates = Certificates::new();
    let broker = certificates.broker(1, &[]);
    let mut stream = TcpStream::connect(broker.https_addr()).expect("listening");
    stream
        .write_all(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
        .expect("connected");
    let mut answer = String::new();
    // A reset may follow the answer.
    let _ = stream.read_to_string(&mut answer);
    assert_eq!(
        answer,
        "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
    );
    broker.wait_for_log("WARNING: http: TLS handshake error from 127.0.0.1:");
    let mut stream = TcpStream::connect(broker.https_addr()).expect("listening");
    stream.write_all(b"garbage").expect("connected");
    broker.wait_for_log(": tls: first record does not look like a TLS handshake");
}

fn ping_and_info(session: &Session) {
    let ping = session.get("/ping");
    assert_eq!((ping.status, ping.text().as_str()), (200, "OK"));
    assert_eq!(ping.header("x-nsq-content-type"), None);
    assert_eq!(ping.header("content-type"), Some(TEXT));
    assert_eq!(ping.header("content-length"), Some("2"));

    let info = session.get("/info");
    assert_eq!(info.status, 200);
    assert_eq!(info.header("x-nsq-content-type"), Some(V1));
    assert_eq!(info.header("content-type"), Some(JSON));
    let value = info.json();
    assert_eq!(value["tcp_port"], session.broker.tcp_addr().port());
    assert_eq!(value["http_port"], session.broker.http_addr().port());
    assert_eq!(value["ringq_version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(value.as_object().map(|object| object.len()), Some(13));
}

/// Checks that everything published is delivered byte for byte.
fn publishing(session: &Session) {
    session.admin("/topic/create?topic=pub");
    session.admin("/channel/create?topic=pub&channel=all");
    session.publish("/pub?topic=pub", b"one");
    session.publish("/pub?topic=pub", &[b'm'; 1_048_576]);
    session.publish("/pub?topic=pub&defer=0", b"not deferred");
    session.publish("/mpub?topic=pub", b"line 1\nline 2\r\n\n\nline 3");
    session.publish("/mpub?topic=pub", b"");
    session.publish("/mpub?topic=pub&binary=false", b"line 4\n");
    let binary = binary_body(&[b"with\nnewline", b"\0\xff"]);
    session.publish("/mpub?topic=pub&binary=true", &binary);
    let sent = Instant::now();
    session.publish("/pub?topic=pub&defer=1500", b"deferred");
    let mut expected: Vec<Vec<u8>> = [
        b"one".as_slice(),
        &[b'm'; 1_048_576],
        b"not deferred",
        b"line 1",
        b"line 2\r",
        b"line 3",
        b"line 4",
        b"with\nnewline",
        b"\0\xff",
        b"deferred",
    ]
    .map(Vec::from)
    .to_vec();
    session.expect_channel("pub", "all", "message_count", json!(expected.len()));

    let mut client = Client::connect(session.broker.tcp_addr());
    client.subscribe("pub", "all");
    client.ready(1);
    let mut received = Vec::new();
    for _ in &expected {
        let message = client.message();
        client.finish(&message.id);
        if message.body == b"deferred" {
            assert!(sent.elapsed() >= Duration::from_millis(1500));
        }
        received.push(message.body);
    }
    expected.sort();
    received.sort();
    assert!(
        expected == received,
        "{} bodies came back changed",
        expected.len()
    );
}

fn binary_body(bodies: &[&[u8]]) -> Vec<u8> {
    let size = |length: usize| {
        u32::try_from(length)
            .expect("bodies are small")
            .to_be_bytes()
    };
    let mut bytes = size(bodies.len()).to_vec();
    for body in bodies {
        bytes.extend_from_slice(&size(body.len()));
        bytes.extend_from_slice(body);
    }
    bytes
}

/// The topics of all shards come in one list.
fn topics(session: &Session) {
    let created: Vec<String> = (10..30).map(|number| format!("listed{number}")).collect();
    for topic in created.iter().rev() {
        session.admin(&format!("/topic/create?topic={topic}"));
    }
    let answer = session.curl(&[], "/topics").expect_status(200);
    assert_eq!(answer.header("content-type"), Some(JSON));
    let mut listed = answer.json()["topics"].clone();
    let listed = listed.as_array_mut().expect("a list");
    assert!(listed.is_sorted_by_key(|name| name.as_str()), "{listed:?}");
    listed.retain(|name| name.as_str().is_some_and(|name| name.starts_with("listed")));
    assert_eq!(*listed, created);
    for topic in created {
        session.admin(&format!("/topic/delete?topic={topic}"));
    }
}

/// curl itself follows the redirect.
fn redirects(session: &Session) {
    let url = session.url("/stats/?format=json");
    let followed = run(
        session
            .command()
            .args(["--silent", "--fail", "--location", &url]),
        TIMEOUT,
    );
    test_support::assert_like(&followed.stdout, "{\"version\":\"1.3.0\"…");
}
