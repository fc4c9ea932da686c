use std::io::{Read, Write};
use std::net::TcpStream;

use socket2::{Domain, Socket, Type};

use super::*;

const NEW: Kernel = Kernel {
    major: 6,
    minor: 18,
};
const OLD: Kernel = Kernel { major: 5, minor: 4 };

fn shards(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

#[test]
fn kernels_are_read_from_their_release() {
    let check = |release: &str, major, minor| {
        assert_eq!(parse_kernel(release), Kernel { major, minor }, "{release}");
    };
    check("6.18.44-fc-v595", 6, 18);
    check("5.15.0-1051-aws", 5, 15);
    check("5.10", 5, 10);
    check("4.4-rc1", 4, 4);
    check("", 0, 0);
    check("odd", 0, 0);
}

#[test]
fn each_way_of_having_no_io_uring_has_its_own_text() {
    let check = |errno: Errno, disabled, kernel, text: &str| {
        let error = judge_io_uring(errno.into(), disabled, kernel).to_string();
        assert!(error.contains(text), "{error}");
    };
    check(Errno::NOSYS, None, OLD, "this kernel (5.4) is too old");
    check(Errno::NOSYS, None, OLD, "use Linux 5.8 or newer");
    check(Errno::NOSYS, Some(0), NEW, "seccomp profile");
    check(Errno::PERM, None, NEW, "seccomp profile");
    check(Errno::PERM, Some(0), NEW, "seccomp profile");
    check(Errno::PERM, Some(1), NEW, "kernel.io_uring_disabled = 1");
    check(
        Errno::PERM,
        Some(2),
        NEW,
        "sysctl -w kernel.io_uring_disabled=0",
    );
    check(Errno::ACCESS, None, NEW, "not allowed to use io_uring");
    check(
        Errno::NOMEM,
        Some(0),
        NEW,
        "io_uring does not work here: cannot allocate memory",
    );
}

#[test]
fn this_system_can_run_the_tests_of_the_shell() {
    // Everything else in this project needs io_uring; where it is missing, this says why.
    check_io_uring(kernel()).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn limits_are_raised_before_they_are_refused() {
    let check = |soft, hard, need, wanted, expected| {
        let limit = Rlimit {
            current: soft,
            maximum: hard,
        };
        assert_eq!(
            judge_limit(&limit, need, wanted),
            expected,
            "{limit:?} {need} {wanted}"
        );
    };
    check(Some(10), Some(20), 5, 8, Limit::Keep);
    check(Some(10), Some(20), 15, 15, Limit::RaiseTo(15));
    check(Some(10), Some(20), 5, u64::MAX, Limit::RaiseTo(20));
    check(Some(10), None, 5, u64::MAX, Limit::RaiseTo(u64::MAX));
    check(Some(10), Some(20), 21, 21, Limit::Refuse(20));
    check(None, None, 5, u64::MAX, Limit::Keep);
    check(Some(20), Some(20), 20, u64::MAX, Limit::Keep);
}

#[test]
fn needs_grow_with_shards() {
    assert_eq!(memlock_need_bytes(shards(4), NEW), 512 * 1024);
    assert_eq!(memlock_need_bytes(shards(4), OLD), 2048 * 1024);
    assert_eq!(descriptors_need_count(shards(4)), 128);
    let error = PreflightError::MemlockTooLow {
        hard_bytes: 64 * 1024,
        need_bytes: 512 * 1024,
        shard_count: shards(2),
    };
    let text = error.to_string();
    assert!(
        text.contains("is 64 KiB, but 2 shards need 512 KiB"),
        "{text}"
    );
    assert!(text.contains("ulimit -l 512;"), "{text}");
    let error = PreflightError::DescriptorsTooFew {
        hard_count: 100,
        need_count: 128,
        shard_count: shards(4),
    };
    let text = error.to_string();
    assert!(
        text.contains("open files is 100, but 4 shards need at least 128"),
        "{text}"
    );
}

#[test]
fn the_system_is_checked_as_a_whole() {
    check_system(shards(1)).unwrap_or_else(|error| panic!("{error}"));
    let limit = getrlimit(Resource::Nofile);
    assert_eq!(limit.current, limit.maximum, "raised as far as it goes");
}

#[test]
fn addresses_split_as_go_splits_them() {
    let check = |address: &str, expected: Option<(&str, &str)>| {
        assert_eq!(split_host_port(address), expected, "{address}");
    };
    check("127.0.0.1:4150", Some(("127.0.0.1", "4150")));
    check(":4150", Some(("", "4150")));
    check("[::1]:4150", Some(("::1", "4150")));
    check("/run/a:b", Some(("/run/a", "b")));
    check("4150", None);
    check("localhost", None);
    check("", None);
    check("::1:4150", None);
    check("[::1]", None);
    check("[::1", None);
    check("/run/nsqd.sock", None);
}

#[test]
fn addresses_that_cannot_be_are_refused_in_nsqds_words() {
    let check = |address: &str, text: &str| {
        let error = bind_probe(address).unwrap_err().to_string();
        assert!(error.starts_with(text), "{error}");
    };
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
        "listen (/x/n.sock) failed - not of the form <host>:<port>",
    );
    check("4150", "listen (4150) failed - not of the form");
    check("", "listen () failed - not of the form");
    // An address of the range for documentation is on no machine.
    check(
        "192.0.2.1:0",
        "listen (192.0.2.1:0) failed - listen tcp 192.0.2.1:0: bind: cannot assign requested \
         address - no interface",
    );
}

#[test]
fn a_port_in_use_is_found_and_a_free_one_is_picked() {
    let first = bind_probe("127.0.0.1:0").unwrap();
    let address = first.address();
    assert_ne!(address.port(), 0);
    let again = bind_probe_within(&address.to_string(), Duration::ZERO);
    let error = again.unwrap_err().to_string();
    assert!(
        error.starts_with(&format!(
            "listen ({address}) failed - listen tcp {address}: bind: address already in use - "
        )),
        "{error}"
    );
    drop(first);
    assert_eq!(bind_probe(&address.to_string()).unwrap().address(), address);
}

#[test]
fn wildcards_are_both_families() {
    for address in [":0", "0.0.0.0:0", "[::]:0"] {
        let probe = bind_probe(address).unwrap();
        assert_eq!(probe.address().is_ipv6(), has_ipv6(), "{address}");
        assert!(probe.address().ip().is_unspecified());
    }
    assert_eq!(
        bind_probe("localhost:0").unwrap().address().ip(),
        Ipv4Addr::LOCALHOST
    );
}

/// A restart was refused while connections of the old process were in TIME_WAIT. Opened by closing
/// the server's end of a connection first, on a listener that has SO_REUSEPORT like the shards'.
#[test]
fn closing_connections_of_an_earlier_process_are_not_in_the_way() {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.set_reuse_port(true).unwrap();
    listener
        .bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())
        .unwrap();
    listener.listen(8).unwrap();
    let listener = TcpListener::from(listener);
    let address = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let early = bind_probe_within(&address.to_string(), Duration::ZERO);
    assert!(early.is_err(), "it still listens");
    server.write_all(b"x").unwrap();
    drop(server);
    client.read_to_end(&mut Vec::new()).unwrap();
    drop(client);
    drop(listener);
    let probe = bind_probe(&address.to_string()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(probe.address(), address);
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{:04X}", address.port());
    assert!(
        table.contains(&port),
        "the connection must still be there for this to mean anything"
    );
}

#[test]
fn listeners_are_found_in_the_table() {
    let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
                 \x20  0: 0100007F:5E56 00000000:0000 0A 00000000:00000000\n\
                 \x20  1: 0100007F:1F90 0100007F:5E57 06 00000000:00000000\n";
    assert!(has_listener(table, 0x5E56));
    assert!(!has_listener(table, 0x1F90), "TIME_WAIT");
    assert!(!has_listener(table, 0x5E57), "the other end");
    assert!(!has_listener("", 1));
}

/// A restart right after a kill was refused: the kernel had not yet taken the old process's rings
/// apart, and its listener was still there. Opened by a listener that goes away a little later.
#[test]
fn a_listener_that_is_about_to_go_is_waited_for() {
    let first = bind_probe("127.0.0.1:0").unwrap();
    let address = first.address();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        drop(first);
    });
    let second = bind_probe_within(&address.to_string(), Duration::from_secs(60)).unwrap();
    assert_eq!(second.address(), address);
    thread.join().unwrap();
}
