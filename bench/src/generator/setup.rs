//! The set-up of a thread's connections: all of them at first, later those that were dropped.

use std::cmp::Reverse;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::epoll;

use super::connection::{Connection, Role};
use super::{Generator, SETUPS_MAX, TICK_NS};
use crate::generator::control::Control;
use crate::random::chance;
use crate::scenario::Client;

impl Generator {
    /// Sets up all connections, a limited number at once.
    pub(super) fn set_up(&mut self) -> Result<(), String> {
        let mut roles = std::mem::take(&mut self.settings.roles).into_iter();
        let (total, mut told) = (roles.len(), 0);
        while told < total {
            let room = SETUPS_MAX.saturating_sub(self.setups);
            for role in roles.by_ref().take(room) {
                let index = self.connections.len();
                self.connections
                    .push(Connection::new(role, &self.settings)?);
                self.watch(index)?;
            }
            self.poll(self.settings.clock.now_ns() + TICK_NS)?;
            if Control::is_set(&self.settings.control.stop) {
                return Ok(());
            }
            let ready = self.connections.len() - self.setups;
            let told_ready = &self.settings.control.ready;
            told_ready.fetch_add(ready - told, Ordering::AcqRel);
            told = ready;
        }
        while self.settings.control.grid.get().is_none()
            && !Control::is_set(&self.settings.control.stop)
        {
            self.poll(self.settings.clock.now_ns() + TICK_NS / 5)?;
        }
        Ok(())
    }

    /// Starts the producers; false when there is no time of the first send.
    pub(super) fn start(&mut self) -> Result<bool, String> {
        let Some(grid) = self.settings.control.grid.get().copied() else {
            return Ok(false);
        };
        self.block_in_reads()?;
        self.grid = grid;
        self.has_begun = true;
        if !self.settings.scenario.storm_every.is_zero() {
            self.next_storm_ns = grid.start + self.settings.scenario.storm_every.as_ns();
        }
        for (index, connection) in self.connections.iter_mut().enumerate() {
            if connection.is_slow() {
                self.slow.push(index);
            }
            if let Role::Producer(producer) = &mut connection.role {
                producer.begin(self.grid.start, self.grid.measured());
                connection.scheduled = true;
                self.publishes.push(Reverse((self.grid.start, index)));
            }
        }
        Ok(true)
    }

    /// Lets the reads of a blocking client wait for input, up to the next tick.
    fn block_in_reads(&mut self) -> Result<(), String> {
        let is_blocking = self.settings.scenario.client == Client::Blocking;
        let ([connection], true) = (&self.connections[..], is_blocking) else {
            return Ok(());
        };
        if let Role::Producer(_) = &connection.role {
            let stream = &connection.link.stream;
            let waits = stream
                .set_nonblocking(false)
                .and_then(|()| stream.set_read_timeout(Some(Duration::from_nanos(TICK_NS))));
            waits.map_err(|error| connection.failure(&error))?;
            self.blocks = true;
        }
        Ok(())
    }

    /// Tells epoll of the socket of a connection whose set-up has begun.
    fn watch(&mut self, index: usize) -> Result<(), String> {
        let connection = &self.connections[index];
        self.setups += 1;
        let token = epoll::EventData::new_u64(index as u64);
        let (socket, flags) = (&connection.link.stream, connection.interest);
        epoll::add(&self.epoll, socket, token, flags)
            .map_err(|error| connection.failure(&error.into()))
    }

    pub(super) fn reconnect(&mut self, index: usize) -> Result<(), String> {
        self.tally.counts.answers.reconnected += 1;
        let connection = &mut self.connections[index];
        if let Role::Consumer(_, consumer) = &mut connection.role {
            consumer.dropped(&mut self.settings.control.ledger(consumer.channel));
        }
        connection.open_again()?;
        self.watch(index)
    }

    pub(super) fn storm(&mut self, share: f64) -> Result<(), String> {
        for index in 0..self.connections.len() {
            if self.connections[index].is_live_consumer() && chance(&mut self.random, share) {
                self.reconnect(index)?;
            }
        }
        Ok(())
    }
}
