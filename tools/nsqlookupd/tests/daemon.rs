//! The real binary over real sockets: start, stop, bad input, silent clients.

#[path = "../../../wire/upgrade/tests/certificates/mod.rs"]
mod certificates;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use crate::support::{Client, Lookupd, MAGIC, identify, path, run_nsqlookupd};
use rustls::{ClientConnection, StreamOwned};
use test_support::differential::Client as _;
use test_support::held_sockets::{HeldSockets, Place, Question, check_restarts};
use test_support::http::http_with_headers;
use test_support::process::{address_in, run};
use test_support::{TIMEOUT, assert_like, wait_until};
use upgrade::pki_types::ServerName;
use upgrade::{ClientTls, authorities, client_config};

#[test]
fn a_start_that_fails_says_why() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let taken = [
        &*format!("--tcp-address={address}"),
        "--http-address=127.0.0.1:0",
    ];
    let text = format!(
        "…FATAL: failed to instantiate nsqlookupd - listen ({address}) failed - listen tcp {address}: bind: \
         address already in use - another process listens there, perhaps another nsqlookupd…"
    );
    run_nsqlookupd(&taken).expect(1, &text);
    let exit = run_nsqlookupd(&["--tcp-address=4160", "--http-address=127.0.0.1:0"]);
    let text = "…listen (4160) failed - listen tcp: address 4160: missing port in address…";
    exit.expect(1, text);
    assert_eq!(run_nsqlookupd(&["--nope"]).code(), 2);
    let exit = run_nsqlookupd(&["--version"]);
    assert_eq!(exit.code(), 0);
    assert_like(&exit.stdout, "nsqlookupd v1.3.0 (built w/…");
    run_nsqlookupd(&["--help"]).expect(0, "Usage of nsqlookupd:\n…");
}

/// A supervisor holds the sockets, as systemd does with socket activation.
#[test]
fn restarts_refuse_nobody() {
    let mut sockets = HeldSockets::default();
    let tcp = Question {
        place: Place::Tcp(sockets.listen("tcp")),
        request: b"  V1PING\n",
        answer: b"\0\0\0\x02OK",
    };
    let http = Question::ping(Place::Tcp(sockets.listen("http")));
    let start = || {
        let mut command = sockets.command(&path());
        command.arg("--log-level=warn");
        command
    };
    check_restarts(start, &[tcp, http], 3, |_| {});
}

#[test]
fn a_check_says_whether_a_start_would_succeed() {
    let lookupd = Lookupd::start(&[]);
    let check = |args: &[&str]| {
        let exit = run_nsqlookupd(&[&["--check"], args].concat());
        (exit.code(), exit.stdout)
    };
    let free = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"];
    let (code, text) = check(&free);
    assert_eq!(code, 0, "{text}");
    assert_like(&text, "…This machine is ready for nsqlookupd.\n");
    let (tcp, http) = (lookupd.tcp, lookupd.http);
    let taken = [
        format!("--tcp-address={tcp}"),
        format!("--http-address={http}"),
    ];
    let (code, text) = check(&["--", &taken[0], &taken[1]]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("once that nsqlookupd has stopped"), "{text}");
    let (code, text) = check(&[&taken[0], free[1]]);
    assert_eq!(code, 0, "the port answers: {text}");
    // An answer at the HTTP address excused each other address.
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let stranger = format!("--tcp-address={}", stranger.local_addr().unwrap());
    let (code, text) = check(&[&stranger, &taken[1]]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("FAIL  tcp-address"), "{text}");
    assert!(text.contains("wait  http-address"), "{text}");
    for empty in ["--tcp-address=", "--http-address="] {
        let (code, text) = check(&[free[0], free[1], empty]);
        assert_eq!(code, 1, "a start needs the address: {text}");
    }
    let mut sockets = HeldSockets::default();
    let addresses = ["tcp", "http"].map(|name| sockets.listen(name));
    let mut command = sockets.command(&path());
    let [tcp, http] = addresses.map(|address| address.to_string());
    command.args(["--check", "--tcp-address", &tcp, "--http-address", &http]);
    let exit = run(&mut command, TIMEOUT);
    assert_eq!(exit.code(), 0, "{exit}");
    assert!(exit.stdout.contains("is inherited"), "{exit}");
    let (code, text) = check(&[free[0], free[1], "--tls-cert=x"]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("FAIL  flags"), "{text}");
}

