//! `nsq_pubsub` with real daemons: streams, their ends, pages, signals.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::tool::consumed::consume;
use crate::tool::{self, Tool};
use socket2::{Domain, Socket, Type};
use test_support::daemon::Daemon;
use test_support::http::{Response, http, http_with_headers};
use test_support::process::run;
use test_support::{TIMEOUT, assert_like, wait_until};

const HEAD: &str =
    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n";

/// A running nsq_pubsub. A drop kills it.
struct Pubsub {
    tool: Tool,
    http: SocketAddr,
}

impl Pubsub {
    fn start(args: impl AsRef<str>) -> Pubsub {
        let tool = Tool::of_command(&mut command(args.as_ref()));
        let http = tool.wait_for_http();
        Pubsub { tool, http }
    }

    fn of(nsqd: &Daemon, args: &str) -> Pubsub {
        Pubsub::start(format!("--nsqd-tcp-address={} {args}", nsqd.tcp))
    }

    fn get(&self, target: &str) -> Response {
        http(self.http, "GET", target, b"")
    }

    fn end(mut self, signal: &str) -> (Option<i32>, String) {
        self.tool.end(signal)
    }

    /// Waits until `/stats` has this number of messages.
    fn wait_for_total(&self, total: usize) {
        let line = format!("Total Messages: {total}\n");
        let reached = wait_until(TIMEOUT, || self.get("/stats").text().starts_with(&line));
        assert!(reached, "no {line} in {}", self.get("/stats").text());
    }
}

fn command(args: &str) -> Command {
    tool::command("nsq_pubsub", format!("--http-address=127.0.0.1:0 {args}"))
}

/// A client of a stream.
struct Client(BufReader<TcpStream>);

impl Client {
    /// Asks for a stream, and reads the head of the answer.
    fn open(pubsub: &Pubsub, query: &str) -> Client {
        let mut client = Client::ask(pubsub, query);
        client.expect_head();
        client
    }

    /// Asks for a stream as [`open`](Client::open) does, with a receive buffer of this many bytes. The
    /// kernel doubles the number.
    fn open_small(pubsub: &Pubsub, query: &str, receive_bytes: usize) -> Client {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(receive_bytes).unwrap();
        socket.connect(&pubsub.http.into()).unwrap();
        let mut client = Client::ask_on(socket.into(), query);
        client.expect_head();
        client
    }

    fn ask(pubsub: &Pubsub, query: &str) -> Client {
        Client::ask_on(TcpStream::connect(pubsub.http).unwrap(), query)
    }

    fn ask_on(mut stream: TcpStream, query: &str) -> Client {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let request = format!("GET /sub?{query} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        Client(BufReader::new(stream))
    }

    fn expect_head(&mut self) {
        let mut head = vec![0; HEAD.len()];
        self.0.read_exact(&mut head).unwrap();
        assert_eq!(String::from_utf8_lossy(&head), HEAD);
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn lines(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.line()).collect()
    }

    /// Expects that the stream has ended.
    fn expect_end(&mut self) {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).unwrap();
        assert_eq!(String::from_utf8_lossy(&rest), "");
    }
}

fn nsqd() -> Daemon {
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    nsqd
}

#[test]
fn messages_are_lines_and_finished_when_written() {
    let nsqd = nsqd();
    let pubsub = Pubsub::of(&nsqd, "");
    let mut client = Client::open(&pubsub, "topic=t&channel=c");
    nsqd.publish("t", &["one", "{\"two\":2}", "three"]);
    assert_eq!(client.lines(3), ["one", "{\"two\":2}", "three"]);
    nsqd.wait_for_answers("t", "c");
    let report = pubsub.get("/stats");
    let text = "Total Messages: 3\n\n[127.0.0.1:…] [t : c] connected: …";
    assert_like(report.text(), text);
    let kind = report.header("content-type");
    assert_eq!(kind, Some("text/plain; charset=utf-8"));
    // The client leaves, and so does its consumer.
    drop(client);
    nsqd.wait_for_figure("t", "c", "client_count", 0);
    let is_empty = || pubsub.get("/stats").text() == "Total Messages: 3\n\n";
    assert!(
        wait_until(TIMEOUT, is_empty),
        "{}",
        pubsub.get("/stats").text()
    );
}

