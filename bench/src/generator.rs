//! [`Generator`]: one thread of the load generator with its connections, on one epoll.
//!
//! ```text
//!   loop   do what is due: publishes, held messages, slow readers, storms, end of an interval
//!          wait until the next of these or for sockets
//!          sockets: read, handle, answer in one write
//! ```
//!
//! The thread waits for epoll, and once per read for the lock of a channel ledger. Besides the ledgers, the generator
//! threads share only the flags and counters of [`Control`].

mod connection;
pub mod consumer;
pub mod control;
pub mod link;
pub mod pace;
pub mod producer;
mod setup;
mod socket;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use rustix::event::epoll;

use crate::clock::Clock;
use crate::generator::consumer::{CallContext, HeldMessage};
use crate::generator::control::Control;
use crate::result::grid::Grid;
use crate::result::ledger::{LedgerEntry, ProducerRecord};
use crate::result::tally::Tally;
use crate::scenario::Scenario;
use crate::scenario::upgrades::Upgrades;
use connection::Connection;
pub use connection::{ConsumerSettings, Reading, Role, identify_json};
use fastrand::Rng;

/// Bytes of one read. Large enough that FINs are gathered, small enough to stay in the cache.
const READ_BYTES: usize = 128 * 1024;
/// The most connections that are set up at once, so that no listener's queue overflows.
const SETUPS_MAX: usize = 128;
/// Time between two looks at flags, slow readers and storms.
const TICK_NS: u64 = 5_000_000;
/// Buffers a producer fills in a row before others have their turn.
const ROUNDS_MAX: usize = 4;
/// Events taken from epoll at once.
const EVENTS_MAX: usize = 256;

/// A report of a generator thread to the conductor.
#[derive(Debug)]
pub enum Report {
    /// A generator thread has started.
    Started {
        /// The generator's number, from 0 on.
        generator: usize,
        /// The system's id of the thread.
        thread: u32,
    },
    /// An interval is over.
    Interval {
        /// The generator's number, from 0 on.
        generator: usize,
        /// The end of the interval, on the grid.
        boundary_ns: u64,
        /// The counts and latencies of the interval.
        tally: Box<Tally>,
    },
    /// A connection failed, and with it the run.
    Failed(String),
    /// A generator thread has ended.
    Ended(LastReport),
}

/// The last report of a generator thread, or of several together.
#[derive(Debug, Default)]
pub struct LastReport {
    /// The messages that its producers sent.
    pub records: Vec<ProducerRecord>,
    /// Messages that were due when publishing ended and had not been sent.
    pub unsent: u64,
    /// The counts and latencies since its last interval.
    pub tally: Box<Tally>,
}

/// The settings of a generator thread.
#[derive(Debug)]
pub struct GeneratorSettings {
    /// The generator's number, from 0 on.
    pub generator: usize,
    /// The core to pin the thread to; `None` leaves the choice to the system.
    pub core: Option<usize>,
    /// The daemon's TCP address, for V2 connections.
    pub tcp: SocketAddr,
    /// The daemon's HTTP address, for producers that publish by HTTP.
    pub http: Option<SocketAddr>,
    /// TLS and compression of V2 connections.
    pub upgrades: Arc<Upgrades>,
    /// The clock that all threads of the run share.
    pub clock: Clock,
    /// The state shared with the conductor.
    pub control: Arc<Control>,
    /// The roles of its connections.
    pub roles: Vec<Role>,
    /// The scenario that is run.
    pub scenario: Arc<Scenario>,
    /// Seed of the storms.
    pub seed: u64,
}

/// The flags of [`Control`] as seen at the last tick.
#[derive(Default)]
struct Seen {
    consuming: bool,
    published: bool,
    ended_publishing: bool,
}

