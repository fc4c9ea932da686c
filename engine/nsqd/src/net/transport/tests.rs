use super::*;
use crate::net::socket::Taken;
use crate::reactor::{self, BYTES_PER_POLL, Engine};
use futures_lite::future;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use upgrade::Upgrades;

/// Larger than what a socket takes at once.
const OUTPUT_BYTES: usize = 4 << 20;

/// Bytes that do not compress well, so that the socket fills up.
fn output() -> Vec<u8> {
    let mut state = 1_u64;
    let byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005) + 1;
        (state >> 56) as u8
    };
    std::iter::repeat_with(byte).take(OUTPUT_BYTES).collect()
}

/// Waits until the socket is full, reads to the end, and undoes the upgrade.
fn received(mut peer: UnixStream, is_full: &Receiver<()>, upgrade: Option<Upgrade>) -> Vec<u8> {
    is_full
        .recv()
        .expect("the output is larger than the socket");
    let mut wire = Vec::new();
    peer.read_to_end(&mut wire).expect("connected");
    let Some(upgrade) = upgrade else {
        return wire;
    };
    let mut upgrades = Upgrades::default();
    upgrades.push(upgrade);
    let (mut wire, mut plain, mut room) = (&wire[..], Vec::new(), vec![0; 1 << 16]);
    loop {
        match upgrades.open(&mut wire, &mut room).expect("the format") {
            0 => return plain,
            bytes => plain.extend_from_slice(&room[..bytes]),
        }
    }
}

/// Offers everything that has not left until all has left, in slices of different lengths.
async fn send_all(transport: &Transport, output: &[u8], full: &Sender<()>) {
    let mut left = 0;
    future::poll_fn(|cx| {
        while left < output.len() || transport.has_unsent() {
            let rest = &output[left..];
            let (first, rest) = rest.split_at(rest.len().min(1000));
            let (second, third) = rest.split_at(rest.len().min(100_000));
            let slices = [first, second, third].map(IoSlice::new);
            let written = transport.send(&slices).expect("connected");
            left += written.left;
            if written.taken == Taken::Nothing {
                assert_eq!(written.left, 0);
                transport.stream().wait_writable(cx);
                // The peer waits for the first one only, and may have ended when another one comes.
                let _ = full.send(());
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    })
    .await;
    assert_eq!(left, output.len());
}

#[test]
fn what_did_not_leave_is_offered_again_and_arrives_once() {
    let kinds: [Option<fn() -> Upgrade>; 3] =
        [None, Some(Upgrade::snappy), Some(|| Upgrade::deflate(1))];
    for kind in kinds {
        let (ours, peer) = UnixStream::pair().expect("two descriptors");
        ours.set_nonblocking(true).expect("a socket");
        let upgrade = kind.map(|make| make());
        let (full, is_full) = channel();
        let reader = thread::spawn(move || received(peer, &is_full, kind.map(|make| make())));
        let output = output();
        let sent = output.clone();
        reactor::run(Engine::Epoll, async move {
            let transport = Transport::new(Stream::adopt(OwnedFd::from(ours).into()));
            if let Some(upgrade) = upgrade {
                transport.upgrade(upgrade, &[]).expect("the first upgrade");
            }
            send_all(&transport, &sent, &full).await;
            transport.stream().shut_down().expect("connected");
        })
        .expect("the engine works");
        let received = reader.join().expect("it decodes");
        assert!(received == output, "every byte once, and in order");
    }
}

/// Fills a socket, and returns the other end with the number of bytes.
fn full_socket(mut fill: impl FnMut() -> Vec<u8>) -> (UnixStream, UnixStream, usize) {
    let (ours, mut peer) = UnixStream::pair().expect("two descriptors");
    ours.set_nonblocking(true).expect("a socket");
    peer.set_nonblocking(true).expect("a socket");
    let mut filled = 0;
    let mut rest = Vec::new();
    loop {
        if rest.is_empty() {
            rest = fill();
        }
        match peer.write(&rest) {
            Ok(bytes) => {
                filled += bytes;
                rest.drain(..bytes);
            }
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                return (ours, peer, filled);
            }
        }
    }
}

/// Reads `wire_bytes` of a socket that are there already, without a pause. Returns the most plain bytes that are read
/// before another task has its turn.
async fn read_without_pause(transport: &Transport, plain_bytes: usize) -> usize {
    let (turns, other) = reactor::tests::count_turns();
    let mut room = vec![0; 8 << 20];
    let (mut read, mut since_turn, mut worst, mut turn) = (0, 0, 0, turns.get());
    while read < plain_bytes {
        let result = future::poll_fn(|cx| transport.poll_read(cx, &mut room)).await;
        let bytes = result.expect("the format");
        assert!(bytes > 0, "the peer does not end");
        if std::mem::replace(&mut turn, turns.get()) != turn {
            since_turn = 0;
        }
        since_turn += bytes;
        worst = worst.max(since_turn);
        read += bytes;
    }
    drop(other);
    worst
}

/// Snappy chunks of 8 bytes, each with a header and a checksum of 4 bytes. 200 KiB of them were opened in one piece, and
/// without an end as long as more came.
#[test]
fn an_upgraded_peer_that_always_has_more_leaves_the_others_their_turn() {
    const CHUNKS: usize = 1000;
    let mut upgrades = Upgrades::default();
    upgrades.push(Upgrade::snappy());
    let (ours, _peer, wire_bytes) = full_socket(|| {
        for _ in 0..CHUNKS {
            upgrades.seal(&[IoSlice::new(b"12345678")]).expect("sealed");
        }
        std::mem::take(&mut upgrades.wire)
    });
    assert!(wire_bytes >= BYTES_PER_POLL, "{wire_bytes} are too few");
    let worst = reactor::run(Engine::Epoll, async move {
        let transport = Transport::new(Stream::adopt(OwnedFd::from(ours).into()));
        let upgrade = transport.upgrade(Upgrade::snappy(), &[]);
        upgrade.expect("the first upgrade");
        // Half of the bytes of the wire are plain.
        read_without_pause(&transport, wire_bytes / 2 - 64).await
    });
    let worst = worst.expect("the engine works");
    assert!(worst <= 16 * 1024, "{worst} bytes");
}

/// Few bytes of the wire that are many plain ones: a large command of zeros was opened in one piece.
#[test]
fn a_large_command_that_compresses_well_is_opened_in_pieces() {
    const PLAIN_BYTES: usize = 5 << 20;
    for make in [Upgrade::snappy as fn() -> Upgrade, || Upgrade::deflate(6)] {
        let mut upgrades = Upgrades::default();
        upgrades.push(make());
        let zeros = vec![0; PLAIN_BYTES];
        upgrades.seal(&[IoSlice::new(&zeros)]).expect("sealed");
        let wire = std::mem::take(&mut upgrades.wire);
        let (ours, mut peer) = UnixStream::pair().expect("two descriptors");
        ours.set_nonblocking(true).expect("a socket");
        let writer = thread::spawn(move || {
            peer.write_all(&wire).expect("connected");
            peer
        });
        let worst = reactor::run(Engine::Epoll, async move {
            let transport = Transport::new(Stream::adopt(OwnedFd::from(ours).into()));
            let upgrade = transport.upgrade(make(), &[]);
            upgrade.expect("the first upgrade");
            read_without_pause(&transport, PLAIN_BYTES).await
        });
        drop(writer.join().expect("no panic"));
        let worst = worst.expect("the engine works");
        assert!(worst < 2 * BYTES_PER_POLL, "{worst} bytes");
    }
}