#[test]
fn clients_of_one_channel_share_and_others_get_everything() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let nsqd = Daemon::nsqd_at(&[&lookupd], &[]);
    nsqd.create_channel("t", "shared");
    lookupd.wait_for_producers("t", 1);
    let flag = format!("--lookupd-http-address={}", lookupd.http);
    let pubsub = Pubsub::start(format!("{flag} --ephemeral-channel"));
    let mut own = [
        Client::open(&pubsub, "topic=t"),
        Client::open(&pubsub, "topic=t&channel="),
    ];
    let mut shared =
        [(); 2].map(|()| Client::open(&pubsub, "topic=t&channel=shared&max_in_flight=1"));
    nsqd.wait_for_figure("t", "shared", "client_count", 2);
    let bodies: Vec<String> = (0..20).map(|number| format!("m{number}")).collect();
    nsqd.publish("t", &bodies);
    for client in &mut own {
        let lines: BTreeSet<String> = client.lines(20).into_iter().collect();
        assert_eq!(lines, bodies.iter().cloned().collect());
    }
    pubsub.wait_for_total(60);
    for client in &mut shared {
        client
            .0
            .get_ref()
            .set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
    }
    let mut together = Vec::new();
    for client in &mut shared {
        let mut line = String::new();
        while client.0.read_line(&mut line).is_ok_and(|count| count > 0) {
            together.push(line.trim_end().to_owned());
            line.clear();
        }
    }
    together.sort();
    let mut expected = bodies;
    expected.sort();
    assert_eq!(together, expected);
    let report = pubsub.get("/stats").text();
    assert_eq!(report.matches("[t : pubsub").count(), 2, "{report}");
    assert_eq!(
        report.matches("#ephemeral] connected").count(),
        2,
        "{report}"
    );
}

#[test]
fn an_idle_stream_has_heartbeats() {
    let nsqd = nsqd();
    let pubsub = Pubsub::of(&nsqd, "--heartbeat-interval=100ms");
    let mut client = Client::open(&pubsub, "topic=t&channel=c");
    for _ in 0..3 {
        let line = client.line();
        let seconds = line
            .strip_prefix("{\"_heartbeat_\":")
            .and_then(|rest| rest.strip_suffix('}'));
        let seconds: u64 = seconds.unwrap_or_else(|| panic!("{line}")).parse().unwrap();
        assert!(seconds > 1_700_000_000, "{line}");
    }
    // Heartbeats are no messages.
    assert_like(pubsub.get("/stats").text(), "Total Messages: 0\n…");
    // Any byte of the client ends the stream.
    client.0.get_mut().write_all(b"x").unwrap();
    let ended = "stream of t/c ends: the client has ended it";
    pubsub.tool.wait_for_log(ended);
    nsqd.wait_for_figure("t", "c", "client_count", 0);
}

#[test]
fn messages_are_published_over_http() {
    let nsqd = nsqd();
    let pubsub = Pubsub::of(&nsqd, "--max-body-size=100");
    let mut client = Client::open(&pubsub, "topic=t&channel=c");
    let publish = |target: &str, body: &str| {
        let answer = http(pubsub.http, "POST", target, body.as_bytes());
        (answer.status, answer.text())
    };
    let ok = (200, "OK".to_owned());
    assert_eq!(publish("/pub?topic=t", "one body"), ok);
    assert_eq!(client.line(), "one body");
    assert_eq!(publish("/mpub?topic=t", "two\n\nthree\nfour"), ok);
    assert_eq!(client.lines(3), ["two", "three", "four"]);
    for (target, body, status, text) in [
        ("/pub", "x", 400, "MISSING_ARG_TOPIC\n"),
        ("/pub?topic=a%20b", "x", 400, "INVALID_ARG_TOPIC\n"),
        ("/pub?topic=%zz", "x", 400, "INVALID_URI\n"),
        ("/pub?topic=t", "", 400, "MSG_EMPTY\n"),
        ("/mpub?topic=t", "\n\n", 400, "MSG_EMPTY\n"),
        ("/mpub", "x", 400, "MISSING_ARG_TOPIC\n"),
        ("/pub?topic=t", &"x".repeat(101), 413, "MSG_TOO_BIG\n"),
    ] {
        assert_eq!(publish(target, body), (status, text.to_owned()), "{target}");
    }
    assert_eq!(pubsub.get("/pub?topic=t").status, 405);
    let depth = nsqd.channel("t", "c").unwrap()["message_count"].clone();
    assert_eq!(depth, 4);
    drop(nsqd);
    // The producer may learn of the end only from a publish, whose outcome is then unknown.
    let mut last = (0, String::new());
    let is_refused = || {
        last = publish("/pub?topic=t", "x");
        last.0 == 503
    };
    assert!(wait_until(TIMEOUT, is_refused), "{last:?}");
    assert!(last.1.starts_with("NOT_PUBLISHED: "), "{last:?}");
}

