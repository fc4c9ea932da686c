use super::*;
use crate::reactor::{self, Engine};
use futures_lite::AsyncWriteExt;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
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
        let mut stream = HttpStream::plain(Stream::adopt(OwnedFd::from(ours).into()), timeouts);
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
