//! Streams with small requests, for which a ring receives, and whose small outputs it sends together. The kernel writes
//! to memory of this process there, so the tests end streams, move them and leave them unread at any moment.

use super::*;
use crate::reactor::{REFUSES_RECEIVING, SENDS_MAX, receives};
use std::cell::Cell;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

/// The bytes of all tests: the byte at each place follows from the place.
fn byte_at(place: usize) -> u8 {
    (place.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

fn bytes_at(place: usize, count: usize) -> Vec<u8> {
    (place..place + count).map(byte_at).collect()
}

/// A generator of small numbers.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

/// Reads once, and checks what came. Returns the number of bytes.
async fn read(stream: &Stream, place: usize, room: usize) -> usize {
    let mut buffer = vec![0; room];
    let bytes = future::poll_fn(|cx| stream.poll_read(cx, &mut buffer))
        .await
        .expect("connected");
    assert_eq!(buffer[..bytes], bytes_at(place, bytes), "from {place}");
    bytes
}

/// A stream that has had so many small requests that a ring receives for it. Returns the peer and the number of bytes
/// so far.
async fn busy(listener: &Listener, address: SocketAddr) -> (Stream, TcpStream, usize) {
    let mut peer = TcpStream::connect(address).expect("listening");
    peer.set_nodelay(true).expect("a TCP socket");
    let stream = connected(listener).await;
    let mut place = 0;
    for _ in 0..34 {
        peer.write_all(&bytes_at(place, 10)).expect("connected");
        while read(&stream, place, 100).await < 10 {}
        place += 10;
        expect_nothing(&stream).await;
    }
    (stream, peer, place)
}

/// Checks that there is nothing to read now.
async fn expect_nothing(stream: &Stream) {
    let reads = future::poll_fn(|cx| stream.poll_read(cx, &mut [0; 100]));
    assert!(future::poll_once(reads).await.is_none());
}

fn is_ring(engine: Engine) -> bool {
    engine.is_io_uring()
}

/// Runs a test with a stream that has had many small requests, its peer, and the number of bytes so far, on each engine.
fn with_busy_stream<F: Future<Output = ()> + 'static>(test: fn(Stream, TcpStream, usize) -> F) {
    on_every_engine(move |_| async move {
        let (listener, address) = listener();
        let (stream, peer, place) = busy(&listener, address).await;
        test(stream, peer, place).await;
    });
}

/// Runs a test on each engine that this machine lets run, and tells the test which one it is. Runs it also on a ring that
/// does not receive, as on many kernels.
fn on_every_engine<F: Future<Output = ()> + 'static>(test: impl Fn(Engine) -> F) {
    let engines = Engine::ALL.iter().copied();
    for engine in engines.filter(|engine| is_usable(*engine)) {
        reactor::run(engine, test(engine)).expect("the engine works");
        if is_ring(engine) {
            REFUSES_RECEIVING.set(true);
            let test = test(engine);
            let refused = async {
                assert!(!receives());
                test.await;
            };
            reactor::run(engine, refused).expect("the engine works");
            REFUSES_RECEIVING.set(false);
        }
    }
}

#[test]
fn requests_of_all_sizes_come_whole_and_in_order() {
    with_busy_stream(|stream, mut peer, start| async move {
        assert_eq!(stream.source().is_received(), receives());
        let writer = thread::spawn(move || {
            let (mut draws, mut place) = (Draws(1), start);
            for _ in 0..3_000 {
                let bytes = match draws.below(30) {
                    0 => draws.below(100_000),
                    1..4 => draws.below(5_000),
                    _ => draws.below(300) + 1,
                } as usize;
                peer.write_all(&bytes_at(place, bytes)).expect("connected");
                place += bytes;
                if draws.below(4) == 0 {
                    thread::sleep(Duration::from_micros(50));
                }
            }
            place
        });
        let (mut draws, mut place) = (Draws(2), start);
        loop {
            let bound = if draws.below(3) == 0 { 20 } else { 40_000 };
            let room = 1 + draws.below(bound);
            match read(&stream, place, room as usize).await {
                0 => break,
                bytes => place += bytes,
            }
        }
        assert_eq!(place, writer.join().expect("no panic"));
        assert_eq!(read(&stream, place, 10).await, 0, "the end stays the end");
    });
}

