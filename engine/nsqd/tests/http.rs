//! The HTTP interface of a real broker: its log, the requests that it refuses, and the answers of its own. The recorded
//! cases (`differential/http_*.case`) have all other answers.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::{Broker, Response, TIMEOUT, http, http_with_headers, nsqd_path, parse_http};

/// Sends the lines of a head and a body.
fn send(broker: &Broker, head: &[&str], body: &str) -> Response {
    let mut stream = TcpStream::connect(broker.http_addr()).expect("it listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let (head, length) = (head.join("\r\n"), body.len());
    let request = format!("{head}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");
    parse_http(&answer, false).expect("it is an HTTP response")
}

#[test]
fn requests_are_logged_but_not_publishes() {
    let broker = Broker::start(1, &[]);
    broker.admin("/topic/create?topic=t");
    broker.wait_for_log("200 POST /topic/create?topic=t (");
    let bad_escape = "invalid URL escape \"%zz\"";
    let rows = [
        (
            "POST /topic/create?topic=",
            &["INFO: 400 POST /topic/create?topic= (127.0.0.1:"][..],
        ),
        ("GET /nope", &["INFO: 404 GET /nope (127.0.0.1:"]),
        ("PUT /ping", &["INFO: 405 PUT /ping ("]),
        ("GET http://any/ping?x", &["INFO: 200 GET /ping?x ("]),
        ("POST /pub?topic=t", &[]),
        ("POST /mpub?topic=t", &[]),
        ("GET /PING", &[]),
        ("OPTIONS /ping", &[]),
        (
            "POST /mpub?topic=t&binary=False",
            &["WARNING: deprecated value 'False' used for /mpub binary param"],
        ),
        (
            "POST /pub?topic=t;x",
            &[
                "WARNING: http: URL query contains semicolon, ",
                "ERROR: failed to parse request params - invalid semicolon separator in query",
            ],
        ),
        (
            "GET /stats?a=%zz",
            &[
                &format!("ERROR: failed to parse request params - {bad_escape}"),
                "INFO: 400 GET /stats?a=%zz (",
            ],
        ),
    ];
    for (index, (request, lines)) in rows.into_iter().enumerate() {
        let mark = format!("GET /mark?{index}!");
        let before = broker.log().len();
        send(
            &broker,
            &[&format!("{request} HTTP/1.1"), "Host: x"],
            "body",
        );
        send(&broker, &[&format!("{mark} HTTP/1.1"), "Host: x"], "");
        broker.wait_for_log(&mark);
        let log = broker.log().split_off(before);
        let is_of_request = |line: &&str| !line.contains(" NSQ: ") && !line.contains(&mark);
        let written: Vec<&str> = log.lines().filter(is_of_request).collect();
        assert_eq!(written.len(), lines.len(), "{request}: {log}");
        for (line, start) in written.iter().zip(lines) {
            assert!(line.contains(start), "{request}: {log}");
        }
    }
}

/// A page of any site could delete topics of an nsqd that its visitor's browser reaches.
#[test]
fn pages_of_other_sites_only_publish() {
    let broker = Broker::start(1, &[]);
    let ask = |method: &str, target: &str, mark: &str| {
        http_with_headers(broker.http_addr(), method, target, &[mark], b"body")
    };
    let verbs = ["create", "delete", "empty", "unempty", "pause", "unpause"];
    let of_verb =
        |verb: &str| ["topic", "channel"].map(|kind| format!("/{kind}/{verb}?topic=t&channel=c"));
    let mut changes: Vec<(&str, String)> = Vec::new();
    changes.extend(
        verbs
            .iter()
            .flat_map(|verb| of_verb(verb))
            .map(|target| ("POST", target)),
    );
    for target in ["/debug/pprof/symbol", "/debug/freememory"] {
        changes.push(("POST", target.to_owned()));
    }
    for target in ["/config/log_level", "/config/drain", "/debug/setblockrate"] {
        changes.push(("PUT", target.to_owned()));
    }
    for mark in ["Origin: http://evil.example", "Sec-Fetch-Site: cross-site"] {
        for (method, target) in &changes {
            ask(method, target, mark).expect_error(403, "FORBIDDEN_ORIGIN");
        }
        for target in ["/pub?topic=t", "/mpub?topic=t"] {
            ask("POST", target, mark).expect_status(200);
        }
        ask("GET", "/stats", mark).expect_status(200);
    }
    assert_eq!(broker.topic("t")["message_count"], 4);
    assert_eq!(broker.topic("t")["channels"], serde_json::json!([]));
}

#[test]
fn with_allowed_hosts_no_other_name_is_served() {
    let broker = Broker::start(1, &["--allowed-host=nsq.example.com"]);
    let ask = |host: &str| {
        let host = format!("Host: {host}");
        send(&broker, &["POST /pub?topic=t HTTP/1.1", &host], "body")
    };
    for known in [
        "nsq.example.com:4151",
        "NSQ.example.com",
        "localhost",
        "10.0.0.1:4151",
    ] {
        ask(known).expect_status(200);
    }
    let expected = concat!(
        r#"{"message":"MISDIRECTED_HOST","reason":"evil.example is no name of this server; "#,
        r#"if it is one, start the server with --allowed-host=evil.example"}"#
    );
    assert_eq!(ask("evil.example:4151").expect_status(421).text(), expected);
    assert_eq!(broker.topic("t")["message_count"], 4);
}

#[test]
fn the_profiler_says_where_to_look() {
    let broker = Broker::start(1, &[]);
    let get = |path: &str| {
        broker
            .get(&format!("/debug/pprof/{path}"))
            .expect_status(200)
            .text()
    };
    let program = nsqd_path();
    assert_eq!(get("cmdline").split('\0').next(), program.to_str());
    for profile in ["", "heap", "goroutine", "block", "threadcreate", "profile"] {
        assert!(get(profile).contains("not written in Go"), "{profile}");
    }
}

#[test]
fn bad_origins_and_forbidden_peeks_are_refused() {
    let broker = Broker::start(1, &["--peek=false"]);
    for (target, answer) in [
        (
            "/pub?topic=t&publisher=7f",
            (400, "{\"message\":\"INVALID_NUMBER\"}"),
        ),
        ("/pub?topic=t&publisher=7f&number=3", (200, "OK")),
        ("/mpub?topic=t&publisher=7F&number=4", (200, "OK")),
    ] {
        let found = broker.post(target, b"x");
        assert_eq!((found.status, found.text().as_str()), answer, "{target}");
    }
    let answer = http(broker.http_addr(), "PUT", "/config/drain", b"1");
    answer.expect_error(400, "INVALID_VALUE");
    let forbidden = |broker: &Broker, part: &str| {
        let text = broker.get("/topic/peek?topic=t").expect_status(403).text();
        assert!(
            text.contains("PEEK_FORBIDDEN") && text.contains(part),
            "{text}"
        );
    };
    forbidden(&broker, "a start without this flag");
    let asks = Broker::start(1, &["--auth-http-address=127.0.0.1:1"]);
    forbidden(&asks, "consume the channel");
}
