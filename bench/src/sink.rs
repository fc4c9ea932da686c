//! `nsq-bench sink`: a null daemon. It measures what the generator can do, and tests its honesty.
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
mod client;
mod http;

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
use crate::generator::link::Link;
use crate::scenario::header::HEADER_BYTES;
use crate::scenario::span::Span;
use crate::target::resolve;
use channel::Store;
use client::Client;

const READ_BYTES: usize = 256 * 1024;
const LISTENER: u64 = u64::MAX;
/// Time between two looks at the stop flag.
const LOOK: Duration = Duration::from_millis(20);

/// The sink's treatment of published messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Forgotten; consumers get messages that are made up.
    #[default]
    Null,
    /// Delivered.
    Echo,
}

/// The faults that the sink makes on purpose.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Faults {
    /// Stand still so long, so often: 200ms/1s
    #[arg(long, value_name = "TIME/TIME", value_parser = parse_stall)]
    pub stall: Option<(Span, Span)>,
    /// Acknowledge and drop one message in N: 1/N (mode echo)
    #[arg(long = "drop", value_name = "1/N", value_parser = parse_one_in)]
    pub drop_one_in: Option<u64>,
    /// Deliver one message in N twice: 1/N (mode echo)
    #[arg(long = "duplicate", value_name = "1/N", value_parser = parse_one_in)]
    pub duplicate_one_in: Option<u64>,
    /// Alter one byte of one message in N: 1/N (mode echo)
    #[arg(long = "alter", value_name = "1/N", value_parser = parse_one_in)]
    pub alter_one_in: Option<u64>,
}

/// The options of a sink.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct SinkOptions {
    /// Where to listen, for V2 and HTTP alike; port 0 leaves the choice to the system
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:4150", value_parser = resolve)]
    pub address: SocketAddr,
    /// Fate of published messages
    #[arg(long, value_enum, default_value = "null")]
    pub mode: Mode,
    /// Body size of the messages that `null` makes up, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 200, value_parser = parse_size)]
    pub size: usize,
    /// The faults that the sink makes on purpose.
    #[command(flatten)]
    pub faults: Faults,
}

fn parse_size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes) if (HEADER_BYTES..=1 << 20).contains(&bytes) => Ok(bytes),
        _ => Err(format!("a size in bytes, {HEADER_BYTES} to 1048576")),
    }
}

fn parse_stall(text: &str) -> Result<(Span, Span), String> {
    let (length, every) = text.split_once('/').ok_or("two times such as 200ms/1s")?;
    let (length, every): (Span, Span) = (length.parse()?, every.parse()?);
    if length.is_zero() || length >= every {
        return Err("the first time must be shorter than the second, and not zero".into());
    }
    Ok((length, every))
}

fn parse_one_in(text: &str) -> Result<u64, String> {
    let n = text.strip_prefix("1/").and_then(|n| n.parse().ok());
    Ok(n.filter(|n| *n > 0).ok_or("a share such as 1/10000")?)
}

/// The counts of what a sink did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCounts {
    /// Messages taken from producers, dropped ones included.
    pub published: u64,
    /// Messages delivered, over all channels.
    pub delivered: u64,
    /// FINs received.
    pub finished: u64,
    /// Messages acknowledged and dropped.
    pub dropped: u64,
    /// Messages delivered twice to each channel.
    pub duplicated: u64,
    /// Messages of which the sink altered one byte.
    pub altered: u64,
    /// Times the sink stood still on purpose.
    pub stalls: u64,
}

/// A running sink.
#[derive(Debug)]
pub struct Sink {
    /// The address that the sink listens at, with the port that the system chose.
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    handle: JoinHandle<io::Result<SinkCounts>>,
}

impl Sink {
    /// Listens and starts. With a configuration, clients can have TLS.
    /// Fails when the sink cannot listen at the address.
    pub fn start(options: SinkOptions, tls: Option<Arc<ServerConfig>>) -> io::Result<Sink> {
        let listener = TcpListener::bind(options.address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let serve = move || Server::new(options, tls, listener)?.serve(&seen);
        let handle = thread::Builder::new().name("sink".into()).spawn(serve)?;
        Ok(Sink {
            address,
            stop,
            handle,
        })
    }

    /// Closes all connections and ends.
    /// Fails when it had ended before because it could not wait for its sockets.
    pub fn stop(self) -> io::Result<SinkCounts> {
        self.stop.store(true, Ordering::Release);
        let panicked = |_| Err(io::Error::other("the sink panicked"));
        self.handle.join().unwrap_or_else(panicked)
    }
}

struct Server {
    listener: TcpListener,
    epoll: OwnedFd,
    clients: Vec<Option<Client>>,
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
            clients: Vec::new(),
            free: Vec::new(),
            store: Store::new(options.mode, options.faults, options.size),
            scratch: Vec::new(),
            clock: Clock::start(),
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
                    index => self.serve_client(index as usize),
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
            // Nobody waits, the client aborted before it was accepted, or no descriptor is free: the next may succeed.
            let Ok((stream, _)) = self.listener.accept() else {
                return Ok(());
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let index = self.free.pop().unwrap_or(self.clients.len());
            if index == self.clients.len() {
                self.clients.push(None);
            }
            let token = epoll::EventData::new_u64(index as u64);
            epoll::add(&self.epoll, &stream, token, epoll::EventFlags::IN)?;
            self.clients[index] = Some(Client::new(index, Link::new(stream)));
        }
    }

    fn serve_client(&mut self, index: usize) {
        let Some(Some(client)) = self.clients.get_mut(index) else {
            return;
        };
        let length = match client.link.read(&mut self.scratch, READ_BYTES) {
            Ok(Some(length)) => length,
            Ok(None) => return self.write(index),
            Err(_) => return self.close(index),
        };
        let input = &self.scratch[..length];
        let handled = client.input(input, &mut self.store, self.tls.as_ref());
        client.link.keep(&self.scratch[handled..length]);
        self.write(index);
    }

    /// Gives a consumer its messages, writes, and asks epoll to say when more can be written.
    fn write(&mut self, index: usize) {
        let Some(Some(client)) = self.clients.get_mut(index) else {
            return;
        };
        client.deliver(&mut self.store, self.clock.now_ns());
        let Ok(empty) = client.link.flush() else {
            return self.close(index);
        };
        if empty && client.closing {
            return self.close(index);
        }
        let waits = !empty || client.has_more(&self.store);
        if waits != client.waits_to_write {
            client.waits_to_write = waits;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, waits);
            let token = epoll::EventData::new_u64(index as u64);
            if epoll::modify(&self.epoll, &client.link.stream, token, flags).is_err() {
                self.close(index);
            }
        }
    }

    fn close(&mut self, index: usize) {
        if let Some(client) = self.clients[index].take() {
            self.store.leave(index, client.channel);
            self.free.push(index);
        }
    }
}
