mod small_requests;

use super::*;
use crate::net::listener::Listener;
use crate::preflight::is_usable;
use crate::reactor::{self, Engine};
use futures_lite::{AsyncRead, AsyncReadExt, AsyncWrite, future};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::pin::Pin;

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Stream::poll_read(&self, cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.send(&[IoSlice::new(bytes)])? {
            Some(bytes) => Poll::Ready(Ok(bytes)),
            None => {
                self.wait_writable(cx);
                Poll::Pending
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shut_down())
    }
}

impl From<OwnedFd> for MovingStream {
    /// A stream of which nothing was read.
    fn from(descriptor: OwnedFd) -> MovingStream {
        MovingStream {
            descriptor,
            unread: Vec::new(),
        }
    }
}

fn listener() -> (Listener, SocketAddr) {
    let listener = Listener::bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let address = listener.socket.local_addr().expect("bound");
    (listener, address.as_socket().expect("an IP address"))
}

/// Runs a test on each engine that this machine lets run.
fn on_each_engine<F: Future<Output = ()> + 'static>(test: impl Fn() -> F) {
    let engines = Engine::ALL.iter().copied();
    for engine in engines.filter(|engine| is_usable(*engine)) {
        reactor::run(engine, test()).expect("the engine works");
    }
}

async fn connected(listener: &Listener) -> Stream {
    listener
        .try_accept()
        .await
        .expect("connected")
        .expect("there")
        .0
}

#[test]
fn a_stream_moves_with_its_only_descriptor() {
    on_each_engine(|| async {
        let (listener, address) = listener();
        let mut peer = TcpStream::connect(address).expect("listening");
        let mut adopted = connected(&listener).await;
        let number = adopted.socket.as_raw_fd();
        for round in 0..100u8 {
            // A task waits for the socket here, too.
            let waits = future::poll_once(future::poll_fn(|cx| adopted.poll_read(cx, &mut [0])));
            assert!(waits.await.is_none());
            let moving = adopted.into_moving();
            assert_eq!(moving.descriptor.as_raw_fd(), number);
            peer.write_all(&[round]).expect("connected");
            adopted = Stream::adopt(moving);
            let mut byte = [0];
            adopted.read_exact(&mut byte).await.expect("one byte");
            assert_eq!(byte, [round]);
        }
        let parts = [IoSlice::new(b"still "), IoSlice::new(b"open")];
        assert_eq!(adopted.send(&parts).expect("connected"), Some(10));
        // A task waits for the socket. A ring holds the socket open until the poll is cancelled.
        let waits = future::poll_once(future::poll_fn(|cx| adopted.poll_read(cx, &mut [0])));
        assert!(waits.await.is_none());
        drop(adopted);
        let (sender, got) = futures_channel::oneshot::channel();
        std::thread::spawn(move || {
            let mut got = String::new();
            let read = peer.read_to_string(&mut got);
            sender.send(read.map(|_| got)).expect("waited for");
        });
        let got = got.await.expect("the thread ends");
        assert_eq!(got.expect("closed by the last owner"), "still open");
    });
}

#[test]
fn a_full_socket_takes_nothing_and_a_broken_one_says_so() {
    on_each_engine(|| async {
        let (listener, address) = listener();
        let peer = TcpStream::connect(address).expect("listening");
        let stream = connected(&listener).await;
        let chunk = vec![7; 1 << 20];
        let mut sent = 0;
        while let Some(bytes) = stream.send(&[IoSlice::new(&chunk)]).expect("connected") {
            sent += bytes;
            assert!(sent < 1 << 30, "a peer that does not read fills up");
        }
        drop(peer);
        let broken = std::iter::repeat_with(|| stream.send(&[IoSlice::new(&chunk)]));
        assert!(broken.take(1000).any(|result| result.is_err()));
    });
}
