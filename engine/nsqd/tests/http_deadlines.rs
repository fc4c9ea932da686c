//! HTTP clients that stop in the middle lose their connection. Clients that continue keep it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Broker, Certificates, http, parse_http};

const READ: Duration = Duration::from_secs(3);
const WRITE: Duration = Duration::from_secs(3);
const IDLE: Duration = Duration::from_secs(6);

/// The longest wait for an end, which may come late on a busy machine.
const LATE: Duration = Duration::from_secs(60);

fn flags() -> [String; 3] {
    [
        format!("--http-read-timeout={}s", READ.as_secs()),
        format!("--http-write-timeout={}s", WRITE.as_secs()),
        format!("--http-idle-timeout={}s", IDLE.as_secs()),
    ]
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the broker listens");
    stream
        .set_read_timeout(Some(LATE))
        .expect("a timeout above zero");
    stream
}

/// Reads to the end of the stream. A reset counts as an end.
fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the broker keeps the connection: {error}"),
    }
    answer
}

/// A client that stops: the bytes that it sends before it stops, the time for which it may be
/// silent, and the status of the answer.
struct Stopped {
    name: &'static str,
    is_https: bool,
    sent: &'static [u8],
    timeout: Duration,
    status: Option<u16>,
}

const STOPPED: [Stopped; 9] = [
    stopped("nothing", b"", IDLE, None),
    stopped("empty lines", b"\r\n\r\n", IDLE, None),
    stopped(
        "half a head",
        b"GET /ping HTTP/1.1\r\nHost: x\r\n",
        READ,
        None,
    ),
    stopped(
        "half a body",
        b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
        READ,
        Some(500),
    ),
    stopped(
        "half a chunk",
        b"POST /mpub?topic=t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        READ,
        Some(500),
    ),
    stopped(
        "a whole request",
        b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n",
        IDLE,
        Some(200),
    ),
    stopped(
        "a request and half a head",
        b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\nGET /p",
        READ,
        Some(200),
    ),
    Stopped {
        is_https: true,
        ..stopped("nothing over TLS", b"", READ, None)
    },
    Stopped {
        is_https: true,
        // These bytes are the start of a handshake.
        ..stopped(
            "half a handshake",
            &[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3],
            READ,
            None,
        )
    },
];

const fn stopped(
    name: &'static str,
    sent: &'static [u8],
    timeout: Duration,
    status: Option<u16>,
) -> Stopped {
    Stopped {
        name,
        is_https: false,
        sent,
        timeout,
        status,
    }
}

#[test]
fn clients_that_stop_are_disconnected_and_others_are_not() {
    let certificates = Certificates::new();
    let broker = certificates.broker(2, &flags().each_ref().map(String::as_str));
    let (plain, https) = (broker.http_addr(), broker.https_addr());
    let mut clients = Vec::new();
    for stopped in STOPPED {
        let address = if stopped.is_https { https } else { plain };
        clients.push(thread::spawn(move || {
            let Stopped { name, timeout, .. } = stopped;
            let start = Instant::now();
            let mut stream = connect(address);
            stream.write_all(stopped.sent).expect("it is connected");
            let answer = read_to_end(&mut stream);
            let silent = start.elapsed();
            assert!(silent >= timeout, "{name}: closed after {silent:?}");
            let status = parse_http(&answer, false).ok().map(|answer| answer.status);
            assert_eq!(status, stopped.status, "{name}");
        }));
    }
    // A head that arrives byte by byte must also be complete in time.
    clients.push(thread::spawn(move || {
        let mut stream = connect(plain);
        let start = Instant::now();
        while start.elapsed() < LATE && stream.write_all(b"G").is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
        assert!(start.elapsed() < LATE, "an endless head");
    }));
    // A body that arrives slowly is accepted, although it takes longer than the timeout of its
    // pieces.
    clients.push(thread::spawn(move || {
        let (pieces, bytes) = (10, 4096);
        let mut stream = connect(plain);
        let head = format!(
            "POST /pub?topic=slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            pieces * bytes
        );
        stream.write_all(head.as_bytes()).expect("it is connected");
        for _ in 0..pieces {
            thread::sleep(READ / 6);
            stream.write_all(&vec![b'x'; bytes]).expect("it goes on");
        }
        let answer = read_to_end(&mut stream);
        assert!(answer.ends_with(b"OK"), "{}", String::from_utf8_lossy(&answer));
    }));
    // A client that uses its connection keeps the connection for longer than a client may be
    // silent.
    let mut active = connect(plain);
    let start = Instant::now();
    while start.elapsed() < IDLE * 2 {
        active
            .write_all(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
            .expect("its connection is open");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nOK") {
            let mut byte = [0];
            active
                .read_exact(&mut byte)
                .expect("its connection is open");
            answer.push(byte[0]);
        }
        thread::sleep(Duration::from_millis(200));
    }
    for client in clients {
        client.join().expect("checked above");
    }
    broker.wait_for_log("i/o timeout in the head of a request");
    broker.wait_for_log("i/o timeout in the body of a request");
    broker.wait_for_log("http: TLS handshake error from 127.0.0.1:");
}

/// The number of requests whose answers fill every buffer of a socket.
const AHEAD: usize = 150;

/// Opens a connection with many unread answers of about 100 KiB each.
fn asks_for_much(broker: &Broker) -> TcpStream {
    let stream = connect(broker.http_addr());
    let mut writer = stream.try_clone().expect("a descriptor is left");
    // The broker stops reading while its answers are stuck.
    thread::spawn(move || {
        for n in 1..=AHEAD {
            let last = if n == AHEAD {
                "Connection: close\r\n"
            } else {
                ""
            };
            let request = format!("GET /stats?format=json HTTP/1.1\r\nHost: x\r\n{last}\r\n");
            if writer.write_all(request.as_bytes()).is_err() {
                return;
            }
        }
    });
    stream
}

#[test]
fn clients_that_do_not_read_their_answers_are_disconnected_and_slow_ones_are_not() {
    let broker = Broker::start(1, &flags().each_ref().map(String::as_str));
    for n in 0..300 {
        let target = format!("/topic/create?topic=topic-{n}");
        http(broker.http_addr(), "POST", &target, b"").expect_status(200);
    }
    let answer_bytes = broker.get("/stats?format=json").body.len();
    assert!(answer_bytes > 50_000, "{answer_bytes}");
    let mut stuck = asks_for_much(&broker);
    let mut slow = asks_for_much(&broker);
    let mut read = 0;
    let mut piece = vec![0; 256 * 1024];
    let start = Instant::now();
    while start.elapsed() < WRITE * 3 {
        thread::sleep(WRITE / 10);
        read += slow.read(&mut piece).expect("its connection is open");
    }
    broker.wait_for_log("i/o timeout in an answer that the client does not read");
    assert!(
        read_to_end(&mut stuck).len() < AHEAD * answer_bytes,
        "its answers fit the buffers of the socket"
    );
    read += read_to_end(&mut slow).len();
    assert!(read > AHEAD * answer_bytes, "{read}");
}