#[test]
fn an_nsqlookupd_names_the_nsqds_to_publish_to() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let nsqd = Daemon::nsqd_at(&[&lookupd], &[]);
    let known = || lookupd.get("/nodes").text().contains("127.0.0.1");
    assert!(wait_until(TIMEOUT, known));
    let flag = format!("--lookupd-http-address={}", lookupd.http);
    let pubsub = Pubsub::start(&flag);
    let answer = http(pubsub.http, "POST", "/pub?topic=new", b"x");
    assert_eq!((answer.status, answer.text().as_str()), (200, "OK"));
    assert_like(
        nsqd.get("/stats?format=json&topic=new").text(),
        "…\"message_count\":1…",
    );
}

/// The messages that the socket of the first client has not taken go to the second client.
#[test]
fn a_client_that_leaves_loses_no_message() {
    const MESSAGES: usize = 300;
    let nsqd = nsqd();
    let padding = "x".repeat(100_000);
    let bodies: Vec<String> = (0..MESSAGES)
        .map(|number| format!("{number} {padding}"))
        .collect();
    nsqd.publish("t", &bodies);
    let pubsub = Pubsub::of(&nsqd, "--max-in-flight=20");
    let mut first = Client::open(&pubsub, "topic=t&channel=c");
    let number = |line: &str| -> usize { line.split(' ').next().unwrap().parse().unwrap() };
    first.lines(5);
    // The client reads no more, so its socket fills up: 30 MB do not fit into it.
    wait_until_stuck(&pubsub);
    // Slow clients bound the memory: no more than 20 messages are on their way.
    let channel = nsqd.channel("t", "c").unwrap();
    let in_flight = channel["in_flight_count"].as_u64().unwrap();
    assert!((1..=20).contains(&in_flight), "{channel}");
    drop(first);
    nsqd.wait_for_figure("t", "c", "client_count", 0);
    nsqd.wait_for_figure("t", "c", "in_flight_count", 0);
    let written = total(&pubsub);
    assert!((5..MESSAGES).contains(&written), "{written}");
    let mut second = Client::open(&pubsub, "topic=t&channel=c");
    let rest: BTreeSet<usize> = second
        .lines(MESSAGES - written)
        .iter()
        .map(|line| number(line))
        .collect();
    assert_eq!(rest.len(), MESSAGES - written);
    pubsub.wait_for_total(MESSAGES);
    nsqd.wait_for_answers("t", "c");
}

