//! `nsq_to_http` with a real nsqd and a real HTTP server.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::tool::{QUICK, Tool, command, status_lines};
use test_support::daemon::Daemon;
use test_support::http_server::{Answer, HttpServer, Received};
use test_support::{TIMEOUT, wait_until};

const CHANNEL: &str = "nsq_to_http";

/// Starts an nsqd with these messages in the topic `t`.
fn nsqd(bodies: &[&str]) -> Daemon {
    Daemon::nsqd(&[]).with_messages("t", CHANNEL, bodies)
}

fn start(nsqd: &Daemon, args: impl AsRef<str>) -> Tool {
    let args = format!("-topic=t -nsqd-tcp-address={} {}", nsqd.tcp, args.as_ref());
    Tool::start("nsq_to_http", args)
}

/// Starts a tool that posts to these servers.
fn post(nsqd: &Daemon, servers: &[&HttpServer], args: &str) -> Tool {
    let posts = servers
        .iter()
        .map(|server| format!("-post={} ", server.url("/")));
    start(nsqd, posts.collect::<String>() + args)
}

/// Waits until all messages have their answers, and stops the tool.
fn finish(nsqd: &Daemon, tool: &mut Tool) {
    nsqd.wait_for_answers("t", CHANNEL);
    tool.stop();
}

fn ok() -> HttpServer {
    HttpServer::start(|_, _| Answer::status(200))
}

fn bodies(requests: &[Received]) -> Vec<String> {
    requests.iter().map(Received::text).collect()
}

/// The request is that of nsq_to_http 1.3.0, recorded byte for byte.
#[test]
fn the_user_of_a_url_and_custom_headers_are_sent_as_by_the_original() {
    let (nsqd, server) = (nsqd(&["one"]), ok());
    let address = server.address.to_string();
    let args = format!(
        "-post=http://us%20er:p%40ss@{address}/x -header=User-Agent:·me -header=accept-encoding:·br"
    );
    let mut tool = start(&nsqd, &args);
    let requests = server.wait_for(1);
    finish(&nsqd, &mut tool);
    let found = format!("{}\r\n{}", requests[0].head, requests[0].text());
    let expected = "POST /x HTTP/1.1\nHost: SERVER\nUser-Agent: me\nContent-Length: 3\nAccept-Encoding: br\n\
                    Authorization: Basic dXMgZXI6cEBzcw==\nContent-Type: application/octet-stream\n\none";
    let expected = expected.replace("SERVER", &address).replace('\n', "\r\n");
    assert_eq!(found, expected);
}

