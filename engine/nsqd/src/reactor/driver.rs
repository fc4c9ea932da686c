//! [`Engine`]: the ways to wait for sockets, by name. [`Driver`]: the seam between the reactor and the system call that waits. One engine stands behind it: the
//! [`Ring`] (io_uring), the [`Epoll`], or with the feature `glommio` that runtime. glommio waits in its own loop, so
//! [`Driver::enter`] is not for it.
//!
//! A driver has three jobs. It says when a descriptor is ready for a direction: each [`Driver::watch`] is answered once,
//! with its token, by [`Driver::for_each_ready`]. An answer may come although the descriptor is not ready: the reader or
//! writer tries, finds nothing, and watches again. A ring also receives for a descriptor ([`Driver::receive`]), and sends
//! small outputs of several descriptors together ([`Driver::stage_send`]). Other engines refuse these two jobs.

use super::epoll::Epoll;
#[cfg(feature = "glommio")]
use super::glommio::Glommio;
#[cfg(target_os = "linux")]
use super::ring::Ring;
use super::token::{Received, Token};
use super::{Notify, Sent};
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// A way to learn which of a shard's sockets are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// io_uring, of Linux 5.11 and newer.
    #[cfg(target_os = "linux")]
    IoUring,
    /// epoll; kqueue on BSD and macOS.
    Epoll,
    /// glommio, which drives io_uring in its own way.
    #[cfg(feature = "glommio")]
    Glommio,
}

impl Engine {
    /// All engines of this program, the best first.
    pub const ALL: &[Engine] = &[
        #[cfg(target_os = "linux")]
        Engine::IoUring,
        Engine::Epoll,
        #[cfg(feature = "glommio")]
        Engine::Glommio,
    ];

    /// The name, as `--io` takes it.
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_os = "linux")]
            Engine::IoUring => "io_uring",
            Engine::Epoll => "epoll",
            #[cfg(feature = "glommio")]
            Engine::Glommio => "glommio",
        }
    }

    /// Returns whether this is our own ring.
    pub(crate) fn is_io_uring(self) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Engine::IoUring => true,
            _ => false,
        }
    }

    /// Returns the cost of this engine compared with io_uring, as a clause for messages.
    pub(crate) fn cost_text(self) -> &'static str {
        match self {
            #[cfg(target_os = "linux")]
            Engine::IoUring => "it costs nothing more",
            #[cfg(feature = "glommio")]
            Engine::Glommio => "it takes more processor time per message",
            Engine::Epoll => {
                "it takes more processor time for many small requests, and no more in other measured loads"
            }
        }
    }

    /// The engine of this name.
    pub fn named(name: &str) -> Option<Engine> {
        let mut all = Engine::ALL.iter().copied();
        all.find(|engine| engine.name() == name)
    }
}

/// The engine of one thread.
pub(super) enum Driver {
    #[cfg(target_os = "linux")]
    Ring(Box<Ring>),
    Epoll(Epoll),
    #[cfg(feature = "glommio")]
    Glommio(Glommio),
}

/// Has the ring act. With another engine, the result is `$other`.
macro_rules! at_ring {
    ($driver:expr, |$ring:pat_param| $act:expr, else $other:expr) => {
        match $driver {
            #[cfg(target_os = "linux")]
            Driver::Ring($ring) => $act,
            _ => $other,
        }
    };
}

#[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
impl Driver {
    /// Makes the engine, and what wakes its thread from other threads.
    ///
    /// # Errors
    /// The system's answer.
    pub(super) fn new(engine: Engine) -> io::Result<(Driver, Arc<Notify>)> {
        match engine {
            #[cfg(target_os = "linux")]
            Engine::IoUring => {
                Ring::new().map(|(ring, notify)| (Driver::Ring(Box::new(ring)), notify))
            }
            #[cfg(feature = "glommio")]
            Engine::Glommio => {
                Glommio::new().map(|(glommio, notify)| (Driver::Glommio(glommio), notify))
            }
            Engine::Epoll => Epoll::new().map(|(epoll, notify)| (Driver::Epoll(epoll), notify)),
        }
    }

    /// Asks for one answer: [`Driver::for_each_ready`] gives the token when the descriptor is ready.
    pub(super) fn watch(&self, descriptor: BorrowedFd<'_>, token: Token) {
        match self {
            #[cfg(target_os = "linux")]
            Driver::Ring(ring) => ring.watch(descriptor, token),
            #[cfg(feature = "glommio")]
            Driver::Glommio(glommio) => glommio.watch(descriptor, token),
            Driver::Epoll(epoll) => epoll.watch(descriptor, token),
        }
    }

