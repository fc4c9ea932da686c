//! The sockets of a generator thread: waiting, reading, handling input, writing.

use std::cmp::Reverse;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::connection::{Role, Stage};
use super::{Generator, READ_BYTES, ROUNDS_MAX};
use crate::generator::consumer::CallContext;
use crate::generator::producer::Wait;

impl Generator {
    /// Waits for the sockets, but not beyond `until_ns`, and handles those that are ready.
    pub(super) fn poll(&mut self, until_ns: u64) -> Result<(), String> {
        let wait_ns = until_ns.saturating_sub(self.settings.clock.now_ns());
        if self.blocks && wait_ns > 0 {
            return self.read(0, READ_BYTES);
        }
        let timeout = Timespec {
            tv_sec: (wait_ns / 1_000_000_000).cast_signed(),
            tv_nsec: (wait_ns % 1_000_000_000).cast_signed(),
        };
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(format!("cannot wait for sockets: {error}")),
        }
        for event in &events {
            let index = event.data.u64() as usize;
            let flags = event.flags;
            let connection = &mut self.connections[index];
            if connection.stage == Stage::Opening && flags.intersects(epoll::EventFlags::OUT) {
                connection
                    .opened()
                    .map_err(|error| connection.failure(&error))?;
                self.setups -= 1;
            }
            let gone = epoll::EventFlags::HUP | epoll::EventFlags::ERR;
            if flags.intersects(gone | epoll::EventFlags::IN) && connection.reads_at_once() {
                self.read(index, READ_BYTES)?;
            } else if flags.intersects(gone) {
                self.broken(index, &io::ErrorKind::UnexpectedEof.into())?;
            } else {
                self.proceed(index)?;
            }
        }
        self.events = events;
        Ok(())
    }

    /// Reads once and handles what came.
    pub(super) fn read(&mut self, index: usize, most: usize) -> Result<(), String> {
        let connection = &mut self.connections[index];
        let mut length = match connection.link.read(&mut self.scratch, most) {
            Ok(Some(length)) => length,
            Ok(None) => return self.proceed(index),
            Err(error) => return self.broken(index, &error),
        };
        let mut handled = 0;
        if connection.is_in_setup() {
            let rest = connection.greet(&mut self.scratch, length)?;
            (handled, length) = (rest.start, rest.end);
            if !connection.is_in_setup() {
                self.setups -= 1;
                if self.seen.consuming {
                    connection.ask_for_messages();
                }
            }
        }
        if connection.stage == Stage::Live {
            handled += self.handle(index, handled..length)?;
        }
        let rest = &self.scratch[handled..length];
        self.connections[index].link.keep(rest);
        self.proceed(index)
    }

    /// Handles the frames or answers at the front of a part of the scratch buffer; returns their bytes.
    pub(super) fn handle(&mut self, index: usize, part: Range<usize>) -> Result<usize, String> {
        let connection = &mut self.connections[index];
        // Each read has its own time, because handling the reads before it took a while.
        let now_ns = self.settings.clock.now_ns();
        let input = &self.scratch[part];
        let output = &mut connection.link.output;
        let handled = match &mut connection.role {
            Role::Producer(producer) => producer.answers(input, now_ns, output, &mut self.tally),
            Role::Consumer(_, consumer) => {
                let mut context = CallContext {
                    now_ns,
                    measured: self.grid.measured(),
                    output,
                    tally: &mut self.tally,
                    entries: &mut self.entries,
                    connection: index,
                    held: &mut self.held,
                };
                let handled = consumer.frames(input, &mut context);
                let mut ledger = self.settings.control.ledger(consumer.channel);
                self.entries.drain(..).for_each(|entry| ledger.enter(entry));
                handled
            }
        };
        handled.map_err(|text| format!("{}: {text}", connection.name()))
    }

    /// Handles a broken connection. Slow and stalled readers connect again, because a daemon may drop
    /// them. Any other broken connection ends the run.
    pub(super) fn broken(&mut self, index: usize, error: &io::Error) -> Result<(), String> {
        let connection = &self.connections[index];
        if connection.may_be_dropped() {
            self.reconnect(index)
        } else {
            Err(connection.failure(error))
        }
    }

    /// Publishes what is due as far as there is room, writes, and sets what epoll waits for.
    pub(super) fn proceed(&mut self, index: usize) -> Result<(), String> {
        for _ in 0..ROUNDS_MAX {
            let connection = &mut self.connections[index];
            let link = &mut connection.link;
            let mut wait = Wait::Done;
            let mut awaits_answer = true;
            if let Role::Producer(producer) = &mut connection.role
                && self.has_begun
            {
                let now_ns = self.settings.clock.now_ns();
                wait = producer.publish(now_ns, &mut link.output, &mut self.tally);
                awaits_answer = producer.awaits_answer();
                if wait == Wait::Done && producer.outstanding_messages == 0 && !connection.done {
                    connection.done = true;
                    let control = &self.settings.control;
                    control
                        .owed
                        .fetch_add(producer.acknowledged(), Ordering::AcqRel);
                    control.producers_done.fetch_add(1, Ordering::AcqRel);
                }
            }
            let empty = match link.flush() {
                Ok(empty) => empty,
                Err(error) => return self.broken(index, &error),
            };
            match wait {
                Wait::Until(at) if !connection.scheduled => {
                    connection.scheduled = true;
                    self.publishes.push(Reverse((at, index)));
                }
                // Only the full buffer was in the way, and it is empty now.
                Wait::Daemon if empty && !awaits_answer => continue,
                Wait::Until(_) | Wait::Daemon | Wait::Done => {}
            }
            return self.set_interest(index);
        }
        self.again.push(index);
        self.set_interest(index)
    }

    pub(super) fn set_interest(&mut self, index: usize) -> Result<(), String> {
        let connection = &mut self.connections[index];
        let wanted = connection.wanted_interest();
        if wanted != connection.interest {
            let token = epoll::EventData::new_u64(index as u64);
            epoll::modify(&self.epoll, &connection.link.stream, token, wanted)
                .map_err(|error| connection.failure(&error.into()))?;
            connection.interest = wanted;
        }
        Ok(())
    }
}
