//! One client connection: bytes in, bytes out, and the move to another shard.
//!
//! Reading: the socket is read into one big buffer per shard, and every complete command is carried
//! out before the task waits again. A connection keeps only the tail of an unfinished command.
//!
//! Writing: the shard's turn writes for everybody, once per turn, straight from the log
//! (`Shard::turn`). Only a connection whose socket is full gets a task that waits for room.

use crate::log_info;
use crate::net::socket;
use crate::shard::Shard;
use engine_core::{ClientId, Sent};
use futures_lite::{AsyncRead, AsyncWrite, future};
use glommio::net::TcpStream;
use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Pieces of output that go into one write. The kernel takes 1024.
pub(crate) const SLICES_MAX: usize = 64;

/// Up to here an unfinished command is copied in front of what is read next; beyond it the tail
/// grows where it is.
const TAIL_IN_SCRATCH_BYTES: usize = 64 * 1024;

/// A connection of this shard.
pub(crate) struct Connection {
    pub(crate) id: ClientId,
    stream: RefCell<TcpStream>,
    /// The unfinished command at the end of what was read.
    tail: RefCell<Vec<u8>>,
    /// The socket is full; a task waits for room.
    is_stuck: Cell<bool>,
    /// The peer sends nothing more.
    input_ended: Cell<bool>,
    leaving: Cell<Option<Leaving>>,
    /// The task that reads, while it waits.
    reader: RefCell<Option<Waker>>,
    /// The task that waits for room in the socket.
    writer: RefCell<Option<Waker>>,
}

/// Why the reader stops.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    Closed,
    Moved,
}

/// A connection on its way to another shard.
pub(crate) struct Moving {
    pub(crate) client: engine_core::Client,
    descriptor: OwnedFd,
    tail: Vec<u8>,
    input_ended: bool,
}

/// Takes a new connection in.
pub(crate) fn start(shard: &Rc<Shard>, stream: TcpStream, peer: SocketAddr) {
    shard.read_clock();
    let id = shard
        .with_broker(|broker, now, _| broker.connect(now, peer.to_string(), peer.ip().to_string()));
    run(shard, Connection::new(id, stream, Vec::new(), false));
}

/// Takes a connection in that comes from another shard.
pub(crate) fn resume(shard: &Rc<Shard>, moving: Moving) {
    let Moving {
        client,
        descriptor,
        tail,
        input_ended,
    } = moving;
    let id = shard.with_broker(|broker, now, _| broker.attach(now, client));
    run(
        shard,
        Connection::new(id, socket::adopt(descriptor), tail, input_ended),
    );
}

fn run(shard: &Rc<Shard>, connection: Connection) {
    let connection = Rc::new(connection);
    shard.add_connection(connection.clone());
    let shard = shard.clone();
    glommio::spawn_local(async move {
        read(&shard, &connection).await;
        let id = connection.id;
        shard.remove_connection(id);
        if connection.leaving.get() != Some(Leaving::Moved) {
            let address = shard.with_broker(|broker, now, out| {
                let address = broker.address(id).unwrap_or_default().to_owned();
                broker.disconnect(now, id, out);
                address
            });
            log_info!("PROTOCOL(V2): [{address}] exiting ioloop");
        }
    })
    .detach();
}

/// Reads and carries out commands until the connection ends or leaves.
async fn read(shard: &Rc<Shard>, connection: &Connection) {
    // What came with the connection from another shard.
    connection.offer_tail(shard);
    loop {
        match future::poll_fn(|cx| connection.poll_reads(shard, cx)).await {
            // The buffer was full: others have their turn before the rest.
            Step::More => future::yield_now().await,
            Step::Pause(time) => shard.gather(time).await,
            Step::Over => return,
        }
    }
}

enum Step {
    More,
    /// What the peer sends next has time: let some gather.
    Pause(Duration),
    Over,
}

/// What one read brought.
enum ReadOnce {
    /// Less than there was room for: nothing more at the moment.
    Some,
    /// The same, of a consumer that has messages enough in hand.
    Patient(Duration),
    /// As much as there was room for.
    Full,
    /// The connection ends or leaves.
    Over,
}