    /// Has the engine receive for a descriptor, from now on and until it is ended. [`Driver::for_each_ready`] gives
    /// [`Token::of_receiving`] each time that [`Driver::take_received`] has something. Returns false if the engine cannot do
    /// this.
    pub(super) fn receive(&self, descriptor: BorrowedFd<'_>, token: Token) -> bool {
        at_ring!(self, |ring| ring.receive(descriptor, token), else false)
    }

    /// Returns whether the engine receives for descriptors.
    pub(super) fn receives(&self) -> bool {
        at_ring!(self, |ring| ring.receives(), else false)
    }

    /// Takes what the engine has received into the start of `room`, which is not empty.
    pub(super) fn take_received(&self, token: Token, room: &mut [u8]) -> Received {
        at_ring!(self, |ring| ring.take_received(token, room), else Received::Off)
    }

    /// Asks for the end of [`Driver::receive`]. Bytes may still come until [`Driver::take_received`] answers `Off`, or tells
    /// the end of the connection.
    pub(super) fn end_receiving(&self, token: Token) {
        at_ring!(self, |ring| ring.end_receiving(token), else ());
    }

    /// Ends [`Driver::receive`], and returns when no more bytes can come.
    pub(super) fn stop_receiving(&self, token: Token) {
        at_ring!(self, |ring| ring.stop_receiving(token), else ());
    }

    /// Ends [`Driver::receive`] for a source that ends, and drops what has come.
    pub(super) fn forget_received(&self, token: Token) {
        at_ring!(self, |ring| ring.forget_received(token), else ());
    }

    /// Stages an output, which leaves with [`Driver::send_staged`]. Returns false if it is too long, too many are
    /// staged, the staged ones are leaving, or the engine cannot do this. The descriptor must stay open until then.
    pub(super) fn stage_send(&self, descriptor: BorrowedFd<'_>, output: &[IoSlice<'_>]) -> bool {
        at_ring!(self, |ring| ring.stage_send(descriptor, output), else false)
    }

    /// Sends all staged outputs, as much of each as its socket takes now, and calls `each` with the results, in the
    /// order of staging.
    pub(super) fn send_staged(&self, each: impl FnMut(Sent)) {
        at_ring!(self, |ring| ring.send_staged(each), else ());
    }

    /// Ends the waits of a source, before its descriptor is closed or given away. `armed` are the tokens that
    /// were not answered yet.
    pub(super) fn forget(&self, index: usize, armed: impl Iterator<Item = Token>) {
        match self {
            #[cfg(target_os = "linux")]
            Driver::Ring(ring) => armed.for_each(|token| ring.cancel(token)),
            #[cfg(feature = "glommio")]
            Driver::Glommio(glommio) => glommio.forget(index),
            Driver::Epoll(epoll) => epoll.forget(index),
        }
    }

    /// Returns whether looking for answers costs no system call.
    pub(super) fn can_look_for_free(&self) -> bool {
        at_ring!(self, |_| true, else false)
    }

    /// Returns whether there are answers, maybe only after [`Driver::enter`]. False if only a system call could tell.
    pub(super) fn has_news(&self) -> bool {
        at_ring!(self, |ring| ring.has_news(), else false)
    }

    /// Asks the system for answers, and waits for one: `None` for ever, zero not at all. May return early.
    ///
    /// # Errors
    /// The engine does not work.
    pub(super) fn enter(&self, wait: Option<Duration>) -> io::Result<()> {
        match self {
            #[cfg(target_os = "linux")]
            Driver::Ring(ring) => ring.enter(wait),
            Driver::Epoll(epoll) => epoll.enter(wait),
            #[cfg(feature = "glommio")]
            Driver::Glommio(_) => unreachable!("glommio's own loop asks the system"),
        }
    }

    /// Takes the answers. An error of a descriptor counts as readiness: the reader or writer will see it.
    /// Returns whether another thread has woken this one. Always false with glommio, whose own loop takes the wake-up.
    pub(super) fn for_each_ready(&self, each: impl FnMut(Token)) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Driver::Ring(ring) => ring.for_each_ready(each),
            #[cfg(feature = "glommio")]
            Driver::Glommio(glommio) => {
                glommio.for_each_ready(each);
                false
            }
            Driver::Epoll(epoll) => epoll.for_each_ready(each),
        }
    }
}

#[cfg(test)]
mod tests;
