//! One client connection: bytes in, bytes out, and the move to another shard.
//!
//! Reading: the socket is read into a big buffer that is warm (`Input`), and every complete command is
//! carried out before the task waits again. A connection keeps only an unfinished command, and what is
//! left for the sake of other connections or until its answers have left.
//!
//! Writing: the shard's turn writes for everybody, once per turn, straight from the log (`Shard::take_turn`). Only a
//! connection whose socket is full gets a task that waits for room. The broker is told what has left the process,
//! whether or not TLS or compression lie between ([`Transport`]).

use crate::auth::Question;
use crate::net::address::Peer;
use crate::net::input::{Filled, Input};
use crate::net::listener::Listener;
use crate::net::socket::Stream;
use crate::net::transport::{MovingTransport, Taken, Transport};
use crate::net::upgraded::HandshakeError;
use crate::reactor::{self, Sleep};
use crate::shard::Shard;
use crate::tls;
use engine_core::{ClientId, Sent};
use futures_lite::future;
use program::log::{self, Level};
use program::log_info;
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use upgrade::Layer;
use wire::go_error::system_text;
use wire::identify::Upgrade;

/// The time before the first look whether the peer of a question is still there, doubled each time up to the maximum:
/// ten thousand questions may wait for a slow auth server.
const GONE_INTERVAL: Duration = Duration::from_millis(100);
const GONE_INTERVAL_MAX: Duration = Duration::from_secs(2);

/// Pieces of output that go into one write. The kernel takes 1024.
pub(crate) const SLICES_MAX: usize = 64;

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
    leaving: Cell<Option<Leaving>>,
    /// The question to an auth server about this connection, until its answer is there.
    question: RefCell<Option<Box<Asking>>>,
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
    transport: MovingTransport,
    input: Vec<u8>,
    input_ended: bool,
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
    shard.add_connection(connection.clone());
    let shard = shard.clone();
    reactor::spawn(async move {
        read(&shard, &connection).await;
        let id = connection.id;
        connection.end_wait();
        connection.take_input(&shard);
        shard.remove_connection(id);
        if connection.leaving.get() != Some(Leaving::Moved) {
            shard.with_broker(|broker, _, out| broker.disconnect(id, out));
        }
    })
    .detach();
}

/// Reads and carries out commands until the connection ends or leaves.
async fn read(shard: &Rc<Shard>, connection: &Rc<Connection>) {
    loop {
        match future::poll_fn(|cx| connection.poll_reads(shard, cx)).await {
            Step::More => {
                reactor::come_last().await;
                while connection.carry_on(shard) {
                    reactor::come_last().await;
                }
            }
            Step::Pause(time) => shard.gather(time).await,
            Step::Over => return,
        }
    }
}