#[test]
fn a_stream_that_moves_while_it_receives_loses_and_doubles_nothing() {
    with_busy_stream(|mut stream, mut peer, start| async move {
        let writer = thread::spawn(move || {
            let (mut draws, mut place) = (Draws(3), start);
            for round in 0..12_000 {
                let bytes = draws.below(60) as usize + 1;
                peer.write_all(&bytes_at(place, bytes)).expect("connected");
                place += bytes;
                if round % 8 == 0 {
                    thread::sleep(Duration::from_micros(draws.below(150)));
                }
            }
            place
        });
        let (mut draws, mut place, mut moves_while_received) = (Draws(4), start, 0);
        loop {
            match read(&stream, place, 3_000).await {
                0 => break,
                bytes => place += bytes,
            }
            if draws.below(60) > 0 {
                continue;
            }
            moves_while_received += u32::from(stream.source().is_received());
            stream = Stream::adopt(stream.into_moving());
        }
        assert_eq!(place, writer.join().expect("no panic"));
        assert_eq!(moves_while_received > 0, receives());
    });
}

#[test]
fn more_streams_than_buffers_are_all_read() {
    on_every_engine(|_| async {
        let (listener, address) = listener();
        let mut streams = Vec::new();
        // A ring has 512 buffers.
        for _ in 0..if receives() { 530 } else { 10 } {
            let (stream, mut peer, place) = busy(&listener, address).await;
            peer.write_all(&bytes_at(place, 900)).expect("connected");
            streams.push((stream, peer, place));
        }
        reactor::sleep(Duration::from_millis(5)).await;
        for (stream, _peer, start) in &streams {
            let mut place = *start;
            while place < start + 900 {
                place += read(stream, place, 500).await;
            }
        }
    });
}

#[test]
fn streams_that_end_unread_give_their_buffers_back() {
    on_every_engine(|_| async {
        let (listener, address) = listener();
        // More pieces than there are buffers.
        for round in 0..if receives() { 400u64 } else { 10 } {
            let (stream, mut peer, place) = busy(&listener, address).await;
            for at in 0..round % 5 {
                let place = place + 10 * at as usize;
                peer.write_all(&bytes_at(place, 10)).expect("connected");
            }
            if round % 2 == 0 {
                reactor::sleep(Duration::from_micros(50)).await;
            }
            drop(stream);
        }
        let (stream, mut peer, mut place) = busy(&listener, address).await;
        for _ in 0..100 {
            peer.write_all(&bytes_at(place, 10)).expect("connected");
            place += read(&stream, place, 10).await;
        }
        assert_eq!(
            stream.source().is_received(),
            receives(),
            "buffers are left"
        );
    });
}

/// The late readers kept all buffers. Then each receiving of another stream ended at once.
#[test]
fn streams_that_are_read_late_leave_buffers_to_the_others() {
    on_every_engine(|_| async {
        // A ring has 512 buffers. A reader with four pieces is late.
        for (count, pieces) in [(140, 4), (180, 3)] {
            let (listener, address) = listener();
            let mut late = Vec::new();
            for _ in 0..if receives() { count } else { 5 } {
                late.push(busy(&listener, address).await);
            }
            for piece in 0..pieces {
                for (_, peer, place) in &mut late {
                    let bytes = bytes_at(*place + 100 * piece, 100);
                    peer.write_all(&bytes).expect("connected");
                }
                reactor::sleep(Duration::from_millis(2)).await;
            }
            let (stream, mut peer, mut place) = busy(&listener, address).await;
            for _ in 0..100 {
                peer.write_all(&bytes_at(place, 10)).expect("connected");
                place += read(&stream, place, 10).await;
                assert_eq!(
                    stream.source().is_received(),
                    receives(),
                    "after {place} bytes"
                );
            }
            for (stream, mut peer, start) in late {
                let mut place = start;
                let end = start + 100 * pieces;
                peer.write_all(&bytes_at(end, 50)).expect("connected");
                while place < end + 50 {
                    place += read(&stream, place, 70).await;
                }
            }
        }
    });
}

#[test]
fn a_stream_that_nobody_reads_holds_its_peer_back() {
    with_busy_stream(|stream, mut peer, start| async move {
        peer.set_nonblocking(true).expect("a socket");
        let mut end = start;
        let mut waits = 0;
        while waits < 20 {
            match peer.write(&bytes_at(end, 200)) {
                Ok(bytes) => end += bytes,
                Err(_) => {
                    waits += 1;
                    reactor::sleep(Duration::from_millis(1)).await;
                }
            }
        }
        let mut place = start;
        // The bytes that wait in the process come without the socket.
        let moving = stream.into_moving();
        let unread = moving.unread.len();
        assert!(unread <= 128 * 1024, "{unread} bytes wait in the process");
        let stream = Stream::adopt(moving);
        while place < end {
            place += read(&stream, place, 30_000).await;
        }
    });
}