/// A redirect with 301, 302 or 303 makes a GET without a body of a POST. Its 200 finished a message that no server had.
#[test]
fn a_redirect_that_drops_the_body_is_a_failure() {
    let nsqd = nsqd(&["one"]);
    let server = HttpServer::start(|request, _| match request.target() {
        "/a" => Answer::status(302).with("Location: /b?c"),
        "/b?c" => Answer::status(307).with("Location: d"),
        _ => Answer::status(200),
    });
    let post = format!("-post={}", server.url("/a"));
    let tool = start(&nsqd, format!("{post} -header=X-A:·1"));
    let requests = server.wait_for(3);
    nsqd.wait_for_figure("t", CHANNEL, "requeue_count", 1);
    tool.wait_for_log(&format!("the body did not get to {}: ", server.url("/d")));
    // The requests are those of the original.
    let second = "GET /b?c HTTP/1.1\nHost: SERVER\nUser-Agent: nsq_to_http v1.3.0\n\
                  Referer: http://SERVER/a\nX-A: 1\nAccept-Encoding: gzip\n";
    let expected = second
        .replace("SERVER", &server.address.to_string())
        .replace('\n', "\r\n");
    assert_eq!(requests[1].head, expected);
    test_support::assert_like(&requests[2].head, "GET /d HTTP/1.1\r\n…");
    // The requests of a message go over one connection.
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_redirect_that_keeps_the_request_is_followed() {
    let check = |flag: &str, path: &str, statuses: [u16; 2], body: &str| {
        let nsqd = nsqd(&["one"]);
        let server = HttpServer::start(move |request, _| {
            let (status, next) = match request.target() {
                "/b" => (statuses[1], "/c"),
                "/c" => return Answer::status(200),
                _ => (statuses[0], "/b"),
            };
            Answer::status(status).with(format!("Location: {next}"))
        });
        let mut tool = start(&nsqd, format!("{flag}={}", server.url(path)));
        let requests = server.wait_for(3);
        finish(&nsqd, &mut tool);
        assert_eq!(nsqd.figure("t", CHANNEL, "requeue_count"), 0, "{flag}");
        assert_eq!(bodies(&requests), [body; 3], "{flag}");
    };
    check("-post", "/a", [307, 308], "one");
    // A GET has no body to lose: its URL had the message.
    check("-get", "/a?x=%s", [301, 303], "");
}

#[test]
fn a_sample_sends_a_share() {
    let nsqd = nsqd(&[]);
    let bodies: Vec<u8> = b"m\n".repeat(2000);
    nsqd.post("/mpub?topic=t", &bodies).expect_status(200);
    let server = ok();
    let mut tool = post(&nsqd, &[&server], "-sample=0.3 -status-every=0");
    finish(&nsqd, &mut tool);
    // The mean is 600, and the standard deviation 20.5.
    let count = server.requests().len();
    assert!((450..750).contains(&count), "{count} of 2000");
    assert_eq!(nsqd.figure("t", CHANNEL, "requeue_count"), 0);
}

#[test]
fn connections_are_used_again_unless_the_server_closes_them() {
    for closes in [false, true] {
        let nsqd = nsqd(&[]);
        nsqd.post("/mpub?topic=t", &b"m\n".repeat(300))
            .expect_status(200);
        let server = HttpServer::start(move |_, _| {
            let answer = Answer::status(200);
            if closes {
                answer.with("Connection: close")
            } else {
                answer
            }
        });
        let mut tool = post(&nsqd, &[&server], "-n=4");
        server.wait_for(300);
        finish(&nsqd, &mut tool);
        // A request that comes before the pool has a connection back makes a further one.
        let expected = if closes { 300..=300 } else { 1..=30 };
        assert!(
            expected.contains(&server.connections()),
            "{}",
            server.connections()
        );
        assert_eq!(server.requests().len(), 300);
        assert_eq!(nsqd.figure("t", CHANNEL, "requeue_count"), 0);
    }
}

#[test]
fn status_lines_have_the_originals_form() {
    let nsqd = nsqd(&["m"; 14]);
    let servers = [ok(), ok()];
    let mut tool = post(
        &nsqd,
        &[&servers[0], &servers[1]],
        "-mode=round-robin -n=1 -status-every=3",
    );
    finish(&nsqd, &mut tool);
    let log = tool.log();
    let expected = [
        (servers[0].url("/"), 2),
        (servers[1].url("/"), 2),
        ("aggregate".to_owned(), 4),
    ];
    assert_eq!(status_lines(&log), expected.into(), "{log}");
    let warning =
        "Warning: use more than 100 status values for accurate percentiles (configured with 3)";
    assert_eq!(log.matches(warning).count(), 1, "{log}");
}

#[test]
fn a_slow_request_keeps_its_message() {
    // nsqd would deliver the message again after 10 s.
    let nsqd = nsqd(&["one"]);
    let server = HttpServer::start(|_, _| {
        std::thread::sleep(Duration::from_secs(12));
        Answer::status(200)
    });
    let mut tool = post(&nsqd, &[&server], "-consumer-opt=msg_timeout,10s");
    server.wait_for(1);
    finish(&nsqd, &mut tool);
    assert_eq!(
        (
            server.requests().len(),
            nsqd.figure("t", CHANNEL, "timeout_count")
        ),
        (1, 0)
    );
}

#[test]
fn a_request_has_a_time_limit() {
    let nsqd = nsqd(&["one"]);
    let server = HttpServer::start(|_, before| {
        if before == 0 {
            std::thread::sleep(TIMEOUT);
        }
        Answer::status(200)
    });
    let mut tool = post(
        &nsqd,
        &[&server],
        &format!("-http-client-request-timeout=200ms {QUICK}"),
    );
    server.wait_for(2);
    nsqd.wait_for_answers("t", CHANNEL);
    tool.wait_for_log("no answer within 200ms");
    tool.stop();
}

/// The log was silent until the limit of the request.
#[test]
fn a_request_that_hangs_is_told_once() {
    let nsqd = nsqd(&["one", "two"]);
    let server = HttpServer::start(|_, _| {
        std::thread::sleep(Duration::from_millis(7000));
        Answer::status(200)
    });
    let url = server.url("/");
    let post = format!("-post={}", url.replace("http://", "http://user:secret@"));
    let mut tool = start(&nsqd, &post);
    let line = tool.wait_for_log("WARNING: http://user:xxxxx@");
    let text = "/: no answer to a request for 5s; the request fails after 20s (--http-client-request-timeout)";
    assert!(line.ends_with(text), "{line}");
    finish(&nsqd, &mut tool);
    assert_eq!(tool.log().matches("no answer").count(), 1);
    assert_eq!(server.requests().len(), 2);
}

/// With several addresses, nobody knew which one had failed.
#[test]
fn a_failed_address_is_named_without_its_password() {
    let nsqd = nsqd(&["one"]);
    let (good, bad) = (ok(), HttpServer::start(|_, _| Answer::status(500)));
    let posts = [&good, &bad].map(|server| {
        let url = server.url("/a?b");
        format!("-post={}", url.replace("http://", "http://us:pw@"))
    });
    let mut tool = start(&nsqd, format!("{} {} -mode=multicast", posts[0], posts[1]));
    let line = tool.wait_for_log("Handler returned error");
    let from = format!(
        "(got status code 500 from http://us:xxxxx@{}/a?b)",
        bad.address
    );
    assert!(line.contains(&from), "{line}");
    tool.stop();
}

#[test]
fn a_stop_waits_for_the_messages_that_came() {
    for signal in ["TERM", "INT"] {
        let nsqd = nsqd(&["0", "1", "2", "3", "4"]);
        let go = Arc::new(AtomicBool::new(false));
        let may_answer = Arc::clone(&go);
        let server = HttpServer::start(move |_, _| {
            wait_until(TIMEOUT, || may_answer.load(Ordering::Relaxed));
            Answer::status(200)
        });
        let mut tool = post(&nsqd, &[&server], "-n=2 -max-in-flight=5");
        server.wait_for(1);
        nsqd.wait_for_figure("t", CHANNEL, "in_flight_count", 5);
        tool.signal(signal);
        tool.wait_for_log("stopping");
        // A second signal changes nothing.
        tool.signal(signal);
        go.store(true, Ordering::Relaxed);
        let status = tool.wait();
        assert_eq!(status.code(), Some(0), "{}", tool.log());
        nsqd.wait_for_answers("t", CHANNEL);
        assert_eq!(server.requests().len(), 5);
        assert_eq!(nsqd.figure("t", CHANNEL, "requeue_count"), 0);
    }
}

/// With a limit of 0 for requests, the request that never ends has 30 seconds until the tool ends without it. The default
/// limit is 20 seconds.
#[test]
fn a_stop_waits_thirty_seconds_at_most() {
    let nsqd = nsqd(&["one"]);
    // Its kernel takes the connection and the request, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let post = format!("-post=http://{}/", silent.local_addr().expect("it listens"));
    let args = format!("{post} -http-client-request-timeout=0 -http-client-connect-timeout=0");
    let mut tool = start(&nsqd, &args);
    let (mut peer, _) = silent.accept().expect("the tool connects");
    peer.read_exact(&mut [0]).expect("the tool sends a request");
    tool.stop();
    // The limits of the tool and of the client were over at the same time, and both had a line.
    let log = tool.log();
    let line = "ending after 30s although messages have no answer (1); nsqd delivers them again";
    assert_eq!(log.matches(line).count(), 1, "{log}");
    assert!(!log.contains("not all messages were answered"), "{log}");
    nsqd.wait_for_figure("t", CHANNEL, "client_count", 0);
    let figures = ["depth", "in_flight_count", "deferred_count"];
    let left: i64 = figures
        .map(|figure| nsqd.figure("t", CHANNEL, figure))
        .iter()
        .sum();
    assert_eq!(left, 1);
    assert!(!log.contains("Handler returned error"), "{log}");
}

#[test]
fn https_needs_a_certificate_that_the_system_trusts() {
    // The certificate is its own authority, as in the smallest set-up.
    let mut params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().expect("a key");
    let cert = params.self_signed(&key).expect("a certificate");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder
                .with_no_client_auth()
                .with_single_cert(vec![cert.der().clone()], key)
        });
    let config = Arc::new(config.expect("a configuration"));
    let server = HttpServer::start_in(
        move |stream| {
            let connection = rustls::ServerConnection::new(Arc::clone(&config));
            let connection = connection.map_err(std::io::Error::other)?;
            Ok(Box::new(rustls::StreamOwned::new(connection, stream)))
        },
        |_, _| Answer::status(200),
    );
    let trusted = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(trusted.path(), cert.pem()).expect("the file can be written");
    let trusted = trusted.path().to_str().expect("UTF-8");
    let post = format!("-post=https://{}/", server.address);

    let nsqd = nsqd(&["one"]);
    let address = format!("-nsqd-tcp-address={}", nsqd.tcp);
    let args = format!("-topic=t {address} {post} -consumer-opt=default_requeue_delay,10ms");
    let mut tool = Tool::start("nsq_to_http", &args);
    tool.wait_for_log("certificate");
    tool.stop();
    assert_eq!(server.requests().len(), 0);
    let mut tool = Tool::quiet(command("nsq_to_http", &args).env("SSL_CERT_FILE", trusted));
    assert_eq!(bodies(&server.wait_for(1)), ["one"]);
    finish(&nsqd, &mut tool);
}

