//! Sockets that outlive the process, as in systemd's socket activation.
//!
//! `RINGQ_TEST_KILLS` is the number of restarts.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::Command;

use crate::support::{Launch, TIMEOUT, http, io_args, nsqd_path, number_from_env, run};
use socket2::{Domain, Socket, Type};
use test_support::held_sockets::{HeldSockets, Place, Question, check_restarts};

const RESTARTS: u64 = 5;

/// A published message, and its OK.
const PUBLISH: &[u8] = b"  V2PUB t\n\0\0\0\x01x";
const OK: &[u8] = b"\0\0\0\x06\0\0\0\0OK";

fn command(sockets: &HeldSockets, data_path: &Path, flags: &[String]) -> Command {
    let mut command = sockets.command(&nsqd_path());
    command
        .arg(format!("--data-path={}", data_path.display()))
        .args(["--shards=2", "--log-level=warn"])
        .args(io_args())
        .args(flags);
    command
}

#[test]
fn restarts_refuse_nobody() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let (data_path, unix) = (directory.path().join("data"), directory.path().join("unix"));
    std::fs::create_dir(&data_path).expect("the directory is empty");
    let mut sockets = HeldSockets::default();
    let tcp = sockets.listen("tcp");
    // systemd's name for a socket of a unit that names none.
    let http_address = sockets.listen("nsqd.socket");
    sockets.listen_unix("unix", &unix);
    let flags = [
        // The names of sockets count more than these addresses.
        "--tcp-address=127.0.0.1:1".to_owned(),
        "--unix-socket=/nonexistent/unix".to_owned(),
        format!("--http-address={http_address}"),
        // No nsqlookupd knows channels of the topic.
        "--new-topic-grace=0".to_owned(),
    ];
    let publish = |place| Question {
        place,
        request: PUBLISH,
        answer: OK,
    };
    let questions = [
        publish(Place::Tcp(tcp)),
        Question::ping(Place::Tcp(http_address)),
        publish(Place::Unix(unix.clone())),
    ];
    let start = || command(&sockets, &data_path, &flags);
    let restarts = number_from_env("RINGQ_TEST_KILLS", RESTARTS);
    check_restarts(start, &questions, restarts, |answers| {
        let stats = http(http_address, "GET", "/stats?format=json", b"").json();
        let depth = stats["topics"][0]["depth"].as_u64();
        let acknowledged = (answers[0] + answers[2]) as u64;
        assert!(depth >= Some(acknowledged), "{acknowledged} OKs: {stats}");
        let info = http(http_address, "GET", "/info", b"").json();
        assert_eq!(info["tcp_port"], tcp.port(), "{info}");
        assert_eq!(info["http_port"], http_address.port(), "{info}");
    });
    assert!(unix.exists(), "the file belongs to the supervisor");
}

#[test]
fn a_socket_that_cannot_be_used_is_fatal() {
    let check = |sockets: &HeldSockets, flags: &[&str], why: &str| {
        let data_path = tempfile::tempdir().expect("a temporary directory can be made");
        let ports = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"];
        let flags = ports.iter().chain(flags).map(|flag| (*flag).to_owned());
        let flags: Vec<_> = flags.collect();
        let exit = run(&mut command(sockets, data_path.path(), &flags), TIMEOUT);
        let line = format!("…FATAL: failed to instantiate nsqd - {why}…");
        exit.expect(1, &line);
        let exit = run(
            command(sockets, data_path.path(), &flags).arg("--check"),
            TIMEOUT,
        );
        assert!(
            exit.stdout.contains(&format!("FAIL  sockets       {why}")),
            "{exit}"
        );
    };
    let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let mut sockets = HeldSockets::default();
    sockets.listen("tcp");
    sockets.hold("http", udp);
    let why = "descriptor 4 of LISTEN_FDS (http) is no stream socket that listens - systemd: use ListenStream=";
    check(&sockets, &[], why);

    let silent = Socket::new(Domain::IPV4, Type::STREAM, None).expect("the system has a socket");
    let mut sockets = HeldSockets::default();
    sockets.hold("tcp", silent);
    check(
        &sockets,
        &[],
        "descriptor 3 of LISTEN_FDS (tcp) is no stream socket",
    );

    let mut sockets = HeldSockets::default();
    let address = sockets.listen("web");
    let why = format!("the socket {address} of LISTEN_FDS (web) belongs to no flag that is set");
    check(&sockets, &[], &why);
    let mut sockets = HeldSockets::default();
    let address = sockets.listen("https");
    let why = format!("the socket {address} of LISTEN_FDS (https) belongs to no flag that is set");
    // Without a certificate, this flag is off.
    check(&sockets, &["--https-address=127.0.0.1:0"], &why);
}

#[test]
fn the_sockets_of_another_process_are_left_alone() {
    let via = ["env", "LISTEN_FDS=2", "LISTEN_PID=1"].map(str::to_owned);
    let broker = Launch::new(1, &[]).via(via.to_vec()).start();
    broker.wait_for_log("WARNING: the sockets of LISTEN_FDS are not used: they are for process 1, not for this one - ");
}

#[test]
fn the_check_counts_an_inherited_address_as_free() {
    let data_path = tempfile::tempdir().expect("a temporary directory can be made");
    let mut sockets = HeldSockets::default();
    let (tcp, http) = (sockets.listen("tcp"), sockets.listen(""));
    let flags = [
        format!("--tcp-address={tcp}"),
        format!("--http-address={http}"),
        "--check".to_owned(),
    ];
    let exit = run(&mut command(&sockets, data_path.path(), &flags), TIMEOUT);
    assert_eq!(exit.code(), 0, "{exit}");
    for (flag, address) in [("tcp-address ", tcp), ("http-address", http)] {
        let line = format!("ok    {flag}  {address} is inherited");
        assert!(exit.stdout.contains(&line), "{exit}");
    }
}