#[test]
fn a_stop_ends_every_connection_and_logs_it() {
    for signal in ["TERM", "INT"] {
        let mut lookupd = Lookupd::start(&[]);
        let mut client = Client::identified(lookupd.tcp, "b1");
        assert_eq!(client.ask(b"REGISTER t c\n"), "OK");
        let silent = TcpStream::connect(lookupd.tcp).unwrap();
        let idle = TcpStream::connect(lookupd.http).unwrap();
        lookupd.signal(signal);
        assert_eq!(lookupd.wait().code(), Some(0));
        assert!(matches!(client.answer(), Ok(None) | Err(_)));
        let log = lookupd.log();
        let lines = [
            "INFO: nsqlookupd v1.3.0 (built w/",
            "INFO: TCP: listening on 127.0.0.1:",
            "INFO: HTTP: listening on 127.0.0.1:",
            "INFO: TCP: new client(127.0.0.1:",
            "): desired protocol magic '  V1'",
            "): IDENTIFY Address:b1 TCP:4150 HTTP:4151 Version:1.3.0",
            "REGISTER category:client key: subkey:\n",
            "REGISTER category:channel key:t subkey:c\n",
            "REGISTER category:topic key:t subkey:\n",
            "] exiting ioloop\n",
            "UNREGISTER category:client key: subkey:\n",
            "UNREGISTER category:channel key:t subkey:c\n",
            "UNREGISTER category:topic key:t subkey:\n",
            "INFO: TCP: closing 127.0.0.1:",
            "INFO: HTTP: closing 127.0.0.1:",
        ];
        assert_like(&log, &format!("…{}…", lines.join("…")));
        assert!(
            log.lines().all(|line| line.starts_with("[nsqlookupd] ")),
            "{log}"
        );
        drop((silent, idle));
    }
}

#[test]
fn sigquit_ends_it_at_once() {
    let mut lookupd = Lookupd::start(&[]);
    lookupd.signal("USR1");
    lookupd.signal("QUIT");
    assert_eq!(lookupd.wait().code(), Some(2));
}

