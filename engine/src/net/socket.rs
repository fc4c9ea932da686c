//! What glommio's sockets cannot do by themselves: gather writes, be duplicated for another shard,
//! listen on a prepared socket.
//!
//! glommio's streams hand out a raw descriptor only, so the two conversions below are `unsafe`
//! (docs/decisions/0002-raw-descriptors.md); everything else here is safe.

use glommio::net::{TcpListener, TcpStream};
use nix::sys::socket::{MsgFlags, sendmsg};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::time::Duration;

/// The backlog asked for; the kernel's net.core.somaxconn caps it.
const LISTEN_BACKLOG: i32 = 4096;

/// Keep-alive probes after this long, as nsqd's runtime sets it.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Binds one of several listeners of the same address, one per shard: the kernel spreads the
/// connections over them.
///
/// # Errors
/// The system's answer to socket, bind or listen.
#[allow(unsafe_code)]
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    // SAFETY: the descriptor was just created and released by `socket`; the listener is its only
    // owner from here on and closes it.
    Ok(unsafe { TcpListener::from_raw_fd(socket.into_raw_fd()) })
}

/// Sets what every client connection has: no delay, keep-alive.
///
/// # Errors
/// The system's answer.
pub(crate) fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true).map_err(io::Error::from)?;
    // Through the stream's own descriptor: a duplicate would take one more, and when there is no
    // other, cost the newcomer its connection.
    let keep_alive = TcpKeepalive::new()
        .with_time(KEEP_ALIVE)
        .with_interval(KEEP_ALIVE);
    SockRef::from(&descriptor(stream)).set_tcp_keepalive(&keep_alive)
}

/// A second descriptor of the stream's socket, which outlives the stream.
///
/// # Errors
/// The system's answer, for example too many open files.
pub(crate) fn duplicate(stream: &TcpStream) -> io::Result<OwnedFd> {
    descriptor(stream).try_clone_to_owned()
}

#[allow(unsafe_code)]
fn descriptor(stream: &TcpStream) -> BorrowedFd<'_> {
    // SAFETY: `stream` stays borrowed for as long as the result lives, so its descriptor stays open.
    unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) }
}

/// The stream of a descriptor that another shard gave away.
pub(crate) fn adopt(descriptor: OwnedFd) -> TcpStream {
    // glommio speaks an older socket2; both sides are plain owned descriptors.
    let stream = std::net::TcpStream::from(descriptor);
    TcpStream::from(glommio_socket2::Socket::from(stream))
}

/// Writes as much as the socket takes now. `Ok(None)`: nothing at all.
///
/// # Errors
/// The connection is broken.
pub(crate) fn send(stream: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    loop {
        return match sendmsg::<()>(stream.as_raw_fd(), slices, &[], flags, None) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(nix::errno::Errno::EINTR) => continue,
            Err(nix::errno::Errno::EAGAIN) => Ok(None),
            Err(errno) => Err(io::Error::from_raw_os_error(errno as i32)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::AsyncReadExt;
    use glommio::LocalExecutorBuilder;
    use std::io::{Read, Write};

    fn run<F: Future<Output = ()> + 'static>(test: impl FnOnce() -> F + Send + 'static) {
        let builder = LocalExecutorBuilder::default().io_memory(64 * 1024);
        builder
            .spawn(test)
            .expect("an executor")
            .join()
            .expect("the test");
    }

    #[test]
    fn a_duplicate_outlives_its_stream_and_can_be_adopted_elsewhere() {
        run(|| async {
            let listener = listen(([127, 0, 0, 1], 0).into()).expect("a free port");
            let address = listener.local_addr().expect("bound");
            let mut peer = std::net::TcpStream::connect(address).expect("listening");
            let stream = listener.accept().await.expect("connected");
            set_options(&stream).expect("a TCP socket");
            for round in 0..100u8 {
                let copy = duplicate(&stream).expect("descriptors are left");
                peer.write_all(&[round]).expect("connected");
                let mut adopted = adopt(copy);
                let mut byte = [0];
                adopted.read_exact(&mut byte).await.expect("one byte");
                assert_eq!(byte, [round], "each copy is the same socket");
                drop(adopted);
            }
            let last = duplicate(&stream).expect("descriptors are left");
            drop(stream);
            let adopted = adopt(last);
            let parts = [IoSlice::new(b"still "), IoSlice::new(b"open")];
            assert_eq!(send(&adopted, &parts).expect("connected"), Some(10));
            drop(adopted);
            let mut got = String::new();
            peer.read_to_string(&mut got)
                .expect("closed by the last copy");
            assert_eq!(got, "still open");
        });
    }

    #[test]
    fn a_full_socket_takes_nothing_and_a_broken_one_says_so() {
        run(|| async {
            let listener = listen(([127, 0, 0, 1], 0).into()).expect("a free port");
            let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let stream = listener.accept().await.expect("connected");
            let chunk = vec![7; 1 << 20];
            let mut sent = 0;
            while let Some(bytes) = send(&stream, &[IoSlice::new(&chunk)]).expect("connected") {
                sent += bytes;
                assert!(sent < 1 << 30, "a peer that does not read fills up");
            }
            drop(peer);
            let broken = std::iter::repeat_with(|| send(&stream, &[IoSlice::new(&chunk)]));
            assert!(broken.take(1000).any(|result| result.is_err()));
        });
    }
}
