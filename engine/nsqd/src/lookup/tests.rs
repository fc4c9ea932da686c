//! The list of nsqlookupds changes while the program runs.

use super::*;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};

/// Accepts a connection, reads as much as the other side has to say before it waits, and answers
/// `answers` times.
fn welcome(listener: &TcpListener, answers: usize) -> (TcpStream, String) {
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut text = String::new();
    for _ in 0..answers {
        let mut buffer = [0; 4096];
        let bytes = stream.read(&mut buffer).expect("a command");
        text += &String::from_utf8_lossy(&buffer[..bytes]);
        stream
            .write_all(b"\0\0\0\x17{\"broadcast_address\":1}")
            .expect("it listens");
    }
    (stream, text)
}

fn start(tell_has_peers: impl Fn(bool) + Send + Sync + 'static) -> LookupPeers {
    let config = Config::from_args(std::iter::empty()).expect("the defaults");
    let settings = LookupSettings {
        http: crate::tls::http_settings(&config).expect("no file is named"),
        tls: None,
    };
    let ports = Ports {
        tcp: 1,
        http: 2,
        https: 0,
    };
    LookupPeers::start(&config, ports, settings, tell_has_peers).expect("threads")
}

#[test]
fn the_list_changes_while_the_program_runs() {
    let (sender, has_peers) = channel();
    let tell = move |has_peers| sender.send(has_peers).expect("the test listens");
    let peers = start(tell);
    let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let [one, two] = listeners
        .each_ref()
        .map(|listener| listener.local_addr().expect("it is bound").to_string());
    assert_eq!(peers.addresses(), Some(Vec::new()), "the default");

    let twice = Some(vec![one.clone(), one]);
    peers.set_addresses(twice.clone());
    assert_eq!(peers.addresses(), twice);
    assert_eq!(has_peers.try_recv(), Ok(true), "there is somebody to ask");
    let (mut first, text) = welcome(&listeners[0], 1);
    assert!(text.starts_with("  V1IDENTIFY\n"), "{text}");
    // Its answer was no introduction.
    let end = first.read(&mut [0]);
    let is_reset = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
    assert!(
        matches!(&end, Ok(0)) || end.as_ref().is_err_and(is_reset),
        "{end:?}"
    );

    // The first one is left, the second is new.
    peers.set_addresses(Some(vec![two]));
    let (_second, text) = welcome(&listeners[1], 1);
    assert!(text.starts_with("  V1IDENTIFY\n"), "{text}");
    peers.stop();
}

/// The list said one thing, and the shards and the thread of the nsqlookupds had heard the other change last.
#[test]
fn two_changes_at_once_are_told_in_their_order() {
    const ROUNDS: u32 = 20_000;
    let last_told = Arc::new(Mutex::new(None));
    let told = last_told.clone();
    let tell = move |has_peers| *told.lock() = Some(has_peers);
    let peers = start(tell);
    let lists = [Some(vec!["127.0.0.1:1".to_owned()]), None];
    let barrier = std::sync::Barrier::new(lists.len() + 1);
    let mut wrong = 0;
    std::thread::scope(|scope| {
        for list in &lists {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    barrier.wait();
                    peers.set_addresses(list.clone());
                    barrier.wait();
                }
            });
        }
        for _ in 0..ROUNDS {
            barrier.wait();
            barrier.wait();
            let has_peers = peers.addresses().is_some();
            wrong += u32::from(*last_told.lock() != Some(has_peers));
        }
    });
    assert_eq!(wrong, 0, "of {ROUNDS} rounds");
    peers.stop();
}

/// A malformed address is none of the resolver's business.
#[test]
fn the_advice_fits_the_address() {
    let resolver = "check the name and /etc/resolv.conf";
    let form = "write one <host>:<port> in each flag, without a scheme and a path";
    for (address, expected) in [
        ("lookup:4160", resolver),
        ("_nsqlookupd._tcp.lookup", resolver),
        ("a:1,b:2", form),
        ("a,b:1", form),
        ("http://a:1", form),
        ("lookup", "missing port in address: write <host>:<port>"),
        ("$(LOOKUPD):4160", "a variable was not replaced"),
    ] {
        assert_eq!(directory::advice(address), expected, "{address}");
    }
}
