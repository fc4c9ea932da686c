//! AUTH with an auth server that belongs to the test: the expiry of grants, and the requests to the server. The answers to
//! clients without the grants are recorded cases (`differential/auth.case`).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::support::{
    Answer, Broker, Certificates, Client, HttpServer, Launch, PATIENT, Received, TIMEOUT,
    assert_like, rss, serve_http, serve_https, wait_until,
};
use upgrade::{ClientTrust, ServerTls, server_config};

/// An auth server that answers with the present `answer`.
struct AuthServer {
    server: HttpServer,
    answer: Arc<Mutex<Answer>>,
}

impl AuthServer {
    fn start(answer: Answer) -> AuthServer {
        let answer = Arc::new(Mutex::new(answer));
        let current = answer.clone();
        AuthServer {
            server: HttpServer::start(move |_, _| current.lock().clone()),
            answer,
        }
    }

    fn flag(&self) -> String {
        format!("--auth-http-address={}", self.server.address)
    }

    fn answers(&self, answer: Answer) {
        *self.answer.lock() = answer;
    }

    fn requests(&self) -> Vec<Received> {
        self.server.requests()
    }
}

fn grants(ttl: u64, topic: &str, channels: &[&str], permissions: &[&str]) -> Answer {
    let body = serde_json::json!({
        "ttl": ttl,
        "identity": "<a>&",
        "identity_url": "http://example.com/a",
        "authorizations": [{"topic": topic, "channels": channels, "permissions": permissions}],
    });
    body.into()
}

fn all() -> Answer {
    grants(3600, ".*", &[".*"], &["subscribe", "publish"])
}

const WELCOME: &str = "{\"identity\":\"\\u003ca\\u003e\\u0026\",\"identity_url\":\"http://example.com/a\",\"permission_count\":1}";

fn auth(secret: &[u8]) -> Vec<u8> {
    Client::command_with_body("AUTH", secret)
}

fn authed(broker: &Broker) -> Client {
    let mut client = broker.client();
    client.send(&auth(b"secret"));
    client.expect_response(WELCOME);
    client
}