#[test]
fn no_proxy_is_taken_from_the_environment() {
    let (nsqd, server) = (nsqd(&["one"]), ok());
    let address = format!("-nsqd-tcp-address={}", nsqd.tcp);
    let post = format!("-post={}", server.url("/"));
    let proxy = [
        ("http_proxy", "http://127.0.0.1:1"),
        ("HTTP_PROXY", "http://127.0.0.1:1"),
    ];
    let args = format!("-topic=t {address} {post}");
    let mut tool = Tool::quiet(command("nsq_to_http", &args).envs(proxy));
    server.wait_for(1);
    finish(&nsqd, &mut tool);
}

#[test]
fn no_line_of_the_log_has_the_password() {
    let nsqd = nsqd(&["one", "two", "three"]);
    let server = HttpServer::start(|_, count| match count {
        0 => Answer::status(302).with("Location: http://us:s3cret@["),
        _ => Answer::status(200),
    });
    let url = server.url("/").replace("//", "//us:s3cret@");
    let (post, dead) = (
        format!("-post={url}"),
        "-post=http://us:s3cret@127.0.0.1:1/",
    );
    let flags = "-mode=round-robin -status-every=1 -consumer-opt=max_attempts,0";
    let mut tool = start(&nsqd, format!("{post} {dead} {flags} {QUICK}"));
    // The dead server, the wrong redirect and the figures of each address have lines.
    for text in [
        "us:xxxxx@127.0.0.1:1/: ",
        "us:xxxxx@[\", which is no URL",
        "]: finished",
    ] {
        tool.wait_for_log(text);
    }
    finish(&nsqd, &mut tool);
    assert!(!tool.log().contains("s3cret"), "{}", tool.log());
    for wrong in ["-post=http://us:s3cret@", "-get=http://us:s3cret@h/"] {
        let mut tool = start(&nsqd, wrong);
        assert_eq!(tool.wait().code(), Some(1));
        let log = tool.log();
        assert!(
            log.contains("us:xxxxx@") && !log.contains("s3cret"),
            "{log}"
        );
    }
}

