//! One client connection: bytes in, bytes out, and the move to another shard.
//!
//! Reading: the socket is read into a big buffer that is warm (`Input`), and every complete command is
//! carried out before the task waits again. A connection keeps only an unfinished command, and what is
//! left for the sake of other connections or until its answers have left.
//!
//! Writing: the shard's turn writes for everybody, once per turn, straight from the log (`Shard::take_turn`). With
//! io_uring, the small outputs of several connections are copied first, and leave together. Only a connection whose socket
//! is full gets a task that waits for room. The broker is told what has left the process,
//! whether or not TLS or compression lie between ([`Transport`]).

mod asking;
mod upgrades;
mod writing;

use crate::net::address::Peer;
use crate::net::input::{Filled, Input};
use crate::net::listener::Listener;
use crate::net::socket::Stream;
use crate::net::transport::Transport;
use crate::reactor;
use crate::shard::Shard;
use crate::shard::mail::{Mail, Moving};
use asking::Asking;
use engine_rules::{ClientId, ShardId};
use futures_lite::future;
use program::log::{self, Level};
use program::log_info;
use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
pub(crate) use writing::flush_all;

/// A connection of this shard.
pub(crate) struct Connection {
    pub(crate) id: ClientId,
    transport: Transport,
    /// The input that is not carried out yet: an unfinished command, and complete ones that are left for a later turn.
    input: RefCell<Input>,
    /// The socket is full; a task waits for room.
    is_stuck: Cell<bool>,
    /// The peer sends nothing more.
    input_ended: Cell<bool>,
    /// The connection ends, or moves to another shard.
    is_leaving: Cell<bool>,
    /// The client of a connection that moves to another shard, until the connection's tasks have ended.
    moving: RefCell<Option<Box<MovingClient>>>,
    /// The question to an auth server about this connection, until its answer is there.
    question: RefCell<Option<Box<Asking>>>,
    /// The task that reads, while it waits.
    reader: RefCell<Option<Waker>>,
    /// The task that waits for room in the socket.
    writer: RefCell<Option<Waker>>,
}

/// A client that the broker of this shard has given up, and the shard to which it moves.
struct MovingClient {
    client: engine_rules::Client,
    to: ShardId,
}

/// Serves clients until the task is dropped.
pub(crate) async fn serve(shard: Rc<Shard>, listener: Listener) {
    loop {
        let (stream, peer) = listener.accept().await;
        log_info!("TCP: new client({peer})");
        start(&shard, stream, &peer);
    }
}

/// Takes a new connection in.
fn start(shard: &Rc<Shard>, stream: Stream, peer: &Peer) {
    shard.read_clock();
    let id = shard.with_broker(|broker, now, _| broker.connect(now, peer.to_string(), peer.host()));
    run(shard, Connection::new(id, Transport::new(stream)));
}

/// Takes a connection in that comes from another shard.
pub(crate) fn resume(shard: &Rc<Shard>, moving: Moving) {
    let Moving {
        client,
        transport,
        input,
        input_ended,
    } = moving;
    let id = shard.with_broker(|broker, now, _| broker.attach(now, client));
    let connection = Connection {
        input: RefCell::new(Input::new(input)),
        input_ended: Cell::new(input_ended),
        ..Connection::new(id, Transport::adopt(transport))
    };
    run(shard, connection);
}

fn run(shard: &Rc<Shard>, connection: Connection) {
    let connection = Rc::new(connection);
    shard.connections.add(connection.clone());
    let shard = shard.clone();
    reactor::spawn(async move {
        read(&shard, &connection).await;
        connection.end_writer().await;
        end(&shard, connection);
    })
    .detach();
}

/// Ends a connection here, and sends it to the shard to which it moves, with its descriptor.
fn end(shard: &Rc<Shard>, connection: Rc<Connection>) {
    let id = connection.id;
    shard.connections.remove(id);
    connection.end_wait();
    let input = connection.take_input(shard);
    let Some(moving) = connection.moving.take() else {
        return shard.with_broker(|broker, _, out| broker.disconnect(id, out));
    };
    let connection = Rc::into_inner(connection).expect("the reader is the last task");
    let mail = Mail::Connection(Box::new(Moving {
        client: moving.client,
        transport: connection.transport.into_moving(),
        input,
        input_ended: connection.input_ended.get(),
    }));
    shard.shared.post.send(moving.to, mail);
}

/// Reads and carries out commands until the connection ends or leaves.
async fn read(shard: &Rc<Shard>, connection: &Rc<Connection>) {
    loop {
        match future::poll_fn(|cx| connection.poll_read_once(shard, cx)).await {
            // The reactor watches the socket already: the next read comes back pending, at no cost.
            ReadOnce::Read => {}
            ReadOnce::Full => {
                reactor::come_last().await;
                while connection.carry_on(shard) {
                    reactor::come_last().await;
                }
            }
            ReadOnce::Gather(time) => shard.gathering.wait(shard.shared.clock, time).await,
            ReadOnce::Over => return,
        }
    }
}

/// The result of one read.
enum ReadOnce {
    /// The read left budget: the reader waits for more input, if any comes.
    Read,
    /// `Read`, from a consumer that has enough messages in hand: it may be read this much later.
    Gather(Duration),
    /// The read brought as much as one poll may read, or more than may be carried out at once.
    Full,
    /// The connection ends or leaves.
    Over,
}

impl Connection {
    fn new(id: ClientId, transport: Transport) -> Connection {
        Connection {
            id,
            transport,
            input: RefCell::default(),
            is_stuck: Cell::new(false),
            input_ended: Cell::new(false),
            is_leaving: Cell::new(false),
            moving: RefCell::new(None),
            question: RefCell::new(None),
            reader: RefCell::new(None),
            writer: RefCell::new(None),
        }
    }

