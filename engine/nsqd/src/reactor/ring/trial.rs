//! The trial of a ring: does the kernel tell the end of a connection that comes right behind input?
//!
//! A request that receives sleeps in the kernel. If input and the end come before the kernel looks at the request again,
//! some kernels take the input, miss the end, and let the request sleep for ever: after a reset of a TCP connection, and
//! from Linux 6.17 on after every end of a unix socket. The commit a68ed2df7213 of Linux mends that. The number of a kernel
//! does not tell whether it has this mend, so the first ring of the process tries.
//!
//! A trial needs a ring whose requests rest while this thread makes other system calls (Linux 6.1). Otherwise the kernel
//! looks at the request between the input and the end, and a kernel with the fault passes.

use super::Ring;
use crate::reactor::token::{Direction, Received, Token};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use socket2::{Domain, Socket, Type};
use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The longest wait for the network of this machine.
const NETWORK_TIME: Duration = Duration::from_millis(200);
/// The time in which the kernel has to tell the end, which is there already.
const TELL_TIME: Duration = Duration::from_millis(50);

/// Returns the verdict that is known, or else that of a trial. A trial that cannot be made counts as a bad verdict, but is
/// made again for the next ring.
pub(super) fn verdict(known: &OnceLock<bool>, trial: impl FnOnce() -> io::Result<bool>) -> bool {
    match known.get() {
        Some(verdict) => *verdict,
        None => trial().is_ok_and(|verdict| *known.get_or_init(|| verdict)),
    }
}

impl Ring {
    /// Returns whether the kernel tells each end.
    ///
    /// # Errors
    /// The trial cannot be made, for example without a loopback network, or without memory.
    pub(super) fn tells_ends(&self) -> io::Result<bool> {
        Ok(self.tells_end(unix_pair()?, end)? && self.tells_end(tcp_pair()?, end)?)
    }

    /// Returns whether the kernel tells that `end` has ended the connection of two sockets.
    fn tells_end(
        &self,
        (stream, peer): (Socket, Socket),
        end: impl FnOnce(Socket) -> io::Result<()>,
    ) -> io::Result<bool> {
        // The ring has no sources yet.
        let token = Token::new(0, 0, Direction::Read);
        if !self.receive(stream.as_fd(), token) {
            return Err(ErrorKind::Unsupported.into());
        }
        let is_told = self.is_end_told(token, &stream, || end(peer));
        // Before the stream is closed.
        self.forget_received(token);
        self.for_each_ready(|_| {});
        is_told
    }

