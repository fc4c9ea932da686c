use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use program::tcp_socket::BIND_TIMEOUT;
use socket2::{Domain, Socket, Type};

use super::*;
use program::check::State;

fn reserve_tcp(address: &str) -> Result<Reserved, Finding> {
    reserve_within(address, BIND_TIMEOUT)
}

fn ip(reserved: &Reserved) -> SocketAddr {
    reserved.address.socket_address().expect("an IP address")
}

#[test]
fn addresses_that_cannot_be_are_refused_in_nsqds_words() {
    let check = |address: &str, text: &str| {
        let error = reserve(address, AddressKind::TcpOrUnix, None, Duration::ZERO)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(text), "{error}");
    };
    // HTTPS knows no unix sockets.
    let error = reserve_tcp("4150").unwrap_err().to_string();
    let text = "listen (4150) failed - listen tcp: address 4150: missing port in address";
    assert_eq!(error, text);
    check(
        "127.0.0.1:99999",
        "listen (127.0.0.1:99999) failed - listen tcp: address 99999: invalid port",
    );
    check(
        "127.0.0.1:-1",
        "listen (127.0.0.1:-1) failed - listen tcp: address -1: invalid port",
    );
    check(
        "127.0.0.1:nope",
        "listen (127.0.0.1:nope) failed - listen tcp: lookup tcp/nope: unknown",
    );
    check(
        "/x/n.sock",
        "listen (/x/n.sock) failed - listen unix /x/n.sock: bind: no such file or directory",
    );
    check(
        "/etc/passwd",
        "listen (/etc/passwd) failed - listen unix /etc/passwd: bind: address already in use - the",
    );
    let long = "x".repeat(150);
    check(
        &long,
        &format!("listen ({long}) failed - listen unix {long}: bind: invalid argument - the path"),
    );
    // An address of the range for documentation is on no machine.
    check(
        "192.0.2.1:0",
        "listen (192.0.2.1:0) failed - listen tcp 192.0.2.1:0: bind: cannot assign requested \
         address - no interface",
    );
}

#[test]
fn a_port_in_use_is_found_and_a_free_one_is_picked() {
    let first = reserve_tcp("127.0.0.1:0").unwrap();
    let address = ip(&first);
    assert_ne!(address.port(), 0);
    let again = reserve_within(&address.to_string(), Duration::ZERO);
    let error = again.unwrap_err().to_string();
    assert!(
        error.starts_with(&format!(
            "listen ({address}) failed - listen tcp {address}: bind: address already in use - "
        )),
        "{error}"
    );
    drop(first);
    assert_eq!(ip(&reserve_tcp(&address.to_string()).unwrap()), address);
}

#[test]
fn wildcards_are_both_families() {
    for address in [":0", "0.0.0.0:0", "[::]:0"] {
        let probe = reserve_tcp(address).unwrap();
        let has_ipv6 = TcpListener::bind("[::]:0").is_ok();
        assert_eq!(ip(&probe).is_ipv6(), has_ipv6, "{address}");
        assert!(ip(&probe).ip().is_unspecified());
    }
    assert_eq!(
        ip(&reserve_tcp("localhost:0").unwrap()).ip(),
        Ipv4Addr::LOCALHOST
    );
}

/// A restart was refused while connections of the old process were in TIME_WAIT. Opened by closing
/// the server's end of a connection first, on a listener with the options of the shards' listeners.
#[test]
fn closing_connections_of_an_earlier_process_are_not_in_the_way() {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.set_reuse_address(true).unwrap();
    listener.set_reuse_port(true).unwrap();
    listener
        .bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())
        .unwrap();
    listener.listen(8).unwrap();
    let listener = TcpListener::from(listener);
    let address = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let early = reserve_within(&address.to_string(), Duration::ZERO);
    assert!(early.is_err(), "it still listens");
    server.write_all(b"x").unwrap();
    drop(server);
    client.read_to_end(&mut Vec::new()).unwrap();
    drop(client);
    drop(listener);
    let probe = reserve_tcp(&address.to_string()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(ip(&probe), address);
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{:04X}", address.port());
    assert!(
        table.contains(&port),
        "the connection must still be there for this to mean anything"
    );
}