/// The send buffer of a slow client's socket grew to 2.6 MB, and its messages were finished: when the
/// client left, more than a thousand messages were lost.
#[test]
fn the_messages_that_a_leaving_client_has_not_read_are_few() {
    const MESSAGES: usize = 3000;
    const BYTES: usize = 2048;
    let nsqd = nsqd();
    let padding = "x".repeat(BYTES - 1);
    nsqd.publish("t", &vec![&*padding; MESSAGES]);
    let pubsub = Pubsub::of(&nsqd, "--max-in-flight=50");
    let mut client = Client::open_small(&pubsub, "topic=t&channel=c", 4096);
    let mut read = 0;
    // A client that reads steadily makes the kernel enlarge the send buffer.
    for _ in 0..100 {
        client.line();
        read += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    wait_until_stuck(&pubsub);
    drop(client);
    nsqd.wait_for_figure("t", "c", "client_count", 0);
    nsqd.wait_for_figure("t", "c", "in_flight_count", 0);
    let depth = nsqd.channel("t", "c").unwrap()["depth"].as_u64().unwrap() as usize;
    let unread = MESSAGES - read - depth;
    // The page says 128 KiB. The client's receive buffer has 8 KiB, and so has its `BufReader`.
    let limit = (128 + 16) * 1024 / BYTES;
    assert!(unread <= limit, "{unread} messages, at most {limit}");
}

/// Waits until the sockets of the slow clients are full.
fn wait_until_stuck(pubsub: &Pubsub) {
    let mut last = 0;
    let is_stuck = || {
        std::thread::sleep(Duration::from_millis(500));
        let now = total(pubsub);
        std::mem::replace(&mut last, now) == now
    };
    assert!(wait_until(TIMEOUT, is_stuck));
}

fn total(pubsub: &Pubsub) -> usize {
    let report = pubsub.get("/stats").text();
    let number = report
        .strip_prefix("Total Messages: ")
        .and_then(|rest| rest.lines().next());
    number
        .unwrap_or_else(|| panic!("{report}"))
        .parse()
        .unwrap()
}

#[test]
fn a_client_that_takes_nothing_is_cut_off() {
    let nsqd = nsqd();
    let pubsub = Pubsub::of(&nsqd, "--client-timeout=300ms");
    let _client = Client::open(&pubsub, "topic=t&channel=c&max_in_flight=3");
    let large = "x".repeat(1_000_000);
    nsqd.publish("t", &[&*large; 30]);
    let text = "stream of t/c ends: the client has taken no bytes for too long";
    pubsub.tool.wait_for_log(text);
    nsqd.wait_for_figure("t", "c", "in_flight_count", 0);
    let depth = nsqd.channel("t", "c").unwrap()["depth"].as_u64().unwrap();
    assert_eq!(depth as usize + total(&pubsub), 30);
}

#[test]
fn wrong_requests_say_what_is_wrong() {
    let nsqd = nsqd();
    let pubsub = Pubsub::of(&nsqd, "");
    for (target, status, text) in [
        ("/sub", 400, "MISSING_ARG_TOPIC\n"),
        ("/sub?topic=a%20b", 400, "INVALID_ARG_TOPIC\n"),
        ("/sub?topic=t", 400, "MISSING_ARG_CHANNEL\n"),
        ("/sub?topic=t&channel=%2f", 400, "INVALID_ARG_CHANNEL\n"),
        (
            "/sub?topic=t&channel=c&max_in_flight=-1",
            400,
            "INVALID_ARG_MAX_IN_FLIGHT\n",
        ),
        ("/nope", 404, ""),
        ("/", 404, ""),
        ("/ping", 200, "OK"),
    ] {
        let answer = pubsub.get(target);
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (status, text),
            "{target}"
        );
    }
    assert_eq!(
        http(pubsub.http, "POST", "/stats", b"x").text(),
        "Total Messages: 0\n\n"
    );
    let mut odd = TcpStream::connect(pubsub.http).unwrap();
    odd.set_read_timeout(Some(TIMEOUT)).unwrap();
    odd.write_all(b"odd\r\n\r\n").unwrap();
    let mut answer = String::new();
    odd.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

/// A tab with a page of any site drained a channel, by any method.
#[test]
fn pages_of_other_sites_get_and_publish_nothing() {
    let nsqd = nsqd();
    nsqd.publish("t", &["kept"]);
    let pubsub = Pubsub::of(&nsqd, "");
    let ask = |method: &str, target: &str, mark: &str| {
        let answer = http_with_headers(pubsub.http, method, target, &[mark], b"x");
        (answer.status, answer.text())
    };
    let refused = (403, "FORBIDDEN_ORIGIN\n".to_owned());
    for mark in [
        "Origin: http://evil.example",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ] {
        for (method, target) in [("POST", "/pub?topic=t"), ("POST", "/mpub?topic=t")] {
            assert_eq!(
                ask(method, target, mark),
                refused,
                "{method} {target} {mark}"
            );
        }
        for method in ["GET", "POST", "HEAD"] {
            let mut stream = TcpStream::connect(pubsub.http).unwrap();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            let request =
                format!("{method} /sub?topic=t&channel=c HTTP/1.1\r\nHost: x\r\n{mark}\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
        }
        assert_eq!(ask("GET", "/ping", mark).0, 200);
    }
    let own = format!("Origin: http://{}", pubsub.http);
    assert_eq!(ask("POST", "/pub?topic=t", &own), (200, "OK".to_owned()));
    let mut client = Client::open(&pubsub, "topic=t&channel=c");
    assert_eq!(client.lines(2), ["kept", "x"]);
}

#[test]
fn without_an_nsqd_there_is_no_stream() {
    let mut nsqd = nsqd();
    let pubsub = Pubsub::of(&nsqd, "--consumer-opt=lookupd_poll_jitter,0");
    nsqd.kill();
    let answer = pubsub.get("/sub?topic=t&channel=c");
    assert_eq!((answer.status, answer.text().as_str()), (503, "NO_NSQD\n"));
    let lookupd = Daemon::nsqlookupd(&[]);
    let flag = format!("--lookupd-http-address={}", lookupd.http);
    let discovering = Pubsub::start(&flag);
    let answer = discovering.get("/sub?topic=t&channel=c");
    assert_eq!((answer.status, answer.text().as_str()), (503, "NO_NSQD\n"));
    // A stream that has begun outlives its nsqd.
    nsqd.restart();
    let mut client = Client::open(&pubsub, "topic=t&channel=c");
    nsqd.publish("t", &["before"]);
    assert_eq!(client.line(), "before");
    nsqd.restart();
    nsqd.publish("t", &["after"]);
    // The FIN may have been lost with the nsqd.
    let line = client.line();
    let line = if line == "before" {
        client.line()
    } else {
        line
    };
    assert_eq!(line, "after");
}

#[test]
fn a_signal_ends_all_streams_and_returns_their_messages() {
    for signal in ["TERM", "INT"] {
        let nsqd = nsqd();
        let pubsub = Pubsub::of(&nsqd, "");
        let mut idle = Client::open(&pubsub, "topic=t&channel=idle");
        let stuck = Client::open(&pubsub, "topic=t&channel=c");
        let large = "x".repeat(1_000_000);
        nsqd.publish("t", &["first"]);
        assert_eq!(idle.line(), "first");
        nsqd.post("/channel/pause?topic=t&channel=idle", b"")
            .expect_status(200);
        nsqd.publish("t", &[&*large; 30]);
        let is_stuck = || nsqd.channel("t", "c").unwrap()["in_flight_count"].as_u64() > Some(5);
        assert!(wait_until(TIMEOUT, is_stuck));
        let (code, log) = pubsub.end(signal);
        assert_eq!(code, Some(0), "{log}");
        idle.expect_end();
        assert_like(&log, "…stream of t/c ends: nsq_pubsub stops…");
        nsqd.wait_for_figure("t", "c", "in_flight_count", 0);
        let depth = nsqd.channel("t", "c").unwrap()["depth"].as_u64().unwrap();
        assert!((1..31).contains(&depth), "{depth}");
        // A line of which no socket has taken a byte is no attempt. Otherwise clients that leave would push messages that
        // nobody has seen to the dead letters.
        let mut attempts = consume(&nsqd, "t", "c", depth as usize, |message| {
            message.attempts()
        });
        attempts.sort_unstable();
        let last = attempts.pop();
        assert!(matches!(last, Some(1 | 2)), "{last:?}");
        assert_eq!(attempts, vec![1; depth as usize - 1]);
        drop(stuck);
    }
}

#[test]
fn a_start_that_fails_says_why() {
    let nsqd = nsqd();
    let taken = format!("--http-address={}", nsqd.http);
    let flag = format!("--nsqd-tcp-address={}", nsqd.tcp);
    let exit = run(&mut command(&format!("{taken} {flag}")), TIMEOUT);
    let text = "bind: address already in use";
    let text = format!(
        "…FATAL: listen ({}) failed - listen tcp {0}: {text}…",
        nsqd.http
    );
    exit.expect(1, &text);
    let exit = run(&mut command("--version"), TIMEOUT);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        (exit.code(), exit.stdout),
        (0, format!("nsq_pubsub v1.3.0\nringq {version}\n"))
    );
    let exit = run(&mut command(""), TIMEOUT);
    assert_like(
        &exit.stderr,
        "…--nsqd-tcp-address or --lookupd-http-address required.\n",
    );
}

/// A client still gets the bytes that its socket had taken when the tool died. All other messages come again.
#[test]
fn a_client_that_reads_to_the_end_loses_nothing_when_the_tool_is_killed() {
    const MESSAGES: usize = 1000;
    // nsqd gives the messages of a dead consumer to another one when they time out.
    let nsqd = Daemon::nsqd(&["--msg-timeout=500ms"]);
    nsqd.create_channel("t", "c");
    let padding = "x".repeat(2000);
    let bodies: Vec<String> = (0..MESSAGES)
        .map(|number| format!("{number} {padding}"))
        .collect();
    nsqd.publish("t", &bodies);
    let mut found = BTreeSet::new();
    for _ in 0..3 {
        let mut pubsub = Pubsub::of(&nsqd, "--max-in-flight=20");
        let mut client = Client::open_small(&pubsub, "topic=t&channel=c", 4096);
        found.extend(client.lines(20));
        pubsub.tool.signal("KILL");
        assert_eq!(pubsub.tool.wait().code(), None, "{}", pubsub.tool.log());
        let mut rest = String::new();
        client.0.read_to_string(&mut rest).expect("the end comes");
        // The last line may have been cut off.
        let whole = rest.rfind('\n').map_or("", |end| &rest[..end]);
        found.extend(whole.lines().map(str::to_owned));
    }
    assert!(found.len() < MESSAGES, "the kills came too late");
    let pubsub = Pubsub::of(&nsqd, "");
    let mut client = Client::open(&pubsub, "topic=t&channel=c");
    while found.len() < MESSAGES {
        let line = client.line();
        assert!(
            bodies.contains(&line),
            "{} of {MESSAGES}: {line:?}",
            found.len()
        );
        found.insert(line);
    }
    nsqd.wait_for_answers("t", "c");
    assert_eq!(found, bodies.into_iter().collect());
}