impl Connection {
    fn new(id: ClientId, stream: TcpStream, tail: Vec<u8>, input_ended: bool) -> Connection {
        Connection {
            id,
            stream: RefCell::new(stream),
            tail: RefCell::new(tail),
            is_stuck: Cell::new(false),
            input_ended: Cell::new(input_ended),
            leaving: Cell::new(None),
            reader: RefCell::new(None),
            writer: RefCell::new(None),
        }
    }

    /// Reads until there is nothing more, or enough for one turn.
    fn poll_reads(&self, shard: &Rc<Shard>, cx: &mut Context<'_>) -> Poll<Step> {
        loop {
            match std::task::ready!(self.poll_read_once(shard, cx)) {
                // glommio has asked for readiness already: this comes back pending, at no cost.
                ReadOnce::Some => {}
                ReadOnce::Patient(time) => return Poll::Ready(Step::Pause(time)),
                ReadOnce::Full => return Poll::Ready(Step::More),
                ReadOnce::Over => return Poll::Ready(Step::Over),
            }
        }
    }

    /// One read and everything it completes.
    fn poll_read_once(&self, shard: &Rc<Shard>, cx: &mut Context<'_>) -> Poll<ReadOnce> {
        if self.leaving.get().is_some() {
            return Poll::Ready(ReadOnce::Over);
        }
        if self.input_ended.get() || !shard.is_reading(self.id) {
            // Backpressure, an answer that has to come first, or output that has yet to leave.
            *self.reader.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let mut scratch = shard.scratch.borrow_mut();
        let mut tail = self.tail.borrow_mut();
        let in_scratch = tail.len() <= TAIL_IN_SCRATCH_BYTES;
        let kept = if in_scratch { tail.len() } else { 0 };
        scratch[..kept].copy_from_slice(&tail[..kept]);
        let mut stream = self.stream.borrow_mut();
        let bytes = match Pin::new(&mut *stream).poll_read(cx, &mut scratch[kept..]) {
            Poll::Pending => {
                *self.reader.borrow_mut() = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(Err(_)) => return Poll::Ready(ReadOnce::Over),
            Poll::Ready(Ok(0)) => {
                self.input_ended.set(true);
                shard.with_broker(|broker, _, out| broker.finish_input(self.id, &tail, out));
                return Poll::Ready(ReadOnce::Some);
            }
            Poll::Ready(Ok(bytes)) => bytes,
        };
        drop(stream);
        shard.read_clock();
        let is_full = kept + bytes == scratch.len();
        if in_scratch {
            let input = &scratch[..kept + bytes];
            let consumed = self.offer(shard, input);
            tail.clear();
            tail.extend_from_slice(&input[consumed..]);
            if tail.is_empty() && tail.capacity() > TAIL_IN_SCRATCH_BYTES {
                *tail = Vec::new();
            }
        } else {
            tail.extend_from_slice(&scratch[..bytes]);
            let consumed = self.offer(shard, &tail);
            tail.drain(..consumed);
            tail.shrink_to(TAIL_IN_SCRATCH_BYTES);
        }
        if is_full {
            return Poll::Ready(ReadOnce::Full);
        }
        let patience = shard.patience(self.id);
        Poll::Ready(patience.map_or(ReadOnce::Some, ReadOnce::Patient))
    }

    fn offer(&self, shard: &Rc<Shard>, input: &[u8]) -> usize {
        shard.with_broker(|broker, now, out| broker.receive(now, self.id, input, out))
    }

    /// Offers the unread input again, after something changed for this connection.
    pub(crate) fn offer_tail(&self, shard: &Rc<Shard>) {
        let mut tail = self.tail.borrow_mut();
        if !tail.is_empty() {
            let consumed = self.offer(shard, &tail);
            tail.drain(..consumed);
        }
        if self.input_ended.get() && shard.is_reading(self.id) {
            shard.with_broker(|broker, _, out| broker.finish_input(self.id, &tail, out));
        }
        drop(tail);
        self.wake_reader();
    }

    /// The peer was silent for too long.
    pub(crate) fn expire(&self, shard: &Rc<Shard>) {
        self.input_ended.set(true);
        let tail = self.tail.borrow();
        shard.with_broker(|broker, _, out| broker.finish_input(self.id, &tail, out));
    }

    /// Ends the connection; the reader's task does the rest.
    pub(crate) fn close(&self) {
        if self.leaving.get().is_none() {
            self.leave(Leaving::Closed);
        }
    }

    /// Packs the connection for another shard and ends it here.
    ///
    /// # Errors
    /// No descriptor is left for the duplicate; nothing has changed.
    pub(crate) fn pack(&self, shard: &Rc<Shard>) -> io::Result<Option<Moving>> {
        if self.leaving.get().is_some() {
            return Ok(None);
        }
        let descriptor = socket::duplicate(&self.stream.borrow())?;
        let Some(client) = shard.with_broker(|broker, _, _| broker.detach(self.id)) else {
            return Ok(None);
        };
        self.leave(Leaving::Moved);
        let tail = std::mem::take(&mut *self.tail.borrow_mut());
        Ok(Some(Moving {
            client,
            descriptor,
            tail,
            input_ended: self.input_ended.get(),
        }))
    }

    /// Writes what is queued, as far as the socket takes it.
    pub(crate) fn flush(self: &Rc<Self>, shard: &Rc<Shard>) {
        if self.is_stuck.get() || self.leaving.get().is_some() {
            return;
        }
        loop {
            match self.write_once(shard) {
                Ok(Written::All) => return,
                Ok(Written::Some) => {}
                Ok(Written::Stuck) => {
                    self.is_stuck.set(true);
                    let (connection, shard) = (self.clone(), shard.clone());
                    glommio::spawn_local(async move { connection.write_stuck(&shard).await })
                        .detach();
                    return;
                }
                Err(_) => {
                    shard.with_broker(|broker, _, _| broker.abandon(self.id));
                    return self.close();
                }
            }
        }
    }

    fn write_once(&self, shard: &Rc<Shard>) -> io::Result<Written> {
        let (sent, offered) = shard.in_turn(|broker, now, _| {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = broker.output(self.id, &mut slices);
            let offered: usize = slices[..count].iter().map(|slice| slice.len()).sum();
            let sent = match offered {
                0 => Some(0),
                _ => socket::send(&self.stream.borrow(), &slices[..count])?,
            };
            io::Result::Ok((
                sent.map(|bytes| (broker.sent(now, self.id, bytes), bytes)),
                offered,
            ))
        })?;
        match sent {
            None => {
                shard.in_turn(|broker, now, _| broker.sent(now, self.id, 0));
                Ok(Written::Stuck)
            }
            Some((Sent::Over, _)) => {
                self.close();
                Ok(Written::All)
            }
            Some((Sent::All, _)) => Ok(Written::All),
            Some((Sent::More, bytes)) if bytes < offered => Ok(Written::Stuck),
            Some((Sent::More, _)) => Ok(Written::Some),
        }
    }

    /// Waits until the socket takes the first piece, then writes on.
    async fn write_stuck(self: Rc<Self>, shard: &Rc<Shard>) {
        let result = future::poll_fn(|cx| {
            if self.leaving.get().is_some() {
                return Poll::Ready(Ok(()));
            }
            // The wait may have been long, and what leaves now counts for the write deadline.
            shard.read_clock();
            shard.with_broker(|broker, now, _| {
                let mut slices = [IoSlice::new(&[]); 1];
                if broker.output(self.id, &mut slices) == 0 {
                    return Poll::Ready(Ok(()));
                }
                let mut stream = self.stream.borrow_mut();
                match Pin::new(&mut *stream).poll_write(cx, &slices[0]) {
                    Poll::Pending => {
                        *self.writer.borrow_mut() = Some(cx.waker().clone());
                        Poll::Pending
                    }
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                    Poll::Ready(Ok(bytes)) => {
                        broker.sent(now, self.id, bytes);
                        Poll::Ready(Ok(()))
                    }
                }
            })
        })
        .await;
        self.is_stuck.set(false);
        match result {
            Ok(()) => self.flush(shard),
            Err(_) => {
                shard.with_broker(|broker, _, _| broker.abandon(self.id));
                self.close();
            }
        }
    }

    /// Has both tasks end. The writer, too: a peer that reads nothing would keep it waiting, and
    /// with it the descriptor, for ever.
    fn leave(&self, leaving: Leaving) {
        self.leaving.set(Some(leaving));
        self.wake_reader();
        wake(&self.writer);
    }

    fn wake_reader(&self) {
        wake(&self.reader);
    }
}

fn wake(task: &RefCell<Option<Waker>>) {
    if let Some(waker) = task.borrow_mut().take() {
        waker.wake();
    }
}

enum Written {
    All,
    Some,
    Stuck,
}
