use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use engine_rules::Pause;
use engine_rules::stats::{
    ChannelCounters, ChannelStats, ClientStats, ConsumerCounters, DeadLetterStats, LatencyStats,
    NumberStats, Percentile, PubCount, TopicStats,
};
use futures_lite::{AsyncRead, AsyncWrite};

use super::*;
use crate::config::Config;
use crate::process::Ports;
use program::http::{Awaited, HEAD_BYTES_MAX};
use program::log::capture;

/// A connection whose peer has sent everything and then says no more.
struct Peer {
    input: Vec<u8>,
    read_bytes: usize,
    /// Bytes that come with one read.
    at_once: usize,
    output: Rc<RefCell<Vec<u8>>>,
}

impl AsyncRead for Peer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        target: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let left = self.input.len() - self.read_bytes;
        let count = target.len().min(left).min(self.at_once);
        target[..count].copy_from_slice(&self.input[self.read_bytes..self.read_bytes + count]);
        self.read_bytes += count;
        Poll::Ready(Ok(count))
    }
}

impl AsyncWrite for Peer {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.output.borrow_mut().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Io for Peer {
    fn begin(&mut self, _: Awaited) {}
}

/// A broker that writes down what it is asked, and knows the topic `t` with the channel `c`.
struct Fake {
    info: Info,
    calls: RefCell<Vec<String>>,
    publish_error: Option<PublishError>,
    health: Result<(), String>,
    is_started: bool,
    is_draining: Cell<bool>,
    snapshot: StatsSnapshot,
    shards: Vec<ShardStats>,
    busy: Vec<Background>,
    moves: bool,
    lookupd_addresses: RefCell<Option<Vec<String>>>,
}

fn fake() -> Fake {
    let flags = ["--log-prefix=[x] ".into(), "--max-rdy-count=-3".into()];
    let config = Config {
        broadcast_address: "node1.example.com".to_string(),
        msg_bytes_max: 10,
        body_bytes_max: 24,
        ..Config::from_args_on_host(flags, "node1").expect("these are good")
    };
    Fake {
        info: Info {
            config: Arc::new(config),
            ports: Ports {
                tcp: 4150,
                http: 4151,
                https: 4152,
            },
            announced: Ports {
                tcp: 4150,
                http: 80,
                https: 0,
            },
            statsd_prefix: "nsq.node1_80.".to_string(),
            host_names: None,
            start_time: SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_252_135),
        },
        calls: RefCell::default(),
        publish_error: None,
        health: Ok(()),
        is_started: true,
        is_draining: Cell::default(),
        snapshot: StatsSnapshot::default(),
        shards: Vec::new(),
        busy: Vec::new(),
        moves: false,
        lookupd_addresses: RefCell::new(Some(Vec::new())),
    }
}

impl Fake {
    fn note(&self, call: String) {
        self.calls.borrow_mut().push(call);
    }

    fn topic_call(&self, verb: &str, topic: &str) -> Result<(), AdminError> {
        self.note(format!("{verb} {topic}"));
        if topic == "t" {
            Ok(())
        } else {
            Err(AdminError::TopicNotFound)
        }
    }

    fn channel_call(&self, verb: &str, topic: &str, channel: &str) -> Result<(), AdminError> {
        self.note(format!("{verb} {topic} {channel}"));
        match (topic, channel) {
            ("t", "c") => Ok(()),
            ("t", "bad") => Err(AdminError::Backend("disk".to_string())),
            ("t", _) => Err(AdminError::ChannelNotFound),
            _ => Err(AdminError::TopicNotFound),
        }
    }
}

impl Broker for Fake {
    async fn publish(
        &self,
        topic: &str,
        bodies: Bodies,
        defer: Option<Duration>,
        origin: Option<Origin>,
    ) -> Result<(), PublishError> {
        let bodies: Vec<String> = bodies
            .iter()
            .map(|body| String::from_utf8_lossy(body).into_owned())
            .collect();
        let origin = origin.map(|it| format!(" {:x} {}", it.publisher, it.number));
        let origin = origin.unwrap_or_default();
        self.note(format!("publish {topic} {bodies:?} {defer:?}{origin}"));
        self.publish_error.clone().map_or(Ok(()), Err)
    }

    async fn administer(
        &self,
        topic: &str,
        channel: Option<&str>,
        command: Command,
    ) -> Result<(), AdminError> {
        let verb = match &command {
            Command::Empty(None) => "empty".to_owned(),
            Command::Pause(pause) if *pause == Pause::default() => "pause".to_owned(),
            command => format!("{command:?}").to_lowercase(),
        };
        match channel {
            Some(channel) => self.channel_call(&verb, topic, channel),
            None if command == Command::Create => {
                self.note(format!("create {topic}"));
                Ok(())
            }
            None => self.topic_call(&verb, topic),
        }
    }

