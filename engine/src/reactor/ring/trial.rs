//! The trial of a ring: does the kernel tell the end of a connection that comes right behind input?
//!
//! A request that receives sleeps in the kernel. If input and the end come before the kernel looks at the request again,
//! some kernels take the input, miss the end, and let the request sleep for ever: after a reset of a TCP connection, and
//! from Linux 6.17 on after every end of a unix socket. The commit a68ed2df7213 of Linux mends that. The number of a kernel
//! does not tell whether it has this mend, so each ring tries.

use super::Ring;
use crate::reactor::driver::{Direction, Token};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use socket2::{Domain, Socket, Type};
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The longest wait for the network of this machine.
const NETWORK_TIME: Duration = Duration::from_millis(200);
/// The time in which the kernel has to tell the end, which is there already.
const TELL_TIME: Duration = Duration::from_millis(50);

impl Ring {
    /// Returns whether the kernel tells each end.
    ///
    /// # Errors
    /// The trial cannot be made, for example without a loopback network.
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
            return Ok(false);
        }
        let is_told = self.is_end_told(token, &stream, || end(peer));
        // Before the stream is closed.
        self.stop_receiving(token);
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
        // The kernel looks at the request when this thread enters the ring. Until then, the end has come, too.
        let network_time = Timespec {
            tv_sec: 0,
            tv_nsec: NETWORK_TIME.subsec_nanos().into(),
        };
        let mut ends = [PollFd::new(stream, PollFlags::RDHUP)];
        retry_on_intr(|| poll(&mut ends, Some(&network_time)))?;
        let deadline = Instant::now() + TELL_TIME;
        loop {
            self.enter(Some(TELL_TIME))?;
            self.for_each_ready(|_| {});
            if !self.is_receiving(token) {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
        }
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

    #[test]
    fn an_end_that_does_not_come_is_not_told() {
        if !is_usable(Engine::IoUring) {
            return;
        }
        let (ring, _notify) = Ring::new().expect("a ring");
        if !ring.tells_ends().expect("a loopback network") {
            // Nothing is received on this kernel.
            return;
        }
        for pair in [unix_pair, tcp_pair] {
            let mut open = None;
            let sends = |mut peer: Socket| {
                peer.write_all(b"x")?;
                open = Some(peer);
                Ok(())
            };
            let pair = pair().expect("descriptors are left");
            assert!(!ring.tells_end(pair, sends).expect("the ring works"));
        }
        assert!(
            ring.tells_ends().expect("a loopback network"),
            "nothing of it is left"
        );
    }
}
