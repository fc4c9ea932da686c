use super::*;
use crate::net::socket::Stream;
use crate::reactor::{self, BYTES_PER_POLL, Engine};
use futures_lite::AsyncWriteExt;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

/// An upgrade keeps the encoded bytes of a write that failed. They counted as the beginning of what was written next.
#[test]
fn a_write_after_one_that_failed_fails_too() {
    reactor::run(Engine::Epoll, async {
        let (ours, mut peer) = UnixStream::pair().expect("two sockets");
        ours.set_nonblocking(true).expect("a socket");
        let mut filler = ours.try_clone().expect("a descriptor");
        let timeouts = HttpTimeouts {
            write: Some(Duration::from_millis(50)),
            ..HttpTimeouts::default()
        };
        let mut stream = HttpStream::new(
            Transport::new(Stream::adopt(OwnedFd::from(ours).into())),
            timeouts,
        );
        let upgrade = Upgrade::snappy();
        stream.transport.upgrade(upgrade, &[]).expect("it is plain");
        let mut filled = 0;
        for piece in [4096, 256, 1] {
            while let Ok(bytes) = filler.write(&vec![0; piece]) {
                filled += bytes;
            }
        }
        let first = stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
        assert_eq!(first.expect_err("no room").kind(), io::ErrorKind::TimedOut);
        peer.read_exact(&mut vec![0; filled])
            .expect("the peer reads");

        let second = stream.write_all(b"HTTP/1.1 500 Internal Server Error\r\n\r\n");
        let second = second.await.expect_err("the first one failed");
        assert_eq!(second.kind(), io::ErrorKind::BrokenPipe);
        drop((stream, filler));
        let mut rest = Vec::new();
        peer.read_to_end(&mut rest).expect("the peer reads");
        assert!(rest.is_empty(), "{rest:?}");
    })
    .expect("a reactor");
}

/// A peer that reads as fast as the answer is made: the socket has always room. All of the answer left in one piece, for
/// which the others waited.
#[test]
fn a_long_answer_leaves_the_others_their_turn() {
    const PART_BYTES: usize = BYTES_PER_POLL / 8;
    let (ours, peer) = UnixStream::pair().expect("two sockets");
    ours.set_nonblocking(true).expect("a socket");
    // Ends with the connection.
    let reader = thread::spawn(move || io::copy(&mut &peer, &mut io::sink()));
    let turns = reactor::run(Engine::Epoll, async move {
        let (turns, other) = reactor::tests::count_turns();
        let timeouts = HttpTimeouts::default();
        let mut stream = HttpStream::new(
            Transport::new(Stream::adopt(OwnedFd::from(ours).into())),
            timeouts,
        );
        let before = turns.get();
        for _ in 0..9 {
            let written = stream.write_all(&[0; PART_BYTES]).await;
            written.expect("there is room");
        }
        drop(other);
        turns.get() - before
    });
    let read = reader.join().expect("no panic");
    assert_eq!(read.expect("connected"), 9 * PART_BYTES as u64);
    assert!(turns.expect("the engine works") > 0, "there was no turn");
}