    async fn stats(&self, filter: &StatsFilter) -> StatsSnapshot {
        let mut snapshot = self.snapshot.clone();
        snapshot
            .topics
            .retain(|topic| filter.wants_topic(&topic.topic_name));
        for topic in &mut snapshot.topics {
            topic
                .channels
                .retain(|channel| filter.wants_channel(&channel.channel_name));
            let channels = topic.channels.iter_mut();
            for channel in channels.filter(|_| !filter.include_clients) {
                channel.clients = None;
            }
        }
        snapshot
    }

    async fn peek(&self, question: &PeekQuestion) -> Result<PeekSlice, AdminError> {
        let verb = "peek";
        match &question.channel {
            Some(channel) => self.channel_call(verb, &question.topic, channel)?,
            None => self.topic_call(verb, &question.topic)?,
        }
        Ok(PeekSlice::default())
    }

    async fn peek_again(
        &self,
        _: &str,
        _: Vec<Seq>,
        _: PeekBudget,
    ) -> Result<Vec<PeekedFrame>, AdminError> {
        Ok(Vec::new())
    }

    fn cold_reader(&self) -> ColdReader {
        Box::new(|_, _, _, _| Vec::new())
    }

    async fn shards(&self) -> Vec<ShardStats> {
        self.shards.clone()
    }

    fn begin_in_background(
        &self,
        kind: Background,
        job: impl FnOnce() + Send + 'static,
    ) -> Result<(), Busy> {
        if self.busy.contains(&kind) {
            return Err(Busy);
        }
        job();
        Ok(())
    }

    async fn topic_names(&self) -> Vec<String> {
        let topics = self.snapshot.topics.iter();
        topics.map(|topic| topic.topic_name.clone()).collect()
    }

    fn health(&self) -> Result<(), String> {
        self.health.clone()
    }

    fn is_started(&self) -> bool {
        self.is_started
    }

    fn is_stopping(&self) -> bool {
        self.publish_error == Some(PublishError::Exiting)
    }

    fn is_draining(&self) -> bool {
        self.is_draining.get()
    }

    async fn set_draining(&self, is_draining: bool) -> Result<(), AdminError> {
        if self.is_stopping() {
            return Err(AdminError::Exiting);
        }
        self.is_draining.set(is_draining);
        Ok(())
    }

    fn lookupd_addresses(&self) -> Option<Vec<String>> {
        self.lookupd_addresses.borrow().clone()
    }

    fn set_lookupd_addresses(&self, addresses: Option<Vec<String>>) {
        *self.lookupd_addresses.borrow_mut() = addresses;
    }

    fn info(&self) -> &Info {
        &self.info
    }

    fn is_secure(&self) -> bool {
        false
    }

    fn is_better_elsewhere(&self) -> bool {
        self.moves
    }
}

/// Sends bytes to the broker; returns what comes back, with dates cut out, and the log.
fn talk_bytes(broker: &Rc<Fake>, input: &[u8]) -> (String, Vec<String>) {
    talk_slowly(broker, input, usize::MAX)
}

/// The same, a few bytes at a time.
fn talk_slowly(broker: &Rc<Fake>, input: &[u8], at_once: usize) -> (String, Vec<String>) {
    let output = Rc::new(RefCell::new(Vec::new()));
    let peer = Peer {
        input: input.to_vec(),
        read_bytes: 0,
        at_once,
        output: output.clone(),
    };
    capture::start();
    let address = super::Peer::Ip(([127, 0, 0, 1], 59002).into());
    let never = std::future::pending();
    let mut connection = Connection::new(peer, b"");
    let served = serve_connection(&mut connection, &address, &**broker, never);
    assert_eq!(futures_lite::future::block_on(served), Served::ToTheEnd);
    let log = capture::stop();
    let text = String::from_utf8(output.borrow().clone()).unwrap();
    let without_dates: String = text
        .split_inclusive("\r\n")
        .filter(|line| !line.starts_with("Date: "))
        .collect();
    (without_dates, log)
}

fn talk(broker: &Rc<Fake>, input: &str) -> String {
    talk_bytes(broker, input.as_bytes()).0
}

/// Sends one request; returns the status and the body.
fn ask(broker: &Rc<Fake>, method: &str, target: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let request =
        format!("{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}");
    status_and_body(&talk(broker, &request))
}

