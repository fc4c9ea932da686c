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

use crate::net::address::Peer;
use crate::net::input::{Filled, Input};
use crate::net::listener::Listener;
use crate::net::socket::{Stream, Taken, Written};
use crate::net::transport::Transport;
use crate::net::upgraded::{HandshakeError, SLICES_MAX};
use crate::reactor;
use crate::shard::Shard;
use crate::shard::mail::{Mail, Moving};
use crate::tls;
use engine_rules::{Client, ClientId, Sent, ShardId};
use futures_lite::future;
use program::log::{self, Level};
use program::log_info;
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use upgrade::Upgrade;
use wire::go_error::system_text;
use wire::identify::GrantedUpgrade;

/// A connection with more output than this is served by a task of its own, in which it takes turns with the others.
const WRITTEN_BYTES_MAX: usize = reactor::BYTES_PER_POLL;

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
    /// The client, which the broker has given up, and the shard to which it moves, until the connection's tasks have ended.
    moving: RefCell<Option<Box<(Client, ShardId)>>>,
    /// The task that reads, while it waits.
    reader: RefCell<Option<Waker>>,
    /// The task that waits for room in the socket.
    writer: RefCell<Option<Waker>>,
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
    let id = connection.id;
    shard
        .connections
        .borrow_mut()
        .insert(id, connection.clone());
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
    shard.connections.borrow_mut().remove(id);
    let input = connection.take_input(shard);
    let Some(moving) = connection.moving.take() else {
        return shard.with_broker(|broker, _, out| broker.disconnect(id, out));
    };
    let (client, to) = *moving;
    let connection = Rc::into_inner(connection).expect("the reader is the last task");
    let mail = Mail::Connection(Box::new(Moving {
        client,
        transport: connection.transport.into_moving(),
        input,
        input_ended: connection.input_ended.get(),
    }));
    shard.shared.post.send(to, mail);
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

/// Writes the queued output of connections, as far as their sockets take it. Several small outputs leave together.
pub(crate) fn flush_all(shard: &Rc<Shard>, ids: &[ClientId], staged: &mut Vec<Rc<Connection>>) {
    for ids in ids.chunks(reactor::SENDS_MAX) {
        for id in ids {
            shard.at_connection(*id, |connection| {
                if connection.may_flush() && connection.has_to_wait() {
                    connection.settle(shard, Ok(Progress::More));
                } else if ids.len() == 1 {
                    connection.flush(shard);
                } else if connection.stage_or_flush(shard) {
                    staged.push(connection.clone());
                }
            });
        }
        let mut connections = staged.drain(..);
        reactor::send_staged(|sent| {
            let connection = connections.next().expect("each connection staged once");
            connection.end_write(shard, Written::of(sent));
        });
    }
}

/// The result of one read.
enum ReadOnce {
    /// The read left budget: the reader waits for more input, if any comes.
    Read,
    /// Like `Read`, from a consumer that has enough messages in hand: it may be read this much later.
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
        if self.transport.stream().source().is_budget_spent() || self.has_more(shard) {
            return Poll::Ready(ReadOnce::Full);
        }
        let Some(delay) = shard.broker.borrow_mut().coalescing_delay(self.id) else {
            return Poll::Ready(ReadOnce::Read);
        };
        self.transport.stream().source().let_gather();
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
            *self.moving.borrow_mut() = Some(Box::new((client, to)));
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

    // --- TLS and compression

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

    // --- output

    /// Writes the queued output, as far as the socket takes it.
    fn flush(self: &Rc<Self>, shard: &Rc<Shard>) {
        if self.may_flush() {
            self.settle(shard, self.write(shard));
        }
    }

    /// Stages the queued output, or writes it, as far as the socket takes it. Returns whether it is staged.
    fn stage_or_flush(self: &Rc<Self>, shard: &Rc<Shard>) -> bool {
        if !self.may_flush() {
            return false;
        }
        let written = shard.with_broker_in_turn(|broker, _, _| {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = broker.output(self.id, &mut slices);
            let output = &slices[..count];
            let is_staged = count > 0 && self.transport.stage(output);
            (!is_staged).then(|| self.transport.send(output))
        });
        let is_staged = written.is_none();
        if let Some(written) = written {
            self.end_write(shard, written);
        }
        is_staged
    }

    /// Takes the result of a first write, and writes what is left.
    fn end_write(self: &Rc<Self>, shard: &Rc<Shard>, written: io::Result<Written>) {
        let progress = match written.map(|written| self.record(shard, written)) {
            Ok(Progress::More) => self.write(shard),
            progress => progress,
        };
        self.settle(shard, progress);
    }