#[test]
fn a_stream_that_is_held_back_keeps_its_input_and_goes_on() {
    with_busy_stream(|stream, mut peer, mut place| async move {
        let end = place + 300;
        for at in 0..3 {
            peer.write_all(&bytes_at(place + 100 * at, 100))
                .expect("connected");
            reactor::sleep(Duration::from_millis(2)).await;
            stream.hold_back();
        }
        assert_eq!(!stream.unread.borrow().is_empty(), receives());
        while place < end {
            place += read(&stream, place, 70).await;
        }
        assert!(!stream.source().is_received());
        for _ in 0..100 {
            peer.write_all(&bytes_at(place, 10)).expect("connected");
            let end = place + 10;
            while place < end {
                place += read(&stream, place, 10).await;
            }
        }
    });
}

/// The kernel finds a descriptor by its number, when a request is submitted.
#[test]
fn a_stream_that_ends_at_once_takes_nothing_from_the_next_one_with_its_number() {
    on_every_engine(|_| async {
        let (listener, address) = listener();
        let mut tried = 0;
        for _ in 0..200 {
            let mut peer = TcpStream::connect(address).expect("listening");
            let stream = connected(&listener).await;
            let mut other_peer = TcpStream::connect(address).expect("listening");
            let other = connected(&listener).await;
            other_peer.write_all(b"hello").expect("connected");
            let mut place = 0;
            for _ in 0..32 {
                peer.write_all(&bytes_at(place, 10)).expect("connected");
                while read(&stream, place, 100).await < 10 {}
                place += 10;
                expect_nothing(&stream).await;
            }
            // The request of the ring is queued. From here on nothing is awaited.
            assert_eq!(stream.source().is_received(), receives());
            let number = stream.socket.as_raw_fd();
            drop(stream);
            let copy = rustix::io::fcntl_dupfd_cloexec(&other.socket, number);
            let copy = copy.expect("descriptors are left");
            if copy.as_raw_fd() != number {
                // Another test has taken the number.
                continue;
            }
            tried += 1;
            drop(other);
            let next = Stream::adopt(copy.into());
            reactor::sleep(Duration::from_millis(1)).await;
            let mut room = [0; 100];
            let reads = future::poll_fn(|cx| next.poll_read(cx, &mut room));
            let bytes = future::poll_once(reads).await.expect("it is there");
            assert_eq!(bytes.expect("connected"), 5);
            if tried == 5 {
                return;
            }
        }
        assert!(tried > 0, "other tests took each number");
    });
}

/// Some kernels do not tell a ring of an end that comes right behind input.
#[test]
fn the_end_of_a_unix_socket_comes_right_behind_its_input() {
    on_every_engine(|_| async {
        let (ours, mut peer) =
            std::os::unix::net::UnixStream::pair().expect("descriptors are left");
        ours.set_nonblocking(true).expect("a socket");
        let stream = Stream::adopt(std::os::fd::OwnedFd::from(ours).into());
        let mut place = 0;
        for _ in 0..100 {
            peer.write_all(&bytes_at(place, 10)).expect("connected");
            place += read(&stream, place, 100).await;
            expect_nothing(&stream).await;
        }
        assert_eq!(stream.source().is_received(), receives());
        peer.write_all(&bytes_at(place, 10)).expect("connected");
        drop(peer);
        assert_eq!(read(&stream, place, 100).await, 10);
        assert_eq!(read(&stream, place + 10, 100).await, 0);
    });
}

/// Some kernels do not tell a ring of a reset that comes right behind input.
#[test]
fn a_reset_comes_right_behind_the_input() {
    with_busy_stream(|stream, mut peer, place| async move {
        assert_eq!(stream.source().is_received(), receives());
        peer.write_all(&bytes_at(place, 10)).expect("connected");
        let linger = socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO));
        linger.expect("a TCP socket");
        drop(peer);
        let mut room = [0; 100];
        let mut bytes = 0;
        let error = loop {
            match future::poll_fn(|cx| stream.poll_read(cx, &mut room)).await {
                Ok(more @ 1..) => bytes += more,
                end => break end,
            }
        };
        assert_eq!(error.expect_err("reset").kind(), ErrorKind::ConnectionReset);
        assert_eq!(bytes, 10);
    });
}

#[test]
fn a_stream_that_gathers_is_not_woken_by_each_packet() {
    with_busy_stream(|stream, mut peer, mut place| async move {
        assert_eq!(stream.source().is_received(), receives());
        stream.source().let_gather();
        for _ in 0..3 {
            peer.write_all(&bytes_at(place, 10)).expect("connected");
            place += read(&stream, place, 10).await;
        }
        assert!(!stream.source().is_received());
    });
}