/// A running generator thread.
struct Generator {
    settings: GeneratorSettings,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    grid: Grid,
    /// The time of the first send is known, and so is the grid.
    has_begun: bool,
    tally: Box<Tally>,
    reports: Sender<Report>,
    spares: Receiver<Box<Tally>>,
    scratch: Vec<u8>,
    entries: Vec<LedgerEntry>,
    /// Producers by the time of their next publish.
    publishes: BinaryHeap<Reverse<(u64, usize)>>,
    /// Held messages by the time they are due.
    held: BinaryHeap<Reverse<(HeldMessage, usize)>>,
    /// Connections that have more to do at once.
    again: Vec<usize>,
    /// Connections that read slowly.
    slow: Vec<usize>,
    /// The buffer for what epoll finds.
    events: Vec<epoll::Event>,
    random: Rng,
    next_storm_ns: u64,
    seen: Seen,
    /// Connections that are being set up.
    setups: usize,
    /// The thread has one connection, a producer's, and sleeps in its reads instead of in epoll.
    blocks: bool,
}

/// Runs a generator thread to its end. Reports a failure to the conductor.
pub fn run(settings: GeneratorSettings, reports: Sender<Report>, spares: Receiver<Box<Tally>>) {
    let failure = reports.clone();
    // The conductor is gone only when the run is over.
    let tell = |error: String| drop(failure.send(Report::Failed(error)));
    let thread = u32::try_from(rustix::thread::gettid().as_raw_pid()).unwrap_or(0);
    let started = Report::Started {
        generator: settings.generator,
        thread,
    };
    drop(reports.send(started));
    match Generator::new(settings, reports, spares) {
        Ok(mut generator) => {
            if let Err(error) = generator.live() {
                tell(error);
            }
            generator.end();
        }
        Err(error) => tell(format!("cannot start a generator thread: {error}")),
    }
}

/// Takes the first entry of a heap if it is due.
fn take_due<T: Ord>(
    heap: &mut BinaryHeap<Reverse<(T, usize)>>,
    is_due: impl Fn(&T) -> bool,
) -> Option<(T, usize)> {
    let next = heap.peek_mut().filter(|next| is_due(&next.0.0))?;
    Some(PeekMut::pop(next).0)
}

impl Generator {
    fn new(
        settings: GeneratorSettings,
        reports: Sender<Report>,
        spares: Receiver<Box<Tally>>,
    ) -> io::Result<Generator> {
        if let Some(id) = settings.core {
            core_affinity::set_for_current(core_affinity::CoreId { id });
        }
        // The kernel may delay a timer by the slack: the default of 50 us would all be lateness.
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
        Ok(Generator {
            random: Rng::with_seed(settings.seed),
            settings,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections: Vec::new(),
            grid: Grid::default(),
            has_begun: false,
            tally: Box::default(),
            reports,
            spares,
            scratch: vec![0; 2 * READ_BYTES],
            entries: Vec::new(),
            publishes: BinaryHeap::new(),
            held: BinaryHeap::new(),
            again: Vec::new(),
            slow: Vec::new(),
            events: Vec::with_capacity(EVENTS_MAX),
            next_storm_ns: u64::MAX,
            seen: Seen::default(),
            setups: 0,
            blocks: false,
        })
    }

    fn live(&mut self) -> Result<(), String> {
        self.set_up()?;
        if !self.start()? {
            // Stopped before the first send.
            return Ok(());
        }
        let mut next_tick_ns = 0;
        let mut boundary_ns = self.grid.boundary_after(self.grid.start);
        loop {
            let now_ns = self.settings.clock.now_ns();
            if now_ns >= next_tick_ns {
                if Control::is_set(&self.settings.control.stop) {
                    return Ok(());
                }
                self.tick(now_ns)?;
                next_tick_ns = now_ns + TICK_NS;
            }
            while now_ns >= boundary_ns {
                self.close_interval(boundary_ns);
                boundary_ns = self.grid.boundary_after(boundary_ns);
            }
            self.publish_due(now_ns)?;
            self.act_on_due()?;
            let next_publish = self.publishes.peek().map(|Reverse((at, _))| *at);
            let next_held = self.held.peek().map(|Reverse((held, _))| held.due_ns);
            let look_ns = next_tick_ns.min(boundary_ns);
            let until_ns = if self.again.is_empty() { look_ns } else { 0 };
            let due = next_publish.into_iter().chain(next_held);
            self.poll(due.fold(until_ns, u64::min))?;
            for index in std::mem::take(&mut self.again) {
                self.proceed(index)?;
            }
        }
    }

