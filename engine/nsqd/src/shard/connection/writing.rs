//! The output of a connection: once per turn for everybody, and when the socket has room again.

use super::{Connection, wake};
use crate::net::upgraded::SLICES_MAX;
use crate::net::written::{Taken, Written};
use crate::reactor;
use crate::shard::Shard;
use engine_rules::{ClientId, Sent};
use futures_lite::future;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Poll, ready};
use wire::go_error::system_text;

/// A connection with more output than this is served by a task of its own, in which it takes turns with the others.
const WRITTEN_BYTES_MAX: usize = reactor::BYTES_PER_POLL;

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
            connection.end_staged(shard, sent);
        });
    }
}

impl Connection {
    /// Writes the queued output, as far as the socket takes it.
    pub(super) fn flush(self: &Rc<Self>, shard: &Rc<Shard>) {
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

    /// Takes the result of a write that was staged, and writes what is left.
    fn end_staged(self: &Rc<Self>, shard: &Rc<Shard>, sent: reactor::Sent) {
        self.end_write(shard, Written::of(sent));
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
        self.transport.was_upgraded() && self.transport.stream().is_budget_spent()
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
                self.transport.stream().count_more_work(left);
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
    pub(super) fn record_failure(
        &self,
        shard: &Rc<Shard>,
        what: &str,
        call: &str,
        error: &io::Error,
    ) {
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
                ready!(stream.poll_budget(cx));
                let (progress, left) = self.write_once(shard)?;
                stream.count_work(left);
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