/// The end of the receiving was told late, and counted as the answer of the poll that had begun meanwhile. So a second poll
/// began, and kept the socket open: the peer saw no end.
#[test]
fn a_stream_that_is_polled_after_its_receiving_is_closed_when_it_ends() {
    on_every_engine(|engine| async move {
        let (listener, address) = listener();
        let (stream, mut peer, _) = busy(&listener, address).await;
        let (other, _other_peer, _) = busy(&listener, address).await;
        stream.source().let_gather();
        if is_ring(engine) {
            // The receiving ends here. The reactor hears of it after the next read.
            assert!(other.stage(&[IoSlice::new(b"x")]));
            reactor::send_staged(|sent| assert_eq!(sent.result.expect("connected"), Some(1)));
        }
        for _ in 0..2 {
            expect_nothing(&stream).await;
            reactor::sleep(Duration::from_millis(1)).await;
        }
        assert!(!stream.source().is_received());
        drop(stream);
        peer.set_nonblocking(true).expect("a socket");
        for _ in 0..2_000 {
            if let Ok(bytes) = peer.read(&mut [0; 100]) {
                return assert_eq!(bytes, 0, "the end");
            }
            reactor::sleep(Duration::from_millis(1)).await;
        }
        panic!("the peer sees no end");
    });
}

#[test]
fn a_connection_that_breaks_while_it_receives_is_an_error() {
    with_busy_stream(|stream, peer, _| async move {
        // With unread input the peer's system resets the connection.
        stream.send(&[IoSlice::new(b"x")]).expect("connected");
        reactor::sleep(Duration::from_millis(5)).await;
        drop(peer);
        let error = future::poll_fn(|cx| stream.poll_read(cx, &mut [0])).await;
        let error = error.expect_err("reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn staged_outputs_leave_whole_and_each_has_its_own_result() {
    on_every_engine(|engine| async move {
        let (listener, address) = listener();
        let mut pairs = Vec::new();
        for _ in 0..SENDS_MAX {
            let peer = TcpStream::connect(address).expect("listening");
            pairs.push((connected(&listener).await, peer));
        }
        let long = [7; 513];
        assert!(
            !pairs[0].0.stage(&[IoSlice::new(&long)]),
            "it is sent at once"
        );
        // One socket is full, and another one is broken.
        while pairs[5]
            .0
            .send(&[IoSlice::new(&long)])
            .expect("connected")
            .is_some()
        {}
        pairs[9].0.shut_down().expect("connected");
        for round in 0..50 {
            let mut is_staged = true;
            for (at, (stream, _)) in pairs.iter().enumerate() {
                let bytes = bytes_at(round * 100 + at, at + 1);
                let (left, right) = bytes.split_at(at / 2);
                is_staged &= stream.stage(&[IoSlice::new(left), IoSlice::new(right)]);
            }
            assert_eq!(is_staged, is_ring(engine));
            if !is_staged {
                return;
            }
            assert!(!pairs[0].0.stage(&[IoSlice::new(b"one more")]));
            let at = Rc::new(Cell::new(0));
            reactor::send_staged(|sent| {
                let at = at.replace(at.get() + 1);
                assert_eq!(sent.offered, at + 1);
                match (at, sent.result) {
                    (5, Ok(None)) => {}
                    (9, Err(error)) => assert_eq!(error.kind(), ErrorKind::BrokenPipe),
                    (_, result) => assert_eq!(result.expect("connected"), Some(at + 1)),
                }
            });
            assert_eq!(at.get(), SENDS_MAX);
            for (at, (_, peer)) in pairs.iter_mut().enumerate() {
                if at != 5 && at != 9 {
                    let mut got = vec![0; at + 1];
                    peer.read_exact(&mut got).expect("connected");
                    assert_eq!(got, bytes_at(round * 100 + at, at + 1));
                }
            }
        }
    });
}

#[test]
fn waits_that_are_answered_while_outputs_leave_are_told() {
    on_every_engine(|engine| async move {
        if !is_ring(engine) {
            return;
        }
        let (listener, address) = listener();
        let (stream, mut peer, place) = busy(&listener, address).await;
        let (other, _other_peer, _) = busy(&listener, address).await;
        let reader = reactor::spawn(async move { read(&stream, place, 100).await });
        for round in 0..1_000 {
            if round == 500 {
                peer.write_all(&bytes_at(place, 10)).expect("connected");
            }
            assert!(other.stage(&[IoSlice::new(b"x")]));
            reactor::send_staged(|sent| {
                assert_eq!(sent.result.expect("connected"), Some(1));
                // It was staged, and never left.
                assert!(!other.stage(&[IoSlice::new(b"late")]));
            });
        }
        assert_eq!(reader.await, 10);
    });
}