/// Each of these inputs ends the original or lets it allocate gigabytes, or is nonsense.
#[test]
fn no_input_ends_the_daemon() {
    let mut lookupd = Lookupd::start(&[]);
    let inputs: [Vec<u8>; 7] = [
        [MAGIC, b"IDENTIFY\n\xff\xff\xff\xff"].concat(),
        [MAGIC, b"IDENTIFY\n\x80\0\0\0"].concat(),
        [MAGIC, b"IDENTIFY\n\x7f\xff\xff\xff"].concat(),
        [MAGIC, "x".repeat(1 << 20).as_bytes()].concat(),
        [MAGIC, &identify(&"[".repeat(200_000))].concat(),
        vec![0xff; 1 << 16],
        b"GET /lookup HTTP/1.1\r\n\r\n".to_vec(),
    ];
    for (number, input) in inputs.iter().enumerate() {
        for address in [lookupd.tcp, lookupd.http] {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            // The daemon may close before it has read everything.
            let _ = stream.write_all(input);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
        assert!(!lookupd.has_ended(), "input {number}");
    }
    assert_eq!(lookupd.get("/ping").text(), "OK");
}

/// The limit that most systems set is 1,024 descriptors, which a large cluster exceeds. The hard limit is higher.
#[test]
fn the_limit_on_open_files_is_raised() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("limited");
    let text = format!(
        "#!/bin/sh\nulimit -S -n 64 && exec '{}' \"$@\"\n",
        env!("CARGO_BIN_EXE_nsqlookupd")
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let lookupd = Lookupd::try_start(&[], Some(&script)).unwrap();
    let mut clients: Vec<Client> = (0..200)
        .map(|n| Client::identified(lookupd.tcp, &format!("b{n}")))
        .collect();
    for client in &mut clients {
        assert_eq!(client.ask(b"PING\n"), "OK");
    }
}

/// Each of these answers has several parts, which are sent in chunks.
#[test]
fn long_answers_come_in_parts() {
    const CHANNELS: usize = 1000;
    let lookupd = Lookupd::start(&[]);
    let mut clients = ["b1", "b2"].map(|name| Client::identified(lookupd.tcp, name));
    for client in &mut clients {
        for n in 0..CHANNELS {
            assert_eq!(client.ask(format!("REGISTER t{n} c\n").as_bytes()), "OK");
        }
    }
    let ask = |target: &str| {
        let response = lookupd.get(target).expect_status(200);
        assert_eq!(
            response.header("transfer-encoding"),
            Some("chunked"),
            "{target}"
        );
        response.json()
    };
    let debug = ask("/debug");
    assert_eq!(debug.as_object().unwrap().len(), 1 + 2 * CHANNELS);
    assert_eq!(debug["channel:t7:c"].as_array().unwrap().len(), 2);
    for n in 0..4 {
        for client in &mut clients {
            let topics = (0..1000).map(|m| format!("REGISTER u{n}-{m}-{}\n", "x".repeat(40)));
            for topic in topics {
                assert_eq!(client.ask(topic.as_bytes()), "OK");
            }
        }
    }
    let nodes = ask("/nodes");
    let producers = nodes["producers"].as_array().unwrap();
    assert_eq!(producers.len(), 2);
    assert_eq!(
        producers[1]["topics"].as_array().unwrap().len(),
        CHANNELS + 4000
    );
}

#[test]
fn http_changes_what_tcp_registered() {
    let lookupd = Lookupd::start(&["--log-level=debug"]);
    let mut client = Client::identified(lookupd.tcp, "b1");
    assert_eq!(client.ask(b"REGISTER t c\n"), "OK");
    lookupd
        .post("/topic/tombstone?topic=t&node=b1:4151")
        .expect_status(200);
    lookupd.wait_for_log("INFO: DB: setting tombstone for producer@b1:4151 of topic(t)");
    assert_eq!(
        lookupd.get("/lookup?topic=t").text(),
        r#"{"channels":["c"],"producers":[]}"#
    );
    lookupd.post("/topic/delete?topic=t").expect_status(200);
    lookupd.wait_for_log("INFO: DB: removing channel(c) from topic(t)");
    lookupd.wait_for_log("INFO: DB: removing topic(t)");
    let request = lookupd.wait_for_log("INFO: 200 POST /topic/delete?topic=t (127.0.0.1:");
    assert!(request.ends_with('s'), "{request}");
    lookupd
        .get("/lookup?topic=t")
        .expect_error(404, "TOPIC_NOT_FOUND");
}

#[test]
fn slow_http_clients_are_cut_off() {
    let lookupd = Lookupd::start(&["--http-read-timeout=200ms", "--http-idle-timeout=200ms"]);
    for sent in [&b""[..], b"GET /pi"] {
        let mut stream = TcpStream::connect(lookupd.http).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(sent).unwrap();
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    }
}

/// A client that never reads its answers must not disturb the others.
#[test]
fn a_client_that_does_not_read_is_alone_with_it() {
    let lookupd = Lookupd::start(&[]);
    let mut greedy = Client::connect(lookupd.tcp);
    greedy
        .stream()
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let pings = "PING\n".repeat(10_000);
    let is_full = wait_until(TIMEOUT, || greedy.try_send(pings.as_bytes()).is_err());
    assert!(is_full, "the daemon stops reading");
    let mut other = Client::identified(lookupd.tcp, "b2");
    assert_eq!(other.ask(b"REGISTER t\n"), "OK");
    assert_eq!(lookupd.get("/ping").text(), "OK");
}

/// Returns the directory of certificates, and the flags of the server's one.
fn certificate() -> (tempfile::TempDir, [String; 2]) {
    let directory = tempfile::tempdir().unwrap();
    certificates::write(directory.path());
    let flag =
        |flag: &str, name: &str| format!("--{flag}={}", directory.path().join(name).display());
    let flags = [
        flag("tls-cert", "server.pem"),
        flag("tls-key", "server-key.pem"),
    ];
    (directory, flags)
}

/// A handshake had a minute, whatever the flag said.
#[test]
fn a_silent_client_of_https_is_cut_off() {
    let (_directory, [cert, key]) = certificate();
    let lookupd = Lookupd::start(&[
        "--https-address=127.0.0.1:0",
        "--http-read-timeout=200ms",
        &cert,
        &key,
    ]);
    let line = lookupd.wait_for_log(" HTTPS: listening on ");
    let mut stream = TcpStream::connect(address_in(&line).unwrap()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let begun = Instant::now();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    assert!(begun.elapsed() < TIMEOUT / 2, "{:?}", begun.elapsed());
    lookupd.wait_for_log("WARNING: http: TLS handshake error from 127.0.0.1:");
}

#[test]
fn https_is_http_over_tls() {
    let (directory, [cert, key]) = certificate();
    let file =
        |flag: &str, name: &str| format!("--{flag}={}", directory.path().join(name).display());
    let lookupd = Lookupd::start(&["--https-address=127.0.0.1:0", &cert, &key]);
    let line = lookupd.wait_for_log(" HTTPS: listening on ");
    let address = address_in(&line).unwrap();
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
        .write_all(b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_like(&answer, "HTTP/1.1 200 OK\r\n…OK");

    // Plain HTTP where HTTPS is served does no harm.
    let mut plain = TcpStream::connect(address).unwrap();
    plain.set_read_timeout(Some(TIMEOUT)).unwrap();
    plain.write_all(b"GET /ping HTTP/1.1\r\n\r\n").unwrap();
    let _ = plain.read_to_end(&mut Vec::new());
    lookupd.wait_for_log("WARNING: http: TLS handshake error from 127.0.0.1:");
    assert_eq!(lookupd.get("/ping").text(), "OK");

    let refused = |args: &[&str], why: &str| {
        let free = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"];
        let exit = run_nsqlookupd(&[&free[..], args].concat());
        assert_eq!(exit.code(), 1);
        assert!(exit.stderr.contains(why), "{exit}");
    };
    refused(
        &["--https-address=127.0.0.1:0"],
        "need --tls-cert and --tls-key",
    );
    refused(&[&cert, &key], "need --tls-tcp-address or --https-address");
    let missing = file("tls-key", "nope.pem");
    let why = "failed to build TLS config - open ";
    refused(&["--https-address=127.0.0.1:0", &cert, &missing], why);
}

/// A page of any site could delete registrations of an nsqlookupd that its visitor's browser reaches.
#[test]
fn pages_of_other_sites_change_nothing() {
    let lookupd = Lookupd::start(&[]);
    let mut nsqd = Client::identified(lookupd.tcp, "b1");
    assert_eq!(nsqd.ask(b"REGISTER t c\n"), "OK");
    let ask = |method: &str, target: &str, marks: &[&str]| {
        http_with_headers(lookupd.http, method, target, marks, b"")
    };
    let before = ask("GET", "/debug", &[]).text();
    let other = ["Origin: http://evil.example", "Sec-Fetch-Site: cross-site"];
    for (method, target) in [
        ("POST", "/topic/create?topic=new"),
        ("POST", "/topic/delete?topic=t"),
        ("POST", "/topic/tombstone?topic=t&node=b1:1"),
        ("POST", "/channel/create?topic=t&channel=new"),
        ("POST", "/channel/delete?topic=t&channel=c"),
    ] {
        for mark in other {
            ask(method, target, &[mark]).expect_error(403, "FORBIDDEN_ORIGIN");
        }
    }
    assert_eq!(ask("GET", "/debug", &[]).text(), before);
    ask("GET", "/lookup?topic=t", &other).expect_status(200);
    let own = format!("Origin: http://{}", lookupd.http);
    ask("POST", "/topic/delete?topic=t", &[&own]).expect_status(200);
    assert_ne!(ask("GET", "/debug", &[]).text(), before);
}