#[test]
fn what_a_grant_does_not_permit_makes_no_topic() {
    let server = AuthServer::start(grants(3600, "^orders$", &["^bill.*$"], &["subscribe"]));
    let broker = Broker::start(2, &[&server.flag()]);
    let publish = |line: &str| Client::command_with_body(line, b"x");
    for (sent, what) in [
        // No channel pattern fits a publish, so the publish is not permitted.
        (publish("PUB orders"), r#"PUB on "orders" """#),
        (Client::mpub("orders", &[""]), r#"MPUB on "orders" """#),
        (publish("DPUB orders 5"), r#"DPUB on "orders" """#),
        (b"SUB orders other\n".to_vec(), r#"SUB on "orders" "other""#),
        (
            b"SUB orders2 billing\n".to_vec(),
            r#"SUB on "orders2" "billing""#,
        ),
    ] {
        let mut client = authed(&broker);
        client.send(&sent);
        client.expect_error(&format!("E_UNAUTHORIZED AUTH failed for {what}"));
        client.expect_close();
    }
    assert!(broker.topic_stats("orders").is_none(), "nothing was made");
    authed(&broker).subscribe("orders", "billing");
}

#[test]
fn authorised_clients_are_served_and_shown() {
    let server = AuthServer::start(all());
    let broker = Broker::start(3, &[&server.flag()]);
    let mut client = broker.client();
    let response = client.identify(r#"{"feature_negotiation":true,"client_id":"c"}"#);
    assert!(response.contains("\"auth_required\":true"), "{response}");
    // Several commands are sent at once. They wait for the answer.
    let mut commands = auth(b"se cret&=%/\"");
    commands.extend(Client::command_with_body("PUB t", b"x"));
    client.send(&commands);
    client.expect_response(WELCOME);
    client.expect_ok();
    let request = server.requests().remove(0);
    let query = "common_name=&remote_ip=127.0.0.1&secret=se+cret%26%3D%25%2F%22&tls=false";
    let line = format!("GET /auth?{query} HTTP/1.1\r\n");
    assert!(request.head.starts_with(&line), "{request:?}");
    for (name, value) in [
        ("accept", "application/vnd.nsq; version=1.0"),
        ("accept-encoding", "gzip"),
        ("user-agent", "Go-http-client/1.1"),
        ("host", &server.server.address.to_string()),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    // Topics of all shards are used, by commands that cross shards and by moves.
    for n in 0..6 {
        client.publish(&format!("t{n}"), b"x");
        client.publish_many(&format!("t{n}"), &["y", "z"]);
        client.publish_deferred(&format!("t{n}"), 0, b"w");
    }
    for _ in 0..40 {
        client.publish("t1", b"more");
        client.publish("t2", b"more");
    }
    for _ in 0..40 {
        client.publish("t3", b"more");
    }
    client.subscribe("t2", "c");
    let clients = broker.channel("t2", "c")["clients"].clone();
    assert_eq!(clients[0]["authed"], true);
    assert_eq!(clients[0]["auth_identity"], "<a>&");
    assert_eq!(clients[0]["auth_identity_url"], "http://example.com/a");
    assert_eq!(server.requests().len(), 1, "all commands share one request");
}

#[test]
fn unusable_answers_fail() {
    let server = AuthServer::start(Answer::new(200, "{\"ttl\":1}"));
    let broker = Broker::start(1, &[&server.flag()]);
    let attempt = |error: &str| {
        let mut client = broker.client();
        client.send(&auth(b"hush-hush"));
        client.expect_error(error);
        client.expect_close();
    };
    attempt("E_UNAUTHORIZED AUTH no authorizations found");
    let got = |status, body: &str| Answer::new(status, body);
    for (answer, why) in [
        (got(201, ""), r#"got response 201 Created """#),
        (
            got(500, "boom"),
            r#"got response 500 Internal Server Error "boom""#,
        ),
        (got(403, "no"), r#"got response 403 Forbidden "no""#),
        (got(200, "hello"), "expected value"),
        (got(200, "{}"), "invalid TTL 0 (must be >0)"),
        (grants(1, "(", &[], &[]), "unable to compile topic \"(\""),
        (grants(1, "", &[], &["admin"]), "unknown permission admin"),
    ] {
        server.answers(answer);
        attempt("E_AUTH_FAILED AUTH failed");
        broker.wait_for_log(why);
    }
    broker.wait_for_log("WARNING: PROTOCOL(V2): [127.0.0.1:");
    broker.wait_for_log("E_AUTH_FAILED AUTH failed - failed to auth against");
    assert!(!broker.log().contains("hush-hush"), "the secret is one");
    // No server listens.
    let refused = Broker::start(1, &["--auth-http-address=127.0.0.1:1"]);
    let mut client = refused.client();
    client.send(&auth(b"hush-hush"));
    client.expect_error("E_AUTH_FAILED AUTH failed");
    refused.wait_for_log(
        "failed to auth against 127.0.0.1:1 - Get \"http://127.0.0.1:1/auth\": dial tcp \
         127.0.0.1:1: connect: connection refused",
    );
    assert!(!refused.log().contains("hush-hush"), "the secret is one");
}

#[test]
fn the_next_server_is_asked_when_one_fails() {
    let good = AuthServer::start(all());
    let bad = AuthServer::start(Answer::new(500, ""));
    // This server accepts and closes the connection.
    let rude = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let rude_address = rude.local_addr().expect("it is bound");
    thread::spawn(move || rude.incoming().for_each(drop));
    let flags = [
        bad.flag(),
        format!("--auth-http-address={rude_address}"),
        good.flag(),
    ];
    let broker = Broker::start(1, &flags.each_ref().map(String::as_str));
    for _ in 0..60 {
        authed(&broker);
    }
    assert_eq!(good.requests().len(), 60);
    let asked_first = bad.requests().len();
    // The broker starts anywhere in the list, so it asks the bad server about one time out of
    // three.
    assert!((1..60).contains(&asked_first), "{asked_first}");
}

#[test]
fn posts_redirects_and_urls() {
    let server = AuthServer::start(all());
    let flag = format!("--auth-http-address={}", server.server.url("/my/path?x=y"));
    let broker = Broker::start(1, &[&flag, "--auth-http-request-method=post"]);
    authed(&broker);
    let request = server.requests().remove(0);
    let asked = (request.method(), request.target());
    assert_eq!(asked, ("POST", "/my/path?x=y"));
    let form =
        r#"{"common_name":[""],"remote_ip":["127.0.0.1"],"secret":["secret"],"tls":["false"]}"#;
    assert_eq!(request.text(), form);
    assert_eq!(request.header("content-type"), Some("application/json"));
    // 307 repeats the POST, 302 becomes a GET without body, as in Go.
    for (status, method, body_bytes) in [(307, "POST", request.body.len()), (302, "GET", 0)] {
        let moved = format!("Location: {}", server.server.url("/moved"));
        let redirecting = AuthServer::start(Answer::new(status, "").with(moved));
        let broker = Broker::start(1, &[&redirecting.flag(), "--auth-http-request-method=post"]);
        authed(&broker);
        let request = server.requests().pop().expect("it was asked");
        assert_eq!((request.method(), request.target()), (method, "/moved"));
        assert_eq!(request.body.len(), body_bytes);
    }
    // A URL that already has a query gets a second question mark.
    let broker = Broker::start(1, &[&flag]);
    authed(&broker);
    let request = server.requests().pop().expect("it was asked");
    assert_like(request.target(), "/my/path?x=y?common_name=&…");
    let exit = Launch::new(1, &["--auth-http-request-method=GET"]).try_start();
    let exit = exit.err().expect("it does not start");
    assert_like(exit, "…--auth-http-request-method must be post or get…");
}

/// After the grants expire, the next command that needs them makes the broker ask again.
#[test]
fn expired_grants_are_requested_again() {
    let server = AuthServer::start(grants(1, ".*", &[".*"], &["subscribe", "publish"]));
    let broker = Broker::start(2, &[&server.flag()]);
    let mut client = authed(&broker);
    client.publish("t", b"x");
    let mut consumer = authed(&broker);
    consumer.subscribe("t", "c");
    consumer.ready(5);
    let message = consumer.message();
    let before = server.requests().len();
    thread::sleep(Duration::from_millis(1100));
    client.publish("t", b"y");
    assert_eq!(server.requests().len(), before + 1);
    // A consumer continues without new grants: only SUB is checked.
    consumer.finish(&message.id);
    consumer.message();
    // These grants are revoked.
    let mut revoked = authed(&broker);
    let mut failing = authed(&broker);
    thread::sleep(Duration::from_millis(1100));
    server.answers(Answer::new(200, "{\"ttl\":1}"));
    revoked.send(&Client::mpub("t", &["x"]));
    revoked.expect_error("E_UNAUTHORIZED AUTH failed for MPUB on \"t\" \"\"");
    revoked.expect_close();
    server.answers(Answer::new(500, ""));
    failing.send(b"SUB t c\n");
    failing.expect_error("E_AUTH_FAILED AUTH failed");
    failing.expect_close();
}

/// The timeout of an auth server is the configured one.
#[test]
fn a_slow_server_delays_only_waiting_clients() {
    let (open, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let count = Arc::new(AtomicU32::new(0));
    let asked = count.clone();
    let address = serve_http(move |_| {
        // The first request is served at once.
        if asked.fetch_add(1, Ordering::SeqCst) > 0 {
            let _ = gate.lock().recv();
        }
        all()
    });
    let flag = format!("--auth-http-address={address}");
    let broker = Broker::start(1, &[&flag, "--http-client-request-timeout=60s"]);
    let mut quick = authed(&broker);
    let mut slow = broker.client();
    let mut commands = auth(b"slow");
    commands.extend(Client::command_with_body("PUB t", b"slow"));
    commands.extend(b"NOP\nNOP\n");
    slow.send(&commands);
    // This client does not wait for the answer.
    let mut gone = broker.client();
    gone.send(&auth(b"gone"));
    assert!(wait_until(TIMEOUT, || count.load(Ordering::SeqCst) == 3));
    drop(gone);
    for _ in 0..10 {
        quick.publish("t", b"quick");
    }
    open.send(()).expect("it waits");
    open.send(()).expect("it waits");
    slow.expect_response(WELCOME);
    slow.expect_ok();
    drop(open);

    // This server never answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let flag = format!(
        "--auth-http-address={}",
        silent.local_addr().expect("it is bound")
    );
    thread::spawn(move || {
        let held: Vec<_> = silent.incoming().collect();
        drop(held);
    });
    let broker = Broker::start(1, &[&flag, "--http-client-request-timeout=300ms"]);
    let mut client = broker.client();
    client.send(&auth(b"secret"));
    client.expect_error("E_AUTH_FAILED AUTH failed");
    client.expect_close();
}

/// An auth server that answers only clients with the secret `quick` until it is opened.
struct SlowAuth {
    flag: String,
    asked: Arc<Mutex<Vec<String>>>,
    /// Dropping the sender opens the server.
    closed: Option<mpsc::Sender<()>>,
}

impl SlowAuth {
    fn start(quick: &'static str, ttl: u64) -> SlowAuth {
        let (closed, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = asked.clone();
        let address = serve_http(move |request| {
            let body: serde_json::Value = request.json();
            let secret = body["secret"][0].as_str().expect("a text").to_owned();
            let is_quick = secret == quick;
            noted.lock().push(secret);
            if !is_quick {
                // Receiving fails when the sender is dropped. That opens the server.
                let _ = gate.lock().recv();
            }
            grants(ttl, ".*", &[".*"], &["subscribe", "publish"])
        });
        SlowAuth {
            flag: format!("--auth-http-address={address}"),
            asked,
            closed: Some(closed),
        }
    }

    fn broker(&self, shards: usize) -> Broker {
        let flags = [
            &self.flag,
            "--auth-http-request-method=post",
            "--http-client-request-timeout=10m",
        ];
        Broker::start(shards, &flags)
    }

    fn open(&mut self) {
        self.closed = None;
    }

    /// Counts the requests with secrets that begin with `secret`.
    fn count(&self, secret: &str) -> usize {
        let asked = self.asked.lock();
        asked
            .iter()
            .filter(|asked| asked.starts_with(secret))
            .count()
    }

    /// Connects new clients until the most requests that may run at the same time are running.
    fn occupy(&self, broker: &Broker) -> Vec<Client> {
        let strangers = (0..QUESTIONS_MAX).map(|n| stranger(broker, &format!("stranger {n}")));
        let strangers: Vec<Client> = strangers.collect();
        let are_asked_for = wait_until(TIMEOUT, || self.count("stranger") == QUESTIONS_MAX);
        assert!(are_asked_for, "only {}", self.count("stranger"));
        strangers
    }
}

/// The most requests that run at the same time.
const QUESTIONS_MAX: usize = 64;

fn stranger(broker: &Broker, secret: &str) -> Client {
    let mut client = broker.client();
    client.send(&auth(secret.as_bytes()));
    client
}

/// The memory for long secrets that wait is bounded. Clients with an ordinary secret are still
/// served.
#[test]
fn secrets_that_wait_take_a_bounded_amount_of_memory() {
    const SECRET_BYTES: usize = 1_000_000;
    const STRANGERS: usize = 500;
    /// The number of secrets that fit into 16 MiB. The first 4 KiB of each secret do not count.
    const TAKEN: usize = 16;
    let mut server = SlowAuth::start("", 3600);
    let broker = server.broker(2);
    let mut strangers = server.occupy(&broker);
    let before = rss(broker.pid()).anonymous_bytes;
    let (answers, answered) = mpsc::channel();
    for _ in 0..STRANGERS {
        let answers = answers.clone();
        let mut client = stranger(&broker, &"x".repeat(SECRET_BYTES));
        client.set_read_timeout(TIMEOUT * 10);
        thread::spawn(move || {
            let text = client
                .try_frame()
                .map(|frame| frame.map(|frame| frame.text()));
            // The test may have failed in the meantime.
            let _ = answers.send(text);
        });
    }
    let next = || {
        let text = answered.recv_timeout(TIMEOUT).expect("an answer in time");
        text.expect("the connection works").expect("a frame")
    };
    for _ in TAKEN..STRANGERS {
        assert_eq!(next(), "E_AUTH_FAILED AUTH failed");
    }
    broker.wait_for_log("too many questions wait for an auth server");
    let grown = rss(broker.pid()).anonymous_bytes.saturating_sub(before);
    eprintln!("auth: {} KiB for {TAKEN} secrets that wait", grown / 1024);
    // This limit covers the secrets, the threads, the allocator's reserve, and secrets that were
    // half read at the same time.
    assert!(
        grown < (STRANGERS * SECRET_BYTES / 2) as u64,
        "{grown} bytes"
    );
    let mut newcomer = stranger(&broker, "newcomer");
    server.open();
    for _ in 0..TAKEN {
        assert_eq!(next(), WELCOME);
    }
    newcomer.expect_response(WELCOME);
    strangers
        .iter_mut()
        .for_each(|stranger| stranger.expect_response(WELCOME));
}

/// Requests for new clients have a queue. Requests for clients whose grants have expired do not
/// wait in this queue.
#[test]
fn new_clients_do_not_delay_authorised_ones() {
    let mut server = SlowAuth::start("known", 1);
    let broker = server.broker(1);
    let mut known = stranger(&broker, "known");
    known.expect_response(WELCOME);
    let strangers = server.occupy(&broker);
    let waiting: Vec<Client> = (0..100).map(|_| stranger(&broker, "waits")).collect();
    let is_renewed = wait_until(TIMEOUT, || {
        known.publish("topic", b"x");
        server.count("known") > 2
    });
    assert!(is_renewed, "the grants have expired twice");
    server.open();
    for mut client in strangers.into_iter().chain(waiting) {
        client.expect_response(WELCOME);
    }
}

/// Answers every request on every connection with this text.
fn serve_text(answer: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            // The client may close the connection.
            let _ = stream.read(&mut request);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

/// The auth server speaks no HTTP, cuts its answer short, or never ends it.
#[test]
fn a_server_that_speaks_nonsense_fails() {
    for answer in [
        "garbage\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"ttl\"",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "",
    ] {
        let flag = format!("--auth-http-address={}", serve_text(answer.to_owned()));
        let broker = Broker::start(1, &[&flag]);
        let mut client = broker.client();
        client.send(&auth(b"secret"));
        client.expect_error("E_AUTH_FAILED AUTH failed");
        client.expect_close();
    }
}

#[test]
fn servers_over_https_are_trusted_by_their_authority_and_told_who_the_client_is() {
    let certificates = Certificates::new();
    let config = server_config(&ServerTls {
        cert: &certificates.path("server.pem"),
        key: &certificates.path("server-key.pem"),
        clients: ClientTrust::Everybody,
        only_tls13: false,
    });
    let (requests, asked) = mpsc::channel();
    let address = serve_https(config.expect("its files were made above"), move |request| {
        requests.send(request.clone()).expect("somebody listens");
        all()
    });
    let server = format!("--auth-http-address=https://{address}/auth");
    let authority = certificates.flag("tls-root-ca-file", "ca.pem");
    let policy = "--tls-client-auth-policy=require-verify";
    let flags = [&[&server, &authority, policy], &PATIENT[..]].concat();
    let broker = certificates.broker(2, &flags);
    let mut client = broker.client();
    client.upgrade(&[certificates.tls_with_certificate_of(&certificates)]);
    client.send(&auth(b"secret"));
    client.expect_response(WELCOME);
    let request = asked.recv().expect("it was asked");
    assert_like(request.target(), "…common_name=client&…&tls=true");

    // The certificate of this server is its own root.
    let own = server_config(&ServerTls {
        cert: &certificates.path("ca.pem"),
        key: &certificates.path("ca-key.pem"),
        clients: ClientTrust::Everybody,
        only_tls13: false,
    });
    let own = serve_https(own.expect("its files were made above"), |_| all());
    let own = format!("--auth-http-address=https://{own}/auth");
    let broker = Broker::start(1, &[&own, &authority]);
    let mut client = broker.client();
    client.send(&auth(b"secret"));
    client.expect_response(WELCOME);

    // A server whose authority is unknown gets no request.
    let others = Certificates::new();
    let authority = others.flag("tls-root-ca-file", "ca.pem");
    let broker = Broker::start(1, &[&server, &authority]);
    let mut client = broker.client();
    client.send(&auth(b"the secret"));
    client.expect_error("E_AUTH_FAILED AUTH failed");
    let line = broker.wait_for_log("AUTH failed failed to auth against https://");
    assert!(!line.contains("secret"), "{line}");
    assert!(asked.try_recv().is_err(), "it was asked");
}