    fn is_end_told(
        &self,
        token: Token,
        stream: &Socket,
        end: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<bool> {
        self.enter(Some(Duration::ZERO))?;
        end()?;
        // The kernel looks at the request when this thread enters the ring again. Until then, the end has come, too.
        wait_for(stream, PollFlags::RDHUP, NETWORK_TIME)?;
        let deadline = Instant::now() + TELL_TIME;
        let mut has_looked = false;
        let mut room = [0; 16];
        loop {
            match self.take_received(token, &mut room) {
                Received::Bytes(0) => return Ok(true),
                Received::Bytes(_) => has_looked = false,
                Received::Failed(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Ok(true);
                }
                Received::Failed(error) => return Err(error),
                // The request has ended for another reason: memory is missing, or the kernel has no such requests.
                Received::Off => return Err(ErrorKind::Interrupted.into()),
                // Only a look that brought nothing counts: this thread may not have run since the end came.
                Received::Nothing if has_looked && Instant::now() >= deadline => return Ok(false),
                Received::Nothing => {
                    self.enter(Some(TELL_TIME))?;
                    self.for_each_ready(|_| {});
                    has_looked = true;
                }
            }
        }
    }
}

/// Waits until a socket is ready.
///
/// # Errors
/// The time is over.
fn wait_for(socket: &impl AsFd, readiness: PollFlags, time: Duration) -> io::Result<()> {
    let time = Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    };
    let mut sockets = [PollFd::new(socket, readiness)];
    match retry_on_intr(|| poll(&mut sockets, Some(&time)))? {
        0 => Err(ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

fn unix_pair() -> io::Result<(Socket, Socket)> {
    Socket::pair(Domain::UNIX, Type::STREAM, None)
}

fn tcp_pair() -> io::Result<(Socket, Socket)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let peer = TcpStream::connect_timeout(&listener.local_addr()?, NETWORK_TIME)?;
    let (stream, _) = listener.accept()?;
    Ok((stream.into(), peer.into()))
}

/// Sends a byte, and ends the connection at once: a TCP connection is reset.
fn end(mut peer: Socket) -> io::Result<()> {
    peer.set_linger(Some(Duration::ZERO))?;
    peer.write_all(b"x")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::is_usable;
    use crate::reactor::Engine;

    /// A ring that has passed its trial. `None` where nothing is received.
    fn ring() -> Option<Ring> {
        if !is_usable(Engine::IoUring) {
            return None;
        }
        let (ring, _notify) = Ring::new().expect("a ring");
        ring.receives().then_some(ring)
    }

    /// A trial whose end had not come counted as a fault of the kernel, for all rings of the process.
    #[test]
    fn an_end_that_does_not_come_gives_no_verdict() {
        let Some(ring) = ring() else { return };
        for pair in [unix_pair, tcp_pair] {
            let mut open = None;
            let sends = |mut peer: Socket| {
                peer.write_all(b"x")?;
                open = Some(peer);
                Ok(())
            };
            let pair = pair().expect("descriptors are left");
            let error = ring.tells_end(pair, sends).expect_err("no end has come");
            assert_eq!(error.kind(), ErrorKind::TimedOut);
        }
        assert!(
            ring.tells_ends().expect("a loopback network"),
            "nothing of it is left"
        );
    }

    #[test]
    fn an_end_that_comes_and_is_not_told_is_the_fault() {
        let Some(ring) = ring() else { return };
        // The ring receives for another socket than the one whose end comes.
        let (open, _peer) = unix_pair().expect("descriptors are left");
        let (stream, peer) = unix_pair().expect("descriptors are left");
        let token = Token::new(0, 0, Direction::Read);
        assert!(ring.receive(open.as_fd(), token));
        let told = ring.is_end_told(token, &stream, || end(peer));
        ring.forget_received(token);
        ring.for_each_ready(|_| {});
        assert!(!told.expect("the ring works"));
    }

    /// Each end of the request counted as an end of the connection that the kernel had told.
    #[test]
    fn a_request_that_ends_without_a_free_buffer_has_told_nothing() {
        let Some(ring) = ring() else { return };
        let receiving = ring.receiving.as_ref().expect("it receives").borrow();
        receiving
            .unregister(&ring.ring.borrow())
            .expect("registered");
        drop(receiving);
        for pair in [unix_pair, tcp_pair] {
            let told = ring.tells_end(pair().expect("descriptors are left"), end);
            told.expect_err("the trial cannot be made");
        }
    }

    /// A kernel between 6.0 and 6.1 passed the trial whether or not it had the fault.
    #[test]
    fn a_ring_whose_requests_do_not_rest_does_not_receive() {
        if is_usable(Engine::IoUring) {
            let (ring, _notify) = Ring::built_by(super::super::setup::build_older).expect("a ring");
            assert!(!ring.receives());
        }
    }

    /// Each ring of the process made the trial, which takes 50 ms where the end is not told.
    #[test]
    fn a_verdict_is_kept_but_not_a_failure() {
        for is_told in [true, false] {
            let known = OnceLock::new();
            assert!(!verdict(&known, || Err(ErrorKind::OutOfMemory.into())));
            assert_eq!(verdict(&known, || Ok(is_told)), is_told);
            let again = verdict(&known, || panic!("the verdict is known"));
            assert_eq!(again, is_told);
        }
    }
}
