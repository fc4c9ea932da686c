//! TLS and compression of a connection.

use super::{Connection, ReadOnce};
use crate::net::upgraded::HandshakeError;
use crate::net::upgraded::SLICES_MAX;
use crate::shard::Shard;
use crate::tls;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};
use upgrade::Upgrade;
use wire::identify::GrantedUpgrade;

impl Connection {
    /// Puts an upgrade behind the output that is there.
    pub(crate) fn upgrade(self: &Rc<Self>, shard: &Rc<Shard>, granted: GrantedUpgrade) {
        // Input that came before the client could know of the upgrade is dropped, as in nsqd.
        self.take_input(shard);
        let upgrade = match granted {
            GrantedUpgrade::Tls => {
                let tls = shard.shared.tls.as_ref();
                let tls = tls.expect("IDENTIFY grants TLS only where there is a certificate");
                Upgrade::tls_server(&tls.get())
            }
            GrantedUpgrade::Snappy => Ok(Upgrade::snappy()),
            GrantedUpgrade::Deflate(level) => Ok(Upgrade::deflate(u32::from(level))),
        };
        if let Err(error) = upgrade
            .map_err(io::Error::from)
            .and_then(|upgrade| self.add_upgrade(shard, upgrade))
        {
            return shard.with_broker(|broker, _, out| {
                broker.upgrade_failed(self.id, &error.to_string(), out);
            });
        }
        match granted {
            GrantedUpgrade::Tls => {
                shard.with_broker(|broker, now, _| broker.upgrade_begins(now, self.id));
                self.wake_reader();
            }
            GrantedUpgrade::Snappy | GrantedUpgrade::Deflate(_) => {
                shard.with_broker(|broker, now, out| broker.upgraded(now, self.id, None, out));
            }
        }
    }

    fn add_upgrade(&self, shard: &Rc<Shard>, upgrade: Upgrade) -> io::Result<()> {
        shard.with_broker_in_turn(|broker, _, _| {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = broker.output(self.id, &mut slices);
            self.transport.upgrade(upgrade, &slices[..count])
        })
    }

    /// Reads once for the handshake, and sends TLS's answer.
    pub(super) fn poll_handshake(
        self: &Rc<Self>,
        shard: &Rc<Shard>,
        cx: &mut Context<'_>,
    ) -> Poll<ReadOnce> {
        match self.transport.poll_handshake(cx, |_| Ok(())) {
            Poll::Pending => {
                *self.reader.borrow_mut() = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(Err(error)) => self.fail_handshake(shard, &error),
            Poll::Ready(Ok(())) if self.transport.is_handshaking() => self.flush(shard),
            Poll::Ready(Ok(())) => {
                shard.read_clock();
                let session = self.transport.session().map(tls::describe);
                shard.with_broker(|broker, now, out| broker.upgraded(now, self.id, session, out));
            }
        }
        Poll::Ready(ReadOnce::Read)
    }

    /// Tells the peer in the clear that there is no TLS, behind TLS's own last word.
    fn fail_handshake(&self, shard: &Rc<Shard>, error: &HandshakeError) {
        self.transport.clear();
        shard.with_broker(|broker, _, out| {
            broker.upgrade_failed(self.id, &error.to_string(), out);
        });
    }

    /// Fails the handshake, for which the peer took too long. Does nothing if the handshake has just been completed.
    pub(crate) fn expire_upgrade(&self, shard: &Rc<Shard>) {
        if self.transport.is_handshaking() {
            self.fail_handshake(shard, &HandshakeError::TimedOut);
        }
    }
}