/// The start lasts from here until the shards listen: it may take over an original nsqd's queue meanwhile.
#[test]
fn a_reserved_address_is_kept_for_the_shards_alone() {
    let first = reserve_tcp("127.0.0.1:0").unwrap();
    let address = ip(&first);
    let is_taken = || reserve_within(&address.to_string(), Duration::ZERO).is_err();
    assert!(is_taken());
    let error = TcpStream::connect(address).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    let shards = [(); 2].map(|()| {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.set_reuse_address(true).unwrap();
        listener.set_reuse_port(true).unwrap();
        listener.bind(&address.into()).unwrap();
        listener.listen(64).unwrap();
        listener
    });
    for _ in 0..20 {
        TcpStream::connect(address).expect("only the shards' listeners get connections");
    }
    assert!(is_taken());
    drop(first);
    assert!(is_taken(), "the shards listen");
    drop(shards);
    reserve_tcp(&address.to_string()).unwrap();
}

/// A restart right after a kill was refused: the kernel had not yet taken the old process's rings
/// apart, and its listener was still there. Opened by a listener that goes away a little later.
#[test]
fn a_listener_that_is_about_to_go_is_waited_for() {
    let first = reserve_tcp("127.0.0.1:0").unwrap();
    let address = ip(&first);
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        drop(first);
    });
    let second = reserve_within(&address.to_string(), Duration::from_secs(60)).unwrap();
    assert_eq!(ip(&second), address);
    thread.join().unwrap();
}

fn config(tcp: &str, http: &str) -> Config {
    let args = [
        format!("--tcp-address={tcp}"),
        format!("--http-address={http}"),
    ];
    Config::from_args(args.map(OsString::from)).unwrap()
}

#[test]
fn only_one_of_two_overlapping_addresses_can_be_listened_on() {
    let port = ip(&reserve_tcp("127.0.0.1:0").unwrap()).port();
    for (tcp, http, is_free) in [
        ("127.0.0.1:0".to_owned(), "127.0.0.1:0".to_owned(), true),
        (
            format!("127.0.0.1:{port}"),
            format!("127.0.0.2:{port}"),
            true,
        ),
        (
            format!("127.0.0.1:{port}"),
            format!("localhost:0{port}"),
            false,
        ),
        (
            format!("0.0.0.0:{port}"),
            format!("127.0.0.2:{port}"),
            false,
        ),
    ] {
        let config = config(&tcp, &http);
        let tried = check(&config, InheritedSockets::none());
        let states = [State::Ok, if is_free { State::Ok } else { State::Waiting }];
        assert_eq!(
            [tried[0].finding.state, tried[1].finding.state],
            states,
            "{tried:?}"
        );
    }
}

/// Each address in use was that of the nsqd that runs.
#[test]
fn an_address_in_use_waits_for_the_nsqd_that_has_its_port() {
    let taken = reserve_tcp("127.0.0.1:0").unwrap();
    let port = ip(&taken).port();
    let config = config(&ip(&taken).to_string(), "127.0.0.1:0");
    for (runs_here, port_of_nsqd, state) in [
        (true, port, State::Waiting),
        (true, 1, State::Failure),
        (false, port, State::Failure),
    ] {
        let mut tried = check(&config, InheritedSockets::none());
        tried[0].judge_in_use(runs_here, |port| port == port_of_nsqd);
        assert_eq!(tried[0].finding.state, state, "{runs_here} {port_of_nsqd}");
        tried[1].judge_in_use(runs_here, |_| false);
        assert_eq!(tried[1].finding.state, State::Ok);
    }
}