fn status_and_body(answer: &str) -> (u16, String) {
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("{answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_string())
}

/// The word in an error's JSON.
fn failure(answer: (u16, String)) -> (u16, String) {
    let word = answer
        .1
        .strip_prefix("{\"message\":\"")
        .and_then(|rest| rest.strip_suffix("\"}"));
    (
        answer.0,
        word.unwrap_or_else(|| panic!("{answer:?}")).to_string(),
    )
}

fn is_failure(answer: (u16, String), status: u16, word: &str) {
    assert_eq!(failure(answer), (status, word.to_string()));
}

fn calls(broker: &Rc<Fake>) -> Vec<String> {
    broker.calls.take()
}

#[test]
fn readiness_is_apart_from_liveness() {
    let check = |change: fn(&mut Fake), expected: (u16, &str), ping: u16| {
        let mut broker = fake();
        change(&mut broker);
        let broker = Rc::new(broker);
        let (status, text) = ask(&broker, "GET", "/ready", "");
        assert_eq!((status, text.as_str()), expected);
        assert_eq!(ask(&broker, "GET", "/ping", "").0, ping);
    };
    check(|_| {}, (200, "OK"), 200);
    check(|it| it.is_started = false, (503, "NOK - starting"), 200);
    check(|it| it.is_draining.set(true), (503, "NOK - draining"), 200);
    let exiting: fn(&mut Fake) = |it| it.publish_error = Some(PublishError::Exiting);
    check(exiting, (503, "NOK - exiting"), 200);
    let unhealthy: fn(&mut Fake) = |it| it.health = Err("no room".to_owned());
    check(unhealthy, (503, "NOK - no room"), 500);
}

#[test]
fn the_drain_is_a_key_of_config() {
    let broker = Rc::new(fake());
    let ok = |text: &str| (200, text.to_owned());
    assert_eq!(ask(&broker, "GET", "/config/drain", ""), ok("false"));
    assert_eq!(ask(&broker, "PUT", "/config/drain", "true"), ok("true"));
    assert_eq!(ask(&broker, "GET", "/config/drain", ""), ok("true"));
    let (status, stats) = ask(&broker, "GET", "/stats?format=json&include_mem=false", "");
    assert!(
        status == 200 && stats.contains(r#""draining":true"#),
        "{stats}"
    );
    assert_eq!(ask(&broker, "PUT", "/config/drain", "1").0, 400);
    assert_eq!(ask(&broker, "PUT", "/config/drain", "false"), ok("false"));
    let mut ending = fake();
    ending.publish_error = Some(PublishError::Exiting);
    assert_eq!(ask(&Rc::new(ending), "PUT", "/config/drain", "true").0, 503);
    let mut draining = fake();
    draining.publish_error = Some(PublishError::Draining);
    let refused = ask(&Rc::new(draining), "POST", "/pub?topic=t", "x");
    assert_eq!(refused, (503, r#"{"message":"DRAINING"}"#.to_owned()));
}

#[test]
fn the_profiler_says_where_to_look() {
    let broker = Rc::new(fake());
    let get = |path: &str| ask(&broker, "GET", &format!("/debug/pprof/{path}"), "");
    let (status, arguments) = get("cmdline");
    assert_eq!(status, 200);
    let first = std::env::args().next().expect("the program's name");
    assert_eq!(arguments.split('\0').next(), Some(first.as_str()));
    for profile in ["", "heap", "goroutine", "block", "threadcreate", "profile"] {
        assert_eq!(get(profile).0, 200, "{profile}");
    }
}

#[test]
fn answers_are_these_bytes() {
    let broker = Rc::new(fake());
    let check = |request: &str, expected: &str| {
        // A page's own line ends are not those of a head.
        let answer = talk(&broker, request).replace("\r\n", "\n");
        assert_eq!(answer, expected);
    };
    check(
        "POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\nX-Nsq-Content-Type: nsq; version=1.0\nContent-Length: 2\n\
         Content-Type: text/plain; charset=utf-8\n\nOK",
    );
    check(
        "GET /pub HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "HTTP/1.1 405 Method Not Allowed\nAllow: OPTIONS, POST\n\
         Content-Type: application/json; charset=utf-8\n\
         X-Nsq-Content-Type: nsq; version=1.0\nContent-Length: 32\nConnection: close\n\n\
         {\"message\":\"METHOD_NOT_ALLOWED\"}",
    );
    check(
        "GET /ping HTTP/1.0\r\nConnection: keep-alive\r\n\r\nnonsense\n",
        "HTTP/1.0 200 OK\nContent-Length: 2\nContent-Type: text/plain; charset=utf-8\n\
         Connection: keep-alive\n\nOKHTTP/1.1 400 Bad Request\n\
         Content-Type: text/plain; charset=utf-8\nConnection: close\n\n400 Bad Request",
    );
    check(
        "GET //ping HTTP/1.1\r\nHost: x\r\n\r\n",
        "HTTP/1.1 301 Moved Permanently\nContent-Type: text/html; charset=utf-8\n\
         Location: /ping\nContent-Length: 40\n\n\
         <a href=\"/ping\">Moved Permanently</a>.\n\n",
    );
    check(
        "GET /ping HTTP/1.1\r\nHost: x\r\n",
        "HTTP/1.1 400 Bad Request\nContent-Type: text/plain; charset=utf-8\n\
         Connection: close\n\n400 Bad Request",
    );
    let start = "GET /ping HTTP/1.1\r\nHost: x\r\nA: ";
    for (length, status) in [(HEAD_BYTES_MAX, 200), (HEAD_BYTES_MAX + 1, 431)] {
        let filler = "b".repeat(length - start.len() - 4);
        let answer = talk(&broker, &format!("{start}{filler}\r\n\r\n"));
        assert_eq!(status_and_body(&answer).0, status);
    }
}

#[test]
fn requests_may_come_in_any_pieces() {
    let broker = Rc::new(fake());
    let requests = "\r\n\
        POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789\
        POST /nope HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello\n\
        POST /mpub?topic=t HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n\
        3;x\r\na\nb\r\n2\r\n\nc\r\n0\r\nA: b\r\n\r\n\
        POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\
        Content-Length: 2\r\n\r\nhi\
        GET /ping HTTP/1.0\r\n\r\n";
    let (whole, _) = talk_bytes(&broker, requests.as_bytes());
    assert_eq!(whole.matches(" 200 OK").count(), 4, "{whole}");
    assert_eq!(whole.matches(" 100 Continue").count(), 1, "{whole}");
    assert_eq!(whole.matches(" 404 Not Found").count(), 1, "{whole}");
    let expected = calls(&broker);
    assert_eq!(expected.len(), 3);
    for at_once in [1, 2, 3, 7, 50, 100] {
        let (answer, _) = talk_slowly(&broker, requests.as_bytes(), at_once);
        assert_eq!(answer, whole, "{at_once}");
        assert_eq!(calls(&broker), expected, "{at_once}");
    }
}

#[test]
fn long_bodies_arrive_whole() {
    let mut broker = fake();
    Arc::make_mut(&mut broker.info.config).msg_bytes_max = 1 << 20;
    let broker = Rc::new(broker);
    for length in [8_000, 8_192, 20_000, 300_001, 1 << 20] {
        let body: String = (0..length)
            .map(|i| char::from(b'a' + (i % 23) as u8))
            .collect();
        for at_once in [1_000, 9_000, usize::MAX] {
            let head = format!("POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: {length}");
            let request = format!("{head}\r\n\r\n{body}GET /ping HTTP/1.1\r\nHost: x\r\n\r\n");
            let (answer, _) = talk_slowly(&broker, request.as_bytes(), at_once);
            assert_eq!(
                answer.matches("\r\n\r\nOK").count(),
                2,
                "{length} {at_once}"
            );
            let expected = format!("publish t {:?} None", [&body]);
            assert!(calls(&broker) == [expected], "{length} {at_once}");
            let cut = request.len() - 100;
            let (answer, _) = talk_slowly(&broker, &request.as_bytes()[..cut], at_once);
            is_failure(status_and_body(&answer), 500, "INTERNAL_ERROR");
        }
    }
}

#[test]
fn a_connection_moves_between_requests_with_what_was_read_ahead() {
    let broker = Fake {
        moves: true,
        ..fake()
    };
    let ping = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n";
    let output = Rc::new(RefCell::new(Vec::new()));
    let peer = Peer {
        input: [&ping[..], &ping[..], b"GET /pi"].concat(),
        read_bytes: 0,
        at_once: usize::MAX,
        output: output.clone(),
    };
    capture::start();
    let mut connection = Connection::new(peer, b"");
    for _ in 0..2 {
        let address = super::Peer::Ip(([127, 0, 0, 1], 59002).into());
        let never = std::future::pending();
        let served = serve_connection(&mut connection, &address, &broker, never);
        assert_eq!(futures_lite::future::block_on(served), Served::UntilMoved);
        let (peer, unread) = connection.into_parts();
        connection = Connection::new(peer, &unread);
    }
    capture::stop();
    assert_eq!(connection.unread(), b"GET /pi");
    let answers = String::from_utf8_lossy(&output.borrow())
        .matches("200 OK")
        .count();
    assert_eq!(answers, 2);
}

#[test]
fn a_refused_publish_names_its_reason() {
    let broker = Rc::new(Fake {
        publish_error: Some(PublishError::Exiting),
        ..fake()
    });
    is_failure(ask(&broker, "POST", "/pub?topic=t", "hi"), 503, "EXITING");
    let full: fn(String) -> PublishError = PublishError::DiskFull;
    for (error, code) in [
        (full, "DISK_FULL"),
        (PublishError::Backend, "STORAGE_FAILED"),
    ] {
        let broker = Rc::new(Fake {
            publish_error: Some(error("no space left on device".to_string())),
            ..fake()
        });
        let request = "POST /mpub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";
        let (answer, log) = talk_bytes(&broker, request.as_bytes());
        let body = format!(r#"{{"message":"{code}","reason":"no space left on device"}}"#);
        assert_eq!(status_and_body(&answer), (503, body));
        let line = "WARNING: TOPIC(t): a publish is refused - no space left on device";
        assert_eq!(log, [line]);
    }
}

#[test]
fn requests_are_logged_but_not_publishes() {
    let broker = Rc::new(fake());
    let log_of = |request: &str| {
        let request = format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n");
        talk_bytes(&broker, request.as_bytes()).1
    };
    let log = log_of("POST /topic/create?topic=");
    assert_eq!(log.len(), 1);
    let duration = log[0]
        .strip_prefix("INFO: 400 POST /topic/create?topic= (127.0.0.1:59002) ")
        .unwrap_or_else(|| panic!("{log:?}"));
    assert!(duration.ends_with('s') && duration.starts_with(|c: char| c.is_ascii_digit()));
    assert!(log_of("GET /nope")[0].starts_with("INFO: 404 GET /nope (127.0.0.1:59002) "));
    assert!(log_of("HEAD /ping")[0].starts_with("INFO: 405 HEAD /ping ("));
    assert!(log_of("GET http://any/ping?x")[0].starts_with("INFO: 200 GET /ping?x ("));
    for request in [
        "POST /pub?topic=t",
        "POST /mpub?topic=t",
        "GET /PING",
        "OPTIONS /ping",
    ] {
        assert_eq!(log_of(request), [""; 0], "{request}");
    }
    let log = log_of("POST /mpub?topic=t&binary=False");
    let deprecated = "WARNING: deprecated value 'False' used for /mpub binary param";
    assert_eq!(log, [deprecated]);
    let log = log_of("POST /pub?topic=t;x");
    assert!(
        log[0].starts_with("WARNING: http: URL query contains semicolon, "),
        "{log:?}"
    );
    let log = log_of("GET /stats?a=%zz");
    assert_eq!(
        log[0],
        "ERROR: failed to parse request params - invalid URL escape \"%zz\""
    );
    assert!(log[1].starts_with("INFO: 400 GET /stats?a=%zz ("));
}

#[test]
fn unread_bodies_are_read_or_end_the_connection() {
    let broker = Rc::new(fake());
    let ping = "GET /ping HTTP/1.1\r\nHost: x\r\n\r\n";
    let request = |length: usize| {
        let body = "x".repeat(length);
        format!(
            "POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}{ping}"
        )
    };
    let answer = talk(&broker, &request(262_143));
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 2, "{answer}");
    assert!(!answer.contains("Connection: close"));
    let answer = talk(&broker, &request(262_144));
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("Connection: close"));
}

/// The state of nsqd from which the expected texts were captured.
fn captured() -> StatsSnapshot {
    let latency = |count: u64, value: f64| LatencyStats {
        count,
        percentiles: [0.99, 0.5]
            .map(|quantile| Percentile { quantile, value })
            .to_vec(),
    };
    let client = |id: &str, host: &str, port: u16| ClientStats {
        client_id: id.to_string(),
        hostname: host.to_string(),
        remote_address: format!("127.0.0.1:{port}"),
        connect_ts: 1_795_254_098,
        user_agent: "client/1.0".to_string(),
        ..Default::default()
    };
    let audit = ChannelStats {
        channel_name: "audit#ephemeral".to_string(),
        depth: 8,
        deferred_count: 1,
        counters: ChannelCounters {
            message_count: 9,
            ..Default::default()
        },
        clients: Some(Vec::new()),
        paused: true,
        e2e_processing_latency: latency(0, 0.0),
        ..Default::default()
    };
    let consumer = ClientStats {
        state: 3,
        ready_count: 5,
        in_flight_count: 4,
        counters: ConsumerCounters {
            message_count: 8,
            finish_count: 3,
            requeue_count: 1,
        },
        ..client("cons-1", "host-a", 42730)
    };
    let billing = ChannelStats {
        channel_name: "billing".to_string(),
        in_flight_count: 4,
        deferred_count: 2,
        counters: ChannelCounters {
            message_count: 9,
            global_msg_count: 8,
            requeue_count: 1,
            ..Default::default()
        },
        client_count: 1,
        clients: Some(vec![consumer]),
        e2e_processing_latency: latency(3, 102_215_749.0),
        ..Default::default()
    };
    let orders = TopicStats {
        topic_name: "orders".to_string(),
        channels: vec![billing, audit],
        message_count: 9,
        message_bytes: 61,
        e2e_processing_latency: latency(3, 102_215_749.0),
        shard: 3,
        ..Default::default()
    };
    let live = TopicStats {
        topic_name: "live#ephemeral".to_string(),
        ..Default::default()
    };
    let pub_counts = vec![PubCount {
        topic: "orders".to_string(),
        count: 8,
    }];
    let producer = ClientStats {
        pub_counts,
        ..client("prod-1", "host-p", 42742)
    };
    StatsSnapshot {
        topics: vec![orders, live],
        producers: vec![producer],
        memory: engine_rules::stats::MemoryStats {
            heap_objects: 4046,
            heap_idle_bytes: 1_835_008,
            heap_in_use_bytes: 1_769_472,
            heap_released_bytes: 1_835_008,
            next_gc_bytes: 4_194_304,
            ..Default::default()
        },
    }
}

fn broker_with_captured() -> Rc<Fake> {
    let mut broker = Fake {
        snapshot: captured(),
        ..fake()
    };
    broker.info.start_time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_254_098);
    Rc::new(broker)
}

#[test]
fn stats_as_json_are_those_of_the_specification() {
    let expected = r#"{"version":"1.3.0","health":"OK","start_time":1795254098,"topics":[{"topic_name":"live#ephemeral","channels":[],"depth":0,"backend_depth":0,"message_count":0,"message_bytes":0,"paused":false,"e2e_processing_latency":{"count":0,"percentiles":null},"oldest_unfinished_ms":0,"shard":0},{"topic_name":"orders","channels":[{"channel_name":"audit#ephemeral","depth":8,"backend_depth":0,"in_flight_count":0,"deferred_count":1,"message_count":9,"requeue_count":0,"timeout_count":0,"client_count":0,"clients":[],"paused":true,"e2e_processing_latency":{"count":0,"percentiles":[{"quantile":0.99,"value":0},{"quantile":0.5,"value":0}]},"oldest_unfinished_ms":0},{"channel_name":"billing","depth":0,"backend_depth":0,"in_flight_count":4,"deferred_count":2,"message_count":9,"global_msg_count":8,"requeue_count":1,"timeout_count":0,"client_count":1,"clients":[{"client_id":"cons-1","hostname":"host-a","version":"V2","remote_address":"127.0.0.1:42730","state":3,"ready_count":5,"in_flight_count":4,"message_count":8,"finish_count":3,"requeue_count":1,"connect_ts":1795254098,"sample_rate":0,"deflate":false,"snappy":false,"user_agent":"client/1.0","topology_zone":"","topology_region":"","tls":false,"tls_cipher_suite":"","tls_version":"","tls_negotiated_protocol":"","tls_negotiated_protocol_is_mutual":false}],"paused":false,"e2e_processing_latency":{"count":3,"percentiles":[{"quantile":0.99,"value":102215749},{"quantile":0.5,"value":102215749}]},"oldest_unfinished_ms":0}],"depth":0,"backend_depth":0,"message_count":9,"message_bytes":61,"paused":false,"e2e_processing_latency":{"count":3,"percentiles":[{"quantile":0.99,"value":102215749},{"quantile":0.5,"value":102215749}]},"oldest_unfinished_ms":0,"shard":3}],"memory":{"heap_objects":4046,"heap_idle_bytes":1835008,"heap_in_use_bytes":1769472,"heap_released_bytes":1835008,"gc_pause_usec_100":0,"gc_pause_usec_99":0,"gc_pause_usec_95":0,"next_gc_bytes":4194304,"gc_total_runs":0},"producers":[{"client_id":"prod-1","hostname":"host-p","version":"V2","remote_address":"127.0.0.1:42742","state":0,"ready_count":0,"in_flight_count":0,"message_count":0,"finish_count":0,"requeue_count":0,"connect_ts":1795254098,"sample_rate":0,"deflate":false,"snappy":false,"user_agent":"client/1.0","topology_zone":"","topology_region":"","pub_counts":[{"topic":"orders","count":8}],"tls":false,"tls_cipher_suite":"","tls_version":"","tls_negotiated_protocol":"","tls_negotiated_protocol_is_mutual":false}]}"#;
    let (status, body) = ask(
        &broker_with_captured(),
        "GET",
        "/stats?format=json",
        "ignored",
    );
    assert_eq!((status, body.as_str()), (200, expected));
}

#[test]
fn topics_are_listed_in_order() {
    let list = |broker| ask(&broker, "GET", "/topics", "");
    let none = r#"{"topics":[]}"#.to_owned();
    assert_eq!(list(Rc::new(fake())), (200, none));
    let both = r#"{"topics":["live#ephemeral","orders"]}"#.to_owned();
    assert_eq!(list(broker_with_captured()), (200, both));
}

#[test]
fn stats_have_the_keys_of_dead_letters_only_with_a_rule() {
    let mut snapshot = captured();
    let billing = &mut snapshot.topics[0].channels[0];
    billing.oldest_unfinished_ms = 61_000;
    billing.oldest_failed_attempts = 15;
    billing.dead_letters = Some(DeadLetterStats {
        topic: "orders.dead".to_string(),
        count: 7,
        waiting_count: 2,
    });
    let broker = Rc::new(Fake { snapshot, ..fake() });
    let (_, body) = ask(&broker, "GET", "/stats?format=json", "");
    let added = r#","oldest_unfinished_ms":61000,"oldest_failed_attempts":15,"dead_letter_topic":"orders.dead","dead_letter_count":7,"dead_letter_waiting_count":2}"#;
    assert!(body.contains(added), "{body}");
    assert_eq!(body.matches("dead_letter_topic").count(), 1);
}

#[test]
fn stats_have_the_keys_of_dedup_only_with_a_rule() {
    let mut snapshot = captured();
    snapshot.topics[0].numbers = Some(NumberStats {
        duplicate_count: 7,
        unchecked_count: 2,
        publisher_count: 3,
        publisher_count_max: 3120,
        evicted_count: 1,
    });
    let broker = Rc::new(Fake { snapshot, ..fake() });
    let (_, body) = ask(&broker, "GET", "/stats?format=json", "");
    let added = r#","dedup_duplicate_count":7,"dedup_unchecked_count":2,"dedup_publisher_count":3,"dedup_publisher_count_max":3120,"dedup_publisher_evicted_count":1}"#;
    assert!(body.contains(added), "{body}");
    assert_eq!(body.matches("dedup_").count(), 5);
}

#[test]
fn a_publish_may_have_an_origin() {
    let broker = Rc::new(fake());
    let (status, body) = ask(&broker, "POST", "/pub?topic=t&publisher=7f&number=3", "x");
    assert_eq!((status, &*body), (200, "OK"));
    let (status, body) = ask(
        &broker,
        "POST",
        "/mpub?topic=t&publisher=7F&number=4",
        "x\ny",
    );
    assert_eq!((status, &*body), (200, "OK"));
    let calls = broker.calls.borrow().join("\n");
    assert!(calls.contains("publish t [\"x\"] None 7f 3"), "{calls}");
    assert!(
        calls.contains("publish t [\"x\", \"y\"] None 7f 4"),
        "{calls}"
    );
    for (query, text) in [
        ("number=3", "INVALID_PUBLISHER"),
        ("publisher=0&number=3", "INVALID_PUBLISHER"),
        ("publisher=7f", "INVALID_NUMBER"),
        ("publisher=7f&number=x", "INVALID_NUMBER"),
    ] {
        let target = format!("/pub?topic=t&{query}");
        let (status, body) = ask(&broker, "POST", &target, "x");
        assert_eq!(status, 400);
        assert!(body.contains(text), "{body}");
    }
}

#[test]
fn stats_as_text_are_those_of_the_specification() {
    let (status, body) = ask(&broker_with_captured(), "GET", "/stats?format=JSON", "");
    assert_eq!(status, 200);
    let mut lines = body.split('\n');
    assert!(
        lines
            .next()
            .unwrap()
            .starts_with("nsqd v1.3.0 (built w/rust")
    );
    assert!(lines.next().unwrap().starts_with("start_time 2026-11-21T"));
    assert!(lines.next().unwrap().starts_with("uptime "));
    let rest: Vec<&str> = lines.collect();
    // Time has passed since the capture.
    let rest: Vec<&str> = rest
        .iter()
        .map(|line| line.split_once(" connected: ").map_or(*line, |(a, _)| a))
        .collect();
    let expected = "
Health: OK

Memory:
   heap_objects             \t4046
   heap_idle_bytes          \t1835008
   heap_in_use_bytes        \t1769472
   heap_released_bytes      \t1835008
   gc_pause_usec_100        \t0
   gc_pause_usec_99         \t0
   gc_pause_usec_95         \t0
   next_gc_bytes            \t4194304
   gc_total_runs            \t0

Topics:
   [live#ephemeral ] depth: 0     be-depth: 0     msgs: 0        e2e%:\x20

   [orders         ] depth: 0     be-depth: 0     msgs: 9        e2e%: 102.2ms, 102.2ms
   *P [audit#ephemeral          ] depth: 8     be-depth: 0     inflt: 0    def: 1    re-q: 0     timeout: 0     msgs: 9        e2e%: 0.0ns, 0.0ns
      [billing                  ] depth: 0     be-depth: 0     inflt: 4    def: 2    re-q: 1     timeout: 0     msgs: 9        e2e%: 102.2ms, 102.2ms
        [V2 host-a:42730 client/1.0] state: 3 inflt: 4    rdy: 5    fin: 3        re-q: 1        msgs: 8       \x20

Producers:
   [V2 host-p:42742 client/1.0] msgs: 8        topics: orders=8
";
    // Cut as above: the padding before `connected` ends in its own space.
    let expected: Vec<&str> = expected.split('\n').map(|line| line.trim_end()).collect();
    let rest: Vec<&str> = rest.iter().map(|line| line.trim_end()).collect();
    assert_eq!(rest, expected);
    assert!(
        body.contains("e2e%: \n"),
        "a line without percentiles ends in a space"
    );
    let (_, body) = ask(&Rc::new(fake()), "GET", "/stats?include_mem=false", "");
    assert!(
        body.ends_with("\nHealth: OK\n\nTopics: None\n\nProducers: None\n"),
        "{body}"
    );
}

#[test]
fn peeks_say_what_is_missing_and_what_forbids_them() {
    let broker = Rc::new(fake());
    let (status, body) = ask(&broker, "GET", "/channel/peek?topic=t&channel=c", "");
    let expected = r#"{"topic":"t","channel":"c","messages":[],"scanned_messages":0,"scanned_bytes":0,"ended_by":"end"}"#;
    assert_eq!((status, body.as_str()), (200, expected));
    assert_eq!(calls(&broker), ["peek t c"]);
    let get = |target: &str| ask(&broker, "GET", target, "");
    is_failure(get("/topic/peek?topic=x"), 404, "TOPIC_NOT_FOUND");
    is_failure(
        get("/channel/peek?topic=t&channel=x"),
        404,
        "CHANNEL_NOT_FOUND",
    );
    is_failure(get("/channel/peek?topic=t"), 400, "MISSING_ARG_CHANNEL");
    let (status, body) = get("/topic/peek?topic=t&limit=0");
    let expected = r#"{"message":"INVALID_ARG_LIMIT","reason":"limit is a number from 1 to 100"}"#;
    assert_eq!((status, body.as_str()), (400, expected));
    for (flag, part) in [
        ("--peek=false", "a start without this flag"),
        ("--auth-http-address=127.0.0.1:1", "consume the channel"),
    ] {
        let mut broker = fake();
        broker.info.config = Arc::new(Config::from_args([flag.into()]).expect("it is good"));
        let broker = Rc::new(broker);
        let (status, body) = ask(&broker, "GET", "/topic/peek?topic=t", "");
        assert_eq!(status, 403);
        assert!(
            body.contains("PEEK_FORBIDDEN") && body.contains(part),
            "{body}"
        );
        assert!(calls(&broker).is_empty());
    }
}

#[test]
fn too_many_long_answers_are_refused() {
    let busy = |kind| {
        Rc::new(Fake {
            busy: vec![kind],
            ..fake()
        })
    };
    let reports = busy(Background::Report);
    is_failure(ask(&reports, "GET", "/metrics", ""), 503, "BUSY");
    assert_eq!(ask(&reports, "GET", "/topic/peek?topic=t", "").0, 200);
    let peeks = busy(Background::Peek);
    is_failure(ask(&peeks, "GET", "/topic/peek?topic=t", ""), 503, "BUSY");
    assert_eq!(ask(&peeks, "GET", "/metrics", "").0, 200);
}

/// A page of any site could delete topics of an nsqd that its visitor's browser reaches.
#[test]
fn pages_of_other_sites_only_publish() {
    let broker = Rc::new(fake());
    let mut refused = 0;
    for (method, path, endpoint) in route::ROUTES {
        let path = path.replace('*', "log_level");
        for mark in ["Origin: http://evil.example", "Sec-Fetch-Site: cross-site"] {
            let request = format!(
                "{method} {path}?topic=t&channel=c HTTP/1.1\r\nHost: x\r\n{mark}\r\nContent-Length: 4\r\n\r\nbody"
            );
            let (status, body) = status_and_body(&talk(&broker, &request));
            let is_open = *method == "GET" || matches!(endpoint, Endpoint::Pub | Endpoint::Mpub);
            assert_eq!(status == 403, !is_open, "{request}: {status} {body}");
            refused += u32::from(status == 403);
        }
    }
    assert!(refused >= 2 * 14, "{refused}");
    let calls = calls(&broker);
    let are_harmless = calls
        .iter()
        .all(|call| call.starts_with("publish") || call.starts_with("peek"));
    assert!(are_harmless, "{calls:?}");
}

#[test]
fn with_allowed_hosts_no_other_name_is_served() {
    let names = HostNames::new("node1", ["nsq.example.com".to_owned()]);
    let mut broker = fake();
    broker.info.host_names = Some(Arc::new(names));
    let broker = Rc::new(broker);
    let ask = |host: &str| {
        let request =
            format!("POST /pub?topic=t HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4\r\n\r\nbody");
        status_and_body(&talk(&broker, &request))
    };
    for known in [
        "nsq.example.com:4151",
        "NODE1",
        "localhost",
        "10.0.0.1:4151",
    ] {
        assert_eq!(ask(known), (200, "OK".to_owned()), "{known}");
    }
    let expected = concat!(
        r#"{"message":"MISDIRECTED_HOST","reason":"evil.example is no name of this server; "#,
        r#"if it is one, start the server with --allowed-host=evil.example"}"#
    );
    assert_eq!(ask("evil.example:4151"), (421, expected.to_owned()));
    assert_eq!(calls(&broker).len(), 4);
}
