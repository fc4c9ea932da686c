//! [`Transport`]: the carrier of a connection, which is a socket, or TLS and compression over a socket. Plain, upgraded
//! and HTTPS connections read and write through it.
//!
//! A caller offers all output that has not left to [`Transport::send`], and the answer says how much of it has left
//! now. So bounds and deadlines are the same for all connections, and a plain connection writes straight from the log.

use crate::net::socket::{MovingStream, Stream, Written};
use crate::net::upgraded::{HandshakeError, Upgraded};
use crate::reactor::Sent;
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};
use upgrade::{Session, Upgrade, Upgrades};

/// The carrier of a connection.
pub(crate) struct Transport {
    stream: Stream,
    /// TLS and compression, if there are any.
    upgraded: RefCell<Option<Box<Upgraded>>>,
}

/// A transport on its way to another shard.
pub(crate) struct MovingTransport {
    stream: MovingStream,
    upgraded: Option<Box<Upgraded>>,
}

impl Transport {
    /// A plain connection.
    pub(crate) fn new(stream: Stream) -> Transport {
        Transport {
            stream,
            upgraded: RefCell::new(None),
        }
    }

    /// The transport that another shard gave away.
    pub(crate) fn adopt(moving: MovingTransport) -> Transport {
        Transport {
            stream: Stream::adopt(moving.stream),
            upgraded: RefCell::new(moving.upgraded),
        }
    }

    /// The socket.
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Packs the transport for another shard.
    pub(crate) fn into_moving(self) -> MovingTransport {
        MovingTransport {
            stream: self.stream.into_moving(),
            upgraded: self.upgraded.into_inner(),
        }
    }

    // --- upgrades

    /// Adds an upgrade behind `output`, all of which is encoded without the upgrade.
    ///
    /// # Errors
    /// A library failed.
    pub(crate) fn upgrade(&self, upgrade: Upgrade, output: &[IoSlice<'_>]) -> io::Result<()> {
        let mut upgraded = self.upgraded.borrow_mut();
        let upgraded = upgraded.get_or_insert_default();
        upgraded.seal_all(output)?;
        upgraded.upgrades.push(upgrade);
        Ok(())
    }

    /// Goes back to no upgrade, behind everything that is encoded.
    pub(crate) fn clear(&self) {
        if let Some(upgraded) = &mut *self.upgraded.borrow_mut() {
            upgraded.upgrades.clear();
        }
    }

    /// Returns whether an upgrade was ever added: true also after [`Transport::clear`].
    pub(crate) fn was_upgraded(&self) -> bool {
        self.upgraded.borrow().is_some()
    }

    /// True while TLS has not agreed on its keys.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.has(Upgrades::is_handshaking)
    }

    /// Returns the result of the TLS handshake. `None` without TLS, and before the handshake is complete.
    pub(crate) fn session(&self) -> Option<Session> {
        self.upgraded.borrow().as_ref()?.upgrades.session()
    }

    /// Reads once for the handshake, and shows what came to `look` before. What TLS has to answer is then to be sent,
    /// also after an error.
    ///
    /// # Errors
    /// [`HandshakeError`]
    pub(crate) fn poll_handshake(
        &self,
        cx: &Context<'_>,
        look: impl FnOnce(&[u8]) -> Result<(), HandshakeError>,
    ) -> Poll<Result<(), HandshakeError>> {
        match &mut *self.upgraded.borrow_mut() {
            Some(upgraded) => upgraded.poll_handshake(&self.stream, cx, look),
            None => Poll::Ready(Ok(())),
        }
    }

    // --- input

    /// Reads what is there; 0 is the end.
    ///
    /// # Errors
    /// The connection is broken, or the peer does not keep to a format ([`io::ErrorKind::InvalidData`]).
    pub(crate) fn poll_read(&self, cx: &Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        match &mut *self.upgraded.borrow_mut() {
            None => self.stream.poll_read(cx, room),
            Some(upgraded) => upgraded.poll_read(&self.stream, cx, room),
        }
    }

    // --- output

    /// Writes once, as much as the socket takes. `output` is what has not left, from its first byte on: what did not
    /// leave must be offered again.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn send(&self, output: &[IoSlice<'_>]) -> io::Result<Written> {
        if let Some(upgraded) = &mut *self.upgraded.borrow_mut() {
            return upgraded.send(&self.stream, output);
        }
        let offered = output.iter().map(|slice| slice.len()).sum();
        let result = match offered {
            0 => Ok(Some(0)),
            _ => self.stream.send(output),
        };
        Written::of(Sent { offered, result })
    }

    /// Stages the output of a plain connection, which leaves with [`reactor::send_staged`](crate::reactor::send_staged).
    /// Returns false if the caller has to send it. The transport must live until then.
    pub(crate) fn stage(&self, output: &[IoSlice<'_>]) -> bool {
        !self.was_upgraded() && self.stream.stage(output)
    }

    /// True if encoded bytes wait for the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        self.has(|upgrades| !upgrades.unsent().is_empty())
    }

    fn has(&self, test: impl FnOnce(&Upgrades) -> bool) -> bool {
        let upgraded = self.upgraded.borrow();
        upgraded.as_ref().is_some_and(|it| test(&it.upgrades))
    }

    /// Has TLS say that nothing follows; the words are left to be sent.
    pub(crate) fn end(&self) {
        if let Some(upgraded) = &mut *self.upgraded.borrow_mut() {
            upgraded.upgrades.end();
        }
    }
}

#[cfg(test)]
mod tests;