    /// Reads once, and carries out every command that is complete then.
    fn poll_read_once(self: &Rc<Self>, shard: &Rc<Shard>, cx: &mut Context<'_>) -> Poll<ReadOnce> {
        if self.is_leaving.get() {
            return Poll::Ready(ReadOnce::Over);
        }
        if self.has_more(shard) {
            // Input is left because the broker ended the piece, because the broker did not read this connection until
            // now, or because the connection came from another shard. [`read`] carries on with this input after all
            // other connections have had their turn.
            return Poll::Ready(ReadOnce::Full);
        }
        if !shard.broker.borrow().is_reading(self.id) {
            if self.transport.is_handshaking() {
                return self.poll_handshake(shard, cx);
            }
            if self.poll_gone(cx) {
                return Poll::Ready(ReadOnce::Over);
            }
            // Backpressure, an answer that has to come first, or output that has yet to leave.
            self.transport.stream().hold_back();
            *self.reader.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if self.input_ended.get() {
            self.finish_input(shard);
            return Poll::Ready(ReadOnce::Read);
        }
        let filled = self.input.borrow_mut().poll_fill(
            &mut shard.buffers.borrow_mut(),
            shard.broker.borrow().needs(self.id),
            |room| self.transport.poll_read(cx, room),
        );
        let filled = match filled {
            Poll::Pending => {
                *self.reader.borrow_mut() = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(Err(error)) => {
                if error.kind() != ErrorKind::InvalidData {
                    self.record_failure(shard, "failed to read command", "read", &error);
                    return Poll::Ready(ReadOnce::Over);
                }
                // Nothing can be read behind that. What came before is still answered, and TLS has a
                // word of its own for the peer.
                let reason = format!("failed to read command - {error}");
                shard.with_broker(|broker, _, _| broker.set_end_reason(self.id, reason));
                self.flush(shard);
                Filled::End
            }
            Poll::Ready(Ok(filled)) => filled,
        };
        if filled == Filled::End {
            self.input_ended.set(true);
            return Poll::Ready(ReadOnce::Read);
        }
        shard.read_clock();
        self.offer(shard);
        if self.transport.stream().is_budget_spent() || self.has_more(shard) {
            return Poll::Ready(ReadOnce::Full);
        }
        let Some(delay) = shard.broker.borrow_mut().coalescing_delay(self.id) else {
            return Poll::Ready(ReadOnce::Read);
        };
        self.transport.stream().let_gather();
        Poll::Ready(ReadOnce::Gather(delay))
    }

    /// Returns whether the broker can carry out more of the input that is there. [`Connection::poll_read_once`] names
    /// the reasons why such input is left.
    fn has_more(&self, shard: &Rc<Shard>) -> bool {
        let bytes = self.input.borrow().bytes().len();
        shard.broker.borrow().has_more(self.id, bytes)
    }

    /// Carries out the input, or as much of it as may be carried out at once.
    fn offer(&self, shard: &Rc<Shard>) {
        let mut input = self.input.borrow_mut();
        let consumed = shard.with_broker(|broker, now, out| {
            broker.set_tracing(log::enabled(Level::Debug));
            broker.receive(now, self.id, input.bytes(), out)
        });
        input.consumed(&mut shard.buffers.borrow_mut(), consumed);
    }

    /// Tells the broker that nothing follows the input.
    fn finish_input(&self, shard: &Rc<Shard>) {
        let input = self.input.borrow();
        shard.with_broker(|broker, _, out| broker.finish_input(self.id, input.bytes(), out));
    }

    fn take_input(&self, shard: &Shard) -> Vec<u8> {
        let mut input = self.input.borrow_mut();
        input.take(&mut shard.buffers.borrow_mut())
    }

    /// Carries out one piece of the unread input. Returns false if the broker can take no input now, or there is none.
    fn carry_on(&self, shard: &Rc<Shard>) -> bool {
        let has_more = !self.is_leaving.get() && self.has_more(shard);
        if has_more {
            shard.read_clock();
            self.offer(shard);
        }
        has_more
    }

    /// Treats the input as ended, because the peer was silent for too long.
    pub(crate) fn expire(&self, shard: &Rc<Shard>) {
        self.input_ended.set(true);
        self.finish_input(shard);
    }

    /// Ends the connection; the reader's task does the rest.
    pub(crate) fn close(&self) {
        if !self.is_leaving.get() {
            self.leave();
        }
    }

    /// Ends the connection here, and has the reader send it to another shard. The descriptor goes along: a move needs
    /// nothing that could be missing.
    pub(crate) fn move_to(&self, shard: &Shard, to: ShardId) {
        if self.is_leaving.get() {
            return;
        }
        if let Some(client) = shard.with_broker(|broker, _, _| broker.detach(self.id)) {
            *self.moving.borrow_mut() = Some(Box::new(MovingClient { client, to }));
            self.leave();
        }
    }

    /// Has both tasks end.
    fn leave(&self) {
        self.is_leaving.set(true);
        self.wake_reader();
        wake(&self.writer);
    }

    /// Ends the writer, for whatever reason the reader has ended. A peer that reads nothing would keep the writer waiting,
    /// and with it the descriptor, for ever.
    async fn end_writer(&self) {
        self.leave();
        future::poll_fn(|cx| {
            if !self.is_stuck.get() {
                return Poll::Ready(());
            }
            *self.reader.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Wakes the reader: the connection ends, or the broker reads it again.
    pub(crate) fn wake_reader(&self) {
        wake(&self.reader);
    }
}

fn wake(task: &RefCell<Option<Waker>>) {
    if let Some(waker) = task.borrow_mut().take() {
        waker.wake();
    }
}