    /// Looks at the flags, lets slow readers read, and starts a storm if one is due.
    fn tick(&mut self, now_ns: u64) -> Result<(), String> {
        if !self.seen.consuming && Control::is_set(&self.settings.control.consume) {
            self.seen.consuming = true;
            for index in 0..self.connections.len() {
                if self.connections[index].ask_for_messages() {
                    self.proceed(index)?;
                }
            }
        }
        if !self.seen.ended_publishing && Control::is_set(&self.settings.control.end_publishing) {
            self.seen.ended_publishing = true;
            for index in 0..self.connections.len() {
                if let Role::Producer(producer) = &mut self.connections[index].role {
                    producer.end();
                    self.proceed(index)?;
                }
            }
        }
        if !self.seen.published && Control::is_set(&self.settings.control.published) {
            self.seen.published = true;
            for index in 0..self.connections.len() {
                self.connections[index].resume_reading();
                self.set_interest(index)?;
            }
        }
        if now_ns >= self.next_storm_ns && !self.seen.published {
            self.next_storm_ns = now_ns + self.settings.scenario.storm_every.as_ns();
            self.storm(self.settings.scenario.storm)?;
        }
        for at in 0..self.slow.len() {
            let index = self.slow[at];
            let allowance = self.connections[index].slow_allowance(now_ns);
            if allowance > 0 {
                self.read(index, allowance)?;
            }
        }
        Ok(())
    }

    fn publish_due(&mut self, now_ns: u64) -> Result<(), String> {
        while let Some((_, index)) = take_due(&mut self.publishes, |at| *at <= now_ns) {
            self.connections[index].scheduled = false;
            self.proceed(index)?;
        }
        Ok(())
    }

    fn act_on_due(&mut self) -> Result<(), String> {
        if self.held.is_empty() {
            return Ok(());
        }
        let now_ns = self.settings.clock.now_ns();
        let mut touched: Vec<usize> = Vec::new();
        let is_due = |held: &HeldMessage| held.due_ns <= now_ns;
        while let Some((held, index)) = take_due(&mut self.held, is_due) {
            let connection = &mut self.connections[index];
            let Role::Consumer(_, consumer) = &mut connection.role else {
                continue;
            };
            let mut context = CallContext {
                now_ns,
                measured: self.grid.measured(),
                output: &mut connection.link.output,
                tally: &mut self.tally,
                entries: &mut self.entries,
                connection: index,
                held: &mut self.held,
            };
            consumer.act(held, &mut context);
            if touched.last() != Some(&index) {
                touched.push(index);
            }
        }
        for index in touched {
            self.proceed(index)?;
        }
        Ok(())
    }

    fn close_interval(&mut self, boundary_ns: u64) {
        let fresh = self.spares.try_recv().unwrap_or_default();
        // The conductor is gone only when the run is over.
        drop(self.reports.send(Report::Interval {
            generator: self.settings.generator,
            boundary_ns,
            tally: std::mem::replace(&mut self.tally, fresh),
        }));
    }

    fn end(&mut self) {
        let mut last = LastReport {
            tally: std::mem::take(&mut self.tally),
            ..LastReport::default()
        };
        let until_ns = self.grid.publish_end.min(self.settings.clock.now_ns());
        for connection in &mut self.connections {
            if let Role::Producer(producer) = &connection.role {
                last.records.push(producer.record());
                last.unsent += producer.unsent(until_ns);
            }
            // Sends the last FINs. A broken connection has nothing to lose, so the error does not matter.
            drop(connection.link.flush());
        }
        drop(self.reports.send(Report::Ended(last)));
    }
}