    fn may_flush(&self) -> bool {
        !self.is_stuck.get() && !self.is_leaving.get()
    }

    /// Returns whether TLS or compression of this output has to wait until the other tasks have had their turn: a turn may
    /// have output for thousands of connections.
    fn has_to_wait(&self) -> bool {
        self.transport.was_upgraded() && self.transport.stream().source().is_budget_spent()
    }

    /// Has a task write what is left, when the socket has room and the others have had their turn.
    fn settle(self: &Rc<Self>, shard: &Rc<Shard>, progress: io::Result<Progress>) {
        match progress {
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
        if !self.is_leaving.get() {
            match self.write(shard) {
                // Nothing may be left to write: wake the task that waits for room.
                Ok(_) => wake(&self.writer),
                Err(error) => return self.abandon(shard, &error),
            }
        }
        shard.with_broker(|broker, now, out| broker.write_expired(now, self.id, out));
    }

    /// Writes until nothing is left, the socket is full, or [`WRITTEN_BYTES_MAX`] have left.
    fn write(&self, shard: &Rc<Shard>) -> io::Result<Progress> {
        let mut bytes = 0;
        loop {
            let (progress, left) = self.write_once(shard)?;
            bytes += left;
            if self.transport.was_upgraded() {
                self.transport.stream().source().count_more_work(left);
            }
            if !matches!(progress, Progress::More) || bytes >= WRITTEN_BYTES_MAX {
                return Ok(progress);
            }
        }
    }

    /// Writes once, and tells the broker what has left. Returns how many bytes that are.
    fn write_once(&self, shard: &Rc<Shard>) -> io::Result<(Progress, usize)> {
        let written = shard.with_broker_in_turn(|broker, _, _| {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = broker.output(self.id, &mut slices);
            self.transport.send(&slices[..count])
        })?;
        let left = written.left;
        Ok((self.record(shard, written), left))
    }

    /// Tells the broker what has left.
    fn record(&self, shard: &Rc<Shard>, written: Written) -> Progress {
        let rest = shard
            .with_broker_in_turn(|broker, now, out| broker.sent(now, self.id, written.left, out));
        match (written.taken, rest) {
            (Taken::Nothing, _) => Progress::Blocked,
            (_, Sent::Over) => {
                self.close();
                Progress::Done
            }
            (Taken::Part, _) => Progress::Full,
            (Taken::All, Sent::More) => Progress::More,
            (Taken::All, Sent::All) => Progress::Done,
        }
    }

    /// Ends a connection whose socket has failed on a write.
    fn abandon(&self, shard: &Rc<Shard>, error: &io::Error) {
        self.record_failure(shard, "failed to send response", "write", error);
        shard.with_broker(|broker, _, _| broker.abandon(self.id));
        self.close();
    }

    /// Gives the broker the reason of the connection's end, in nsqd's words.
    fn record_failure(&self, shard: &Rc<Shard>, what: &str, call: &str, error: &io::Error) {
        let local = self.transport.stream().local_text();
        let why = system_text(error);
        shard.with_broker(|broker, _, _| {
            let peer = broker.address(self.id).unwrap_or_default();
            let reason = format!("{what} - {call} {local}->{peer}: {call}: {why}");
            broker.set_end_reason(self.id, reason);
        });
    }

    /// Waits for room in the socket and writes, until nothing is left. The others have their turn in between, however
    /// fast the peer reads: compression of a large message takes long.
    async fn write_stuck(self: Rc<Self>, shard: &Rc<Shard>) {
        let result = future::poll_fn(|cx| {
            if self.is_leaving.get() {
                return Poll::Ready(Ok(()));
            }
            // The wait may have been long, and what leaves now counts for the write deadline.
            shard.read_clock();
            // The bytes that leave make room for deliveries.
            shard.turn.set();
            let stream = self.transport.stream();
            loop {
                ready!(stream.source().poll_budget(cx));
                let (progress, left) = self.write_once(shard)?;
                stream.source().count_work(left);
                match progress {
                    Progress::More | Progress::Full => {}
                    Progress::Done => return Poll::Ready(Ok(())),
                    Progress::Blocked => {
                        *self.writer.borrow_mut() = Some(cx.waker().clone());
                        stream.wait_writable(cx);
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
        if self.is_leaving.get() {
            // The reader waits for the end of this task.
            self.wake_reader();
        }
    }
}

/// The state of the output after a write.
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

fn wake(task: &RefCell<Option<Waker>>) {
    if let Some(waker) = task.borrow_mut().take() {
        waker.wake();
    }
}
