use super::*;
use crate::reactor::{self, Engine};
use futures_lite::future;
use std::io::Read;
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