/// A question to an auth server that waits for its answer.
struct Asking {
    question: Question,
    /// The pause before the next look. It doubles with each look, up to [`GONE_INTERVAL_MAX`].
    interval: Duration,
    /// Ends when the connection looks again whether its peer is still there.
    look: Sleep,
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
    /// Less than there was room for, from a consumer that has enough messages in hand: it may be read this much later.
    Patient(Duration),
    /// The input holds as much as there was room for, or as much as may be carried out at once.
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
            leaving: Cell::new(None),
            question: RefCell::new(None),
            reader: RefCell::new(None),
            writer: RefCell::new(None),
        }
    }

    /// Reads until there is nothing more, or enough for one turn.
    fn poll_reads(self: &Rc<Self>, shard: &Rc<Shard>, cx: &mut Context<'_>) -> Poll<Step> {
        loop {
            match std::task::ready!(self.poll_read_once(shard, cx)) {
                // The reactor watches the socket already: this comes back pending, at no cost.
                ReadOnce::Some => {}
                ReadOnce::Patient(time) => return Poll::Ready(Step::Pause(time)),
                ReadOnce::Full => return Poll::Ready(Step::More),
                ReadOnce::Over => return Poll::Ready(Step::Over),
            }
        }
    }

    /// One read and everything it completes.
    fn poll_read_once(self: &Rc<Self>, shard: &Rc<Shard>, cx: &mut Context<'_>) -> Poll<ReadOnce> {
        if self.leaving.get().is_some() {
            return Poll::Ready(ReadOnce::Over);
        }
        if self.has_more(shard) {
            // Input is left because the broker ended the piece, because the broker did not read this connection until
            // now, or because the connection came from another shard. [`read`] carries on with this input after all
            // other connections have had their turn.
            return Poll::Ready(ReadOnce::Full);
        }
        if !shard.is_reading(self.id) {
            if self.transport.is_handshaking() {
                return self.poll_handshake(shard, cx);
            }
            if self.poll_gone(cx) {
                return Poll::Ready(ReadOnce::Over);
            }
            // Backpressure, an answer that has to come first, or output that has yet to leave.
            *self.reader.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if self.input_ended.get() {
            self.finish_input(shard);
            return Poll::Ready(ReadOnce::Some);
        }
        let filled = self.input.borrow_mut().poll_fill(
            &mut shard.buffers.borrow_mut(),
            shard.needs(self.id),
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
            return Poll::Ready(ReadOnce::Some);
        }
        shard.read_clock();
        self.offer(shard);
        if filled == Filled::All || self.has_more(shard) {
            return Poll::Ready(ReadOnce::Full);
        }
        let delay = shard.coalescing_delay(self.id);
        Poll::Ready(delay.map_or(ReadOnce::Some, ReadOnce::Patient))
    }

    /// Returns whether the broker can carry out more of the input that is there. [`Connection::poll_read_once`] names
    /// the reasons why such input is left.
    fn has_more(&self, shard: &Rc<Shard>) -> bool {
        shard.has_more(self.id, self.input.borrow().bytes().len())
    }

    /// Carries out what there is of the input, or as much as may be at once.
    fn offer(&self, shard: &Rc<Shard>) {
        let mut input = self.input.borrow_mut();
        let consumed = shard.with_broker(|broker, now, out| {
            broker.set_tracing(log::enabled(Level::Debug));
            broker.receive(now, self.id, input.bytes(), out)
        });
        input.consumed(&mut shard.buffers.borrow_mut(), consumed);
    }

    /// Nothing follows the input.
    fn finish_input(&self, shard: &Rc<Shard>) {
        let input = self.input.borrow();
        shard.with_broker(|broker, _, out| broker.finish_input(self.id, input.bytes(), out));
    }

    fn take_input(&self, shard: &Rc<Shard>) -> Vec<u8> {
        let mut input = self.input.borrow_mut();
        input.take(&mut shard.buffers.borrow_mut())
    }

    /// Wakes the reader, because the broker reads this connection again.
    pub(crate) fn read_on(&self) {
        self.wake_reader();
    }

    /// Carries out one piece of the unread input. Returns false if the broker can take no input now, or there is none.
    fn carry_on(&self, shard: &Rc<Shard>) -> bool {
        let has_more = self.leaving.get().is_none() && self.has_more(shard);
        if has_more {
            shard.read_clock();
            self.offer(shard);
        }
        has_more
    }

    // --- authorization

    /// Holds a question until its answer is there. The question of a peer that goes meanwhile is dropped.
    pub(crate) fn wait_for_answer(&self, question: Question) {
        *self.question.borrow_mut() = Some(Box::new(Asking {
            question,
            interval: GONE_INTERVAL,
            look: reactor::sleep(GONE_INTERVAL),
        }));
        self.wake_reader();
    }

    /// Forgets the question.
    pub(crate) fn end_wait(&self) {
        drop(self.question.take());
    }

    /// Returns true when the peer has ended its side while its question waits and fewer threads are free than questions
    /// wait. Then no auth server is asked. In all other cases the question is asked and answered, because a peer may
    /// end its side and still listen.
    fn poll_gone(&self, cx: &mut Context<'_>) -> bool {
        let mut question = self.question.borrow_mut();
        let Some(asking) = question.as_mut() else {
            return false;
        };
        while Pin::new(&mut asking.look).poll(cx).is_ready() {
            if self.transport.has_hung_up() && asking.question.take_back_if_queued() {
                return true;
            }
            asking.interval = (asking.interval * 2).min(GONE_INTERVAL_MAX);
            asking.look = reactor::sleep(asking.interval);
        }
        false
    }

    // --- upgrades

    /// Puts a layer behind the output that is there.
    pub(crate) fn upgrade(self: &Rc<Self>, shard: &Rc<Shard>, upgrade: Upgrade) {
        // Input that came before the client could know of the upgrade is dropped, as in nsqd.
        self.take_input(shard);
        let layer = match upgrade {
            Upgrade::Tls => shard.tls_layer(),
            Upgrade::Snappy => Ok(Layer::snappy()),
            Upgrade::Deflate(level) => Ok(Layer::deflate(u32::from(level))),
        };
        if let Err(error) = layer
            .map_err(io::Error::from)
            .and_then(|layer| self.push_layer(shard, layer))
        {
            return shard.with_broker(|broker, _, out| {
                broker.upgrade_failed(self.id, &error.to_string(), out);
            });
        }
        match upgrade {
            Upgrade::Tls => {
                shard.with_broker(|broker, now, _| broker.upgrade_begins(now, self.id));
                self.wake_reader();
            }
            Upgrade::Snappy | Upgrade::Deflate(_) => {
                shard.with_broker(|broker, now, out| broker.upgraded(now, self.id, None, out));
            }
        }
    }

    fn push_layer(&self, shard: &Rc<Shard>, layer: Layer) -> io::Result<()> {
        shard.with_broker_in_turn(|broker, _, _| {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = broker.output(self.id, &mut slices);
            self.transport.upgrade(layer, &slices[..count])
        })
    }

    /// One read of the handshake and its answer.
    fn poll_handshake(self: &Rc<Self>, shard: &Rc<Shard>, cx: &mut Context<'_>) -> Poll<ReadOnce> {
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
        Poll::Ready(ReadOnce::Some)
    }

    /// Tells the peer in the clear that there is no TLS, behind TLS's own last word.
    fn fail_handshake(&self, shard: &Rc<Shard>, error: &HandshakeError) {
        self.transport.clear();
        shard.with_broker(|broker, _, out| {
            broker.upgrade_failed(self.id, &error.to_string(), out);
        });
    }

    /// The peer was silent for too long.
    pub(crate) fn expire(&self, shard: &Rc<Shard>) {
        self.input_ended.set(true);
        self.finish_input(shard);
    }

    /// Fails the handshake, for which the peer took too long. Does nothing if the handshake has just been completed.
    pub(crate) fn expire_upgrade(&self, shard: &Rc<Shard>) {
        if self.transport.is_handshaking() {
            self.fail_handshake(shard, &HandshakeError::TimedOut);
        }
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
        let descriptor = self.transport.duplicate()?;
        let Some(client) = shard.with_broker(|broker, _, _| broker.detach(self.id)) else {
            return Ok(None);
        };
        self.leave(Leaving::Moved);
        let input = self.take_input(shard);
        Ok(Some(Moving {
            client,
            transport: self.transport.move_to(descriptor),
            input,
            input_ended: self.input_ended.get(),
        }))
    }

    /// Writes what is queued, as far as the socket takes it.
    pub(crate) fn flush(self: &Rc<Self>, shard: &Rc<Shard>) {
        if self.is_stuck.get() || self.leaving.get().is_some() {
            return;
        }
        match self.write(shard) {
            Ok(Progress::Done) => {}
            Ok(_) => {
                self.is_stuck.set(true);
                let (connection, shard) = (self.clone(), shard.clone());
                reactor::spawn(async move { connection.write_stuck(&shard).await }).detach();
            }
            Err(error) => self.abandon(shard, &error),
        }
    }

    /// Writes as much as the socket takes, and then lets the broker decide whether the output leaves too slowly. Linux
    /// reports room in the socket too late for this decision.
    pub(crate) fn expire_output(&self, shard: &Rc<Shard>) {
        if self.leaving.get().is_none() {
            match self.write(shard) {
                // Nothing may be left to write: wake the task that waits for room.
                Ok(_) => wake(&self.writer),
                Err(error) => return self.abandon(shard, &error),
            }
        }
        shard.with_broker(|broker, now, out| broker.write_expired(now, self.id, out));
    }

    /// Writes until nothing is left, or the socket is full.
    fn write(&self, shard: &Rc<Shard>) -> io::Result<Progress> {
        loop {
            match self.write_once(shard)? {
                Progress::More => {}
                progress => return Ok(progress),
            }
        }
    }

    /// Writes once, and tells the broker what has left.
    fn write_once(&self, shard: &Rc<Shard>) -> io::Result<Progress> {
        let (taken, rest) = shard.with_broker_in_turn(|broker, now, out| {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = broker.output(self.id, &mut slices);
            let written = self.transport.send(&slices[..count])?;
            io::Result::Ok((written.taken, broker.sent(now, self.id, written.left, out)))
        })?;
        Ok(match (taken, rest) {
            (Taken::Nothing, _) => Progress::Blocked,
            (_, Sent::Over) => {
                self.close();
                Progress::Done
            }
            (Taken::Part, _) => Progress::Full,
            (Taken::All, Sent::More) => Progress::More,
            (Taken::All, Sent::All) => Progress::Done,
        })
    }

    /// Ends a connection whose socket has failed on a write.
    fn abandon(&self, shard: &Rc<Shard>, error: &io::Error) {
        self.record_failure(shard, "failed to send response", "write", error);
        shard.with_broker(|broker, _, _| broker.abandon(self.id));
        self.close();
    }

    /// Gives the broker the reason of the connection's end, in nsqd's words.
    fn record_failure(&self, shard: &Rc<Shard>, what: &str, call: &str, error: &io::Error) {
        let local = self.transport.local_text();
        let why = system_text(error);
        shard.with_broker(|broker, _, _| {
            let peer = broker.address(self.id).unwrap_or_default();
            let reason = format!("{what} - {call} {local}->{peer}: {call}: {why}");
            broker.set_end_reason(self.id, reason);
        });
    }

    /// Waits for room in the socket and writes, until nothing is left.
    async fn write_stuck(self: Rc<Self>, shard: &Rc<Shard>) {
        let result = future::poll_fn(|cx| {
            if self.leaving.get().is_some() {
                return Poll::Ready(Ok(()));
            }
            // The wait may have been long, and what leaves now counts for the write deadline.
            shard.read_clock();
            // What leaves makes room for deliveries.
            shard.turn.set();
            loop {
                match self.write_once(shard)? {
                    Progress::More | Progress::Full => {}
                    Progress::Done => return Poll::Ready(Ok(())),
                    Progress::Blocked => {
                        *self.writer.borrow_mut() = Some(cx.waker().clone());
                        self.transport.wait_writable(cx);
                        return Poll::Pending;
                    }
                }
            }
        })
        .await;
        self.is_stuck.set(false);
        if let Err(error) = result {
            self.abandon(shard, &error);
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

/// How far a write has come.
enum Progress {
    /// Nothing is left to write, or the connection ends.
    Done,
    /// There is more, and the socket may take it.
    More,
    /// There is more. The socket took the last piece only in part.
    Full,
    /// There is more. The socket took nothing.
    Blocked,
}