#[test]
fn no_message_is_lost_when_the_tool_is_killed() {
    const MESSAGES: usize = 400;
    let all: BTreeSet<String> = (0..MESSAGES).map(|number| number.to_string()).collect();
    let bodies: Vec<&str> = all.iter().map(String::as_str).collect();
    // nsqd gives the messages of a dead consumer to another one when they time out.
    let nsqd = Daemon::nsqd(&["--msg-timeout=500ms"]).with_messages("t", CHANNEL, &bodies);
    // An answer takes some time, so requests are on their way at each kill. Requests beyond a number wait, so messages
    // are left.
    let requests_max = Arc::new(AtomicUsize::new(0));
    let answered_max = Arc::clone(&requests_max);
    let server = HttpServer::start(move |_, before| {
        std::thread::sleep(Duration::from_millis(2));
        wait_until(TIMEOUT, || before < answered_max.load(Ordering::Relaxed));
        Answer::status(200)
    });
    let post = format!("-post={}", server.url("/"));
    let args = format!("{post} -n=2 -max-in-flight=20");
    for _ in 0..3 {
        let before = server.requests().len();
        requests_max.store(before + 80, Ordering::Relaxed);
        let mut tool = start(&nsqd, &args);
        server.wait_for(before + 30);
        tool.signal("KILL");
        assert_eq!(tool.wait().code(), None, "{}", tool.log());
        assert!(nsqd.figure("t", CHANNEL, "depth") > 0, "{}", tool.log());
    }
    requests_max.store(usize::MAX, Ordering::Relaxed);
    let mut tool = start(&nsqd, &args);
    finish(&nsqd, &mut tool);
    let requests = server.requests();
    let found: BTreeSet<String> = requests.iter().map(Received::text).collect();
    assert!(found == all, "{} of {MESSAGES} arrived", found.len());
    assert!(
        requests.len() <= MESSAGES + 3 * 20,
        "only messages in flight come again, and {} requests were made",
        requests.len()
    );
}
