//! `nsq-bench sink`: a null daemon, to measure the generator by and to test its honesty with.
//!
//! ```text
//!   null   takes publishes and forgets them; gives consumers as many messages as they finish
//!   echo   delivers what was published, to each channel once
//!   faults stall (all of it stands still), drop, duplicate, alter one message in N: counted exactly
//! ```
//!
//! One thread, one epoll, V2 and a little HTTP on the same port. It keeps no deadlines: no heartbeats,
//! no message timeouts, deferred messages are delivered at once. Snappy and deflate are always granted,
//! TLS when there is a certificate.

mod channel;
mod http;
mod peer;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use upgrade::ServerConfig;

use crate::clock::Clock;
use crate::link::{Link, ReadOutcome};
use crate::span::Span;
use channel::Store;
use peer::{Desk, Peer};

const READ_BYTES: usize = 256 * 1024;
const LISTENER: u64 = u64::MAX;
/// How often the stop flag is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// What becomes of published messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Forgotten; consumers get messages that are made up.
    #[default]
    Null,
    /// Delivered.
    Echo,
}

/// What the sink does wrong on purpose.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Stands still for the first time, once in every second one.
    pub stall: Option<(Span, Span)>,
    /// Acknowledges one message in so many and delivers it to nobody.
    pub drop_one_in: Option<u64>,
    /// Delivers one message in so many twice.
    pub duplicate_one_in: Option<u64>,
    /// Alters one byte of one message in so many.
    pub alter_one_in: Option<u64>,
}

/// How a sink is to be.
#[derive(Clone, Copy, Debug)]
pub struct SinkOptions {
    /// Where to listen; port 0 leaves the choice to the system.
    pub address: SocketAddr,
    /// What becomes of messages.
    pub mode: Mode,
    /// What goes wrong.
    pub faults: Faults,
    /// Body size of made-up messages in bytes.
    pub size: usize,
}

/// What a sink did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCounts {
    /// Messages published to it.
    pub published: u64,
    /// Messages delivered by it.
    pub delivered: u64,
    /// FINs received.
    pub finished: u64,
    /// Messages acknowledged and dropped.
    pub dropped: u64,
    /// Messages delivered twice to each channel.
    pub duplicated: u64,
    /// Messages altered.
    pub altered: u64,
    /// Times it stood still.
    pub stalls: u64,
}

/// A running sink.
#[derive(Debug)]
pub struct Sink {
    /// Where it listens.
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    handle: JoinHandle<io::Result<SinkCounts>>,
}

impl Sink {
    /// Listens and starts.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn start(options: SinkOptions) -> io::Result<Sink> {
        Sink::start_with_tls(options, None)
    }

    /// Listens and starts; with a configuration clients can have TLS.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn start_with_tls(
        options: SinkOptions,
        tls: Option<Arc<ServerConfig>>,
    ) -> io::Result<Sink> {
        let listener = TcpListener::bind(options.address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let handle = thread::Builder::new()
            .name("sink".into())
            .spawn(move || Server::new(options, tls, listener)?.serve(&seen))?;
        Ok(Sink {
            address,
            stop,
            handle,
        })
    }

    /// Closes all connections and ends.
    ///
    /// # Errors
    /// When it had ended before because it could not wait for its sockets.
    pub fn stop(self) -> io::Result<SinkCounts> {
        self.stop.store(true, Ordering::Release);
        self.handle
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the sink panicked")))
    }
}

struct Server {
    listener: TcpListener,
    epoll: OwnedFd,
    peers: Vec<Option<Peer>>,
    free: Vec<usize>,
    store: Store,
    scratch: Vec<u8>,
    clock: Clock,
    stall: Option<(Span, Span)>,
    tls: Option<Arc<ServerConfig>>,
}

impl Server {
    fn new(
        options: SinkOptions,
        tls: Option<Arc<ServerConfig>>,
        listener: TcpListener,
    ) -> io::Result<Server> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let token = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, token, epoll::EventFlags::IN)?;
        Ok(Server {
            listener,
            epoll,
            peers: Vec::new(),
            free: Vec::new(),
            store: Store::new(options.mode, options.faults, options.size),
            scratch: Vec::new(),
            clock: Clock::new(),
            stall: options.faults.stall,
            tls,
        })
    }

    fn serve(mut self, stop: &AtomicBool) -> io::Result<SinkCounts> {
        let mut next_stall = self.stall.map(|(_, every)| Instant::now() + every.0);
        let mut events: Vec<epoll::Event> = Vec::with_capacity(1024);
        while !stop.load(Ordering::Acquire) {
            let mut wait = LOOK;
            if let (Some(at), Some((length, every))) = (&mut next_stall, self.stall) {
                let now = Instant::now();
                if now >= *at {
                    thread::sleep(length.0);
                    *at += every.0;
                    self.store.counts.stalls += 1;
                }
                wait = wait.min(at.saturating_duration_since(now));
            }
            let timeout = Timespec::try_from(wait).unwrap_or_default();
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    index => self.serve_peer(index as usize),
                }
            }
            // A publish woke consumers of other connections.
            while let Some(index) = self.store.woken.pop() {
                self.write(index);
            }
        }
        Ok(self.store.counts)
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // Aborted before it was accepted, or no descriptor: the next one may do.
                Err(_) => return Ok(()),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let index = self.free.pop().unwrap_or(self.peers.len());
            if index == self.peers.len() {
                self.peers.push(None);
            }
            let token = epoll::EventData::new_u64(index as u64);
            epoll::add(&self.epoll, &stream, token, epoll::EventFlags::IN)?;
            self.peers[index] = Some(Peer::new(index, Link::new(stream)));
        }
    }

    fn serve_peer(&mut self, index: usize) {
        let Some(Some(peer)) = self.peers.get_mut(index) else {
            return;
        };
        let (outcome, length) = match peer.link.read(&mut self.scratch, READ_BYTES) {
            Ok(read) => read,
            Err(_) => return self.close(index),
        };
        match outcome {
            ReadOutcome::End => return self.close(index),
            ReadOutcome::Later => return self.write(index),
            ReadOutcome::Bytes(_) => {}
        }
        let mut desk = Desk {
            store: &mut self.store,
            now_ns: self.clock.now_ns(),
            tls: self.tls.as_ref(),
        };
        let handled = peer.input(&self.scratch[..length], &mut desk);
        peer.link.keep(&self.scratch[handled..length]);
        self.write(index);
    }

    /// Gives a consumer its messages, writes, and asks epoll to say when more can be written.
    fn write(&mut self, index: usize) {
        let Some(Some(peer)) = self.peers.get_mut(index) else {
            return;
        };
        let mut desk = Desk {
            store: &mut self.store,
            now_ns: self.clock.now_ns(),
            tls: self.tls.as_ref(),
        };
        peer.deliver(&mut desk);
        let Ok(empty) = peer.link.flush() else {
            return self.close(index);
        };
        if empty && peer.closing {
            return self.close(index);
        }
        let waits = !empty || peer.has_more(&self.store);
        if waits != peer.waits_to_write {
            peer.waits_to_write = waits;
            let mut flags = epoll::EventFlags::IN;
            if waits {
                flags |= epoll::EventFlags::OUT;
            }
            let token = epoll::EventData::new_u64(index as u64);
            if epoll::modify(&self.epoll, peer.link.stream(), token, flags).is_err() {
                self.close(index);
            }
        }
    }

    fn close(&mut self, index: usize) {
        if let Some(peer) = self.peers[index].take() {
            self.store.leave(index, peer.channel);
            self.free.push(index);
        }
    }
}
